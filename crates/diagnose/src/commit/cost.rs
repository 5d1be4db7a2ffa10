//! What a row and a commit cost: elapsed = rows × per_row + commits × per_commit, by weighted least squares over runs of
//! several batch sizes, so that a size that was not run can be predicted.
//!
//! Runs are weighted by 1 ÷ elapsed², so that each counts by its relative error: noise of elapsed times grows with them.
//! Neither cost can be negative; where the best fit would have one so, it is zero and the other is fitted alone.

use serde::{Deserialize, Serialize};

/// One run: so many rows, committed so many at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchRun {
    /// Rows of each transaction (of the last one, at most).
    pub rows_per_commit: u64,
    /// Rows in all.
    pub rows: u64,
    /// Commits in all.
    pub commits: u64,
    /// How long it took, in seconds.
    pub elapsed_s: f64,
}

impl BatchRun {
    /// Whether the figures can be calculated with.
    pub(super) fn is_usable(&self) -> bool {
        self.rows > 0
            && self.commits > 0
            && self.rows_per_commit > 0
            && self.elapsed_s.is_finite()
            && self.elapsed_s > 0.0
    }
}

/// What a row and a commit cost, and how well that explains the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommitCost {
    /// Microseconds a row.
    pub per_row_us: f64,
    /// Milliseconds a commit.
    pub per_commit_ms: f64,
    /// Standard error of the cost of a row, in microseconds; none where there are as few runs as costs.
    pub per_row_error_us: Option<f64>,
    /// Standard error of the cost of a commit, in milliseconds; none likewise.
    pub per_commit_error_ms: Option<f64>,
    /// Root of the mean squared relative error over the runs.
    pub error_ratio: f64,
}

impl CommitCost {
    /// Seconds that so many rows take, committed so many at a time.
    pub fn predict_s(&self, rows: u64, rows_per_commit: u64) -> f64 {
        let commits = rows.div_ceil(rows_per_commit.max(1));
        rows as f64 * self.per_row_us / 1e6 + commits as f64 * self.per_commit_ms / 1e3
    }

    /// Share of the time that commits take in transactions of so many rows.
    pub fn commit_share(&self, rows_per_commit: u64) -> f64 {
        let (commit, rows) = (self.per_commit_ms * 1e3, self.per_row_us * rows_per_commit as f64);
        if commit + rows > 0.0 { commit / (commit + rows) } else { 0.0 }
    }

    /// The smallest batch at which commits add no more than this share to the time of the rows; none where rows cost nothing.
    pub fn batch_within(&self, share: f64) -> Option<u64> {
        if self.per_commit_ms <= 0.0 {
            return Some(1);
        }
        let rows = self.per_commit_ms * 1e3 / (self.per_row_us * share);
        (rows.is_finite() && rows < 1e15).then(|| ((rows * (1.0 - 1e-9)).ceil() as u64).max(1))
    }
}

/// Sums of the normal equations, in units of relative error.
#[derive(Default)]
struct Sums {
    rows2: f64,
    commits2: f64,
    both: f64,
    rows_y: f64,
    commits_y: f64,
    runs: f64,
}

impl Sums {
    fn of(runs: &[BatchRun]) -> Sums {
        let mut sums = Sums::default();
        for run in runs {
            let (rows, commits) = (run.rows as f64 / run.elapsed_s, run.commits as f64 / run.elapsed_s);
            sums.rows2 += rows * rows;
            sums.commits2 += commits * commits;
            sums.both += rows * commits;
            sums.rows_y += rows;
            sums.commits_y += commits;
            sums.runs += 1.0;
        }
        sums
    }

    /// How far the two columns are from telling the same, 0 (they do) to 1.
    fn independence(&self) -> f64 {
        1.0 - self.both * self.both / (self.rows2 * self.commits2)
    }

