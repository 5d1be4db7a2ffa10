//! What counts as having happened, on readings made by hand.

use super::*;
use crate::blind::draw::{Dice, Draw};
use crate::blind::setup::{Capacity, resolve};
use crate::scenario::{LoadKind, LoadPart, Scenario};
use crate::workloads::{Driven, LoadResult};
use backwater_model::{Epoch, Meta, Moment, Point, Series, SeriesId};
use std::sync::Arc;

/// Seconds of load in these tests, after four in which nothing is done.
const LOAD_S: i64 = 20;
const BEFORE_S: i64 = 4;

fn at(seconds: i64) -> Moment {
    Moment(seconds * 1_000_000)
}

/// A counter that grows by so much a second from the beginning of the load.
fn growing(series: Series, per_s: f64) -> (Arc<Series>, Vec<Point>) {
    let point = |second: i64| Point {
        at: at(second),
        series: SeriesId(0),
        epoch: Epoch(1),
        value: 1e9 + per_s * (second - BEFORE_S).max(0) as f64,
        as_of: None,
    };
    (Arc::new(series), (0..=BEFORE_S + LOAD_S).map(point).collect())
}

fn window(series: Vec<(Arc<Series>, Vec<Point>)>) -> Window {
    let meta = Arc::new(Meta::default());
    Window::new(at(0), at(BEFORE_S + LOAD_S), meta, series, Vec::new(), Vec::new())
}

fn acted(completed: u64, never_started: u64) -> Acted {
    let result = LoadResult { seconds: LOAD_S as f64, completed, never_started, ..LoadResult::default() };
    Acted {
        from: at(0),
        load_start: at(BEFORE_S),
        to: at(BEFORE_S + LOAD_S),
        driven: Driven::from(result),
        calm: None,
        standby_is_dead: false,
        primary: "p".to_owned(),
        standby: Some("s".to_owned()),
        device: Some("7:0".to_owned()),
        standby_device: Some("7:1".to_owned()),
    }
}

fn setup(deed: Deed) -> Setup {
    let capacity = Capacity { call_bytes: 8e6, call_s: 0.2, tps: 1e3, ..Capacity::default() };
    let dice = Dice { load: 0.5, hold: 0.5, second: 0.5, clients: 0.5, moment: 0.5, choice: 0.5 };
    let part: LoadPart =
        Scenario::load("wal-lag").map(|scenario| scenario.load).unwrap_or_else(|error| panic!("{error}"));
    resolve(&Draw { number: 1, deed, dice }, &capacity, &part, LOAD_S as f64)
}

fn primary(def: &catalogue::Def, per_s: f64) -> (Arc<Series>, Vec<Point>) {
    growing(def.series(&[("target", "p")]), per_s)
}

fn known_of_standby(def: &catalogue::Def, per_s: f64) -> (Arc<Series>, Vec<Point>) {
    growing(def.series(&[("target", "p"), ("standby", "s")]), per_s)
}

fn written(dev: &str, per_s: f64) -> (Arc<Series>, Vec<Point>) {
    growing(catalogue::DISK_WRITTEN_BYTES.series(&[("dev", dev)]), per_s)
}

#[test]
fn a_cap_binds_where_it_is_reached_and_the_load_falls() {
    let setup = setup(Deed::PrimaryCapped);
    let cap = setup.arm.write_bytes_per_s.map_or(0.0, |bytes| bytes.0 as f64);
    let asked = setup.wal_bytes_per_s;
    let happened = |written_per_s, made_per_s| {
        let window = window(vec![written("7:0", written_per_s), primary(&catalogue::PG_WAL_INSERT, made_per_s)]);
        accept(Deed::PrimaryCapped, &setup, &acted(5, 15), &window)
    };
    assert!(happened(0.95 * cap, 0.3 * asked).happened);
    // All that was asked for was made; or something else than the cap was in the way.
    assert!(!happened(0.95 * cap, asked).happened);
    assert!(!happened(0.2 * cap, 0.3 * asked).happened);
    assert!(happened(0.95 * cap, 0.3 * asked).because.contains("30 % of the WAL"));
}

#[test]
fn a_standby_is_capped_where_its_volume_is_full_and_it_falls_behind() {
    let setup = setup(Deed::StandbyCapped);
    let cap = setup.arm.standby.write_bytes_per_s.map_or(0.0, |bytes| bytes.0 as f64);
    let asked = setup.wal_bytes_per_s;
    let happened = |written_per_s, flushed_per_s| {
        let head = primary(&catalogue::PG_WAL_INSERT, asked);
        let there = known_of_standby(&catalogue::PG_REPL_FLUSH, flushed_per_s);
        accept(Deed::StandbyCapped, &setup, &acted(20, 0), &window(vec![written("7:1", written_per_s), head, there]))
    };
    assert!(happened(cap, 0.3 * asked).happened);
    assert!(!happened(cap, 0.99 * asked).happened);
    assert!(!happened(0.1 * cap, 0.3 * asked).happened);
}

