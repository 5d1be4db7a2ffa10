//! The bench: a schema of its own with the table and the procedure, the sessions that work in it, and its end.

use super::{BatchSpec, CommitRun, Done, LOAD_NAME, Proof, Side, client_side, procedure};
use crate::workloads::error::cannot;
use crate::workloads::result::{Latencies, LoadResult};
use crate::workloads::{Counters, WorkloadError};
use backwater_probe::postgres::{ConnInfo, Hearer, connect_client, connect_client_hearing};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

/// How often the caller's wish to stop is looked at, and progress told.
const LOOK: Duration = Duration::from_millis(50);
/// How long a session gets to end after it was cancelled.
const END_WITHIN: Duration = Duration::from_secs(5);
/// application_name of the connection that makes, counts and drops: none of the load's.
const CONTROL_NAME: &str = "backwater-control";
/// How an error tells that a right is missing (insufficient_privilege).
const NOT_ALLOWED: &str = "[42501]";
/// The beginning of the names of schemas made for this.
const PREFIX: &str = "backwater_commit_wait";

/// A statement without the number of the schema that it names: each repeat has a schema of its own, and they do the same.
pub(crate) fn any_bench(query: &str) -> String {
    let mut text = String::with_capacity(query.len());
    let mut rest = query;
    while let Some(at) = rest.find(PREFIX) {
        let (before, name) = rest.split_at(at + PREFIX.len());
        text.push_str(before);
        let number = name.strip_prefix('_').and_then(|digits| digits.get(..8));
        let own = number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_hexdigit()));
        rest = if own { &name[9..] } else { name };
    }
    text.push_str(rest);
    text
}

/// A schema for runs on one server. Dropping it drops the schema, as far as the server can be reached.
pub struct Bench {
    info: ConnInfo,
    runtime: Runtime,
    control: Option<Client>,
    schema: String,
    /// Why the server does not take the procedure; none where it did.
    refused: Option<String>,
    /// Whether the schema goes when this does.
    owned: bool,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench")
            .field("server", &self.info.label())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Bench {
    /// Connects and makes a schema of a name that is nobody's, with the table and, where the role may, the procedure.
    ///
    /// # Errors
    /// [`WorkloadError::Prepare`] with the GRANT that is missing where the role may not make a schema.
    pub fn create(info: ConnInfo) -> Result<Bench, WorkloadError> {
        let schema = format!("{PREFIX}_{:08x}", rand::random::<u32>());
        let mut bench = Bench::connect(info, schema)?;
        bench.make()?;
        Ok(bench)
    }

    fn connect(info: ConnInfo, schema: String) -> Result<Bench, WorkloadError> {
        let runtime = runtime()?;
        let control = runtime.block_on(open(&info, CONTROL_NAME, None))?;
        Ok(Bench { info, runtime, control: Some(control), schema, refused: None, owned: false })
    }

    /// The schema's name.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Which server it is, without credentials.
    pub fn server(&self) -> String {
        self.info.label()
    }

    /// Why the server does not take the procedure, so that only the client-side form can run; none where it did.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    fn make(&mut self) -> Result<(), WorkloadError> {
        let user = self.info.user().to_owned();
        let schema = self.schema.clone();
        // No IF NOT EXISTS: what is there already is somebody else's.
        self.execute(&format!("CREATE SCHEMA {schema}")).map_err(|error| match error {
            WorkloadError::Prepare { reason, .. } if reason.contains(NOT_ALLOWED) => WorkloadError::Prepare {
                what: format!("make the schema {schema}"),
                reason: format!(
                    "{reason}. As the database's owner: GRANT CREATE ON DATABASE {} TO {user}",
                    self.info.database()
                ),
            },
            other => other,
        })?;
        self.owned = true;
        self.execute(&format!(
            "CREATE TABLE {schema}.batch_rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n bigint NOT NULL, \
             note text NOT NULL)"
        ))?;
        if let Err(error) = self.execute(&procedure::text(&schema)) {
            let why = if error.to_string().contains(NOT_ALLOWED) {
                format!("the role {user} may not make the procedure: {error}")
            } else {
                format!("the procedure cannot be made there: {error}")
            };
            tracing::warn!("{why}");
            self.refused = Some(why);
        }
        Ok(())
    }

    /// One run, on an empty table. `progress` is told how many rows are in, from this thread. Raising `cancel` ends it at once.
    ///
    /// # Errors
    /// [`WorkloadError::Refused`] for the procedure where the role may not make it; whatever the server refuses; and
    /// [`WorkloadError::Rows`] where it does not hold the rows that it took.
    pub fn run(
        &mut self,
        spec: &BatchSpec,
        counters: &Counters,
        cancel: &AtomicBool,
        progress: &dyn Fn(u64),
    ) -> Result<CommitRun, WorkloadError> {
        spec.check()?;
        if let (Side::Server, Some(why)) = (spec.side, &self.refused) {
            return Err(WorkloadError::Refused { what: "run the procedure", why: why.clone() });
        }
        counters.counts_rows.store(true, Ordering::Relaxed);
        self.execute(&format!("TRUNCATE {}.batch_rows", self.schema))?;
        let before = self.with(|control| self.runtime.block_on(Proof::read(control)))?;
        let mut run = self.sessions(spec, counters, cancel, progress)?;
        run.proof = self.with(|control| self.runtime.block_on(Proof::since(control, before, run.rows, run.commits)))?;
        let found = self.with(|control| self.runtime.block_on(Proof::rows_in(control, &self.schema)))??;
        if found != run.rows || run.rows < spec.rows {
            return Err(WorkloadError::Rows { table: "batch_rows", wanted: spec.rows, found });
        }
        Ok(run)
    }

