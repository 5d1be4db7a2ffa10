//! What takes long: whole scenarios, every arm repeated, the blind test, other people's test suites through the proxy, and
//! every fuzz target. What the last run of each came to is kept under docs/nightly/, also where it did not come out as expected.

use crate::{bench, fuzz, run, suites};
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

/// A run of the program: its name and its arguments.
const RUNS: [(&str, &[&str]); 9] = [
    ("stampede", &["lab", "run", "stampede"]),
    ("wal-lag", &["lab", "run", "wal-lag"]),
    ("commit-wait", &["lab", "run", "commit-wait"]),
    ("commit-standby", &["lab", "run", "commit-standby"]),
    ("net-overload", &["lab", "run", "net-overload"]),
    ("wt-stall", &["lab", "run", "wt-stall"]),
    ("wt-search", &["lab", "search", "wt-stall"]),
    ("blind", &["lab", "blind"]),
    ("blind-wiredtiger", &["lab", "blind", "--engine", "wiredtiger", "--seconds", "26"]),
];

/// The runs that are none of the program's own.
const SUITES: &str = "suites";
const FUZZ: &str = "fuzz";

/// Runs all of them, or one; every fuzz target for so many seconds.
pub(crate) fn run(name: Option<&str>, fuzz_s: u64) -> anyhow::Result<()> {
    match name {
        Some(SUITES) => return suites::all(),
        Some(FUZZ) => return fuzz::nightly(fuzz_s),
        _ => {}
    }
    let chosen: Vec<_> = RUNS.into_iter().filter(|(known, _)| name.is_none_or(|name| name == *known)).collect();
    if chosen.is_empty() {
        let all = RUNS.map(|(known, _)| known).join(", ");
        bail!("there is no nightly run '{}'; there are: {all}, {SUITES}, {FUZZ}", name.unwrap_or_default());
    }
    run::step("the program itself", "cargo", &["build", "--release", "-p", "backwater"])?;
    let mut unlike = Vec::new();
    for (name, arguments) in chosen {
        if !one(name, arguments)? {
            unlike.push(name);
        }
    }
    if !unlike.is_empty() {
        bail!("not as expected: {}; see docs/nightly", unlike.join(", "));
    }
    if name.is_some() {
        return Ok(());
    }
    suites::all()?;
    fuzz::nightly(fuzz_s)
}

/// One run; its recordings stay in target/nightly. Whether it came out as expected.
fn one(name: &str, arguments: &[&str]) -> anyhow::Result<bool> {
    let workspace = run::workspace()?;
    let out = workspace.join("target/nightly").join(name);
    if out.exists() {
        std::fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    run::say(&format!("{name}: backwater {}", arguments.join(" ")));
    let mut command = run::command("cargo")?;
    command.args(["run", "--release", "-q", "-p", "backwater", "--"]).args(arguments).arg("--out").arg(&out);
    // Progress is shown as it comes.
    let output = command.current_dir(&workspace).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    keep(&workspace, name, arguments, &String::from_utf8_lossy(&output.stdout))?;
    Ok(output.status.success())
}

/// Keeps what a blind test came to that was run in pieces (`backwater lab blind --for`), in this directory. It must be
/// whole: what is left out of a table could be what was wrong.
pub(crate) fn keep_blind(dir: &Path) -> anyhow::Result<()> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let summary: Value = serde_json::from_str(&read("summary.json")?)?;
    let [done, planned] = ["done", "planned"].map(|name| summary[name].as_u64());
    if done.is_none() || done != planned {
        bail!("{} of {} runs are done", done.unwrap_or(0), planned.unwrap_or(0));
    }
    let text = read("summary.md")?;
    let (name, arguments) = match summary["server"].as_str() {
        Some("wiredtiger") => ("blind-wiredtiger", &["lab", "blind", "--engine", "wiredtiger", "--for", "5min"][..]),
        _ => ("blind", &["lab", "blind", "--for", "5min"][..]),
    };
    keep(&run::workspace()?, name, arguments, &text)
}

fn keep(workspace: &Path, name: &str, arguments: &[&str], text: &str) -> anyhow::Result<()> {
    let dir = workspace.join("docs/nightly");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let how = format!("`backwater {}`, {}", arguments.join(" "), bench::machine()?);
    // Where the recording lies here is nobody's business.
    let text = text.replace(&*workspace.to_string_lossy(), ".");
    let path = dir.join(format!("{name}.md"));
    std::fs::write(&path, page(name, &how, text.trim_end())).with_context(|| format!("cannot write {}", path.display()))
}

/// What was printed, below how it came about; as it stands where it is a page itself.
fn page(name: &str, how: &str, text: &str) -> String {
    match text.strip_prefix("# ").and_then(|rest| rest.split_once('\n')) {
        Some((title, rest)) => format!("# {title}\n\n{how}\n{rest}\n"),
        None => format!("# {name}\n\n{how}\n\n```\n{text}\n```\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn a_page_stays_a_page_and_other_text_is_quoted() {
        assert_eq!(page("blind", "how", "# Blind test\n\n60 of 60 runs"), "# Blind test\n\nhow\n\n60 of 60 runs\n");
        assert_eq!(page("stampede", "how", "arm  tps"), "# stampede\n\nhow\n\n```\narm  tps\n```\n");
    }
}
