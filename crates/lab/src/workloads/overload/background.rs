//! Large results that never end by themselves: a client each, all in one thread, that reads as fast as it can and counts.

use super::super::error::{cannot, reason};
use super::super::{WorkloadError, config};
use crate::servers::process;
use futures_util::TryStreamExt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// The `application_name` of the streams.
pub(crate) const BACKGROUND_NAME: &str = "backwater-background";

/// Two thousand rows of a kilobyte.
pub(super) const TABLE: &str = "CREATE TABLE backwater_wide AS SELECT id, (SELECT string_agg(md5(id::text || n::text), '') FROM \
                                generate_series(1, 32) AS n) AS filler FROM generate_series(1, 2000) AS id";
/// A join of some 200 GB: it ends with its arm.
const QUERY: &str = "COPY (SELECT w.* FROM generate_series(1, 100000) AS n, backwater_wide w) TO STDOUT";
/// How long a stream gets to begin, and all of them to end.
const BEGIN_WITHIN: Duration = Duration::from_secs(20);
const END_WITHIN: Duration = Duration::from_secs(5);

/// Streams that run. They end with it.
#[derive(Debug)]
pub(crate) struct Background {
    received: Arc<AtomicU64>,
    cancelled: Arc<AtomicU64>,
    over: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<Result<(), WorkloadError>>>,
}

/// What the streams share.
#[derive(Clone)]
struct Shared {
    received: Arc<AtomicU64>,
    cancelled: Arc<AtomicU64>,
    over: watch::Receiver<bool>,
}

impl Background {
    /// Begins so many streams from within a network namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered, or no thread can be had. What goes wrong later is told by [`Background::end`].
    pub(crate) fn start(conninfo: &str, streams: u32, namespace: &str) -> Result<Background, crate::LabError> {
        let mut config = config(conninfo)?;
        config.application_name(BACKGROUND_NAME).connect_timeout(BEGIN_WITHIN);
        let (over, seen) = watch::channel(false);
        let shared = Shared { received: Arc::default(), cancelled: Arc::default(), over: seen };
        let (received, cancelled) = (Arc::clone(&shared.received), Arc::clone(&shared.cancelled));
        let begin = move || {
            // A thread is born into the namespace of the one that makes it.
            let thread = std::thread::Builder::new().name("background".to_owned());
            thread.spawn(move || run(&config, streams, &shared))
        };
        let thread = process::within(Some(namespace), begin)?;
        let thread = thread.map_err(|source| WorkloadError::System { call: "clone", source })?;
        Ok(Background { received, cancelled, over, thread: Some(thread) })
    }

    /// Bytes of results that have come, without the protocol's own.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Ends the streams. How many of them the server cancelled before.
    ///
    /// # Errors
    /// One of them could not begin, or broke for another reason than a cancellation.
    pub(crate) fn end(mut self) -> Result<u64, WorkloadError> {
        self.over.send_replace(true);
        let cancelled = self.cancelled.load(Ordering::Relaxed);
        match self.thread.take().map(std::thread::JoinHandle::join) {
            Some(Ok(done)) => done.map(|()| cancelled),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(cancelled),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.over.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // Its result matters to nobody who did not ask for it.
            let _ = thread.join();
        }
    }
}

fn run(config: &tokio_postgres::Config, streams: u32, shared: &Shared) -> Result<(), WorkloadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| WorkloadError::System { call: "epoll_create", source })?;
    let done = runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..streams {
            let (config, shared) = (config.clone(), shared.clone());
            tasks.spawn(async move { stream(&config, number as usize, shared).await });
        }
        let mut first = Ok(());
        while let Some(ended) = tasks.join_next().await {
            let ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
            first = first.and(ended);
        }
        first
    });
    // Connections are closed with their runtime: a server that still sends hears of it at once.
    runtime.shutdown_timeout(END_WITHIN);
    done
}

/// One stream, to the load's end. One that is cancelled stays away: whoever's query is not to run does not ask again.
async fn stream(config: &tokio_postgres::Config, number: usize, mut shared: Shared) -> Result<(), WorkloadError> {
    let refused = |error: &tokio_postgres::Error| WorkloadError::Connect { client: number, reason: reason(error) };
    let (client, connection) = config.connect(NoTls).await.map_err(|error| refused(&error))?;
    let connection = tokio::spawn(connection);
    let over = shared.over.clone();
    let ended = async {
        // An error means that the load was dropped, which is the same.
        let _ = shared.over.wait_for(|over| *over).await;
    };
    let read = tokio::select! {
        read = read(&client, &shared.received) => read,
        () = ended => Ok(()),
    };
    connection.abort();
    match read {
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
            shared.cancelled.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        Err(_) if *over.borrow() => Ok(()),
        Err(error) => Err(cannot("read a large result")(error)),
        Ok(()) => Ok(()),
    }
}

async fn read(client: &Client, received: &AtomicU64) -> Result<(), tokio_postgres::Error> {
    let mut rows = pin!(client.copy_out(QUERY).await?);
    while let Some(row) = rows.try_next().await? {
        received.fetch_add(row.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}
