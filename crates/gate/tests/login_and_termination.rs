//! How sessions begin and end where it is not as usual: passwords by md5, clients' certificates, logins that are never
//! done, and statements that do not let themselves be cancelled.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod held;
mod server;

use held::{Held, PATIENCE, Session, proxy, until};
use server::{PASSWORD, Server, complaint, psql, text, with_server};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Puts a line before the server's own on who may log in how. It is in force a moment later.
fn allow(server: &Server, line: &str) {
    let path = server.data().join("pg_hba.conf");
    let before = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{line}\n{before}")).unwrap();
    server.value("SELECT pg_reload_conf()");
}

fn openssl(dir: &Path, arguments: &str) -> bool {
    let mut command = Command::new("openssl");
    command.current_dir(dir).args(arguments.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Keys and certificates: the server's, an authority's with one for the role `certified`, and one for the same name of
/// which the authority knows nothing. False where there is no openssl.
fn make_certificates(dir: &Path) -> bool {
    let by_itself = |(name, subject): &(&str, &str)| {
        let key = format!("-nodes -newkey rsa:2048 -keyout {name}.key");
        let named = format!("-subj /CN={subject} -addext subjectAltName=DNS:{subject}");
        openssl(dir, &format!("req -new -x509 -days 2 {named} {key} -out {name}.crt"))
    };
    let own = [("server", "localhost"), ("authority", "authority"), ("stranger", "certified")];
    // With an extension it is of version 3, which rustls asks for.
    std::fs::write(dir.join("known.ext"), "basicConstraints=CA:FALSE").unwrap();
    own.iter().all(by_itself)
        && openssl(dir, "req -new -nodes -newkey rsa:2048 -subj /CN=certified -keyout known.key -out known.csr")
        && openssl(
            dir,
            "x509 -req -days 2 -in known.csr -CA authority.crt -CAkey authority.key -CAcreateserial -extfile known.ext -out known.crt",
        )
}

/// A directory with those; none where there is no openssl, which is said.
fn certificates(test: &str) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    if make_certificates(dir.path()) {
        return Some(dir);
    }
    eprintln!("skipped: {test}: needs openssl");
    None
}

/// Switches encryption on at the server, and has it believe the authority.
fn encrypt(server: &Server, certificates: &Path) {
    let owner = std::fs::metadata(server.data()).unwrap();
    for name in ["server.key", "server.crt", "authority.crt"] {
        let path = server.data().join(name);
        std::fs::copy(certificates.join(name), &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.value("ALTER SYSTEM SET ssl_ca_file = 'authority.crt'");
    server.value("ALTER SYSTEM SET ssl = on");
    server.value("SELECT pg_reload_conf()");
    server.until("SHOW ssl", "on");
}

const WHO: &str = "SELECT current_user, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

#[test]
fn a_password_that_is_kept_by_md5_is_asked_for_by_md5() {
    with_server("a_password_that_is_kept_by_md5_is_asked_for_by_md5", &[], |server| {
        server.value("SET password_encryption = 'md5'; CREATE ROLE hashed LOGIN PASSWORD 'a secret'");
        assert_eq!(server.value("SELECT rolpassword LIKE 'md5%' FROM pg_authid WHERE rolname = 'hashed'"), "t");
        allow(server, "host all hashed all md5");
        let login = |port: u16, password: &str| {
            let mut command = psql("127.0.0.1", port, WHO);
            command.env("PGUSER", "hashed").env("PGPASSWORD", password).env("PGSSLMODE", "disable");
            command.output().unwrap()
        };
        until("the server takes it", || login(server.port, "a secret").status.success());
        let held = proxy(server, "");
        assert_eq!(text(&login(held.port, "a secret")), "hashed|f");
        let wrong = complaint(&login(held.port, "another"));
        assert!(wrong.contains("password authentication failed"), "{wrong}");

        // Where the proxy encrypts to the server it reads the server's first words, and passes these on as they are.
        let Some(dir) = certificates("a_password_that_is_kept_by_md5_is_asked_for_by_md5, encrypted") else { return };
        encrypt(server, dir.path());
        let held = proxy(server, "[server_tls]\nmode = 'require'\n");
        assert_eq!(text(&login(held.port, "a secret")), "hashed|t");
        let wrong = complaint(&login(held.port, "another"));
        assert!(wrong.contains("password authentication failed"), "{wrong}");
    });
}

#[test]
fn a_clients_certificate_is_shown_to_the_server() {
    with_server("a_clients_certificate_is_shown_to_the_server", &[], |server| {
        let Some(dir) = certificates("a_clients_certificate_is_shown_to_the_server") else { return };
        server.value("CREATE ROLE certified LOGIN");
        encrypt(server, dir.path());
        allow(server, "hostssl all certified all cert");
        let login = |port: u16, certificate: &str| {
            let file = |name: String| dir.path().join(name);
            let mut command = psql("localhost", port, WHO);
            command.env("PGUSER", "certified").env("PGSSLMODE", "verify-full");
            command.env("PGSSLROOTCERT", file("server.crt".to_owned()));
            command.env("PGSSLCERT", file(format!("{certificate}.crt")));
            command.env("PGSSLKEY", file(format!("{certificate}.key")));
            command.output().unwrap()
        };
        until("the server takes it", || login(server.port, "known").status.success());
        let held = proxy(server, "");
        // Each has verified the other: nothing in between ended the encryption.
        assert_eq!(text(&login(held.port, "known")), "certified|t");
        let without = complaint(&login(held.port, "none"));
        assert!(without.contains("valid client certificate"), "{without}");
        // What a client hears of a handshake that the server broke off is another thing in each release.
        complaint(&login(held.port, "stranger"));
        assert_eq!(text(&login(held.port, "known")), "certified|t");
    });
}

#[test]
fn the_proxys_own_certificate_is_shown_to_a_server_that_asks_for_one_besides_the_password() {
    with_server("the_proxys_own_certificate_is_shown_to_a_server", &[], |server| {
        let Some(dir) = certificates("the_proxys_own_certificate_is_shown_to_a_server") else { return };
        server.value("CREATE ROLE checked LOGIN PASSWORD 'a secret'");
        encrypt(server, dir.path());
        allow(server, "hostssl all checked all scram-sha-256 clientcert=verify-ca");
        let login = |held: &Held| {
            let mut command = psql("127.0.0.1", held.port, WHO);
            command.env("PGUSER", "checked").env("PGPASSWORD", "a secret").env("PGSSLMODE", "disable");
            command.output().unwrap()
        };
        let shows = |name: &str| {
            let file = |end: &str| dir.path().join(format!("{name}.{end}")).display().to_string();
            proxy(
                server,
                &format!("[server_tls]\nmode = 'require'\ncertificate = '{}'\nkey = '{}'\n", file("crt"), file("key")),
            )
        };
        let known = shows("known");
        until("the server takes it", || login(&known).status.success());
        assert_eq!(text(&login(&known)), "checked|t");
        let without = complaint(&login(&proxy(server, "[server_tls]\nmode = 'require'\n")));
        assert!(without.contains("valid client certificate"), "{without}");
        // The server breaks off after the proxy's end of the handshake: its client is told all the same.
        let stranger = complaint(&login(&shows("stranger")));
        assert!(stranger.contains("cannot be reached"), "{stranger}");
    });
}

/// What is heard by a client that says this and nothing more, and when it is closed.
fn until_closed(port: u16, says: &[u8]) -> (Vec<u8>, Duration) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(says).unwrap();
    let mut heard = Vec::new();
    if let Err(error) = stream.read_to_end(&mut heard) {
        // A reset instead of an end is as good.
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is still open");
    }
    (heard, begun.elapsed())
}

#[test]
fn who_still_speaks_hears_why_it_is_refused() {
    let held = held::before("127.0.0.1:1", held::CONSOLE);
    let visit = b"\0\0\0\x25\0\x03\0\0user\0dba\0database\0backwater\0\0";
    // What is no opening, and a visit that does not log in.
    for begins in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), [&visit[..], b"Q\0\0\0\x05\0"].concat()] {
        let mut client = TcpStream::connect(("127.0.0.1", held.port)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(&begins).unwrap();
        // More than is read of an opening, and no more than buffers take at once: it is read, or the connection is reset.
        client.write_all(&[b'x'; 64 << 10]).unwrap();
        let mut words = Vec::new();
        client.read_to_end(&mut words).unwrap();
        assert!(String::from_utf8_lossy(&words).contains("FATAL"), "{words:?}");
    }
}

#[test]
fn a_login_that_is_not_done_in_time_is_ended_and_nobody_else() {
    with_server("a_login_that_is_not_done_in_time_is_ended_and_nobody_else", &[], |server| {
        let held = proxy(server, "[limits]\nlogin_timeout_s = 1.0\n");
        let port = held.port;
        let idle = Session::open(port);
        let before = idle.pid();
        let mut busy = psql("127.0.0.1", port, "SELECT 'slept' FROM pg_sleep(3)");
        let busy = busy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");

        // Nothing; half a start-up message; a request for encryption, which this server declines; a whole start-up
        // message, and then no answer when the server asks for the password.
        let says: [&[u8]; 4] = [
            b"",
            b"\0\0\0\x2a\0\x03\0\0user\0nob",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0",
        ];
        let heard: Vec<(Vec<u8>, Duration)> = std::thread::scope(|scope| {
            let clients: Vec<_> = says.iter().map(|says| scope.spawn(move || until_closed(port, says))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        for (says, (heard, after)) in says.iter().zip(&heard) {
            let (says, heard) = (String::from_utf8_lossy(says), String::from_utf8_lossy(heard));
            assert!((0.9..5.0).contains(&after.as_secs_f64()), "{says:?} is closed after {after:?}, told {heard:?}");
        }
        let words: Vec<_> = heard.iter().map(|(heard, _)| String::from_utf8_lossy(heard)).collect();
        assert_eq!(words[..3], ["", "", "N"]);
        assert!(words[3].contains("the login took longer than the proxy's login_timeout_s"), "{words:?}");

        assert_eq!(text(&busy.wait_with_output().unwrap()), "slept");
        assert_eq!(idle.pid(), before, "the same session goes on");
        let mut glance = held.proxy.glance();
        let mut sessions = || glance.look().pools.iter().map(|pool| pool.sessions).sum::<u64>();
        until("the idle session alone is left", || sessions() == 1);
    });
}

#[test]
fn a_server_that_declines_another_encryption_is_still_asked_for_tls() {
    const REQUESTS: [&[u8; 8]; 2] = [b"\0\0\0\x08\x04\xd2\x16\x30", b"\0\0\0\x08\x04\xd2\x16\x2f"];
    let [gss, tls] = REQUESTS;
    // What a client asks for in turn, before it goes on without, and what the server is asked for.
    for (asks, asked) in
        [(&[gss][..], &[gss, tls][..]), (&[gss, tls], &[gss, tls]), (&[tls, gss], &[tls, gss]), (&[], &[tls])]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, mut heard) = (listener.accept().unwrap().0, Vec::new());
            let mut request = [0; 8];
            while stream.read_exact(&mut request).is_ok() {
                heard.push(request);
                stream.write_all(b"N").unwrap();
            }
            heard
        });
        let held = held::before(&address, "[server_tls]\nmode = 'require'\n");
        let mut client = TcpStream::connect(("127.0.0.1", held.port)).unwrap();
        for request in asks {
            client.write_all(&request[..]).unwrap();
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"N");
        }
        client.write_all(b"\0\0\0\x10\0\x03\0\0user\0u\0\0").unwrap();
        let mut words = Vec::new();
        client.read_to_end(&mut words).unwrap();
        let words = String::from_utf8_lossy(&words);
        assert!(words.contains("it takes no encryption, which server_tls asks for"), "{words}");
        assert_eq!(server.join().unwrap().iter().collect::<Vec<_>>(), asked);
    }
}

