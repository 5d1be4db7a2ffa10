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
mod release;
#[path = "../../gate/tests/server/mod.rs"]
mod server;

use attach_help::{PATIENCE, is_root, until};
use backwater_model::{Event, EventKind};
use decisions::Deciding;
use held::{Held, before};
use majors::{Server, Session, conninfo};
use release::with_release;
use server::PASSWORD;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

/// The release from which a server tells it.
const TELLS_WAL: u32 = 18;

/// Runs a test on such a server, with an empty table.
fn with_wal_told(name: &str, test: impl FnOnce(&Server)) {
    with_release(name, TELLS_WAL, |server| {
        server.sql("CREATE TABLE t (a text)");
        test(server);
    });
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

/// Somebody who commits that again and again, until somebody does not let them. A server tells WAL when a session has ended its
/// transaction, and at most once a second.
struct Writer {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    complaint: Receiver<String>,
}

impl Writer {
    fn start(mut session: Session) -> Writer {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let (complain, complaint) = channel();
        let run = move || {
            while !ended.load(Ordering::SeqCst) {
                if let Err(error) = session.run(WRITE) {
                    // Nobody may want to hear it.
                    return drop(complain.send(error));
                }
            }
        };
        Writer { over, thread: Some(std::thread::spawn(run)), complaint }
    }

    /// What the server says when somebody ends its statement.
    fn complaint(&self) -> String {
        self.complaint.recv_timeout(PATIENCE).unwrap()
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

/// More than one of its transactions writes, and less than five.
const IN_ONE_GO: &str = "walsize=40, action='abort'";

#[test]
fn a_batch_that_wrote_too_much_in_one_go_is_cancelled_in_attach_mode() {
    const NAME: &str = "a_batch_that_wrote_too_much_in_one_go_is_cancelled_in_attach_mode";
    if !is_root(NAME) {
        return;
    }
    with_wal_told(NAME, |server| {
        let state = tempfile::tempdir().unwrap();
        quiet(server.port);
        let deciding = attach(server, state.path(), IN_ONE_GO);
        let mut session = open(server.port, "writer");
        let pid = process_of(&mut session);
        let writer = Writer::start(session);
        let complaint = writer.complaint();
        assert!(complaint.contains("canceling statement"), "{complaint}");
        // The session hears of it before it is told.
        let events = deciding.until("the decision", |events| !events.is_empty());
        assert!(is_over(&events[0], "walsize", 40.0), "{events:?}");
        assert!(events.iter().all(|event| event.fields["session"] == pid), "{pid}: {events:?}");
    });
}

#[test]
fn a_batch_that_wrote_too_much_in_one_go_is_cancelled_through_the_proxy() {
    const NAME: &str = "a_batch_that_wrote_too_much_in_one_go_is_cancelled_through_the_proxy";
    with_wal_told(NAME, |server| {
        let through = proxy(server, "walsize = 40\naction = 'abort'");
        quiet(through.port);
        let writer = Writer::start(open(through.port, "writer"));
        let complaint = writer.complaint();
        assert!(complaint.contains("canceling statement"), "{complaint}");
        let event = through.decision();
        assert!(is_over(&event, "walsize", 40.0), "{event:?}");
        assert_eq!((event.fields["step"].as_str(), event.fields["session"].as_str()), ("began", "2"));
    });
}
