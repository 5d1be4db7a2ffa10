//! Caches that are too large for what stands below them, on planted series: bursts that the disk needs seconds for, page caches that
//! starve, and what looks like either and is not.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::Target;
use backwater_model::catalogue as cat;
use common::judged::{causes, diagnose};
use common::mongo_plant::{Plant, SECONDS, count, healthy, oversized, trouble};

#[test]
fn a_burst_that_the_disk_needs_seconds_for_comes_of_the_caches_size() {
    let found = oversized().found();
    assert_eq!(causes(&found), ["wt-cache-oversized burst-over-drain", "checkpoint-burst engine-burst"]);
    let first = &found[0];
    assert!((4.0..6.0).contains(&first.figure("drain_s").unwrap()), "{first:?}");
    assert!((40.0..55.0).contains(&(first.figure("burst_bytes").unwrap() / 1_048_576.0)), "{first:?}");
    assert!(first.remedies[0].runtime[0].contains("eviction_dirty_target=10MB"), "{first:?}");
    // A burst over the dirty target came though eviction wrote all the time: a smaller target changes nothing.
    let above = Plant { settings: "eviction_dirty_target=2", ..oversized() };
    assert_eq!(causes(&above.found()), ["checkpoint-burst engine-burst"]);
    let fast = Plant { disk_mib: |s| if s % 60 < 8 { 100.0 } else { 1.0 }, ..oversized() };
    assert_eq!(causes(&fast.found()), ["checkpoint-burst engine-burst"]);
    // A slow processor gathers for half of the checkpoint what the disk then takes the other half for.
    let gathers = Plant {
        busy: |s| if (4..8).contains(&(s % 60)) { 1.0 } else { 0.02 },
        disk_mib: |s| if (4..8).contains(&(s % 60)) { 10.0 } else { 1.0 },
        ..oversized()
    };
    let found = gathers.found();
    assert_eq!(causes(&found)[0], "wt-cache-oversized burst-over-drain");
    // Readings tell of the second before them, so that one of five is another's; over all of a checkpoint it would be 6 MiB/s.
    assert!((8.0..11.0).contains(&(found[0].figure("drain_bytes_per_s").unwrap() / 1_048_576.0)), "{:?}", found[0]);
    let hardly = Plant { busy: |s| if s % 60 == 4 { 1.0 } else { 0.02 }, ..gathers };
    assert!(!causes(&hardly.found()).iter().any(|name| name.starts_with("wt-cache")), "full for a second of eight");
    let never_idle = Plant { busy: |_| 1.0, ..oversized() };
    assert!(!causes(&never_idle.found()).iter().any(|name| name.starts_with("wt-cache")), "no time to write earlier");
}

#[test]
fn what_is_compressed_is_written_in_no_longer_than_a_checkpoint_takes() {
    let packed = Plant { checkpoint: |s| s % 60 < 2, busy: |s| if s % 60 < 2 { 1.0 } else { 0.02 }, ..oversized() };
    let packed = Plant { disk_mib: |s| if s % 60 < 2 { 10.0 } else { 0.1 }, packed: 2.5, ..packed };
    assert!(!causes(&packed.found()).iter().any(|name| name.starts_with("wt-cache")), "{:?}", packed.found());
}

#[test]
fn the_device_is_that_of_the_data_and_not_of_the_journal() {
    let found = oversized().found_with(|readings, meta| {
        meta.targets[0].wal_device = Some("journal".to_owned());
        let journal = [("dev", "journal")];
        count(readings, &cat::DISK_BUSY_MS, &journal, |_| 1_000.0);
        count(readings, &cat::DISK_WRITTEN_BYTES, &journal, |_| 50.0 * 1_048_576.0);
        count(readings, &cat::DISK_WRITES, &journal, |_| 500.0);
    });
    assert_eq!(causes(&found)[0], "wt-cache-oversized burst-over-drain", "{found:?}");
}

#[test]
fn a_disk_that_a_cap_holds_back_is_at_work_though_it_is_hardly_busy() {
    let held = Plant { busy: |_| 0.1, ..oversized() };
    assert!(
        !causes(&held.found()).iter().any(|name| name.starts_with("wt-cache")),
        "nothing says that it does all it can"
    );
    let mut readings = held.readings();
    for second in 0..=SECONDS {
        let cap = [("cgroup", "/"), ("dev", "sda"), ("op", "write")];
        readings.put(&cat::CGROUP_BPS_LIMIT, &cap, 1_000.0 + second as f64, 10.0 * 1_048_576.0);
    }
    let window = readings.window(held.meta(), 1_000.0, 1_000.0 + SECONDS as f64);
    let found = diagnose(&window, &Options::default());
    assert_eq!(causes(&found)[0], "wt-cache-oversized burst-over-drain");
    assert!(found[0].figure("used_inside_ratio").unwrap() > 0.9, "{:?}", found[0]);
}

#[test]
fn a_cache_that_leaves_no_memory_starves_the_page_cache() {
    let starved = Plant {
        memory_left: |s| if trouble(s) { 0.05 } else { 0.2 },
        faults: |s| if trouble(s) { 900.0 } else { 1.0 },
        ..healthy()
    };
    let found = starved.found();
    assert_eq!(causes(&found), ["wt-cache-oversized page-cache-starved"]);
    assert!((found[0].figure("faults_per_s").unwrap() - 900.0).abs() < 50.0);
    // The cache of 1 GiB takes two thirds; and of a little more than half, what is lacking is less than MongoDB itself would leave.
    for (memory_gib, most) in [(1.5, 0.25), (1.75, 0.375)] {
        let remedy = &Plant { memory_gib, ..starved }.found()[0].remedies[0];
        assert!(remedy.title.contains("relieves the page cache"), "{remedy:?}");
        let gib = remedy.predicted[0].value / 1_073_741_824.0;
        assert!((gib - most).abs() < 0.01, "{memory_gib}: {gib}");
    }
    let resident = Plant { faults: |_| 1.0, ..starved };
    assert_eq!(causes(&resident.found()), [""; 0], "memory in use that nobody misses");
}

#[test]
fn the_memory_that_was_read_is_of_the_one_engine_on_this_host() {
    let starved = Plant { memory_left: |_| 0.05, faults: |_| 900.0, ..healthy() };
    // Another member of the set, or a router, with this host's or another's engine beside it.
    let beside = |own_is_here: bool, name: &str, is_here: bool, has_engine: bool| {
        let found = starved.found_with(|readings, meta| {
            meta.targets[0].local = own_is_here;
            meta.targets.push(Target {
                name: name.into(),
                kind: "mongodb".into(),
                local: is_here,
                ..Target::default()
            });
            let (other, def) =
                (("target", name), if has_engine { &cat::WT_CACHE_MAX } else { &cat::MONGO_CONNECTIONS });
            (0..=SECONDS).for_each(|second| readings.put(def, &[other], 1_000.0 + second as f64, 100.0));
        });
        causes(&found).contains(&"wt-cache-oversized page-cache-starved".to_owned())
    };
    assert!(beside(true, "member", false, true) && beside(true, "router", true, false));
    assert!(!beside(true, "member", true, true), "both caches leave what is left");
    assert!(!beside(false, "member", false, true) && !beside(false, "router", true, false));
    let elsewhere = starved.found_with(|_, meta| meta.targets[0].local = false);
    assert_eq!(causes(&elsewhere), [""; 0], "the memory that was read is of the recorder's host");
}