    /// Seconds a row and a commit that explain the runs best, neither below zero.
    fn solve(&self) -> (f64, f64) {
        let determinant = self.rows2 * self.commits2 - self.both * self.both;
        let row = (self.rows_y * self.commits2 - self.commits_y * self.both) / determinant;
        let commit = (self.commits_y * self.rows2 - self.rows_y * self.both) / determinant;
        if commit < 0.0 {
            (self.rows_y / self.rows2, 0.0)
        } else if row < 0.0 {
            (0.0, self.commits_y / self.commits2)
        } else {
            (row, commit)
        }
    }
}

/// Below this the runs differ too little in rows a commit to tell the two costs apart.
const LEAST_INDEPENDENCE: f64 = 1e-6;

/// The costs that explain the runs best; none with fewer than two different batch sizes, or where sizes are so alike that
/// the two costs cannot be told apart. Runs without rows, commits or time are left out.
pub fn fit(runs: &[BatchRun]) -> Option<CommitCost> {
    let usable: Vec<BatchRun> = runs.iter().copied().filter(BatchRun::is_usable).collect();
    if usable.len() < 2 {
        return None;
    }
    let sums = Sums::of(&usable);
    let independence = sums.independence();
    if !(independence.is_finite() && independence > LEAST_INDEPENDENCE) {
        return None;
    }
    let (row, commit) = sums.solve();
    let errors = usable.iter().map(|run| (run.rows as f64 * row + run.commits as f64 * commit) / run.elapsed_s - 1.0);
    let squares: f64 = errors.map(|error| error * error).sum();
    let freedom = sums.runs - 2.0;
    let deviation = (freedom > 0.0).then(|| (squares / freedom).sqrt());
    let determinant = sums.rows2 * sums.commits2 - sums.both * sums.both;
    let cost = CommitCost {
        per_row_us: row * 1e6,
        per_commit_ms: commit * 1e3,
        per_row_error_us: deviation.map(|deviation| deviation * (sums.commits2 / determinant).sqrt() * 1e6),
        per_commit_error_ms: deviation.map(|deviation| deviation * (sums.rows2 / determinant).sqrt() * 1e3),
        error_ratio: (squares / sums.runs).sqrt(),
    };
    (cost.per_row_us.is_finite() && cost.per_commit_ms.is_finite() && cost.error_ratio.is_finite()).then_some(cost)
}

/// One batch size, predicted from runs of the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The size that was left out.
    pub rows_per_commit: u64,
    /// What its runs took, in seconds: the median.
    pub measured_s: f64,
    /// What the fit of the others predicts, in seconds.
    pub predicted_s: f64,
    /// |predicted − measured| ÷ measured.
    pub error_ratio: f64,
    /// Whether the others lie on both sides of it: then it is an interpolation.
    pub between: bool,
}

