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
    /// The state file is none.
    #[error(
        "the state file {path} is damaged: {why}. Put back a copy of it; or move it away, and what the configuration says counts again, \
         without what the console had changed"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where and why; nothing of the text.
        why: String,
    },
    /// A file says what cannot be.
    #[error("{path}: {why}")]
    In {
        /// Which file.
        path: PathBuf,
        /// What.
        why: Box<GateError>,
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
    #[error(
        "no address: it must be HOST:PORT (a port up to 65535), or from / on the path of a Unix socket or of its directory"
    )]
    Address,
    /// A network that is none, and not repeated either.
    #[error("no network: it must be an address such as 127.0.0.1 or ::1, or a network such as 10.0.0.0/8")]
    Network,
    /// A password of the console that is none.
    #[error("admin.users: the password of {0} is empty or a malformed SCRAM-SHA-256 verifier")]
    Password(String),
    /// A console for nobody.
    #[error("admin.users names nobody: nobody could log in to the console. Without [admin] there is none")]
    NobodysConsole,
    /// A pool that is to be held and is urgent.
    #[error(
        "resource pool {}: a pool's bandwidth holds only low-priority pools: urgent work is never slowed. Set priority = 'low' too",
        backwater_flow::quote(.0)
    )]
    UrgentBandwidth(String),
    /// A state file that is none.
    #[error("state_file names no file: '{0}'")]
    NoStateFile(PathBuf),
    /// An address that is to be listened on twice.
    #[error("listen, or admin.listen: {0} stands there twice")]
    ListenedTwice(String),
    /// The proxy as its own server.
    #[error("server: {0} is the proxy's own address (listen), so that it would connect with itself for ever")]
    OwnServer(String),
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
    /// The same, with the file where that stands.
    pub(crate) fn of(self, path: &Path) -> GateError {
        GateError::In { path: path.to_owned(), why: Box::new(self) }
    }

    /// For `map_err`: the system refuses something.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> GateError {
        move |source| GateError::System { what, source }
    }

    /// For `map_err`: a text is no configuration. Says where and why and repeats nothing that stands there, as toml's own
    /// error does: any line, and what stands where something else belongs, may be a password.
    pub(crate) fn parse(path: &Path, text: &str) -> impl FnOnce(toml::de::Error) -> GateError {
        move |error| {
            let told = GateError::place_and_why(text, &error);
            GateError::Parse { path: path.to_owned(), source: Box::new(serde::de::Error::custom(told)) }
        }
    }

    /// Where a text is no configuration, and why.
    pub(crate) fn place_and_why(text: &str, error: &toml::de::Error) -> String {
        let why = without_value(error.message());
        match error.span() {
            Some(span) => format!("{}: {why}", place(text, span.start)),
            None => why,
        }
    }
}

/// Line and column of a byte, from 1.
fn place(text: &str, byte: usize) -> String {
    let before = &text[..text.floor_char_boundary(byte)];
    let line = before.rsplit('\n').next().unwrap_or_default();
    format!("line {}, column {}", before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// What serde names as Rust does.
fn in_words(expected: &str) -> &str {
    match expected {
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 on",
        "i64" | "f64" => "a number",
        "any value" => "a value of a usual size",
        "a sequence" => "a list, as in ['…']",
        "a map" => "a table, as in { … }",
        other => other,
    }
}

/// serde names a value that it did not expect. Its kind says what is wrong.
fn without_value(message: &str) -> String {
    let unexpected = |head: &'static str| {
        let (found, expected) = message.strip_prefix(head)?.rsplit_once(", expected ")?;
        let kind = found.split(['"', '`']).next()?.trim_end();
        Some(format!("{head}{kind}, expected {}", in_words(expected)))
    };
    unexpected("invalid type: ").or_else(|| unexpected("invalid value: ")).unwrap_or_else(|| message.to_owned())
}
