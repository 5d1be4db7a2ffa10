//! `max_active` on real sessions: who waits for a turn, who does not, and what becomes of those that are not to wait any longer.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

mod held;
mod server;

use held::{CONSOLE, Session, console, proxy, until};
use server::{Running, complaint, psql, text, with_server};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

fn run(port: u16, sql: &str) -> String {
    text(&psql("127.0.0.1", port, sql).output().unwrap())
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
