//! The proxy between real clients and a real server.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs)]

mod encrypted;
mod raw;
mod server;

use backwater_gate::proxy::{Address, Drained, Proxy, ProxyConfig};
use backwater_model::FlowState;
use raw::ask;
use rustix::process::{Pid, Signal, kill_process};
use server::{Running, Server, client, complaint, psql, resident_kb, text, with_server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A proxy in front of a server on a free port, with more of a configuration.
fn proxy(server: &Server, more: &str) -> (Proxy, u16) {
    let written = format!("listen = '127.0.0.1:0'\nserver = '{}'\n{more}", server.address());
    let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()).unwrap();
    let port = port_of(&proxy);
    (proxy, port)
}

fn port_of(proxy: &Proxy) -> u16 {
    proxy.addresses()[0].to_string().rsplit(':').next().unwrap().parse().unwrap()
}

fn run(port: u16, sql: &str) -> String {
    text(&psql("127.0.0.1", port, sql).output().unwrap())
}

#[test]
fn what_comes_through_is_what_the_server_sends() {
    with_server("what_comes_through_is_what_the_server_sends", &[], |server| {
        let (_proxy, port) = proxy(server, "");
        assert_eq!(run(port, "SELECT 40 + 2"), "42");
        for sql in [
            "SELECT g, repeat(md5(g::text), 10) FROM generate_series(1, 60000) g",
            "COPY (SELECT g, md5(g::text) FROM generate_series(1, 200000) g) TO STDOUT",
            "SELECT repeat('x', 30000000)",
            "SELECT lo_from_bytea(0, decode(repeat('ab', 100000), 'hex')) > 0",
            "SELECT NULL, '', E'\\n', '\u{20ac}'",
        ] {
            assert!(run(port, sql) == server.value(sql), "{sql}");
        }
        let wrong = complaint(&psql("127.0.0.1", port, "SELECT 1/0").output().unwrap());
        assert!(wrong.contains("division by zero"), "{wrong}");
        let refused = complaint(&psql("127.0.0.1", port, "SELECT 1").env("PGPASSWORD", "wrong").output().unwrap());
        assert!(refused.contains("password authentication failed"), "{refused}");
    });
}

#[test]
fn copy_in_notifications_and_pipelines_pass() {
    with_server("copy_in_notifications_and_pipelines_pass", &[], |server| {
        let (_proxy, port) = proxy(server, "");
        run(port, "CREATE TABLE t (a int, b text)");
        let mut copy = psql("127.0.0.1", port, "COPY t FROM STDIN").stdin(Stdio::piped()).spawn().unwrap();
        let mut rows = copy.stdin.take().unwrap();
        (0..300_000).for_each(|row| writeln!(rows, "{row}\t{}", "y".repeat(row % 100)).unwrap());
        drop(rows);
        assert!(copy.wait().unwrap().success());
        assert_eq!(run(port, "SELECT count(*), sum(length(b)) FROM t"), "300000|14850000");
        let notified = run(port, "LISTEN bell; NOTIFY bell, 'ring'; SELECT 1");
        assert!(notified.contains("\"bell\"") && notified.contains("ring"), "{notified}");
        let quiet = |command: &mut Command| text(&command.arg("-n").output().unwrap());
        run(port, "DROP TABLE t");
        text(&client("pgbench", "127.0.0.1", port).args(["-i", "-s", "1", "-q"]).output().unwrap());
        for mode in ["simple", "extended", "prepared"] {
            let mut bench = client("pgbench", "127.0.0.1", port);
            let told = quiet(bench.args(["-c", "8", "-j", "2", "-t", "100", "-M", mode]));
            assert!(told.contains("number of transactions actually processed: 800/800"), "{told}");
        }
        let mut bench = client("pgbench", "127.0.0.1", port);
        let told = quiet(bench.args(["-S", "-C", "-c", "4", "-t", "25"]));
        assert!(told.contains("processed: 100/100"), "{told}");
    });
}