#[test]
fn a_network_is_narrow_where_it_is_full_and_wal_waits() {
    let setup = setup(Deed::NetworkNarrow);
    let limit = setup.arm.network.bytes_per_s.map_or(0.0, |bytes| bytes.0 as f64);
    let happened = |arrived_per_s| {
        let head = primary(&catalogue::PG_WAL_INSERT, setup.wal_bytes_per_s);
        let there = known_of_standby(&catalogue::PG_REPL_WRITE, arrived_per_s);
        accept(Deed::NetworkNarrow, &setup, &acted(20, 0), &window(vec![head, there])).happened
    };
    assert!(happened(0.95 * limit));
    // More than may pass: then the limit was not in force. Far less: then something else was in the way.
    assert!(!happened(1.5 * limit) && !happened(0.3 * limit));
}

#[test]
fn replay_stands_where_most_of_what_was_made_is_not_replayed() {
    let setup = setup(Deed::ReplayPaused);
    let happened = |replayed_per_s| {
        let head = primary(&catalogue::PG_WAL_INSERT, 5e6);
        let there = known_of_standby(&catalogue::PG_REPL_REPLAY, replayed_per_s);
        accept(Deed::ReplayPaused, &setup, &acted(20, 0), &window(vec![head, there])).happened
    };
    assert!(happened(0.0) && !happened(4e6));
}

#[test]
fn a_healthy_run_got_what_it_asked_for() {
    let setup = setup(Deed::Steady);
    assert_eq!(setup.load.kind, LoadKind::WalStorm);
    let happened = |completed, never_started, flushed: f64| {
        let head = primary(&catalogue::PG_WAL_INSERT, setup.wal_bytes_per_s);
        let there = known_of_standby(&catalogue::PG_REPL_FLUSH, flushed * setup.wal_bytes_per_s);
        accept(Deed::Steady, &setup, &acted(completed, never_started), &window(vec![head, there])).happened
    };
    assert!(happened(20, 0, 1.0));
    assert!(!happened(12, 8, 1.0));
    assert!(!happened(20, 0, 0.5));
    // Nothing due is nothing missed.
    assert!(happened(0, 0, 1.0));
}

#[test]
fn what_could_not_be_read_did_not_happen() {
    for deed in Deed::deck(crate::scenario::ServerKind::Postgres, false) {
        let nothing = accept(deed, &setup(deed), &acted(1_000_000, 0), &window(Vec::new()));
        assert!(!nothing.happened, "{deed:?}: {}", nothing.because);
    }
}

/// A series by its value at each tenth of a second.
fn each_tenth(series: Series, value: impl Fn(i64) -> f64) -> (Arc<Series>, Vec<Point>) {
    let point = |tenth: i64| Point {
        at: Moment(tenth * 100_000),
        series: SeriesId(0),
        epoch: Epoch(1),
        value: value(tenth),
        as_of: None,
    };
    (Arc::new(series), (0..=10 * (BEFORE_S + LOAD_S)).map(point).collect())
}

/// A counter of the engine's volume.
fn of_volume(def: &catalogue::Def) -> Series {
    def.series(&[("dev", "7:0")])
}

#[test]
fn a_run_on_a_volume_that_stood_still_by_itself_proves_nothing() {
    let setup = setup(Deed::EngineSteady);
    let judged = |stands: std::ops::Range<i64>, busy: bool| {
        let still = |tenth: i64| (tenth.min(stands.end) - stands.start).max(0);
        let written =
            each_tenth(of_volume(&catalogue::DISK_WRITTEN_BYTES), |tenth| 1e5 * (tenth - still(tenth)) as f64);
        let busy_ms =
            each_tenth(
                of_volume(&catalogue::DISK_BUSY_MS),
                |tenth| if busy { 99.0 * still(tenth) as f64 } else { 0.0 },
            );
        accept(Deed::EngineSteady, &setup, &acted(20, 0), &window(vec![written, busy_ms]))
    };
    assert!(judged(100..115, true).happened, "a second and a half");
    assert!(judged(100..150, false).happened, "held back before it, as by a cap");
    let stood = judged(100..150, true);
    assert!(!stood.happened && stood.because.contains("stood still for 5.0 s"), "{}", stood.because);
}