/// Each batch size predicted from all the others, smallest first: how far predictions of sizes not run can be trusted.
/// Sizes for which the others do not suffice are left out.
pub fn leave_one_out(runs: &[BatchRun]) -> Vec<LeftOut> {
    let mut sizes: Vec<u64> = runs.iter().filter(|run| run.is_usable()).map(|run| run.rows_per_commit).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let one = |size: &u64| {
        let (own, others): (Vec<BatchRun>, Vec<BatchRun>) =
            runs.iter().copied().filter(BatchRun::is_usable).partition(|run| run.rows_per_commit == *size);
        let cost = fit(&others)?;
        let measured_s = crate::grid::median(own.iter().map(|run| run.elapsed_s).collect())?;
        let predicted_s = cost.predict_s(own.first()?.rows, *size);
        let between = sizes.first() < Some(size) && Some(size) < sizes.last();
        let error_ratio = (predicted_s - measured_s).abs() / measured_s;
        Some(LeftOut { rows_per_commit: *size, measured_s, predicted_s, error_ratio, between })
    };
    sizes.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn run(rows: u64, size: u64, per_row_s: f64, per_commit_s: f64) -> BatchRun {
        let commits = rows.div_ceil(size);
        let elapsed_s = rows as f64 * per_row_s + commits as f64 * per_commit_s;
        BatchRun { rows_per_commit: size, rows, commits, elapsed_s }
    }

    #[test]
    fn too_little_gives_no_cost() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[run(1_000, 10, 1e-5, 1e-3)]), None);
        assert_eq!(fit(&[run(1_000, 10, 1e-5, 1e-3), run(1_000, 10, 1.1e-5, 1e-3)]), None);
        let broken = BatchRun { elapsed_s: f64::NAN, ..run(1_000, 1, 1e-5, 1e-3) };
        assert_eq!(fit(&[broken, run(1_000, 10, 1e-5, 1e-3)]), None);
    }

    #[test]
    fn commits_that_cost_nothing_do_not_cost_less_than_nothing() {
        let runs = [run(1_000, 1, 1e-5, -1e-6), run(1_000, 10, 1e-5, -1e-6), run(1_000, 1_000, 1e-5, 0.0)];
        let cost = fit(&runs).unwrap();
        assert_eq!(cost.per_commit_ms, 0.0);
        assert_eq!(cost.batch_within(0.05), Some(1));
    }

    proptest! {
        #[test]
        fn exact_costs_are_found_again(
            per_row_us in 0.1..1e4_f64, per_commit_ms in 0.01..1e3_f64, rows in 1_000_u64..1_000_000,
        ) {
            let runs: Vec<_> = [1, 10, 100, 1_000].map(|size| run(rows, size, per_row_us / 1e6, per_commit_ms / 1e3)).into();
            let cost = fit(&runs).unwrap();
            prop_assert!((cost.per_row_us / per_row_us - 1.0).abs() < 1e-3, "{cost:?}");
            prop_assert!((cost.per_commit_ms / per_commit_ms - 1.0).abs() < 1e-3, "{cost:?}");
            prop_assert!(cost.error_ratio < 1e-6);
            let predicted = cost.predict_s(rows, 37);
            prop_assert!((predicted / run(rows, 37, per_row_us / 1e6, per_commit_ms / 1e3).elapsed_s - 1.0).abs() < 1e-3);
            for left in leave_one_out(&runs) {
                prop_assert!(left.error_ratio < 1e-2, "{left:?}");
            }
        }

        #[test]
        fn noisy_costs_are_found_within_their_errors(
            per_row_us in 1.0..100.0_f64, per_commit_ms in 0.1..10.0_f64, seed in any::<u64>(),
        ) {
            let mut dice = super::super::dice::Dice::new(seed);
            let sizes = [1_u64, 5, 20, 100, 500, 2_000, 10_000, 100_000];
            let noisy = |size: &u64| {
                let exact = run(100_000, *size, per_row_us / 1e6, per_commit_ms / 1e3);
                BatchRun { elapsed_s: exact.elapsed_s * (1.0 + 0.02 * dice.normal()), ..exact }
            };
            let cost = fit(&sizes.iter().map(noisy).collect::<Vec<_>>()).unwrap();
            // Six standard errors: with eight runs the error's own estimate wavers.
            let off = (cost.per_row_us - per_row_us).abs();
            prop_assert!(off <= 6.0 * cost.per_row_error_us.unwrap() + 0.06 * per_row_us, "{cost:?} {per_row_us}");
            let off = (cost.per_commit_ms - per_commit_ms).abs();
            prop_assert!(off <= 6.0 * cost.per_commit_error_ms.unwrap() + 0.06 * per_commit_ms, "{cost:?} {per_commit_ms}");
        }

        #[test]
        fn whatever_the_runs_every_figure_is_a_number(
            runs in proptest::collection::vec((0_u64..1_000_000, 0_u64..1_000_000, 0_u64..1_000, -1.0..1e9_f64), 0..12),
        ) {
            let runs: Vec<_> = runs.into_iter().map(|(rows, commits, rows_per_commit, elapsed_s)| {
                BatchRun { rows_per_commit, rows, commits, elapsed_s }
            }).collect();
            if let Some(cost) = fit(&runs) {
                prop_assert!(cost.per_row_us >= 0.0 && cost.per_commit_ms >= 0.0 && cost.error_ratio.is_finite());
                prop_assert!((0.0..=1.0).contains(&cost.commit_share(10)));
            }
            for left in leave_one_out(&runs) {
                prop_assert!(left.predicted_s.is_finite() && left.error_ratio.is_finite());
            }
        }
    }
}
