//! Measurements that are kept under docs/bench/ with the machine beside them; never timed tests.

use crate::{bench_ftdc, run};
use anyhow::{Context, bail};
use serde_json::Value;
use std::fmt::Write;
use std::ops::Range;

/// Runs of each arm whose predictions are held beside what came, and the metrics that are kept: of the cliff and the drain,
/// and of the removal of WAL.
const PREDICTION_RUNS: &str = "5";
const PREDICTION: [&str; 6] = [
    "time_to_cliff_s",
    "predicted_time_to_cliff_s",
    "cliff_prediction_error_ratio",
    "drain_s",
    "predicted_drain_s",
    "drain_prediction_error_ratio",
];
const RETENTION_RUNS: &str = "3";
const RETENTION: [&str; 9] = [
    "retention_left_s",
    "predicted_retention_left_s",
    "retention_prediction_error_ratio",
    "removal_left_s",
    "predicted_removal_left_s",
    "checkpoint_interval_s",
    "removal_off_checkpoints",
    "removal_off_completions",
    "removal_off_s",
];
/// What a page's measurement begins with, and its block begins and ends with.
const COMMAND: &str = "`cargo xtask bench ";
const FENCE: &str = "\n```\n";
/// What is measured is built as what is deployed.
pub(crate) const PROFILE: &str = "dist";

/// Measures and keeps what came of it. With arguments for the measuring program only a part is measured, and shown.
#[allow(clippy::print_stdout)]
pub(crate) fn run(name: Option<&str>, arguments: &[String]) -> anyhow::Result<()> {
    let all = ["size", "overhead", "prediction", "retention", "ftdc", "proxy", "pacing", "page", "viewers"];
    let chosen: Vec<_> = all.into_iter().filter(|known| name.is_none_or(|name| name == *known)).collect();
    if chosen.is_empty() {
        bail!("there is no benchmark '{}'; there are: {}", name.unwrap_or_default(), all.join(", "));
    }
    if !arguments.is_empty() && chosen != ["overhead"] && chosen != ["proxy"] {
        bail!("only the benchmarks overhead and proxy take arguments");
    }
    let mut broken = Vec::new();
    for bench in chosen {
        let text = match bench {
            "size" => example("backwater-record", "day_size", &[])?,
            "overhead" | "proxy" => {
                run::step("the program itself", "cargo", &["build", "--profile", PROFILE, "-p", "backwater"])?;
                example("backwater-lab", bench, arguments)?
            }
            "ftdc" => bench_ftdc::text()?,
            "page" => page_costs()?,
            "pacing" => example("backwater-gate", "pacing", &[])?,
            "viewers" => example("backwater-live", "viewers", &[])?,
            "retention" => predicted("wal-lag", &["retention-narrow", "retention-slot"], RETENTION_RUNS, &RETENTION)?,
            _ => predicted("stampede", &["default"], PREDICTION_RUNS, &PREDICTION)?,
        };
        let page = page(bench, &text)?;
        print!("{page}");
        if arguments.is_empty() {
            keep(bench, &page)?;
        }
        broken.extend(missed(&text).map(|missed| format!("{bench}: {missed}")));
    }
    // The pages tell it, and whoever runs this by a script learns of it.
    if !broken.is_empty() {
        bail!("promises that are not kept: {}", broken.join("; "));
    }
    Ok(())
}

/// The line of the first promise that was not kept.
fn missed(text: &str) -> Option<&str> {
    text.lines().find(|line| line.contains("NOT REACHED") || line.contains("NOT KEPT"))
}

fn example(package: &str, name: &str, arguments: &[String]) -> anyhow::Result<String> {
    let mut words = vec!["run", "--profile", PROFILE, "-q", "-p", package, "--example", name, "--"];
    words.extend(arguments.iter().map(String::as_str));
    run::output("cargo", &words, &[])
}

/// What the page of an hour and of a day costs to make, and then in a browser.
fn page_costs() -> anyhow::Result<String> {
    run::step("packages of the page", "npm", &["ci", "--prefix", "web", "--no-audit", "--no-fund"])?;
    let dir = run::workspace()?.join("target/bench/page");
    std::fs::create_dir_all(&dir)?;
    let made = example("backwater-live", "page", &[dir.display().to_string()])?;
    let pages = ["an-hour.html", "a-day.html"].map(|name| dir.join(name).display().to_string());
    let shown = run::output("node", &["web/test/speed.mjs", &pages[0], &pages[1]], &[])?;
    std::fs::remove_dir_all(&dir)?;
    Ok(format!("{made}\nIn Chromium, opened from disk, median of five:\n{shown}"))
}

