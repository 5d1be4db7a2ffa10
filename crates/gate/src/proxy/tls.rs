//! What the configuration says of encryption: `[tls]` towards clients, `[server_tls]` towards the server.
//!
//! Without `[tls]` encryption is passed through: clients see the server's own certificate, and nothing of such a session
//! can be seen here. With it the proxy ends the clients' encryption, and every rule works.

use super::Address;
use super::secure::{PROTOCOL, Secure};
use crate::GateError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};
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

impl ClientTls {
    /// Reads certificate and key; their paths are relative to the configuration's.
    pub(super) fn read(written: &WrittenClientTls, beside: &Path) -> Result<ClientTls, GateError> {
        let (certificate, key) = (at(beside, &written.certificate), at(beside, &written.key));
        let chain = certificates(&certificate)?;
        let own = PrivateKeyDer::from_pem_file(&key).map_err(|error| wrong(&key, &error))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(&certificate, &error))?;
        let config = builder.with_no_client_auth().with_single_cert(chain, own);
        let mut config = config.map_err(|error| wrong(&certificate, &error))?;
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
            (_, Mode::Prefer | Mode::Require) => Vec::new(),
            (None, _) => {
                return Err(GateError::Unsupported(
                    "server_tls with a verify mode needs roots: a PEM file of authorities, or 'system'",
                ));
            }
            (Some(system), _) if system.as_os_str() == SYSTEM => rustls_native_certs::load_native_certs().certs,
            (Some(file), _) => certificates(&at(beside, file))?,
        };
        let unusable =
            |error: &dyn std::fmt::Display| wrong(written.roots.as_deref().unwrap_or(Path::new("server_tls")), error);
        let chain = (!trusted.is_empty()).then(|| chain(&trusted, &provider)).transpose().map_err(|e| unusable(&e))?;
        let name_matters = written.mode == Mode::VerifyFull;
        let verifier = Verifier { provider: Arc::clone(&provider), chain, trusted, name_matters };
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| unusable(&error))?;
        // The name says it: this is where less may be verified than rustls would; each mode says how much.
        let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        Ok(Some(ServerTls { config: Arc::new(config), name, required: written.mode != Mode::Prefer }))
    }

    /// The proxy's end of a connection with the server.
    pub(super) fn begin(&self) -> io::Result<Secure> {
        Secure::client(&self.config, self.name.clone())
    }
}

fn at(beside: &Path, path: &Path) -> PathBuf {
    beside.parent().map_or_else(|| path.to_owned(), |dir| dir.join(path))
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> GateError {
    GateError::Tls { path: path.to_owned(), why: why.to_string() }
}

/// Every certificate of a PEM file; none at all is an error.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, GateError> {
    let list = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, &error))?;
    let list: Vec<_> = list.collect::<Result<_, _>>().map_err(|error| wrong(path, &error))?;
    if list.is_empty() { Err(wrong(path, &"it holds no PEM certificate")) } else { Ok(list) }
}

fn chain(
    trusted: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    builder.build().map_err(|error| error.to_string())
}

/// Checks as much of the server's certificate as the mode asks for, as libpq does.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// None where the certificate is not looked at.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// One of them may be the server's own, signed by itself.
    trusted: Vec<CertificateDer<'static>>,
    name_matters: bool,
}

impl Verifier {
    fn accept(&self, error: Error, own: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
        let Error::InvalidCertificate(what) = &error else { return Err(error) };
        match what {
            // The chain and the dates were checked before the name.
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                if !self.name_matters =>
            {
                Ok(())
            }
            // A self-signed certificate that is itself trusted: webpki wants an authority above it, libpq does not.
            CertificateError::Other(_) if self.trusted.iter().any(|root| root == own) => {
                if self.name_matters {
                    let parsed = rustls::server::ParsedCertificate::try_from(own)?;
                    rustls::client::verify_server_name(&parsed, name)?;
                }
                Ok(())
            }
            _ => Err(error),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Ok(verified) => Ok(verified),
            Err(error) => self.accept(error, end_entity, server_name).map(|()| ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
