//! What can be wrong with a recording, and where: every fault has a file and a byte offset, so that one can look.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is wrong with bytes, wherever they came from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file ends inside a document: it was cut, or a length is wrong.
    #[error("a document says that it is {claimed} bytes long, but only {left} are left")]
    CutShort {
        /// Bytes that the document says it has.
        claimed: u64,
        /// Bytes left in the file.
        left: u64,
    },
    /// A file that was listed and is gone: servers remove their oldest while they run.
    #[error("the file was removed meanwhile")]
    Removed,
    /// The system refuses one of several files, or the rest of one: its rights, or a bad disk. Of a recording that is one file,
    /// that is [`FtdcError::Read`].
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// A file without a byte in it, as a full disk leaves it behind.
    #[error("the file is empty")]
    Empty,
    /// Zeros where documents should be, as a crash leaves them behind a file that was being extended.
    #[error("{0} bytes of zeros instead of documents")]
    Zeros(u64),
    /// Samples of a chunk that are older than those before them, or later than the chunk behind: the clock was set. Only where samples
    /// are wanted in order of time, and only these are left out; how many. The words do not tell that, so that the same fault has the
    /// same words whatever stretch is read.
    #[error("samples that do not fit those before and behind them in time (the clock was set), left out")]
    Backwards(usize),
    /// Bytes that are no document of the recorder.
    #[error("no document of the flight recorder: {0}")]
    NotFtdc(&'static str),
    /// Bytes that are no BSON.
    #[error("damaged BSON: {0}")]
    Bson(&'static str),
    /// The compressed part of a chunk does not inflate.
    #[error("the compressed data does not inflate: {0}")]
    Inflate(&'static str),
    /// A length or count beyond what this reader accepts (see [`Limits`](crate::Limits)).
    #[error("{what}: {claimed}, more than the limit of {limit}")]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// As the file says.
        claimed: u64,
        /// As the reader was told.
        limit: u64,
    },
    /// The chunk and its own reference document disagree.
    #[error("the chunk says {claimed} metrics, its reference document has {found}")]
    MetricCount {
        /// As the chunk says.
        claimed: u32,
        /// As counted.
        found: usize,
    },
    /// The deltas end, or are no varints, before every metric has its samples.
    #[error("the deltas are damaged in metric {metric} of {of}")]
    Deltas {
        /// Which metric, counted from 0.
        metric: usize,
        /// How many there are.
        of: usize,
    },
}

/// Damage with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, byte {offset}: {damage}{}", file.display(), skipped(*lost_bytes))]
pub struct Fault {
    /// The file.
    pub file: Arc<Path>,
    /// Where the damaged document begins.
    pub offset: u64,
    /// Bytes from there to the next document that can be read, or to the end; 0 where all could be read.
    pub lost_bytes: u64,
    /// What is wrong.
    pub damage: Damage,
}

fn skipped(lost_bytes: u64) -> String {
    if lost_bytes == 0 { String::new() } else { format!(" ({lost_bytes} bytes skipped)") }
}

/// Why something could not be read or written. After a [`Fault`] reading goes on with the next whole document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FtdcError {
    /// The system refused.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is nothing of the recorder here.
    #[error("{}: no files of the flight recorder (metrics.*) here", path.display())]
    NothingHere {
        /// Where.
        path: PathBuf,
    },
    /// Damaged bytes; the rest can still be read.
    #[error(transparent)]
    Damaged(#[from] Fault),
    /// An export could not be written.
    #[error("cannot write: {0}")]
    Write(#[source] std::io::Error),
    /// An export could not be written as Parquet.
    #[error("cannot write Parquet: {0}")]
    Parquet(String),
}

impl FtdcError {
    pub(crate) fn read(path: &Path, source: std::io::Error) -> Self {
        FtdcError::Read { path: path.to_owned(), source }
    }
}
