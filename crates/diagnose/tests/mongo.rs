//! Rules about MongoDB and WiredTiger on planted series: each cause by itself, what looks like it and is not, healthy
//! servers, and holes in the readings.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Options, compare, gather};
use backwater_model::catalogue as cat;
use backwater_model::{Confidence, DeclaredVolume, Severity, Window};
use common::judged::{causes, diagnose};
use common::mongo_plant::{
    Plant, SECONDS, T, bursting, count, healthy, oversized, put_journal, stalled, standing, stands, trouble,
};

/// What is found where writes were slow, and no rule says why.
const NO_REASON: [&str; 1] = ["slow-writes coincidence"];

#[test]
fn a_healthy_server_an_idle_one_and_nothing_at_all_are_silent() {
    assert_eq!(causes(&healthy().found()), [""; 0]);
    let idle = Plant { writes: |_| 0.0, dirty: |_| 0.0, ttl: |_| 0.0, ..healthy() };
    assert_eq!(causes(&idle.found()), [""; 0]);
    assert_eq!(causes(&diagnose(&Window::default(), &Options::default())), [""; 0]);
}

#[test]
fn dirty_pages_at_their_trigger_stall_the_threads_that_answer() {
    let found = stalled().found();
    assert_eq!(causes(&found), ["wt-dirty-stall dirty-trigger"]);
    let first = &found[0];
    assert_eq!((first.severity, first.queue.as_str()), (Severity::Critical, "wt.dirty@m"));
    assert!((first.foreground_lost.unwrap() - 0.6).abs() < 0.05, "{first:?}");
    assert!((first.figure("write_ms").unwrap() / first.figure("write_otherwise_ms").unwrap() - 40.0).abs() < 4.0);
    assert!((37.0..=43.0).contains(&first.figure("stalled_s").unwrap()));
    let mut evicting = stalled().readings();
    for second in 0..=SECONDS {
        let at = 1_000.0 + second as f64;
        evicting.put(&cat::WT_EVICT_WORKERS, &[T], at, 4.0);
        evicting.put(&cat::WT_APP_EVICT_US, &[T], at, 3e6 * second as f64);
    }
    let window = evicting.window(stalled().meta(), 1_000.0, 1_000.0 + SECONDS as f64);
    let found = diagnose(&window, &Options::default());
    assert_eq!(found[0].figure("eviction_workers_count"), Some(4.0));
    assert!((found[0].figure("evicting_threads_count").unwrap() - 3.0).abs() < 0.01);
    assert_eq!(found[0].figure("evicted_by_clients_per_s"), None, "not read, not told");
    // The same level under a higher trigger is room, not a stall; and at the trigger with nobody waiting, neither.
    let room = Plant { settings: "eviction_dirty_trigger=30", ..stalled() };
    assert_eq!(causes(&room.found()), NO_REASON);
    let unfelt = Plant { waiting: |_| 0.0, ..stalled() };
    assert_eq!(causes(&unfelt.found()), NO_REASON);
}

#[test]
fn updates_and_a_full_cache_have_triggers_of_their_own() {
    let updates = Plant { dirty: |_| 0.05, updates: |s| if trouble(s) { 0.101 } else { 0.02 }, ..stalled() };
    assert_eq!(causes(&updates.found()), ["wt-dirty-stall updates-trigger"]);
    let full = Plant { dirty: |_| 0.05, used: |s| if trouble(s) { 0.96 } else { 0.8 }, ..stalled() };
    assert_eq!(causes(&full.found()), ["wt-dirty-stall cache-full"]);
}

#[test]
fn checkpoints_that_are_felt_are_bursts() {
    let found = bursting().found();
    assert_eq!(causes(&found), ["checkpoint-burst engine-burst"]);
    let first = &found[0];
    assert!((first.figure("checkpoint_interval_s").unwrap() - 60.0).abs() <= 1.0);
    assert!((7.0..=9.0).contains(&first.figure("checkpoint_s").unwrap()));
    assert!(first.ruled_out.iter().any(|out| out.cause == "wt-dirty-stall"));
    // The disk has everything to do or nothing.
    let busy = |when: &str| first.figure(&format!("device_busy_{when}_ratio")).unwrap();
    assert!(busy("inside") > 0.9 && busy("outside") < 0.05, "{first:?}");
    // Slow at the same times, but the device does nothing more: something else.
    let elsewhere = Plant { busy: |_| 0.2, disk_mib: |_| 30.0, ..bursting() };
    assert_eq!(causes(&elsewhere.found()), NO_REASON);
    let once = Plant { checkpoint: |s| (60..68).contains(&s), ..bursting() };
    assert_eq!(causes(&once.found()), NO_REASON, "one dip may have any reason");
    // As recorded of a healthy engine: twice as long, and nobody is held up by 3 ms.
    let few_ms = Plant { write_ms: |s| if s % 60 < 8 { 4.2 } else { 1.7 }, ..bursting() };
    assert_eq!(causes(&few_ms.found()), [""; 0]);
}

