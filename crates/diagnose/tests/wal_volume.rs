//! How long until the volume of WAL is full, and whether that or another limit comes first: predicted from the first readings,
//! compared with what the plant then does.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Holder, Options, Retention, replication_queues, retention, warn};
use backwater_model::{Finding, Span, catalogue as cat};
use common::judged::diagnose;
use common::wal_plant::{Keep, MIB, S, START_S, WalPlant, at, narrow, run, until};

/// That a finding tells of a full volume in so many seconds, and not of WAL that is removed.
fn tells_of_a_full_volume(finding: &Finding, left_s: f64) {
    assert_eq!((finding.figure("retention_left_s"), finding.figure("removal_left_s")), (None, None), "{finding:?}");
    let full = finding.evidence.iter().find(|figure| figure.name == "full_left_s").unwrap();
    assert!((full.value / left_s - 1.0).abs() <= 0.2, "{full:?} for {left_s}");
    assert_eq!(full.label, "until the volume of WAL is full and the primary stops");
    assert!(!finding.summary.contains("remove"), "{}", finding.summary);
}

/// 20 GiB are free, and a slot without a limit keeps everything.
fn endless() -> WalPlant {
    WalPlant { keep: Keep::Slot(None), ..narrow() }
}

#[test]
fn a_standby_that_lags_behind_a_slot_without_a_limit_fills_the_volume() {
    let (window, _) = run(&endless());
    let findings = diagnose(&until(&window, 40.0), &Options::default());
    let narrow = findings.iter().find(|finding| finding.rule == "network-narrow").unwrap();
    tells_of_a_full_volume(narrow, 20.0 * 1024.0 / 9.0);
}

/// What the slot lets go leaves its space to what comes, also since the free space was last read.
#[test]
fn a_slot_that_goes_on_fills_the_volume_by_what_it_keeps() {
    let plant = WalPlant { free: 1024.0 * MIB, ..endless() };
    let (window, states) = run(&plant);
    let full = states.iter().position(|state| state.allocated() > plant.free).unwrap() as f64;
    for known in window.as_it_grew(Span::from_seconds(1.0)) {
        let second = known.to.seconds_since(at(0.0));
        if second < 22.0 || full - second < 10.0 {
            continue;
        }
        let told = retention(&known, "primary", "s1", known.to).unwrap();
        assert_eq!(told.holder, Holder::Disk);
        let (left, truth) = (told.earliest_s.unwrap(), full - second);
        assert!((left / truth - 1.0).abs() <= 0.2, "at {second}: {left} for {truth}");
    }
}

#[test]
fn a_standby_that_is_away_from_a_slot_without_a_limit_fills_the_volume() {
    let (window, _) = run(&WalPlant { link: None, away: Some((10.0, 1e9)), ..endless() });
    let findings = diagnose(&until(&window, 40.0), &Options::default());
    let of = |rule: &str| findings.iter().find(|finding| finding.rule == rule).unwrap();
    for finding in [of("standby-gone"), of("slot-inactive")] {
        tells_of_a_full_volume(finding, 20.0 * 1024.0 / 12.0);
        assert!(finding.summary.contains("the volume of WAL is full, and the primary stops"), "{}", finding.summary);
    }
    let titles: Vec<&str> = of("standby-gone").remedies.iter().map(|remedy| remedy.title.as_str()).collect();
    assert!(!titles.iter().any(|title| title.starts_with("Keep")), "{titles:?}");
}

#[test]
fn the_warning_of_a_slot_without_a_limit_is_of_the_volume() {
    let (window, _) = run(&endless());
    let warnings = warn(&until(&window, 40.0), 30.0);
    let early = warnings.iter().find(|finding| finding.rule == "wal-removed").unwrap();
    tells_of_a_full_volume(early, 20.0 * 1024.0 / 9.0);
    assert!(early.summary.contains("the volume of WAL is full and the primary stops"), "{}", early.summary);
    assert!(early.remedies[0].title.starts_with("Make room"), "{:?}", early.remedies);
}

/// What holds WAL at a second, how far its level may grow, and how long that takes; the queue, where its level is known, must show
/// the same limit, but for parts of segments, and what was made since the free space was read.
fn held(plant: &WalPlant, second: f64) -> (Holder, f64, Option<f64>) {
    let window = until(&run(plant).0, second);
    let told = retention(&window, "primary", plant.name(), at(second)).unwrap();
    let queue = replication_queues(&window).into_iter().find(|queue| queue.name.contains("retained")).unwrap();
    let (queue, limit) = (queue.read(&window, at(second), 3.0), told.limit_bytes.unwrap());
    if queue.level.is_some() {
        let shown = queue.hard_limit.unwrap();
        let made = if told.holder == Holder::Disk { 5.0 * told.inflow_bytes_per_s } else { 0.0 };
        assert!((limit - 16.0 * MIB..=limit + 16.0 * MIB + made).contains(&shown), "{told:?}: the queue shows {shown}");
    }
    assert!(told.holder != Holder::Disk || told.removal_s.is_none(), "{told:?}");
    (told.holder, limit / MIB, told.end_s())
}

