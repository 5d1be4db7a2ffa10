//! A server that encrypts, with a certificate made for the test.
#![allow(clippy::unwrap_used, unreachable_pub, dead_code)]

use crate::server::Server;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// A certificate for localhost, signed by itself; false where there is no openssl.
pub fn certificate(dir: &Path, name: &str) -> bool {
    let file = |end: &str| dir.join(format!("{name}.{end}"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-new", "-x509", "-days", "2", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    // rustls takes no authority's certificate for a server's own; the server's stays one, as people make them.
    if name == "own" {
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    openssl.arg("-keyout").arg(file("key")).arg("-out").arg(file("crt")).stderr(Stdio::null());
    openssl.status().is_ok_and(|status| status.success())
}

/// Switches encryption on at the server; false where there is no openssl.
pub fn encrypt(server: &Server) -> bool {
    if !certificate(&server.data(), "server") {
        return false;
    }
    let owner = std::fs::metadata(server.data()).unwrap();
    for name in ["server.key", "server.crt"] {
        let path = server.data().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.value("ALTER SYSTEM SET ssl = on");
    server.value("SELECT pg_reload_conf()");
    server.until("SHOW ssl", "on");
    true
}
