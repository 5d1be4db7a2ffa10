//! Why a limit could not be set.

use backwater_model::Bytes;
use backwater_undo::UndoError;
use std::path::{Path, PathBuf};

/// Why a limit could not be set. Each text says what, where, why and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The journal of changes could not be kept: nothing is changed without it.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// A file cannot be read or written.
    #[error("cannot {doing} {path}: {source}")]
    File {
        /// `read`, `write '…' to`.
        doing: String,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program is not installed.
    #[error("{program} is not installed; it comes with the package {package}: `apt-get install {package}`")]
    ToolMissing {
        /// Which.
        program: String,
        /// The package of Debian and most others.
        package: &'static str,
    },
    /// A program failed.
    #[error("`{command}` failed: {message}")]
    Tool {
        /// As it was called.
        command: String,
        /// What it said.
        message: String,
    },
    /// There is not enough room for the volume.
    #[error("{dir} has {free} free, the volume needs {needed}; make room, or name another directory")]
    NoSpace {
        /// Where it was to be.
        dir: PathBuf,
        /// What is free.
        free: Bytes,
        /// What is needed, with a margin.
        needed: Bytes,
    },
    /// This host or user does not allow it.
    #[error("{what} is not possible here: {why}. {next}")]
    Unsupported {
        /// Which limit.
        what: String,
        /// Why not.
        why: String,
        /// What to do.
        next: String,
    },
    /// The value makes no sense.
    #[error("{what} cannot be {value}: {why}")]
    Value {
        /// Which limit.
        what: String,
        /// What was asked.
        value: String,
        /// What is wrong with it, and what would do.
        why: String,
    },
    /// The kernel took the value, but what it says is in force is another.
    #[error(
        "{what} was set to {wanted} but reads {found}; something else on this host changes it, or the kernel refuses it"
    )]
    NotInForce {
        /// Which limit.
        what: String,
        /// What was set.
        wanted: String,
        /// What is read.
        found: String,
    },
    /// The volume did not become idle.
    #[error("{left} are still dirty on device {dev} after {seconds} s without a cap; is something else writing to it?")]
    NotSettled {
        /// `MAJ:MIN`.
        dev: String,
        /// Dirty and under writeback.
        left: Bytes,
        /// How long was waited.
        seconds: u64,
    },
}

impl LimitError {
    /// For `map_err`: an I/O error with what was tried and where.
    pub(super) fn file(doing: impl Into<String>, path: &Path) -> impl FnOnce(std::io::Error) -> LimitError {
        let (doing, path) = (doing.into(), path.to_owned());
        move |source| LimitError::File { doing, path, source }
    }
}
