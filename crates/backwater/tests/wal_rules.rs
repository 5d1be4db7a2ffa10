//! Rules on WAL, on a server that tells the WAL of its sessions (from PostgreSQL 18 on): in attach mode and through the
//! proxy.

#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

mod attach_help;
#[path = "attach_help/decisions.rs"]
mod decisions;
#[path = "../../gate/tests/held/mod.rs"]
mod held;
#[path = "../../probe/tests/postgres/server.rs"]
mod majors;
#[path = "../../gate/tests/server/mod.rs"]
mod server;

use attach_help::{is_root, until};
use backwater_lab::servers::{Installed, cache_dir, cached, find};
use backwater_model::{Event, EventKind};
use decisions::Deciding;
use held::{Held, before};
use majors::{Server, Session, conninfo};
use server::PASSWORD;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The release from which a server tells it.
const TELLS_WAL: u32 = 18;

/// Runs a test on such a server, with an empty table: one that tests are given, an installed one, or one that the lab
/// has downloaded.
fn with_wal_told(name: &str, test: impl FnOnce(&Server)) {
    let given = majors::installed().into_iter().filter_map(|bin| Installed::at(&bin));
    let mut there = given.chain(find(Some(TELLS_WAL))).chain(cached(&cache_dir(), Some(TELLS_WAL)));
    let Some(installed) = there.find(|installed| installed.version >= TELLS_WAL) else {
        return eprintln!("skipped: {name}: needs PostgreSQL 18 (in BACKWATER_PG_BINS, or downloaded by the lab)");
    };
    let server = Server::start(&installed.bin_dir, &[]);
    server.sql("CREATE TABLE t (a text)");
    test(&server);
}

/// A session by TCP: of the server, or through the proxy.
fn open(port: u16, name: &str) -> Session {
    let whom = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres password={PASSWORD}");
    Session::open(&conninfo(&format!("{whom} application_name={name}"))).unwrap()
}

fn process_of(session: &mut Session) -> String {
    session.run("SELECT pg_backend_pid()").unwrap().unwrap()
}

/// A session that sleeps, and its process id.
fn quiet(port: u16) -> String {
    let mut session = open(port, "quiet");
    let pid = process_of(&mut session);
    // It ends with its server.
    drop(session.spawn("SELECT pg_sleep(600)"));
    pid
}

/// Ten megabytes of WAL in one short statement; its table does not grow.
const WRITE: &str = "TRUNCATE t; INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 10000)";

/// Somebody who commits that again and again. A server tells WAL when a session has ended its statement, and at most
/// once a second.
struct Writer {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(mut session: Session) -> Writer {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let run = move || {
            while !ended.load(Ordering::SeqCst) && session.run(WRITE).is_ok() {}
        };
        Writer { over, thread: Some(std::thread::spawn(run)) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// `backwater attach` by one rule.
fn attach(server: &Server, state: &Path, rule: &str) -> Deciding {
    let target = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    Deciding::start(state, &[&target, "--rule", rule, "--interval", "100ms"])
}

/// A proxy that has an account on its server, with one rule for everybody.
fn proxy(server: &Server, rule: &str) -> Held {
    let account = format!("[server_account]\nuser = 'postgres'\npassword = '{PASSWORD}'\n");
    let rule = format!("[rules.wal]\n{rule}\n[pools.default]\nexcept_rule = 'wal'\n");
    let held = before(&format!("127.0.0.1:{}", server.port), &(account + &rule));
    let mut asking = Session::open(&server.info()).unwrap();
    let account = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater-proxy'";
    until("the proxy's own connection", || asking.run(account).unwrap().as_deref() == Some("1"));
    held
}

/// Whether the figure, which is told to three decimals, is over what is allowed.
fn is_over(event: &Event, attribute: &str, allowed: f64) -> bool {
    event.fields[attribute].parse::<f64>().unwrap() >= allowed
}

#[test]
fn a_rate_of_wal_is_that_of_who_writes_in_attach_mode() {
    const NAME: &str = "a_rate_of_wal_is_that_of_who_writes_in_attach_mode";
    if !is_root(NAME) {
        return;
    }
    with_wal_told(NAME, |server| {
        let state = tempfile::tempdir().unwrap();
        let other = quiet(server.port);
        let deciding = attach(server, state.path(), "walrate=1, action='dryrun'");
        let mut session = open(server.port, "writer");
        let pid = process_of(&mut session);
        let writer = Writer::start(session);
        let events = deciding.until("a decision", |events| !events.is_empty());
        drop(writer);
        assert!(is_over(&events[0], "walrate", 1.0), "{events:?}");
        assert_eq!((events[0].fields["step"].as_str(), events[0].fields["action"].as_str()), ("began", "dryrun"));
        let events = deciding.events();
        assert!(events.iter().all(|event| event.fields["session"] == pid), "{pid} and not {other}: {events:?}");
    });
}

#[test]
fn a_rate_of_wal_is_that_of_who_writes_through_the_proxy() {
    const NAME: &str = "a_rate_of_wal_is_that_of_who_writes_through_the_proxy";
    with_wal_told(NAME, |server| {
        let through = proxy(server, "walrate = 1\naction = 'dryrun'");
        quiet(through.port);
        let writer = Writer::start(open(through.port, "writer"));
        let event = through.decision();
        drop(writer);
        assert!(is_over(&event, "walrate", 1.0), "{event:?}");
        // Sessions have numbers here: the second one writes.
        let others = through.events.try_iter().filter(|event| event.kind == EventKind::Decision);
        let sessions: Vec<String> =
            [event].into_iter().chain(others).map(|event| event.fields["session"].clone()).collect();
        assert!(sessions.iter().all(|session| session == "2"), "{sessions:?}");
    });
}
