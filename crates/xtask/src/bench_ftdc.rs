//! The flight recorder's decoder beside MongoDB's own Go library and one of PyPI's: the same files, each library in a process
//! of its own, in turn, several times over; the values compared first. Then a week: memory, and how long a diagnosis takes.
//!
//! `FTDC_FILES` names the recordings, separated by colons (files or directories of metrics.*); without it a recording
//! is made. `BACKWATER_PROGRAM` names the program whose diagnosis is timed; without it that is built, which takes minutes.

use crate::bench::PROFILE;
use crate::{bench_week, run};
use anyhow::{Context, bail};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds, in each of which every way has its turn.
const ROUNDS: usize = 9;
/// Passes over the files within a turn.
const PASSES: usize = 3;
/// Rounds of the decoder in Python, which takes a hundred times as long, with one pass each.
const PYTHON_ROUNDS: usize = 3;
/// Hours of the recording that is made where none is given, and of the long one: a week.
const MADE_HOURS: &str = "4";
const LONG_HOURS: &str = "168";
/// The least ratio that the decoder promises.
const PROMISED: f64 = 10.0;
/// Threads with which its memory is measured, whatever this machine has.
const MEMORY_THREADS: [&str; 3] = ["1", "2", "16"];
/// The most memory that the decoder promises to need, in MiB.
const PROMISED_MIB: f64 = 64.0;

/// A way of decoding: what it is called, and the arguments behind the program's name.
struct Way {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    rounds: usize,
    seconds: Vec<f64>,
    peak_kib: f64,
    said: Value,
}

/// The page's text.
pub(crate) fn text() -> anyhow::Result<String> {
    let root = run::workspace()?;
    run::step("the decoder", "cargo", &["build", "--profile", PROFILE, "-q", "-p", "ftdc", "--examples"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let ours = target.join(PROFILE).join("examples/decode_speed");
    let go = target.join("ftdc-go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&go).arg(".").current_dir(root.join("bench/ftdc-go"));
    if !build.status().context("cannot start go: this benchmark compares with a Go library")?.success() {
        bail!("the Go program does not build");
    }
    let maker = target.join(PROFILE).join("examples/make_recording");
    let program = program(&target)?;
    let (files, which) = files(&target, &maker)?;
    let mut text =
        format!("{which}, {:.2} MB in {} files; load average {}\n\n", megabytes(&files), files.len(), load());
    text.push_str(&compared(&ours, &go, &files)?);
    let mut ways = ways(&ours, &go, &files)?;
    match python(&root, &target) {
        Ok(python) => ways.push(in_python(&root, &python, &files)),
        Err(error) => writeln!(text, "\nthe decoder in Python was not run: {error:#}")?,
    }
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            // Another first and another order each round, so that nobody always follows the same neighbour.
            let place = (turn * if round % 2 == 0 { 1 } else { ways.len() - 1 } + round) % ways.len();
            if round < ways[place].rounds {
                ways[place].turn()?;
            }
        }
    }
    table(&mut text, &mut ways, megabytes(&files))?;
    let week = target.join("ftdc-made-long");
    make(&maker, &week, LONG_HOURS)?;
    let short = target.join("ftdc-made");
    make(&maker, &short, MADE_HOURS)?;
    memory(&mut text, &ours, &[(MADE_HOURS, &short), (LONG_HOURS, &week)])?;
    bench_week::text(&mut text, &program, &week)?;
    std::fs::remove_dir_all(&week)?;
    writeln!(text, "\nload average {} at the end", load())?;
    Ok(text)
}

/// The program whose diagnosis is timed.
fn program(target: &Path) -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("BACKWATER_PROGRAM") {
        return Ok(named.into());
    }
    run::step("the program itself", "cargo", &["build", "--profile", PROFILE, "-q", "-p", "backwater"])?;
    Ok(target.join(PROFILE).join("backwater"))
}

/// The files to decode, and what they are.
fn files(target: &Path, maker: &Path) -> anyhow::Result<(Vec<String>, String)> {
    let (dirs, which) = match std::env::var("FTDC_FILES") {
        Ok(list) => {
            (list.split(':').map(PathBuf::from).collect(), "recordings of real servers (FTDC_FILES)".to_owned())
        }
        Err(_) => {
            let dir = target.join("ftdc-made");
            make(maker, &dir, MADE_HOURS)?;
            (vec![dir], format!("a recording of {MADE_HOURS} hours, made (crates/ftdc/examples/make_recording.rs)"))
        }
    };
    let mut files = Vec::new();
    for dir in dirs {
        if !dir.is_dir() {
            files.push(dir.to_string_lossy().into_owned());
            continue;
        }
        let within = std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        let mut within: Vec<_> = within.collect::<Result<Vec<_>, _>>()?.iter().map(|entry| entry.path()).collect();
        within.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("metrics.")));
        within.sort();
        files.extend(within.iter().map(|path| path.to_string_lossy().into_owned()));
    }
    Ok((files, which))
}

