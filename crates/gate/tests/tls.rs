//! Encryption that the proxy ends towards clients and begins towards the server, with real ones.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs)]

mod encrypted;
mod server;

use backwater_gate::proxy::{Proxy, ProxyConfig};
use encrypted::certificate;
use rustix::process::{Pid, Signal, kill_process};
use server::{PASSWORD, Server, client, complaint, psql, text, with_server};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const IS_ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
/// The proxy's own certificate lies beside its configuration.
const TO_CLIENTS: &str = "[tls]\ncertificate = 'own.crt'\nkey = 'own.key'\n";

struct Held {
    proxy: Proxy,
    dir: tempfile::TempDir,
    port: u16,
}

fn started(server: &Server, more: &str) -> Option<Result<Held, String>> {
    let dir = tempfile::tempdir().unwrap();
    if !certificate(dir.path(), "own") {
        eprintln!("skipped: encryption: needs openssl");
        return None;
    }
    let written = format!("listen = '127.0.0.1:0'\nserver = '{}'\n{more}", server.address());
    let config = ProxyConfig::parse(&written, &dir.path().join("proxy.toml"));
    Some(config.and_then(|config| Proxy::start(&config)).map_err(|error| error.to_string()).map(|proxy| {
        let port = proxy.addresses()[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
        Held { proxy, dir, port }
    }))
}

/// A proxy in front of a server; none where there is no openssl.
fn proxy(server: &Server, more: &str) -> Option<Held> {
    started(server, more).map(Result::unwrap)
}

/// psql with this sslmode and, as it cannot bind its login to a channel that ends at the proxy, without asking for it.
fn asked(held: &Held, mode: &str, sql: &str) -> Command {
    let mut command = psql("localhost", held.port, sql);
    command.env("PGSSLMODE", mode).env("PGSSLROOTCERT", held.dir.path().join("own.crt"));
    command.env("PGCHANNELBINDING", "disable");
    command
}

fn value(held: &Held, mode: &str, sql: &str) -> String {
    text(&asked(held, mode, sql).output().unwrap())
}

#[test]
fn the_proxys_own_certificate_ends_encryption_in_front_of_a_server_without() {
    with_server("the_proxys_own_certificate", &[], |server| {
        let Some(held) = proxy(server, &format!("{TO_CLIENTS}required = true\n")) else { return };
        assert_eq!(value(&held, "require", IS_ENCRYPTED), "f");
        assert_eq!(value(&held, "verify-full", "SELECT 40 + 2"), "42");
        // Nothing needs to be switched off where the server's own way is not encrypted.
        let mut usual = psql("localhost", held.port, "SELECT 1");
        assert_eq!(text(&usual.env("PGSSLMODE", "require").output().unwrap()), "1");
        let large = "COPY (SELECT g, repeat(md5(g::text), 5) FROM generate_series(1, 100000) g) TO STDOUT";
        assert!(value(&held, "require", large) == server.value(large));
        let plain = complaint(&asked(&held, "disable", "SELECT 1").output().unwrap());
        assert!(plain.contains("encrypted connections only"), "{plain}");
        let mut wrong = asked(&held, "require", "SELECT 1");
        let wrong = complaint(&wrong.env("PGPASSWORD", "wrong").output().unwrap());
        assert!(wrong.contains("password authentication failed"), "{wrong}");
    });
}

#[test]
fn a_reload_begins_to_end_encryption_and_ceases_to() {
    with_server("a_reload_begins_to_end_encryption_and_ceases_to", &[], |server| {
        let Some(held) = proxy(server, "") else { return };
        let reload = |more: &str| {
            let written = format!("listen = '127.0.0.1:0'\nserver = '{}'\n{more}", server.address());
            let config = ProxyConfig::parse(&written, &held.dir.path().join("proxy.toml")).unwrap();
            held.proxy.reload(&config).unwrap()
        };
        let through = || complaint(&asked(&held, "require", "SELECT 1").output().unwrap());
        assert!(through().contains("SSL"), "the server has none: {}", through());
        assert_eq!(reload(TO_CLIENTS), Vec::<&str>::new());
        assert_eq!(value(&held, "require", IS_ENCRYPTED), "f");
        assert_eq!(reload(""), Vec::<&str>::new());
        assert!(through().contains("SSL"), "the server has none: {}", through());
    });
}

#[test]
fn who_must_encrypt_must_at_the_console_too() {
    with_server("who_must_encrypt_must_at_the_console_too", &[], |server| {
        let more = format!("[admin]\nusers = {{ dba = 'open sesame' }}\n{TO_CLIENTS}required = true\n");
        let Some(held) = proxy(server, &more) else { return };
        let visit = |mode: &str| {
            let mut command = asked(&held, mode, "SHOW low_priority_bandwidth");
            command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
            command.output().unwrap()
        };
        assert_eq!(text(&visit("require")), "256");
        let plain = complaint(&visit("disable"));
        assert!(plain.contains("encrypted connections only"), "{plain}");
    });
}

#[test]
fn both_ways_are_encrypted_apart() {
    with_server("both_ways_are_encrypted_apart", &[], |server| {
        let more = format!("{TO_CLIENTS}[server_tls]\nmode = 'require'\n");
        let Some(held) = proxy(server, &more) else { return };
        let refused = complaint(&asked(&held, "require", "SELECT 1").output().unwrap());
        assert!(refused.contains("takes no encryption"), "{refused}");
        assert!(encrypted::encrypt(server));
        assert_eq!(value(&held, "require", IS_ENCRYPTED), "t");
        // A client that does not encrypt is not offered what it could not do.
        assert_eq!(value(&held, "disable", IS_ENCRYPTED), "t");
        let large = "SELECT repeat('x', 20000000)";
        assert!(value(&held, "require", large) == server.value(large));
        // The one thing that two ways cannot do: the server takes a client for deceived that could bind and was not offered.
        let mut binding = asked(&held, "require", "SELECT 1");
        let told = complaint(&binding.env("PGCHANNELBINDING", "prefer").output().unwrap());
        assert!(told.contains("channel binding"), "{told}");
        server.value("ALTER SYSTEM SET ssl = off");
        server.value("SELECT pg_reload_conf()");
        server.until("SHOW ssl", "off");
        let Some(held) = proxy(server, "[server_tls]\nmode = 'prefer'\n") else { return };
        assert_eq!(value(&held, "disable", IS_ENCRYPTED), "f");
    });
}

#[test]
fn who_is_let_in_at_once_by_a_server_that_encrypts_is_logged_in() {
    with_server("who_is_let_in_at_once_by_a_server_that_encrypts_is_logged_in", &[], |server| {
        let console = "[admin]\nusers = { dba = 'open sesame' }\n";
        let more = format!("{console}[limits]\nlogin_timeout_s = 10\n[server_tls]\nmode = 'require'\n");
        let Some(held) = proxy(server, &more) else { return };
        server.make_open_door();
        assert!(encrypted::encrypt(server));
        let mut resting = client("psql", "127.0.0.1", held.port);
        resting.env("PGUSER", "open_door").env("PGSSLMODE", "disable").args(["-X", "-q", "-A", "-t", "-f", "-"]);
        resting.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut resting = resting.spawn().unwrap();
        // It says nothing of its own from its login on.
        let mut seen = asked(&held, "disable", "SHOW SESSIONS");
        seen.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
        let begun = std::time::Instant::now();
        while !text(&seen.output().unwrap()).lines().any(|line| line.contains("open_door") && line.contains("|idle|")) {
            assert!(begun.elapsed() < Duration::from_secs(60) && resting.try_wait().unwrap().is_none());
        }
        resting.stdin.take().unwrap().write_all(b"SELECT 'well rested';").unwrap();
        assert_eq!(text(&resting.wait_with_output().unwrap()), "well rested");
    });
}

#[test]
fn the_servers_certificate_is_verified_as_far_as_asked() {
    with_server("the_servers_certificate_is_verified", &[], |server| {
        let roots = server.data().join("server.crt");
        let verify =
            |mode: &str, roots: &str, more: &str| format!("[server_tls]\nmode = '{mode}'\nroots = '{roots}'\n{more}");
        assert!(encrypted::encrypt(server));
        let trusted = roots.display().to_string();
        for (mode, more) in [("verify-full", ""), ("verify-ca", "name = 'elsewhere.example'\n")] {
            let Some(held) = proxy(server, &verify(mode, &trusted, more)) else { return };
            assert_eq!(value(&held, "disable", IS_ENCRYPTED), "t", "{mode}");
        }
        let Some(held) = proxy(server, &verify("verify-full", &trusted, "name = 'elsewhere.example'\n")) else {
            return;
        };
        let told = complaint(&asked(&held, "disable", "SELECT 1").output().unwrap());
        assert!(told.contains("certificate") && told.contains("elsewhere.example"), "{told}");
        // Somebody else's authority.
        for mode in ["verify-ca", "require"] {
            let Some(held) = proxy(server, &verify(mode, "own.crt", "")) else { return };
            let told = complaint(&asked(&held, "disable", "SELECT 1").output().unwrap());
            assert!(told.contains("certificate"), "{mode}: {told}");
        }
        let refused = |more: &str| started(server, more).unwrap().err().unwrap();
        assert!(refused("[server_tls]\nmode = 'verify-full'\n").contains("needs roots"));
        assert!(refused("[tls]\ncertificate = 'own.crt'\nkey = 'nowhere.key'\n").contains("nowhere.key"));
        assert!(refused("[tls]\ncertificate = 'proxy.toml'\nkey = 'own.key'\n").contains("proxy.toml"));
    });
}

#[test]
fn an_encrypted_session_is_demoted_in_the_middle_of_its_result() {
    with_server("an_encrypted_session_is_demoted", &[], |server| {
        let rule = "low_priority_bandwidth = '40MB'\n[rules.heavy]\nelapsedtime = 0.05\naction = 'penalty'\n\
                    [pools.default]\nexcept_rule = 'heavy'\n";
        let more = format!("{rule}{TO_CLIENTS}[server_tls]\nmode = 'require'\n");
        assert!(encrypted::encrypt(server));
        let Some(held) = proxy(server, &more) else { return };
        let large = "COPY (SELECT g, repeat(md5(g::text), 20) FROM generate_series(1, 60000) g) TO STDOUT";
        assert!(value(&held, "require", large) == server.value(large));
    });
}

/// A client that believes the proxy's own certificate.
fn trusting(held: &Held) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    let own = std::fs::read(held.dir.path().join("own.crt")).unwrap();
    let pem = rustls::pki_types::pem::PemObject::from_pem_slice(&own).unwrap();
    let certificate: rustls::pki_types::CertificateDer<'static> = pem;
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    config.unwrap().with_root_certificates(roots).with_no_client_auth()
}

