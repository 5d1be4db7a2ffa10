//! Every hop of replication on real servers: a primary, a standby and a standby of that one, through pause, conflict,
//! restart and promotion; slots that are lost; archives; a role that may see little.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "postgres/looks.rs"]
mod looks;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/standby.rs"]
mod standby;

use backwater_model::{CARRIERS, Doing, EventKind, Point, Sample, rate_between};
use looks::Looks;
use server::{Server, Session, conninfo, on_each};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

const SEGMENT: f64 = 16_777_216.0;

fn last(looks: &Looks, name: &str) -> Option<Point> {
    looks.of(name).last().copied()
}

fn is(looks: &Looks, name: &str, value: f64) -> bool {
    last(looks, name).is_some_and(|point| point.value == value)
}

fn seen<'a>(looks: &'a Looks, kind: &str) -> Vec<&'a Sample> {
    looks.samples.iter().filter(|sample| sample.backend_type.as_deref() == Some(kind)).collect()
}

/// What a process was last seen doing, and the server's word for it.
fn doing(looks: &Looks, kind: &str) -> Option<(Doing, String)> {
    let sample = seen(looks, kind).pop()?;
    Some((Doing::of(sample)?, sample.wait_event.as_deref().unwrap_or("-").to_owned()))
}

/// Commits rows all the while: the server forgets its lags at the second reply of a standby that has everything, which
/// comes within milliseconds of the last commit.
fn while_writing(primary: &Server, work: impl FnOnce()) {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut writer = Session::open(&primary.info()).unwrap();
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                writer.run("INSERT INTO t VALUES (1)").unwrap();
            }
        });
        // Dropped also by a work that fails, which ends the writer.
        let _stop = stop;
        work();
    });
}

#[test]
fn every_hop_is_told_through_pause_conflict_restart_and_promotion() {
    on_each("every_hop_is_told", |bin| {
        let mut primary = Server::start(bin, &[]);
        primary.sql("CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 1000)");
        // Long enough to be seen, then the query is cancelled.
        let mut standby = primary.standby("s1", &[], &["max_standby_streaming_delay=3s"]);
        let mut upper = Looks::connect(primary.info());
        let mut lower = Looks::connect(standby.info());
        the_primary_tells_of_its_standby(&primary, &mut upper);
        the_standby_tells_of_itself(&primary, &mut lower);
        replay_pauses_and_goes_on(&primary, &standby, &mut lower);
        replay_waits_for_a_query(&primary, &standby, &mut lower);
        a_standby_that_goes_and_comes_back(&primary, &mut standby, &mut upper);
        lower.until("the standby again", |looks| looks.event(EventKind::Restart, "restarted").is_some());
        a_standby_sends_on_and_is_promoted(&primary, &mut standby, &mut lower);
        no_rate_is_negative(&upper);
        no_rate_is_negative(&lower);
    });
}