#[test]
fn what_is_caught_up_as_a_checkpoint_ends_undoes_no_dip() {
    // As recorded: nothing is answered until the checkpoint lets go, then all of it in its last second.
    let caught_up = |s: usize| match s % 60 {
        0..7 => 0.0,
        7 => 40_000.0,
        _ => 5_000.0,
    };
    let found = Plant { write_ms: |_| 1.0, writes: caught_up, ..bursting() }.found();
    assert_eq!(causes(&found), ["checkpoint-burst engine-burst"]);
    let inside = found[0].figure("writes_inside_per_s").unwrap();
    assert!((500.0..1_300.0).contains(&inside), "{inside}");
    // More work than usual is no dip.
    let more = Plant { write_ms: |_| 1.0, writes: |s| if s % 60 < 8 { 9_000.0 } else { 5_000.0 }, ..bursting() };
    assert_eq!(causes(&more.found()), [""; 0]);
}

#[test]
fn a_journal_that_waits_is_enough_where_the_disk_is_always_busy() {
    let even = Plant { busy: |_| 1.0, disk_mib: |_| 38.0, ..bursting() };
    let burst = "checkpoint-burst engine-burst".to_owned();
    assert!(!causes(&even.found()).contains(&burst));
    let syncs = |inside_ms: f64| {
        let of = |second: usize| if second % 60 < 8 { (2.0, inside_ms) } else { (100.0, 8.0) };
        even.found_with(|readings, _| put_journal(readings, of))
    };
    let found = syncs(900.0);
    let finding = found.iter().find(|finding| finding.rule == "checkpoint-burst").unwrap();
    assert!(finding.summary.contains("a sync of the journal took"), "{}", finding.summary);
    assert!(finding.figure("journal_sync_inside_ms").unwrap() > 700.0);
    assert!(!causes(&syncs(20.0)).contains(&burst), "a sync that takes 20 ms holds nobody for 60");
}

#[test]
fn what_advice_changed_is_told_of_the_engine_too() {
    let before = bursting().window();
    let comparison = compare(&before, &healthy().window());
    let of = |name: &str| comparison.changes.iter().find(|change| change.name == name).unwrap();
    let write = of("write_mean_ms");
    assert!(
        write.before.unwrap().value > 5.0 && write.after.unwrap().value < 1.5 && write.clear == Some(true),
        "{write:?}"
    );
    assert!(write.label == "latency of a write" && of("writes_per_s").label.ends_with("(m)"), "{write:?}");
    assert!((of("write_high_ms").before.unwrap().value - 60.0).abs() < 1.0);
    assert!(comparison.doubts.is_empty(), "{:?}", comparison.doubts);
    let mut other = healthy().meta();
    other.targets[0].name = "another".to_owned();
    let other = healthy().readings().window(other, 1_000.0, 1_000.0 + SECONDS as f64);
    assert!(compare(&before, &other).doubts.iter().any(|doubt| doubt.contains("different servers")));
    let postgres = compare(&Window::default(), &Window::default());
    assert!(postgres.changes.iter().all(|change| change.name != "write_mean_ms"));
}

#[test]
fn writers_that_come_and_go_are_no_dip() {
    let batches = Plant { writes: |s| if s % 5 < 3 { 5_000.0 } else { 0.0 }, ..healthy() };
    assert_eq!(causes(&batches.found()), [""; 0]);
}

