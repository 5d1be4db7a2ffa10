//! Running other programs, loudly.

use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Instant;

/// The root of the workspace.
pub(crate) fn workspace() -> anyhow::Result<PathBuf> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    Ok(PathBuf::from(here).join("../..").canonicalize()?)
}

/// A program to run in the workspace. What `cargo run` has set for this one is taken away: with other CARGO_ variables than
/// in a shell, build scripts that look at them run again, and everything above them is built twice.
pub(crate) fn command(program: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command.current_dir(workspace()?);
    Ok(command)
}

/// In front of a program that runs beside tests: it gives way to whatever else wants a processor, at once, where one with a high nice
/// value would be let finish its slice first.
pub(crate) const BESIDE: [&str; 3] = ["chrt", "--idle", "0"];

/// Says what happens, and how long after the first that was said.
#[allow(clippy::print_stderr)]
pub(crate) fn say(what: &str) {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let seconds = BEGAN.elapsed().as_secs();
    eprintln!("==> {}:{:02} {what}", seconds / 60, seconds % 60);
}

/// Says what is run, runs it in the workspace, fails if it fails.
pub(crate) fn step(what: &str, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    say(&format!("{what}: {program} {}", arguments.join(" ")));
    let status = command(program)?.args(arguments).status();
    if !status.with_context(|| format!("cannot start {program}"))?.success() {
        bail!("{what} failed: {program} {}", arguments.join(" "));
    }
    Ok(())
}

/// What a program prints, with these variables set.
pub(crate) fn output(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<String> {
    let output = command(program)?.args(arguments).envs(variables.iter().copied()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
