//! Where the server is and how to get in, by libpq's conventions: what is written in the address comes first, then
//! the service file, then `PG*` variables, then the password file and the built-in defaults.
//!
//! A password never leaves this room: it has no Display, its Debug is a placeholder, and no message repeats an address.

mod files;
mod resolve;
mod syntax;

use crate::ProbeError;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A password. Shown as `…` wherever it is printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// How to reach one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// The directory of its Unix socket.
    Unix(PathBuf),
    /// A host name or address; `addr` spares the look-up, and then the name serves certificates only.
    Tcp { host: String, addr: Option<IpAddr> },
}

/// One of the servers to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) port: u16,
    pub(super) password: Option<Secret>,
}

impl Server {
    /// `host:port`; `localhost:port` for a Unix socket.
    pub(super) fn label(&self) -> String {
        match &self.address {
            Address::Unix(_) => format!("localhost:{}", self.port),
            Address::Tcp { host, .. } if host.contains(':') => format!("[{host}]:{}", self.port),
            Address::Tcp { host, .. } => format!("{host}:{}", self.port),
        }
    }

    /// What a person needs to find it: the label, or the socket's path.
    pub(super) fn place(&self) -> String {
        match &self.address {
            Address::Unix(directory) => format!("the socket {}/.s.PGSQL.{}", directory.display(), self.port),
            Address::Tcp { .. } => self.label(),
        }
    }
}

/// sslmode, as libpq means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Whose certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// The system's store (`sslrootcert=system`).
    System,
    /// This file.
    File(PathBuf),
    /// Nobody's: no file was named and there is none at the default place.
    Nobody {
        /// Where the default would be.
        default: Option<PathBuf>,
    },
}

/// What concerns TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) mode: SslMode,
    pub(super) roots: Roots,
    /// Files of the client's certificate and key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
    /// Whether to begin with TLS at once (PostgreSQL 17, `sslnegotiation=direct`).
    pub(super) direct: bool,
    /// Whether to name the host in the handshake.
    pub(super) name_host: bool,
    /// Whether TLS 1.2 is refused (`ssl_min_protocol_version=TLSv1.3`).
    pub(super) only_13: bool,
}

/// target_session_attrs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionAttrs {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// TCP settings, each left to the system where it was not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tcp {
    pub(super) keepalives: Option<bool>,
    pub(super) idle: Option<Duration>,
    pub(super) interval: Option<Duration>,
    pub(super) count: Option<u32>,
    pub(super) user_timeout: Option<Duration>,
}

/// Where the server is, and how to get in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    pub(super) servers: Vec<Server>,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) options: Option<String>,
    pub(super) application_name: Option<String>,
    pub(super) tls: Tls,
    pub(super) tcp: Tcp,
    pub(super) channel_binding: Option<bool>,
    pub(super) attrs: SessionAttrs,
    pub(super) connect_timeout: Option<Duration>,
    /// Where the password came from, for messages.
    pub(super) password_from: Option<String>,
    password_in_target: bool,
    warnings: Vec<String>,
}

impl ConnInfo {
    /// Reads an address (`postgres://user@host:port/database?…`, `host=… port=…`, or nothing), and fills what it
    /// leaves open from the environment `env`, as libpq does.
    ///
    /// # Errors
    /// [`ProbeError::Connect`] with what is wrong; it repeats no value that may be a password.
    pub fn parse(target: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<ConnInfo, ProbeError> {
        resolve::resolve(target, env).map_err(|why| {
            ProbeError::Connect(format!(
                "cannot understand the PostgreSQL address: {why}. Write postgres://user@host:port/database, or \
                 host=… port=… user=… dbname=…, as for psql"
            ))
        })
    }

    /// `host:port` of the first server, without credentials.
    pub fn label(&self) -> String {
        self.servers.first().map(Server::label).unwrap_or_default()
    }

    /// `host:port` of each server, with commas between them. (Of this host two sockets may be tried: those are one.)
    pub(crate) fn labels(&self) -> String {
        let mut labels: Vec<String> = self.servers.iter().map(Server::label).collect();
        labels.dedup();
        labels.join(",")
    }

    /// Whether it can lead to one server alone.
    pub(crate) fn is_of_one_server(&self) -> bool {
        self.labels() == self.label()
    }

    /// The role.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Whether the address itself holds a password, which everybody on the host can read in the list of processes.
    pub fn password_in_target(&self) -> bool {
        self.password_in_target
    }

    /// What the user should know: a password in the address, a password file left alone.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// This with another database, for those who need a second connection elsewhere.
    #[must_use]
    pub fn with_database(mut self, database: &str) -> Self {
        database.clone_into(&mut self.database);
        self
    }
}

/// Reads a text as whatever tells where a server is; no file is opened. For the fuzzer.
#[cfg(fuzzing)]
pub fn exercise(text: &str) {
    let _ = syntax::parse(text);
    files::exercise(text);
}