#[test]
fn a_lag_that_uses_the_oplog_up_is_told_with_the_time_that_is_left() {
    // Member 2 is 500 s behind; the window shrinks from 1,100 s by 2 s each second.
    let behind = Plant { oplog_s: |s| 1_100.0 - 2.0 * s as f64, ..healthy() };
    let found = behind.found();
    assert_eq!(causes(&found), ["oplog-window member-behind"]);
    let first = &found[0];
    assert!(first.summary.contains("Member 2"), "{}", first.summary);
    assert!((first.figure("used_ratio").unwrap() - 500.0 / 702.0).abs() < 0.02, "{first:?}");
    assert!((first.figure("left_s").unwrap() - 101.0).abs() < 5.0, "{first:?}");
    let young = Plant { oplog_full: 0.1, ..behind };
    assert_eq!(causes(&young.found()), [""; 0], "nothing is dropped from it yet");
    let stale = Plant { oplog_s: |_| 400.0, ..healthy() };
    assert_eq!(stale.found()[0].severity, Severity::Critical);
    let steady = &Plant { oplog_s: |_| 600.0, ..healthy() }.found()[0];
    assert_eq!((steady.severity, steady.confidence), (Severity::Warning, Confidence::Medium), "{steady:?}");
    assert!(steady.unseen.iter().any(|unseen| unseen.what.contains("on purpose")), "{steady:?}");
}

#[test]
fn a_short_oplog_is_told_once_it_is_full() {
    let short = Plant { oplog_s: |_| 2_000.0, ..healthy() };
    assert_eq!(causes(&short.found()), ["oplog-window short"]);
    let young = Plant { oplog_full: 0.5, ..short };
    assert_eq!(causes(&young.found()), [""; 0], "it covers more each second");
}

#[test]
fn a_device_that_stands_still_is_told_from_one_at_a_limit() {
    let stalls = standing();
    let found = stalls.found();
    assert_eq!(causes(&found), ["device-below-rating standstill"]);
    let first = &found[0];
    assert_eq!((first.severity, first.figure("standstills_count")), (Severity::Critical, Some(2.0)));
    assert!((first.figure("best_bytes_per_s").unwrap() / 1_048_576.0 - 60.0).abs() < 3.0);
    // Burst credit that is spent: the rate falls and stays.
    let spent = Plant {
        busy: |s| if s < 100 { 0.4 } else { 1.0 },
        disk_mib: |s| if s < 100 { 60.0 } else { 3.0 },
        ..healthy()
    };
    assert!(!causes(&spent.found()).contains(&"device-below-rating standstill".to_owned()));
    // Nor is it the device's where processors had no time for it.
    let taken = |idle: fn(usize) -> f64| {
        standing().found_with(move |readings, _| {
            count(readings, &cat::CPU_USER, &[], |_| 0.5);
            count(readings, &cat::CPU_SYSTEM, &[], move |second| 1.5 - idle(second));
            count(readings, &cat::CPU_IDLE, &[], idle);
        })
    };
    assert_eq!(causes(&taken(|_| 0.3)), ["device-below-rating standstill"]);
    let starved = causes(&taken(|second| if (98..140).contains(&second) { 0.0 } else { 0.3 }));
    assert!(!starved.contains(&"device-below-rating standstill".to_owned()), "{starved:?}");
    // Nothing to do is no standstill, and busy with many small requests neither.
    let idle = Plant { busy: |s| if stands(s) { 0.0 } else { 0.4 }, ..stalls };
    assert!(!causes(&idle.found()).contains(&"device-below-rating standstill".to_owned()));
}

#[test]
fn the_rate_at_which_a_device_stops_is_told_where_it_is_one() {
    // It takes 500 MiB/s at other times, and stops four times at 260.
    let stops = Plant {
        busy: |s| if trouble(s) && s % 10 < 4 { 1.0 } else { 0.3 },
        disk_mib: |s| match (trouble(s), s % 10 < 4) {
            (true, true) => 0.5,
            (true, false) => 260.0,
            _ if s > 96 => 260.0,
            _ => 500.0,
        },
        ..stalled()
    };
    let found = stops.found();
    assert_eq!(causes(&found)[0], "device-below-rating standstill");
    assert!(found[0].summary.contains("It stops at 260 MiB/s"), "{}", found[0].summary);
    assert!(found[0].summary.contains("52.0 % of its best"), "{}", found[0].summary);
}

