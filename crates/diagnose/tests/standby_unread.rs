//! Standbys of which something is not read for a while: nobody is said to be away for that alone.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::warn;
use backwater_model::{Confidence, Event, EventKind, Finding, Severity, catalogue as cat};
use common::Readings;
use common::standbys::{EVER, S, at, found, in_lives, line, losses, recycled, rows, sifted, whole};
use common::wal_plant::{Keep, MIB, START_S, WalPlant};

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
