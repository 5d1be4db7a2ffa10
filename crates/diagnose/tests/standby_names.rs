//! Standbys that are there, or are to be away, while their rows or others' words look like a loss: none is accused.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Options, warn};
use backwater_model::{Event, EventKind, Finding, Moment, Series, Window, catalogue as cat};
use common::Readings;
use common::judged::{diagnose, names};
use common::wal_plant::{Keep, MIB, START_S, WalPlant};

const S: &str = "walreceiver@10.0.0.2";
const EVER: f64 = 1e9;
const S1: [(&str, &str); 2] = [("target", "primary"), ("slot", "s1")];

fn at(second: f64) -> Moment {
    Moment::from_seconds(START_S + second)
}

fn whole(plant: &WalPlant, readings: Readings) -> Window {
    readings.window(plant.meta(), START_S, START_S + plant.seconds)
}

fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options::default())
}

/// What is said of standbys that are lost, now or soon.
fn losses(window: &Window) -> Vec<String> {
    let mut list = found(window);
    list.extend(warn(window, 30.0));
    list.retain(|finding| ["standby-gone", "wal-removed"].contains(&finding.rule.as_str()));
    names(&list)
}

/// WAL is recycled soon; what the log says of that is left out.
fn recycled(away: Option<(f64, f64)>) -> WalPlant {
    let keep = Keep::Size(64.0 * MIB);
    WalPlant { seconds: 60.0, keep, max_wal: 96.0 * MIB, see_standby: false, away, ..WalPlant::default() }
}

