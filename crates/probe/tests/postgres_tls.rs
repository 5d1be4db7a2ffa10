//! sslmode on a real server with certificates made for the test.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "postgres/server.rs"]
mod server;

use server::{Server, Session, conninfo, on_each};
use std::path::Path;
use std::process::Command;

/// An authority `root`, a server's certificate for `localhost` signed by it, and a stranger's authority.
fn certificates(dir: &Path) {
    let openssl = |arguments: &str| {
        let done = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let authority = |name: &str| {
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.crt"
        ));
    };
    // Common in small set-ups: a certificate that signs itself.
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x -addext subjectAltName=DNS:localhost -keyout self.key -out self.crt",
    );
    authority("root");
    authority("stranger");
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    openssl(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
    );
    openssl(
        "x509 -req -in server.csr -CA root.crt -CAkey root.key -CAcreateserial -days 2 -extfile names -out server.crt",
    );
}

fn tls_server(bin: &Path) -> Option<Server> {
    let mut server = Server::start(bin, &[]);
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: every_sslmode: needs openssl (apt-get install openssl)");
        return None;
    }
    certificates(server.dir.path());
    server.stop();
    for name in ["server.key", "server.crt", "self.key", "self.crt"] {
        // Written by the server's own user, who must own its key.
        let made = server.dir.path().join(name);
        std::fs::set_permissions(&made, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let copied =
            server.command("install").args(["-m", "600", name]).arg(server.data().join(name)).status().unwrap();
        assert!(copied.success());
    }
    server.start_again(&["ssl=on"]);
    Some(server)
}

/// Whether the session of this address is encrypted, or the error.
fn encrypted(target: &str) -> Result<bool, String> {
    let mut session = Session::open(&conninfo(target))?;
    let on = session.run("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")?;
    Ok(on.as_deref() == Some("t"))
}

#[test]
fn every_sslmode() {
    on_each("every_sslmode", |bin| {
        let Some(mut server) = tls_server(bin) else { return };
        let dir = server.dir.path().display();
        let at = |host: &str, more: &str| {
            encrypted(&format!("host={host} port={} user=postgres dbname=postgres password=right {more}", server.port))
        };
        assert_eq!(at("localhost", "sslmode=disable"), Ok(false));
        assert_eq!(at("localhost", "sslmode=allow"), Ok(false));
        assert_eq!(at("localhost", "sslmode=prefer"), Ok(true));
        assert_eq!(at("127.0.0.1", "sslmode=require"), Ok(true));
        assert_eq!(at("127.0.0.1", &format!("sslmode=verify-ca sslrootcert={dir}/root.crt")), Ok(true));
        assert_eq!(at("localhost", &format!("sslmode=verify-full sslrootcert={dir}/root.crt")), Ok(true));
        // The name of a certificate is that of the host, wherever hostaddr leads.
        let elsewhere = format!("sslmode=verify-full sslrootcert={dir}/root.crt hostaddr=127.0.0.1");
        assert_eq!(at("localhost", &elsewhere), Ok(true));
        let error = at("127.0.0.1", &format!("sslmode=verify-full sslrootcert={dir}/root.crt")).unwrap_err();
        assert!(error.contains("another host") && error.contains("verify-ca"), "{error}");
        for mode in ["require", "verify-ca", "verify-full"] {
            let error = at("localhost", &format!("sslmode={mode} sslrootcert={dir}/stranger.crt")).unwrap_err();
            assert!(error.contains("sslrootcert=FILE"), "{error}");
        }
        let error = at("localhost", "sslmode=verify-full").unwrap_err();
        assert!(error.contains("needs a root certificate"), "{error}");
        if server.major >= 17 {
            assert_eq!(at("localhost", "sslmode=require sslnegotiation=direct"), Ok(true));
        }
        server.stop();
        server.start_again(&["ssl=on", "ssl_cert_file=self.crt", "ssl_key_file=self.key"]);
        let dir = server.dir.path().display();
        let at = |host: &str, more: &str| {
            encrypted(&format!("host={host} port={} user=postgres dbname=postgres password=right {more}", server.port))
        };
        assert_eq!(at("127.0.0.1", &format!("sslmode=verify-ca sslrootcert={dir}/self.crt")), Ok(true));
        assert_eq!(at("localhost", &format!("sslmode=verify-full sslrootcert={dir}/self.crt")), Ok(true));
        let error = at("127.0.0.1", &format!("sslmode=verify-full sslrootcert={dir}/self.crt")).unwrap_err();
        assert!(error.contains("another host"), "{error}");
        assert!(at("localhost", &format!("sslmode=verify-ca sslrootcert={dir}/root.crt")).is_err());
    });
}
