//! Starting other programs with a limit of time, their output kept.

use anyhow::{Context, bail};
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// A command that timeout(1) ends, with all that it started, when its time is over.
pub(super) fn bounded(limit: Duration, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &limit.as_secs().to_string(), program]);
    command
}

/// Runs a bounded command, both outputs into a file. An error only where it did not end in its time.
pub(super) fn into_file(mut command: Command, output: &Path) -> anyhow::Result<ExitStatus> {
    let file = File::create(output).with_context(|| format!("cannot write {}", output.display()))?;
    command.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    // What timeout(1) ends with when it ended the command, gently or not.
    if matches!(status.code(), Some(124 | 137)) {
        bail!("{command:?} did not end in its time; what it said is in {}", output.display());
    }
    Ok(status)
}

/// Runs a command that must succeed; its standard output. The rest is told where it fails.
pub(super) fn must(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&said).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command in a directory, for a download or a build.
pub(super) fn fetching(dir: &Path, program: &str) -> Command {
    let mut command = bounded(Duration::from_secs(900), program);
    command.current_dir(dir);
    command
}

/// Copies a directory; what is copied may be written to.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("cp");
    command.args(["-r", "--no-preserve=mode"]).arg(from).arg(to);
    must(command).map(|_| ())
}