#[test]
fn a_cancel_request_reaches_what_is_encrypted_both_ways() {
    with_server("a_cancel_request_reaches_what_is_encrypted_both_ways", &[], |server| {
        assert!(encrypted::encrypt(server));
        let more = format!("{TO_CLIENTS}required = true\n[server_tls]\nmode = 'require'\n");
        let Some(held) = proxy(server, &more) else { return };
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        // libpq before version 17 asks in plain words, also where it encrypts all else, as the server allows.
        let mut sleeper = asked(&held, "require", "SELECT pg_sleep(3600)");
        let child = sleeper.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        server.until(asleep, "1");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let told = complaint(&child.wait_with_output().unwrap());
        assert!(told.contains("canceling statement due to user request"), "{told}");
        // Later ones encrypt that, too.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tls = || tokio_postgres_rustls::MakeRustlsConnect::new(trusting(&held));
            let to = format!(
                "host=localhost port={} user=postgres dbname=postgres password={PASSWORD} sslmode=require \
                 channel_binding=disable",
                held.port
            );
            let (client, connection) = tokio_postgres::connect(&to, tls()).await.unwrap();
            let connection = tokio::spawn(connection);
            let cancel = client.cancel_token();
            let cancelled = async {
                while server.value(asleep) != "1" {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                cancel.cancel_query(tls()).await.unwrap();
            };
            let both = async { tokio::join!(client.batch_execute("SELECT pg_sleep(3600)"), cancelled) };
            let (ended, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
            let code = ended.unwrap_err().code().cloned();
            assert_eq!(code, Some(tokio_postgres::error::SqlState::QUERY_CANCELED));
            drop(client);
            connection.await.unwrap().unwrap();
        });
    });
}

