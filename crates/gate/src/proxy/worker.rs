//! A thread with a runtime of its own that relays sessions: the urgent ones on some, the low class on one.

use super::direction::{Pacer, Unpaced};
use super::low_class::LowClass;
use super::negotiate::Session;
use super::relay::{End, LAST_WORDS_WITHIN, Relay};
use crate::GateError;
use backwater_flow::PoolId;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long a client may take to hear the last words of a server that is done.
const LINGER: Duration = Duration::from_secs(5);
/// What a session that is ended by the proxy's own end is told, as a server would say it.
const GOODBYE: &str = "terminating connection because the proxy is shutting down";

/// What the proxy does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Everything as usual.
    Running,
    /// No new sessions; those that are quiet are ended.
    Draining,
    /// All are ended now.
    Ending,
}

/// How sessions get to a worker.
#[derive(Clone)]
pub(super) struct Worker {
    sessions: mpsc::UnboundedSender<(Session, Option<PoolId>)>,
    load: Arc<AtomicUsize>,
}

/// What every session of a worker knows.
#[derive(Clone)]
struct Shared {
    phase: watch::Receiver<Phase>,
    /// Held by each session; when all are gone, the proxy and the worker know.
    alive: [mpsc::Sender<Infallible>; 2],
    low: Option<LowClass>,
}

impl Worker {
    /// Starts a worker's thread. The thread ends when the last handle is dropped and the last session has ended.
    pub(super) fn start(
        name: &str,
        phase: watch::Receiver<Phase>,
        alive: mpsc::Sender<Infallible>,
        low: Option<LowClass>,
    ) -> Result<Worker, GateError> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().enable_time().build().map_err(GateError::system("start a worker"))?;
        let (sessions, arriving) = mpsc::unbounded_channel();
        let load = Arc::new(AtomicUsize::new(0));
        let (here, gone) = mpsc::channel(1);
        let shared = Shared { phase, alive: [alive, here], low };
        let counted = Arc::clone(&load);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || runtime.block_on(work(arriving, shared, gone, counted)))
            .map_err(GateError::system("start a worker"))?;
        Ok(Worker { sessions, load })
    }

    /// Sessions on it.
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Hands a session over; a pool makes it one of the low class.
    pub(super) fn hand(&self, session: Session, low: Option<PoolId>) {
        self.load.fetch_add(1, Ordering::Relaxed);
        if self.sessions.send((session, low)).is_err() {
            tracing::error!("a worker is gone: a session is dropped");
        }
    }
}

async fn work(
    mut arriving: mpsc::UnboundedReceiver<(Session, Option<PoolId>)>,
    shared: Shared,
    mut gone: mpsc::Receiver<Infallible>,
    load: Arc<AtomicUsize>,
) {
    if let Some(low) = shared.low.clone() {
        tokio::spawn(async move {
            if let Err(error) = low.drive().await {
                tracing::error!(%error, "the low class's timer failed: its sessions stand still");
            }
        });
    }
    let mut phase = shared.phase.clone();
    while let Some((session, pool)) = arriving.recv().await {
        let (shared, load) = (shared.clone(), Arc::clone(&load));
        tokio::spawn(async move {
            serve(session, pool, shared).await;
            load.fetch_sub(1, Ordering::Relaxed);
        });
    }
    drop(shared);
    // The runtime lives as long as its sessions: until the last has ended, or has been told to end and had time to.
    let told_to_end = async {
        // An error means that the proxy was dropped, which is the same.
        let _ = phase.wait_for(|phase| *phase == Phase::Ending).await;
        tokio::time::sleep(LAST_WORDS_WITHIN).await;
    };
    tokio::select! {
        _ = gone.recv() => {}
        () = told_to_end => {}
    }
}

async fn serve(session: Session, pool: Option<PoolId>, shared: Shared) {
    let (peer, user, name) = (session.peer.clone(), session.user.clone(), session.pool.clone());
    tracing::debug!(%peer, %user, pool = %name, "a session begins");
    let ended = match (pool, &shared.low) {
        (Some(pool), Some(low)) => relay(session, &mut low.open(pool), &shared).await,
        _ => relay(session, &mut Unpaced, &shared).await,
    };
    match ended {
        Ok(()) => tracing::debug!(%peer, %user, pool = %name, "a session ended"),
        Err((side, error)) => tracing::debug!(%peer, %user, pool = %name, side, %error, "a session broke off"),
    }
    drop(shared.alive);
}

async fn relay(session: Session, pacer: &mut impl Pacer, shared: &Shared) -> Result<(), (&'static str, io::Error)> {
    let Session { client, server, heard, tracker, place, .. } = session;
    let client = client.attach().map_err(|error| ("client", error))?;
    let mut server = server.attach().map_err(|error| ("server", error))?;
    server.write_all(&heard).await.map_err(|error| ("server", error))?;
    drop(heard);
    let mut relay = Relay::new(client, server, tracker);
    let mut phase = shared.phase.clone();
    let end = loop {
        let now = *phase.borrow_and_update();
        if now == Phase::Ending {
            break End::Quiet;
        }
        tokio::select! {
            biased;
            end = relay.run(pacer, now == Phase::Draining) => break end,
            // The proxy itself is gone: its sessions go too.
            changed = phase.changed() => if changed.is_err() { break End::Quiet },
        }
    };
    // Its place is free for the next one already while this one says goodbye.
    drop(place);
    match end {
        End::Closed => Ok(()),
        End::ServerDone => {
            relay.linger(LINGER).await;
            Ok(())
        }
        End::Quiet => {
            relay.say_goodbye(GOODBYE).await;
            Ok(())
        }
        End::Failed(side, error) => Err((side, error)),
    }
}
