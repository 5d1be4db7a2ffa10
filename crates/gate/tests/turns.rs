//! `max_active` on real sessions: who waits for a turn, who does not, and what becomes of those that are not to wait any longer.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

mod held;
mod raw;
mod server;

use held::{CONSOLE, PATIENCE, Session, before, console, proxy, until};
use server::{Running, complaint, psql, text, with_server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

fn run(port: u16, sql: &str) -> String {
    text(&psql("127.0.0.1", port, sql).output().unwrap())
}

#[test]
fn a_session_is_of_the_pool_that_its_user_has_as_it_logs_in() {
    with_server("a_session_is_of_the_pool_that_its_user_has_as_it_logs_in", &[], |server| {
        server.make_open_door();
        let held = proxy(server, CONSOLE);
        // Connected already, and accepted, as is who comes after it; it says who it is later.
        let mut early = TcpStream::connect(("127.0.0.1", held.port)).unwrap();
        console(held.port, "CREATE RESOURCE POOL late; CREATE USER open_door RESOURCE POOL late");
        raw::log_in(&mut early, 0, "open_door", "");
        assert!(console(held.port, "SHOW SESSIONS").contains("|late|"), "{}", console(held.port, "SHOW SESSIONS"));
    });
}

#[test]
fn statements_wait_for_their_turn_and_those_of_who_left_are_not_begun() {
    with_server("statements_wait_for_their_turn_and_those_of_who_left_are_not_begun", &[], |server| {
        server.value("CREATE TABLE t (a int)");
        let held = proxy(server, &format!("{CONSOLE}[pools.one]\nmax_active = 1\n[users]\npostgres = 'one'\n"));
        let shell = |sql: &str| psql("127.0.0.1", held.port, sql).stdout(Stdio::null()).spawn().unwrap();
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND state = 'active'";
        let mut first = shell("SELECT pg_sleep(3)");
        server.until(sleeping, "1");
        let begun = Instant::now();
        let mut waiting: Vec<_> = (0..2).map(|_| shell("SELECT pg_sleep(1)")).collect();
        let mut left = shell("INSERT INTO t VALUES (1)");
        let sessions =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'psql' AND pid <> pg_backend_pid()";
        server.until(sessions, "4");
        left.kill().unwrap();
        left.wait().unwrap();
        server.until(sessions, "3");
        assert_eq!(server.value(sleeping), "1", "nobody has jumped the queue");
        held::until("two wait, one runs, and one may", || {
            console(held.port, "SHOW QUEUES").starts_with("turns|one|2|1|1|statements\nlow class||0|0|")
        });
        first.wait().unwrap();
        waiting.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
        assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
        assert_eq!(server.value("SELECT count(*) FROM t"), "0");
        assert_eq!(run(held.port, "SELECT 1"), "1");
    });
}

#[test]
fn whoever_waits_for_a_turn_is_not_idle() {
    with_server("whoever_waits_for_a_turn_is_not_idle", &[], |server| {
        let more = "[limits]\nidle_timeout_s = 0.5\n[pools.one]\nmax_active = 1\n[users]\npostgres = 'one'\n";
        let held = proxy(server, more);
        let mut first = psql("127.0.0.1", held.port, "SELECT pg_sleep(2)").stdout(Stdio::null()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        assert_eq!(run(held.port, "SELECT 'its turn'"), "its turn");
        assert!(first.wait().unwrap().success());
    });
}

#[test]
fn a_transaction_does_not_wait_for_a_turn() {
    with_server("a_transaction_does_not_wait_for_a_turn", &[], |server| {
        let held = proxy(server, "[pools.one]\nmax_active = 1\n[users]\npostgres = 'one'\n");
        let mut first = psql("127.0.0.1", held.port, "BEGIN")
            .args(["-c", "SELECT pg_sleep(1)", "-c", "SELECT 1", "-c", "COMMIT"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        let mut second = psql("127.0.0.1", held.port, "SELECT pg_sleep(1)").stdout(Stdio::null()).spawn().unwrap();
        assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
    });
}

#[test]
fn an_abort_of_what_waits_for_its_turn_ends_its_session() {
    with_server("an_abort_of_what_waits_for_its_turn_ends_its_session", &[], |server| {
        server.value("CREATE TABLE t (a int)");
        let held = proxy(
            server,
            "[rules.patience]\nblocktime = 0.5\n[pools.one]\nmax_active = 1\nexcept_rule = 'patience'\n[users]\npostgres = 'one'\n",
        );
        let mut first = psql("127.0.0.1", held.port, "SELECT pg_sleep(3)").stdout(Stdio::null()).spawn().unwrap();
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        let told = complaint(&psql("127.0.0.1", held.port, "INSERT INTO t VALUES (1)").output().unwrap());
        assert!(told.contains("rule patience ends what waits so long for its turn in pool one"), "{told}");
        assert!(first.wait().unwrap().success(), "who runs is not concerned");
        assert_eq!(server.value("SELECT count(*) FROM t"), "0", "what waited was never begun");
        assert!(held.decision().fields["blocktime"].parse::<f64>().unwrap() >= 0.5);
    });
}

#[test]
fn a_cancel_of_what_waits_for_its_turn_ends_it_and_the_server_hears_nothing_of_it() {
    with_server("a_cancel_of_what_waits_for_its_turn_ends_it", &[], |server| {
        server.value("CREATE TABLE t (a int)");
        let held = proxy(server, &format!("{CONSOLE}[pools.one]\nmax_active = 1\n[users]\npostgres = 'one'\n"));
        let _first = Running::start(&mut psql("127.0.0.1", held.port, "SELECT pg_sleep(600)"));
        server.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        let waits = |many: &str| console(held.port, "SHOW QUEUES").starts_with(&format!("turns|one|{many}|"));
        const INSERT: &str = "INSERT INTO t VALUES (1)";
        for is_extended in [false, true] {
            until("nobody waits", || waits("0"));
            let session = Session::open(held.port);
            let insert = async {
                match is_extended {
                    true => session.client.execute(INSERT, &[]).await.map(|_| ()),
                    false => session.client.batch_execute(INSERT).await,
                }
            };
            let cancel = async {
                while !waits("1") {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                session.client.cancel_token().cancel_query(NoTls).await
            };
            let (inserted, cancelled) = session.wait(async { tokio::join!(insert, cancel) });
            cancelled.unwrap();
            let error = inserted.unwrap_err();
            let told = error.as_db_error().unwrap();
            assert_eq!(told.code(), &SqlState::QUERY_CANCELED, "{told}");
            assert!(told.message().contains("its client cancelled what waited for its turn in pool one"), "{told}");
        }
        assert_eq!(server.value("SELECT count(*) FROM t"), "0");
    });
}

/// More than a small buffer holds.
const NOTICE_BYTES: usize = 60_000;

/// A server that greets each session with a key of its own and a long notice, and answers nothing.
fn silent_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for (number, mut stream) in (1_u32..).zip(listener.incoming().map_while(Result::ok)) {
            assert!(stream.read(&mut [0; 512]).unwrap() > 8);
            stream.write_all(b"R\0\0\0\x08\0\0\0\0").unwrap();
            raw::say(&mut stream, b'K', &[number.to_be_bytes(), [0; 4]].concat());
            raw::say(&mut stream, b'Z', b"I");
            raw::say(&mut stream, b'N', &[b'x'; NOTICE_BYTES]);
            kept.push(stream);
        }
    });
    address
}

#[test]
fn who_is_told_to_go_hears_all_of_it_though_what_it_said_was_never_read() {
    let held = before(&silent_server(), "[pools.default]\nmax_active = 1\n");
    let mut glance = held.proxy.glance();
    let mut pool = || glance.look().pools.into_iter().find(|pool| pool.name == "default").unwrap();
    let (mut first, _) = raw::open(held.port, 0, "u");
    raw::ask(&mut first, "SELECT 1");
    until("the first one runs", || pool().running == 1);
    // Most of the notice stands in the proxy's socket until it reads.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], held.port)).into()).unwrap();
    let mut second = TcpStream::from(socket);
    let key = raw::body(&raw::log_in(&mut second, 0, "u", ""), b'K').to_vec();
    until("both notices are on their way", || pool().sent_bytes > 2 * NOTICE_BYTES as u64);
    raw::ask(&mut second, "SELECT 2");
    until("the second one waits", || pool().waiting == 1);
    let request = [&16_u32.to_be_bytes(), &80_877_102_u32.to_be_bytes()[..], &key].concat();
    let mut other = TcpStream::connect(("127.0.0.1", held.port)).unwrap();
    other.write_all(&request).unwrap();
    until("it has been told to go", || pool().waiting == 0);
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    second.read_to_end(&mut rest).unwrap();
    let words = String::from_utf8_lossy(rest.get(NOTICE_BYTES..).unwrap_or_default());
    assert!(words.contains("57014") && words.contains("its client cancelled what waited"), "{words}");
}
