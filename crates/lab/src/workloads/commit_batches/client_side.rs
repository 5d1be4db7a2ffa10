//! The same from a client: a round trip for each row and one for each commit. The transaction's begin travels with its first
//! row, as drivers do it.

use super::super::error::cannot;
use super::super::{Counters, WorkloadError};
use super::Done;
use crate::workloads::result::Latencies;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// One session: inserts `rows` into the table of the schema, `rows_per_commit` at a time. `goes_on` is asked before every row.
pub(super) async fn run(
    client: &Client,
    schema: &str,
    (rows, rows_per_commit): (u64, u64),
    counters: &Counters,
    latencies: &mut Latencies,
    goes_on: &(dyn Fn() -> bool + Sync),
) -> Result<Done, WorkloadError> {
    let text = format!("INSERT INTO {schema}.batch_rows (n, note) VALUES ($1, 'a row of the experiment')");
    let insert = client.prepare(&text).await.map_err(cannot("prepare the insert"))?;
    let mut done = Done::default();
    while done.rows < rows {
        let batch = rows_per_commit.min(rows - done.rows);
        let _open = counters.begin();
        for row in 0..batch {
            if !goes_on() {
                return Err(WorkloadError::Cancelled);
            }
            let number = (done.rows + row + 1) as i64;
            if row == 0 {
                // Both are written to the connection when they are polled for the first time, in this order.
                let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&number];
                let (begun, inserted) =
                    tokio::join!(biased; client.batch_execute("BEGIN"), client.execute(&insert, &parameters));
                begun.and(inserted.map(drop)).map_err(cannot("insert a row"))?;
            } else {
                client.execute(&insert, &[&number]).await.map_err(cannot("insert a row"))?;
            }
        }
        let took = commit(client).await.map_err(cannot("commit"))?;
        latencies.record(took);
        let before = done;
        done.rows += batch;
        done.commits += 1;
        done.in_commits += took;
        done.count(before, counters);
    }
    Ok(done)
}

async fn commit(client: &Client) -> Result<Duration, tokio_postgres::Error> {
    let began = Instant::now();
    client.batch_execute("COMMIT").await?;
    Ok(began.elapsed())
}
