//! Standbys that are there, or are to be away, while their rows or others' words look like a loss: none is accused.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_model::{Event, EventKind, Finding, Sample, catalogue as cat};
use common::judged::names;
use common::session;
use common::standbys::{EVER, S, at, found, in_lives, line, losses, recycled, rows, whole};
use common::wal_plant::{Keep, MIB, START_S, WalPlant};

const S1: [(&str, &str); 2] = [("target", "primary"), ("slot", "s1")];

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

/// What a look tells of who reads from a walsender.
fn reader(pid: i32, application: &str, address: Option<&str>) -> Sample {
    let sample = session(START_S + 25.0, pid, "active", Some(("Activity", "WalSenderMain")), None);
    let (application, client_addr) = (Some(application.into()), address.map(Into::into));
    let of = Sample { target: "primary".into(), backend_type: Some("walsender".into()), ..sample };
    Sample { application, client_addr, ..of }
}

/// A standby that is lost, and a name that nobody had before four seconds later: what is said of the first, and whether it is said that
/// it may be the second.
fn replaced(lost: &str, new: &str, readers: Vec<Sample>) -> (bool, bool) {
    let plant = recycled(None);
    let mut readings = rows(&plant, &[(0.0, 20.0, lost, 700), (24.0, EVER, new, 702)]);
    readings.samples.extend(readers);
    let findings = found(&whole(&plant, readings));
    let gone = findings.iter().find(|finding| finding.rule == "standby-gone");
    let unsure =
        |finding: &Finding| finding.unseen.iter().any(|unseen| unseen.what.contains(&format!("whether {new}")));
    (gone.is_some(), gone.is_some_and(unsure))
}

#[test]
fn a_new_name_is_the_same_standbys_where_something_tells() {
    let (own, other) = (Some("10.0.0.2"), Some("10.0.0.3"));
    let same = [
        // It was given a slot.
        (S, "s2", vec![reader(702, "walreceiver", own)]),
        // It goes on without one, with another name of its own, at its address.
        ("s1", "b@10.0.0.2", vec![reader(700, "a", own)]),
        // Its address is another, and its name nobody else's.
        ("node-1@10.0.0.2", "node-1@10.0.0.7", vec![]),
        ("standby@local", "s2", vec![reader(702, "standby", None)]),
    ];
    for (lost, new, readers) in same {
        assert_eq!(replaced(lost, new, readers), (false, false), "{lost} {new}");
    }
    let another = [
        (S, "s2", vec![]),
        (S, "s2", vec![reader(702, "walreceiver", other)]),
        (S, "b@10.0.0.3", vec![]),
        // What all are called tells nobody from another.
        (S, "walreceiver@10.0.0.7", vec![]),
        ("16/main@10.0.0.2", "16/main@10.0.0.7", vec![]),
        // Two of one host.
        ("a@127.0.0.1", "b@127.0.0.1", vec![]),
    ];
    for (lost, new, readers) in another {
        assert_eq!(replaced(lost, new, readers), (true, true), "{lost} {new}");
    }
}

#[test]
fn a_name_that_others_have_too_is_no_standbys_own() {
    let plant = recycled(None);
    let stretches: &[(f64, f64, &str, i64)] =
        &[(0.0, 20.0, "a@10.0.0.2", 700), (0.0, EVER, "a@10.0.0.4", 701), (24.0, EVER, "a@10.0.0.7", 702)];
    let told = losses(&whole(&plant, rows(&plant, stretches)));
    assert!(told.contains(&"standby-gone disconnected pg.wal.retained@a@10.0.0.2".to_owned()), "{told:?}");
}

/// A server that is started anew in the tenth second and read again from the fourteenth on, and its standby, which is read in it
/// again for some seconds.
fn restarted(seconds: f64, back: (f64, f64), gap: Option<f64>) -> Vec<String> {
    anew(seconds, back, gap, 1.0)
}

/// The same on a timeline that is followed then.
fn anew(seconds: f64, back: (f64, f64), gap: Option<f64>, timeline: f64) -> Vec<String> {
    let plant = WalPlant { seconds, see_standby: false, ..WalPlant::default() };
    let mut readings = in_lives(plant.readings(), |series, second| {
        let (row, later) = (series.name.starts_with("pg.replication."), u64::from(second >= 14.0));
        let is_read = !(10.0..14.0).contains(&second);
        let is_there = !row || second < 10.0 || (back.0..back.1).contains(&second);
        (is_read && is_there).then_some(later)
    });
    let told = |second: f64| Event::new(at(second), "primary", EventKind::Gap, "", &[("probe", "primary")]);
    readings.events.extend([10.0, 14.0].into_iter().chain(gap).map(told));
    for (second, timeline, life) in [(5.0, 1.0, 7), (15.0, timeline, 8)] {
        readings.put_as_of(&cat::PG_TIMELINE, &[("target", "primary")], START_S + second, timeline, None, life);
    }
    let mut list = losses(&whole(&plant, readings));
    list.retain(|name| name.starts_with("standby-gone"));
    list
}

#[test]
fn a_standby_that_does_not_come_back_after_a_restart_is_gone() {
    let gone = [format!("standby-gone not-back pg.wal.retained@{S}")];
    assert_eq!(restarted(100.0, (EVER, EVER), None), gone);
    let silent = Vec::<String>::new();
    assert_eq!(restarted(60.0, (EVER, EVER), None), silent, "it may still come");
    assert_eq!(restarted(100.0, (40.0, EVER), None), silent, "it came back");
    assert_eq!(restarted(100.0, (EVER, EVER), Some(50.0)), silent, "nobody knows what was between");
    assert_eq!(anew(100.0, (EVER, EVER), None, 2.0), silent, "a standby was promoted, which may be this one");
    let left = [format!("standby-gone disconnected pg.wal.retained@{S}")];
    assert_eq!(restarted(100.0, (20.0, 80.0), None), left, "it came back, and went");
}

#[test]
fn a_standby_that_goes_on_under_another_name_is_not_gone() {
    let (first, second) = (format!("{S}#700"), format!("{S}#701"));
    let cases: [&[(f64, f64, &str, i64)]; 2] = [
        // Another of the same address comes.
        &[(0.0, 20.0, S, 700), (20.0, EVER, &first, 700), (20.0, EVER, &second, 701)],
        // It connects again, and its old walsender waits for its time-out.
        &[(0.0, 20.0, S, 700), (20.0, 30.0, &first, 700), (20.0, 30.0, &second, 701), (30.0, EVER, S, 701)],
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
    let away = findings.iter().find(|finding| finding.rule == "standby-gone").unwrap();
    assert!(away.summary.starts_with("The reader of logical slot s1 has been away"), "{}", away.summary);
    let looks = &away.remedies[0];
    assert!(looks.persistent[0].contains("pg_stat_subscription") && !looks.title.contains("standby"), "{looks:?}");
}
