//! One client of a load: its connection, its session, and what it came to.

use super::driver::{CONNECT_WITHIN, Failure, Session, Shared};
use super::error::reason;
use super::{LoadResult, WorkloadError};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{CancelToken, Client, Config, Connection, NoTls, Socket};

/// How long a client waits at the end for its statement to be cancelled and its session to close. A backend that the
/// kernel holds in a write cannot hear of it; it ends when the write does.
const END_WITHIN: Duration = Duration::from_secs(2);
/// How long a client that found the server's queue full stays away.
const CONNECT_AGAIN: Duration = Duration::from_millis(20);
/// How long a session gets to close before it is (once more) cancelled.
const CANCEL_AGAIN: Duration = Duration::from_millis(20);

/// One client.
pub(crate) struct Member<'a> {
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) number: usize,
}

/// Connects. Where hundreds do so at once, a Unix socket's queue is full for a moment, and of those the kernel lets nobody
/// wait, unlike before a TCP port: who is sent away comes again, for a while, and until it `is_over`.
///
/// # Errors
/// The server does not let it in.
pub async fn connect(
    config: &Config,
    is_over: &dyn Fn() -> bool,
) -> Result<(Client, Connection<Socket, NoTlsStream>), tokio_postgres::Error> {
    let until = Instant::now() + CONNECT_WITHIN;
    loop {
        let connected = config.connect(NoTls).await;
        match connected {
            Err(error) if queue_is_full(&error) && Instant::now() < until && !is_over() => {
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
            connected => return connected,
        }
    }
}

fn queue_is_full(error: &tokio_postgres::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::WouldBlock)
}

impl Member<'_> {
    /// Connects, says that it is ready, and works from the beginning that it is then given to the load's end.
    pub(crate) fn run(&self, ready: &Sender<()>, started: &Receiver<Instant>) -> Result<LoadResult, WorkloadError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| WorkloadError::System { call: "epoll_create", source })?;
        let connected = runtime.block_on(connect(&self.shared.config, &|| self.shared.halt.is_halted()));
        let (client, connection) =
            connected.map_err(|error| WorkloadError::Connect { client: self.number, reason: reason(&error) })?;
        let connection = runtime.spawn(connection);
        let token = client.cancel_token();
        let seed = self.shared.spec.seed.wrapping_mul(1_000_003).wrapping_add(self.number as u64);
        let mut session = runtime.block_on(self.shared.workload.session(client, self.number, seed))?;
        let mut result = Ok(LoadResult::default());
        // The receiver of this is gone only when the load is over already.
        if ready.send(()).is_ok()
            && let Ok(began) = started.recv()
        {
            result = self.work(&runtime, session.as_mut(), began);
        }
        drop(session);
        runtime.block_on(close(connection, &token));
        result
    }

    fn work(&self, runtime: &Runtime, session: &mut dyn Session, began: Instant) -> Result<LoadResult, WorkloadError> {
        let Shared { halt, schedule, spec, .. } = self.shared;
        let mut tally = Tally { measured_from: began + spec.warmup, result: LoadResult::default() };
        loop {
            let intended = match schedule.take() {
                Some(offset) => began + offset,
                None => Instant::now(),
            };
            if !halt.sleep_until(intended) {
                return Ok(tally.result);
            }
            let (outcome, times) = self.once(runtime, session, intended);
            match outcome {
                Some(Ok(())) => {
                    self.shared.counters.complete(times.latency, times.service);
                    tally.completed(times);
                }
                Some(Err(Failure::Statement(reason))) => {
                    self.shared.counters.fail();
                    tally.failed(times, reason);
                }
                Some(Err(Failure::Fatal(error))) => return Err(error),
                Some(Err(Failure::Lost(reason))) => {
                    let after_s = (times.ended - began).as_secs_f64();
                    return Err(WorkloadError::Lost { client: self.number, after_s, reason });
                }
                None => {
                    tally.cancelled(times);
                    return Ok(tally.result);
                }
            }
        }
    }

    /// One transaction; no outcome where the load's end came first.
    fn once(
        &self,
        runtime: &Runtime,
        session: &mut dyn Session,
        intended: Instant,
    ) -> (Option<Result<(), Failure>>, Times) {
        let started = Instant::now();
        let in_flight = self.shared.counters.begin();
        let outcome = runtime.block_on(async {
            tokio::select! {
                biased;
                outcome = session.transaction() => Some(outcome),
                () = self.shared.halt.halted() => None,
            }
        });
        drop(in_flight);
        let ended = Instant::now();
        (outcome, Times { ended, latency: ended - intended.min(started), service: ended - started })
    }
}

