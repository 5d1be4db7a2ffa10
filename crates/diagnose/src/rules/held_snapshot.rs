//! How long one snapshot has been open, told by the range of transaction IDs that the engine keeps apart for it. While a snapshot is
//! open, the oldest of these IDs stays and only newer ones are added, so that the range never falls: whoever is at work ends within
//! moments, and with each end the range falls. This needs no timestamps, which operations outside a replica set do not have.

use super::wt_evidence::{Engine, gauge};
use crate::grid::Lane;
use crate::scene::Scene;
use backwater_model::catalogue as cat;
use std::ops::Range;

/// Seconds for which one ID must be seen to stay the oldest. An operation that waits for a page comes to a few.
const LEAST_S: usize = 20;
/// Up to so many IDs are pinned by whoever is at work; and the engine moves the oldest on by a hundred at a time (WiredTiger `txn.c`,
/// `__wt_txn_update_oldest`), so that on an idle server the range grows by few, and for long.
const FEW_IDS: f64 = 1_000.0;
/// Seconds after the end of a checkpoint in which the oldest ID may still be the one that it pinned.
const LETS_GO_S: usize = 3;

/// The age in seconds of the oldest snapshot, second by second; none where no snapshot is seen to stay open, and where it may be a
/// checkpoint's. What lies before it is first seen is told by the rate of new IDs since then.
pub(super) fn age(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    let ids = pinned_ids(scene, engine).at_least(FEW_IDS);
    let checkpoint = checkpoint_s(&engine.checkpoint);
    let mut ages = scene.grid.unknown();
    for held in unfallen(&ids) {
        let begun_s = before_s(&ids, &held).filter(|_| outlasts(&held, &checkpoint));
        for (second, begun_s) in held.clone().zip(std::iter::repeat(begun_s)) {
            ages.0[second] = begun_s.map(|begun_s| begun_s + (second - held.start) as f64);
        }
    }
    ages
}

/// How many transaction IDs the oldest snapshot pins.
pub(super) fn pinned_ids(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    gauge(scene, &cat::WT_PINNED_IDS, &engine.name, None)
}

/// Stretches in which it is always known and never falls.
fn unfallen(ids: &Lane) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for second in 0..ids.0.len() {
        let Some(now) = ids.get(second) else { continue };
        let goes_on = second > 0 && ids.get(second - 1).is_some_and(|before| now >= before);
        match found.last_mut() {
            Some(last) if goes_on => last.end = second + 1,
            _ => found.push(second..second + 1),
        }
    }
    found
}

/// How long before a stretch its oldest ID was new, at the rate at which IDs came since; none where none came.
fn before_s(ids: &Lane, held: &Range<usize>) -> Option<f64> {
    let (first, last) = (ids.get(held.start)?, ids.get(held.end - 1)?);
    let per_s = (last - first) / (held.len() - 1).max(1) as f64;
    (per_s > 0.0).then(|| first / per_s)
}

/// Whether an ID was the oldest for long and, so long at least, for no checkpoint: that is a reader, too, and pins as it begins.
fn outlasts(held: &Range<usize>, checkpoint: &Lane) -> bool {
    let reader = |second: usize| {
        of_checkpoint_s(checkpoint, second)
            .is_some_and(|seconds| (second + 1 - held.start) as f64 - seconds >= LEAST_S as f64)
    };
    held.len() >= LEAST_S && held.clone().any(reader)
}

/// What of an age, in seconds, is of no checkpoint: a running one pins the time of its beginning like a reader (WiredTiger `txn.c`,
/// `__wt_txn_stats_update`). None while nobody knows since when one runs.
pub(super) fn beyond_checkpoints(age_s: &Lane, running: &Lane) -> Lane {
    let checkpoint = checkpoint_s(running);
    Lane((0..age_s.0.len()).map(|s| Some((age_s.get(s)? - of_checkpoint_s(&checkpoint, s)?).max(0.0))).collect())
}

/// How old a checkpoint's hold may be in a second; none where that is not known.
fn of_checkpoint_s(checkpoint: &Lane, second: usize) -> Option<f64> {
    let recent = second.saturating_sub(LETS_GO_S)..second + 1;
    let known = checkpoint.values(&recent).len() == recent.len();
    checkpoint.max(&recent).filter(|_| known)
}

/// For how many seconds a checkpoint has been running, second by second; none while one does that was not seen to begin.
fn checkpoint_s(running: &Lane) -> Lane {
    let since = running.0.iter().scan(None, |before: &mut Option<f64>, running| {
        *before = match running {
            Some(running) if *running > 0.0 => before.map(|seconds| seconds + 1.0),
            Some(_) => Some(0.0),
            None => None,
        };
        Some(*before)
    });
    Lane(since.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(values: &[f64]) -> Lane {
        Lane(values.iter().map(|value| (*value >= 0.0).then_some(*value)).collect())
    }

    #[test]
    fn a_range_that_falls_is_of_another_snapshot() {
        assert_eq!(unfallen(&lane(&[5.0, 6.0, 6.0, 2.0, 3.0, -1.0, 9.0])), [0..3, 3..5, 6..7]);
        assert_eq!(unfallen(&lane(&[])), []);
    }

    #[test]
    fn what_was_before_is_told_by_the_rate_since() {
        let grows = lane(&[100.0, 150.0, 200.0]);
        assert_eq!(before_s(&grows, &(0..3)), Some(2.0));
        assert_eq!(before_s(&lane(&[100.0, 100.0]), &(0..2)), None, "nothing is written, so nothing tells");
        assert_eq!(before_s(&grows, &(1..2)), None);
    }

    #[test]
    fn a_checkpoint_is_no_reader_and_hides_none_that_is_older() {
        let running = |from: usize, to: usize| {
            let flags: Vec<f64> = (0..60).map(|second| f64::from(u8::from((from..to).contains(&second)))).collect();
            checkpoint_s(&lane(&flags))
        };
        assert_eq!(running(1, 4).0[..5], [Some(0.0), Some(1.0), Some(2.0), Some(3.0), Some(0.0)]);
        assert!(!outlasts(&(10..42), &running(10, 40)), "it pins from its beginning until just after its end");
        assert!(outlasts(&(10..60), &running(10, 40)), "it has ended long ago");
        assert!(outlasts(&(10..40), &running(32, 60)), "the reader was there first");
        assert!(!outlasts(&(10..28), &running(0, 0)), "too short to tell");
        assert!(!outlasts(&(0..40), &running(0, 60)), "one that was not seen to begin may be as old");
        assert!(!outlasts(&(0..60), &Lane(vec![None; 60])), "nobody knows whether one ran");
    }
}
