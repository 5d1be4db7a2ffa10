//! Cuts of labelled runs on the WiredTiger engine (arms of `backwater lab run wt-stall`, and runs of `lab blind --engine wiredtiger`;
//! WiredTiger 3.2.1, the load alone): what was set up comes first, and a disk that takes what is asked of it gives no finding.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{EngineChange, EngineOptions, Options, advise_engines};
use backwater_model::{Confidence, Finding, Moment, Severity};
use common::judged::diagnose;
use common::recorded;

/// Arm `ttl-quiet`: the page cache, which a checkpoint's fsync empties while the journal's waits. Four seconds of the disk at once, of
/// a cache whose eviction begins at seven.
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
/// Blind `engine-cache-oversized`: a cache that gathers 489 MiB for a disk that takes 45 MiB/s beside the journal.
const OVERSIZED: &str = include_str!("runs/wt/cache-oversized.txt");
/// Blind `engine-threads`: a thread and a session for each operation from the middle on, a pool before that.
const CHURN: &str = include_str!("runs/wt/connection-churn.txt");
/// Blind `engine-slow-member`: no majority confirms from the sixth second on, and the disk has room for everything.
const SLOW_MEMBER: &str = include_str!("runs/wt/slow-member.txt");
/// Arm `direct-pinned`: a snapshot held for all 65 seconds, before a small cache, while others compile on both processors.
const READER: &str = include_str!("runs/wt/direct-pinned.txt");
/// Arm `pinned-history` of the same run: the same reader, whom nobody feels in a large cache that checkpoints clean.
const UNFELT_READER: &str = include_str!("runs/wt/pinned-history.txt");
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
        (BURST, "wt-cache-oversized burst-over-drain"),
        (STALL, "wt-dirty-stall dirty-trigger"),
        (CAPPED, "io-capped cgroup-cap"),
        (LUMPS, "io-capped cgroup-cap"),
        (DIRTY_LIMIT, "dirty-throttle device-limit"),
        (EXPIRY, "ttl-burst expiry-at-once"),
        (OVERSIZED, "wt-cache-oversized burst-over-drain"),
        (CHURN, "connection-storm churn"),
        (SLOW_MEMBER, "history-pinned slow-member"),
        (READER, "history-pinned long-reader"),
        (UNFELT_READER, "checkpoint-burst engine-burst"),
    ];
    for (text, expected) in cases {
        let findings = found(text, |_| true);
        let first = findings.first().map(|finding| format!("{} {}", finding.rule, finding.cause));
        assert_eq!(first.as_deref(), Some(expected));
    }
}

