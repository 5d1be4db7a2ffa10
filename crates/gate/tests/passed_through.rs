//! Sessions that are encrypted through to the server: rules judge them by what the server itself tells.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs)]

mod encrypted;
mod held;
mod server;

use backwater_gate::proxy::{Proxy, ProxyConfig};
use held::{Held, PATIENCE, until};
use server::{PASSWORD, Running, Server, complaint, psql, text, with_server};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A proxy that passes encryption through to a server that has it, and is that server's superuser; none where there is no openssl.
fn proxy(server: &Server, test: &str, more: &str) -> Option<Held> {
    if !encrypted::encrypt(server) {
        eprintln!("skipped: {test}: needs openssl");
        return None;
    }
    let account = format!("[server_account]\nuser = 'postgres'\npassword = '{PASSWORD}'\n");
    let held = held::proxy(server, &format!("{account}[admin]\nusers = {{ dba = 'secret' }}\n{more}"));
    server.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater-proxy'", "1");
    Some(held)
}

impl Held {
    /// psql that encrypts, and says so.
    fn asked(&self, sql: &[&str]) -> Command {
        let ssl = "SELECT CASE WHEN ssl THEN 'encrypted' END FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let mut command = psql("127.0.0.1", self.port, ssl);
        for sql in sql {
            command.args(["-c", sql]);
        }
        command.env("PGSSLMODE", "require").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn begin(&self, sql: &[&str]) -> Child {
        self.asked(sql).spawn().unwrap()
    }

    fn console(&self, sql: &str) -> std::process::Output {
        let mut command = psql("127.0.0.1", self.port, sql);
        command
            .env("PGDATABASE", "backwater")
            .env("PGUSER", "dba")
            .env("PGPASSWORD", "secret")
            .env("PGSSLMODE", "disable");
        command.output().unwrap()
    }
}

#[test]
fn a_penalty_is_for_the_statement_that_the_server_says_is_slow() {
    const NAME: &str = "a_penalty_is_for_the_statement_that_the_server_says_is_slow";
    with_server(NAME, &[], |server| {
        let rules = "[rules.slow]\nelapsedtime = 0.5\naction = 'penalty'\n[pools.default]\nexcept_rule = 'slow'\n";
        let Some(held) = proxy(server, NAME, rules) else { return };
        // One that rests all the while, and one whose second statement is slow.
        let mut resting = psql("127.0.0.1", held.port, "SELECT 1");
        resting.args(["-f", "-"]).env("PGSSLMODE", "require").stdin(Stdio::piped()).stdout(Stdio::null());
        let resting = Running::start(&mut resting);
        let slow = held.begin(&["SELECT pg_sleep(0.1)", "SELECT pg_sleep(3)", "\\! sleep 2"]);
        let began = held.decision_of("began");
        assert_eq!((began.fields["user"].as_str(), began.fields["pool"].as_str()), ("postgres", "default"));
        let elapsed: f64 = began.fields["elapsedtime"].parse().unwrap();
        assert!((0.5..3.5).contains(&elapsed), "{began:?}");
        let low = || held.proxy.glance().look().held.iter().map(|held| held.session.to_string()).collect::<Vec<_>>();
        until("that one is held", || low() == [began.fields["session"].clone()]);
        let lifted = held.decision_of("lifted");
        assert_eq!(
            (&lifted.fields["session"], lifted.fields["why"].as_str()),
            (&began.fields["session"], "the statement ended")
        );
        assert!(text(&slow.wait_with_output().unwrap()).starts_with("encrypted"));
        until("nobody is held", || low().is_empty());
        assert!(held.events.try_iter().all(|event| event.fields.get("step").is_none_or(|step| step != "began")));
        drop(resting);
    });
}

#[test]
fn a_penalty_does_not_outlast_what_the_server_tells() {
    const NAME: &str = "a_penalty_does_not_outlast_what_the_server_tells";
    with_server(NAME, &[], |server| {
        if !encrypted::encrypt(server) {
            return eprintln!("skipped: {NAME}: needs openssl");
        }
        server.value(&format!("CREATE ROLE watcher LOGIN PASSWORD '{PASSWORD}' IN ROLE pg_monitor"));
        let account = format!("[server_account]\nuser = 'watcher'\npassword = '{PASSWORD}'\n");
        let rules = "[rules.slow]\nelapsedtime = 0.5\naction = 'penalty'\n[pools.default]\nexcept_rule = 'slow'\n";
        let held = held::proxy(server, &format!("{account}{rules}"));
        let mut slow = held.begin(&["SELECT pg_sleep(600)"]);
        assert_eq!(held.decision_of("began").fields["rule"], "slow");
        // From now on nobody tells whether it still runs.
        server.value("ALTER ROLE watcher NOLOGIN");
        server.value("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'watcher'");
        assert_eq!(held.decision_of("lifted").fields["why"], "the server tells no more of it");
        until("nobody is held", || held.proxy.glance().look().held.is_empty());
        assert!(slow.try_wait().unwrap().is_none(), "it is left alone");
        slow.kill().unwrap();
        slow.wait().unwrap();
    });
}

#[test]
fn an_abort_cancels_that_statement_and_leaves_the_session() {
    const NAME: &str = "an_abort_cancels_that_statement_and_leaves_the_session";
    with_server(NAME, &[], |server| {
        let rules = "[rules.long]\nelapsedtime = 1\naction = 'abort'\n[pools.default]\nexcept_rule = 'long'\n";
        let Some(held) = proxy(server, NAME, rules) else { return };
        let mut command = held.asked(&["SELECT pg_sleep(600)", "SELECT 'goes on'"]);
        let output = command.env("PGOPTIONS", "").args(["-v", "ON_ERROR_STOP=0"]).output().unwrap();
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(told.contains("canceling statement due to user request"), "{told}");
        assert!(said.starts_with("encrypted") && said.trim_end().ends_with("goes on"), "{said} {told}");
        let began = held.decision_of("began");
        assert_eq!((began.fields["rule"].as_str(), began.fields["action"].as_str()), ("long", "abort"));
        // What goes on after its cancel loses its session, and the server says why within the encryption.
        let stubborn = "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$";
        let told = complaint(&held.asked(&[stubborn]).output().unwrap());
        assert!(told.contains("terminating connection"), "{told}");
        assert_eq!(held.decision_of("escalated").fields["rule"], "long");
    });
}

#[test]
fn a_listener_has_a_pool_of_its_own_also_for_whom_nobody_knows() {
    const NAME: &str = "a_listener_has_a_pool_of_its_own_also_for_whom_nobody_knows";
    with_server(NAME, &[], |server| {
        if !encrypted::encrypt(server) {
            return eprintln!("skipped: {NAME}: needs openssl");
        }
        let [all, batch] = [(); 2].map(|()| backwater_socket::free_port().unwrap());
        let written = format!(
            "listen = ['127.0.0.1:{all}', '127.0.0.1:{batch}']\nserver = '{}'\n[listeners]\n'127.0.0.1:{batch}' = 'batch'\n\
             [pools.batch]\npriority = 'low'\n[pools.gold]\n[users]\ngolden = 'gold'\n",
            server.address()
        );
        let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()).unwrap();
        server.value("CREATE ROLE golden LOGIN PASSWORD 'right'");
        let mut glance = proxy.glance();
        let mut pool_of = |port: u16, mode: &str, user: &str| {
            let mut command = psql("127.0.0.1", port, "SELECT pg_sleep(600)");
            let command =
                command.env("PGSSLMODE", mode).env("PGUSER", user).stdout(Stdio::null()).stderr(Stdio::null());
            let running = Running::start(command);
            server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
            let found: Vec<_> =
                glance.look().pools.into_iter().filter(|pool| pool.sessions == 1).map(|pool| pool.name).collect();
            drop(running);
            server.value("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
            until("it is gone", || glance.look().pools.iter().all(|pool| pool.sessions == 0));
            found.join(" ")
        };
        for mode in ["require", "disable"] {
            assert_eq!(pool_of(all, mode, "postgres"), "default", "{mode}");
            assert_eq!(pool_of(batch, mode, "postgres"), "batch", "{mode}");
        }
        // Where the user is known, his own goes before.
        assert_eq!(pool_of(batch, "disable", "golden"), "gold");
    });
}

#[test]
fn one_that_urgent_work_waits_for_is_let_go_and_rows_are_said_to_be_unseen() {
    const NAME: &str = "one_that_urgent_work_waits_for_is_let_go_and_rows_are_said_to_be_unseen";
    with_server(NAME, &[], |server| {
        let rules = "[rules.slow]\nelapsedtime = 1.5\naction = 'penalty'\n[pools.default]\nexcept_rule = 'slow'\n";
        let Some(held) = proxy(server, NAME, rules) else { return };
        server.value("CREATE TABLE t AS SELECT 1 AS a");
        let holder = held.begin(&["BEGIN; LOCK TABLE t; SELECT pg_sleep(9); COMMIT"]);
        assert_eq!(held.decision_of("began").fields["rule"], "slow");
        let waiter = held.begin(&["SELECT a FROM t"]);
        let lifted = held.decision_of("lifted");
        assert_eq!(lifted.fields["why"], "it blocked urgent work");
        // They are there and followed; what they send is not seen.
        let told = held.console("CREATE EXCEPT RULE many WITH (rows = 5, action = 'dryrun')");
        assert!(!String::from_utf8_lossy(&told.stderr).contains("cannot reach"), "{told:?}");
        let told = held.console("ALTER RESOURCE POOL \"default\" WITH (except_rule = 'many')");
        assert!(
            String::from_utf8_lossy(&told.stderr).contains("rule many cannot reach 2 of pool default's sessions"),
            "{told:?}"
        );
        assert!(text(&waiter.wait_with_output().unwrap()).ends_with('1'));
        text(&holder.wait_with_output().unwrap());
    });
}

/// A client that asks for encryption.
fn asking(port: u16) -> TcpStream {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").unwrap();
    client
}

#[test]
fn who_asks_the_server_for_encryption_has_a_place_before_it_hears_of_that() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = held::before(&server.local_addr().unwrap().to_string(), "[limits]\nmax_connections = 1\n");
    let ask = || asking(held.port);
    let answer = |mut client: &TcpStream| {
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        answer[0]
    };
    let first = ask();
    let mut behind = server.accept().unwrap().0;
    behind.read_exact(&mut [0; 8]).unwrap();
    // An error in answer to the request would not be shown: it is declined, and what comes then is refused.
    let mut second = ask();
    assert_eq!(answer(&second), b'N');
    second.write_all(b"\0\0\0\x10\0\x03\0\0user\0u\0\0").unwrap();
    let mut words = Vec::new();
    second.read_to_end(&mut words).unwrap();
    let words = String::from_utf8_lossy(&words);
    assert!(words.contains("53300") && words.contains("max_connections is 1"), "{words}");
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err(), "the server heard of the second");
    // The first one leaves after it was answered, and its place is another's.
    behind.write_all(b"N").unwrap();
    assert_eq!(answer(&first), b'N');
    drop(first);
    until("its place is free", || {
        let _other = ask();
        server.accept().is_ok()
    });
}

