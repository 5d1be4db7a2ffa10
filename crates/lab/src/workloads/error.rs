//! Why a load cannot be made or driven.

use std::path::PathBuf;

/// Why a load cannot be made or driven, each with where and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A connection could not be made.
    #[error(
        "client {client} cannot connect to the server: {reason}. Its log says more; max_connections may be too low"
    )]
    Connect {
        /// Which client, from 0.
        client: usize,
        /// Why.
        reason: String,
    },
    /// A connection broke.
    #[error("client {client} lost its connection after {after_s:.1} s of load: {reason}. The server's log says more")]
    Lost {
        /// Which client, from 0.
        client: usize,
        /// How long after the load began, in seconds.
        after_s: f64,
        /// Why.
        reason: String,
    },
    /// The server refused what a load needs before it begins.
    #[error("cannot {what}: {reason}")]
    Prepare {
        /// What was tried.
        what: String,
        /// The server's answer.
        reason: String,
    },
    /// The role may not do it; another way may work.
    #[error("cannot {what}: {why}. The form that commits from the client needs no procedure")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// Why the server does not let it.
        why: String,
    },
    /// The tables do not hold what was to be made.
    #[error("{table} has {found} rows instead of {wanted}: make the data again")]
    Rows {
        /// Which table.
        table: &'static str,
        /// So many should be there.
        wanted: u64,
        /// So many are.
        found: u64,
    },
    /// A scale or a rate that cannot be.
    #[error("{field} = {value}: {why}")]
    Impossible {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        why: &'static str,
    },
    /// A script cannot be read.
    #[error("cannot read the script {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A script is not understood, or one of its expressions has no value.
    #[error("{path}, line {line}: {message}")]
    Script {
        /// Which script.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong and what would do.
        message: String,
    },
    /// pgbench cannot be run or failed.
    #[error("pgbench: {0}")]
    Pgbench(String),
    /// It was told to stop.
    #[error("stopped")]
    Cancelled,
    /// A system call failed.
    #[error("{call} failed: {source}")]
    System {
        /// Which.
        call: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// What the server refused, as an error: for `map_err`.
pub(crate) fn cannot(what: impl std::fmt::Display) -> impl Fn(tokio_postgres::Error) -> WorkloadError {
    move |error| WorkloadError::Prepare { what: what.to_string(), reason: reason(&error) }
}

/// What a PostgreSQL error says, with its cause: `tokio_postgres` alone prints only its kind.
pub(crate) fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        let detail = answer.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}: {}{detail} [{}]", answer.severity(), answer.message(), answer.code().code());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
