//! The knee: the smallest batch that is nearly as fast as the best, and how sure that is.
//!
//! Confidence is by bootstrap (Efron): every batch size's repeats are drawn anew, with replacement, and the share of draws
//! that give the same knee is told with the range that nine in ten of them lie in. Where sizes ran only once, their noise
//! is taken from the sizes that are all about as fast as the best, else from what the fitted costs leave unexplained.

use super::cost::{BatchRun, fit};
use super::dice::Dice;
use crate::grid::median;
use serde::{Deserialize, Serialize};

/// How much slower than the best still counts as nearly as fast.
pub const WITHIN: f64 = 0.05;
/// How often the runs are drawn anew.
const DRAWS: usize = 2_000;
/// Sizes about as fast as the best from which noise can be told.
const LEAST_FLAT: usize = 3;

/// Where larger batches stop paying.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The smallest batch within [`WITHIN`] of the best time.
    pub rows_per_commit: u64,
    /// Its time, in seconds: the median of its runs.
    pub elapsed_s: f64,
    /// The best size.
    pub best_rows_per_commit: u64,
    /// The best time, in seconds.
    pub best_s: f64,
    /// Share of the draws that give the same knee; none where nothing tells the noise.
    pub confidence: Option<f64>,
    /// The knees of nine in ten draws lie between these sizes.
    pub range: Option<[u64; 2]>,
}

/// Times of the runs of one size.
struct Size {
    rows_per_commit: u64,
    /// Seconds a row: runs of unlike length compare by it.
    times: Vec<f64>,
}

/// The knee of these runs; none with fewer than two batch sizes.
pub fn knee(runs: &[BatchRun]) -> Option<Knee> {
    let sizes = sizes(runs);
    if sizes.len() < 2 {
        return None;
    }
    let typical: Vec<f64> = sizes.iter().filter_map(|size| median(size.times.clone())).collect();
    let (at, best) = knee_of(&typical)?;
    let rows = median(runs.iter().filter(|run| run.is_usable()).map(|run| run.rows as f64).collect())?;
    let draws = draws(&sizes, &typical, runs);
    let same = draws.iter().filter(|drawn| **drawn == at).count();
    let edge = |share: f64| sizes[draws[((draws.len() - 1) as f64 * share).round() as usize]].rows_per_commit;
    Some(Knee {
        rows_per_commit: sizes[at].rows_per_commit,
        elapsed_s: typical[at] * rows,
        best_rows_per_commit: sizes[best].rows_per_commit,
        best_s: typical[best] * rows,
        confidence: (!draws.is_empty()).then(|| same as f64 / draws.len() as f64),
        range: (!draws.is_empty()).then(|| [edge(0.05), edge(0.95)]),
    })
}

/// The runs by size, smallest first.
fn sizes(runs: &[BatchRun]) -> Vec<Size> {
    let mut sizes: Vec<Size> = Vec::new();
    for run in runs.iter().filter(|run| run.is_usable()) {
        let time = run.elapsed_s / run.rows as f64;
        match sizes.iter_mut().find(|size| size.rows_per_commit == run.rows_per_commit) {
            Some(size) => size.times.push(time),
            None => sizes.push(Size { rows_per_commit: run.rows_per_commit, times: vec![time] }),
        }
    }
    sizes.sort_by_key(|size| size.rows_per_commit);
    sizes
}

/// Places of the knee and of the best among times in order of size.
fn knee_of(times: &[f64]) -> Option<(usize, usize)> {
    let (best, least) = times.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    let knee = times.iter().position(|time| *time <= least * (1.0 + WITHIN))?;
    Some((knee, best))
}

/// Knees of the runs drawn anew, sorted; empty where nothing tells how much they vary.
fn draws(sizes: &[Size], typical: &[f64], runs: &[BatchRun]) -> Vec<usize> {
    // The number of runs is the seed: the same runs give the same answer.
    let mut dice = Dice::new(runs.len() as u64);
    let repeated = sizes.iter().all(|size| size.times.len() > 1);
    let noise = if repeated { None } else { noise(typical).or_else(|| unexplained(runs)) };
    if !repeated && noise.is_none() {
        return Vec::new();
    }
    let mut draw = || {
        let times: Vec<f64> = sizes
            .iter()
            .zip(typical)
            .map(|(size, typical)| match noise {
                Some(noise) => typical * (noise * dice.normal()).exp(),
                None => redrawn(&size.times, &mut dice),
            })
            .collect();
        knee_of(&times).map(|(at, _)| at)
    };
    let mut drawn: Vec<usize> = (0..DRAWS).filter_map(|_| draw()).collect();
    drawn.sort_unstable();
    drawn
}

/// The median of as many times drawn from these, with replacement.
fn redrawn(times: &[f64], dice: &mut Dice) -> f64 {
    let drawn = (0..times.len()).map(|_| times[dice.below(times.len())]).collect();
    median(drawn).unwrap_or(f64::NAN)
}

