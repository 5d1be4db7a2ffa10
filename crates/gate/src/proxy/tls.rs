//! What the configuration says of encryption: `[tls]` towards clients, `[server_tls]` towards the server.
//!
//! Without `[tls]` encryption is passed through: clients see the server's own certificate, and nothing of such a session
//! can be seen here. With it the proxy ends the clients' encryption, and every rule works.

use super::Address;
use super::secure::{PROTOCOL, Secure};
use crate::GateError;
use backwater_tls::{Verifier, certificates, system_authorities};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Stands for the system's own authorities in `roots`.
const SYSTEM: &str = "system";

/// Encryption towards clients, ended here.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ServerConfig>,
    pub(super) required: bool,
}

/// Encryption towards the server, begun here.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    pub(super) required: bool,
    /// As it is written.
    pub(super) mode: &'static str,
}

/// `[tls]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenClientTls {
    certificate: PathBuf,
    key: PathBuf,
    #[serde(default)]
    required: bool,
}

/// `[server_tls]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenServerTls {
    mode: Mode,
    #[serde(default)]
    roots: Option<PathBuf>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    certificate: Option<PathBuf>,
    #[serde(default)]
    key: Option<PathBuf>,
}

/// As libpq's sslmode has them.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Mode::Disable => "disable",
            Mode::Prefer => "prefer",
            Mode::Require => "require",
            Mode::VerifyCa => "verify-ca",
            Mode::VerifyFull => "verify-full",
        }
    }
}

impl ClientTls {
    /// Reads certificate and key; their paths are relative to the configuration's.
    pub(super) fn read(written: &WrittenClientTls, beside: &Path) -> Result<ClientTls, GateError> {
        let certificate = at(beside, &written.certificate);
        let (chain, own) = pair(beside, &written.certificate, &written.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(&certificate, &error))?;
        let config = builder.with_no_client_auth().with_single_cert(chain, own);
        let mut config = config.map_err(|error| unfit(&certificate, &error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(ClientTls { config: Arc::new(config), required: written.required })
    }

    /// The proxy's end of a client's connection.
    pub(super) fn begin(&self) -> io::Result<Secure> {
        Secure::server(&self.config)
    }
}

impl ServerTls {
    /// Reads what it asks for; None where it asks for no encryption.
    pub(super) fn read(
        written: &WrittenServerTls,
        server: &Address,
        beside: &Path,
    ) -> Result<Option<ServerTls>, GateError> {
        if written.mode == Mode::Disable {
            return Ok(None);
        }
        let Address::Tcp(text) = server else {
            return Err(GateError::Unsupported(
                "server_tls needs a server that is reached by TCP: a Unix socket is not encrypted",
            ));
        };
        let host = text.rsplit_once(':').map_or(text.as_str(), |(host, _)| host).trim_matches(['[', ']']);
        let name = written.name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|_| GateError::TlsName(name.to_owned()))?;
        let provider = Arc::new(ring::default_provider());
        let trusted = match (&written.roots, written.mode) {
            // With authorities at hand `require` means `verify-ca`: libpq keeps this from its early days.
            (_, Mode::Prefer) | (None, Mode::Require) => Vec::new(),
            (None, _) => {
                return Err(GateError::Unsupported(
                    "server_tls with a verify mode needs roots: a PEM file of authorities, or 'system'",
                ));
            }
            (Some(system), _) if system.as_os_str() == SYSTEM => {
                system_authorities().map_err(|error| wrong(Path::new("server_tls.roots"), &error))?
            }
            (Some(file), _) => trusted_file(&at(beside, file))?,
        };
        let unusable =
            |error: &dyn std::fmt::Display| wrong(written.roots.as_deref().unwrap_or(Path::new("server_tls")), error);
        let name_matters = written.mode == Mode::VerifyFull;
        let verifier = Verifier::new(Arc::clone(&provider), trusted, name_matters).map_err(|error| unusable(&error))?;
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| unusable(&error))?;
        // The name says it: this is where less may be verified than rustls would; each mode says how much.
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let config = match (&written.certificate, &written.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let (chain, own) = pair(beside, certificate, key)?;
                builder.with_client_auth_cert(chain, own).map_err(|error| unfit(&at(beside, certificate), &error))?
            }
            _ => return Err(GateError::Unsupported("server_tls takes a certificate and its key, or neither")),
        };
        let (required, mode) = (written.mode != Mode::Prefer, written.mode.word());
        Ok(Some(ServerTls { config: Arc::new(config), name, required, mode }))
    }

    /// The proxy's end of a connection with the server.
    pub(super) fn begin(&self) -> io::Result<Secure> {
        Secure::client(&self.config, self.name.clone())
    }
}

fn at(beside: &Path, path: &Path) -> PathBuf {
    beside.parent().map_or_else(|| path.to_owned(), |dir| dir.join(path))
}

/// A certificate, with those above it, and its key.
fn pair(
    beside: &Path,
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), GateError> {
    let (chain, key) = (trusted_file(&at(beside, certificate))?, at(beside, key));
    let own = PrivateKeyDer::from_pem_file(&key).map_err(|error| wrong(&key, &error))?;
    Ok((chain, own))
}

/// A certificate, with its key, that is refused.
fn unfit(certificate: &Path, error: &rustls::Error) -> GateError {
    match error {
        rustls::Error::InconsistentKeys(_) => wrong(certificate, &"the key beside it is another certificate's"),
        other => wrong(certificate, other),
    }
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> GateError {
    GateError::Tls { path: path.to_owned(), why: why.to_string() }
}

fn trusted_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, GateError> {
    certificates(path).map_err(|error| wrong(path, &error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn authorities_are_looked_at_wherever_libpq_looks_at_them() {
        let read = |mode: &str| {
            let written = toml::from_str(&format!("mode = '{mode}'\nroots = 'nowhere.crt'")).unwrap();
            ServerTls::read(&written, &"localhost:5432".parse().unwrap(), Path::new("/proxy.toml"))
        };
        for mode in ["require", "verify-ca", "verify-full"] {
            assert!(read(mode).unwrap_err().to_string().contains("nowhere.crt"), "{mode}");
        }
        assert!(read("prefer").is_ok() && read("disable").unwrap().is_none());
    }
}