#[test]
fn the_nearer_of_two_limits_counts() {
    let near = |told: f64, truth: f64| assert!((told / truth - 1.0).abs() <= 0.2, "{told} for {truth}");
    let away = WalPlant { link: None, away: Some((10.0, 1e9)), free: 2048.0 * MIB, ..narrow() };
    // The slot may keep 500 GB, and 2 GiB are free.
    let (holder, limit, left) = held(&WalPlant { keep: Keep::Slot(Some(500e9)), ..away.clone() }, 40.0);
    assert_eq!(holder, Holder::Disk);
    near(limit, 2048.0);
    near(left.unwrap(), (2048.0 - 64.0 - 480.0) / 12.0);
    // The same by wal_keep_size; it fills the volume whether its standby reads or not.
    for plant in [away.clone(), WalPlant { free: 2048.0 * MIB, ..narrow() }] {
        let (holder, limit, left) = held(&WalPlant { keep: Keep::Size(500e9), ..plant }, 40.0);
        assert_eq!(holder, Holder::Disk);
        near(limit, 2048.0);
        near(left.unwrap(), (2048.0 - 64.0 - 480.0) / 12.0);
    }
    // There is room for 512 MiB.
    assert_eq!(held(&WalPlant { keep: Keep::Slot(Some(512.0 * MIB)), ..away.clone() }, 30.0).0, Holder::Slot);
    assert_eq!(held(&away, 30.0).0, Holder::KeepSize);
}

/// What a size keeps already lies on the volume: however little is free, the standby's lag takes no more of it.
#[test]
fn a_size_that_is_kept_already_needs_no_room() {
    let plant = WalPlant { seconds: 100.0, link: None, away: Some((90.0, 1e9)), free: 640.0 * MIB, ..narrow() };
    let (window, states) = run(&plant);
    assert!(states.last().unwrap().oldest > states[0].oldest, "WAL before what is kept was removed");
    let free = window.track("host.volume.free_bytes", &[("dev", "7:0")]).unwrap().last().unwrap();
    assert!(free < 128.0 * MIB, "{free}");
    assert_eq!(held(&plant, 98.0).0, Holder::KeepSize);
}

#[test]
fn an_archive_holds_what_it_lacks() {
    let away = WalPlant { link: None, away: Some((10.0, 1e9)), ..narrow() };
    // It has stood still since before the standby went: nothing is removed, and the volume fills.
    let (holder, limit, left) = held(&WalPlant { archiver: Some(0.0), ..away.clone() }, 40.0);
    assert_eq!(holder, Holder::Disk);
    assert!((limit / (20.0 * 1024.0) - 1.0).abs() < 0.05, "{limit}");
    let truth = (20.0 * 1024.0 - 64.0 - 480.0) / 12.0;
    assert!((left.unwrap() / truth - 1.0).abs() < 0.1, "{left:?} for {truth}");
    // One that goes on at two thirds of the rate takes three times as long.
    let late = WalPlant { archiver: Some(8.0 * MIB), link: Some(11.0 * MIB), ..narrow() };
    let (holder, _, left) = held(&late, 40.0);
    assert_eq!(holder, Holder::Disk);
    assert!((left.unwrap() / (3.0 * truth) - 1.0).abs() < 0.4, "{left:?} for {}", 3.0 * truth);
    // One that is up to date has what is needed, and holds nothing.
    let (holder, limit, left) = held(&WalPlant { archiver: Some(100.0 * MIB), ..away }, 40.0);
    assert_eq!((holder, left.is_some()), (Holder::KeepSize, true));
    assert!((limit - 520.0).abs() <= 16.0, "{limit}");
    // Beside a standby that keeps up it is never done with the segment that is being written; that fills nothing.
    let healthy = WalPlant { archiver: Some(100.0 * MIB), link: None, ..narrow() };
    assert_eq!(held(&healthy, 40.0).2, None);
}

/// What is told forty seconds into a run with an archive that never had a segment, after so many attempts that failed, and the
/// limit that the queue shows.
fn without_success(failed: f64) -> (Retention, Option<f64>) {
    let plant = WalPlant { archiver: Some(0.0), ..narrow() };
    let mut readings = plant.readings();
    readings.forget(cat::PG_ARCHIVED_UPTO.name);
    for second in 0..=40 {
        let (own, at) = ([("target", "primary")], START_S + f64::from(second));
        readings.put(&cat::PG_ARCHIVED, &own, at, 0.0);
        readings.put(&cat::PG_ARCHIVE_FAILED, &own, at, failed);
    }
    let window = until(&readings.window(plant.meta(), START_S, START_S + plant.seconds), 40.0);
    let queue = replication_queues(&window).into_iter().find(|queue| queue.name.contains("retained")).unwrap();
    let limit = queue.read(&window, at(40.0), 3.0).hard_limit;
    (retention(&window, "primary", S, at(40.0)).unwrap(), limit)
}

#[test]
fn an_archive_that_never_had_a_segment_holds_all_or_nobody_knows() {
    let (failing, limit) = without_success(3.0);
    assert_eq!((failing.holder, failing.removal_s), (Holder::Disk, None));
    let truth = (20.0 * 1024.0 - 64.0 - 480.0) / 12.0;
    assert!((failing.end_s().unwrap() / truth - 1.0).abs() < 0.1, "{failing:?} for {truth}");
    assert!((limit.unwrap() / failing.limit_bytes.unwrap() - 1.0).abs() < 0.01, "{limit:?} {failing:?}");
    // Nothing has failed: it may be new, or its counters were reset.
    let (unseen, limit) = without_success(0.0);
    assert_eq!((unseen.limit_bytes, unseen.earliest_s, unseen.removal_s, limit), (None, None, None, None));
    // A standby archives by `always` alone.
    let cascading = WalPlant { archiver: Some(0.0), cascading: true, see_standby: false, ..narrow() };
    assert_eq!(held(&cascading, 40.0).0, Holder::KeepSize);
}
