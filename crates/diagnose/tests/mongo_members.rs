//! Members of a replica set on planted series: what a slow one does to its primary, and what looks like it.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::{Confidence, Finding, catalogue as cat};
use common::judged::{causes, diagnose};
use common::mongo_plant::{Plant, SECONDS, T, count, healthy, stalled, trouble};

const MIB: f64 = 1_048_576.0;

/// No majority confirms while there is trouble: what is dirty stays, and climbs by four thousandths of the cache a second.
fn slow_member() -> Plant {
    Plant {
        dirty: |s| if trouble(s) { 0.04 + 0.004 * (s - 100) as f64 } else { 0.04 },
        majority_lag: |s| if trouble(s) { (s - 100) as f64 } else { 1.0 },
        pinned: |s| if trouble(s) { (s - 100) as f64 } else { 1.0 },
        pinned_by_oldest: |s| if trouble(s) { (s - 100) as f64 } else { 1.0 },
        checkpoint: |_| false,
        busy: |_| 0.1,
        ..healthy()
    }
}

#[test]
fn a_slow_member_fills_the_primarys_cache_while_its_disk_idles() {
    let pinned = slow_member();
    let found = pinned.found();
    assert_eq!(causes(&found), ["history-pinned slow-member"]);
    // Member 2 is always 500 s behind, and no majority waits for it.
    assert!(found[0].summary.contains("held up by member 1"), "{}", found[0].summary);
    assert!(found[0].figure("dirty_peak_ratio").unwrap() > 0.15);
    // It climbs by four thousandths of the cache a second, and has a few left.
    assert!((found[0].figure("dirty_before_ratio").unwrap() - 0.04).abs() < 0.005);
    let left_s = (0.2 - found[0].figure("dirty_peak_ratio").unwrap()) / 0.004;
    let told_s = found[0].figure("trigger_in_s");
    assert!(told_s.map_or(left_s <= 0.0, |told_s| (told_s - left_s).abs() < 2.0), "{told_s:?} for {left_s}");
    let busy = Plant { busy: |_| 0.95, ..pinned };
    assert!(
        !causes(&busy.found()).contains(&"history-pinned slow-member".to_owned()),
        "then the disk may be the reason"
    );
}

/// What is found where a control group lets so many MiB a second be written.
fn capped(plant: &Plant, mib: f64) -> Vec<Finding> {
    let mut readings = plant.readings();
    for second in 0..=SECONDS {
        let labels = [("dev", "sda"), ("cgroup", "/"), ("op", "write")];
        readings.put(&cat::CGROUP_BPS_LIMIT, &labels, 1_000.0 + second as f64, mib * MIB);
    }
    diagnose(&readings.window(plant.meta(), 1_000.0, 1_000.0 + SECONDS as f64), &Options::default())
}

#[test]
fn history_that_is_written_whoever_is_behind_accuses_nobody() {
    let told = |calm_per_s: f64| {
        let behind = Plant { dirty: |_| 0.03, ..slow_member() };
        let found = behind.found_with(|readings, _| {
            count(readings, &cat::WT_HISTORY_INSERTS, &[T], |s| if trouble(s) { 400.0 } else { calm_per_s });
        });
        causes(&found).contains(&"history-pinned slow-member".to_owned())
    };
    assert!(told(50.0) && !told(400.0));
}

#[test]
fn a_disk_at_its_cap_is_not_idle_though_it_is_hardly_busy() {
    let slow = Plant { disk_mib: |_| 30.0, ..slow_member() };
    assert!(slow.found()[0].confidence == Confidence::High && slow.found()[0].ruled_out[0].cause == "device-saturated");
    assert_eq!(causes(&capped(&slow, 60.0)), ["history-pinned slow-member"], "a cap that leaves room is none");
    let at_cap = capped(&slow, 30.0);
    assert!(at_cap.iter().all(|finding| finding.rule != "history-pinned"), "{at_cap:?}");
    // Writes of 60 MiB pass whole, every other second: no second is at the limit, and all of them are.
    let lumps = Plant { disk_mib: |s| if s % 2 == 0 { 60.0 } else { 0.0 }, ..slow_member() };
    assert!(capped(&lumps, 30.0).iter().all(|finding| finding.rule != "history-pinned"));
    assert_eq!(causes(&capped(&lumps, 60.0)), ["history-pinned slow-member"]);
    // Nor is one that stood at its cap for longer at another time.
    let twice =
        Plant { disk_mib: |s| if s >= 90 && !trouble(s) { 10.0 } else { (s % 2) as f64 * 60.0 }, ..slow_member() };
    assert!(capped(&twice, 30.0).iter().all(|finding| finding.rule != "history-pinned"));
}