/// The readings that a test keeps, by their series and second.
fn sifted(mut readings: Readings, keep: impl Fn(&Series, f64) -> bool) -> Readings {
    let (samples, events) = (std::mem::take(&mut readings.samples), std::mem::take(&mut readings.events));
    let mut kept = Readings::default();
    for (series, points) in readings.into_series() {
        let def = cat::ALL.iter().find(|def| def.name == series.name).unwrap();
        let labels: Vec<(&'static str, &str)> =
            def.labels.iter().filter_map(|label| Some((*label, series.labels.get(label)?))).collect();
        for point in points.into_iter().filter(|point| keep(&series, point.at.seconds() - START_S)) {
            kept.push(def, &labels, point);
        }
    }
    (kept.samples, kept.events) = (samples, events);
    kept
}

/// The plant's readings with rows of these names and walsenders, each from one second to another, instead of its standby's.
fn rows(plant: &WalPlant, stretches: &[(f64, f64, &str, i64)]) -> Readings {
    let others =
        |series: &Series, _: f64| !series.name.starts_with("pg.replication.") && !series.name.starts_with("host.tcp.");
    let mut readings = sifted(plant.readings(), others);
    readings.events.retain(|event| !event.message.contains("requested WAL segment"));
    for (from, to, name, pid) in stretches {
        readings.adopt(sifted(plant.readings(), |_, second| (*from..*to).contains(&second)), name, *pid);
    }
    readings
}

fn line(second: f64) -> Event {
    let text = "requested WAL segment 000000010000000000000040 has already been removed";
    Event::new(at(second), "primary", EventKind::Log, text, &[("severity", "ERROR")])
}

#[test]
fn who_streams_has_not_lost_its_wal() {
    let plant = WalPlant::default();
    let mut readings = plant.readings();
    // A standby that went before the window began tries again every five seconds, and is never read.
    readings.events.extend((1..=8).map(|n| line(f64::from(n) * 5.0)));
    let window = whole(&plant, readings);
    for second in [6.0, 10.0, 11.0, 14.9, 20.0, 33.0, 40.0] {
        let part = window.slice(window.from, at(second));
        assert_eq!(names(&found(&part)), ["wal-removed segment-removed pg.wal.retained@primary"], "{second}");
    }
}

#[test]
fn who_came_back_had_asked_and_is_named_only_while_it_is_away() {
    let plant = WalPlant { away: Some((10.0, 20.0)), ..WalPlant::default() };
    let mut readings = plant.readings();
    readings.events.extend([line(10.6), line(15.6)]);
    let window = whole(&plant, readings);
    let removed = |second: f64| {
        let mut list = names(&found(&window.slice(window.from, at(second))));
        list.retain(|name| name.starts_with("wal-removed"));
        list
    };
    assert_eq!(removed(18.0), [format!("wal-removed segment-removed pg.wal.retained@{S}")]);
    assert_eq!(removed(19.5), removed(18.0));
    assert_eq!(removed(40.0), Vec::<String>::new());
}

#[test]
fn a_standby_that_goes_on_under_another_name_is_not_gone() {
    let (first, second) = (format!("{S}#700"), format!("{S}#701"));
    let cases: [&[(f64, f64, &str, i64)]; 3] = [
        // Another of the same address comes.
        &[(0.0, 20.0, S, 700), (20.0, EVER, &first, 700), (20.0, EVER, &second, 701)],
        // It connects again, and its old walsender waits for its time-out.
        &[(0.0, 20.0, S, 700), (20.0, 30.0, &first, 700), (20.0, 30.0, &second, 701), (30.0, EVER, S, 701)],
        // It was given a slot.
        &[(0.0, 20.0, S, 700), (24.0, EVER, "s2", 702)],
    ];
    let plant = recycled(None);
    for case in cases {
        assert_eq!(losses(&whole(&plant, rows(&plant, case))), Vec::<String>::new(), "{case:?}");
    }
}

#[test]
fn who_does_not_go_on_is_gone() {
    let (first, second) = (format!("{S}#700"), format!("{S}#701"));
    let plant = recycled(None);
    // The younger of two at one address goes, and the older goes on.
    let younger: &[(f64, f64, &str, i64)] =
        &[(0.0, 10.0, S, 700), (10.0, 20.0, &first, 700), (10.0, 20.0, &second, 701), (20.0, EVER, S, 700)];
    let told = losses(&whole(&plant, rows(&plant, younger)));
    assert!(told.contains(&format!("standby-gone disconnected pg.wal.retained@{second}")), "{told:?}");
    assert!(told.iter().all(|name| name.ends_with(&second)), "{told:?}");
    // Another standby was made long after.
    let later = rows(&plant, &[(0.0, 10.0, S, 700), (45.0, EVER, "b@10.0.0.3", 702)]);
    let told = losses(&whole(&plant, later));
    assert!(told.contains(&format!("standby-gone disconnected pg.wal.retained@{S}")), "{told:?}");
}

#[test]
fn a_slot_that_was_dropped_is_missed_by_nobody() {
    let plant = recycled(Some((10.0, EVER)));
    let mut readings = rows(&plant, &[(0.0, EVER, "s1", 700)]);
    for second in 0..=20 {
        readings.put(&cat::PG_SLOT_ACTIVE, &S1, START_S + f64::from(second), f64::from(u8::from(second <= 10)));
    }
    let window = whole(&plant, readings);
    let away = losses(&window.slice(window.from, at(20.0)));
    assert!(away.contains(&"standby-gone disconnected pg.wal.retained@s1".to_owned()), "{away:?}");
    assert_eq!(losses(&window), Vec::<String>::new());
}

#[test]
fn what_reads_from_a_logical_slot_has_no_disk_that_is_seen_from_here() {
    let cap = Some(2.0 * MIB);
    let plant = WalPlant { standby_cap: cap, keep: Keep::Slot(None), see_standby: false, ..WalPlant::default() };
    let disk = |logical: f64| {
        let mut readings = plant.readings();
        readings.put(&cat::PG_SLOT_LOGICAL, &S1, START_S + 1.0, logical);
        found(&whole(&plant, readings)).iter().any(|finding| finding.rule == "standby-disk")
    };
    assert!(disk(0.0) && !disk(1.0));
}

#[test]
fn a_logical_slot_that_nobody_reads_is_no_standbys() {
    let keep = Keep::Slot(Some(256.0 * MIB));
    let away = Some((10.0, EVER));
    let plant = WalPlant { seconds: 25.0, rate: 12.0 * MIB, keep, away, max_wal: 512.0 * MIB, ..WalPlant::default() };
    let mut readings = plant.readings();
    readings.put(&cat::PG_SLOT_LOGICAL, &S1, START_S + 1.0, 1.0);
    let findings = found(&whole(&plant, readings));
    let idle = findings.iter().find(|finding| finding.rule == "slot-inactive").unwrap();
    assert!(idle.summary.contains("must begin anew") && !idle.summary.contains("be built anew"), "{}", idle.summary);
    let drop = &idle.remedies[0];
    assert!(drop.title.ends_with("nobody will read from it again") && !drop.undo[0].contains("physical"), "{drop:?}");
}
