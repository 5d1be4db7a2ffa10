//! Where to listen and where the server is: `HOST:PORT`, or a Unix socket.

use crate::GateError;
use serde::de::{Deserializer, SeqAccess, Visitor, value};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The name of PostgreSQL's socket in a directory.
const SOCKET_NAME: &str = ".s.PGSQL.5432";

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// A host and a port, as `HOST:PORT`; IPv6 addresses in brackets.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = GateError;

    /// A directory stands for PostgreSQL's own socket in it.
    fn from_str(text: &str) -> Result<Self, GateError> {
        if text.starts_with('/') {
            let path = PathBuf::from(text);
            return Ok(Address::Unix(if path.is_dir() { path.join(SOCKET_NAME) } else { path }));
        }
        let (host, port) = text.rsplit_once(':').ok_or(GateError::Address)?;
        let bare_ipv6 = host.contains(':') && !host.starts_with('[');
        if host.is_empty() || bare_ipv6 || port.parse::<u16>().is_err() {
            return Err(GateError::Address);
        }
        Ok(Address::Tcp(text.to_owned()))
    }
}

impl TryFrom<String> for Address {
    type Error = GateError;
    fn try_from(text: String) -> Result<Self, GateError> {
        text.parse()
    }
}

/// One address, or a list of them.
#[derive(Debug, Default)]
pub(super) struct Addresses(pub(super) Vec<Address>);

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OneOrMany).map(Addresses)
    }
}

struct OneOrMany;

impl<'de> Visitor<'de> for OneOrMany {
    type Value = Vec<Address>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address or a list of addresses")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        text.parse().map(|address| vec![address]).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(value::SeqAccessDeserializer::new(list))
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(text) => f.write_str(text),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Address {
    /// Whether whoever listens there runs on this host for all that the address tells: a Unix socket, or a loopback one.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(text) => {
                let host = text.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
                host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// Whether the system chooses its port.
    pub(super) fn is_any_port(&self) -> bool {
        matches!(self, Address::Tcp(text) if text.ends_with(":0"))
    }

    /// The path of a Unix socket.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Address::Tcp(_) => None,
            Address::Unix(path) => Some(path),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_read_or_refused() {
        assert_eq!("db:5432".parse::<Address>().unwrap(), Address::Tcp("db:5432".to_owned()));
        assert_eq!("[::1]:5432".parse::<Address>().unwrap().to_string(), "[::1]:5432");
        assert_eq!("/no/such/socket".parse::<Address>().unwrap().path(), Some(Path::new("/no/such/socket")));
        let dir = tempfile::tempdir().unwrap();
        let socket: Address = dir.path().to_str().unwrap().parse().unwrap();
        assert_eq!(socket.path(), Some(dir.path().join(SOCKET_NAME).as_path()));
        let here = |text: &str| text.parse::<Address>().unwrap().is_here();
        assert!(here("127.0.0.1:5432") && here("[::1]:5432") && here("/no/such/socket") && !here("10.0.0.1:5432"));
        for wrong in ["", "db", "db:", ":5432", "::1:5432", "db:99999"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
