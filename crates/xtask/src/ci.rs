//! Format, lints, style and tests. A test that cannot run here says `skipped: NAME: REASON`; as root that is a
//! failure, because there everything can run.

use crate::{run, tidy};
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Commands that tests of the host need, and the Debian package of each.
const TOOLS: &[(&str, &str)] =
    &[("losetup", "mount"), ("mkfs.ext4", "e2fsprogs"), ("mkfs.xfs", "xfsprogs"), ("linux.uml", "user-mode-linux")];

pub(crate) fn all() -> anyhow::Result<()> {
    run::step("format", "cargo", &["fmt", "--all", "--check"])?;
    run::step("lints", "cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    tidy::check()?;
    tests()
}

pub(crate) fn tests() -> anyhow::Result<()> {
    install_tools()?;
    run::step("build", "cargo", &["build", "--workspace", "--bins", "--examples", "--locked"])?;
    cargo_test()
}

fn is_root() -> anyhow::Result<bool> {
    Ok(run::output("id", &["-u"])?.trim() == "0")
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    // Debian keeps its PostgreSQL servers off everybody's PATH.
    let servers = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut servers = servers.map(|version| version.path().join("bin"));
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|dir| Path::new(dir).join(tool).exists())
        || servers.any(|dir| dir.join(tool).exists())
}

/// Installs the packages whose commands are missing, where this is root on Debian or Ubuntu.
#[allow(clippy::print_stderr)]
fn install_tools() -> anyhow::Result<()> {
    let missing: Vec<_> = TOOLS.iter().filter(|(tool, _)| !on_path(tool)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root()? || !on_path("apt-get") {
        eprintln!("==> not installed: {}; tests that need them will say that they are skipped", missing.join(", "));
        return Ok(());
    }
    run::step("package lists", "apt-get", &["update", "-qq"])?;
    let mut arguments = vec!["install", "-qq", "-y", "--no-install-recommends"];
    arguments.extend(&missing);
    run::step("packages that the tests need", "apt-get", &arguments)
}

/// What the lines of a test run say.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
}

impl Tally {
    fn line(&mut self, line: &str) {
        if let Some(skipped) = line.trim_start().strip_prefix("skipped: ") {
            self.skipped.push(skipped.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| {
            let before = result.split(word).next()?;
            before.split_whitespace().next_back()?.parse::<u64>().ok()
        };
        self.passed += number(" passed").unwrap_or(0);
        self.failed += number(" failed").unwrap_or(0);
    }
}

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn cargo_test() -> anyhow::Result<()> {
    let arguments = ["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"];
    eprintln!("==> tests: cargo {}", arguments.join(" "));
    let mut child = Command::new("cargo")
        .args(arguments)
        .current_dir(run::workspace()?)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut tally = Tally::default();
    let mut failing = false;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        tally.line(&line);
        failing = match line.as_str() {
            "failures:" => true,
            "successes:" => false,
            _ => failing,
        };
        if failing || line.starts_with("test ") || line.starts_with("running ") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    for skipped in &tally.skipped {
        println!("skipped: {skipped}");
    }
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped.len());
    if !status.success() {
        bail!("tests failed");
    }
    if is_root()? && !tally.skipped.is_empty() {
        bail!("as root nothing may be skipped");
    }
    Ok(())
}
