//! Makes the data of the TPC-B-like load, inside the server: the same tables as `pgbench -i`, checked at the end.

use super::driver::config;
use super::error::{cannot, reason};
use super::{ACCOUNTS_PER_BRANCH, TELLERS_PER_BRANCH, WorkloadError};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio_postgres::{Client, Config, NoTls};

/// Connections that fill the accounts table side by side.
const FILLERS: u32 = 4;
/// How often the caller's wish to stop is looked at.
const CANCEL_LOOK: Duration = Duration::from_millis(50);
/// The largest scale whose account numbers are 4-byte integers.
const LARGEST_SCALE: u32 = 20_000;

/// What data to make.
#[derive(Clone, Copy, Debug)]
pub struct TpcbSpec {
    /// 100,000 accounts (some 15 MB) each.
    pub scale: u32,
    /// How full pages are made, in percent, 10 to 100: the fewer rows a page has, the more pages a load dirties.
    pub fillfactor: u32,
}

/// Makes the tables anew and fills them. `progress` is told how many accounts are there, from any thread.
pub fn initialise(
    conninfo: &str,
    spec: &TpcbSpec,
    cancel: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), WorkloadError> {
    check_scale(spec.scale)?;
    if !(10..=100).contains(&spec.fillfactor) {
        let value = spec.fillfactor.to_string();
        return Err(WorkloadError::Impossible { field: "fillfactor", value, why: "PostgreSQL takes 10 to 100" });
    }
    let filler = Filler { config: config(conninfo)?, cancel };
    filler.run("make the tables", |filler, client| Box::pin(filler.make_tables(client, spec)))?;
    fill(&filler, spec, progress)?;
    filler.run("make the indexes", |filler, client| Box::pin(filler.make_indexes(client)))?;
    filler.run("check the data", |filler, client| Box::pin(filler.check(client, spec)))
}

pub(crate) fn check_scale(scale: u32) -> Result<(), WorkloadError> {
    if (1..=LARGEST_SCALE).contains(&scale) {
        return Ok(());
    }
    Err(WorkloadError::Impossible { field: "scale", value: scale.to_string(), why: "give 1 to 20000" })
}

