//! What befalls primaries and standbys while they are recorded: they restart, fail over, cascade, answer slowly, go back in
//! time, are many. Nothing crashes, and nobody is accused of what is only missing.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "faults/recorder.rs"]
mod recorder;
#[path = "../../probe/tests/postgres/server.rs"]
mod server;
#[path = "../../probe/tests/postgres/standby.rs"]
mod standby;
#[path = "faults/walsender.rs"]
mod walsender;

use backwater_model::EventKind;
use recorder::{Recorder, event, found, last, positions_go_back_in_another_life_alone, track};
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, Session, conninfo, on_each};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use walsender::Receiver;

const NOTHING: [String; 0] = [];

/// A client that goes on committing small rows, wherever a server takes them.
struct Load {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn on(servers: &[&Server]) -> Load {
        let addresses: Vec<String> = servers.iter().map(|server| server.socket()).collect();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let run = move || {
            while !ended.load(Ordering::SeqCst) {
                for address in &addresses {
                    let Ok(mut session) = Session::open(&conninfo(address)) else { continue };
                    while !ended.load(Ordering::SeqCst)
                        && session.run("INSERT INTO t SELECT generate_series(1, 200)").is_ok()
                    {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        Load { over, thread: Some(std::thread::spawn(run)) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn grew(recorder: &mut Recorder, what: &str, name: &str, target: &str) {
    let from = recorder.window().to;
    recorder.until(what, |window| {
        let Some(track) = track(window, name, target) else { return false };
        let since = track.between(from, window.to);
        since.points.len() >= 2 && since.points[since.points.len() - 1].value > since.points[0].value
    });
}

#[test]
fn a_primary_fails_over_to_a_standby_that_another_one_follows() {
    on_each("a_primary_fails_over_to_a_standby_that_another_one_follows", |bin| {
        let mut primary = Server::start(bin, &[]);
        primary.sql("CREATE TABLE t (a int)");
        let mut middle = primary.standby("s1", &[], &[]);
        middle.sql("SELECT pg_create_physical_replication_slot('s2', true)");
        middle.stop();
        let mut lowest = middle.copy();
        middle.follow(&primary, "s1", &[]);
        lowest.follow(&middle, "s2", &[]);
        let mut recorder = Recorder::of([&primary, &middle, &lowest].map(|server| server.socket()).to_vec());
        let [above, here, below] = [0, 1, 2].map(|place| recorder.name(place));
        let load = Load::on(&[&primary, &middle]);
        grew(&mut recorder, "replay at the lowest", "pg.wal.replay_bytes", &below);
        recorder.go_on(6.0);
        primary.crash();
        recorder.until("the gap", |window| event(window, "recorder", EventKind::Gap, &above).is_some());
        recorder.go_on(2.0);
        middle.sql("SELECT pg_promote()");
        recorder.until("the promotion", |window| event(window, &here, EventKind::Restart, "promoted").is_some());
        recorder.until("the new timeline", |window| last(window, "pg.wal.timeline", &here) == Some(2.0));
        grew(&mut recorder, "WAL of the new primary", "pg.wal.insert_bytes", &here);
        recorder.until("the timeline below", |window| last(window, "pg.wal.timeline", &below) == Some(2.0));
        grew(&mut recorder, "replay at the lowest again", "pg.wal.replay_bytes", &below);
        recorder.go_on(8.0);
        drop(load);
        let window = recorder.end();
        assert_eq!(found(&window), NOTHING);
        // Whatever part of it is looked at.
        let cuts = 8;
        let at = |cut: i32| {
            window.from + backwater_model::Span::from_seconds(window.seconds() * f64::from(cut) / f64::from(cuts))
        };
        for cut in 0..cuts - 1 {
            assert_eq!(found(&window.slice(at(cut), at(cut + 2))), NOTHING, "part {cut}");
        }
        positions_go_back_in_another_life_alone(&window);
        // The dead one has no points where nobody could read it.
        let end = track(&window, "pg.wal.insert_bytes", &above).unwrap().points.last().unwrap().at;
        assert!(window.to.seconds_since(end) > 8.0);
    });
}

/// Of the servers only the one in the middle is looked at, which makes no WAL itself.
#[test]
fn a_standby_of_a_standby_that_goes_is_named() {
    on_each("a_standby_of_a_standby_that_goes_is_named", |bin| {
        let mut primary = Server::start(bin, &[]);
        primary.sql("CREATE TABLE t (a int)");
        let mut middle = primary.standby("s1", &[], &[]);
        middle.sql("SELECT pg_create_physical_replication_slot('s2', true)");
        middle.stop();
        let mut lowest = middle.copy();
        middle.follow(&primary, "s1", &[]);
        lowest.follow(&middle, "s2", &[]);
        let mut recorder = Recorder::of(vec![middle.socket()]);
        let here = recorder.name(0);
        let load = Load::on(&[&primary]);
        grew(&mut recorder, "replay here", "pg.wal.replay_bytes", &here);
        recorder.until("replay below", |window| {
            let below = window.track("pg.replication.replay_bytes", &[("target", &here), ("standby", "s2")]);
            below.is_some_and(|track| track.rise(window.from, window.to) > Some(0.0))
        });
        recorder.go_on(6.0);
        assert_eq!(found(&recorder.window()), NOTHING);
        lowest.stop();
        recorder.go_on(14.0);
        drop(load);
        let findings = found(&recorder.end());
        assert!(findings[0].starts_with("standby-gone disconnected pg.wal.retained@s2"), "{findings:#?}");
        assert!(findings.iter().all(|finding| finding.contains("s2")), "{findings:#?}");
    });
}

#[test]
fn a_standby_that_restarts_and_a_slot_that_is_dropped_accuse_nobody() {
    on_each("a_standby_that_restarts_and_a_slot_that_is_dropped_accuse_nobody", |bin| {
        let mut primary = Server::start(bin, &[]);
        primary.sql("CREATE TABLE t (a int)");
        let mut standby = primary.standby("s1", &[], &[]);
        primary.sql("SELECT pg_create_physical_replication_slot('spare', true)");
        let mut recorder = Recorder::of(vec![primary.socket(), standby.socket()]);
        let [above, below] = [0, 1].map(|place| recorder.name(place));
        let load = Load::on(&[&primary]);
        grew(&mut recorder, "replay", "pg.wal.replay_bytes", &below);
        recorder.go_on(5.0);
        standby.stop();
        standby.follow(&primary, "s1", &[]);
        recorder.until("the restart", |window| event(window, &below, EventKind::Restart, "restarted").is_some());
        grew(&mut recorder, "replay again", "pg.wal.replay_bytes", &below);
        let slots = |window: &backwater_model::Window| {
            let labels = [("target", above.as_str()), ("slot", "spare")];
            window.track("pg.slot.active", &labels).map_or(0, |track| track.points.len())
        };
        recorder.until("the slot", |window| slots(window) > 0);
        primary.sql("SELECT pg_drop_replication_slot('spare')");
        recorder.go_on(3.0);
        let known = slots(&recorder.window());
        recorder.go_on(5.0);
        drop(load);
        let window = recorder.end();
        assert_eq!(slots(&window), known, "a slot that is no more has no points");
        assert_eq!(found(&window), NOTHING);
        positions_go_back_in_another_life_alone(&window);
    });
}

#[test]
fn a_server_that_is_put_back_in_time_begins_anew() {
    on_each("a_server_that_is_put_back_in_time_begins_anew", |bin| {
        let mut server = Server::start(bin, &[]);
        server.sql("CREATE TABLE t (a int)");
        server.stop();
        let earlier = server.copy();
        server.start_again(&[]);
        let mut recorder = Recorder::of(vec![server.socket()]);
        let name = recorder.name(0);
        let load = Load::on(&[&server]);
        grew(&mut recorder, "WAL", "pg.wal.insert_bytes", &name);
        recorder.go_on(5.0);
        let before = last(&recorder.window(), "pg.wal.insert_bytes", &name).unwrap();
        server.stop();
        std::fs::remove_dir_all(server.data()).unwrap();
        std::fs::rename(earlier.data(), server.data()).unwrap();
        server.start_again(&[]);
        recorder.until("the restart", |window| event(window, &name, EventKind::Restart, "restarted").is_some());
        recorder.until("an earlier position", |window| {
            last(window, "pg.wal.insert_bytes", &name).is_some_and(|position| position < before)
        });
        recorder.go_on(5.0);
        drop(load);
        let window = recorder.end();
        assert_eq!(found(&window), NOTHING);
        positions_go_back_in_another_life_alone(&window);
    });
}

#[test]
fn a_server_that_answers_slowly_is_read_late_and_not_accused() {
    on_each("a_server_that_answers_slowly_is_read_late_and_not_accused", |bin| {
        let mut primary = Server::start(bin, &[]);
        primary.sql("CREATE TABLE t (a int)");
        let standby = primary.standby("s1", &[], &[]);
        let mut recorder = Recorder::of(vec![primary.socket(), standby.socket()]);
        let [above, below] = [0, 1].map(|place| recorder.name(place));
        let load = Load::on(&[&primary]);
        grew(&mut recorder, "replay", "pg.wal.replay_bytes", &below);
        recorder.go_on(3.0);
        let pid = "SELECT pid FROM pg_stat_activity WHERE application_name = 'backwater'";
        let pid: i32 = Session::open(&primary.info()).unwrap().run(pid).unwrap().unwrap().parse().unwrap();
        let signal = |signal| kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        // It is asked something at least each half second: of each stall more than a second is seen.
        const STALLS: usize = 6;
        for _ in 0..STALLS {
            signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(1_600));
            signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(300));
        }
        recorder.go_on(3.0);
        drop(load);
        let window = recorder.end();
        let slow = track(&window, "pg.probe.longest_us", &above).unwrap();
        assert!(slow.points.iter().filter(|point| point.value > 1e6).count() >= STALLS - 1, "{:?}", slow.points);
        assert!(event(&window, "recorder", EventKind::Gap, &above).is_none(), "the connection was given up");
        assert_eq!(found(&window), NOTHING);
        positions_go_back_in_another_life_alone(&window);
    });
}

#[test]
fn a_hundred_standbys_are_read_and_the_one_that_goes_is_named() {
    const MANY: usize = 100;
    on_each("a_hundred_standbys_are_read_and_the_one_that_goes_is_named", |bin| {
        let server = Server::start(bin, &["max_wal_senders=110"]);
        server.sql("CREATE TABLE t (a int)");
        let mut session = Session::open(&server.info()).unwrap();
        let start = session.run("SELECT pg_current_wal_flush_lsn()").unwrap().unwrap();
        let socket = server.dir.path().join(format!(".s.PGSQL.{}", server.port));
        let mut receivers: Vec<Receiver> =
            (0..MANY).map(|number| Receiver::start(&socket, &format!("r{number:03}"), &start)).collect();
        let mut recorder = Recorder::of(vec![server.socket()]);
        let load = Load::on(&[&server]);
        let seen = |window: &backwater_model::Window| {
            let moving = |track: &backwater_model::Track<'_>| {
                track.points.first().zip(track.points.last()).is_some_and(|(first, last)| last.value > first.value)
            };
            window.tracks("pg.replication.replay_bytes", &[]).filter(moving).count()
        };
        recorder.until("a hundred standbys", |window| seen(window) == MANY);
        recorder.go_on(8.0);
        assert_eq!(found(&recorder.window()), NOTHING);
        drop(receivers.remove(42));
        recorder.go_on(14.0);
        drop(load);
        let window = recorder.end();
        let findings = found(&window);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert!(findings[0].starts_with("standby-gone disconnected pg.wal.retained@r042"), "{findings:#?}");
        assert_eq!(window.events_of(EventKind::Gap).count(), 0);
    });
}
