//! Commits a second by the ages at which samples find transactions: what there is where nobody counts the writing ones.
//!
//! Other counts do not tell them. The server's (xact_commit) has commits that only read in it, and stands still while a procedure
//! commits inside, so that it is no more than a bound from above; the position that is flushed tells bytes. Ages tell of each
//! session by itself, whatever others do. One that is in transactions of lengths L is found younger than `a` in
//! ∫₀ᵃ P(L > u) du ÷ E[L] ≤ a ÷ E[L] of its samples (the age in a renewal process: D. R. Cox, Renewal Theory, 1962), and in just as
//! many while `a` is no longer than the shortest. So that share ÷ `a` is the rate at which they follow one another, or less than it
//! where they are unlike, never more. At the median age a stall, which is one transaction and many samples, counts little; a mean
//! would take all of them to be as long. Ages of sessions together tell nothing: a report of ten seconds is no commit's length.

use super::jobs::{SAME, first_word, statement};
use backwater_model::{CommitWait, Sample, Track, Window, catalogue as cat};
use std::collections::BTreeMap;

/// Ages of a session from which its rate is told: with twelve it is sure to some 30 %.
const LEAST_AGES: usize = 12;
/// Transactions shorter than this cannot be told by their age, which is known in whole milliseconds, a moment after the look began.
const SHORTEST_MS: f64 = 10.0;
/// How much older a transaction may be than the statement in it that began it, and the share of samples in which it may be more.
const BEGUN_MS: i64 = 1;
const IN_BLOCKS: f64 = 0.1;
/// How statements begin that are a transaction of their own, or at least cannot commit inside.
const PLAIN: [&str; 5] = ["INSERT", "COPY", "UPDATE", "DELETE", "MERGE"];

/// How long the transactions of one session take, in milliseconds, or longer than that where they are unlike; none where no age is
/// told.
pub(super) fn length_ms(samples: &[&Sample]) -> Option<f64> {
    let mut ages: Vec<i64> = samples.iter().filter_map(|sample| sample.xact_age_ms).collect();
    ages.sort_unstable();
    // Of milliseconds that have begun only those that are over are told.
    let limit_ms = ages.get(ages.len() / 2)?.saturating_add(1);
    let younger = ages.partition_point(|age| *age < limit_ms);
    let length_ms = limit_ms as f64 * ages.len() as f64 / younger as f64;
    (length_ms.is_finite() && length_ms > 0.0).then_some(length_ms)
}

/// Commits a second of those of these sessions that wait for commits, at so many looks; none unless it is told of each of them.
pub(super) fn commits_per_s(samples: &[&Sample], looks: usize) -> Option<f64> {
    let mut sessions: BTreeMap<i32, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        sessions.entry(sample.pid).or_default().push(sample);
    }
    // Who is never seen to wait for a commit only reads, or commits so seldom that it does not count.
    sessions.retain(|_, own| own.iter().any(|sample| CommitWait::of(sample).is_some()));
    let rates: Option<Vec<f64>> = sessions.values().map(|own| of_session(own, looks)).collect();
    rates.filter(|rates| !rates.is_empty()).map(|rates| rates.iter().sum())
}

fn of_session(samples: &[&Sample], looks: usize) -> Option<f64> {
    let aged: Vec<&Sample> = samples.iter().copied().filter(|sample| sample.xact_age_ms.is_some()).collect();
    // Of one that does several things some may only read.
    let (text, same) = statement(samples);
    // Between the statements of a transaction nobody looks, so that its samples are of a part of its length.
    let begun_before =
        |sample: &&&Sample| sample.xact_age_ms > sample.query_age_ms.map(|age| age.saturating_add(BEGUN_MS));
    let in_blocks = aged.iter().filter(begun_before).count() as f64;
    if aged.len() < LEAST_AGES || text.is_none() || same < SAME || in_blocks > IN_BLOCKS * aged.len() as f64 {
        return None;
    }
    let length_ms = length_ms(&aged).filter(|ms| *ms >= SHORTEST_MS)?;
    Some(aged.len() as f64 / looks as f64 / length_ms * 1e3)
}

/// Commits a second of a whole server by its own count, which those of these samples cannot exceed; none where it may stand still
/// while they commit.
pub(super) fn most_per_s(window: &Window, target: &str, samples: &[&Sample]) -> Option<f64> {
    let is_plain = |text: &str| PLAIN.iter().any(|word| first_word(text).eq_ignore_ascii_case(word));
    let mut waiting = samples.iter().filter(|sample| CommitWait::of(sample).is_some());
    if !waiting.all(|sample| sample.query.as_deref().is_some_and(is_plain)) {
        return None;
    }
    let rate = |track: Track<'_>| track.between(window.from, window.to).rate();
    let rates: Option<Vec<f64>> = window.tracks(cat::PG_XACT_COMMIT.name, &[("target", target)]).map(rate).collect();
    Some(rates?.iter().sum::<f64>()).filter(|sum| *sum > 0.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Looks at a session, ten milliseconds apart or so, whose transactions take so many milliseconds in turn.
    fn looked_at(lengths_ms: &[f64], query_age_ms: Option<i64>) -> Vec<Sample> {
        let cycle: f64 = lengths_ms.iter().sum();
        let one = |look: usize| {
            let mut at = (look as f64 * 0.618_034).fract() * cycle;
            let mut lengths = lengths_ms.iter();
            while let Some(length) = lengths.next().filter(|length| at >= **length) {
                at -= length;
            }
            Sample {
                query: Some("CALL work()".into()),
                wait_event: look.is_multiple_of(2).then(|| "WALSync".into()),
                xact_age_ms: Some(at as i64),
                query_age_ms,
                ..Sample::default()
            }
        };
        (0..1_000).map(one).collect()
    }

    fn rate(samples: &[Sample]) -> Option<f64> {
        commits_per_s(&samples.iter().collect::<Vec<_>>(), 1_000)
    }

    #[test]
    fn ages_tell_how_often_transactions_follow_one_another() {
        let called = Some(60_000);
        for length_ms in [12.0, 20.0, 333.3] {
            let rate = rate(&looked_at(&[length_ms], called)).unwrap();
            assert!((rate * length_ms / 1e3 - 1.0).abs() < 0.02, "{length_ms}: {rate}");
        }
        // Ninety-nine of 20 ms, and a stall of half a second.
        let stalled: Vec<f64> = [20.0; 99].into_iter().chain([500.0]).collect();
        let rate = rate(&looked_at(&stalled, called)).unwrap();
        assert!((rate / (100.0 / 2.48) - 1.0).abs() < 0.03, "{rate}");
    }

    #[test]
    fn ages_that_tell_nothing_give_no_rate() {
        assert_eq!(rate(&looked_at(&[5.0], Some(60_000))), None, "too short to be told");
        assert_eq!(rate(&looked_at(&[200.0], Some(0))), None, "transactions of many statements");
        assert_eq!(rate(&looked_at(&[200.0], None)), None, "how long the statement runs is not known");
        assert_eq!(rate(&looked_at(&[20.0], Some(60_000))[..11]), None, "too few");
        let mut unlike = looked_at(&[20.0], Some(60_000));
        unlike.iter_mut().step_by(2).for_each(|sample| sample.query = Some("SELECT 1".into()));
        assert_eq!(rate(&unlike), None, "what it does is not one thing");
        assert_eq!(length_ms(&[]), None);
    }
}
