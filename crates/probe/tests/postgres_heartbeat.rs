//! The heartbeat on real servers: answered, missed while the server hangs, late, read-only, not allowed.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "postgres/looks.rs"]
mod looks;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/standby.rs"]
mod standby;

use backwater_model::{Event, EventKind, Point, Registry};
use backwater_probe::Observer;
use backwater_probe::postgres::{ConnInfo, PostgresOptions, PostgresProbe};
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, Session, conninfo, on_each};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

struct Beats {
    observer: Observer,
    batches: Receiver<backwater_model::Batch>,
    registry: Arc<Registry>,
    points: Vec<Point>,
    events: Vec<Event>,
}

impl Beats {
    fn on(info: ConnInfo) -> Beats {
        let (probe, _) = PostgresProbe::connect(info, PostgresOptions::default()).unwrap();
        let heartbeat = probe.heartbeat(Duration::from_secs(1), Some("tests")).unwrap();
        let registry = Arc::new(Registry::new());
        let (observer, batches) = Observer::start(vec![Box::new(heartbeat)], &registry).unwrap();
        Beats { observer, batches, registry, points: Vec::new(), events: Vec::new() }
    }

    fn until(&mut self, what: &str, seen: impl Fn(&Beats) -> bool) {
        let begun = Instant::now();
        while !seen(self) {
            assert!(begun.elapsed() < Duration::from_secs(30), "not seen: {what}; events: {:#?}", self.events);
            if let Ok(batch) = self.batches.recv_timeout(Duration::from_secs(2)) {
                self.points.extend(batch.points);
                self.events.extend(batch.events);
            }
        }
    }

    fn of(&self, name: &str) -> Vec<f64> {
        let is = |point: &&Point| self.registry.get(point.series).is_some_and(|series| series.name == name);
        self.points.iter().filter(is).map(|point| point.value).collect()
    }

    fn last(&self, name: &str) -> f64 {
        self.of(name).last().copied().unwrap_or_default()
    }

    fn event(&self, kind: EventKind, text: &str) -> Option<&Event> {
        self.events.iter().find(|event| event.kind == kind && event.message.contains(text))
    }
}

const ANSWERED: &str = "pg.heartbeat.answered";
const MISSED: &str = "pg.heartbeat.missed";
const RESPONSE: &str = "pg.heartbeat.response_us";

#[test]
fn beats_are_answered_missed_and_answered_again() {
    on_each("beats_are_answered_missed_and_answered_again", |bin| {
        let server = Server::start(bin, &[]);
        let mut beats = Beats::on(server.info());
        beats.until("answers", |beats| beats.last(ANSWERED) >= 2.0);
        assert!(beats.of(RESPONSE).iter().all(|us| *us > 0.0 && *us < 1e6), "{:?}", beats.of(RESPONSE));
        let mut session = Session::open(&server.info()).unwrap();
        let rows = "SELECT count(*) FROM backwater_heartbeat WHERE beats > 0 AND recorder LIKE 'tests/%'";
        assert_eq!(session.run(rows).unwrap().as_deref(), Some("1"));
        // Somebody drops the table: it is made anew.
        session.run("DROP TABLE backwater_heartbeat").unwrap();
        let answered = beats.last(ANSWERED);
        beats.until("answers with a new table", |beats| beats.last(ANSWERED) >= answered + 2.0);
        // Nobody is let in any more.
        let before = beats.last(MISSED);
        let signal = |signal| kill_process(Pid::from_raw(server.pid()).unwrap(), signal).unwrap();
        signal(Signal::STOP);
        beats.until("misses", |beats| beats.last(MISSED) >= before + 2.0);
        signal(Signal::CONT);
        let answered = beats.last(ANSWERED);
        beats.until("answers again", |beats| beats.last(ANSWERED) > answered);
        assert!(beats.event(EventKind::Recorder, "not let in within 1.0 s").is_some(), "{:#?}", beats.events);
        assert!(beats.event(EventKind::Recorder, "answered again").is_some());
        // A late answer tells how long it took.
        assert!(beats.of(RESPONSE).iter().any(|us| *us > 1e6), "{:?}", beats.of(RESPONSE));
        beats.observer.stop();
        let left = session.run("SELECT count(*) FROM backwater_heartbeat").unwrap();
        assert_eq!(left.as_deref(), Some("0"), "a clean stop takes the row away");
    });
}