fn the_primary_tells_of_its_standby(primary: &Server, upper: &mut Looks) {
    upper.until("the standby", |looks| is(looks, "pg.replication.streaming", 1.0));
    let names = ["write_lag_us", "flush_lag_us", "replay_lag_us", "reply_age_s", "synchronous", "walsender_pid"];
    while_writing(primary, || {
        for name in names {
            let name = format!("pg.replication.{name}");
            upper.until(&name, |looks| !looks.of(&name).is_empty());
            assert!(upper.labels(&name, "standby").iter().all(|label| label == "s1"), "{name}");
        }
    });
    assert!(last(upper, "pg.replication.replay_lag_us").unwrap().as_of.is_some());
    // True as it was asked for, which is after the look began, notably so where that was held up.
    let age = last(upper, "pg.replication.reply_age_s").unwrap();
    assert!(age.as_of.is_none_or(|asked| asked > age.at), "{age:?}");
    assert!(is(upper, "pg.replication.synchronous", 0.0));
    upper.until("pg_wal", |looks| !looks.of("pg.wal.directory_bytes").is_empty());
    assert_eq!(last(upper, "pg.wal.oldest_kept_bytes").unwrap().value % SEGMENT, 0.0);
    assert!(last(upper, "pg.wal.directory_bytes").unwrap().value >= SEGMENT);
    upper.until("the timeline", |looks| is(looks, "pg.wal.timeline", 1.0));
    if primary.major >= 13 {
        upper.until("the slot", |looks| is(looks, "pg.slot.lost", 0.0) && is(looks, "pg.slot.unreserved", 0.0));
    }
    upper.until("carriers", |looks| {
        ["walsender", "walwriter", "checkpointer", "background writer"].iter().all(|kind| !seen(looks, kind).is_empty())
    });
    let walsender = seen(upper, "walsender")[0];
    let pid = last(upper, "pg.replication.walsender_pid").unwrap().value;
    assert_eq!(f64::from(walsender.pid), pid);
    if primary.major >= 18 {
        upper.until("an I/O worker", |looks| !seen(looks, "io worker").is_empty());
    }
    // They are nobody's session: the only one that can have been active is the writer's.
    assert!(upper.of("pg.sessions.active").iter().all(|point| point.value <= 1.0));
    assert!(upper.samples.iter().all(|sample| !sample.is_carrier() || sample.queue.as_deref() != Some("pg.commit")));
    assert!(seen(upper, "walreceiver").is_empty() && upper.of("pg.receiver.streaming").is_empty());
    assert!(upper.of("pg.replay.paused").is_empty() && upper.of("pg.replay.conflicts").is_empty());
}

fn the_standby_tells_of_itself(primary: &Server, lower: &mut Looks) {
    lower.until("the receiver", |looks| is(looks, "pg.receiver.streaming", 1.0));
    primary.sql("INSERT INTO t SELECT generate_series(1, 1000)");
    let mut names = vec!["pg.receiver.latest_end_bytes", "pg.receiver.message_age_s", "pg.wal.receive_bytes"];
    if primary.major >= 13 {
        names.push("pg.receiver.written_bytes");
    }
    for name in names {
        lower.until(name, |looks| !looks.of(name).is_empty());
    }
    lower.until("replay state", |looks| is(looks, "pg.replay.paused", 0.0));
    lower.until("conflicts", |looks| looks.of("pg.replay.conflicts").len() >= 5);
    let kinds = lower.labels("pg.replay.conflicts", "kind");
    assert!(
        ["tablespace", "lock", "snapshot", "bufferpin", "deadlock"].iter().all(|kind| kinds.iter().any(|k| k == kind))
    );
    assert_eq!(kinds.iter().any(|kind| kind == "logicalslot"), primary.major >= 16);
    lower.until("startup waits for WAL", |looks| {
        doing(looks, "startup").is_some_and(|(doing, _)| doing == Doing::Waiting)
    });
    lower.until("the receiver waits", |looks| {
        doing(looks, "walreceiver").is_some_and(|(doing, _)| doing == Doing::Waiting)
    });
    eprintln!("  streaming: startup {:?}, walreceiver {:?}", doing(lower, "startup"), doing(lower, "walreceiver"));
}

fn replay_pauses_and_goes_on(primary: &Server, standby: &Server, lower: &mut Looks) {
    standby.sql("SELECT pg_wal_replay_pause()");
    primary.sql("INSERT INTO t SELECT generate_series(1, 1000)");
    lower.until("a pause", |looks| is(looks, "pg.replay.paused", 1.0));
    lower.until("startup held by it", |looks| doing(looks, "startup").is_some_and(|(doing, _)| doing == Doing::Held));
    eprintln!(
        "  paused: startup {:?}, kernel {:?}",
        doing(lower, "startup"),
        seen(lower, "startup").pop().unwrap().kernel_wait
    );
    standby.sql("SELECT pg_wal_replay_resume()");
    lower.until("its end", |looks| is(looks, "pg.replay.paused", 0.0));
    lower.until("startup waits for WAL again", |looks| {
        doing(looks, "startup").is_some_and(|(doing, _)| doing == Doing::Waiting)
    });
}

