//! How long a week of a flight recorder takes to be diagnosed, and how much memory that needs.

use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RUNS: usize = 5;
/// The most that a diagnosis promises to take, in seconds.
const PROMISED_S: f64 = 10.0;
/// How often its memory is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Diagnoses the week several times.
pub(crate) fn text(text: &mut String, backwater: &Path, week: &Path) -> anyhow::Result<()> {
    let mut seconds = Vec::new();
    let (mut peak_kib, mut found) = (0.0f64, Value::Null);
    for _ in 0..RUNS {
        let run = diagnosed(backwater, week)?;
        seconds.push(run.seconds);
        peak_kib = peak_kib.max(run.peak_kib);
        found = run.found;
    }
    seconds.sort_by(f64::total_cmp);
    let (median, most) = (seconds[RUNS / 2], seconds[RUNS - 1]);
    let verdict = if median >= PROMISED_S {
        "NOT REACHED"
    } else if most >= PROMISED_S {
        "reached by the median, not by each"
    } else {
        "reached by each"
    };
    writeln!(
        text,
        "\n`backwater diagnose` of that week, {RUNS} runs: {median:.2} s ({:.2} to {most:.2}), {:.0} MiB resident at most; under \
         {PROMISED_S} s: {}",
        seconds[0],
        peak_kib / 1024.0,
        verdict
    )?;
    let mut rules = BTreeMap::new();
    for finding in found.as_array().context("no list of findings")? {
        *rules.entry(finding["rule"].as_str().unwrap_or_default()).or_insert(0) += 1;
    }
    let rules: Vec<String> = rules.iter().map(|(rule, count)| format!("{rule} ({count})")).collect();
    writeln!(text, "found in it: {}", if rules.is_empty() { "nothing".to_owned() } else { rules.join(", ") })?;
    if !found.to_string().contains("wt-dirty-stall") {
        bail!("each day of that week has a stall of two minutes, and no finding tells of it");
    }
    Ok(())
}

struct Run {
    seconds: f64,
    peak_kib: f64,
    found: Value,
}

fn diagnosed(backwater: &Path, week: &Path) -> anyhow::Result<Run> {
    let out = tempfile_beside(week);
    let begun = Instant::now();
    let mut child = Command::new(backwater)
        .args(["diagnose", "--json"])
        .arg(week)
        .stdout(Stdio::from(std::fs::File::create(&out)?))
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", backwater.display()))?;
    let mut peak_kib = 0.0f64;
    let status = loop {
        peak_kib = peak_kib.max(most_resident_kib(child.id()));
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(LOOK),
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    // Something was found: 1.
    if !matches!(status.code(), Some(0 | 1)) {
        bail!("{} diagnose ended with {status}", backwater.display());
    }
    let found = serde_json::from_str(&std::fs::read_to_string(&out)?)?;
    std::fs::remove_file(&out)?;
    Ok(Run { seconds, peak_kib, found })
}

fn tempfile_beside(week: &Path) -> std::path::PathBuf {
    week.with_extension("findings.json")
}

/// The most that a process has had resident so far; 0 once it has ended.
fn most_resident_kib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}