#[test]
fn a_checkpoint_is_to_blame_only_where_the_journal_has_room_without_it() {
    let mut setup = setup(Deed::EngineSteady);
    setup.arm.write_bytes_per_s = crate::blind::setup::rate(10e6);
    let mut acted = Acted { driven: Driven::from(taking(900)), ..acted(0, 0) };
    acted.driven.result.completed = 1_000;
    // A checkpoint of two seconds in each five, at the cap; so much a second between.
    let judged = |between: f64, checkpoints: bool| {
        let runs = |tenth: i64| tenth % 50 < 20;
        let written_by = |tenth: i64| (0..tenth).map(|past| if runs(past) { 1e6 } else { between / 10.0 }).sum();
        let written = each_tenth(of_volume(&catalogue::DISK_WRITTEN_BYTES), written_by);
        let running = catalogue::WT_CHECKPOINT_RUNNING.series(&[("target", "p")]);
        let running = each_tenth(running, |tenth| f64::from(u8::from(runs(tenth))));
        let series = [written].into_iter().chain(checkpoints.then_some(running)).collect();
        accept(Deed::EngineCheckpoint, &setup, &acted, &window(series))
    };
    let room = judged(3e6, true);
    assert!(room.happened && room.because.contains("allowed between checkpoints"), "{}", room.because);
    assert!(!judged(9e6, true).happened, "the journal alone is at the cap");
    assert!(!judged(3e6, false).happened, "no checkpoint was seen");
}

#[test]
fn an_expiry_is_felt_where_nothing_held_up_operations_before_it() {
    let mut setup = setup(Deed::EngineSteady);
    setup.load.engine.documents = 1_000;
    setup.load.engine.expire_s = Some([10.0, 11.0]);
    let felt = |before_ms: f64, p99_ms: u64, deleted: f64| {
        let mut acted = Acted { driven: Driven::from(taking(p99_ms)), ..acted(0, 0) };
        acted.driven.figures.insert("ttl_deleted".to_owned(), deleted);
        // A hundred operations a second, so long each until the first document expires, and seconds after that.
        let before = |tenth: i64| tenth.min(10 * (BEFORE_S + 10)) as f64;
        let took_us = |tenth: i64| 1e4 * (before_ms * before(tenth) + 5e3 * (tenth as f64 - before(tenth)));
        let took = each_tenth(catalogue::LOAD_LATENCY_US.series::<&str>(&[]), took_us);
        let done = each_tenth(catalogue::LOAD_COMPLETED.series::<&str>(&[]), |tenth| 10.0 * tenth as f64);
        accept(Deed::EngineExpiry, &setup, &acted, &window(vec![took, done]))
    };
    let one = felt(5.0, 3_000, 1_000.0);
    assert!(one.happened && one.because.contains("before that 5 ms on average"), "{}", one.because);
    assert!(!felt(700.0, 3_000, 1_000.0).happened, "they waited before it");
    assert!(!felt(5.0, 80, 1_000.0).happened, "nobody feels it");
    assert!(!felt(5.0, 3_000, 100.0).happened, "it has hardly begun");
}

#[test]
fn a_held_snapshot_costs_something_where_its_history_fills_the_cache() {
    let setup = setup(Deed::EngineHeldSnapshot);
    let judged = |pinned: f64, dirty_ratio: f64| {
        let end = (10 * (BEFORE_S + LOAD_S)) as f64;
        let grows = |def: &catalogue::Def, to: f64| {
            each_tenth(def.series(&[("target", "p")]), move |tenth| to * tenth as f64 / end)
        };
        let size = each_tenth(catalogue::WT_CACHE_MAX.series(&[("target", "p")]), |_| 1e9);
        let series =
            vec![grows(&catalogue::WT_PINNED_IDS, pinned), grows(&catalogue::WT_CACHE_DIRTY, dirty_ratio * 1e9), size];
        accept(Deed::EngineHeldSnapshot, &setup, &acted(1_000, 0), &window(series))
    };
    let one = judged(1_000.0, 0.21);
    assert!(one.happened && one.because.contains("IDs pinned after 1000 operations"), "{}", one.because);
    assert!(!judged(100.0, 0.21).happened, "it was not held");
    assert!(!judged(1_000.0, 0.08).happened, "it cost nothing");
    let unread = accept(Deed::EngineHeldSnapshot, &setup, &acted(1_000, 0), &window(Vec::new()));
    assert!(!unread.happened, "{}", unread.because);
}

/// A load whose operations all took so long.
fn taking(ms: u64) -> LoadResult {
    let mut result = LoadResult { completed: 1_000, ..LoadResult::default() };
    result.latency.record(std::time::Duration::from_millis(ms));
    result
}

#[test]
fn threads_are_felt_where_a_pool_did_the_same_with_ease() {
    let setup = setup(Deed::EngineThreads);
    let felt = |pooled_ms, ms| {
        let mut acted = Acted { calm: Some(taking(pooled_ms)), ..acted(0, 0) };
        acted.driven = Driven::from(taking(ms));
        acted.driven.figures.insert("threads_made".to_owned(), 1_000.0);
        accept(Deed::EngineThreads, &setup, &acted, &window(Vec::new())).happened
    };
    assert!(felt(1, 3_000) && felt(80, 3_000));
    assert!(!felt(80, 120), "not felt");
    assert!(!felt(1_000, 4_000), "the pool was held up before");
}