#[test]
fn a_notification_comes_to_a_session_that_asks_nothing() {
    with_server("a_notification_comes_to_a_session_that_asks_nothing", &[], |server| {
        let more = "low_priority_bandwidth = '1MB'\n[pools.batch]\npriority = 'low'\n[pools.few]\nmax_active = 1\n";
        let (_proxy, port) = proxy(server, more);
        server.make_open_door();
        let mut listening = ["", "-c backwater.pool=batch", "-c backwater.pool=few"].map(|pool| {
            let mut session = enter(port, pool);
            ask(&mut session, "LISTEN bell");
            raw::until_ready(&mut session);
            session.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            session
        });
        run(port, "NOTIFY bell, 'across'");
        for session in &mut listening {
            let (kind, body) = raw::message(session).unwrap();
            assert_eq!((kind, &body[4..]), (b'A', &b"bell\0across\0"[..]));
        }
    });
}

#[test]
fn a_cancel_request_reaches_the_statement() {
    with_server("a_cancel_request_reaches_the_statement", &[], |server| {
        let (_proxy, port) = proxy(server, "");
        let mut sleeper = psql("127.0.0.1", port, "SELECT pg_sleep(3600)");
        let child = sleeper.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let told = complaint(&child.wait_with_output().unwrap());
        assert!(told.contains("canceling statement due to user request"), "{told}");
    });
}

#[test]
fn tls_passes_through_to_the_server() {
    with_server("tls_passes_through_to_the_server", &[], |server| {
        let (_proxy, port) = proxy(server, "");
        let plain = complaint(&psql("127.0.0.1", port, "SELECT 1").env("PGSSLMODE", "require").output().unwrap());
        assert!(plain.contains("SSL"), "a server without TLS says so: {plain}");
        if !encrypted::encrypt(server) {
            return eprintln!("skipped: tls_passes_through_to_the_server: needs openssl");
        }
        let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let mut secured = psql("127.0.0.1", port, query);
        assert_eq!(text(&secured.env("PGSSLMODE", "require").output().unwrap()), "t");
        let mut large = psql("127.0.0.1", port, "SELECT repeat('x', 10000000)");
        assert_eq!(text(&large.env("PGSSLMODE", "require").output().unwrap()).len(), 10_000_000);
        // The channel that the password is bound to is the server's own.
        let mut bound = psql("127.0.0.1", port, query);
        bound.env("PGSSLMODE", "require").env("PGCHANNELBINDING", "require");
        assert_eq!(text(&bound.output().unwrap()), "t");
    });
}

