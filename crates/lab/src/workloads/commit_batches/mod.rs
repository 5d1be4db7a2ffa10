//! The published experiment on commits: so many rows inserted one by one, and a commit after every so many of them; by a
//! procedure inside the server, or from a client with a round trip for each row, so that the network's part shows apart.
//!
//! Everything lies in a schema of its own, made by [`Bench::create`], which refuses one that exists already, and dropped in
//! the end. The server's own counts of rows and commits stand still while a procedure runs, so the procedure itself
//! says every 200 ms how far it is (by notices, which reach the client at once), and what came of a run is proved by what
//! the server has counted afterwards.

mod bench;
mod client_side;
mod procedure;
mod proof;
#[cfg(test)]
mod real_tests;

pub use bench::Bench;
pub(crate) use bench::any_bench;
pub use proof::Proof;

use super::result::LoadResult;
use super::{Counters, WorkloadError};
use backwater_diagnose::commit::BatchRun;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// application_name of the load's sessions.
pub const LOAD_NAME: &str = "backwater-load";

/// Where the rows are put together into transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// In a procedure, inside the server.
    #[default]
    Server,
    /// In the client: each row is a round trip, so is the commit.
    Client,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSpec {
    /// Rows in all.
    pub rows: u64,
    /// Rows of each transaction.
    pub rows_per_commit: u64,
    /// Sessions that share the rows.
    pub clients: usize,
    /// Where transactions are put together.
    pub side: Side,
    /// The rows are inserted again, as often as it takes, until so much time has gone: what is over at once tells nothing of
    /// where it waited.
    pub least: Duration,
}

/// The most rows one run may insert.
const MOST_ROWS: u64 = 1_000_000_000;

impl BatchSpec {
    fn check(&self) -> Result<(), WorkloadError> {
        let wrong = |field, value: u64, why| Err(WorkloadError::Impossible { field, value: value.to_string(), why });
        if !(1..=MOST_ROWS).contains(&self.rows) {
            return wrong("rows", self.rows, "give 1 to 1000000000");
        }
        if !(1..=MOST_ROWS).contains(&self.rows_per_commit) {
            return wrong("rows_per_commit", self.rows_per_commit, "give 1 to 1000000000");
        }
        if self.clients == 0 || self.clients as u64 > self.rows.min(1_000) {
            return wrong("clients", self.clients as u64, "give 1 to 1000, and no more than there are rows");
        }
        Ok(())
    }

    /// The rows that one of the sessions inserts.
    fn rows_of(&self, client: usize) -> u64 {
        let clients = self.clients as u64;
        self.rows / clients + u64::from((client as u64) < self.rows % clients)
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct CommitRun {
    /// From the first session's start to the last one's end, in seconds.
    pub elapsed_s: f64,
    /// How often the rows that were asked for went in.
    pub rounds: f64,
    /// Rows inserted.
    pub rows: u64,
    /// Commits done.
    pub commits: u64,
    /// Time that all sessions spent in these commits, in seconds.
    pub commit_s: f64,
    /// The same as loads in general tell it; latencies are the commits', and only a client sees each of them.
    pub load: LoadResult,
    /// What the server counted.
    pub proof: Proof,
}

impl CommitRun {
    /// How long a commit took, in milliseconds.
    pub fn commit_latency_ms(&self) -> Option<f64> {
        (self.commits > 0).then(|| self.commit_s * 1e3 / self.commits as f64)
    }

    /// One round, as costs are fitted to.
    pub fn batch_run(&self, rows_per_commit: u64) -> BatchRun {
        let of_one = |count: u64| (count as f64 / self.rounds).round() as u64;
        let (rows, commits) = (of_one(self.rows), of_one(self.commits));
        BatchRun { rows_per_commit, rows, commits, elapsed_s: self.elapsed_s / self.rounds }
    }

    fn add(&mut self, other: Done) {
        self.rows += other.rows;
        self.commits += other.commits;
        self.commit_s += other.in_commits.as_secs_f64();
    }
}

/// How far one session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    rows: u64,
    commits: u64,
    in_commits: Duration,
}

impl Done {
    fn add(&mut self, other: Done) {
        self.rows += other.rows;
        self.commits += other.commits;
        self.in_commits += other.in_commits;
    }

    /// Counts what was done since `before`. What was counted already stays counted, whatever a server says.
    fn count(self, before: Done, counters: &Counters) {
        let commits = self.commits.saturating_sub(before.commits);
        let in_commits = self.in_commits.saturating_sub(before.in_commits).as_micros() as u64;
        counters.rows.fetch_add(self.rows.saturating_sub(before.rows), Relaxed);
        counters.completed.fetch_add(commits, Relaxed);
        counters.commit_us_total.fetch_add(in_commits, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shared_out_to_the_last_one() {
        let spec =
            BatchSpec { rows: 1_003, rows_per_commit: 10, clients: 4, side: Side::Server, least: Duration::ZERO };
        assert!(spec.check().is_ok());
        assert_eq!((0..4).map(|client| spec.rows_of(client)).sum::<u64>(), 1_003);
        assert_eq!((spec.rows_of(0), spec.rows_of(3)), (251, 250));
    }

    #[test]
    fn impossible_runs_are_refused() {
        let fine = BatchSpec { rows: 10, rows_per_commit: 1, clients: 1, side: Side::Server, least: Duration::ZERO };
        for wrong in [
            BatchSpec { rows: 0, ..fine },
            BatchSpec { rows_per_commit: 0, ..fine },
            BatchSpec { clients: 0, ..fine },
            BatchSpec { clients: 11, ..fine },
            BatchSpec { rows: MOST_ROWS + 1, ..fine },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