#[test]
fn what_a_device_is_rated_for_is_told_beside_the_rate_at_which_it_stops() {
    // It never does more than 210 MiB/s, and stops four times at 200.
    let stops = Plant {
        busy: |s| if trouble(s) && s % 10 < 4 { 1.0 } else { 0.3 },
        disk_mib: |s| match (trouble(s), s % 10 < 4) {
            (true, true) => 0.5,
            (true, false) => 200.0,
            _ if s > 96 => 200.0,
            _ => 210.0,
        },
        ..stalled()
    };
    assert!(!stops.found()[0].summary.contains("It stops at"), "it is near its best");
    let rating = 500.0 * 1_048_576.0;
    let read = stops.found_with(|readings, _| {
        (0..=SECONDS).for_each(|s| readings.put(&cat::VOLUME_BPS, &[("dev", "sda")], 1_000.0 + s as f64, rating));
    });
    // Of a recording without such readings, what its user said is enough.
    let said = stops.found_with(|_, meta| {
        let device = Some("/dev/sda".to_owned());
        meta.declared_volumes = vec![DeclaredVolume { device, bytes_per_s: Some(rating), ..DeclaredVolume::default() }];
    });
    for found in [read, said] {
        let first = &found[0];
        assert_eq!((first.rule.as_str(), first.figure("declared_bytes_per_s")), ("device-below-rating", Some(rating)));
        assert!(first.summary.contains("It stops at 200 MiB/s, 40.0 % of what it is rated for."), "{}", first.summary);
    }
}

#[test]
fn deletes_of_the_expired_that_are_felt_are_a_burst() {
    let burst = Plant {
        ttl: |s| if trouble(s) { 4_000.0 } else { 50.0 },
        write_ms: |s| if trouble(s) { 14.0 } else { 1.0 },
        disk_mib: |s| if trouble(s) { 90.0 } else { 30.0 },
        checkpoint: |_| false,
        ..healthy()
    };
    let found = burst.found();
    assert_eq!(causes(&found), ["ttl-burst expiry-at-once"]);
    let deleted = found[0].figure("ttl_deleted_per_s").unwrap();
    assert!(deleted > 2_500.0, "{found:?}");
    // No day was seen, so no quiet hours are told: the burst's documents, 40 s of 4,000 a second, beside 50 at other times, at a tenth
    // of 5,000 writes a second would take less than ten minutes.
    let told = |found: &[backwater_model::Finding]| {
        let remedy = found[0].remedies.first()?;
        let (_, seconds) = remedy.runtime[1].split_once("Math.random() * ").unwrap();
        Some((seconds.split_once(' ').unwrap().0.parse::<f64>().unwrap(), remedy.predicted[0].value))
    };
    let (seconds, rate) = told(&found).unwrap();
    assert_eq!(seconds, 600.0);
    assert!((rate - (160_000.0 / 600.0 + 50.0)).abs() < 25.0, "{rate}");
    let larger = Plant { ttl: |s| if trouble(s) { 20_000.0 } else { 100.0 }, ..burst };
    let (seconds, rate) = told(&larger.found()).unwrap();
    assert!((seconds / (800_000.0 / 400.0) - 1.0).abs() < 0.15, "{seconds}");
    assert!((rate - 500.0).abs() < 25.0, "{rate}");
    // Whatever it is spread over: so many expire all the time, or the next burst comes before this one is spread, or it takes days.
    let always = Plant { ttl: |s| if trouble(s) { 20_000.0 } else { 700.0 }, ..larger };
    assert_eq!(told(&always.found()), None);
    fn two(s: usize) -> bool {
        (40..56).contains(&s) || (110..126).contains(&s)
    }
    let often =
        Plant { ttl: |s| if two(s) { 3_000.0 } else { 20.0 }, write_ms: |s| if two(s) { 14.0 } else { 1.0 }, ..always };
    assert_eq!(told(&often.found()), None);
    let endless = Plant {
        ttl: |s| if trouble(s) { 2_000_000.0 } else { 20.0 },
        write_ms: |s| if trouble(s) { 14.0 } else { 1.0 },
        ..often
    };
    assert_eq!(told(&endless.found()), None);
    let burst = Plant { ttl: |s| if trouble(s) { 4_000.0 } else { 50.0 }, write_ms: |_| 1.0, ..endless };
    assert_eq!(causes(&burst.found()), [""; 0], "what a TTL index is for");
}

