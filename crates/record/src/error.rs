//! Why a recording could not be written or read: which file, why, and what to do next.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What goes wrong with recordings. Every text names the file or directory, the reason and the next step.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file or directory could not be used.
    #[error("cannot {action} {}: {source}; {advice}", path.display())]
    Io {
        /// What was tried: `open`, `write`.
        action: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
        /// What to do next.
        advice: &'static str,
    },
    /// The file system is full. What was recorded before stays readable.
    #[error("no space left to {action} {}; what was recorded so far is readable: free space, or record elsewhere with another -o DIR", path.display())]
    DiskFull {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
    },
    /// The file system is about to be full: the recorder leaves the rest to the server.
    #[error(
        "{} has {free_bytes} bytes free, which is under the floor of {floor_bytes} bytes kept for others; free space, record elsewhere with another -o DIR, or lower the floor", dir.display()
    )]
    FreeFloor {
        /// The recording.
        dir: PathBuf,
        /// What is free.
        free_bytes: u64,
        /// What must stay free.
        floor_bytes: u64,
    },
    /// The directory holds files that are no recording.
    #[error("{} is not empty and holds no recording (found {found}); choose another -o DIR", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// One of the files found.
        found: String,
    },
    /// There is no recording here.
    #[error("{} is no recording: {why}; give the directory that `backwater record -o DIR` wrote, or a diagnostic.data with metrics.* files in it", dir.display())]
    NotARecording {
        /// The directory.
        dir: PathBuf,
        /// How that shows: it does not exist, it is a file, it has no meta.json.
        why: &'static str,
    },
    /// Another writer holds the directory.
    #[error("{} is being recorded to by another process; stop that one first, or choose another -o DIR", dir.display())]
    Busy {
        /// The directory.
        dir: PathBuf,
    },
    /// The file was written in a format that this version does not know.
    #[error("{} has recording format {found}, and this version of Backwater reads format {known}; read it with the version that wrote it ({written_by}), or a newer one", path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: String,
        /// What is known here.
        known: u32,
        /// Who wrote it, where it says so.
        written_by: String,
    },
    /// The host was restarted since, so that its clock began anew.
    #[error("{} was recorded before the host was restarted, and its clock began anew since ({why}); record into another -o DIR", dir.display())]
    OtherBoot {
        /// The recording.
        dir: PathBuf,
        /// How it shows.
        why: String,
    },
    /// A file does not hold what it should.
    #[error("{} cannot be understood: {why}; {advice}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do next.
        advice: &'static str,
    },
    /// Limits that cannot be kept.
    #[error("{option}: {why}")]
    BadOption {
        /// Which option.
        option: &'static str,
        /// What is wrong with it, and what would do.
        why: String,
    },
    /// Rows could not be put into columns: a defect of this program.
    #[error("cannot encode {}: {why}; please report this", path.display())]
    Encode {
        /// For which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The writer stopped earlier and takes no more.
    #[error("recording stopped earlier: {why}")]
    Stopped {
        /// The error that stopped it.
        why: String,
    },
}

impl RecordError {
    /// The error for a failed call on a file.
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        let advice = match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => return RecordError::DiskFull { action, path },
            ErrorKind::PermissionDenied => "use a directory that this user may write and read",
            ErrorKind::ReadOnlyFilesystem => "use a directory on a file system that is mounted writable",
            ErrorKind::NotFound => "check the path",
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                "a file stands where a directory is needed: name another directory, or move the file away"
            }
            _ => "check the file system's health (`dmesg`) and the path",
        };
        RecordError::Io { action, path, source, advice }
    }

    /// Turns the error of a call on `path` into one of ours.
    pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RecordError {
        move |source| RecordError::io(action, path, source)
    }

    /// A file whose contents make no sense.
    pub(crate) fn damaged(path: &Path, why: impl std::fmt::Display) -> Self {
        let advice = "put back a copy of this file if there is one; what does not need it is read all the same";
        RecordError::Damaged { path: path.to_owned(), why: why.to_string(), advice }
    }

    /// Rows that do not fit their columns.
    pub(crate) fn encode(path: &Path, why: impl std::fmt::Display) -> Self {
        RecordError::Encode { path: path.to_owned(), why: why.to_string() }
    }

    /// Whether the file was not there, as happens when it is folded, compacted or expired while it is read.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, RecordError::Io { source, .. } if source.kind() == ErrorKind::NotFound)
    }
}
