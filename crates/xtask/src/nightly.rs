//! What takes long: whole scenarios, every arm repeated in random order, and the blind test. What the last run of each
//! printed is kept under docs/nightly/, also where it did not come out as expected.

use crate::{bench, run};
use anyhow::{Context, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// A run of the program: its name and its arguments.
const RUNS: [(&str, &[&str]); 6] = [
    ("stampede", &["lab", "run", "stampede"]),
    ("wal-lag", &["lab", "run", "wal-lag"]),
    ("commit-wait", &["lab", "run", "commit-wait"]),
    ("commit-standby", &["lab", "run", "commit-standby"]),
    ("wt-stall", &["lab", "run", "wt-stall"]),
    ("blind", &["lab", "blind"]),
];

/// Runs all of them, or one.
pub(crate) fn run(name: Option<&str>) -> anyhow::Result<()> {
    let chosen: Vec<_> = RUNS.into_iter().filter(|(known, _)| name.is_none_or(|name| name == *known)).collect();
    if chosen.is_empty() {
        let all = RUNS.map(|(known, _)| known).join(", ");
        bail!("there is no nightly run '{}'; there are: {all}", name.unwrap_or_default());
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
    Ok(())
}

/// One run; its recordings stay in target/nightly. Whether it came out as expected.
#[allow(clippy::print_stderr)]
fn one(name: &str, arguments: &[&str]) -> anyhow::Result<bool> {
    let workspace = run::workspace()?;
    let out = workspace.join("target/nightly").join(name);
    if out.exists() {
        std::fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    eprintln!("==> {name}: backwater {}", arguments.join(" "));
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "-q", "-p", "backwater", "--"]).args(arguments).arg("--out").arg(&out);
    // Progress is shown as it comes.
    let output = command.current_dir(&workspace).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    keep(&workspace, name, arguments, &String::from_utf8_lossy(&output.stdout))?;
    Ok(output.status.success())
}

fn keep(workspace: &Path, name: &str, arguments: &[&str], text: &str) -> anyhow::Result<()> {
    let dir = workspace.join("docs/nightly");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let head = format!("# {name}\n\n`backwater {}`, {}", arguments.join(" "), bench::machine()?);
    // Where the recording lies here is nobody's business.
    let text = text.replace(&*workspace.to_string_lossy(), ".");
    let path = dir.join(format!("{name}.md"));
    std::fs::write(&path, format!("{head}\n\n```\n{}\n```\n", text.trim_end()))
        .with_context(|| format!("cannot write {}", path.display()))
}