#[test]
fn expiry_all_along_is_told_only_beside_what_has_no_more_to_give() {
    let all_along = || Plant { ttl: |_| 4_000.0, checkpoint: |_| false, ..healthy() };
    assert_eq!(causes(&all_along().found()), [""; 0], "what a TTL index is for");
    let beside = Plant { busy: |_| 0.95, ..all_along() }.found();
    let told = beside.iter().find(|finding| finding.rule == "ttl-burst").unwrap();
    assert_eq!((told.cause.as_str(), told.severity), ("expiry-all-along", Severity::Info));
    assert_eq!((told.confidence, told.unseen.len()), (Confidence::Low, 1), "{told:?}");
    assert!(told.remedies.is_empty(), "what comes all along cannot be spread: {told:?}");
    // Nor is it why something else stalls for a while.
    let stall = Plant { ttl: |_| 4_000.0, busy: |_| 0.95, ..stalled() }.found();
    let first = &stall[0];
    assert_eq!((first.rule.as_str(), first.severity), ("wt-dirty-stall", Severity::Critical), "{stall:?}");
    let half = Plant { busy: |_| 0.95, ttl: |s| if s < 100 { 4_000.0 } else { 0.0 }, ..all_along() };
    assert!(half.found().iter().all(|finding| finding.rule != "ttl-burst"), "nobody felt it");
}

#[test]
fn deletes_that_are_counted_when_all_are_done_belong_to_the_pass() {
    // As before 6.1: a pass begins with the trouble, and what it deleted is counted in the second after it.
    let pass = Plant { write_ms: |s| if trouble(s) { 30.0 } else { 1.0 }, ttl: |_| 0.0, ..healthy() };
    let told_of = |version_num: i32, passes: [usize; 2], late_s: f64| {
        pass.found_with(|readings, meta| {
            meta.targets[0].version_num = Some(version_num);
            readings.forget(cat::MONGO_TTL_DELETED.name);
            for second in 0..=SECONDS {
                let (at, counted) = (1_000.0 + late_s + second as f64, if second >= 140 { 80_000.0 } else { 0.0 });
                readings.put(&cat::MONGO_TTL_DELETED, &[T], at, counted);
            }
            count(readings, &cat::MONGO_TTL_PASSES, &[T], |s| if passes.contains(&s) { 1.0 } else { 0.0 });
        })
    };
    let told = |passes: bool| told_of(40_408, if passes { [30, 100] } else { [900, 900] }, 0.0);
    let between = told_of(40_408, [30, 100], 0.4);
    assert!((1_500.0..2_200.0).contains(&between[0].figure("ttl_deleted_per_s").unwrap()), "{between:?}");
    // From 4.4.14 on a pass is counted as it ends, and the next begins a minute later.
    for version_num in [40_429, 50_014] {
        let ended = told_of(version_num, [40, 139], 0.0);
        assert!((1_500.0..2_200.0).contains(&ended[0].figure("ttl_deleted_per_s").unwrap()), "{ended:?}");
    }
    let batches = told_of(80_004, [40, 139], 0.0);
    let burst_s = batches.first().and_then(|finding| finding.figure("burst_s"));
    assert!(
        burst_s.is_none_or(|seconds| seconds < 15.0),
        "where they come in batches a step is what it looks like: {batches:?}"
    );
    let found = told(true);
    assert_eq!(causes(&found), ["ttl-burst expiry-at-once"]);
    let per_s = found[0].figure("ttl_deleted_per_s").unwrap();
    assert!((1_500.0..2_200.0).contains(&per_s), "{per_s}: {:?}", found[0]);
    assert!((35.0..55.0).contains(&found[0].figure("burst_s").unwrap()), "{:?}", found[0]);
    let of_its_end = told(false);
    let burst_s = of_its_end.first().and_then(|finding| finding.figure("burst_s"));
    assert!(burst_s.is_none_or(|seconds| seconds < 15.0), "nobody knows when it began: {of_its_end:?}");
    let hardly = Plant {
        write_ms: |s| if trouble(s) { 4.0 } else { 1.0 },
        ttl: |s| if trouble(s) { 4_000.0 } else { 50.0 },
        ..pass
    };
    assert_eq!(causes(&hardly.found()), [""; 0], "three milliseconds hold nobody up");
}

#[test]
fn tickets_count_only_with_a_line_before_them() {
    let line = Plant {
        tickets_out: |s| if trouble(s) { 128.0 } else { 10.0 },
        in_line: |s| if trouble(s) { 60.0 } else { 0.0 },
        ..healthy()
    };
    let found = line.found();
    assert_eq!(causes(&found), ["tickets-exhausted write-tickets"]);
    assert_eq!(found[0].figure("tickets_total_count"), Some(128.0));
    let probing = Plant { in_line: |_| 0.0, ..line };
    assert_eq!(causes(&probing.found()), [""; 0], "all in use and nobody waiting is well");
    let few = Plant { tickets_out: |_| 128.0, in_line: |_| 3.0, ..healthy() };
    assert_eq!(causes(&few.found()), [""; 0], "three of 5,000 a second stand there for less than a millisecond");
}

