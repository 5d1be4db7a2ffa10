//! How much of a server's certificate is checked, as libpq's sslmode means it: nothing (`require`), that a trusted authority
//! signed it (`verify-ca`), and that it has the right name besides (`verify-full`). Whoever connects to a server verifies
//! by this, and by nothing else.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, VerifierBuilderError};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// What is wrong with a file of certificates; whoever asked knows which file, and says so.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read, or it is no PEM.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// It is PEM and has none.
    #[error("it holds no PEM certificate")]
    Empty,
    /// The system trusts nobody.
    #[error("this system trusts no authority; install its CA certificates, or name a PEM file")]
    NoAuthority,
    /// None of them can be an authority.
    #[error("the root certificates cannot be used: {0}")]
    Roots(#[from] VerifierBuilderError),
}

/// Every certificate of a PEM file.
///
/// # Errors
/// It cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let list = CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>()?;
    if list.is_empty() { Err(TlsError::Empty) } else { Ok(list) }
}

/// The authorities that the system trusts.
///
/// # Errors
/// It has none, as a container of itself has not: with none of them a verifier would look at no certificate, and whoever
/// answers would be believed.
pub fn system_authorities() -> Result<Vec<CertificateDer<'static>>, TlsError> {
    at_least_one(rustls_native_certs::load_native_certs().certs)
}

fn at_least_one(authorities: Vec<CertificateDer<'static>>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    if authorities.is_empty() { Err(TlsError::NoAuthority) } else { Ok(authorities) }
}

/// Checks as much of the server's certificate as it was made for.
#[derive(Debug)]
pub struct Verifier {
    provider: Arc<CryptoProvider>,
    /// None where the certificate is not looked at.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// As they stand: one of them may be the server's own, signed by itself.
    trusted: Vec<CertificateDer<'static>>,
    name_matters: bool,
}

impl Verifier {
    /// Accepts what one of `trusted` signed; with none of them, the certificate is not looked at at all. `name_matters` asks
    /// for the right name besides.
    ///
    /// # Errors
    /// No authority can be made of them.
    pub fn new(
        provider: Arc<CryptoProvider>,
        trusted: Vec<CertificateDer<'static>>,
        name_matters: bool,
    ) -> Result<Self, TlsError> {
        let chain = (!trusted.is_empty()).then(|| chain(&trusted, &provider)).transpose()?;
        Ok(Verifier { provider, chain, trusted, name_matters })
    }

    fn accept(&self, error: Error, own: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
        let Error::InvalidCertificate(what) = &error else { return Err(error) };
        match what {
            // The chain and the dates were checked before the name.
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                if !self.name_matters =>
            {
                Ok(())
            }
            // A self-signed certificate that is itself trusted: webpki wants an authority above it, libpq does not. Its
            // dates were checked first, by webpki.
            CertificateError::Other(_) if self.trusted.iter().any(|root| root == own) => {
                if self.name_matters {
                    verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
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
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(trusted.iter().cloned());
    if unusable > 0 {
        tracing::debug!(unusable, "some root certificates cannot be used");
    }
    Ok(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_that_trusts_nobody_verifies_nobody() {
        assert!(matches!(at_least_one(Vec::new()), Err(TlsError::NoAuthority)));
        assert!(at_least_one(vec![CertificateDer::from(vec![1])]).is_ok_and(|list| list.len() == 1));
    }
}
