//! Why a lab run could not be done.

use crate::limits::LimitError;
use crate::scenario::ScenarioError;
use crate::servers::ServerError;
use crate::workloads::WorkloadError;
use backwater_probe::ProbeError;
use backwater_record::RecordError;
use backwater_undo::UndoError;
use std::path::PathBuf;

/// Why a lab run could not be done. Each text says what, where, why, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A limit could not be set.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The server could not be had or started.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The load failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The server or host could not be watched.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The recording could not be written or read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The journal of changes could not be kept: nothing is changed without it.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// A file of the run.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Asked for something that this run cannot do.
    #[error("{0}")]
    Refused(String),
    /// Somebody wanted it to end.
    #[error("stopped; everything this run changed has been put back")]
    Cancelled,
}

impl LabError {
    /// An error about a file.
    pub fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { what, path, source }
    }
}