#[test]
fn a_server_that_is_down_is_a_miss_at_once_and_a_commit_that_hangs_after_a_second() {
    on_each("a_server_that_is_down_is_a_miss", |bin| {
        let mut server = Server::start(bin, &[]);
        let mut beats = Beats::on(server.info());
        beats.until("an answer", |beats| beats.last(ANSWERED) >= 1.0);
        server.stop();
        beats.until("a miss", |beats| beats.last(MISSED) >= 2.0);
        assert!(beats.event(EventKind::Recorder, "Start it").is_some(), "{:#?}", beats.events);
        // The commit waits for a standby that is not there: connected, but no acknowledgement.
        server.start_again(&["synchronous_standby_names=nobody"]);
        let missed = beats.last(MISSED);
        beats.until("misses of hanging commits", |beats| beats.last(MISSED) >= missed + 7.0);
        let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater heartbeat'";
        let mut session = Session::open(&server.info()).unwrap();
        let open: u32 = session.run(open).unwrap().unwrap().parse().unwrap();
        assert!((1..=5).contains(&open), "{open} stand open");
        session.run("ALTER SYSTEM SET synchronous_commit = local").unwrap();
        session.run("SELECT pg_reload_conf()").unwrap();
        session
            .run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'backwater heartbeat'",
            )
            .unwrap();
        let answered = beats.last(ANSWERED);
        beats.until("answers again", |beats| beats.last(ANSWERED) > answered);
        beats.observer.stop();
    });
}

#[test]
fn beats_that_hang_in_their_commit_leave_the_server_with_their_recorder() {
    on_each("beats_that_hang_in_their_commit_leave", |bin| {
        let server = Server::start(bin, &[]);
        let mut session = Session::open(&server.info()).unwrap();
        for info in [server.info(), conninfo(&server.tcp("password=right"))] {
            let mut beats = Beats::on(info);
            beats.until("an answer", |beats| beats.last(ANSWERED) >= 1.0);
            session.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").unwrap();
            session.run("SELECT pg_reload_conf()").unwrap();
            let missed = beats.last(MISSED);
            beats.until("misses of hanging commits", |beats| beats.last(MISSED) >= missed + 7.0);
            beats.observer.stop();
            // A session that has said goodbye is gone a moment later.
            let begun = Instant::now();
            let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'backwater heartbeat'";
            while session.run(sessions).unwrap().as_deref() != Some("0") {
                assert!(begun.elapsed() < Duration::from_secs(5), "sessions are left in the server");
                std::thread::sleep(Duration::from_millis(50));
            }
            let left = session.run("SELECT count(*) FROM backwater_heartbeat").unwrap();
            assert_eq!(left.as_deref(), Some("0"), "no standby is waited for at the end");
            session.run("ALTER SYSTEM RESET synchronous_standby_names").unwrap();
            session.run("SELECT pg_reload_conf()").unwrap();
        }
    });
}

#[test]
fn a_standby_is_asked_and_a_role_that_may_not_write_is_told_how() {
    on_each("a_standby_is_asked", |bin| {
        let mut primary = Server::start(bin, &[]);
        let standby = primary.standby("s1", &[], &[]);
        let mut beats = Beats::on(standby.info());
        beats.until("answers of a standby", |beats| beats.last(ANSWERED) >= 2.0);
        assert!(
            beats.event(EventKind::Absent, "heartbeat writes").is_some_and(|event| event.message.contains("standby"))
        );
        standby.sql("SELECT pg_promote()");
        beats.until("writes once promoted", |_| rows_that_beat(&standby).is_some_and(|count| count > 0));
        beats.observer.stop();

        primary.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE plain LOGIN");
        let mut beats = Beats::on(conninfo(&primary.socket_as("plain")));
        beats.until("answers without writing", |beats| beats.last(ANSWERED) >= 1.0);
        let remedy = beats.event(EventKind::Absent, "heartbeat's table").unwrap().fields["remedy"].clone();
        beats.observer.stop();
        primary.sql(&remedy);
        let mut beats = Beats::on(conninfo(&primary.socket_as("plain")));
        beats.until("answers", |beats| beats.last(ANSWERED) >= 2.0);
        assert!(beats.event(EventKind::Absent, "heartbeat's table").is_none());
        beats.observer.stop();
    });
}

/// Rows of the heartbeat's table; none while there is no such table.
fn rows_that_beat(server: &Server) -> Option<u32> {
    let mut session = Session::open(&server.info()).ok()?;
    session.run("SELECT count(*) FROM backwater_heartbeat WHERE beats > 1").ok()??.parse().ok()
}
