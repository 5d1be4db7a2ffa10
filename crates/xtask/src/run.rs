//! Running other programs, loudly.

use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::Command;

/// The root of the workspace.
pub(crate) fn workspace() -> anyhow::Result<PathBuf> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    Ok(PathBuf::from(here).join("../..").canonicalize()?)
}

/// Says what is run, runs it in the workspace, fails if it fails.
#[allow(clippy::print_stderr)]
pub(crate) fn step(what: &str, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    eprintln!("==> {what}: {program} {}", arguments.join(" "));
    let status = Command::new(program).args(arguments).current_dir(workspace()?).status();
    if !status.with_context(|| format!("cannot start {program}"))?.success() {
        bail!("{what} failed: {program} {}", arguments.join(" "));
    }
    Ok(())
}

/// What a program prints.
pub(crate) fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).current_dir(workspace()?).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