#[test]
fn limits_refuse_with_a_reason_and_free_their_places() {
    with_server("limits_refuse_with_a_reason_and_free_their_places", &[], |server| {
        let (_proxy, port) = proxy(server, "[limits]\nmax_connections = 2\n[pools.one]\nmax_connections = 1\n");
        let sleep = |options: &str| {
            let mut command = psql("127.0.0.1", port, "SELECT pg_sleep(3600)");
            command.env("PGOPTIONS", options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let counted = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        let mut first = sleep("-c backwater.pool=one");
        server.until(counted, "1");
        let mut again = psql("127.0.0.1", port, "SELECT 1");
        let told = complaint(&again.env("PGOPTIONS", "-c backwater.pool=one").output().unwrap());
        assert!(told.contains("too many connections in resource pool one (max_connections is 1)"), "{told}");
        let mut unknown = psql("127.0.0.1", port, "SELECT 1");
        let told = complaint(&unknown.env("PGOPTIONS", "-c backwater.pool=no").output().unwrap());
        assert!(told.contains("there is no resource pool no"), "{told}");
        let mut second = sleep("");
        server.until(counted, "2");
        let told = complaint(&psql("127.0.0.1", port, "SELECT 1").output().unwrap());
        assert!(told.contains("too many connections to the proxy (max_connections is 2)"), "{told}");
        // A session has its place until the server has ended it, however its client left.
        server.value("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
        first.wait().unwrap();
        second.wait().unwrap();
        assert_eq!(run(port, "SELECT 1"), "1");
    });
}

#[test]
fn draining_lets_a_statement_end_and_then_the_session() {
    with_server("draining_lets_a_statement_end_and_then_the_session", &[], |server| {
        let (proxy, port) = proxy(server, "");
        let mut busy = psql("127.0.0.1", port, "SELECT 'whole' FROM pg_sleep(1)");
        let busy = busy.args(["-c", "SELECT 2"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        assert_eq!(proxy.drain(|| false), Drained::Whole);
        let output = busy.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "whole");
        assert!(complaint(&output).contains("the proxy is shutting down"));
        server.until(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'psql' AND pid <> pg_backend_pid()",
            "0",
        );
    });
}

#[test]
fn a_drain_that_takes_too_long_is_broken_off() {
    with_server("a_drain_that_takes_too_long_is_broken_off", &[], |server| {
        let (proxy, port) = proxy(server, "[limits]\ndrain_timeout_s = 0.3\n");
        let mut busy = psql("127.0.0.1", port, "SELECT pg_sleep(3600)");
        let busy = busy.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        assert_eq!(proxy.drain(|| false), Drained::BrokenOff);
        assert!(complaint(&busy.wait_with_output().unwrap()).contains("the proxy is shutting down"));
    });
}

#[test]
fn addresses_are_free_for_the_next_proxy_while_this_one_drains_as_it_was_told_last() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let config = |drain_timeout_s: f64| {
        let limits = format!("[limits]\ndrain_timeout_s = {drain_timeout_s:?}\n");
        let written = format!("listen = '{}'\nserver = '{to}'\n{limits}", path.display());
        ProxyConfig::parse(&written, Path::new("test.toml")).unwrap()
    };
    let first = Proxy::start(&config(120.0)).unwrap();
    // Encrypted through to the server: nobody sees it come to a good end.
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"\x16\x03\x01\0\x05hello").unwrap();
    let mut behind = server.accept().unwrap().0;
    behind.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(first.reload(&config(3.0)).unwrap(), Vec::<&str>::new());
    let begun = Instant::now();
    let draining = std::thread::spawn(move || first.drain(|| false));
    while UnixStream::connect(&path).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(60), "somebody still listens");
        std::thread::sleep(Duration::from_millis(1));
    }
    let _next = Proxy::start(&config(3.0)).unwrap();
    assert_eq!(draining.join().unwrap(), Drained::BrokenOff);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(UnixStream::connect(&path).is_ok(), "the next one's socket is left alone");
}

#[test]
fn a_server_that_is_away_is_named_and_comes_back() {
    with_server("a_server_that_is_away_is_named_and_comes_back", &[], |server| {
        let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = ProxyConfig::plain("127.0.0.1:0".parse().unwrap(), nowhere.to_string().parse().unwrap());
        let away = Proxy::start(&config).unwrap();
        let told = complaint(&psql("127.0.0.1", port_of(&away), "SELECT 1").output().unwrap());
        assert!(told.contains(&format!("the server at {nowhere} cannot be reached")), "{told}");
        // By Unix sockets on both sides.
        let socket = server.dir.path().join(".s.PGSQL.6432");
        let behind = Address::Unix(server.dir.path().join(format!(".s.PGSQL.{}", server.port)));
        let by_socket = Proxy::start(&ProxyConfig::plain(Address::Unix(socket.clone()), behind)).unwrap();
        let host = server.dir.path().display().to_string();
        assert_eq!(text(&psql(&host, 6432, "SELECT 7").output().unwrap()), "7");
        drop(by_socket);
        assert!(!socket.exists(), "its socket goes with it");
    });
}

/// A session that is logged in without a password. Its segments are short, as on a network.
fn open_door(server: &Server, port: u16, options: &str) -> TcpStream {
    server.make_open_door();
    enter(port, options)
}

fn enter(port: u16, options: &str) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_tcp_mss(1_448).unwrap();
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    let mut stream = TcpStream::from(socket);
    raw::log_in(&mut stream, 0, "open_door", options);
    stream
}

#[test]
fn a_low_client_that_never_reads_does_not_hold_the_others() {
    with_server("a_low_client_that_never_reads_does_not_hold_the_others", &[], |server| {
        let more = "low_priority_bandwidth = '10MB'\n[pools.batch]\npriority = 'low'\n";
        let (_proxy, port) = proxy(server, more);
        let mut asleep = open_door(server, port, "-c backwater.pool=batch");
        ask(&mut asleep, "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)");
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'", "1");
        // 20 MiB at 10 MiB/s.
        let sql = "COPY (SELECT repeat('x', 1023) FROM generate_series(1, 20480)) TO STDOUT";
        let begun = Instant::now();
        let mut reader = psql("127.0.0.1", port, sql);
        let reader = reader.env("PGOPTIONS", "-c backwater.pool=batch");
        let output = reader.output().unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        assert_eq!(output.stdout.len(), 20 << 20);
        assert!((1.9..5.0).contains(&seconds), "{seconds}");
        // It is there all the while, and goes on when it reads.
        asleep.read_exact(&mut vec![0; 1 << 20]).unwrap();
    });
}

