//! The in-line proxy: session mode, one server connection for each client connection, no message rewritten.
//!
//! One thread accepts and negotiates ([`negotiate`]); urgent sessions are relayed by one thread a core but one, the low
//! class by one thread of its own, where its bucket and scheduler live ([`low_class`]). A relay is two [`direction`]s
//! with bounded, reused buffers. What is known of a session comes from message heads alone ([`crate::wire`]).

mod acceptor;
mod address;
mod admission;
mod buffers;
mod config;
mod direction;
mod low_class;
mod negotiate;
mod relay;
mod stream;
mod worker;

pub use address::Address;
pub use config::{Limits, ProxyConfig};

use crate::GateError;
use acceptor::{Bound, Workers};
use backwater_flow::LowPriorityBandwidth;
use negotiate::Terms;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use worker::{Phase, Worker};

/// How long sessions have to say goodbye once they are told to end.
const END_WITHIN: Duration = Duration::from_secs(2);

/// A running proxy. Dropping it ends it at once; [`Proxy::drain`] is the gentle way.
pub struct Proxy {
    addresses: Vec<Address>,
    sockets: Vec<PathBuf>,
    phase: watch::Sender<Phase>,
    gone: mpsc::Receiver<Infallible>,
    acceptor: Option<std::thread::JoinHandle<()>>,
    drain_timeout: Duration,
}

/// How draining went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every session came to a good end.
    Whole,
    /// Some had to be broken off.
    BrokenOff,
}

impl Proxy {
    /// Listens, and relays from now on.
    pub fn start(config: &ProxyConfig) -> Result<Proxy, GateError> {
        config.check()?;
        let LowPriorityBandwidth::Fixed(low_bps) = config.state.low_priority_bandwidth() else {
            return Err(GateError::Unsupported("low_priority_bandwidth must be a rate"));
        };
        raise_open_files();
        let bound = config.listen.iter().map(Bound::bind).collect::<Result<Vec<_>, _>>()?;
        let addresses = bound.iter().map(Bound::address).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.map_err(GateError::system("ask for the address"))?;
        let sockets = addresses.iter().filter_map(|address| address.path().map(PathBuf::from)).collect();
        let (phase, seen) = watch::channel(Phase::Running);
        let (alive, gone) = mpsc::channel(1);
        let (low_pools, pools) = Workers::low_pools(&config.state);
        let low_class = Workers::low_class(low_bps, pools);
        let urgent = (0..urgent_workers(&config.limits))
            .map(|number| Worker::start(&format!("urgent-{number}"), seen.clone(), alive.clone(), None))
            .collect::<Result<Vec<_>, _>>()?;
        let low = Worker::start("low", seen.clone(), alive, Some(low_class))?;
        let workers = Arc::new(Workers { urgent, low, low_pools });
        let acceptor = start_acceptor(bound, Terms::new(config), workers, seen)?;
        let drain_timeout = config.limits.drain_timeout();
        Ok(Proxy { addresses, sockets, phase, gone, acceptor: Some(acceptor), drain_timeout })
    }

    /// Where it listens, with the ports that it got.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Ends gently: takes no more sessions, ends each as soon as it is between statements and transactions, and those
    /// that are not within the drain timeout, or once `hurry` says so, at once.
    pub fn drain(mut self, hurry: impl Fn() -> bool) -> Drained {
        self.phase.send_replace(Phase::Draining);
        let whole = self.wait_until_gone(self.drain_timeout, &hurry);
        self.phase.send_replace(Phase::Ending);
        if !whole {
            self.wait_until_gone(END_WITHIN, &|| false);
        }
        if whole { Drained::Whole } else { Drained::BrokenOff }
    }

    /// Whether the last session has ended within the time.
    fn wait_until_gone(&mut self, within: Duration, hurry: &dyn Fn() -> bool) -> bool {
        const LOOK: Duration = Duration::from_millis(20);
        let began = std::time::Instant::now();
        loop {
            match self.gone.try_recv() {
                Err(mpsc::error::TryRecvError::Disconnected) => return true,
                _ if began.elapsed() >= within || hurry() => return false,
                _ => std::thread::sleep(LOOK),
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Ending);
        if let Some(acceptor) = self.acceptor.take()
            && acceptor.join().is_err()
        {
            tracing::error!("the acceptor's thread panicked");
        }
        for path in &self.sockets {
            // A socket that is gone already needs no removing.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn urgent_workers(limits: &Limits) -> usize {
    match limits.workers {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1)).max(1),
        told => told,
    }
}

fn start_acceptor(
    bound: Vec<Bound>,
    terms: Arc<Terms>,
    workers: Arc<Workers>,
    phase: watch::Receiver<Phase>,
) -> Result<std::thread::JoinHandle<()>, GateError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build().map_err(GateError::system("start the acceptor"))?;
    let run = move || {
        if let Err(error) = runtime.block_on(acceptor::accept(bound, terms, workers, phase)) {
            tracing::error!(%error, "cannot listen");
        }
        // Looking up a name may hang in a thread of its own; nobody waits for it.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("acceptor".to_owned());
    thread.spawn(run).map_err(GateError::system("start the acceptor"))
}

/// Each session needs two descriptors; the soft limit of 1,024 is a relic of select().
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