#[test]
fn encryption_may_begin_at_once_and_only_for_this_protocol() {
    with_server("encryption_may_begin_at_once", &[], |server| {
        let Some(held) = proxy(server, TO_CLIENTS) else { return };
        let mut config = trusting(&held);
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        let ask = |config: rustls::ClientConfig| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let tls = tokio_postgres_rustls::MakeRustlsConnect::new(config);
                let to = format!(
                    "host=localhost port={} user=postgres dbname=postgres password={PASSWORD} sslmode=require \
                     sslnegotiation=direct channel_binding=disable",
                    held.port
                );
                let (client, connection) = tokio_postgres::connect(&to, tls).await.ok()?;
                let connection = tokio::spawn(connection);
                let found: i32 = client.query_one("SELECT 40 + 2", &[]).await.unwrap().get(0);
                drop(client);
                connection.await.unwrap().unwrap();
                Some(found)
            })
        };
        assert_eq!(ask(config.clone()), Some(42));
        config.alpn_protocols.clear();
        assert_eq!(ask(config), None);
    });
}

#[test]
fn what_is_no_encryption_ends_a_connection_and_nothing_else() {
    with_server("what_is_no_encryption", &[], |server| {
        let Some(held) = proxy(server, TO_CLIENTS) else { return };
        let connect = || TcpStream::connect(("127.0.0.1", held.port)).unwrap();
        // Words before the encryption was agreed upon.
        let mut injected = connect();
        injected.write_all(&[&SSL_REQUEST[..], b"Q\0\0\0\x0dSELECT 1\0"].concat()).unwrap();
        let mut heard = Vec::new();
        // A reset instead of an end is as good.
        let _ = injected.read_to_end(&mut heard);
        assert!(
            heard.first() != Some(&b'S') && String::from_utf8_lossy(&heard).contains("unencrypted data"),
            "{heard:?}"
        );
        for garbage in [&b"\x16\x03\x01\xff\xff garbage garbage garbage"[..], &[0x16; 600], &[0xff; 20_000]] {
            let mut stream = connect();
            let mut answer = [0];
            stream.write_all(&SSL_REQUEST).unwrap();
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"S");
            let _ = stream.write_all(garbage);
            let _ = stream.read_to_end(&mut heard);
        }
        let mut direct = connect();
        let _ = direct.write_all(&[0x16; 3_000]);
        let _ = direct.read_to_end(&mut heard);
        assert_eq!(value(&held, "require", "SELECT 1"), "1");
    });
}