/// Several connections take one branch's accounts after the other.
fn fill(filler: &Filler<'_>, spec: &TpcbSpec, progress: &(dyn Fn(u64) + Sync)) -> Result<(), WorkloadError> {
    let (next, done, failed) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        filler.run("fill the accounts", |filler, client| {
            Box::pin(async {
                loop {
                    let branch = next.fetch_add(1, Ordering::Relaxed);
                    if branch >= spec.scale || failed.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    filler.execute(client, &accounts_of(branch)).await?;
                    let rows = u64::from(ACCOUNTS_PER_BRANCH);
                    progress(done.fetch_add(rows, Ordering::Relaxed) + rows);
                }
            })
        })
    };
    std::thread::scope(|scope| {
        let one = || {
            let result = work();
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        let threads: Vec<_> = (0..FILLERS.min(spec.scale)).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn accounts_of(branch: u32) -> String {
    let first = u64::from(branch) * u64::from(ACCOUNTS_PER_BRANCH) + 1;
    let last = first + u64::from(ACCOUNTS_PER_BRANCH) - 1;
    let bid = branch + 1;
    format!(
        "INSERT INTO pgbench_accounts (aid, bid, abalance, filler) SELECT aid, {bid}, 0, '' FROM generate_series({first}, {last}) aid"
    )
}

/// Connects and carries out statements that the caller may cancel.
struct Filler<'a> {
    config: Config,
    cancel: &'a AtomicBool,
}

type Work<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), WorkloadError>> + 'a>>;

impl Filler<'_> {
    /// Does `work` on a connection of its own.
    fn run<F>(&self, what: &str, work: F) -> Result<(), WorkloadError>
    where
        F: for<'a> FnOnce(&'a Self, &'a Client) -> Work<'a>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| WorkloadError::System { call: "epoll_create", source })?;
        tracing::debug!(what, "making data");
        runtime.block_on(async {
            let connected = self.config.connect(NoTls).await;
            let (client, connection) =
                connected.map_err(|error| WorkloadError::Connect { client: 0, reason: reason(&error) })?;
            let connection = tokio::spawn(connection);
            // What is lost when the server fails is nothing: the data are made anew.
            self.execute(&client, "SET synchronous_commit = off; SET maintenance_work_mem = '128MB'").await?;
            let result = work(self, &client).await;
            drop(client);
            let closed = tokio::time::timeout(Duration::from_secs(2), connection).await;
            tracing::trace!(?closed, "the connection is closed");
            result
        })
    }

    async fn make_tables(&self, client: &Client, spec: &TpcbSpec) -> Result<(), WorkloadError> {
        let TpcbSpec { scale, fillfactor } = spec;
        let tellers = scale * TELLERS_PER_BRANCH;
        let text = format!(
            "DROP TABLE IF EXISTS pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers;
             CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
             CREATE TABLE pgbench_tellers (tid int NOT NULL, bid int, tbalance int, filler char(84))
                 WITH (fillfactor = {fillfactor});
             CREATE TABLE pgbench_accounts (aid int NOT NULL, bid int, abalance int, filler char(84))
                 WITH (fillfactor = {fillfactor});
             CREATE TABLE pgbench_branches (bid int NOT NULL, bbalance int, filler char(88))
                 WITH (fillfactor = {fillfactor});
             INSERT INTO pgbench_branches (bid, bbalance) SELECT bid, 0 FROM generate_series(1, {scale}) bid;
             INSERT INTO pgbench_tellers (tid, bid, tbalance)
                 SELECT tid, (tid - 1) / {TELLERS_PER_BRANCH} + 1, 0 FROM generate_series(1, {tellers}) tid"
        );
        self.execute(client, &text).await
    }

    async fn make_indexes(&self, client: &Client) -> Result<(), WorkloadError> {
        for (table, key) in [("branches", "bid"), ("tellers", "tid"), ("accounts", "aid")] {
            self.execute(client, &format!("ALTER TABLE pgbench_{table} ADD PRIMARY KEY ({key})")).await?;
        }
        self.execute(client, "VACUUM (ANALYZE) pgbench_accounts").await?;
        self.execute(client, "VACUUM (ANALYZE) pgbench_branches").await?;
        self.execute(client, "VACUUM (ANALYZE) pgbench_tellers").await
    }

    async fn check(&self, client: &Client, spec: &TpcbSpec) -> Result<(), WorkloadError> {
        let scale = u64::from(spec.scale);
        for (table, wanted) in [
            ("pgbench_branches", scale),
            ("pgbench_tellers", scale * u64::from(TELLERS_PER_BRANCH)),
            ("pgbench_accounts", scale * u64::from(ACCOUNTS_PER_BRANCH)),
        ] {
            let row = client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await;
            let found = row.map_err(cannot(format!("count {table}")))?.get::<_, i64>(0) as u64;
            if found != wanted {
                return Err(WorkloadError::Rows { table, wanted, found });
            }
        }
        Ok(())
    }

    /// Carries out statements, cancelled on the server as soon as the caller wishes.
    async fn execute(&self, client: &Client, text: &str) -> Result<(), WorkloadError> {
        let token = client.cancel_token();
        let mut work = std::pin::pin!(client.batch_execute(text));
        loop {
            tokio::select! {
                biased;
                result = &mut work => {
                    return result.map_err(cannot(text.lines().next().unwrap_or_default()));
                }
                () = tokio::time::sleep(CANCEL_LOOK) => {}
            }
            if self.cancel.load(Ordering::Relaxed) {
                let asked = tokio::time::timeout(Duration::from_secs(2), token.cancel_query(NoTls)).await;
                tracing::debug!(?asked, "making data was cancelled");
                return Err(WorkloadError::Cancelled);
            }
        }
    }
}
