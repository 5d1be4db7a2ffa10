//! Cuts of labelled runs on the WiredTiger engine (arms of `backwater lab run wt-stall`, and runs of `lab blind --engine wiredtiger`;
//! WiredTiger 3.2.1, the load alone): what was set up comes first, and a disk that takes what is asked of it gives no finding.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::{Confidence, Finding, Severity};
use common::judged::diagnose;
use common::recorded;

/// Arm `ttl-quiet`: the page cache, which a checkpoint's fsync empties while the journal's waits.
const BURST: &str = include_str!("runs/wt/ttl-quiet.txt");
/// Arm `direct-last-round`: a small cache, in which application threads evict for three fifths of their time.
const STALL: &str = include_str!("runs/wt/direct-last-round.txt");
/// Arm `direct-defaults`: the cap itself, and nothing of the engine.
const CAPPED: &str = include_str!("runs/wt/direct-defaults.txt");
/// Blind `engine-capped`: 1.76 MiB a second were allowed, and requests of three to five MiB pass whole.
const LUMPS: &str = include_str!("runs/wt/capped-in-lumps.txt");
/// Blind `engine-dirty-limit`: one thread is paused, the others stand behind it at the journal's file; under it is a cap.
const DIRTY_LIMIT: &str = include_str!("runs/wt/dirty-limit.txt");
/// Blind `engine-expiry`: what was deleted in three seconds stands before everybody, so that nothing is answered for longer.
const EXPIRY: &str = include_str!("runs/wt/expiry-stands.txt");
/// Arms `quiet-hours` and `direct-quiet-hours`: an eighth of the load.
const QUIET: [&str; 2] = [include_str!("runs/wt/quiet-hours.txt"), include_str!("runs/wt/direct-quiet-hours.txt")];

fn found(text: &str, keep: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = diagnose(&recorded::window(text, keep), &Options::default());
    findings.retain(|finding| finding.severity >= Severity::Warning);
    findings
}

#[test]
fn what_was_set_up_comes_first() {
    let cases = [
        (BURST, "checkpoint-burst engine-burst"),
        (STALL, "wt-dirty-stall dirty-trigger"),
        (CAPPED, "io-capped cgroup-cap"),
        (LUMPS, "io-capped cgroup-cap"),
        (DIRTY_LIMIT, "dirty-throttle device-limit"),
        (EXPIRY, "ttl-burst expiry-at-once"),
    ];
    for (text, expected) in cases {
        let findings = found(text, |_| true);
        let first = findings.first().map(|finding| format!("{} {}", finding.rule, finding.cause));
        assert_eq!(first.as_deref(), Some(expected));
    }
}

#[test]
fn a_cap_that_passes_requests_whole_is_told_by_what_passed_in_all() {
    let findings = found(LUMPS, |_| true);
    assert!((findings[0].figure("reached_ratio").unwrap() - 1.0).abs() < 0.04, "{findings:?}");
    assert!(findings[0].figure("capped_s").unwrap() >= 25.0, "{findings:?}");
    // Half as much again was allowed, or a third less: then what passed is the load's own doing.
    for allowed in ["2772161", "1232071"] {
        let other = LUMPS.replace("=1848134", &format!("={allowed}"));
        assert_ne!(other, LUMPS);
        assert_eq!(found(&other, |_| true).iter().filter(|finding| finding.rule == "io-capped").count(), 0);
    }
}

