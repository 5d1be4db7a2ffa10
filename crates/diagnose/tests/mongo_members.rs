//! Members of a replica set on planted series: what a slow one does to its primary, and what looks like it.
#![allow(clippy::unwrap_used)]

mod common;

use common::judged::causes;
use common::mongo_plant::{Plant, healthy, trouble};

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
    assert!(found[0].summary.contains("member 2"), "{}", found[0].summary);
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