/// A benchmark's output, below the machine it was measured on.
fn page(name: &str, text: &str) -> anyhow::Result<String> {
    Ok(format!("# {name}\n\n`cargo xtask bench {name}`, {}\n\n```\n{}\n```\n", machine()?, text.trim_end()))
}

/// Writes a page under docs/bench/.
fn keep(name: &str, page: &str) -> anyhow::Result<()> {
    let path = run::workspace()?.join("docs/bench").join(format!("{name}.md"));
    std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, renewed(&before, page)).with_context(|| format!("cannot write {}", path.display()))
}

/// A page that was measured again: what was measured first on it, its command and its block, gives way; what is told by hand around
/// it stays.
fn renewed(before: &str, page: &str) -> String {
    match (measured(before), measured(page)) {
        (Some(old), Some(new)) => [&before[..old.start], &page[new], &before[old.end..]].concat(),
        _ => page.to_owned(),
    }
}

/// Where the first measurement of a page stands: from its command to the end of its block.
fn measured(page: &str) -> Option<Range<usize>> {
    let start = page.find(COMMAND)?;
    let opened = start + page[start..].find(FENCE)? + FENCE.len();
    // The opening line's own end begins a fence that closes an empty block.
    let closed = opened - 1 + page[opened - 1..].find(FENCE)? + FENCE.len();
    Some(start..closed)
}

/// What it was measured on: never a name or a path, only what bears on the figures.
pub(crate) fn machine() -> anyhow::Result<String> {
    let model = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kib: f64 = memory.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0.0);
    Ok(format!(
        "on {} x {}, {:.0} GiB of memory, Linux {}, commit {}",
        std::thread::available_parallelism()?,
        model.trim_start_matches([' ', '\t', ':']),
        kib / 1048576.0,
        run::output("uname", &["-r"], &[])?.trim(),
        run::output("git", &["rev-parse", "--short", "HEAD"], &[])?.trim()
    ))
}

/// How far what was predicted in these arms of a scenario is from what was measured: the median of each metric, and the least
/// and the most.
fn predicted(scenario: &str, arms: &[&str], runs: &str, names: &[&str]) -> anyhow::Result<String> {
    let mut arguments =
        vec!["run", "--profile", PROFILE, "-q", "--", "lab", "run", scenario, "--repeats", runs, "--json"];
    arguments.extend(arms.iter().flat_map(|arm| ["--arm", *arm]));
    let outcome: Value = serde_json::from_str(&run::output("cargo", &arguments, &[])?)?;
    let mut text = String::new();
    for arm in outcome["arms"].as_array().into_iter().flatten() {
        let name = arm["name"].as_str().unwrap_or_default();
        writeln!(text, "{runs} runs of {scenario}'s arm '{name}'; median (least to most)\n")?;
        for name in names {
            let (median, spread) = (&arm["metrics"][*name], &arm["spread"][*name]);
            let [median, least, most] =
                [median, &spread[0], &spread[1]].map(|value| value.as_f64().unwrap_or(f64::NAN));
            writeln!(text, "{name:<32} {median:>8.3} ({least:.3} to {most:.3})")?;
        }
        writeln!(text)?;
    }
    for doubt in outcome["doubts"].as_array().into_iter().flatten() {
        writeln!(text, "doubt: {}", doubt.as_str().unwrap_or_default())?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_that_is_not_kept_is_an_error() {
        assert_eq!(missed("so much: reached (14.8 x)\n64 MiB kept"), None);
        assert_eq!(missed("so much: reached\n64 MiB NOT KEPT\n"), Some("64 MiB NOT KEPT"));
    }

    #[test]
    fn what_is_told_by_hand_stays_when_it_is_measured_again() {
        let page = |says, machine, figure| {
            format!("# size\n\n{says}`cargo xtask bench size`, on {machine}\n\n```\n{figure}\n```\n")
        };
        let (before, after) = ("It is better now.\n\n", "\n## Before\n\n```\nworse\n```\n");
        let again = renewed(&(page(before, "one", "12 MB") + after), &page("", "two", "13 MB"));
        assert_eq!(again, page(before, "two", "13 MB") + after);
        assert_eq!(renewed("", &page("", "two", "13 MB")), page("", "two", "13 MB"));
        assert_eq!(measured("`cargo xtask bench size`\n\n```\n```\n## More").map(|range| range.end), Some(34));
    }
}