#[test]
fn a_message_that_is_begun_and_not_ended_holds_no_turn_for_ever() {
    with_server("a_message_that_is_begun_and_not_ended", &[], |server| {
        let more = "[limits]\nlogin_timeout_s = 1.0\n[pools.default]\nmax_active = 1\n";
        let (_proxy, port) = proxy(server, more);
        server.make_open_door();
        // What is in a transaction has all the time that it likes.
        let mut in_transaction = enter(port, "");
        ask(&mut in_transaction, "BEGIN");
        assert_eq!(raw::body(&raw::until_ready(&mut in_transaction), b'Z'), b"T");
        in_transaction.write_all(b"Q").unwrap();
        let mut begun = enter(port, "");
        begun.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        begun.write_all(b"Q").unwrap();
        let waiting = psql("127.0.0.1", port, "SELECT 'its turn'").stdout(Stdio::piped()).spawn().unwrap();
        let mut words = Vec::new();
        begun.read_to_end(&mut words).unwrap();
        let words = String::from_utf8_lossy(&words);
        assert!(words.contains("a message was begun and not ended within the proxy's login_timeout_s"), "{words}");
        assert_eq!(text(&waiting.wait_with_output().unwrap()), "its turn");
        in_transaction.write_all(b"\0\0\0\x0dSELECT 1\0").unwrap();
        assert_eq!(raw::body(&raw::until_ready(&mut in_transaction), b'Z'), b"T");
    });
}

#[test]
fn a_message_that_is_not_known_yet_waits_for_its_turn() {
    with_server("a_message_that_is_not_known_yet", &[], |server| {
        let (_proxy, port) = proxy(server, "[pools.default]\nmax_active = 1\n");
        server.make_open_door();
        let [mut first, mut second] = [enter(port, ""), enter(port, "")];
        // Data of a copy that there is not, which the server lets pass, and a part of more.
        for client in [&mut first, &mut second] {
            client.write_all(b"d\0\0\0\x05xd\0\0").unwrap();
        }
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        first.write_all(b"\0\x05x").unwrap();
        ask(&mut first, "SELECT pg_sleep(1)");
        server.until(sleeping, "1");
        second.write_all(b"\0\x05x").unwrap();
        ask(&mut second, sleeping);
        assert!(raw::body(&raw::until_ready(&mut second), b'D').ends_with(b"0"), "it ran beside the first");
    });
}

#[test]
fn malformed_messages_in_sessions_end_those_and_hold_up_nobody() {
    with_server("malformed_messages_in_sessions_end_those_and_hold_up_nobody", &[], |server| {
        let more = "low_priority_bandwidth = '1MB'\n[rules.slow]\nelapsedtime = 30.0\naction = 'penalty'\n\
                    [pools.default]\nexcept_rule = 'slow'\n[pools.batch]\npriority = 'low'\n";
        let (_proxy, port) = proxy(server, more);
        server.make_open_door();
        // A length that cannot be, one beyond all bounds, an unknown kind, a length of less than itself, and a query without an
        // end, which alone leaves the session.
        let malformed: [&[u8]; 5] =
            [b"Q\xff\xff\xff\xff", b"Q\x7f\xff\xff\xffSELECT", b"!\0\0\0\x04", b"Q\0\0\0\x03", b"Q\0\0\0\x08SEL1"];
        let mut urgent = Vec::new();
        for round in 0..40 {
            let options = if round % 2 == 0 { "" } else { "-c backwater.pool=batch" };
            let mut bad = enter(port, options);
            bad.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            bad.write_all(malformed[round % malformed.len()]).unwrap();
            if round % 3 == 0 {
                // Noise behind it, as long as it is taken.
                let _ = bad.write_all(&[0x51; 100_000]);
            }
            let begun = Instant::now();
            assert_eq!(run(port, "SELECT 1"), "1");
            urgent.push(begun.elapsed());
            let _ = bad.shutdown(std::net::Shutdown::Write);
            // An error that the server tells, or a reset where it no longer listens to what came behind.
            let mut words = Vec::new();
            let _ = bad.read_to_end(&mut words);
        }
        server.until("SELECT count(*) FROM pg_stat_activity WHERE usename = 'open_door'", "0");
        let longest = urgent.iter().max().unwrap();
        assert!(*longest < Duration::from_secs(5), "{longest:?}");
    });
}

