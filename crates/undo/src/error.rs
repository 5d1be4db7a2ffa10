//! Why the journal could not be kept, and what could not be put back.

use crate::Change;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a journal could not be begun, written or finished.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The directory for journals cannot be used.
    #[error(
        "cannot use {path} for the undo journal: {source}; make it a directory that this user may write to, or name another with BACKWATER_STATE_DIR"
    )]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no home directory to keep journals in.
    #[error(
        "no place for the undo journal: neither XDG_STATE_HOME nor HOME is set; set one of them, or name a directory with BACKWATER_STATE_DIR"
    )]
    NoHome,
    /// A file of the journal cannot be read or written. A change that could not be noted must not be made.
    #[error("cannot {doing} {path}: {source}")]
    File {
        /// What was tried: `write`, `sync`, `lock`.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A path that is not Backwater's would be removed by the undo.
    #[error(
        "{path} may not be journalled for removal: it is neither inside {state_dir} nor is a part of its path named \
         'backwater-…'"
    )]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// The journal's own directory.
        state_dir: PathBuf,
    },
    /// Something that exists already is not this run's to remove.
    #[error("{path} exists already, so that this run must not remove it; note a change before making it")]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The journal was finished; nothing more may be changed under it.
    #[error("the undo journal of '{what}' is finished: no more changes may be made under it")]
    Finished {
        /// The run.
        what: String,
    },
    /// The entry is not in this journal.
    #[error("entry {entry} is not in the undo journal {path}")]
    NoSuchEntry {
        /// Its number.
        entry: u64,
        /// The journal.
        path: PathBuf,
    },
    /// Another run that is still alive changes the same thing.
    #[error("another run (process {by}) is changing {what} of this host; wait until it ends, or stop it")]
    Claimed {
        /// What both want.
        what: String,
        /// Its process id, as it wrote it down.
        by: String,
    },
    /// A process to be journalled could not be started.
    #[error("cannot start {what}: {source}")]
    Spawn {
        /// What it is.
        what: String,
        /// Why.
        source: std::io::Error,
    },
    /// Some changes could not be put back; the journal is kept.
    #[error("not everything could be put back ({path} is kept): {}", join(left))]
    Left {
        /// The journal.
        path: PathBuf,
        /// What is left.
        left: Vec<Left>,
    },
}

impl UndoError {
    /// For `map_err`: an I/O error with what was tried and where.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> UndoError {
        let path = path.to_owned();
        move |source| UndoError::File { doing, path, source }
    }
}

/// A change that could not be put back, and what a person can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The change.
    pub change: Change,
    /// Why it is left.
    pub why: String,
    /// The shell command that puts it back.
    pub command: String,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; to put it back: {}", self.change, self.why, self.command)
    }
}

fn join(left: &[Left]) -> String {
    left.iter().map(Left::to_string).collect::<Vec<_>>().join(" | ")
}
