//! Why a look failed, with where.

use std::path::PathBuf;

/// Why a probe could not be set up or read.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A kernel file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A kernel file does not look as expected.
    #[error("{path}, line {line}: expected {wanted}, found '{found}'")]
    Parse {
        /// Which.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What was expected.
        wanted: &'static str,
        /// What stood there.
        found: String,
    },
    /// A system call failed.
    #[error("{call} failed: {source}")]
    System {
        /// Which.
        call: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Connecting to a server failed. The text names the server (never a password), why, and what to do next.
    #[error("{0}")]
    Connect(String),
    /// As [`ProbeError::Connect`], of a server that is away: what failed may work without anybody mending the address.
    #[error("{0}")]
    Unreached(String),
    /// The server answered a query with an error.
    #[error("{server}: {what}: {message}")]
    Server {
        /// Which server.
        server: String,
        /// What was asked.
        what: &'static str,
        /// Its answer.
        message: String,
    },
    /// The server did not answer in time.
    #[error("{server}: {what}: no answer within {seconds} s")]
    Timeout {
        /// Which server.
        server: String,
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        seconds: f64,
    },
    /// A server's log file is not what it was taken for.
    #[error("{path}: {why}")]
    Log {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// MongoDB's flight recorder could not be read.
    #[error(transparent)]
    FlightRecorder(#[from] ftdc::FtdcError),
}

impl ProbeError {
    /// This, where it cost the connection: the server may be there again later.
    pub(crate) fn lost(self) -> ProbeError {
        match self {
            ProbeError::Server { .. } => ProbeError::Unreached(self.to_string()),
            other => other,
        }
    }

    /// Whether a server is merely away: down, starting, full, cut off or too slow to answer.
    pub fn is_away(&self) -> bool {
        matches!(self, ProbeError::Unreached(_) | ProbeError::Timeout { .. })
    }
}
