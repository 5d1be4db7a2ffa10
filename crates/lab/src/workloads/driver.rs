//! Drives a workload: clients with a connection and a thread each, who take their starts from one schedule.
//!
//! A thread a client, not a task a client: a start is then late by the kernel's timer alone (about 0.1 ms), not by
//! tokio's (1 ms) or by another client's work.

use super::error::{cannot, reason};
use super::halt::Halt;
use super::member::Member;
use super::{Arrivals, Counters, LoadResult, Schedule, WorkloadError};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config};

/// How often the caller's wish to stop is looked at.
const CANCEL_LOOK: Duration = Duration::from_millis(10);
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A future that stays in its client's thread.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Something that clients do over and over.
pub trait Workload: Send + Sync {
    /// A short name.
    fn name(&self) -> &str;

    /// Prepares one client's session. `client` counts from 0; `seed` is its own.
    fn session(
        &self,
        connection: Client,
        client: usize,
        seed: u64,
    ) -> Local<'_, Result<Box<dyn Session>, WorkloadError>>;
}

/// One client's session.
pub trait Session {
    /// One transaction.
    fn transaction(&mut self) -> Local<'_, Result<(), Failure>>;
}

/// Why a transaction was not completed.
#[derive(Debug)]
pub enum Failure {
    /// The server refused a statement; the session goes on. What it said.
    Statement(String),
    /// The connection is lost. Why.
    Lost(String),
    /// The workload itself cannot go on.
    Fatal(WorkloadError),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        // 57P01 to 57P03: the server shuts down, crashed, or does not take connections.
        match error.code() {
            Some(code) if !code.code().starts_with("57P") => Failure::Statement(reason(&error)),
            _ => Failure::Lost(reason(&error)),
        }
    }
}

/// How hard and how long a load is driven.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// Connections.
    pub clients: usize,
    /// Starts a second of all clients together (open loop); none for as fast as the server answers (closed loop).
    pub rate_per_s: Option<f64>,
    /// How starts are spread in an open loop.
    pub arrivals: Arrivals,
    /// Load before the measured part.
    pub warmup: Duration,
    /// The measured part.
    pub duration: Duration,
    /// For the dice: the same seed draws the same keys.
    pub seed: u64,
}

impl LoadSpec {
    fn check(&self) -> Result<(), WorkloadError> {
        let fail = |field, value, why| Err(WorkloadError::Impossible { field, value, why });
        if self.clients == 0 || self.clients > 1_000 {
            return fail("clients", self.clients.to_string(), "give 1 to 1000");
        }
        match self.rate_per_s {
            Some(rate) if !(rate > 0.0 && rate <= 1e6) => {
                fail("rate_per_s", rate.to_string(), "give more than 0 and at most 1000000")
            }
            _ => Ok(()),
        }
    }
}

/// What all clients of one load share.
pub(crate) struct Shared<'a> {
    pub(crate) config: Config,
    pub(crate) workload: &'a dyn Workload,
    pub(crate) spec: &'a LoadSpec,
    pub(crate) counters: &'a Counters,
    pub(crate) schedule: Schedule,
    pub(crate) halt: Halt,
}

/// Drives the workload until its time is over, and returns what the measured part came to. Raising `cancel` ends it
/// at once with [`WorkloadError::Cancelled`]. Whatever is under way at the end is cancelled on the server.
pub fn run(
    conninfo: &str,
    workload: &dyn Workload,
    spec: &LoadSpec,
    counters: &Counters,
    cancel: &AtomicBool,
) -> Result<LoadResult, WorkloadError> {
    run_telling(conninfo, workload, spec, counters, cancel, &|_| ())
}