#[test]
fn a_reader_that_holds_its_snapshot_is_told_from_a_slow_member() {
    let reader = Plant {
        dirty: |s| if trouble(s) { 0.04 + 0.003 * (s - 100) as f64 } else { 0.04 },
        pinned: |s| if trouble(s) { 420.0 } else { 300.0 },
        checkpoint: |_| false,
        busy: |_| 0.1,
        ..healthy()
    };
    assert_eq!(causes(&reader.found()), ["history-pinned long-reader"]);
}

#[test]
fn what_one_slow_member_does_is_said_to_come_of_it() {
    let slow = Plant { held_writers: |s| if trouble(s) { 3.0 } else { 0.0 }, ..slow_member() };
    let found = slow.found();
    let of = |rule: &str| found.iter().find(|finding| finding.rule == rule).unwrap();
    assert!(of("flow-control-engaged").summary.contains("It comes of a slow member, as history-pinned does"));
    assert!(!of("history-pinned").summary.contains("It comes of"));
}

/// A snapshot is held while there is trouble: its IDs stay, 5,000 new ones a second come, and what is dirty climbs by four thousandths
/// of the cache a second, whose eviction keeps the disk busy.
fn reader() -> Plant {
    Plant {
        dirty: |s| if trouble(s) { 0.04 + 0.004 * (s - 100) as f64 } else { 0.04 },
        pinned_ids: |s| if trouble(s) { 5_000.0 * (s - 100) as f64 } else { (healthy().pinned_ids)(s) },
        busy: |s| if trouble(s) { 0.95 } else { 0.2 },
        ..healthy()
    }
}

fn blamed(plant: &Plant) -> bool {
    plant.found().iter().any(|finding| finding.rule == "history-pinned")
}

#[test]
fn a_reader_without_timestamps_is_told_by_its_ids_whatever_the_disk_does() {
    let found = reader().found();
    let first = &found[0];
    assert_eq!(causes(&found)[0], "history-pinned long-reader");
    assert!((35.0..=41.0).contains(&first.figure("behind_peak_s").unwrap()), "{first:?}");
    assert!((190_000.0..=195_000.0).contains(&first.figure("pinned_ids_peak_count").unwrap()));
    assert!((100.0..=103.0).contains(&(first.from.seconds() - 1_000.0)), "it begins as the snapshot does: {first:?}");
    assert_eq!((first.confidence, first.ruled_out.len()), (Confidence::Medium, 0), "the disk is busy");
    assert!(first.summary.contains("is not told") && !first.summary.contains("busy only"), "{}", first.summary);
    assert!(first.remedies[0].runtime[0].contains("$currentOp"), "{:?}", first.remedies);
    let idle = Plant { busy: |_| 0.1, ..reader() }.found();
    assert_eq!((idle[0].confidence, idle[0].ruled_out.len()), (Confidence::High, 1));
    assert!(idle[0].summary.contains("busy only 10"), "{}", idle[0].summary);
    // Under a cap on what it writes the same disk is not idle.
    let at_cap = capped(&Plant { busy: |_| 0.1, disk_mib: |_| 30.0, ..reader() }, 30.0);
    let own = at_cap.iter().find(|finding| finding.rule == "history-pinned").unwrap();
    assert_eq!((own.confidence, own.ruled_out.len()), (Confidence::Medium, 0));
}

#[test]
fn a_reader_from_before_the_recording_is_as_old_as_new_ids_say() {
    let old = Plant {
        dirty: |s| 0.04 + 0.0008 * s as f64,
        pinned_ids: |s| 1e6 + 5_000.0 * s as f64,
        checkpoint: |_| false,
        ..reader()
    };
    let found = old.found();
    let first = found.iter().find(|finding| finding.rule == "history-pinned").unwrap();
    assert!((first.figure("behind_peak_s").unwrap() - 400.0).abs() < 3.0, "{first:?}");
    assert!(first.summary.contains("by the rate of new transactions"), "{}", first.summary);
    // Whoever looks for it looks for what was seen of its age.
    assert!(first.remedies[0].runtime[0].contains("secs_running: {$gte: 100}"), "{:?}", first.remedies);
}

