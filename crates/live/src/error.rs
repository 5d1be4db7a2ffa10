//! What can go wrong when somebody wants to look.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a live view cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A server or this host cannot be watched.
    #[error(transparent)]
    Probe(#[from] backwater_probe::ProbeError),
    /// A recording cannot be read.
    #[error(transparent)]
    Record(#[from] backwater_record::RecordError),
    /// Nobody can connect to this address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// A certificate or key makes no sense.
    #[error("{}: {why}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A token that could be guessed.
    #[error("a token needs at least {least} letters and digits and nothing else; leave it away to have one made")]
    WeakToken {
        /// Characters it needs.
        least: usize,
    },
    /// A thread, a process or a terminal is not to be had.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// What a view shows could not be made, by a fault of this program.
    #[error("what is shown could not be made: please tell what was printed before this")]
    Document,
    /// The document cannot be written as JSON.
    #[error("the page cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

impl LiveError {
    /// For `map_err`: an error of the system with what was tried.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> LiveError {
        move |source| LiveError::System { what, source }
    }
}