/// As [`run`]; `begins` hears when the load begins, which is when all clients are ready.
pub fn run_telling(
    conninfo: &str,
    workload: &dyn Workload,
    spec: &LoadSpec,
    counters: &Counters,
    cancel: &AtomicBool,
    begins: &dyn Fn(Instant),
) -> Result<LoadResult, WorkloadError> {
    spec.check()?;
    let schedule = Schedule::new(spec.rate_per_s, spec.arrivals, spec.seed);
    let shared = Shared { config: config(conninfo)?, workload, spec, counters, schedule, halt: Halt::new() };
    std::thread::scope(|scope| {
        let (ready, readied) = channel();
        let mut clients = Vec::new();
        for number in 0..spec.clients {
            let (start, started) = channel();
            let (shared, ready) = (&shared, ready.clone());
            let builder = std::thread::Builder::new().name(format!("load-{number}"));
            let spawned = builder.spawn_scoped(scope, move || {
                let result = Member { shared, number }.run(&ready, &started);
                if result.is_err() {
                    shared.halt.halt();
                }
                result
            });
            // Leaving here drops every `start`, upon which those that wait for it end.
            clients.push((start, spawned.map_err(|source| WorkloadError::System { call: "clone", source })?));
        }
        drop(ready);
        let (starts, handles): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
        let began = begin(&shared, &readied, starts, cancel).inspect(|began| begins(*began));
        let end = began.map(|began| (began, watch(&shared, began, cancel)));
        collect(&shared, handles, end, cancel.load(Ordering::Relaxed))
    })
}

/// The connection's parameters, with this program's name.
pub(crate) fn config(conninfo: &str) -> Result<Config, WorkloadError> {
    let parsed: Result<Config, _> = conninfo.parse();
    let mut config = parsed.map_err(cannot("read the connection string"))?;
    config.application_name("backwater-load").connect_timeout(CONNECT_WITHIN);
    Ok(config)
}

/// Waits until every client is ready, then gives all the same beginning. None when one of them failed.
fn begin(
    shared: &Shared<'_>,
    readied: &Receiver<()>,
    starts: Vec<Sender<Instant>>,
    cancel: &AtomicBool,
) -> Option<Instant> {
    let mut waiting = starts.len();
    while waiting > 0 {
        match readied.recv_timeout(CANCEL_LOOK) {
            Ok(()) => waiting -= 1,
            Err(_) if cancel.load(Ordering::Relaxed) => shared.halt.halt(),
            Err(_) => {}
        }
        if shared.halt.is_halted() {
            return None;
        }
    }
    let began = Instant::now();
    for start in starts {
        // A client that ended in the meantime has told why in its result.
        let _ = start.send(began);
    }
    Some(began)
}

/// Waits for the end of the load, its cancellation, or the failure of a client; when that was.
fn watch(shared: &Shared<'_>, began: Instant, cancel: &AtomicBool) -> Instant {
    let end = began + shared.spec.warmup + shared.spec.duration;
    while Instant::now() < end && !cancel.load(Ordering::Relaxed) {
        if !shared.halt.sleep_until(end.min(Instant::now() + CANCEL_LOOK)) {
            break;
        }
    }
    shared.halt.halt();
    Instant::now()
}

fn collect(
    shared: &Shared<'_>,
    handles: Vec<ScopedJoinHandle<'_, Result<LoadResult, WorkloadError>>>,
    end: Option<(Instant, Instant)>,
    cancelled: bool,
) -> Result<LoadResult, WorkloadError> {
    let mut all = LoadResult { offered_per_s: shared.spec.rate_per_s, ..LoadResult::default() };
    let mut failed = None;
    for handle in handles {
        match handle.join() {
            Ok(Ok(one)) => merge(&mut all, one),
            Ok(Err(error)) => failed = failed.or(Some(error)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    match failed {
        _ if cancelled => return Err(WorkloadError::Cancelled),
        Some(error) => return Err(error),
        None => {}
    }
    let Some((began, ended)) = end else { return Err(WorkloadError::Cancelled) };
    all.seconds = ended.saturating_duration_since(began + shared.spec.warmup).as_secs_f64();
    all.per_second.resize(all.seconds as usize, 0);
    all.never_started = shared.schedule.left_before(ended - began);
    Ok(all)
}

fn merge(all: &mut LoadResult, one: LoadResult) {
    all.completed += one.completed;
    all.failed += one.failed;
    all.cancelled += one.cancelled;
    if all.per_second.len() < one.per_second.len() {
        all.per_second.resize(one.per_second.len(), 0);
    }
    for (sum, count) in all.per_second.iter_mut().zip(&one.per_second) {
        *sum += count;
    }
    all.latency.add(&one.latency);
    all.service.add(&one.service);
    all.first_failure = all.first_failure.take().or(one.first_failure);
}
