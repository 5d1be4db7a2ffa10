//! Everything that reads foreign bytes, guided by what code they reach: libFuzzer without a sanitizer, which the stable
//! compiler can do. Inputs that reached something new are kept under target/fuzz/corpus and tried first the next time.

use crate::run;
use anyhow::{Context, bail};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Counters of edges and compared values in all code of the targets, which libFuzzer reads.
const COUNTERS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";
/// An input that takes longer, or more memory, is a finding too.
const BOUNDS: [&str; 4] = ["-timeout=10", "-rss_limit_mb=1024", "-max_len=16384", "-print_final_stats=1"];

/// Where the fuzzer's files lie.
struct Place {
    built: PathBuf,
    seeds: PathBuf,
    corpus: PathBuf,
    findings: PathBuf,
    /// Where targets put files; removed at the end.
    temporary: PathBuf,
}

/// Fuzzes every target, or one, for so long each, as many at once as there are processors. Says how many inputs were tried;
/// an error where one of them broke something.
#[allow(clippy::print_stdout)]
pub(crate) fn run(only: Option<&str>, seconds: u64) -> anyhow::Result<()> {
    let workspace = run::workspace()?;
    let targets = targets(&workspace, only)?;
    let place = build(&workspace)?;
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut broken = Vec::new();
    for some in targets.chunks(at_once) {
        let running: Vec<Child> = some.iter().map(|name| start(&place, name, seconds)).collect::<Result<_, _>>()?;
        for (name, child) in some.iter().zip(running) {
            let output = child.wait_with_output().with_context(|| format!("cannot wait for {name}"))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("{}", row(name, &said));
            if !output.status.success() {
                broken.push(format!("{name}: {}", last_lines(&said)));
            }
        }
    }
    // A target ends at once, and leaves its files.
    std::fs::remove_dir_all(&place.temporary)?;
    if !broken.is_empty() {
        bail!("inputs that break something are in {}:\n{}", place.findings.display(), broken.join("\n"));
    }
    Ok(())
}

/// Whether the targets still fit what they fuzz: nothing else compiles the code that is only for them.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut cargo = run::command("cargo")?;
    cargo.args(["check", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz-check"]);
    let status = cargo.env("RUSTFLAGS", "--cfg fuzzing").current_dir(run::workspace()?).status();
    if !status.context("cannot start cargo")?.success() {
        bail!("the fuzz targets do not compile");
    }
    Ok(())
}

fn targets(workspace: &Path, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    let dir = workspace.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut all: Vec<String> =
        files.filter_map(|path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned)).collect();
    all.sort();
    let chosen: Vec<String> = all.iter().filter(|name| only.is_none_or(|only| only == *name)).cloned().collect();
    if chosen.is_empty() {
        bail!("there is no fuzz target '{}'; there are: {}", only.unwrap_or_default(), all.join(", "));
    }
    Ok(chosen)
}

fn build(workspace: &Path) -> anyhow::Result<Place> {
    let version = run::output("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not say its host")?;
    let at = workspace.join("target/fuzz");
    let mut cargo = run::command("cargo")?;
    // A target by name keeps the counters out of build scripts, which have no fuzzer to read them.
    cargo.args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target", host]);
    cargo.arg("--target-dir").arg(&at).env("RUSTFLAGS", COUNTERS);
    if !cargo.status().context("cannot start cargo")?.success() {
        bail!("the fuzz targets do not compile");
    }
    let place = Place {
        built: at.join(host).join("release"),
        seeds: workspace.join("fuzz/seeds"),
        corpus: at.join("corpus"),
        findings: at.join("findings"),
        temporary: at.join("temporary"),
    };
    for dir in [&place.findings, &place.temporary] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    Ok(place)
}

fn start(place: &Place, name: &str, seconds: u64) -> anyhow::Result<Child> {
    let corpus = place.corpus.join(name);
    std::fs::create_dir_all(&corpus)?;
    let program = place.built.join(name);
    let mut command = run::command(program.to_str().context("a path that is no text")?)?;
    command.env("TMPDIR", &place.temporary);
    command.arg(format!("-max_total_time={seconds}")).args(BOUNDS);
    command.arg(format!("-artifact_prefix={}/{name}-", place.findings.display())).arg(corpus);
    let seeds = place.seeds.join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(|| format!("cannot start {name}"))
}

/// One target's line: inputs tried, and edges that they reached.
fn row(name: &str, said: &str) -> String {
    let tried =
        said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")).unwrap_or("?").trim();
    let reached = said.lines().rev().find_map(|line| line.split_once("cov: ")?.1.split(' ').next()).unwrap_or("?");
    let mut row = String::new();
    // Writing into a text cannot fail.
    let _ = write!(row, "{name:<14} {tried:>12} inputs, {reached:>6} edges");
    row
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fuzzer_says_becomes_a_line() {
        let said = "#1 INITED cov: 12 ft: 13\n#9 DONE   cov: 345 ft: 1 corp: 2\nstat::number_of_executed_units: 99\n";
        assert_eq!(row("opening", said), "opening                  99 inputs,    345 edges");
        assert_eq!(row("opening", ""), "opening                   ? inputs,      ? edges");
    }
}