#[test]
fn what_stands_in_the_page_cache_before_the_journal_is_told() {
    let of_bursts =
        |keep: fn(&str) -> bool| found(BURST, keep).into_iter().find(|f| f.rule == "checkpoint-burst").unwrap();
    let burst = of_bursts(|_| true);
    assert!(burst.summary.contains("The reason is likely wt-cache-oversized"), "{}", burst.summary);
    assert!(burst.figure("page_cache_peak_bytes").unwrap() > 16.0 * 1_048_576.0, "{burst:?}");
    assert!(burst.summary.contains("in the page cache: what a checkpoint brings"), "{}", burst.summary);
    let unseen = of_bursts(|word| !word.starts_with("host.bdi."));
    assert_eq!((unseen.cause.as_str(), unseen.figure("page_cache_peak_bytes")), ("engine-burst", None));
    assert!(!unseen.summary.contains("page cache"), "{}", unseen.summary);
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
fn a_storm_that_fills_the_window_is_told_by_what_is_left_of_the_processors() {
    // From the middle on, where a thread is made for each operation.
    let storm = |text: &str| {
        let window = recorded::window(text, |_| true);
        let mut found = diagnose(&window.slice(Moment::from_seconds(16.0), window.to), &Options::default());
        found.retain(|finding| finding.rule == "connection-storm");
        found.remove(0)
    };
    let found = storm(CHURN);
    assert_eq!((found.cause.as_str(), found.severity), ("churn", Severity::Warning));
    assert!(found.figure("write_outside_ms").is_none() && found.figure("life_s").unwrap() < 2.0, "{found:?}");
    assert!(found.figure("idle_processors_ratio").unwrap() < 0.2, "{found:?}");
    assert_eq!(storm(&CHURN.replace("\"local\":true", "\"local\":false")).severity, Severity::Info);
}

#[test]
fn a_reader_is_as_old_as_its_load_and_comes_before_the_stall_of_it() {
    let findings = found(READER, |_| true);
    let told: Vec<_> = findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(told, ["history-pinned", "wt-dirty-stall"]);
    assert!((63.0..=67.0).contains(&findings[0].figure("behind_peak_s").unwrap()), "{findings:?}");
    assert!(findings[1].summary.contains("The reason is likely history-pinned"), "{}", findings[1].summary);
    assert!(found(UNFELT_READER, |_| true).iter().all(|finding| finding.rule != "history-pinned"));
}

#[test]
fn what_was_not_read_accuses_nobody() {
    for (text, unread, rule) in [
        (CHURN, &["mongo.connections."][..], "connection-storm"),
        (SLOW_MEMBER, &["mongo.repl.committed_s"], "history-pinned"),
        // Either of the two shows that the cache suffers from it.
        (SLOW_MEMBER, &["wt.cache.dirty_bytes", "wt.history.inserts"], "history-pinned"),
        (READER, &["wt.history.pinned_ids"], "history-pinned"),
        // What pins may be a checkpoint for all that is known.
        (READER, &["wt.checkpoint.running"], "history-pinned"),
        (READER, &["wt.cache.dirty_bytes", "wt.history.inserts"], "history-pinned"),
        (OVERSIZED, &["host.disk."], "wt-cache-oversized"),
    ] {
        let findings = found(text, |word| !unread.iter().any(|name| word.starts_with(name)));
        assert!(findings.iter().all(|finding| finding.rule != rule), "{unread:?}: {findings:?}");
    }
}

#[test]
fn without_the_engines_own_figures_it_is_not_accused() {
    for text in [BURST, STALL, OVERSIZED, SLOW_MEMBER, READER] {
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

/// The recording with a series of the engine that the cut left out.
fn with(text: &str, name: &str, value: impl Fn(f64) -> f64) -> String {
    let points = (0..66).map(|second| format!("{second}.1={:.0}", value(f64::from(second)))).collect::<Vec<_>>();
    format!("{text}series {name} target=wiredtiger\n{}\n", points.join(" "))
}

/// What is advised to set, in its order.
fn advised(text: &str) -> Vec<String> {
    let window = recorded::window(text, |_| true);
    let changes = advise_engines(&window, &EngineOptions::default()).remove(0).changes;
    let word = |change: &EngineChange| match change.dirty_limit_bytes {
        Some(_) => "dirty_limit".to_owned(),
        None => change.settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
    };
    changes.iter().map(word).collect()
}

#[test]
fn what_stands_in_the_page_cache_is_passed_by_where_nothing_is_read_back() {
    let reading = |bytes_per_s: f64| with(BURST, "wt.cache.read_bytes", |second| second * bytes_per_s);
    assert_eq!(advised(&reading(0.0))[..2], ["direct_io=[data]", "dirty_limit"]);
    assert_eq!(advised(&reading(20e6))[0], "dirty_limit", "what is read back would come from the disk");
    assert_eq!(advised(BURST)[0], "dirty_limit", "nobody counted what is read");
    let newer = reading(0.0).replace("\"version_num\":30201", "\"version_num\":110300");
    assert_eq!(advised(&newer)[0], "dirty_limit", "the engine no longer can");
}

#[test]
fn pages_that_are_waited_for_while_many_threads_evict_ask_for_fewer_threads() {
    // 25 of 32 threads wait for a page; the disk leaves some 23 MB a second beside the journal, and a page may have 5 MiB.
    // Application threads need not evict soon.
    let roomy = CAPPED.replace("\"eviction_dirty_trigger\":\"20\"", "\"eviction_dirty_trigger\":\"60\"");
    assert_ne!(roomy, CAPPED);
    let pool = with(&roomy, "mongo.connections.current", |_| 32.0);
    let pool = with(&pool, "wt.cache.read_bytes", |_| 0.0);
    let waiting = |threads: f64| with(&pool, "wt.app.page_waiting_us", |second| second * threads * 1e6);
    let many = waiting(25.0).replace("(threads_min=4,threads_max=4)", "(threads_min=14,threads_max=18)");
    assert_eq!(advised(&many).first().map(String::as_str), Some("eviction=(threads_min=1,threads_max=2)"));
    let asks = |text: &str| advised(text).iter().any(|change| change.starts_with("eviction=("));
    assert!(asks(&waiting(25.0)), "four are more than two");
    let near = many.replace("\"eviction_dirty_trigger\":\"60\"", "\"eviction_dirty_trigger\":\"20\"");
    assert!(!asks(&near), "with fewer, dirty pages would come to where application threads evict");
    assert!(!asks(&many.replace("threads_max=18", "threads_max=2")), "there are no more than that");
    assert!(!asks(&waiting(3.0)) && !asks(CAPPED), "hardly anybody waits for a page");
    let reading =
        with(&many.replace("wt.cache.read_bytes", "wt.log.sync_us"), "wt.cache.read_bytes", |second| second * 2e7);
    assert!(!asks(&reading), "pages that are read are waited for as well");
}