/// The relative noise of single runs, by those sizes that are all about as fast as the best: they should be equal.
fn noise(typical: &[f64]) -> Option<f64> {
    let least = typical.iter().copied().reduce(f64::min)?;
    let flat: Vec<f64> = typical.iter().copied().filter(|time| *time <= least * (1.0 + WITHIN)).collect();
    if flat.len() < LEAST_FLAT {
        return None;
    }
    let mean = flat.iter().sum::<f64>() / flat.len() as f64;
    let squares: f64 = flat.iter().map(|time| (time / mean - 1.0).powi(2)).sum();
    Some((squares / (flat.len() - 1) as f64).sqrt())
}

/// The relative noise as what the fitted costs leave unexplained: an upper bound, as the costs are not quite constant.
fn unexplained(runs: &[BatchRun]) -> Option<f64> {
    (runs.len() > 2).then(|| fit(runs)).flatten().map(|cost| cost.error_ratio)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn run(size: u64, elapsed_s: f64) -> BatchRun {
        let rows = 10_000_000;
        BatchRun { rows_per_commit: size, rows, commits: rows.div_ceil(size), elapsed_s }
    }

    /// The published table: each size ran once.
    #[test]
    fn the_published_runs_have_their_knee_at_a_hundred_thousand_rows() {
        let published =
            [(10_000_000, 135.9), (1_000_000, 136.1), (100_000, 133.4), (10_000, 141.8), (1_000, 177.6), (100, 373.5)];
        let runs: Vec<_> = published.iter().map(|(size, elapsed_s)| run(*size, *elapsed_s)).collect();
        let knee = knee(&runs).unwrap();
        assert_eq!((knee.rows_per_commit, knee.best_rows_per_commit), (100_000, 100_000));
        assert_eq!(knee.best_s, 133.4);
        // 10,000 rows are 6.3 % slower than the best: nearly within 5 %, and the confidence says so.
        assert_eq!(knee.range, Some([10_000, 100_000]));
        assert!((0.5..0.95).contains(&knee.confidence.unwrap()), "{knee:?}");
        let cost = fit(&runs).unwrap();
        assert!((13.0..15.0).contains(&cost.per_row_us) && (2.0..3.0).contains(&cost.per_commit_ms), "{cost:?}");
        assert!(cost.error_ratio < 0.07, "{cost:?}");
    }

    #[test]
    fn repeats_give_certainty() {
        let runs: Vec<_> = [(1, 9.0), (10, 1.9), (100, 1.04), (1_000, 1.0), (10_000, 1.01)]
            .iter()
            .flat_map(|(size, s)| [run(*size, *s), run(*size, s * 1.002), run(*size, s * 0.998)])
            .collect();
        let knee = knee(&runs).unwrap();
        assert_eq!((knee.rows_per_commit, knee.confidence, knee.range), (100, Some(1.0), Some([100, 100])));
    }

    #[test]
    fn one_size_has_no_knee() {
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[run(10, 1.0), run(10, 2.0)]), None);
    }

    proptest! {
        #[test]
        fn the_knee_is_the_smallest_size_within_reach_of_the_best(
            times in proptest::collection::vec((1_u64..1_000_000, 0.01..100.0_f64), 2..20),
        ) {
            let runs: Vec<_> = times.iter().map(|(size, s)| run(*size, *s)).collect();
            if let Some(knee) = knee(&runs) {
                prop_assert!(knee.elapsed_s <= knee.best_s * (1.0 + WITHIN) * (1.0 + 1e-9));
                let typical = |size: u64| median(runs.iter().filter(|r| r.rows_per_commit == size).map(|r| r.elapsed_s).collect()).unwrap();
                for run in runs.iter().filter(|run| run.rows_per_commit < knee.rows_per_commit) {
                    prop_assert!(typical(run.rows_per_commit) > knee.best_s * (1.0 + WITHIN) * (1.0 - 1e-9));
                }
                prop_assert!(knee.confidence.is_none_or(|share| (0.0..=1.0).contains(&share)));
                prop_assert!(knee.range.is_none_or(|[least, most]| least <= most));
            }
        }

        #[test]
        fn of_exact_costs_the_knee_is_where_the_costs_say(per_row_us in 1.0..100.0_f64, per_commit_ms in 0.05..20.0_f64) {
            let sizes: Vec<u64> = (0..22).map(|power| 1_u64 << power).collect();
            let rows = 1_u64 << 21;
            let runs: Vec<_> = sizes.iter().map(|size| {
                let commits = rows.div_ceil(*size);
                let elapsed_s = rows as f64 * per_row_us / 1e6 + commits as f64 * per_commit_ms / 1e3;
                BatchRun { rows_per_commit: *size, rows, commits, elapsed_s }
            }).collect();
            let found = knee(&runs).unwrap();
            let wanted = fit(&runs).unwrap().batch_within(WITHIN).unwrap();
            // The best of the runs has a commit too, so the knee may lie a step lower.
            prop_assert!(found.rows_per_commit >= wanted / 2 && found.rows_per_commit <= wanted.next_power_of_two().max(1),
                "{found:?} {wanted}");
        }
    }
}
