//! A sweep of batch sizes other than the scenario's own.

use super::{Arm, LoadKind, Scenario, ScenarioError};
use crate::workloads::commit_batches::Side;

/// Batch sizes that somebody asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Rows in all, where other than the scenario's.
    pub rows: Option<u64>,
    /// Rows of each transaction; empty for the scenario's own arms.
    pub batches: Vec<u64>,
}

impl Sweep {
    /// Whether nothing is other than in the scenario.
    pub fn is_empty(&self) -> bool {
        self.rows.is_none() && self.batches.is_empty()
    }
}

impl Scenario {
    /// The scenario with these rows and batch sizes: an arm for each size by the procedure and one from the client. Sizes beyond
    /// the rows stand for all rows in one transaction.
    ///
    /// # Errors
    /// [`ScenarioError::Impossible`] for a load that has no batches, and for sizes of nothing.
    pub fn with_sweep(mut self, sweep: &Sweep) -> Result<Scenario, ScenarioError> {
        let wrong = |field: &str, value: String, why| ScenarioError::Impossible {
            path: format!("scenario {}", self.name),
            field: field.to_owned(),
            value,
            why,
        };
        if sweep.is_empty() {
            return Ok(self);
        }
        if self.load.kind != LoadKind::CommitBatches {
            return Err(wrong("--rows, --batches", self.name.clone(), "only commit-wait has rows in batches"));
        }
        if sweep.rows == Some(0) || sweep.batches.contains(&0) {
            return Err(wrong("--rows, --batches", "0".to_owned(), "give at least 1"));
        }
        if let Some(rows) = sweep.rows {
            (self.load.batches.rows, self.load.batches.quick_rows) = (rows, rows);
            // So many and no more.
            self.load.batches.least_s = 0.0;
            for arm in &mut self.arms {
                arm.load.batches.rows = None;
            }
        }
        if !sweep.batches.is_empty() {
            let mut sizes: Vec<u64> = sweep.batches.iter().map(|size| (*size).min(self.load.batches.rows)).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            sizes.dedup();
            let sides = [(Side::Server, "rows"), (Side::Client, "client")];
            let arms = sides.iter().flat_map(|(side, word)| sizes.iter().map(|size| arm(*side, word, *size)));
            self.arms = arms.collect();
            self.quick.arms = self.arms.iter().map(|arm| arm.name.clone()).collect();
            (self.acceptance, self.search) = (None, None);
        }
        Ok(self)
    }
}

/// An arm of which nothing is expected: nobody knows the knee beforehand.
fn arm(side: Side, word: &str, rows_per_commit: u64) -> Arm {
    let mut arm = Arm { name: format!("{word}-{rows_per_commit}"), ..Arm::default() };
    arm.load.batches.rows_per_commit = Some(rows_per_commit);
    arm.load.batches.side = (side == Side::Client).then_some(side);
    arm
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn batch_sizes_become_arms_of_both_sides() {
        let sweep = Sweep { rows: Some(5_000), batches: vec![10, 100, 100_000, 10] };
        let scenario = Scenario::load("commit-wait").unwrap().with_sweep(&sweep).unwrap();
        let names: Vec<&str> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["rows-5000", "rows-100", "rows-10", "client-5000", "client-100", "client-10"]);
        let part = scenario.arms[4].load_of(&scenario, None).batches;
        assert_eq!((part.rows, part.rows_per_commit, part.side), (5_000, 100, Side::Client));
        assert!(Scenario::load("stampede").unwrap().with_sweep(&sweep).is_err());
        let nothing = Sweep { rows: None, batches: vec![0] };
        assert!(Scenario::load("commit-wait").unwrap().with_sweep(&nothing).is_err());
    }
}