    /// Runs every session in a thread of its own, and ends them all when one fails or somebody wants it.
    fn sessions(
        &self,
        spec: &BatchSpec,
        counters: &Counters,
        cancel: &AtomicBool,
        progress: &dyn Fn(u64),
    ) -> Result<CommitRun, WorkloadError> {
        let shared = Shared { bench: self, spec, counters, stop: AtomicBool::new(false), pids: Mutex::default() };
        let first = counters.rows.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..spec.clients)
                .map(|client| {
                    scope.spawn({
                        let shared = &shared;
                        move || shared.session(client)
                    })
                })
                .collect();
            while !handles.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                std::thread::sleep(LOOK);
                progress(counters.rows.load(Ordering::Relaxed).saturating_sub(first));
                if cancel.load(Ordering::Relaxed) || shared.stop.load(Ordering::Relaxed) {
                    shared.end();
                }
            }
            let mut run = CommitRun::default();
            let mut latency = Latencies::new();
            let mut failed = None;
            let mut spans: Vec<(Instant, Instant)> = Vec::new();
            for handle in handles {
                match handle.join() {
                    Ok(Ok((done, own, span))) => {
                        run.add(done);
                        latency.add(&own);
                        spans.push(span);
                    }
                    // Those that were ended because another one failed say nothing of why.
                    Ok(Err(WorkloadError::Cancelled)) => failed = failed.or(Some(WorkloadError::Cancelled)),
                    Ok(Err(error)) if matches!(failed, None | Some(WorkloadError::Cancelled)) => failed = Some(error),
                    Ok(Err(_)) => {}
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            match failed {
                _ if cancel.load(Ordering::Relaxed) => Err(WorkloadError::Cancelled),
                Some(error) => Err(error),
                None => {
                    // What connecting takes is no part of it.
                    let first = spans.iter().map(|(began, _)| *began).min();
                    let last = spans.iter().map(|(_, ended)| *ended).max();
                    run.elapsed_s = first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64());
                    run.rounds = run.rows as f64 / spec.rows as f64;
                    run.load = LoadResult { seconds: run.elapsed_s, completed: run.commits, ..LoadResult::default() };
                    (run.load.latency, run.load.service) = (latency.clone(), latency);
                    Ok(run)
                }
            }
        })
    }

    /// Drops the schema.
    ///
    /// # Errors
    /// Where the server refuses or cannot be reached; the message names the schema that is left.
    pub fn end(mut self) -> Result<(), WorkloadError> {
        self.drop_schema()
    }

    fn drop_schema(&mut self) -> Result<(), WorkloadError> {
        if !std::mem::take(&mut self.owned) {
            return Ok(());
        }
        let text = format!("DROP SCHEMA {} CASCADE", self.schema);
        // The connection may be the very thing that failed: once more on a new one.
        self.execute(&text).or_else(|_| {
            self.control = Some(self.runtime.block_on(open(&self.info, CONTROL_NAME, None))?);
            self.execute(&text)
        })
    }

    fn with<T>(&self, act: impl FnOnce(&Client) -> T) -> Result<T, WorkloadError> {
        let lost =
            || WorkloadError::Prepare { what: "go on".to_owned(), reason: "the connection is closed".to_owned() };
        self.control.as_ref().map(act).ok_or_else(lost)
    }

    fn execute(&self, text: &str) -> Result<(), WorkloadError> {
        let first = text.lines().next().unwrap_or_default();
        let done = self.with(|control| self.runtime.block_on(control.batch_execute(text)))?;
        done.map_err(cannot(first))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = self.drop_schema() {
            tracing::warn!(%error, "the schema {} is left on {}; drop it by hand", self.schema, self.info.label());
        }
    }
}

fn runtime() -> Result<Runtime, WorkloadError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|source| WorkloadError::System { call: "epoll_create", source })
}

/// A connection that says who it is.
async fn open(info: &ConnInfo, name: &str, hearer: Option<&Hearer>) -> Result<Client, WorkloadError> {
    let opened = match hearer {
        Some(hearer) => connect_client_hearing(info, hearer).await,
        None => connect_client(info).await,
    };
    let (client, task) = opened.map_err(|error| WorkloadError::Connect { client: 0, reason: error.to_string() })?;
    tokio::spawn(task);
    let set = client.batch_execute(&format!("SET application_name = '{name}'; SET client_min_messages = notice")).await;
    set.map_err(cannot("begin a session"))?;
    Ok(client)
}

