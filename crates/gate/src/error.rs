//! Why the proxy cannot run, each with what to do next.

use backwater_flow::StateError;
use std::path::{Path, PathBuf};

/// Why the proxy cannot be set up or run.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The configuration cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration is no such file.
    #[error("{path} is no configuration: {source}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Where and why; nothing of the text where passwords may stand in it.
        source: Box<toml::de::Error>,
    },
    /// Rules, pools or users do not fit together.
    #[error("{path}: {source}")]
    State {
        /// Which file.
        path: PathBuf,
        /// What.
        source: Box<StateError>,
    },
    /// What the console changed and was kept no longer fits the configuration.
    #[error(
        "{path}: {source}. What the console changed and was kept there needs what the configuration has no longer: put that back there, \
         change what uses it on the console, and only then take it out"
    )]
    Kept {
        /// The state file.
        path: PathBuf,
        /// What.
        source: Box<StateError>,
    },
    /// The state file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A limit that cannot be meant.
    #[error("limits.{name}: {why}")]
    Limit {
        /// Which.
        name: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// An address that is none. What stands there is not repeated: it may be a connection string, with its password.
    #[error("no address: it must be HOST:PORT, or the path of a Unix socket or of its directory")]
    Address,
    /// A network that is none, and not repeated either.
    #[error("no network: it must be an address such as 127.0.0.1 or ::1, or a network such as 10.0.0.0/8")]
    Network,
    /// A password of the console that is none.
    #[error("admin.users: the password of {0} is empty or a malformed SCRAM-SHA-256 verifier")]
    Password(String),
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// A pool for whoever comes by an address that cannot be.
    #[error("listeners: {address} = {pool}: {why}")]
    Listener {
        /// The address.
        address: String,
        /// The pool.
        pool: String,
        /// Why not.
        why: &'static str,
    },
    /// Nothing to listen on.
    #[error("there is no address to listen on")]
    NoListener,
    /// A certificate or key that cannot be used.
    #[error("cannot use {path} for encryption: {why}")]
    Tls {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A server's name that no certificate can have.
    #[error("server_tls.name: '{0}' is neither a host's name nor an address")]
    TlsName(String),
    /// A rule of attach mode looks at what cannot be seen.
    #[error("no rule of attach mode can look at {attribute} here: {why}")]
    Unseen {
        /// At what.
        attribute: &'static str,
        /// Why not.
        why: String,
    },
    /// A setting that cannot be carried out.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The system refuses something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl GateError {
    /// For `map_err`: the system refuses something.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> GateError {
        move |source| GateError::System { what, source }
    }

    /// For `map_err`: a text is no configuration. Says where and why and repeats nothing that stands there, as toml's own
    /// error does: any line, and what stands where something else belongs, may be a password.
    pub(crate) fn parse(path: &Path, text: &str) -> impl FnOnce(toml::de::Error) -> GateError {
        move |error| {
            let why = without_value(error.message());
            let told = match error.span() {
                Some(span) => format!("{}: {why}", place(text, span.start)),
                None => why,
            };
            GateError::Parse { path: path.to_owned(), source: Box::new(serde::de::Error::custom(told)) }
        }
    }
}

/// Line and column of a byte, from 1.
fn place(text: &str, byte: usize) -> String {
    let before = &text[..text.floor_char_boundary(byte)];
    let line = before.rsplit('\n').next().unwrap_or_default();
    format!("line {}, column {}", before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// serde names a value that it did not expect. Its kind says what is wrong.
fn without_value(message: &str) -> String {
    let unexpected = |head: &'static str| {
        let (found, expected) = message.strip_prefix(head)?.rsplit_once(", expected ")?;
        let kind = found.split(['"', '`']).next()?.trim_end();
        Some(format!("{head}{kind}, expected {expected}"))
    };
    unexpected("invalid type: ").or_else(|| unexpected("invalid value: ")).unwrap_or_else(|| message.to_owned())
}
