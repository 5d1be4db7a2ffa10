//! Why a socket of another process cannot be reached, as a fact. What to do about a missing right is for whoever knows
//! what was wanted.

use std::io;
use std::net::SocketAddr;

/// Why a socket cannot be found, read or paced.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// No such process.
    #[error("there is no process {pid} here")]
    NoProcess {
        /// Its id.
        pid: i32,
    },
    /// The id belongs to somebody else now, or the process closed the connection.
    #[error("the connection with {peer} of process {pid} is gone")]
    Gone {
        /// Whose it was.
        pid: i32,
        /// With whom.
        peer: SocketAddr,
    },
    /// A process's descriptors or one of them may not be taken.
    #[error("cannot {what} of process {pid}: {source}")]
    Process {
        /// What was tried.
        what: &'static str,
        /// Whose.
        pid: i32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A table of the kernel cannot be read.
    #[error("cannot read {what}: {why}")]
    Table {
        /// Which.
        what: String,
        /// Why.
        why: String,
    },
}

impl SocketError {
    /// Whether the socket is not there any more, for certain: its process has ended, or has closed it. Any other error says
    /// nothing of it.
    pub fn is_gone(&self) -> bool {
        matches!(self, SocketError::NoProcess { .. } | SocketError::Gone { .. })
    }
}