/// The process id of a connection's session, on the server.
async fn pid(client: &Client) -> Result<i32, WorkloadError> {
    let row = client.query_one("SELECT pg_catalog.pg_backend_pid()", &[]).await;
    Ok(row.map_err(cannot("ask for a session's process"))?.get(0))
}

/// What all sessions of a run share.
struct Shared<'a> {
    bench: &'a Bench,
    spec: &'a BatchSpec,
    counters: &'a Counters,
    stop: AtomicBool,
    /// Process ids of the sessions, on the server.
    pids: Mutex<Vec<i32>>,
}

/// What a session did, and when it began and ended.
type Session = Result<(Done, Latencies, (Instant, Instant)), WorkloadError>;

impl Shared<'_> {
    fn session(&self, client: usize) -> Session {
        let result = self.work(client);
        match result {
            // What a session says that was told to end is no reason for anything.
            Err(_) if self.stop.load(Ordering::Relaxed) => Err(WorkloadError::Cancelled),
            Err(error) => {
                self.end();
                Err(error)
            }
            done => done,
        }
    }

    fn work(&self, number: usize) -> Session {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| WorkloadError::System { call: "epoll_create", source })?;
        let heard: Arc<Mutex<Done>> = Arc::default();
        let news = Arc::clone(&heard);
        let hearer: Hearer = Arc::new(move |notice: &str| {
            if let Some(done) = procedure::heard(notice) {
                *news.lock().unwrap_or_else(PoisonError::into_inner) = done;
            }
        });
        runtime.block_on(async {
            let client = open(&self.bench.info, LOAD_NAME, Some(&hearer)).await?;
            let own = pid(&client).await?;
            self.pids.lock().unwrap_or_else(PoisonError::into_inner).push(own);
            if self.stop.load(Ordering::Relaxed) {
                return Err(WorkloadError::Cancelled);
            }
            let rows = self.spec.rows_of(number);
            let mut latencies = Latencies::new();
            let (mut done, began) = (Done::default(), Instant::now());
            loop {
                done.add(self.round(&client, rows, &heard, &mut latencies).await?);
                if began.elapsed() >= self.spec.least {
                    return Ok((done, latencies, (began, Instant::now())));
                }
            }
        })
    }

    /// Inserts the session's rows once.
    async fn round(
        &self,
        client: &Client,
        rows: u64,
        heard: &Mutex<Done>,
        latencies: &mut Latencies,
    ) -> Result<Done, WorkloadError> {
        match self.spec.side {
            Side::Server => self.call(client, rows, heard).await,
            Side::Client => {
                let goes_on = || !self.stop.load(Ordering::Relaxed);
                let batch = (rows, self.spec.rows_per_commit);
                client_side::run(client, &self.bench.schema, batch, self.counters, latencies, &goes_on).await
            }
        }
    }

    /// Calls the procedure, and counts what it tells of itself while it runs.
    async fn call(&self, client: &Client, rows: u64, heard: &Mutex<Done>) -> Result<Done, WorkloadError> {
        let text = format!("CALL {}.my_insert({rows}, {})", self.bench.schema, self.spec.rows_per_commit);
        let mut calling = std::pin::pin!(client.batch_execute(&text));
        let mut before = Done::default();
        *heard.lock().unwrap_or_else(PoisonError::into_inner) = before;
        let _open = self.counters.begin();
        let mut count = || {
            let now = *heard.lock().unwrap_or_else(PoisonError::into_inner);
            now.count(before, self.counters);
            before = now;
            now
        };
        loop {
            tokio::select! {
                biased;
                result = &mut calling => {
                    return result.map_err(cannot(&text)).map(|()| count());
                }
                () = tokio::time::sleep(LOOK) => { count(); }
            }
        }
    }

    /// Ends all sessions: a client's own loop hears the flag, and the server cancels what it waits for, be it a procedure or a commit
    /// that no standby answers. To be said again and again: a session that has not yet read its statement hears nothing.
    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let list = pids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        // Where one has ended, its number is hardly another session's of this name and role.
        let text = format!(
            "SELECT pg_catalog.pg_cancel_backend(pid) FROM pg_catalog.pg_stat_activity \
             WHERE pid = ANY ('{{{list}}}') AND application_name = '{LOAD_NAME}' AND usename = current_user"
        );
        let asked = self.bench.with(|control| {
            let limited = async { tokio::time::timeout(END_WITHIN, control.batch_execute(&text)).await.is_ok() };
            self.bench.runtime.block_on(limited)
        });
        tracing::debug!(?asked, "the sessions of the run were told to end");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_have_the_same_statements() {
        let call = |number: &str| any_bench(&format!("CALL {PREFIX}{number}.insert_rows(1, {PREFIX}{number}.x)"));
        assert_eq!(call("_0a1b2c3d"), call("_ffffffff"));
        assert_eq!(call("_0a1b2c3d"), format!("CALL {PREFIX}.insert_rows(1, {PREFIX}.x)"));
        for own in
            ["COMMIT", "SELECT backwater_commit_wait_é1234567", "backwater_commit_wait", "backwater_commit_wait_12"]
        {
            assert_eq!(any_bench(own), own);
        }
    }
}