fn replay_waits_for_a_query(primary: &Server, standby: &Server, lower: &mut Looks) {
    let mut reader = Session::open(&standby.info()).unwrap();
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").unwrap();
    primary.sql("DELETE FROM t");
    primary.sql("VACUUM t");
    lower.until("startup held by a query", |looks| {
        looks.samples.last().is_some() && doing(looks, "startup").is_some_and(|(doing, _)| doing == Doing::Held)
    });
    eprintln!(
        "  conflict: startup {:?}, kernel {:?}",
        doing(lower, "startup"),
        seen(lower, "startup").pop().unwrap().kernel_wait
    );
    let before = conflicts(lower);
    lower.until("a query cancelled", |looks| conflicts(looks) > before);
}

/// Of all kinds, at the last look at them.
fn conflicts(looks: &Looks) -> f64 {
    let points = looks.of("pg.replay.conflicts");
    let newest = points.last().map(|point| point.at);
    points.iter().filter(|point| Some(point.at) == newest).map(|point| point.value).sum()
}

fn a_standby_that_goes_and_comes_back(primary: &Server, standby: &mut Server, upper: &mut Looks) {
    standby.stop();
    upper.until("the slot without a reader", |looks| is(looks, "pg.slot.active", 0.0));
    let before = upper.of("pg.replication.streaming").len();
    let gone = upper.of("pg.slot.active").len();
    upper.until("two more looks", |looks| looks.of("pg.slot.active").len() >= gone + 2);
    assert_eq!(upper.of("pg.replication.streaming").len(), before, "a standby that is gone has no points");
    standby.follow(primary, "s1", &[]);
    upper.until("the standby again", |looks| looks.of("pg.replication.streaming").len() > before);
}

fn a_standby_sends_on_and_is_promoted(primary: &Server, standby: &mut Server, lower: &mut Looks) {
    standby.sql("SELECT pg_create_physical_replication_slot('s2', true)");
    standby.stop();
    let mut third = standby.copy();
    standby.follow(primary, "s1", &[]);
    third.follow(standby, "s2", &[]);
    lower.until("a cascade", |looks| looks.labels("pg.replication.sent_bytes", "standby").contains(&"s2".to_owned()));
    let mut lowest = Looks::connect(third.info());
    lowest.until("replay", |looks| !looks.of("pg.wal.replay_bytes").is_empty());
    let (before, below) =
        (last(lower, "pg.wal.replay_bytes").unwrap().epoch, last(&lowest, "pg.wal.replay_bytes").unwrap().epoch);
    standby.sql("SELECT pg_promote()");
    lower.until("a promotion", |looks| looks.event(EventKind::Restart, "promoted").is_some());
    lower.until("another timeline", |looks| is(looks, "pg.wal.timeline", 2.0));
    lower.until("positions of a primary", |looks| {
        looks.of("pg.wal.insert_bytes").last().is_some_and(|point| point.epoch != before)
    });
    standby.sql("INSERT INTO t SELECT generate_series(1, 1000)");
    lowest.until("the timeline followed", |looks| is(looks, "pg.wal.timeline", 2.0));
    lowest.until("another epoch", |looks| {
        looks.of("pg.wal.replay_bytes").last().is_some_and(|point| point.epoch != below)
    });
    no_rate_is_negative(&lowest);
}

/// Of any two neighbouring readings of any counter.
fn no_rate_is_negative(looks: &Looks) {
    for name in
        ["pg.replication.sent_bytes", "pg.replication.replay_bytes", "pg.wal.replay_bytes", "pg.wal.receive_bytes"]
    {
        for pair in looks.of(name).windows(2) {
            assert!(rate_between(&pair[0], &pair[1], 0.0).map_or(true, |rate| rate.per_second >= 0.0), "{name}");
        }
    }
}