#[test]
fn flow_control_is_told_when_it_holds_somebody() {
    let engaged = Plant {
        held_writers: |s| if trouble(s) { 8.0 } else { 0.0 },
        majority_lag: |s| if trouble(s) { 12.0 } else { 1.0 },
        ..healthy()
    };
    let found = engaged.found();
    assert_eq!(causes(&found), ["flow-control-engaged majority-behind"]);
    assert!((found[0].figure("majority_lag_peak_s").unwrap() - 12.0).abs() < 0.5);
    assert_eq!(found[0].severity, Severity::Critical);
}

#[test]
fn no_finding_rests_on_a_gap() {
    for plant in [stalled(), bursting(), oversized()] {
        let mut readings = plant.readings();
        readings.gap(1_000.5, 1_198.5);
        let window = readings.window(plant.meta(), 1_000.0, 1_000.0 + SECONDS as f64);
        assert_eq!(causes(&diagnose(&window, &Options::default())), [""; 0]);
    }
}

/// A hole in a checkpoint makes two of it for nobody, and one beside it hides none.
#[test]
fn a_hole_within_a_checkpoint_does_not_make_two() {
    let found = |plant: Plant, from: f64, to: f64| {
        let mut readings = plant.readings();
        readings.gap(1_000.0 + from, 1_000.0 + to);
        let window = readings.window(plant.meta(), 1_000.0, 1_000.0 + SECONDS as f64);
        diagnose(&window, &Options::default())
    };
    let once = || Plant { checkpoint: |s| (60..72).contains(&s), ..bursting() };
    let is_burst = |found: &[backwater_model::Finding]| found.iter().any(|finding| finding.rule == "checkpoint-burst");
    for (from, to) in [(62.5, 66.5), (62.5, 64.5), (64.5, 69.5)] {
        assert!(!is_burst(&found(once(), from, to)), "one dip may have any reason: {from}");
    }
    let habit = found(bursting(), 62.5, 65.5);
    assert!(is_burst(&habit), "{habit:?}");
    let burst = habit.iter().find(|finding| finding.rule == "checkpoint-burst").unwrap();
    assert!((burst.figure("checkpoint_interval_s").unwrap() - 60.0).abs() <= 1.0, "{burst:?}");
}

#[test]
fn many_stretches_tell_each_claim_once_the_worst_for_all() {
    let mut milder = stalled().found();
    milder[0].severity = Severity::Warning;
    let gathered = gather([milder.clone(), stalled().found(), milder, bursting().found()]);
    assert_eq!(causes(&gathered), ["wt-dirty-stall dirty-trigger", "checkpoint-burst engine-burst"]);
    assert_eq!((gathered[0].severity, gathered[0].figure("stretches_count")), (Severity::Critical, Some(3.0)));
    assert!(gathered[0].summary.contains("worst of 3"), "{}", gathered[0].summary);
}

#[test]
fn what_rose_with_slow_writes_is_said_and_what_did_not() {
    let mut readings = stalled().readings();
    // Slow operations of the log: thirty a second while it stalls.
    let mut count = 0.0;
    for second in 0..=SECONDS {
        readings.put(&cat::MONGO_SLOW_OPS, &[T], 1_000.0 + second as f64, count);
        count += if trouble(second) { 30.0 } else { 0.0 };
    }
    let window = readings.window(stalled().meta(), 1_000.0, 1_000.0 + SECONDS as f64);
    let found = diagnose(&window, &Options::default());
    assert_eq!(causes(&found), ["wt-dirty-stall dirty-trigger"]);
    let (rose, not) = found[0].summary.split_once("Not with them:").unwrap();
    for told in ["In the 40 s in which writes were slow", "dirty share of the cache", "slow operations in the log (30"]
    {
        assert!(rose.contains(told), "{told}: {rose}");
    }
    assert!(not.contains("lag of the majority") && !rose.contains("lag of the majority"), "{not}");
    assert!((found[0].figure("slow_ops_while_slow_per_s").unwrap() - 30.0).abs() < 1.0);
    // Where there is no log, nothing is said of it.
    let without = stalled().found();
    assert!(!without[0].summary.contains("slow operations") && without[0].figure("slow_ops_otherwise_per_s").is_none());
}