type Asker = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A client that encrypts, takes little before it reads, and asked for a value of so many bytes.
fn asking_for(held: &Held, bytes: usize) -> Asker {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&std::net::SocketAddr::from(([127, 0, 0, 1], held.port)).into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&SSL_REQUEST).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"S");
    let connection = rustls::ClientConnection::new(Arc::new(trusting(held)), "localhost".try_into().unwrap()).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, stream);
    let said = b"user\0open_door\0database\0postgres\0\0";
    stream.write_all(&(said.len() as u32 + 8).to_be_bytes()).unwrap();
    stream.write_all(&[b"\0\x03\0\0", &said[..]].concat()).unwrap();
    while next(&mut stream).unwrap().0 != b'Z' {}
    let query = format!("SELECT repeat('x', {bytes})\0");
    stream.write_all(&[b"Q", &(query.len() as u32 + 4).to_be_bytes()[..], query.as_bytes()].concat()).unwrap();
    stream
}

/// The next message that somebody hears: its kind, and how long its body is.
fn next(stream: &mut impl Read) -> std::io::Result<(u8, usize)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
    stream.read_exact(&mut vec![0; length])?;
    Ok((head[0], length))
}

/// What has become of the session of each of these clients; none where it has ended.
fn states(held: &Held, clients: &[(usize, Asker)]) -> Vec<Option<String>> {
    let mut command = psql("localhost", held.port, "SHOW SESSIONS");
    command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
    let shown = text(&command.env("PGSSLMODE", "disable").output().unwrap());
    let state = |(_, client): &(usize, Asker)| {
        let client = client.sock.local_addr().unwrap().to_string();
        let session = shown.lines().find(|line| line.split('|').nth(4) == Some(&client))?;
        session.split('|').nth(8).map(str::to_owned)
    };
    clients.iter().map(state).collect()
}

/// Answers that are asked for at once, and by how much they differ where it matters.
const AT_ONCE: usize = 40;
const STEP: usize = 4096;

#[test]
fn what_an_idle_client_has_not_read_yet_is_kept_for_it() {
    with_server("what_an_idle_client_has_not_read_yet_is_kept_for_it", &[], |server| {
        server.make_open_door();
        let limits = "[limits]\nidle_timeout_s = 0.5\n[admin]\nusers = { dba = 'open sesame' }\n";
        let Some(held) = proxy(server, &format!("{limits}{TO_CLIENTS}")) else { return };
        // Between what the kernel takes, so that the session ends, and what the server keeps, so that it is active, lies what
        // the proxy holds: as little as the last 8 KiB that the server sent, at a place that is another on each machine, and
        // moves a little from connection to connection.
        let (mut from, mut step) = (STEP, 64 * 1024);
        for round in 1.. {
            let sizes = (0..AT_ONCE).map(|number| from + number * step);
            let mut clients: Vec<_> = sizes.map(|size| (size, asking_for(&held, size))).collect();
            // As long as it takes to end one that is idle, three times.
            for _ in 0..3 {
                let mut other = asking_for(&held, 1);
                while next(&mut other).is_ok() {}
            }
            let states = states(&held, &clients);
            for (size, client) in &mut clients {
                let mut heard = Vec::new();
                while heard.last().is_none_or(|(kind, _)| *kind != b'Z') {
                    heard.push(next(client).unwrap_or_else(|error| panic!("{size}: {error} after {heard:?}")));
                }
                assert!(heard.contains(&(b'D', *size + 6)), "{size}: {heard:?}");
            }
            if states.iter().any(|state| state.as_deref() == Some("idle")) {
                return;
            }
            assert!(round < 6, "nobody's answer stands here: {states:?} from {from} bytes in steps of {step}");
            // Finer about the first that is too much for the kernel.
            let first = states.iter().position(Option::is_some).unwrap_or(AT_ONCE);
            from = (from + first * step).saturating_sub(3 * AT_ONCE / 4 * STEP).max(STEP);
            step = STEP;
        }
    });
}
