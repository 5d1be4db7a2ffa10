//! slow-writes on planted series: seconds of slow writes that no other rule speaks of, beside what rose with them; and where nothing is
//! said, because too little is known or something else takes them up.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::Severity;
use common::judged::{causes, diagnose, names};
use common::mongo_plant::{Plant, SECONDS, healthy, stalled, trouble};

fn slow(second: usize) -> bool {
    (100..112).contains(&second)
}

/// Writes are slow for twelve seconds, and the disk is busier then, though not full.
fn busier() -> Plant {
    Plant {
        checkpoint: |_| false,
        write_ms: |s| if slow(s) { 40.0 } else { 1.0 },
        busy: |s| if slow(s) { 0.6 } else { 0.2 },
        disk_mib: |_| 30.0,
        ..healthy()
    }
}

#[test]
fn slow_writes_that_no_rule_speaks_of_are_told_beside_what_rose_with_them() {
    let found = busier().found();
    assert_eq!(names(&found), ["slow-writes coincidence mongo.writes@m"]);
    let note = &found[0];
    assert_eq!(note.severity, Severity::Info, "a coincidence warns of nothing");
    assert!(note.remedies.is_empty() && note.victims.is_empty(), "{note:?}");
    let (rose, not) = note.summary.split_once("Not with them:").unwrap();
    assert!(rose.contains("In the 12 s in which writes were slow (40.0 ms instead of 1.00 ms)"), "{rose}");
    assert!(rose.contains("the disk was busy (60") && !rose.contains("dirty share"), "{rose}");
    assert!(not.contains("dirty share") && not.contains("lag of the majority"), "{not}");
    let of = |name: &str| note.figure(name).unwrap();
    assert!((of("write_inside_ms") - 40.0).abs() < 1.0 && (of("disk_busy_while_slow_ratio") - 0.6).abs() < 0.02);
    assert!(of("slow_s") == 12.0 && of("calm_s") > 180.0, "{note:?}");
    assert!((11.0..=14.0).contains(&note.to.seconds_since(note.from)), "{note:?}");
}

#[test]
fn a_finding_about_them_takes_them_up() {
    assert_eq!(causes(&stalled().found()), ["wt-dirty-stall dirty-trigger"]);
}

#[test]
fn a_finding_about_them_says_also_that_nothing_rose() {
    let storm = Plant {
        opened: |s| if trouble(s) { 800.0 } else { 1.0 },
        write_ms: |s| if trouble(s) { 40.0 } else { 1.0 },
        busy: |_| 0.2,
        ..busier()
    };
    let found = storm.found();
    assert_eq!(causes(&found), ["connection-storm churn"]);
    let words = &found[0].summary;
    assert!(words.contains("rose with them: nothing that is seen here. Not with them: dirty share"), "{words}");
}

#[test]
fn it_is_silent_where_nothing_rose_or_too_little_is_known() {
    let silent = |plant: Plant, why: &str| assert_eq!(causes(&plant.found()), [""; 0], "{why}");
    silent(healthy(), "healthy");
    silent(Plant { write_ms: |_| 40.0, ..busier() }, "slow from beginning to end is what is usual");
    silent(Plant { busy: |_| 0.2, ..busier() }, "nothing rose");
    silent(Plant { write_ms: |s| if (100..104).contains(&s) { 40.0 } else { 1.0 }, ..busier() }, "four seconds");
    silent(
        Plant {
            write_ms: |s| if s % 10 == 0 { 40.0 } else { 1.0 },
            busy: |s| if s % 10 == 0 { 0.6 } else { 0.2 },
            ..busier()
        },
        "single seconds",
    );
    silent(Plant { writes: |s| if slow(s) { 3.0 } else { 5_000.0 }, ..busier() }, "three writes a second");
    // Of the seconds that were not slow hardly any were recorded.
    let mut short = busier().readings();
    short.gap(1_000.5, 1_090.5);
    short.gap(1_120.5, 1_198.5);
    let window = short.window(busier().meta(), 1_000.0, 1_000.0 + SECONDS as f64);
    assert_eq!(causes(&diagnose(&window, &Options::default())), [""; 0]);
    // And of those that were, hardly any.
    let mut hole = busier().readings();
    hole.gap(1_102.5, 1_198.5);
    let window = hole.window(busier().meta(), 1_000.0, 1_000.0 + SECONDS as f64);
    assert_eq!(causes(&diagnose(&window, &Options::default())), [""; 0]);
}
