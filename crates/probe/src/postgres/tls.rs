//! TLS as libpq's sslmode means it, by rustls: encrypted without asking who answers (`require`), signed by a trusted
//! authority (`verify-ca`), and with the right name besides (`verify-full`).

use super::conninfo::{Roots, SslMode, Tls};
use backwater_tls::{Verifier, certificates, system_authorities};
use rustix::fs::Mode;
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
        .with_custom_certificate_verifier(Arc::new(verifier(tls, provider)?));
    let mut config = match &tls.client {
        Some((cert, key)) => builder
            .with_client_auth_cert(trusted_file(cert)?, private_key(key)?)
            .map_err(|error| format!("{} and {} do not fit: {error}", cert.display(), key.display()))?,
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = tls.name_host;
    if tls.direct {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(config)
}

fn trusted_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    certificates(path).map_err(|error| format!("cannot read the certificate file {}: {error}", path.display()))
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
fn verifier(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Verifier, String> {
    let verify = matches!(tls.mode, SslMode::VerifyCa | SslMode::VerifyFull);
    let trusted = match &tls.roots {
        // With a root file at hand, `require` means `verify-ca`: libpq keeps this from its early days.
        Roots::File(path) if verify || tls.mode == SslMode::Require => trusted_file(path)?,
        Roots::System => system_authorities().map_err(|error| format!("sslrootcert=system: {error}"))?,
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
    Verifier::new(provider, trusted, tls.mode == SslMode::VerifyFull).map_err(|error| error.to_string())
}