fn make(maker: &Path, dir: &Path, hours: &str) -> anyhow::Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    if !Command::new(maker).arg(dir).arg(hours).stdout(std::process::Stdio::null()).status()?.success() {
        bail!("no recording could be made in {}", dir.display());
    }
    Ok(())
}

fn ways(ours: &Path, go: &Path, files: &[String]) -> anyhow::Result<Vec<Way>> {
    let threads = std::thread::available_parallelism()?.get().to_string();
    let passes = PASSES.to_string();
    let way = |name, program: &Path, arguments: &[&str]| Way {
        name,
        program: program.to_owned(),
        arguments: arguments.iter().copied().chain(files.iter().map(String::as_str)).map(str::to_owned).collect(),
        rounds: ROUNDS,
        seconds: Vec::new(),
        peak_kib: 0.0,
        said: Value::Null,
    };
    Ok(vec![
        way("Go library, all its goroutines", go, &["time", &passes]),
        way("every value, every processor", ours, &["time", "matrix", &threads, &passes]),
        way("every value, one processor", ours, &["time", "matrix", "1", &passes]),
        way("every value, a metric at a time", ours, &["time", "columns", "1", &passes]),
        way("some metrics only, one processor", ours, &["time", "select", "1", &passes]),
    ])
}

/// A Python with the decoder in it, in a place of its own.
fn python(root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
    let place = target.join("ftdc-py");
    let python = place.join("bin/python");
    let requirements = root.join("bench/ftdc-py/requirements.txt");
    let quietly = |program: &Path, arguments: &[&std::ffi::OsStr]| -> anyhow::Result<()> {
        let output = Command::new(program).args(arguments).output();
        let output = output.with_context(|| format!("cannot start {}", program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}", said.lines().last().unwrap_or("it failed and said nothing"));
        }
        Ok(())
    };
    if !python.exists() {
        quietly(Path::new("python3"), &["-m".as_ref(), "venv".as_ref(), place.as_ref()])?;
    }
    let install = ["-m", "pip", "install", "-q", "-r"].map(std::ffi::OsStr::new);
    quietly(&python, &[&install[..], &[requirements.as_ref()]].concat())?;
    Ok(python)
}

fn in_python(root: &Path, python: &Path, files: &[String]) -> Way {
    let program = root.join("bench/ftdc-py/main.py").to_string_lossy().into_owned();
    Way {
        name: "pymongoftdc 0.1.1 (Python)",
        program: python.to_owned(),
        arguments: [program, "time".to_owned(), "1".to_owned()].into_iter().chain(files.iter().cloned()).collect(),
        rounds: PYTHON_ROUNDS,
        seconds: Vec::new(),
        peak_kib: 0.0,
        said: Value::Null,
    }
}

