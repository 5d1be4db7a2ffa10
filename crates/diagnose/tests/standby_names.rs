//! Standbys that are there, or are to be away, while their rows or others' words look like a loss: none is accused.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Options, warn};
use backwater_model::{
    Confidence, Epoch, Event, EventKind, Finding, Moment, Sample, Series, Severity, Window, catalogue as cat,
};
use common::judged::{diagnose, names};
use common::wal_plant::{Keep, MIB, START_S, WalPlant};
use common::{Readings, session};

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
fn sifted(readings: Readings, keep: impl Fn(&Series, f64) -> bool) -> Readings {
    in_lives(readings, |series, second| keep(series, second).then_some(0))
}

/// The same, each in so many lives of its source after the first.
fn in_lives(mut readings: Readings, life: impl Fn(&Series, f64) -> Option<u64>) -> Readings {
    let (samples, events) = (std::mem::take(&mut readings.samples), std::mem::take(&mut readings.events));
    let mut kept = Readings::default();
    for (series, points) in readings.into_series() {
        let def = cat::ALL.iter().find(|def| def.name == series.name).unwrap();
        let labels: Vec<(&'static str, &str)> =
            def.labels.iter().filter_map(|label| Some((*label, series.labels.get(label)?))).collect();
        for mut point in points {
            let Some(later) = life(&series, point.at.seconds() - START_S) else { continue };
            point.epoch = Epoch(point.epoch.0 + later);
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

/// What the probe tells of a view that it cannot read, or that it reads again.
fn gap(second: f64, view: &str, ended: bool) -> Event {
    let probe = format!("postgres.primary {view}");
    let fields = [("probe", probe.as_str()), ("ended", "true")];
    Event::new(at(second), "primary", EventKind::Gap, "", &fields[..1 + usize::from(ended)])
}

/// Whether a standby is said to be behind the oldest WAL that is kept: its row was last read in the twentieth second,
/// these gaps were told, and nothing at all was read between two moments.
fn behind_oldest(gaps: &[Event], blind: (f64, f64)) -> bool {
    let plant = recycled(None);
    let mut readings = rows(&plant, &[(0.0, 20.0, S, 700)]);
    readings.events.extend_from_slice(gaps);
    // A role that may not see standbys does not see who carries WAL either.
    let is_right = |event: &&Event| event.fields.get("what").is_some_and(|what| what == "standbys");
    let since = gaps.iter().find(is_right).map(|event| event.at);
    readings.samples.retain(|sample| since.is_none_or(|since| sample.at <= since || !sample.is_carrier()));
    readings.gap(START_S + blind.0, START_S + blind.1);
    found(&whole(&plant, readings)).iter().any(|finding| finding.cause == "behind-oldest")
}

#[test]
fn who_is_not_read_is_not_known_to_be_away() {
    let (view, other, never) = ("pg_stat_replication", "pg_stat_database", (0.0, 0.0));
    assert!(behind_oldest(&[], never), "its row is gone, and all was read");
    // The view of standbys alone runs into its time-out, and is then left alone for ten seconds each time.
    let lasts = [gap(20.0, view, false), gap(50.0, view, false)];
    assert!(!behind_oldest(&lasts, never));
    let again = [gap(20.0, view, false), gap(30.0, view, true), gap(31.0, view, false)];
    assert!(!behind_oldest(&again, never), "it was read once, and fails again");
    let both = [gap(20.0, view, false), gap(30.0, other, false), gap(40.0, other, true)];
    assert!(!behind_oldest(&both, never), "what is read again is another");
    // It is read again, without the standby.
    assert!(!behind_oldest(&[gap(20.0, view, false), gap(57.0, view, true)], never), "since a moment ago");
    assert!(behind_oldest(&[gap(20.0, view, false), gap(40.0, view, true)], never));
}

#[test]
fn whoever_is_not_read_is_not_said_to_have_asked() {
    let plant = recycled(None);
    let mut readings = rows(&plant, &[(0.0, 20.0, S, 700)]);
    readings.events.extend([line(30.0), line(35.0), gap(20.0, "pg_stat_replication", false)]);
    assert_eq!(losses(&whole(&plant, readings)), ["wal-removed segment-removed pg.wal.retained@primary"]);
}

/// What the probe tells of a view that its role may not read.
fn denied(second: f64, what: &str) -> Event {
    Event::new(at(second), "primary", EventKind::Absent, "", &[("what", what), ("why", "permission denied")])
}

#[test]
fn only_what_would_show_it_must_be_read() {
    // All of them fail for ever.
    let others = ["pg_stat_io", "log", "WAL positions", "pg_stat_replication_slots"].map(|view| gap(20.0, view, false));
    assert!(behind_oldest(&others, (0.0, 0.0)));
    for what in ["pg_stat_replication", "standbys"] {
        assert!(!behind_oldest(&[denied(20.0, what)], (0.0, 0.0)), "{what}");
        assert!(behind_oldest(&[denied(0.0, what)], (0.0, 0.0)), "{what}: it was read since");
    }
    assert!(behind_oldest(&[denied(20.0, "pg_stat_io")], (0.0, 0.0)));
    // One that came back may be among those that are not put down.
    assert!(!behind_oldest(&[denied(0.0, "rows of pg_stat_replication beyond the first 200")], (0.0, 0.0)));
    // Of the whole server the recorder tells; that it has readings again says that this is over.
    let whole = Event::new(at(30.0), "recorder", EventKind::Gap, "", &[("probe", "postgres.primary")]);
    assert!(behind_oldest(&[whole], (30.0, 40.0)));
}

#[test]
fn a_view_that_shows_others_is_read() {
    let plant = recycled(None);
    let mut readings = rows(&plant, &[(0.0, 20.0, S, 700), (0.0, EVER, "b@10.0.0.3", 701)]);
    // Told by a recorder that ended before it was read again.
    readings.events.push(gap(20.0, "pg_stat_replication", false));
    let told = losses(&whole(&plant, readings));
    assert!(told.contains(&format!("standby-gone disconnected pg.wal.retained@{S}")), "{told:?}");
}

/// A standby whose row was last read in the twentieth second of forty, and these views no more from then on: what is said of it, for
/// how long it has been so, with which confidence, and what is said not to be read.
fn while_unread(plant: &WalPlant, unread: &[&str]) -> Vec<(String, f64, Confidence, Vec<String>)> {
    let list = found_while_unread(plant, unread);
    let unseen = |finding: &Finding| {
        let told = finding.unseen.iter().map(|unseen| unseen.what.clone());
        told.filter(|what| what.ends_with(" of primary")).collect::<Vec<_>>()
    };
    let away_s = |finding: &Finding| finding.figure("away_s").unwrap_or_default().round();
    list.iter().map(|one| (one.cause.clone(), away_s(one), one.confidence, unseen(one))).collect()
}

fn found_while_unread(plant: &WalPlant, unread: &[&str]) -> Vec<Finding> {
    let mut readings = sifted(plant.readings(), |series, second| {
        let rows = series.name.starts_with("pg.replication.") && unread.contains(&"pg_stat_replication");
        let slots = series.name.starts_with("pg.slot.") && unread.contains(&"pg_replication_slots");
        second <= 20.0 || !(rows || slots)
    });
    readings.events.extend(unread.iter().map(|view| gap(20.5, view, false)));
    let mut list = found(&whole(plant, readings));
    list.retain(|finding| {
        ["standby-gone", "wal-removed"].contains(&finding.rule.as_str()) && finding.cause != "slot-lost"
    });
    list
}

#[test]
fn where_its_row_is_not_read_other_words_tell() {
    let (rows, slots) = ("pg_stat_replication", "pg_replication_slots");
    let gone = |away_s: f64, confidence, view: &str| {
        vec![("disconnected".to_owned(), away_s, confidence, vec![format!("{view} of primary")])]
    };
    let plant = WalPlant { away: Some((20.5, EVER)), ..WalPlant::default() };
    // Its own word, and its slot's; of neither nothing is known.
    assert_eq!(while_unread(&plant, &[rows]), gone(19.0, Confidence::Low, rows));
    let later = WalPlant { away: Some((30.5, EVER)), ..plant.clone() };
    assert_eq!(while_unread(&later, &[rows]), gone(9.0, Confidence::Low, rows), "it goes by what it says");
    let blind = WalPlant { see_standby: false, ..plant };
    assert!(while_unread(&blind, &[rows]).is_empty());
    let slot = WalPlant { keep: Keep::Slot(None), ..blind };
    assert_eq!(while_unread(&slot, &[rows]), gone(19.0, Confidence::Medium, rows));
    // A slot that is not read was not dropped.
    assert_eq!(while_unread(&slot, &[slots]), gone(20.0, Confidence::Medium, slots));
    // Nor does what it keeps go now.
    let found = found_while_unread(&slot, &[slots]);
    assert!(
        found.iter().all(|one| one.figure("removal_left_s").is_none() && one.severity == Severity::Warning),
        "{found:?}"
    );
    assert!(while_unread(&slot, &[rows, slots]).is_empty());
    // It streams all along.
    for plant in [WalPlant::default(), WalPlant { keep: Keep::Slot(None), ..WalPlant::default() }] {
        assert!(while_unread(&plant, &[rows]).is_empty());
    }
}

/// Whether a watched standby without a row is said to be behind the oldest WAL, its own position having come so far beyond what it had
/// told its primary.
fn behind_by_its_own_word(unread: bool, beyond: f64) -> Option<Confidence> {
    let plant = WalPlant { see_standby: true, ..recycled(Some((20.0, EVER))) };
    let mut readings = plant.readings();
    readings.events.retain(|event| !event.message.contains("requested WAL segment"));
    readings.events.extend(unread.then(|| gap(20.0, "pg_stat_replication", false)));
    let own = [("target", "standby")];
    let replayed = whole(&plant, plant.readings()).track(cat::PG_WAL_REPLAY.name, &own).unwrap().last().unwrap();
    readings.put(&cat::PG_WAL_REPLAY, &own, START_S + 60.0, replayed + beyond);
    let findings = found(&whole(&plant, readings));
    findings.iter().find(|finding| finding.cause == "behind-oldest").map(|finding| finding.confidence)
}

#[test]
fn who_has_gone_on_from_an_archive_lacks_nothing() {
    assert_eq!(behind_by_its_own_word(false, 0.0), Some(Confidence::Medium));
    assert_eq!(behind_by_its_own_word(true, 0.0), Some(Confidence::Low));
    assert_eq!(behind_by_its_own_word(false, 4_096.0 * MIB), None);
}

/// Whether WAL of that standby is said to be removed soon, as of this second.
fn approaching(gaps: &[Event], second: f64) -> bool {
    let plant = recycled(None);
    let mut readings = rows(&plant, &[(0.0, 20.0, S, 700)]);
    readings.events.extend_from_slice(gaps);
    let window = whole(&plant, readings).slice(at(0.0), at(second));
    warn(&window, 600.0).iter().any(|finding| finding.cause == "approaching")
}

#[test]
fn nothing_is_said_to_come_of_a_standby_that_is_merely_not_read() {
    let view = "pg_stat_replication";
    assert!(approaching(&[], 30.0), "its row is gone, and all was read");
    assert!(!approaching(&[gap(20.0, view, false)], 30.0));
    assert!(!approaching(&[gap(20.0, view, false), gap(27.0, view, true)], 30.0), "it may come with the next look");
}

#[test]
fn who_may_have_been_there_while_nothing_was_read_is_not_known_to_be_away() {
    assert!(!behind_oldest(&[], (19.5, 57.5)), "the row may come with the next look");
    assert!(behind_oldest(&[], (19.5, 40.5)), "it did not come");
    assert!(behind_oldest(&[], (57.5, 59.5)), "a slow look is no hole");
}

#[test]
fn who_may_be_back_after_a_hole_is_not_known_to_be_gone() {
    let gone = |blind: (f64, f64)| {
        let plant = WalPlant { see_standby: false, away: Some((20.0, EVER)), ..WalPlant::default() };
        let mut readings = plant.readings();
        readings.gap(START_S + blind.0, START_S + blind.1);
        found(&whole(&plant, readings)).iter().any(|finding| finding.rule == "standby-gone")
    };
    assert!(gone((0.0, 0.0)), "its row is gone, and all was read");
    assert!(!gone((19.5, 36.5)), "it may come with the next look");
    assert!(gone((19.5, 30.5)), "it did not come");
}

/// For how long nobody is said to have read from a slot, which nobody reads from after the tenth second of such a run.
fn idle_s(seconds: f64, readings: impl Fn(Readings) -> Readings) -> Option<f64> {
    let (keep, away) = (Keep::Slot(None), Some((10.0, EVER)));
    let plant = WalPlant { seconds, rate: 12.0 * MIB, keep, away, ..WalPlant::default() };
    let findings = found(&whole(&plant, readings(plant.readings())));
    findings.iter().find(|finding| finding.rule == "slot-inactive")?.figure("away_s")
}

#[test]
fn a_slot_is_idle_since_it_was_last_looked_at_without_a_break() {
    let near = |told: Option<f64>, truth: f64| {
        assert!(told.is_some_and(|told| (told - truth).abs() < 0.1), "{told:?} for {truth}");
    };
    near(idle_s(40.0, |readings| readings), 29.0);
    // Its standby may have come and gone while nothing was read.
    let blind = |mut readings: Readings| {
        readings.gap(START_S + 11.5, START_S + 71.5);
        readings
    };
    assert_eq!(idle_s(80.0, blind), None);
    near(idle_s(85.0, blind), 13.0);
    // Or before the server was started anew.
    let anew = |readings: Readings| in_lives(readings, |_, second| Some(u64::from(second >= 25.0)));
    assert_eq!(idle_s(33.0, anew), None);
    near(idle_s(40.0, anew), 15.0);
    // A look that is a little late is no hole.
    let late = |mut readings: Readings| {
        readings.gap(START_S + 25.5, START_S + 27.5);
        readings
    };
    near(idle_s(40.0, late), 29.0);
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