#[test]
fn who_says_nothing_after_the_answer_makes_room_for_who_comes() {
    for (answers, says) in [(b'N', &b"\0\0\0\x10\0\x03\0\0user\0u\0\0"[..]), (b'S', &b"\x16 and so on"[..])] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let held = held::before(&server.local_addr().unwrap().to_string(), "[limits]\nmax_connections = 1\n");
        let ask = || asking(held.port);
        let answered = |mut behind: TcpStream| {
            behind.read_exact(&mut [0; 8]).unwrap();
            behind.write_all(&[answers]).unwrap();
            behind
        };
        let mut mute = ask();
        let _behind = answered(server.accept().unwrap().0);
        let mut answer = [0];
        mute.read_exact(&mut answer).unwrap();
        assert_eq!(answer[0], answers);
        // It is given a moment to go on. Whoever comes meanwhile is declined.
        server.set_nonblocking(true).unwrap();
        let mut came = None;
        until("it makes room", || {
            let client = ask();
            let behind = loop {
                match server.accept() {
                    Ok((behind, _)) => break behind,
                    Err(_) if is_declined(&client) => return false,
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            };
            came = Some((client, answered(behind)));
            true
        });
        assert_eq!(mute.read(&mut answer).unwrap(), 0, "the mute one was closed");
        let (mut client, mut behind) = came.unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer[0], answers);
        client.write_all(says).unwrap();
        let mut heard = vec![0; says.len()];
        behind.read_exact(&mut heard).unwrap();
        assert_eq!(heard, says);
    }
}

/// Whether this client has heard something, which without a server behind it is a no.
fn is_declined(client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let waits = client.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    !waits
}