/// When a transaction ended, and how long it took from its intended and its actual start.
#[derive(Clone, Copy)]
struct Times {
    ended: Instant,
    latency: Duration,
    service: Duration,
}

/// Waits for a session that was told to close, and has the server cancel what it still does: again and again, for a
/// server that hears of the cancellation before it has read the statement ignores it.
async fn close(mut connection: JoinHandle<Result<(), tokio_postgres::Error>>, token: &CancelToken) {
    let deadline = Instant::now() + END_WITHIN;
    while tokio::time::timeout(CANCEL_AGAIN, &mut connection).await.is_err() {
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = tokio::time::timeout(left, token.cancel_query(NoTls)).await;
        if Instant::now() >= deadline {
            return tracing::debug!(?asked, "a session did not close at the end of the load");
        }
    }
}

/// One client's part of the result.
struct Tally {
    measured_from: Instant,
    result: LoadResult,
}

impl Tally {
    fn completed(&mut self, times: Times) {
        let Some(at) = times.ended.checked_duration_since(self.measured_from) else { return };
        let second = at.as_secs() as usize;
        if self.result.per_second.len() <= second {
            self.result.per_second.resize(second + 1, 0);
        }
        self.result.per_second[second] += 1;
        self.result.completed += 1;
        self.result.latency.record(times.latency);
        self.result.service.record(times.service);
    }

    fn failed(&mut self, times: Times, reason: String) {
        if times.ended >= self.measured_from {
            self.result.failed += 1;
        }
        self.result.first_failure.get_or_insert(reason);
    }

    fn cancelled(&mut self, times: Times) {
        if times.ended >= self.measured_from {
            self.result.cancelled += 1;
            self.result.latency.record(times.latency);
            self.result.service.record(times.service);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with};
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::channel;

    fn socket(flags: SocketFlags) -> OwnedFd {
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    }

    #[test]
    fn who_finds_the_servers_queue_full_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let address = SocketAddrUnix::new(dir.path().join(".s.PGSQL.5432")).unwrap();
        let server = socket(SocketFlags::empty());
        bind(&server, &address).unwrap();
        listen(&server, 1).unwrap();
        let comes = |_| {
            let next = socket(SocketFlags::NONBLOCK);
            rustix::net::connect(&next, &address).is_ok().then_some(next)
        };
        let crowd: Vec<OwnedFd> = (0..).map_while(comes).collect();
        let config: Config = format!("host={} user=a", dir.path().display()).parse().unwrap();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let at_once = runtime().block_on(config.connect(NoTls)).err().unwrap();
        assert!(queue_is_full(&at_once), "{at_once:?}");
        let over = runtime().block_on(connect(&config, &|| true)).err().unwrap();
        assert!(queue_is_full(&over), "{over:?}");
        let (tell, told) = channel();
        let waits = std::thread::spawn(move || tell.send(runtime().block_on(connect(&config, &|| false)).err()));
        for _ in 0..=crowd.len() {
            // The last of them is the one that came again: it is taken, and left without an answer.
            drop(accept(&server).unwrap());
        }
        let refused = told.recv().unwrap().unwrap();
        assert!(!queue_is_full(&refused), "{refused:?}");
        waits.join().unwrap().unwrap();
    }
}
