//! The server's own log, where it can be read: lines about checkpoints, WAL, replication and crashes become events.
//! Only lines that begin with a known template of the server are kept, and only new ones: text that users typed
//! (statements, parameters, values in error messages) never gets in.

mod line;
mod messages;
mod stamp;
mod tail;

pub(super) use tail::Tail;

use std::path::{Path, PathBuf};

/// Finds the file the server logs to. `current` is what pg_current_logfile() says; without the logging collector the
/// server writes to the standard error it was started with, which may be a file too.
pub(super) fn locate(
    proc: &Path,
    postmaster_pid: i32,
    data_directory: Option<&str>,
    current: Option<&str>,
) -> Result<PathBuf, String> {
    if let Some(current) = current {
        let path = Path::new(data_directory.unwrap_or("/")).join(current);
        return if path.is_absolute() && (data_directory.is_some() || Path::new(current).is_absolute()) {
            Ok(path)
        } else {
            Err("the data directory is not known".to_owned())
        };
    }
    let link = proc.join(format!("{postmaster_pid}/fd/2"));
    let target = std::fs::read_link(&link).map_err(|error| format!("{} cannot be read: {error}", link.display()))?;
    if target.to_string_lossy().ends_with(" (deleted)") {
        return Err("the file it writes to was deleted".to_owned());
    }
    match std::fs::metadata(&target) {
        Ok(status) if status.is_file() => Ok(target),
        _ => Err("logging_collector is off and its standard error is no file".to_owned()),
    }
}

/// Reads bytes as the lines of a server's log, in each format. For the fuzzer.
#[cfg(fuzzing)]
pub fn exercise(text: &str) {
    for format in [line::Format::Stderr, line::Format::Csv, line::Format::Json] {
        let mut reader = line::Reader::new(format);
        for line in text.lines() {
            let message = reader.read(line, "%m [%p] ").and_then(messages::keep);
            assert!(message.is_none_or(|message| message.text.len() <= line.len()));
        }
    }
}
