//! What one trouble of an engine brings about, on planted series: each finding below its reason, and the reason as severe.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_model::Severity;
use common::judged::causes;
use common::mongo_plant::{Plant, bursting, healthy, oversized, stalled, standing, trouble};

/// The findings' names, and that each but the first says that the first is its reason.
fn chain(plant: &Plant) -> Vec<String> {
    let found = plant.found();
    let (first, rest) = found.split_first().unwrap();
    assert_eq!(first.severity, Severity::Critical, "{first:?}");
    for symptom in rest {
        let told = format!("The reason is likely {} ({}, {})", first.rule, first.cause, first.queue);
        assert!(symptom.summary.contains(&told) && symptom.severity == Severity::Warning, "{symptom:?}");
        assert!(first.victims.contains(&symptom.queue), "{first:?}");
    }
    causes(&found)
}

#[test]
fn a_full_cache_comes_after_what_filled_it() {
    let pinned = Plant {
        dirty: |s| if trouble(s) { 0.04 + 0.0045 * (s - 100) as f64 } else { 0.04 },
        waiting: |s| if (130..140).contains(&s) { 12.0 } else { 0.0 },
        write_ms: |s| if (130..140).contains(&s) { 40.0 } else { 1.0 },
        majority_lag: |s| if trouble(s) { (s - 100) as f64 } else { 1.0 },
        pinned: |s| if trouble(s) { (s - 100) as f64 } else { 1.0 },
        pinned_by_oldest: |s| if trouble(s) { (s - 100) as f64 } else { 1.0 },
        busy: |_| 0.1,
        ..stalled()
    };
    assert_eq!(chain(&pinned), ["history-pinned slow-member", "wt-dirty-stall dirty-trigger"]);
    let expiring = Plant { ttl: |s| if trouble(s) { 5_000.0 } else { 50.0 }, ..stalled() };
    assert_eq!(chain(&expiring), ["ttl-burst expiry-at-once", "wt-dirty-stall dirty-trigger"]);
    // Expiry that begins long after the cache was full did not fill it.
    let later = Plant { ttl: |s| if (125..150).contains(&s) { 5_000.0 } else { 50.0 }, ..stalled() };
    assert!(later.found().iter().all(|finding| !finding.summary.contains("The reason is likely")));
}

#[test]
fn a_full_cache_comes_after_the_device_that_stood_still() {
    let standing = Plant {
        busy: |s| if trouble(s) && s % 10 < 4 { 1.0 } else { 0.3 },
        disk_mib: |s| if trouble(s) && s % 10 < 4 { 0.5 } else { 80.0 },
        ..stalled()
    };
    assert_eq!(chain(&standing), ["device-below-rating standstill", "wt-dirty-stall dirty-trigger"]);
    let found = standing.found();
    assert!((found[0].figure("before_bytes_per_s").unwrap() / 1_048_576.0 - 80.0).abs() < 1.0, "{:?}", found[0]);
    assert!(!found[0].summary.contains("It stops at"), "it stops at its best: {}", found[0].summary);
    // What it did then is no drain.
    let of_cache = found[1].remedies.iter().find(|remedy| remedy.runtime.iter().any(|line| line.contains("eviction")));
    assert_eq!(of_cache, None);
}

#[test]
fn operations_in_line_come_after_the_cache_that_holds_those_inside() {
    let crowded = || Plant {
        tickets_out: |s| if trouble(s) { 128.0 } else { 10.0 },
        in_line: |s| if trouble(s) { 300.0 } else { 0.0 },
        ..stalled()
    };
    assert_eq!(chain(&crowded()), ["wt-dirty-stall dirty-trigger", "tickets-exhausted write-tickets"]);
    // Each link names the one before it.
    let expiring = Plant { ttl: |s| if trouble(s) { 5_000.0 } else { 50.0 }, ..crowded() };
    let found = expiring.found();
    assert_eq!(
        causes(&found),
        ["ttl-burst expiry-at-once", "wt-dirty-stall dirty-trigger", "tickets-exhausted write-tickets"]
    );
    assert!(found[1].summary.contains("likely ttl-burst") && found[2].summary.contains("likely wt-dirty-stall"));
}

#[test]
fn operations_in_line_come_after_whatever_makes_those_inside_slow() {
    let tickets = "tickets-exhausted write-tickets";
    let bursts = Plant {
        tickets_out: |s| if s % 60 < 8 { 128.0 } else { 10.0 },
        in_line: |s| if s % 60 < 8 { 40.0 } else { 0.0 },
        ..bursting()
    };
    assert_eq!(chain(&bursts), ["checkpoint-burst engine-burst", tickets]);
    let stands = Plant {
        tickets_out: |s| if (100..134).contains(&s) { 128.0 } else { 10.0 },
        in_line: |s| if (100..134).contains(&s) { 40.0 } else { 0.0 },
        ..standing()
    };
    assert_eq!(chain(&stands), ["device-below-rating standstill", tickets]);
    let held = || Plant {
        tickets_out: |s| if trouble(s) { 128.0 } else { 10.0 },
        in_line: |s| if trouble(s) { 40.0 } else { 0.0 },
        write_ms: |s| if trouble(s) { 14.0 } else { 1.0 },
        checkpoint: |_| false,
        ..healthy()
    };
    let expiring = Plant { ttl: |s| if trouble(s) { 5_000.0 } else { 50.0 }, ..held() };
    assert_eq!(chain(&expiring), ["ttl-burst expiry-at-once", tickets]);
    let storming = Plant { opened: |s| if trouble(s) { 800.0 } else { 1.0 }, ..held() };
    assert_eq!(chain(&storming), ["connection-storm churn", tickets]);
}

#[test]
fn checkpoints_that_are_felt_come_after_what_makes_them_so() {
    let burst = "checkpoint-burst engine-burst";
    assert_eq!(chain(&oversized()), ["wt-cache-oversized burst-over-drain", burst]);
    // In each checkpoint the device stands still for four seconds.
    let stands = Plant {
        busy: |s| if s % 60 < 8 { 1.0 } else { 0.3 },
        disk_mib: |s| match s % 60 {
            2..6 => 0.5,
            0..8 => 80.0,
            _ => 60.0,
        },
        ..bursting()
    };
    assert_eq!(chain(&stands), ["device-below-rating standstill", burst]);
    // Four checkpoints while documents expire, and none after that.
    let expiring = Plant {
        ttl: |s| if s < 110 { 5_000.0 } else { 50.0 },
        checkpoint: |s| s < 110 && s % 30 < 8,
        write_ms: |s| match s {
            0..110 if s % 30 < 8 => 60.0,
            0..110 => 2.0,
            _ => 1.0,
        },
        busy: |s| if s < 110 && s % 30 < 8 { 1.0 } else { 0.1 },
        disk_mib: |s| if s < 110 && s % 30 < 8 { 400.0 } else { 10.0 },
        ..bursting()
    };
    assert_eq!(chain(&expiring), ["ttl-burst expiry-at-once", burst]);
}
