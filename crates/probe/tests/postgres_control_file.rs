//! The control file is read only when nobody can hold it: whoever asks for it while it is synced waits, uninterruptibly.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "postgres/looks.rs"]
mod looks;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/standby.rs"]
mod standby;

use looks::Looks;
use server::{Server, Session, on_each};

const REDO: &str = "pg.checkpoint.redo_bytes";

/// How often the server's log tells of a statement that reads the control file.
fn asked(server: &Server) -> usize {
    let log = std::fs::read_to_string(server.dir.path().join("log")).unwrap();
    log.lines().filter(|line| line.contains("LOG:  execute") && line.contains("pg_control_checkpoint()")).count()
}

/// Looks for so many more readings of the timeline, one a second.
fn seconds(looks: &mut Looks, count: usize) {
    let before = looks.of("pg.wal.timeline").len();
    looks.until("some seconds", |looks| looks.of("pg.wal.timeline").len() >= before + count);
}

#[test]
fn a_primary_is_asked_once_a_checkpoint() {
    on_each("a_primary_is_asked_once_a_checkpoint", |bin| {
        let server = Server::start(bin, &["log_statement=all", "checkpoint_timeout=1h"]);
        let mut session = Session::open(&server.info()).unwrap();
        let mut redo = || -> f64 {
            let text = session.run("SELECT redo_lsn - '0/0' FROM pg_control_checkpoint()").unwrap().unwrap();
            text.parse().unwrap()
        };
        let mut looks = Looks::connect(server.info());
        looks.until("a position that stands", |looks| looks.of(REDO).len() >= 2);
        let before = asked(&server);
        assert!(before > 0, "the log tells nothing");
        let told = looks.of(REDO).len();
        seconds(&mut looks, 4);
        assert_eq!(asked(&server), before, "it was asked although no checkpoint had ended");
        assert!(looks.of(REDO).len() >= told + 3, "a position that stands is told each second");
        assert_eq!(looks.of(REDO).last().unwrap().value, redo());
        server.sql("CREATE TABLE t AS SELECT generate_series(1, 10000) AS a; CHECKPOINT");
        let after = redo();
        looks.until("the new position", |looks| looks.of(REDO).last().unwrap().value == after);
        let again = asked(&server);
        assert!(again > before);
        seconds(&mut looks, 3);
        assert_eq!(asked(&server), again);
        assert!(looks.of(REDO).windows(2).all(|pair| pair[0].epoch == pair[1].epoch && pair[1].value >= pair[0].value));
    });
}

#[test]
fn a_standby_that_receives_is_not_asked_and_knows_its_timeline() {
    on_each("a_standby_that_receives_is_not_asked_and_knows_its_timeline", |bin| {
        let mut primary = Server::start(bin, &[]);
        let standby = primary.standby("s1", &[], &["log_statement=all"]);
        let mut looks = Looks::connect(standby.info());
        looks.until("the receiver", |looks| looks.of("pg.receiver.streaming").last().is_some_and(|p| p.value == 1.0));
        let before = asked(&standby);
        seconds(&mut looks, 12);
        assert_eq!(asked(&standby), before);
        assert!(looks.of("pg.wal.timeline").iter().all(|point| point.value == 1.0));
        standby.sql("SELECT pg_promote()");
        looks.until("another timeline", |looks| looks.of("pg.wal.timeline").last().unwrap().value == 2.0);
        looks.until("a position of its own", |looks| !looks.of(REDO).is_empty());
    });
}
