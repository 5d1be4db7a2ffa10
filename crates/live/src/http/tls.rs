//! A certificate and its key, read from PEM files.

use super::listen::Tls;
use crate::LiveError;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// What answers a client's greeting.
pub(super) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, LiveError> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(&tls.certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| wrong(&tls.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| wrong(&tls.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let config = config.map_err(|error| wrong(&tls.certificate, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn wrong(path: &Path, error: &dyn std::fmt::Display) -> LiveError {
    LiveError::Tls { path: path.to_owned(), why: error.to_string() }
}
