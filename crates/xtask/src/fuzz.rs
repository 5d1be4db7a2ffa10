//! Everything that reads foreign bytes, guided by what code they reach: libFuzzer without a sanitizer, which the stable
//! compiler can do. Inputs that reached something new are kept under target/fuzz/corpus and tried first the next time.
//!
//! The workspace's own crates are built with a fuzzer's counters, and what they depend on is taken as it is built for
//! everything else: cargo calls this program in the compiler's place for members of the workspace ([`compile`]).

use crate::run;
use anyhow::{Context, anyhow, bail};
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

/// Counters of edges and compared values, which libFuzzer reads (cargo does not see them: after a change here, build anew), in code that is quickly built and panics where a number overflows.
const COUNTERS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Copt-level=1 -Cdebug-assertions=on -Coverflow-checks=on";
/// What runs beside tests gives way to them.
const NICE: [&str; 3] = ["nice", "-n", "19"];
/// An input that takes more memory is a finding too.
const BOUNDS: [&str; 3] = ["-rss_limit_mb=1024", "-max_len=16384", "-print_final_stats=1"];
/// And one that takes longer: by the clock, which beside tests says little of what was done.
const TIMEOUT_S: u64 = 10;
const TIMEOUT_BESIDE_OTHERS_S: u64 = 300;

/// This program, as it was when it started: what lies at its path by now may have been linked anew.
static OWN: LazyLock<std::io::Result<PathBuf>> = LazyLock::new(std::env::current_exe);

/// The fuzzer, built, and where its files lie.
pub(crate) struct Fuzzer {
    program: PathBuf,
    targets: PathBuf,
    seeds: PathBuf,
    corpus: PathBuf,
    findings: PathBuf,
    /// Where targets put files, and what they say; removed at the end.
    temporary: PathBuf,
    timeout_s: u64,
}

impl Fuzzer {
    /// As it runs beside others, which take what processors there are.
    pub(crate) fn beside_others(self) -> Fuzzer {
        Fuzzer { timeout_s: TIMEOUT_BESIDE_OTHERS_S, ..self }
    }

    /// Fuzzes every target, or one, for so long each, so many at once. Says how many inputs were tried; an error where one of
    /// them broke something.
    #[allow(clippy::print_stdout)]
    pub(crate) fn run(&self, only: Option<&str>, seconds: u64, at_once: usize) -> anyhow::Result<()> {
        let mut broken = Vec::new();
        for some in targets(&self.targets, only)?.chunks(at_once.max(1)) {
            let running: Vec<Child> = some.iter().map(|name| self.start(name, seconds)).collect::<Result<_, _>>()?;
            for (name, mut child) in some.iter().zip(running) {
                let status = child.wait().with_context(|| format!("cannot wait for {name}"))?;
                let said = std::fs::read(self.said(name)).with_context(|| format!("cannot read what {name} said"))?;
                let said = String::from_utf8_lossy(&said);
                println!("{}", row(name, &said));
                if !status.success() {
                    broken.push(format!("{name}: {}", last_lines(&said)));
                }
            }
        }
        // A target ends at once, and leaves its files.
        std::fs::remove_dir_all(&self.temporary)?;
        if !broken.is_empty() {
            bail!("inputs that break something are in {}:\n{}", self.findings.display(), broken.join("\n"));
        }
        Ok(())
    }

    fn start(&self, name: &str, seconds: u64) -> anyhow::Result<Child> {
        let corpus = self.corpus.join(name);
        for dir in [&corpus, &self.findings, &self.temporary] {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let [nice, arguments @ ..] = NICE;
        let mut command = run::command(nice)?;
        command.args(arguments).arg(&self.program);
        command.env("BACKWATER_FUZZ_TARGET", name).env("TMPDIR", &self.temporary);
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={}", self.timeout_s)).args(BOUNDS);
        command.arg(format!("-artifact_prefix={}/{name}-", self.findings.display())).arg(corpus);
        let seeds = self.seeds.join(name);
        if seeds.is_dir() {
            command.arg(seeds);
        }
        // Not a pipe: nobody would read it until the one before has ended.
        let said = std::fs::File::create(self.said(name)).with_context(|| format!("cannot note what {name} says"))?;
        command.stdout(Stdio::null()).stderr(said).spawn().with_context(|| format!("cannot start {name}"))
    }

    fn said(&self, name: &str) -> PathBuf {
        self.temporary.join(format!("{name}.log"))
    }
}

/// Fuzzes as many targets at once as there are processors.
pub(crate) fn run(only: Option<&str>, seconds: u64) -> anyhow::Result<()> {
    build()?.run(only, seconds, std::thread::available_parallelism().map_or(1, usize::from))
}

/// Builds the fuzzer.
pub(crate) fn build() -> anyhow::Result<Fuzzer> {
    let workspace = run::workspace()?;
    let mut cargo = run::command("cargo")?;
    cargo.args(["build", "--workspace", "--bin", "fuzz", "--features", "backwater-fuzz/libfuzzer", "--locked"]);
    let own = OWN.as_ref().map_err(|error| anyhow!("cannot find this program: {error}"))?;
    cargo.env("RUSTC_WORKSPACE_WRAPPER", own);
    if !cargo.status().context("cannot start cargo")?.success() {
        bail!("the fuzz targets do not compile");
    }
    let at = workspace.join("target/fuzz");
    std::fs::create_dir_all(&at).with_context(|| format!("cannot make {}", at.display()))?;
    // Out of the way of the next build, which has no counters.
    let program = at.join("fuzz");
    std::fs::copy(own.with_file_name("fuzz"), &program).context("cannot copy the fuzzer")?;
    Ok(Fuzzer {
        program,
        targets: workspace.join("fuzz/src/targets"),
        seeds: workspace.join("fuzz/seeds"),
        corpus: at.join("corpus"),
        findings: at.join("findings"),
        temporary: at.join("temporary"),
        timeout_s: TIMEOUT_S,
    })
}

/// Where cargo calls this program in the compiler's place: the compiler, and what it is to do.
pub(crate) fn called_as_compiler() -> Option<(OsString, Vec<OsString>)> {
    LazyLock::force(&OWN);
    std::env::var_os("RUSTC_WORKSPACE_WRAPPER")?;
    let mut arguments = std::env::args_os().skip(1);
    let compiler = arguments.next().filter(|first| Path::new(first).file_stem().is_some_and(|stem| stem == "rustc"))?;
    Some((compiler, arguments.collect()))
}

/// Compiles with counters. Build scripts have no fuzzer to read them.
pub(crate) fn compile(compiler: &OsString, arguments: &[OsString]) -> anyhow::Error {
    let mut command = Command::new(compiler);
    command.args(arguments);
    let name = arguments.windows(2).find(|pair| pair[0] == "--crate-name").map(|pair| &pair[1]);
    if name.is_some_and(|name| name != "build_script_build") {
        command.args(COUNTERS.split_whitespace());
    }
    anyhow::Error::new(command.exec()).context("cannot start the compiler")
}

fn targets(dir: &Path, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut all: Vec<String> =
        files.filter_map(|path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned)).collect();
    all.retain(|name| name != "mod");
    all.sort();
    let chosen: Vec<String> = all.iter().filter(|name| only.is_none_or(|only| only == *name)).cloned().collect();
    if chosen.is_empty() {
        bail!("there is no fuzz target '{}'; there are: {}", only.unwrap_or_default(), all.join(", "));
    }
    Ok(chosen)
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
