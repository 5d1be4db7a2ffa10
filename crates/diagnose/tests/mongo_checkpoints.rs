//! Checkpoints of an engine that follow one another, on planted series: those that are waited for, and all that look like it.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_model::{Finding, Severity, catalogue as cat};
use common::Readings;
use common::mongo_plant::{Plant, SECONDS, T, healthy, put_journal};

/// Each takes 55 s of 60, and the disk never rests.
fn following() -> Plant {
    Plant { checkpoint: |s| s % 60 < 55, write_ms: |_| 160.0, busy: |_| 0.97, disk_mib: |_| 80.0, ..healthy() }
}

/// What is told of checkpoints where a sync of the journal takes so many milliseconds.
fn told(plant: &Plant, sync_ms: f64, change: impl FnOnce(&mut Readings)) -> Option<Finding> {
    let found = plant.found_with(|readings, _| {
        put_journal(readings, |_| (6.0, sync_ms));
        change(readings);
    });
    found.into_iter().find(|finding| finding.rule == "checkpoint-burst")
}

#[test]
fn checkpoints_one_after_another_are_told_where_the_journal_waits() {
    let finding = told(&following(), 150.0, |_| ()).unwrap();
    assert_eq!((finding.cause.as_str(), finding.severity), ("back-to-back", Severity::Warning));
    let figure = |name: &str| finding.figure(name).unwrap();
    assert!((figure("checkpoint_s") - 55.0).abs() < 1.0 && (figure("checkpoint_interval_s") - 60.0).abs() < 1.0);
    assert!((figure("journal_sync_ms") - 150.0).abs() < 1.0 && (figure("disk_used_ratio") - 0.97).abs() < 0.01);
    let out: Vec<&str> = finding.ruled_out.iter().map(|out| out.cause.as_str()).collect();
    assert_eq!(out, ["wt-cache-oversized", "wt-dirty-stall"]);
    assert_eq!(told(&following(), 1_500.0, |_| ()).unwrap().severity, Severity::Critical);
    let unfelt = Plant { write_ms: |_| 1.0, ..following() };
    assert_eq!(told(&unfelt, 1_500.0, |_| ()).unwrap().severity, Severity::Info, "nobody waits for the journal");
}

#[test]
fn what_nobody_feels_what_the_disk_has_room_for_and_what_ends_in_time_is_silent() {
    assert_eq!(told(&following(), 20.0, |_| ()), None, "the journal is synced as fast as ever");
    assert_eq!(told(&Plant { busy: |_| 0.6, ..following() }, 150.0, |_| ()), None, "the disk is not what is short");
    assert_eq!(told(&Plant { checkpoint: |s| s % 60 < 45, ..following() }, 150.0, |_| ()), None, "it rests a quarter");
    assert_eq!(told(&Plant { checkpoint: |s| s < 170, ..following() }, 150.0, |_| ()), None, "one long checkpoint");
    assert_eq!(
        told(&Plant { waiting: |_| 4.0, ..following() }, 150.0, |_| ()),
        None,
        "what threads evict is waited for"
    );
    assert_eq!(told(&Plant { dirty: |_| 0.2, ..following() }, 150.0, |_| ()), None, "or may be, at the trigger");
    for unread in ["wt.log.", "host.disk.", "wt.cache.dirty_bytes", "wt.checkpoint."] {
        assert_eq!(told(&following(), 150.0, |readings| readings.forget(unread)), None, "{unread}");
    }
}

#[test]
fn a_cap_that_checkpoints_come_to_is_the_disk_they_have() {
    let held = Plant { busy: |_| 0.1, ..following() };
    let finding = told(&held, 150.0, |readings| {
        let cap = [("cgroup", "/"), ("dev", "sda"), ("op", "write")];
        let limit = 82.0 * 1_048_576.0;
        (0..=SECONDS).for_each(|s| readings.put(&cat::CGROUP_BPS_LIMIT, &cap, 1_000.0 + s as f64, limit));
    });
    let finding = finding.unwrap();
    assert!(finding.summary.contains("of the cap on the disk is used"), "{}", finding.summary);
    assert!(finding.figure("disk_used_ratio").unwrap() > 0.95, "{finding:?}");
}

#[test]
fn pauses_of_less_than_a_second_are_seen_where_readings_are_as_close() {
    // Ten readings a second: 1.8 s of 2 run.
    let finding = told(&following(), 150.0, |readings| {
        readings.forget(cat::WT_CHECKPOINT_RUNNING.name);
        for tenth in 0..=10 * SECONDS {
            let runs = f64::from(u8::from(tenth % 20 < 18));
            readings.put(&cat::WT_CHECKPOINT_RUNNING, &[T], 1_000.0 + tenth as f64 / 10.0, runs);
        }
    });
    let finding = finding.unwrap();
    assert!((finding.figure("checkpoint_interval_s").unwrap() - 2.0).abs() < 0.01, "{finding:?}");
    assert!((finding.figure("checkpoint_ratio").unwrap() - 0.9).abs() < 0.01, "{finding:?}");
}

#[test]
fn an_interval_is_never_told_over_a_gap() {
    // Of the first pause only the end was read.
    let finding = told(&following(), 150.0, |readings| readings.gap(1_030.5, 1_057.5)).unwrap();
    assert!((finding.figure("checkpoint_interval_s").unwrap() - 60.0).abs() < 1.0, "{finding:?}");
    assert_eq!(told(&following(), 150.0, |readings| readings.gap(1_000.5, 1_070.5)), None, "too little was read");
}

#[test]
fn a_longer_pause_is_advised_and_no_shorter_one() {
    let finding = told(&following(), 150.0, |_| ()).unwrap();
    let pauses: Vec<&str> =
        finding.remedies.iter().map(|remedy| remedy.title.as_str()).filter(|title| title.contains("Begin a")).collect();
    assert_eq!(pauses.len(), 1, "{pauses:?}");
    assert!(pauses[0].starts_with("Begin a checkpoint 55 s after the last, not 5 s"), "{pauses:?}");
    let remedy = finding.remedies.iter().find(|remedy| remedy.title == pauses[0]).unwrap();
    let predicted = |name: &str| remedy.predicted.iter().find(|figure| figure.name == name).unwrap().value;
    assert!(predicted("checkpoint_ratio") < 0.75 && predicted("checkpoint_now_ratio") > 0.9, "{remedy:?}");
    assert!(predicted("burst_bytes") > predicted("burst_now_bytes"), "{remedy:?}");
    // A disk that is full all the time leaves eviction no time to write earlier, which the finding says itself.
    assert!(finding.remedies.iter().all(|remedy| !remedy.title.contains("begin earlier")), "{finding:?}");
}
