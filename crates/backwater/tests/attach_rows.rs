//! Rules of `backwater attach` on the rows that a query has brought, which no view of the server tells.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod attach_help;
#[path = "attach_help/decisions.rs"]
mod decisions;
#[path = "../../gate/tests/server/mod.rs"]
mod server;

use attach_help::*;
use backwater_model::Event;
use decisions::Deciding;
use server::{Running, Server, complaint, psql, with_each_server};

/// A statement that sleeps once it has brought 4,000 rows, and would bring a thousand more.
const SLEEPER: &str = "SELECT i, CASE WHEN i = 4001 THEN pg_sleep(600)::text END FROM generate_series(1, 5000) i";

/// A session by TCP that runs a statement, and its process id once it sleeps there.
fn asleep(server: &Server, name: &str, sql: &str) -> (Running, String) {
    let mut client = psql("127.0.0.1", server.port, sql);
    let client = Running::start(client.env("PGAPPNAME", name));
    let sleeps = "AND wait_event = 'PgSleep'";
    server.until(&sessions(name, "count(*)", sleeps), "1");
    (client, server.value(&sessions(name, "pid", sleeps)))
}

#[test]
fn rows_of_a_query_are_counted_from_outside() {
    const NAME: &str = "rows_of_a_query_are_counted_from_outside";
    if !is_root(NAME) {
        return;
    }
    with_each_server(NAME, |server| {
        let major = server.value("SELECT current_setting('server_version_num')::int / 10000");
        let state = tempfile::tempdir().unwrap();
        let few = "SELECT CASE WHEN i = 4000 THEN pg_sleep(600)::text END FROM generate_series(1, 5000) i";
        let (_few, few) = asleep(server, "few", few);
        // Rows that go elsewhere than to the client.
        let declared = format!("BEGIN; DECLARE c CURSOR WITH HOLD FOR {SLEEPER}");
        let (_held, held) = asleep(server, "held", &format!("{declared}; COMMIT"));
        let (_moved, moved) = asleep(server, "moved", &format!("{declared}; MOVE ALL FROM c"));
        let into_table = format!("PREPARE p AS {SLEEPER}; CREATE TABLE kept AS EXECUTE p");
        let (_into_table, into_table) = asleep(server, "into a table", &into_table);

        let (target, rule) = (target(server), "rows=3999, action='abort'");
        let deciding = Deciding::start(state.path(), &[&target, "--rule", rule, "--interval", "100ms"]);
        let stops = |sql: &str| {
            let output = telling(server, "many", sql).output().unwrap();
            let said = complaint(&output);
            assert!(said.contains("canceling statement due to user request"), "{major}: {said}");
            let pid = pid_of(&output);
            let began = |event: &&Event| event.fields["session"] == pid && event.fields["step"] == "began";
            let told = deciding.until("it is told", |told| told.iter().any(|event| began(&event)));
            // Neither one less nor one more: it sleeps in the next.
            assert_eq!(told.iter().find(began).unwrap().fields["rows"], "4000", "{major}: {sql}");
        };
        stops(SLEEPER);
        if major.parse::<i32>().unwrap() >= 14 {
            stops(&format!("COPY ({SLEEPER}) TO STDOUT"));
        }
        for pid in [few, held, moved, into_table] {
            let active = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'");
            assert_eq!(server.value(&active), "1", "{major}: it was left alone");
            assert!(deciding.steps_of(&pid).is_empty(), "{major}: {:?}", deciding.events());
        }
        drop((deciding, state));
    });
}

#[test]
fn rows_are_counted_on_when_the_server_is_back() {
    const NAME: &str = "rows_are_counted_on_when_the_server_is_back";
    if !is_root(NAME) {
        return;
    }
    server::with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (target, rule) = (target(server), "rows=3999, action='penalty'");
        let arguments = [&*target, "--rule", rule, "--rate", "1MB", "--interval", "100ms"];
        let deciding = Deciding::start(state.path(), &arguments);
        for round in 1..=2 {
            let (_many, pid) = asleep(server, "many", SLEEPER);
            let is_slowed = |told: &[Event]| told.iter().any(|event| event.fields["session"] == pid);
            let told = deciding.until("it is slowed", is_slowed);
            assert_eq!(told.last().unwrap().fields["rows"], "4000", "round {round}");
            until("it is held", || is_held_at(peer(server, "many"), 1));
            server.stop_at_once();
            server.start_again(&[]);
        }
    });
}

#[test]
fn who_comes_by_a_unix_socket_is_judged_by_its_process() {
    const NAME: &str = "who_comes_by_a_unix_socket_is_judged_by_its_process";
    if !is_root(NAME) {
        return;
    }
    server::with_server(NAME, &[], |server| {
        let target = target(server);
        let busy = "SELECT count(*) FROM generate_series(1, 1000000000) i";
        for (rule, statement) in [("rows=3999", SLEEPER), ("cputime=0.2", busy), ("memsize=1", busy)] {
            let state = tempfile::tempdir().unwrap();
            let rule = format!("{rule}, action='abort'");
            let _deciding = Deciding::start(state.path(), &[&target, "--rule", &rule, "--interval", "100ms"]);
            let said = complaint(&server.direct(statement).output().unwrap());
            assert!(said.contains("canceling statement due to user request"), "{rule}: {said}");
        }
    });
}

#[test]
fn a_server_in_a_container_is_known_by_its_own_process_ids() {
    const NAME: &str = "a_server_in_a_container_is_known_by_its_own_process_ids";
    if !is_root(NAME) {
        return;
    }
    server::with_server(NAME, &[], |server| {
        server.stop_at_once();
        server.start_contained(&[]);
        let state = tempfile::tempdir().unwrap();
        let (_client, output) = flood(server, "flood");
        let flood = peer(server, "flood");
        read_on(output);
        let pid = server.value(&sessions("flood", "pid", ""));
        // Here that number is somebody else's, or nobody's.
        let title = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!title.contains("postgres"), "{pid}: {title}");
        let target = target(server);
        let mut master = attach(state.path(), &[&target, "--pid", &pid, "--rate", "2MB"]);
        assert!(is_held_at(flood, 2));
        assert_eq!((end(&mut master), kernel_rate(flood)), (Some(0), None));
        // By rules, also of what is read in its processes.
        let rules = ["--rule", "rows=3999, action='abort'", "--interval", "100ms"];
        let deciding = Deciding::start(state.path(), &[&[target.as_str()][..], &rules].concat());
        let output = telling(server, "many", SLEEPER).output().unwrap();
        assert!(complaint(&output).contains("canceling statement due to user request"));
        let many = pid_of(&output);
        let of_many = |events: &[Event]| events.iter().find(|event| event.fields["session"] == many).cloned();
        let told = deciding.until("it is told", |events| of_many(events).is_some());
        assert_eq!(of_many(&told).unwrap().fields["rows"], "4000");
    });
}
