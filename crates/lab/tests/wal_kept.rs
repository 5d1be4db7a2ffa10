//! Time left until WAL that a standby needs is gone, or the primary's volume is full, told on real servers and held beside
//! what then came: WAL kept by a size, by a slot without a limit whose standby is away or goes on, for an archive that
//! fails, and for one that is slow.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "faults/recorder.rs"]
mod recorder;
#[path = "../../probe/tests/postgres/server.rs"]
mod server;
#[path = "kept/volume.rs"]
mod volume;
#[path = "faults/walsender.rs"]
mod walsender;
#[path = "kept/writer.rs"]
mod writer;

use backwater_diagnose::{Holder, Retention, retention, standby_names};
use backwater_model::{Moment, Span, Window, catalogue as cat};
use recorder::{Recorder, last, track};
use server::{Server, installed};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use volume::Volume;
use walsender::Receiver;
use writer::Writer;

/// Rates rest on so many seconds at least when a prediction is judged, and so many lie ahead.
const RATES_S: f64 = 8.0;
/// How fast an archive is that takes 5 s for a segment shows with the third.
const ARCHIVE_RATES_S: f64 = 15.0;
const HORIZON_S: f64 = 8.0;
/// What was asked of the earliest moment while rates are steady.
const WITHIN: f64 = 0.2;
const SEGMENT: f64 = 16.0 * 1024.0 * 1024.0;