#[test]
fn mute_connections_do_not_keep_others_out() {
    with_server("mute_connections_do_not_keep_others_out", &[], |server| {
        let (_proxy, port) = proxy(server, "");
        // As many as may be on their way to a session, and some more.
        let mute: Vec<_> = (0..4_200).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        assert_eq!(run(port, "SELECT 1"), "1");
        assert_eq!((&mute[0]).read(&mut [0; 1]).unwrap(), 0, "the first of them made room");
    });
}

#[test]
fn a_client_that_never_reads_stops_the_server_and_costs_no_memory() {
    with_server("a_client_that_never_reads_stops_the_server_and_costs_no_memory", &[], |server| {
        let (_proxy, port) = proxy(server, "");
        let mut raw = open_door(server, port, "");
        let before = resident_kb();
        ask(&mut raw, "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)");
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'", "1");
        assert!(resident_kb() < before + 8_192, "{} KB before, {} KB now", before, resident_kb());
        assert_eq!(run(port, "SELECT 1"), "1", "others are not disturbed");
        drop(raw);
        server.until("SELECT count(*) FROM pg_stat_activity WHERE usename = 'open_door'", "0");
    });
}

#[test]
fn a_rate_that_is_found_grows_from_the_floor_to_what_the_way_takes() {
    with_server("a_rate_that_is_found_grows", &[], |server| {
        let more = "low_priority_bandwidth = 'auto'\n[pools.batch]\npriority = 'low'\n[users]\npostgres = 'batch'\n";
        let (_proxy, port) = proxy(server, more);
        let begun = Instant::now();
        // At the floor of 1 MiB/s it would take forty seconds.
        assert_eq!(run(port, "SELECT length(string_agg(repeat('x', 1000), '')) FROM generate_series(1, 10)"), "10000");
        let large = psql("127.0.0.1", port, "SELECT repeat('x', 40000000)").output().unwrap();
        assert_eq!(text(&large).len(), 40_000_000);
        assert!(begun.elapsed().as_secs_f64() < 25.0, "{:?}", begun.elapsed());
    });
}

