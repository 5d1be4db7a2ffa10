//! What the server itself has counted of a run: proof that the rows were inserted and the commits done.

use crate::workloads::WorkloadError;
use crate::workloads::error::cannot;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Counts of the whole database: whoever else works in it is in them.
const COUNTS: &str = "SELECT tup_inserted::float8, xact_commit::float8 FROM pg_catalog.pg_stat_database \
     WHERE datname = pg_catalog.current_database()";
/// A count that this role or this fork does not let one see is unknown, not wrong.
const WAL: &str = "SELECT (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::float8";
/// Sessions report when they end, and the statistics collector of 12 to 14 writes twice a second.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// What the server counted between the beginning and the end of a run; none where it cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Proof {
    /// Rows inserted in this database (tup_inserted).
    pub rows: Option<f64>,
    /// Transactions committed in this database, those that only read included (xact_commit).
    pub commits: Option<f64>,
    /// WAL of the whole server, in bytes.
    pub wal_bytes: Option<f64>,
}

impl Proof {
    /// The counts now.
    pub(super) async fn read(client: &Client) -> Proof {
        let counts = client.query_one(COUNTS, &[]).await.ok();
        let count = |column: usize| counts.as_ref().and_then(|row| row.try_get::<_, f64>(column).ok());
        let wal = client.query_one(WAL, &[]).await.ok().and_then(|row| row.try_get::<_, f64>(0).ok());
        Proof { rows: count(0), commits: count(1), wal_bytes: wal }
    }

    /// What came since `before`, once so many rows and commits are counted or it is clear that they never will be.
    pub(super) async fn since(client: &Client, before: Proof, rows: u64, commits: u64) -> Proof {
        let began = Instant::now();
        loop {
            let now = Proof::read(client).await;
            let rise = |now: Option<f64>, before: Option<f64>| Some((now? - before?).max(0.0));
            let proof = Proof {
                rows: rise(now.rows, before.rows),
                commits: rise(now.commits, before.commits),
                wal_bytes: rise(now.wal_bytes, before.wal_bytes),
            };
            if proof.reaches(rows, commits) || began.elapsed() > REPORTED_WITHIN {
                return proof;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether so many rows and commits are counted, of what can be read. Others' rows alone may reach the one before the run's own
    /// sessions have reported the other.
    fn reaches(&self, rows: u64, commits: u64) -> bool {
        let reached = |count: Option<f64>, wanted: u64| count.is_none_or(|count| count >= wanted as f64);
        reached(self.rows, rows) && reached(self.commits, commits)
    }

    /// How many rows are in the table.
    pub(super) async fn rows_in(client: &Client, schema: &str) -> Result<u64, WorkloadError> {
        let counted = client.query_one(&format!("SELECT count(*) FROM {schema}.batch_rows"), &[]).await;
        Ok(counted.map_err(cannot("count the rows"))?.get::<_, i64>(0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_others_do_not_stand_for_commits() {
        let reaches =
            |rows: Option<f64>, commits: Option<f64>| Proof { rows, commits, ..Proof::default() }.reaches(1_000, 10);
        assert!(!reaches(Some(9_000.0), Some(3.0)), "a COPY of somebody else");
        assert!(!reaches(Some(900.0), Some(70.0)));
        assert!(reaches(Some(1_000.0), Some(10.0)));
        assert!(reaches(None, None), "what cannot be read is not waited for");
    }
}