/// One at a time: each is about when something comes, and would have the other wait.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a test on some of the servers that there are, one after the other.
fn on(name: &str, servers: &[PathBuf], test: impl Fn(&Path)) {
    if servers.is_empty() {
        eprintln!("skipped: {name}: needs PostgreSQL (postgres and initdb on PATH, or BACKWATER_PG_BIN)");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for bin in servers {
        eprintln!("{name}: {}", bin.display());
        test(bin);
    }
}

/// On the newest: a volume fills alike on all.
fn on_newest_with_volume(name: &str, test: impl Fn(&Path)) {
    if rustix::process::geteuid().is_root() {
        on(name, &installed().split_off(installed().len().saturating_sub(1)), test);
    } else {
        eprintln!("skipped: {name}: needs root (a volume on a loop device)");
    }
}

/// What was told of this standby each second since the writer began, from nothing but what was known then.
fn told(window: &Window, primary: &str, standby: &str, since: Moment) -> Vec<(Moment, Retention)> {
    let told = |known: Window| Some((known.to, retention(&known, primary, standby, known.to)?));
    window.slice(since, window.to).as_it_grew(Span::from_seconds(1.0)).filter_map(told).collect()
}

/// Holds what was told of the earliest moment beside the one that came.
fn earliest_is_told(told: &[(Moment, Retention)], holder: Holder, steady: Moment, came: Moment) {
    let judged = |(at, _): &&(Moment, Retention)| *at >= steady && came.seconds_since(*at) >= HORIZON_S;
    let judged: Vec<_> = told.iter().filter(judged).collect();
    assert!(judged.len() >= 3, "too few to judge: {} of {}", judged.len(), told.len());
    let mut worst = 0.0_f64;
    for (at, told) in &judged {
        let left_s = came.seconds_since(*at);
        let said_s = told.earliest_s.unwrap_or_else(|| panic!("nothing told {left_s:.1} s ahead: {told:?}"));
        assert_eq!(told.holder, holder, "{left_s:.1} s ahead: {told:?}");
        worst = worst.max((said_s - left_s).abs() / left_s);
        eprintln!("  {left_s:.1} s ahead: {said_s:.1} s told");
    }
    eprintln!("  the earliest moment is told {:.1} % off at most, {} times", worst * 100.0, judged.len());
    assert!(worst <= WITHIN, "{:.1} % off", worst * 100.0);
}

/// Runs a primary whose WAL lies on a small volume until that is full, which stops it.
fn until_full(
    bin: &Path,
    settings: &[&str],
    standby_of: impl Fn(&Server) -> Option<Receiver>,
    (slot, steady_s): (Option<&str>, f64),
) {
    let volume = Volume::of_mib(360);
    let mut server = Server::start(bin, &[]);
    server.stop();
    volume.take_in(&server.data().join("pg_wal"), &server);
    server.start_again(&[&["max_wal_size=64MB", "min_wal_size=32MB"], settings].concat());
    let receiver = standby_of(&server);
    let mut recorder = Recorder::of(vec![server.socket()]);
    let primary = recorder.name(0);
    recorder.until("free space", |window| window.tracks(cat::VOLUME_FREE.name, &[]).next().is_some());
    let writer = Writer::on(&server);
    let since = backwater_probe::now();
    recorder.until("the end of the server", |_| writer.ended().is_some());
    let full = writer.ended().unwrap();
    let window = recorder.end();
    drop(receiver);
    let log = std::fs::read_to_string(server.dir.path().join("log")).unwrap();
    assert!(log.contains("No space left on device"), "{log}");
    server.crash();
    let name = slot.map_or_else(|| standby_names(&window, &primary).remove(0), str::to_owned);
    earliest_is_told(&told(&window, &primary, &name, since), Holder::Disk, since + Span::from_seconds(steady_s), full);
}

#[test]
fn a_slot_without_a_limit_is_counted_down_to_the_full_volume() {
    on_newest_with_volume("a_slot_without_a_limit_is_counted_down_to_the_full_volume", |bin| {
        let slot = |server: &Server| {
            server.sql("SELECT pg_create_physical_replication_slot('s', true)");
            None
        };
        until_full(bin, &[], slot, (Some("s"), RATES_S));
    });
}

#[test]
fn a_slot_that_goes_on_is_counted_down_to_the_full_volume() {
    on_newest_with_volume("a_slot_that_goes_on_is_counted_down_to_the_full_volume", |bin| {
        until_full(bin, &[], goes_on_slowly, (Some("s"), RATES_S));
    });
}

/// A standby that takes a third of what is made, by a slot.
fn goes_on_slowly(server: &Server) -> Option<Receiver> {
    server.sql("SELECT pg_create_physical_replication_slot('s', true)");
    let (socket, start) = head_of(server);
    Some(Receiver::slow(&socket, "s", &start, 4e6))
}

/// A standby without a slot that keeps up: nothing but the archive keeps its WAL.
fn keeps_up(server: &Server) -> Option<Receiver> {
    let (socket, start) = head_of(server);
    Some(Receiver::start(&socket, "r", &start))
}

/// Where the server listens, and how far its WAL goes.
fn head_of(server: &Server) -> (PathBuf, String) {
    let start = server::Session::open(&server.info()).unwrap().run("SELECT pg_current_wal_flush_lsn()");
    (server.dir.path().join(format!(".s.PGSQL.{}", server.port)), start.unwrap().unwrap())
}

#[test]
fn an_archive_that_fails_is_counted_down_to_the_full_volume() {
    on_newest_with_volume("an_archive_that_fails_is_counted_down_to_the_full_volume", |bin| {
        until_full(bin, &["archive_mode=on", "archive_command=false"], keeps_up, (None, RATES_S));
    });
}

#[test]
fn an_archive_that_is_slow_is_counted_down_to_the_full_volume() {
    on_newest_with_volume("an_archive_that_is_slow_is_counted_down_to_the_full_volume", |bin| {
        until_full(bin, &["archive_mode=on", "archive_command=sleep 5"], keeps_up, (None, ARCHIVE_RATES_S));
    });
}

#[test]
fn a_size_is_counted_down_to_the_checkpoint_that_removes() {
    // The oldest keeps segments, the newest bytes.
    let mut servers = installed();
    let newest = servers.split_off(servers.len().saturating_sub(1));
    let two: Vec<PathBuf> = servers.into_iter().take(1).chain(newest).collect();
    on("a_size_is_counted_down_to_the_checkpoint_that_removes", &two, |bin| {
        let mut server = Server::start(bin, &[]);
        let kept = if server.major >= 13 { "wal_keep_size=256MB" } else { "wal_keep_segments=16" };
        server.stop();
        server.start_again(&["max_wal_size=64MB", "min_wal_size=32MB", kept]);
        let receiver = keeps_up(&server);
        let mut recorder = Recorder::of(vec![server.socket()]);
        let primary = recorder.name(0);
        recorder.until("the standby", |window| !standby_names(window, &primary).is_empty());
        let _writer = Writer::on(&server);
        let since = backwater_probe::now();
        recorder.go_on(2.0);
        drop(receiver);
        let standby = standby_names(&recorder.window(), &primary).remove(0);
        let needed = |window: &Window| {
            let flushed = window.tracks(cat::PG_REPL_FLUSH.name, &[]).find_map(|track| track.last());
            (flushed.unwrap() / SEGMENT).floor() * SEGMENT
        };
        recorder.until("the removal", |window| {
            last(window, cat::PG_WAL_OLDEST_KEPT.name, &primary).is_some_and(|oldest| oldest > needed(window))
        });
        let window = recorder.end();
        let needed = needed(&window);
        // The head enters the segment from which the one that is needed is no longer kept.
        let head = track(&window, cat::PG_WAL_INSERT.name, &primary).unwrap();
        let last_kept = needed + 17.0 * SEGMENT;
        let passed = head.points.iter().find(|point| point.value >= last_kept).unwrap().at;
        let told = told(&window, &primary, &standby, since);
        let steady = since + Span::from_seconds(RATES_S);
        earliest_is_told(&told, Holder::KeepSize, steady, passed);
        let oldest = track(&window, cat::PG_WAL_OLDEST_KEPT.name, &primary).unwrap().points.to_vec();
        let gone = oldest.iter().position(|point| point.value > needed).unwrap();
        removal_is_told(&told, (oldest[gone - 1].at, oldest[gone].at), steady, passed);
    });
}

/// Holds what was told of the removal beside the two readings between which it came: within one checkpoint.
fn removal_is_told(told: &[(Moment, Retention)], came: (Moment, Moment), steady: Moment, passed: Moment) {
    let mut worst = 0.0_f64;
    for (at, told) in told {
        if *at < steady || passed.seconds_since(*at) < HORIZON_S {
            continue;
        }
        let [soonest_s, latest_s] = [came.0, came.1].map(|came| came.seconds_since(*at));
        let said_s = told.removal_s.unwrap_or_else(|| panic!("no removal told {soonest_s:.1} s ahead: {told:?}"));
        let off_s = (soonest_s - said_s).max(said_s - latest_s).max(0.0);
        worst = worst.max(off_s / told.checkpoint_interval_s.unwrap());
    }
    eprintln!("  the removal is told {worst:.2} checkpoints off at most");
    assert!(worst <= 1.0, "{worst:.2} checkpoints off");
}