#[test]
fn threads_that_stand_behind_one_that_is_paused_tell_a_dirty_limit() {
    let findings = found(DIRTY_LIMIT, |_| true);
    assert_eq!((findings[1].rule.as_str(), findings[0].confidence), ("io-capped", Confidence::High));
    // Threads that sleep are not seen, so nobody knows the share of all.
    assert!(findings.iter().all(|finding| finding.foreground_lost.is_none()), "{findings:?}");
    assert_eq!(findings[0].severity, Severity::Critical);
    // Without them it is the cap alone; and a little below where pauses begin, a queue with nobody paused at its head proves nothing.
    let throttled = |text: &str| found(text, |_| true).iter().any(|finding| finding.rule == "dirty-throttle");
    let sightless: Vec<&str> = DIRTY_LIMIT.lines().filter(|line| !line.starts_with("look ")).collect();
    assert!(!throttled(&sightless.join("\n")));
    let headless = DIRTY_LIMIT.replace(" balance_dirty_pages ", " ext4_buffered_write_iter ");
    let stalled_s = |text: &str| {
        let throttle = found(text, |_| true).into_iter().find(|finding| finding.rule == "dirty-throttle");
        throttle.and_then(|finding| finding.figure("stalled_s")).unwrap_or(0.0)
    };
    assert!(stalled_s(&headless) < stalled_s(DIRTY_LIMIT), "{} {}", stalled_s(&headless), stalled_s(DIRTY_LIMIT));
}

#[test]
fn what_is_not_answered_has_no_latency_and_is_told_all_the_same() {
    let findings = found(EXPIRY, |_| true);
    assert!(
        findings[0].figure("stood_s").unwrap() >= 6.0 && findings[0].severity == Severity::Critical,
        "{findings:?}"
    );
    // Deletes alone are none of it, nor a load that ends as they begin.
    let deleted = |text: &str| found(text, |_| true).iter().any(|finding| finding.rule == "ttl-burst");
    assert!(!deleted(&with_nobody_at_work(EXPIRY)));
}

/// Nobody has anything to do from the moment on at which documents expired.
fn with_nobody_at_work(text: &str) -> String {
    let idle = |points: &str| {
        let points = points.split_whitespace().filter_map(|point| point.split_once('='));
        let late = |at: &str| at.parse::<f64>().unwrap() >= 15.0;
        points.map(|(at, value)| format!("{at}={}", if late(at) { "0" } else { value })).collect::<Vec<_>>().join(" ")
    };
    let (mut made, mut waiting) = (Vec::new(), false);
    for line in text.lines() {
        made.push(if waiting { idle(line) } else { line.to_owned() });
        waiting = line.starts_with("series load.waiting");
    }
    made.join("\n")
}

#[test]
fn a_disk_that_takes_what_is_asked_of_it_gives_no_finding() {
    for text in QUIET {
        assert_eq!(found(text, |_| true), []);
    }
}

#[test]
fn without_the_engines_own_figures_it_is_not_accused() {
    for text in [BURST, STALL] {
        let findings = found(text, |word| !word.starts_with("wt."));
        assert!(findings.iter().all(|finding| !finding.queue.starts_with("wt.")), "{findings:?}");
    }
}

/// As many operations under way as wait for the journal on a slow disk, and so many threads, if any are told.
fn queued(text: &str, threads: Option<u32>) -> String {
    let set = |line: &str, value: &str| {
        let points = line.split_whitespace().filter_map(|point| point.split_once('='));
        points.map(|(at, _)| format!("{at}={value}")).collect::<Vec<_>>().join(" ")
    };
    let (mut made, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        made.push(line.to_owned());
        if line.starts_with("series load.waiting") {
            let points = lines.next().unwrap();
            made.push(set(points, "4500"));
            if let Some(threads) = threads {
                made.push("series mongo.connections.current target=wiredtiger".to_owned());
                made.push(set(points, &threads.to_string()));
            }
        }
    }
    made.join("\n")
}

#[test]
fn operations_that_wait_for_the_journal_are_not_threads_at_work() {
    let stalled = |text: &str| found(text, |_| true).iter().any(|finding| finding.rule == "wt-dirty-stall");
    assert!(!stalled(&queued(STALL, None)));
    assert!(stalled(&queued(STALL, Some(32))));
}

#[test]
fn what_rose_with_the_stall_is_said() {
    let findings = found(STALL, |_| true);
    let (rose, _) = findings[0].summary.split_once("rose with them: ").unwrap();
    assert!(rose.contains("in which writes were slow"), "{rose}");
    assert!(findings[0].summary.contains("threads waiting for the cache"), "{}", findings[0].summary);
}
