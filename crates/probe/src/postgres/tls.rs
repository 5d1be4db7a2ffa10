//! TLS as libpq's sslmode means it, by rustls: encrypted without asking who answers (`require`), signed by a trusted
//! authority (`verify-ca`), and with the right name besides (`verify-full`).

use super::conninfo::{Roots, SslMode, Tls};
use rustix::fs::Mode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// The client's side of TLS for this address; the error says which file is wrong, why, and what to do.
pub(super) fn client_config(tls: &Tls) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] =
        if tls.only_13 { &[&rustls::version::TLS13] } else { &[&rustls::version::TLS13, &rustls::version::TLS12] };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        // The name says it: this is where verification may be weaker than rustls's own. Verifier does what libpq does.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier::new(tls, provider)?));
    let mut config = match &tls.client {
        Some((cert, key)) => builder
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .map_err(|error| format!("{} and {} do not fit: {error}", cert.display(), key.display()))?,
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = tls.name_host;
    if tls.direct {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(config)
}

/// Every certificate of a PEM file; none at all is an error.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fail = |why: &dyn std::fmt::Display| format!("cannot read the certificate file {}: {why}", path.display());
    let list = CertificateDer::pem_file_iter(path).map_err(|error| fail(&error))?;
    let list: Vec<_> = list.collect::<Result<_, _>>().map_err(|error| fail(&error))?;
    if list.is_empty() { Err(fail(&"it holds no PEM certificate")) } else { Ok(list) }
}

/// The client's key, refused where others may read it, as libpq does.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let shown = path.display();
    let status = rustix::fs::stat(path).map_err(|error| format!("cannot read the key file {shown}: {error}"))?;
    let mode = Mode::from_raw_mode(status.st_mode);
    let allowed = if status.st_uid == 0 { Mode::RWXU | Mode::RGRP } else { Mode::RWXU };
    if (mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO)).intersects(allowed.complement()) {
        return Err(format!("the key file {shown} may be read by others; run: chmod 600 {shown}"));
    }
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| format!("cannot use the key file {shown}: {error}; it must be PEM without a passphrase"))
}

/// Checks as much of the server's certificate as the sslmode asks for.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// None where the certificate is not looked at.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Trusted certificates as they stand: one of them may be the server's own, signed by itself.
    trusted: Vec<CertificateDer<'static>>,
    name_matters: bool,
}

impl Verifier {
    fn new(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let verify = matches!(tls.mode, SslMode::VerifyCa | SslMode::VerifyFull);
        let trusted = match &tls.roots {
            // With a root file at hand, `require` means `verify-ca`: libpq keeps this from its early days.
            Roots::File(path) if verify || tls.mode == SslMode::Require => certificates(path)?,
            Roots::System => rustls_native_certs::load_native_certs().certs,
            Roots::Nobody { default } if verify => {
                let place = default.as_ref().map(|path| path.display().to_string());
                return Err(format!(
                    "sslmode=verify-… needs a root certificate, and there is none at {}; name it with sslrootcert=FILE, \
                     or trust the system's with sslrootcert=system",
                    place.as_deref().unwrap_or("~/.postgresql/root.crt")
                ));
            }
            _ => Vec::new(),
        };
        let chain = (!trusted.is_empty()).then(|| chain(&trusted, &provider)).transpose()?;
        Ok(Verifier { provider, chain, trusted, name_matters: tls.mode == SslMode::VerifyFull })
    }

    fn accept(&self, error: Error, end_entity: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
        let Error::InvalidCertificate(what) = &error else { return Err(error) };
        match what {
            // The chain and the dates were checked before the name.
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                if !self.name_matters =>
            {
                Ok(())
            }
            // A server whose self-signed certificate is the root file: webpki wants an authority above it, libpq does not.
            // Its dates were checked first, by webpki.
            CertificateError::Other(_) if self.trusted.iter().any(|root| root == end_entity) => {
                if self.name_matters {
                    verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                }
                Ok(())
            }
            _ => Err(error),
        }
    }
}

fn chain(
    trusted: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(trusted.iter().cloned());
    if unusable > 0 {
        tracing::debug!(unusable, "some root certificates cannot be used");
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| format!("the root certificates cannot be used: {error}"))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Ok(verified) => Ok(verified),
            Err(error) => self.accept(error, end_entity, name).map(|()| ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
