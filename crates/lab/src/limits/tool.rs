//! Programs of the host: losetup, mkfs, ip, tc.

use super::LimitError;
use backwater_undo::{Journal, Stop};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where administrators' programs are, also when the PATH of the caller lacks them (as `su` leaves it).
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The package that holds a program.
pub(super) fn package(program: &str) -> &'static str {
    match program {
        "mkfs.ext4" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "ip" | "tc" => "iproute2",
        _ => "util-linux",
    }
}

/// Where the program is.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    PATH.split(':').map(|dir| Path::new(dir).join(program)).find(|path| path.is_file())
}

fn command<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<Command, LimitError> {
    let missing = || LimitError::ToolMissing { program: program.to_owned(), package: package(program) };
    let mut command = Command::new(find(program).ok_or_else(missing)?);
    command.args(arguments).env("LC_ALL", "C").env("PATH", PATH);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Runs a program that ends at once; its output.
pub(super) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String, LimitError> {
    let mut command = command(program, arguments)?;
    let output = command.output();
    told(&command, output)
}

/// Runs a program whose work would outlast a killed run: one that still writes to a device, or that makes a loop device or
/// a namespace after the next run has looked for what was left.
pub(super) fn run_journalled<S: AsRef<OsStr>>(
    journal: &Journal,
    program: &str,
    arguments: &[S],
) -> Result<String, LimitError> {
    let mut command = command(program, arguments)?;
    let (child, entry) = journal.spawn(&mut command, program, Stop::Terminate)?;
    let output = child.wait_with_output();
    journal.undo(entry)?;
    told(&command, output)
}

fn told(command: &Command, output: std::io::Result<Output>) -> Result<String, LimitError> {
    let words: Vec<_> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    let failed = |message: String| LimitError::Tool { command: words.join(" "), message };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(if said.is_empty() { output.status.to_string() } else { said }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn failures_say_the_command_and_what_it_said() {
        assert_eq!(run("echo", &["a"]).unwrap(), "a");
        let error = run("ls", &["/no/such/place"]).unwrap_err().to_string();
        assert!(error.contains("ls /no/such/place` failed") && error.contains("No such file"), "{error}");
        let error = run("mkfs.none", &["x"]).unwrap_err().to_string();
        assert!(error.contains("mkfs.none is not installed"), "{error}");
    }

    #[test]
    fn a_journalled_program_is_forgotten_when_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin(dir.path(), "test").unwrap();
        assert_eq!(run_journalled(&journal, "echo", &["b"]).unwrap(), "b");
        journal.finish().unwrap();
    }
}