#[test]
fn what_ignores_a_cancel_is_terminated_by_the_server() {
    with_server("what_ignores_a_cancel_is_terminated_by_the_server", &[], |server| {
        let account = format!("[server_account]\nuser = 'postgres'\npassword = '{PASSWORD}'\n");
        let rule = "[rules.stop]\nelapsedtime = 1\naction = 'abort'\n[pools.default]\nexcept_rule = 'stop'\n";
        let held = proxy(server, &format!("{account}{rule}"));
        server.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater-proxy'", "1");
        let session = Session::open(held.port);
        let pid = session.pid();
        // Ten minutes: it does not end by itself while this test waits, nor does the server see that its client left.
        let stubborn = "DO $$ BEGIN FOR i IN 1..600 LOOP BEGIN PERFORM pg_sleep(1); \
                        EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$";
        let error = session.wait(session.client.batch_execute(stubborn)).unwrap_err();
        let told = error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned());
        // The server may be quicker to say it than the proxy.
        let said = ["rule stop cancelled its statement, and it went on", "administrator command"];
        assert!(said.iter().any(|said| told.contains(said)), "{told}");
        server.until(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"), "0");
        let (began, escalated) = (held.decision(), held.decision());
        assert_eq!((began.fields["step"].as_str(), began.fields["action"].as_str()), ("began", "abort"));
        assert_eq!((escalated.fields["step"].as_str(), escalated.fields["pool"].as_str()), ("escalated", "default"));
        assert_eq!(escalated.fields["session"], began.fields["session"]);
        assert!(
            escalated.message.contains("its statement was cancelled and still runs (cancelled at elapsedtime "),
            "{escalated:?}"
        );
        let log = std::fs::read_to_string(server.dir.path().join("log")).unwrap();
        let of_it = format!("[{pid}] FATAL:  terminating connection due to administrator command");
        assert!(log.lines().any(|line| line.contains(&of_it)), "{log}");
        assert_eq!(text(&psql("127.0.0.1", held.port, "SELECT 1").output().unwrap()), "1");
    });
}