#[test]
fn a_rate_that_is_found_falls_while_urgent_statements_are_slow_and_rises_again() {
    with_server("a_rate_that_is_found_falls_while_urgent_statements_are_slow", &[], |server| {
        const FLOWS_BPS: f64 = 8e6;
        let more = "low_priority_bandwidth = 'auto'\n[pools.batch]\npriority = 'low'\n";
        let (proxy, port) = proxy(server, more);
        let mut glance = proxy.glance();
        let mut until = |what: &str, is_so: &dyn Fn(&FlowState) -> bool| {
            let begun = Instant::now();
            loop {
                let state = glance.look();
                if is_so(&state) {
                    return;
                }
                assert!(begun.elapsed().as_secs() < 120, "{what}: {state:?}");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        };
        server.value("CREATE TABLE pace AS SELECT 0.02 AS seconds; CREATE SEQUENCE answered");
        let script = server.dir.path().join("urgent.sql");
        std::fs::write(&script, "SELECT nextval('answered'), pg_sleep(seconds) FROM pace;\n").unwrap();
        let mut urgent = client("pgbench", "127.0.0.1", port);
        let _urgent = Running::start(urgent.args(["-n", "-c", "8", "-T", "3600", "-f"]).arg(&script));
        let low = |command: &mut Command| Running::start(command.env("PGOPTIONS", "-c backwater.pool=batch"));
        // A low session that wants nothing: what urgent statements take now, they take without the class.
        let _idle = low(client("psql", "127.0.0.1", port).stdin(Stdio::piped()));
        until("the idle session", &|state| state.held_in_all == 1);
        let answered = || server.value("SELECT last_value FROM answered").parse::<i64>().unwrap();
        let (before, begun) = (answered(), Instant::now());
        while answered() < before + 300 {
            assert!(begun.elapsed().as_secs() < 120, "urgent statements are not answered");
        }
        let flood = "COPY (SELECT repeat('x', 1000), generate_series(1, 2000000000)) TO STDOUT";
        let _flood = low(&mut psql("127.0.0.1", port, flood));
        let is_spared = |state: &FlowState| state.rate_by.contains("as urgent statements take ");
        until("the class flows", &|state| state.rate_bps > Some(FLOWS_BPS));
        server.value("UPDATE pace SET seconds = 0.1");
        until("slow statements", &|state| is_spared(state) && state.rate_bps < Some(FLOWS_BPS / 4.0));
        server.value("UPDATE pace SET seconds = 0.02");
        until("quick statements", &|state| !is_spared(state) && state.rate_bps > Some(FLOWS_BPS));
    });
}

#[test]
fn low_sessions_whose_clients_leave_take_nothing_with_them() {
    with_server("low_sessions_whose_clients_leave", &[], |server| {
        let more = "low_priority_bandwidth = '20MB'\n[pools.batch]\npriority = 'low'\n[users]\npostgres = 'batch'\n";
        let (_proxy, port) = proxy(server, more);
        let flood = "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 20000000)) TO STDOUT";
        let clients: Vec<_> =
            (0..4).map(|_| psql("127.0.0.1", port, flood).stdout(Stdio::null()).spawn().unwrap()).collect();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT repeat%'", "4");
        for mut client in clients {
            client.kill().unwrap();
            client.wait().unwrap();
        }
        // What stood in their sockets stands in nobody's way: their servers hear of it, and others go on.
        server.until("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT repeat%'", "0");
        assert_eq!(run(port, "SELECT length(repeat('x', 1000000))"), "1000000");
    });
}

#[test]
fn the_low_class_is_held_to_its_rate_and_urgent_work_is_not() {
    with_server("the_low_class_is_held_to_its_rate_and_urgent_work_is_not", &[], |server| {
        let more = "low_priority_bandwidth = '20MB'\n[pools.batch]\npriority = 'low'\n";
        let (_proxy, port) = proxy(server, more);
        // About 42 MB in rows of a kilobyte.
        let sql = "COPY (SELECT repeat('x', 1023) FROM generate_series(1, 40960)) TO STDOUT";
        // Seconds that it took in all, and from its first byte on.
        let stream = |options: &'static str| {
            let begun = Instant::now();
            let mut psql = psql("127.0.0.1", port, sql);
            let mut running = psql.env("PGOPTIONS", options).stdout(Stdio::piped()).spawn().unwrap();
            let (mut output, mut bytes) = (running.stdout.take().unwrap(), vec![0]);
            output.read_exact(&mut bytes).unwrap();
            let flows = Instant::now();
            output.read_to_end(&mut bytes).unwrap();
            let took = (begun.elapsed().as_secs_f64(), flows.elapsed().as_secs_f64());
            assert_eq!((bytes.len(), running.wait().unwrap().success()), (40_960 * 1024, true));
            took
        };
        let (one, two, urgent) = std::thread::scope(|scope| {
            let low = || stream("-c backwater.pool=batch");
            let (one, two) = (scope.spawn(low), scope.spawn(low));
            let urgent = scope.spawn(|| stream(""));
            (one.join().unwrap(), two.join().unwrap(), urgent.join().unwrap())
        });
        // Two streams of 40 MiB at 20 MiB/s in all take four seconds; a busy machine may take longer, never less long.
        let longest = one.0.max(two.0);
        assert!((3.9..8.0).contains(&longest), "{one:?} {two:?}");
        // Whichever begins first has all of it until the other does, and ends as much sooner.
        assert!((one.1 - two.1).abs() < 1.0, "the two share evenly: {one:?} {two:?}");
        assert!(urgent.0 < longest / 1.5, "{urgent:?} {longest}");
    });
}
