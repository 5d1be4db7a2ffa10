//! Cuts of runs of the blind test (`backwater lab blind`) on a real server, at least one for each family of rules: the injected
//! cause comes first, and what harms nobody gives no finding.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::Finding;
use common::judged::diagnose;
use common::recorded;

const WRITES_CAPPED: &str = include_str!("runs/blind/writes-capped.txt");
const DIRTY_LIMIT: &str = include_str!("runs/blind/dirty-limit.txt");
const DIRTY_LIMIT_BELOW_PAUSE: &str = include_str!("runs/blind/dirty-limit-below-pause.txt");
const SMALL_BATCHES: &str = include_str!("runs/blind/small-batches.txt");
const STANDBY_STOPPED: &str = include_str!("runs/blind/standby-stopped.txt");
const STANDBY_CAPPED: &str = include_str!("runs/blind/standby-capped.txt");
const SLOT_LEFT: &str = include_str!("runs/blind/slot-left.txt");
const BURST: &str = include_str!("runs/blind/burst.txt");
const SYNC_STANDBY: &str = include_str!("runs/blind/sync-standby.txt");

fn found(text: &str, keep: impl Fn(&str) -> bool) -> Vec<Finding> {
    diagnose(&recorded::window(text, keep), &Options::default())
}

fn first(text: &str) -> String {
    found(text, |_| true).first().map_or("nothing".to_owned(), |finding| format!("{} {}", finding.rule, finding.cause))
}

#[test]
fn the_injected_cause_comes_first() {
    let cases = [
        (WRITES_CAPPED, "io-capped cgroup-cap"),
        (SMALL_BATCHES, "commit-too-small local-sync"),
        (DIRTY_LIMIT, "dirty-throttle device-limit"),
        (DIRTY_LIMIT_BELOW_PAUSE, "dirty-throttle device-limit"),
        (STANDBY_STOPPED, "standby-gone disconnected"),
        (SLOT_LEFT, "slot-inactive retaining"),
        (STANDBY_CAPPED, "standby-disk cgroup-cap"),
    ];
    for (text, expected) in cases {
        assert_eq!(first(text), expected);
    }
}

/// A burst of WAL a hundred times above what went before, and a synchronous standby that answers soon.
#[test]
fn what_harms_nobody_is_silent() {
    for text in [BURST, SYNC_STANDBY] {
        for keep in [|_: &str| true, |word: &str| !word.contains("localhost:5433") && !word.contains("dev=7:1")] {
            assert_eq!(found(text, keep), []);
        }
    }
}

#[test]
fn a_narrow_limit_that_is_passed_for_moments_is_told_by_sessions_seen_in_the_pause() {
    // 45.8 MiB were allowed; the kernel paused writers for moments, around a mean level a little below where it begins.
    let findings = found(DIRTY_LIMIT_BELOW_PAUSE, |_| true);
    let figure = |name| findings[0].figure(name).unwrap();
    assert!(figure("dirty_level_bytes") < figure("pause_begins_bytes"), "{findings:?}");
    assert!((0.04..0.3).contains(&figure("kernel_paused_ratio")) && figure("stalled_s") >= 8.0, "{findings:?}");
    assert!(findings[0].summary.contains(" on average, "), "{}", findings[0].summary);
    assert_eq!((findings[1].rule.as_str(), findings[1].cause.as_str()), ("io-capped", "cgroup-cap"));
    // A level so near without anybody seen in the pause is no proof: of those seconds nothing is told.
    let unseen = DIRTY_LIMIT_BELOW_PAUSE.replace(" balance_dirty_pages ", " ext4_buffered_write_iter ");
    assert!(found(&unseen, |_| true)[0].figure("stalled_s").unwrap() <= 0.6 * figure("stalled_s"));
}

#[test]
fn a_limit_is_told_of_a_device_that_is_busy_most_of_the_time() {
    // 293 writes a second were allowed, on a disk that others used as well.
    let findings = found(WRITES_CAPPED, |_| true);
    let busy = findings[0].figure("device_busy_ratio").unwrap();
    assert!((0.5..0.8).contains(&busy) && findings[0].ruled_out.is_empty(), "{:?}", findings[0]);
    // Without the limit's own series nothing tells it from a device that does what it can.
    let blind = found(WRITES_CAPPED, |word| !word.starts_with("host.cgroup."));
    assert!(blind.iter().all(|finding| finding.rule != "io-capped"), "{blind:?}");
}

#[test]
fn a_limit_is_told_of_a_sync_that_outlasts_the_lag() {
    // 1 MiB a second was allowed: the standby's sync of 15 MiB took 14 seconds, of which the lag is the last ten.
    let findings = found(STANDBY_CAPPED, |_| true);
    let figure = |name| findings[0].figure(name).unwrap();
    let ratio = figure("reached_per_s") / figure("limit_per_s");
    assert!((0.9..1.1).contains(&ratio) && figure("written_bytes_per_s") > 1.3 * figure("limit_per_s"), "{findings:?}");
    // Without the limit's own series it is a device that is slow for a reason unseen.
    let blind = found(STANDBY_CAPPED, |word| !word.starts_with("host.cgroup."));
    assert_eq!((blind[0].rule.as_str(), blind[0].cause.as_str()), ("standby-disk", "slow"));
}

#[test]
fn a_job_is_told_by_its_statement() {
    // Sessions without a statement's text may be anybody's: their commits are as small as their business.
    assert_eq!(found(SMALL_BATCHES, |word| !word.contains(" client_backend ")), []);
}