#[test]
fn a_slot_that_falls_behind_is_lost_and_one_that_is_dropped_ends() {
    on_each("a_slot_that_falls_behind_is_lost", |bin| {
        let major = Server::empty(bin).major;
        if major < 13 {
            return;
        }
        let server = Server::start(bin, &["max_slot_wal_keep_size=1MB", "max_wal_size=32MB", "min_wal_size=32MB"]);
        server.sql("SELECT pg_create_physical_replication_slot('slow', true); CREATE TABLE t (a int)");
        let mut looks = Looks::connect(server.info());
        looks.until("the slot", |looks| is(looks, "pg.slot.lost", 0.0));
        looks.until("the log is followed", |looks| looks.of("pg.wal.insert_bytes").len() > 4);
        for _ in 0..4 {
            server.sql("INSERT INTO t VALUES (1); SELECT pg_switch_wal()");
        }
        looks.until("WAL may be removed", |looks| {
            is(looks, "pg.slot.unreserved", 1.0) || is(looks, "pg.slot.lost", 1.0)
        });
        server.sql("CHECKPOINT");
        looks.until("WAL lost", |looks| is(looks, "pg.slot.lost", 1.0));
        assert_eq!(is(&looks, "pg.slot.invalidation", 1.0), major >= 17);
        looks.until("its log line", |looks| looks.event(EventKind::Log, "slot").is_some());
        assert!(last(&looks, "pg.wal.oldest_kept_bytes").is_some());
        server.sql("SELECT pg_drop_replication_slot('slow')");
        looks.until("a look without it", |looks| looks.of("pg.wal.timeline").len() >= 3);
        let (slots, others) = (looks.of("pg.slot.lost").len(), looks.of("pg.wal.timeline").len());
        looks.until("two more looks", |looks| looks.of("pg.wal.timeline").len() >= others + 2);
        assert_eq!(looks.of("pg.slot.lost").len(), slots);
    });
}

#[test]
fn archived_positions_and_writes_of_wal() {
    on_each("archived_positions_and_writes_of_wal", |bin| {
        let major = Server::empty(bin).major;
        let mut settings = vec!["archive_mode=on", "archive_command=true"];
        settings.extend(["track_wal_io_timing=on"].iter().filter(|_| major >= 14));
        let server = Server::start(bin, &settings);
        let mut looks = Looks::connect(server.info());
        server.sql("CREATE TABLE t (a int); SELECT pg_switch_wal(); INSERT INTO t SELECT generate_series(1, 1000)");
        looks.until("a segment archived", |looks| !looks.of("pg.archiver.last_archived_bytes").is_empty());
        let upto = last(&looks, "pg.archiver.last_archived_bytes").unwrap().value;
        assert!(upto >= 2.0 * SEGMENT && upto % SEGMENT == 0.0, "{upto}");
        assert!(upto <= last(&looks, "pg.wal.insert_bytes").unwrap().value);
        if major >= 14 {
            for name in ["pg.wal.writes", "pg.wal.write_ms", "pg.wal.sync_ms"] {
                looks.until(name, |looks| {
                    last(looks, name).is_some_and(|point| point.value > 0.0 || name.contains("sync"))
                });
            }
            server.sql("ALTER SYSTEM SET track_wal_io_timing = off");
        }
        assert_eq!(looks.of("pg.wal.syncs").is_empty(), major < 14);
    });
}