impl Way {
    fn turn(&mut self) -> anyhow::Result<()> {
        let output = Command::new(&self.program).args(&self.arguments).output()?;
        if !output.status.success() {
            bail!("{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        }
        self.said = serde_json::from_slice(&output.stdout)?;
        let seconds = self.said["seconds"].as_array().context("no seconds")?;
        self.seconds.extend(seconds.iter().filter_map(Value::as_f64));
        self.peak_kib = self.peak_kib.max(self.said["peak_kib"].as_f64().unwrap_or(0.0));
        Ok(())
    }

    /// Median, least and most of the seconds of a pass.
    fn spread(&mut self) -> [f64; 3] {
        self.seconds.sort_by(f64::total_cmp);
        let last = self.seconds.len().saturating_sub(1);
        [last / 2, 0, last].map(|place| self.seconds.get(place).copied().unwrap_or(f64::NAN))
    }
}

fn table(text: &mut String, ways: &mut [Way], megabytes: f64) -> anyhow::Result<()> {
    writeln!(
        text,
        "\n{ROUNDS} rounds of {PASSES} passes; seconds of a pass: median (least to most); ratios of medians\n"
    )?;
    writeln!(text, "{:<34} {:>26} {:>8} {:>10} {:>9} {:>10}", "", "seconds", "MB/s", "values/s", "ratio", "peak MiB")?;
    let base = ways.first_mut().map_or(f64::NAN, |go| go.spread()[0]);
    let mut best = 0.0f64;
    for (place, way) in ways.iter_mut().enumerate() {
        let [median, least, most] = way.spread();
        let values = way.said["values"].as_f64().unwrap_or(f64::NAN);
        // A metric at a time keeps no chunk's values together: another task than the library's.
        if way.arguments.iter().any(|argument| argument == "matrix") {
            best = best.max(base / median);
        }
        writeln!(
            text,
            "{:<34} {:>26} {:>8.1} {:>9.1}M {:>9} {:>10.1}",
            way.name,
            format!("{median:.4} ({least:.4} to {most:.4})"),
            megabytes / median,
            values / median / 1e6,
            if place == 0 { String::new() } else { format!("{:.1} x", base / median) },
            way.peak_kib / 1024.0
        )?;
    }
    for way in ways.iter() {
        if let Some(refused) = way.said["refused"].as_u64().filter(|refused| *refused > 0) {
            let chunks = way.said["chunks"].as_u64().unwrap_or_default();
            writeln!(text, "{}: {refused} of {chunks} chunks refused, which it did not decode", way.name)?;
        }
    }
    let verdict = if best >= PROMISED { "reached" } else { "NOT REACHED" };
    writeln!(
        text,
        "\nat least {PROMISED} x the Go library's rate with every value materialised: {verdict} ({best:.1} x)"
    )?;
    writeln!(text, "(both have every value of a chunk in memory and add them up; MB are of compressed input)")?;
    Ok(())
}

/// Lines of `decode_speed digests` beside the Go program's.
fn compared(ours: &Path, go: &Path, files: &[String]) -> anyhow::Result<String> {
    let digests = |program: &Path| -> anyhow::Result<String> {
        let output = Command::new(program).arg("digests").args(files).output()?;
        if !output.status.success() {
            bail!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    };
    let (ours, theirs) = (digests(ours)?, digests(go)?);
    let (mut equal, mut doubles, mut timestamps, mut others) = (0u64, 0u64, 0u64, 0u64);
    for (our, their) in ours.lines().zip(theirs.lines()) {
        let (our, their): (Vec<_>, Vec<_>) = (our.split(' ').collect(), their.split(' ').collect());
        match (our.as_slice(), their.as_slice()) {
            ([a, b, _, values, _], [c, d, _, same, _]) if (a, b, values) == (c, d, same) => equal += 1,
            ([a, b, kind, _, growth], [c, d, _, _, same]) if (a, b, growth) == (c, d, same) => match *kind {
                "Double" => doubles += 1,
                "TimestampSeconds" => timestamps += 1,
                _ => others += 1,
            },
            _ => others += 1,
        }
    }
    let unpaired = ours.lines().count().abs_diff(theirs.lines().count());
    let mut text = format!("columns of chunks whose values are equal to the Go library's  {equal:>9}\n");
    writeln!(text, "unequal only in where they start: doubles                     {doubles:>9}")?;
    writeln!(text, "unequal only in where they start: seconds of timestamps       {timestamps:>9}")?;
    writeln!(text, "unequal otherwise, or in one of the two only                  {:>9}", others + unpaired as u64)?;
    text.push_str(
        "(The recorder truncates doubles and stores a timestamp's seconds, and differences of those. The Go library\n\
         begins a double at its IEEE bits and a timestamp at a thousand times its seconds, then adds the differences.)\n",
    );
    Ok(text)
}

/// The most memory that decoding needs, whatever the length of the recording and the number of threads.
fn memory(text: &mut String, ours: &Path, recordings: &[(&str, &Path)]) -> anyhow::Result<()> {
    writeln!(text, "\nmemory on recordings that were made, every value of a chunk at once, resident at most")?;
    let mut most: f64 = 0.0;
    for (hours, dir) in recordings {
        for threads in MEMORY_THREADS {
            let output = Command::new(ours).args(["time", "matrix", threads, "1"]).arg(dir).output()?;
            let said: Value = serde_json::from_slice(&output.stdout).context("the decoder said nothing")?;
            let number = |name: &str| said[name].as_f64().unwrap_or(f64::NAN);
            let (compressed, values) = (number("compressed_bytes") / 1e6, number("values") * 8.0 / 1e9);
            let peak = number("peak_kib") / 1024.0;
            most = if peak > most || peak.is_nan() { peak } else { most };
            writeln!(
                text,
                "{hours:>4} hours, {compressed:5.1} MB compressed, {values:4.1} GB of values, {threads:>2} threads  {peak:6.1} MiB"
            )?;
        }
    }
    writeln!(text, "{PROMISED_MIB} MiB {}", if most < PROMISED_MIB { "kept" } else { "NOT KEPT" })?;
    Ok(())
}

fn megabytes(files: &[String]) -> f64 {
    files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|meta| meta.len() as f64).sum::<f64>() / 1e6
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