/// Stands before a server, and gives each session this process id instead of its own.
fn misleading(server: &Server, pid: i32) -> String {
    let (listener, to) = (TcpListener::bind("127.0.0.1:0").unwrap(), server.address());
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let Ok(behind) = TcpStream::connect(&to) else { return };
            let (mut from, mut into) = (client.try_clone().unwrap(), behind.try_clone().unwrap());
            std::thread::spawn(move || {
                // Whichever end fails, the other is told by the shutdown.
                let _ = std::io::copy(&mut from, &mut into);
                let _ = into.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || mislead(behind, client, pid));
        }
    });
    address
}

fn mislead(mut server: TcpStream, mut client: TcpStream, pid: i32) {
    let mut buffer = [0; 8192];
    while let Ok(count) = server.read(&mut buffer) {
        let words = &mut buffer[..count];
        // BackendKeyData, which comes in one piece with the end of the login.
        if let Some(at) = words.windows(5).position(|head| head == b"K\0\0\0\x0c") {
            words[at + 5..at + 9].copy_from_slice(&pid.to_be_bytes());
        }
        if count == 0 || client.write_all(words).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

#[test]
fn a_process_that_is_not_the_sessions_is_not_terminated() {
    with_server("a_process_that_is_not_the_sessions_is_not_terminated", &[], |server| {
        let stranger = Session::open(server.port);
        let pid = stranger.pid();
        let account = format!("[server_account]\nuser = 'postgres'\npassword = '{PASSWORD}'\n");
        let rule = "[rules.stop]\nelapsedtime = 1\naction = 'abort'\n[pools.default]\nexcept_rule = 'stop'\n";
        let held = held::before(&misleading(server, pid), &format!("{account}{rule}"));
        server.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater-proxy'", "1");
        let session = Session::open(held.port);
        // The cancel request has another's process id and this one's key: it reaches neither.
        session.wait(session.client.batch_execute("SELECT pg_sleep(600)")).unwrap_err();
        let told_to_end = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater-proxy' \
                           AND state = 'idle' AND query LIKE '%pg_terminate_backend%'";
        server.until(told_to_end, "1");
        assert_eq!(stranger.pid(), pid, "it goes on");
    });
}