#[test]
fn a_role_that_may_see_little_is_told_what() {
    on_each("a_role_that_may_see_little_is_told_what", |bin| {
        let server = Server::start(bin, &[]);
        server.sql("CREATE ROLE plain LOGIN");
        let mut looks = Looks::connect(conninfo(&server.socket_as("plain")));
        looks.until("pg_wal", |looks| looks.event(EventKind::Absent, "pg_ls_waldir").is_some());
        let grant = "GRANT pg_monitor TO \"plain\"";
        assert_eq!(looks.event(EventKind::Absent, "pg_ls_waldir").unwrap().fields["remedy"], grant);
        let carriers = looks.event(EventKind::Absent, "processes that carry WAL").unwrap();
        assert_eq!(carriers.fields["remedy"], grant);
        assert!(looks.samples.iter().all(|sample| !CARRIERS.contains(&sample.backend_type.as_deref().unwrap_or(""))));
        assert!(looks.of("pg.wal.directory_bytes").is_empty());
        looks.until("what all may see", |looks| !looks.of("pg.wal.timeline").is_empty());
        let mut session = Session::open(&server.info()).unwrap();
        let mut own =
            || session.run("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE usename = 'plain'").unwrap();
        let connection = own();
        assert!(connection.is_some());
        // Who does as it is told need not start the recorder anew.
        server.sql(grant);
        looks.until("pg_wal after the grant", |looks| !looks.of("pg.wal.directory_bytes").is_empty());
        looks.until("carriers after the grant", |looks| !seen(looks, "checkpointer").is_empty());
        // What is not seen any more has not ended: it is told once more.
        looks.events.clear();
        server.sql("REVOKE pg_monitor FROM plain");
        // A right that is taken away is heeded when the server is asked next, within a second; nothing fails until then.
        let begun = Instant::now();
        while looks.event(EventKind::Absent, "standbys cannot be seen").is_none() {
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", looks.events);
            looks.look().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let timelines = looks.of("pg.wal.timeline").len();
        looks.until("what all may see, again", |looks| looks.of("pg.wal.timeline").len() > timelines);
        looks.until("pg_ls_waldir", |looks| looks.event(EventKind::Absent, "pg_ls_waldir").is_some());
        assert_eq!(own(), connection, "a server that is full would let nobody in again");
    });
}

#[test]
fn a_base_backup_is_no_standby() {
    on_each("a_base_backup_is_no_standby", |bin| {
        if !bin.join("pg_basebackup").exists() {
            eprintln!("skipped: a_base_backup_is_no_standby: needs pg_basebackup in {}", bin.display());
            return;
        }
        let server = Server::start(bin, &[]);
        server.sql("SELECT pg_create_physical_replication_slot('kept', true)");
        let mut looks = Looks::connect(server.info());
        let mut command = server.command("pg_basebackup");
        // Held to this rate it takes far longer than the looks.
        command
            .args(["-X", "stream", "-c", "fast", "-r", "256k", "-U", "postgres", "-D"])
            .arg(server.dir.path().join("copy"));
        command.arg("-h").arg(server.dir.path()).arg("-p").arg(server.port.to_string());
        let mut backup = command.spawn().unwrap();
        let mut session = Session::open(&server.info()).unwrap();
        let mut streams = || {
            let both = "SELECT count(*) FROM pg_stat_replication WHERE state IN ('backup', 'streaming')";
            session.run(both).unwrap().as_deref() == Some("2")
        };
        looks.until("its stream of WAL", |_| streams());
        let slots = looks.of("pg.slot.active").len();
        looks.until("three more looks", |looks| looks.of("pg.slot.active").len() >= slots + 3);
        assert!(streams(), "it has ended too early to be seen");
        backup.kill().unwrap();
        backup.wait().unwrap();
        let names = looks.labels("pg.replication.streaming", "standby");
        assert!(names.is_empty(), "{names:?}");
    });
}

#[test]
fn a_temporary_slot_gives_no_name() {
    on_each("a_temporary_slot_gives_no_name", |bin| {
        let mut primary = Server::start(bin, &[]);
        if primary.major < 13 {
            return;
        }
        let _standby = primary.standby("s1", &[], &["primary_slot_name=", "wal_receiver_create_temp_slot=on"]);
        let mut upper = Looks::connect(primary.info());
        upper.until("the standby", |looks| is(looks, "pg.replication.streaming", 1.0));
        let mut session = Session::open(&primary.info()).unwrap();
        let slots = session.run("SELECT count(*) FROM pg_replication_slots WHERE temporary AND active").unwrap();
        assert_eq!(slots.as_deref(), Some("1"));
        let names = upper.labels("pg.replication.streaming", "standby");
        assert!(names.iter().all(|name| name == "s1@local"), "{names:?}");
    });
}
