//! Everything that reads foreign bytes, guided by what code they reach: libFuzzer without a sanitizer, which the stable
//! compiler can do. Inputs that reached something new are kept under target/fuzz/corpus and tried first the next time.
//!
//! The workspace's own crates are built with a fuzzer's counters, and most of what they depend on is taken as it is built for
//! everything else: cargo calls this program in the compiler's place for members of the workspace ([`compile`]).

use crate::{bench, run};
use anyhow::{Context, anyhow, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Counters of edges and compared values, which libFuzzer reads (cargo does not see them: after a change here, build anew), in code that is quickly built and panics where a number overflows.
const COUNTERS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Copt-level=1 -Cdebug-assertions=on -Coverflow-checks=on";
/// An input that takes more memory is a finding too.
const BOUNDS: [&str; 3] = ["-rss_limit_mb=1024", "-max_len=16384", "-print_final_stats=1"];
/// And one that takes longer: by the clock, which beside tests says little of what was done.
const TIMEOUT_S: u64 = 10;
const TIMEOUT_BESIDE_OTHERS_S: u64 = 300;
/// How often it is looked whether a target has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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

    /// Fuzzes every target, or one, for so long each, so many at once, and says what each came to as it ends.
    #[allow(clippy::print_stdout)]
    pub(crate) fn run(&self, only: Option<&str>, seconds: u64, at_once: usize) -> anyhow::Result<Fuzzed> {
        let mut rows = Vec::new();
        for some in targets(&self.targets, only)?.chunks(at_once.max(1)) {
            let begun = Instant::now();
            let started = some.iter().map(|name| Ok((name, self.start(name, seconds)?)));
            let mut running: Vec<(&String, Child)> = started.collect::<anyhow::Result<_>>()?;
            while !running.is_empty() {
                std::thread::sleep(LOOK_EVERY);
                let mut ended = Vec::new();
                for (place, (name, child)) in running.iter_mut().enumerate() {
                    let status = child.try_wait().with_context(|| format!("cannot wait for {name}"))?;
                    ended.extend(status.map(|status| (place, status)));
                }
                for (place, status) in ended.into_iter().rev() {
                    let (name, _) = running.remove(place);
                    let said =
                        std::fs::read(self.said(name)).with_context(|| format!("cannot read what {name} said"))?;
                    let row = Row::new(name, &String::from_utf8_lossy(&said), begun.elapsed(), status.success());
                    println!("{row}");
                    rows.push(row);
                }
            }
        }
        // A target ends at once, and leaves its files.
        std::fs::remove_dir_all(&self.temporary)?;
        Ok(Fuzzed { rows, findings: self.findings.clone() })
    }

    fn start(&self, name: &str, seconds: u64) -> anyhow::Result<Child> {
        let corpus = self.corpus.join(name);
        for dir in [&corpus, &self.findings, &self.temporary] {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let [beside, arguments @ ..] = run::BESIDE;
        let mut command = run::command(beside)?;
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
    build()?.run(only, seconds, processors())?.stood()
}

/// Fuzzes every target for so long each, and keeps what that came to, also where an input broke something. What else runs
/// on this machine goes first, so that an input's time by the clock says little.
pub(crate) fn nightly(seconds: u64) -> anyhow::Result<()> {
    let at_once = processors();
    let fuzzed = build()?.beside_others().run(None, seconds, at_once)?;
    let path = run::workspace()?.join("docs/nightly/fuzz.md");
    let page = fuzzed.page(seconds, at_once, &bench::machine()?);
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    fuzzed.stood()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Builds the fuzzer.
pub(crate) fn build() -> anyhow::Result<Fuzzer> {
    let workspace = run::workspace()?;
    let [beside, arguments @ ..] = run::BESIDE;
    let mut cargo = run::command(beside)?;
    cargo.args(arguments).arg("cargo");
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

/// What a run came to.
pub(crate) struct Fuzzed {
    rows: Vec<Row>,
    /// Where inputs lie that break something.
    findings: PathBuf,
}

impl Fuzzed {
    /// An error where an input broke something.
    pub(crate) fn stood(&self) -> anyhow::Result<()> {
        let broken = self.rows.iter().filter_map(|row| Some(format!("{}: {}", row.target, row.broken.as_ref()?)));
        let broken: Vec<String> = broken.collect();
        if !broken.is_empty() {
            bail!("inputs that break something are in {}:\n{}", self.findings.display(), broken.join("\n"));
        }
        Ok(())
    }

    fn page(&self, seconds: u64, at_once: usize, machine: &str) -> String {
        let mut page = format!(
            "# fuzz\n\n`cargo xtask nightly fuzz --seconds {seconds}`, {machine}\n\nEvery parser of foreign bytes under \
             libFuzzer, {at_once} at once at the lowest priority. A run goes on from the inputs that earlier ones kept \
             in target/fuzz/corpus, where they are still there: the first column counts them, and the seeds. An input \
             that panics, overflows a number, takes 1 GiB of memory or {TIMEOUT_BESIDE_OTHERS_S} s breaks its target.\n\n\
             | target | inputs it began with | inputs tried | edges reached | seconds | |\n|---|---|---|---|---|---|\n"
        );
        for row in &self.rows {
            let Row { target, began_with, tried, edges, seconds, broken } = row;
            let came_to = match broken {
                None => "stood",
                Some(said) if said.contains("Test unit written to") => "**an input breaks it**",
                Some(_) => "**ended early, for no input**",
            };
            page += &format!("| {target} | {began_with} | {tried} | {edges} | {seconds} | {came_to} |\n");
        }
        page
    }
}

/// What one target came to; '?' for a figure that the fuzzer did not tell.
struct Row {
    target: String,
    began_with: String,
    tried: String,
    edges: String,
    seconds: u64,
    /// The last that it said, where an input broke it.
    broken: Option<String>,
}

impl Row {
    fn new(target: &str, said: &str, took: Duration, stood: bool) -> Row {
        let word =
            |after: Option<&str>| after.and_then(|text| text.split_whitespace().next()).unwrap_or("?").to_owned();
        let after = |what| said.lines().find_map(|line| Some(line.split_once(what)?.1));
        let last_after = |what| said.lines().rev().find_map(|line| Some(line.split_once(what)?.1));
        Row {
            target: target.to_owned(),
            began_with: word(after("seed corpus: files: ")),
            tried: word(after("stat::number_of_executed_units:")),
            edges: word(last_after("cov: ")),
            seconds: took.as_secs(),
            broken: (!stood).then(|| last_lines(said)),
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:<14} {:>12} inputs, {:>6} edges", self.target, self.tried, self.edges)
    }
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SAID: &str = "INFO: seed corpus: files: 7 min: 1b max: 4b total: 20b rss: 30Mb\n#1 INITED cov: 12 ft: 13\n\
         #9 DONE   cov: 345 ft: 1 corp: 2\nstat::number_of_executed_units: 99\n";

    #[test]
    fn what_a_fuzzer_says_becomes_a_line() {
        let line = |said| Row::new("opening", said, Duration::from_secs(60), true).to_string();
        assert_eq!(line(SAID), "opening                  99 inputs,    345 edges");
        assert_eq!(line(""), "opening                   ? inputs,      ? edges");
    }

    #[test]
    fn a_run_becomes_a_page_and_an_error_where_something_broke() {
        let said = format!("{SAID}Test unit written to found/relay-crash-1\n");
        let row = |target, stood| Row::new(target, &said, Duration::from_millis(900_700), stood);
        let fuzzed = |rows| Fuzzed { rows, findings: PathBuf::from("found") };
        let page = fuzzed(vec![row("opening", true), row("relay", false)]).page(900, 2, "on 2 x A");
        assert!(page.contains("`cargo xtask nightly fuzz --seconds 900`, on 2 x A\n"), "{page}");
        assert!(page.contains("\n| opening | 7 | 99 | 345 | 900 | stood |\n"), "{page}");
        assert!(page.ends_with("\n| relay | 7 | 99 | 345 | 900 | **an input breaks it** |\n"), "{page}");
        assert!(fuzzed(vec![row("opening", true)]).stood().is_ok());
        let error = fuzzed(vec![row("opening", true), row("relay", false)]).stood().unwrap_err().to_string();
        assert!(error.contains("are in found:\nrelay: INFO") && !error.contains("opening:"), "{error}");
    }
}