#[test]
fn a_reader_comes_before_the_stall_that_it_brings_about() {
    let plant = Plant { pinned_ids: reader().pinned_ids, ..stalled() };
    assert_eq!(causes(&plant.found()), ["history-pinned long-reader", "wt-dirty-stall dirty-trigger"]);
}

#[test]
fn a_checkpoint_that_pins_is_no_reader() {
    let checkpoint = Plant { checkpoint: trouble, ..reader() };
    assert!(!blamed(&checkpoint), "{:?}", causes(&checkpoint.found()));
    // One that was there as the recording began may be as old as what it pins; and where nobody tells of checkpoints, it may be one.
    let early = Plant {
        dirty: |s| if s < 40 { 0.04 + 0.004 * s as f64 } else { 0.04 },
        pinned_ids: |s| if s < 40 { 5_000.0 * s as f64 } else { 80.0 },
        checkpoint: |s| s < 40,
        ..reader()
    };
    assert!(!blamed(&early));
    assert!(blamed(&Plant { checkpoint: |_| false, ..early }));
    let mut untold = reader().readings();
    untold.forget("wt.checkpoint");
    let window = untold.window(reader().meta(), 1_000.0, 1_000.0 + SECONDS as f64);
    assert!(diagnose(&window, &Options::default()).iter().all(|finding| finding.rule != "history-pinned"));
    // Nor is one that takes long, by timestamps: while it runs, those of its beginning stay.
    let long = Plant {
        pinned_ids: healthy().pinned_ids,
        pinned: |s| 300.0 + if (20..150).contains(&s) { (s - 20) as f64 } else { 0.0 },
        checkpoint: |s| (20..150).contains(&s),
        ..reader()
    };
    assert!(!blamed(&long), "{:?}", causes(&long.found()));
    assert!(blamed(&Plant { checkpoint: |_| false, ..long }));
    // A reader from before a checkpoint is one all the while.
    assert!(blamed(&Plant { checkpoint: |s| (125..160).contains(&s), ..reader() }));
}

#[test]
fn snapshots_that_harm_nobody_are_silent() {
    let unfelt = Plant { dirty: healthy().dirty, ..reader() };
    let short = Plant {
        pinned_ids: |s| if (100..115).contains(&s) { 5_000.0 * (s - 100) as f64 } else { (healthy().pinned_ids)(s) },
        ..reader()
    };
    // One after the other, each for ten seconds and begun before the last has ended.
    let many = Plant {
        pinned_ids: |s| if trouble(s) { 5_000.0 * (s % 5 + 5) as f64 } else { (healthy().pinned_ids)(s) },
        ..reader()
    };
    // An idle server moves its oldest ID on by a hundred.
    let few = Plant { pinned_ids: |s| (s % 100) as f64, ..reader() };
    // With a reader in a cache that comes to as much between checkpoints anyway.
    let usual = Plant { dirty: |s| 0.04 + 0.14 * (s % 60) as f64 / 60.0, ..reader() };
    for (name, plant) in [("unfelt", unfelt), ("short", short), ("many", many), ("few", few), ("usual", usual)] {
        assert!(!blamed(&plant), "{name}: {:?}", causes(&plant.found()));
    }
}

#[test]
fn history_that_is_written_for_a_reader_is_more_than_without_one() {
    let found = |per_s: fn(usize) -> f64| {
        let plant = Plant { dirty: healthy().dirty, ..reader() };
        let (mut readings, mut inserts) = (plant.readings(), 0.0);
        for second in 0..=SECONDS {
            readings.put(&cat::WT_HISTORY_INSERTS, &[T], 1_000.0 + second as f64, inserts);
            inserts += per_s(second);
        }
        let window = readings.window(plant.meta(), 1_000.0, 1_000.0 + SECONDS as f64);
        diagnose(&window, &Options::default()).iter().any(|finding| finding.cause == "long-reader")
    };
    assert!(found(|s| if trouble(s) { 1_000.0 } else { 200.0 }));
    assert!(!found(|_| 1_000.0), "the server keeps five minutes of it anyway");
}
