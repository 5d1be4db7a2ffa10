//! A thread with a runtime of its own that relays sessions: the urgent ones on some, the low class on one.

use super::admission::Place;
use super::control::Entry;
use super::direction::Pacer;
use super::last_words::LAST_WORDS_WITHIN;
use super::live::Ending;
use super::log_limit::shown;
use super::low_class::LowClass;
use super::relay::{End, Moving};
use super::stream::{LOW_NOT_SENT_BYTES, Stream, URGENT_NOT_SENT_BYTES};
use super::urgent::{Answers, Urgent};
use crate::{GateError, clock};
use backwater_model::Span;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{mpsc, watch};

/// How long a client may take to hear the last words of a server that is done.
const LINGER: Span = Span::from_millis(5_000);
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

/// A session on its way to a worker.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) moving: Moving,
    pub(super) rest: Rest,
}

/// What a session holds for as long as it lives, wherever it is relayed.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) entry: Entry,
    /// Its place among the connections; given back before the last words are said.
    pub(super) place: Option<Place>,
    /// When all are gone, the proxy knows.
    #[expect(dead_code, reason = "held, not looked at")]
    pub(super) alive: mpsc::Sender<Infallible>,
}

/// How sessions get to a worker.
#[derive(Clone)]
pub(super) struct Worker {
    sessions: mpsc::UnboundedSender<Arrival>,
    load: Arc<AtomicUsize>,
}

/// What every session of a worker knows.
#[derive(Clone)]
struct Shared {
    phase: watch::Receiver<Phase>,
    /// Held by each session that is here; when all are gone, the worker knows.
    alive: mpsc::Sender<Infallible>,
    /// Sessions that are to be relayed elsewhere.
    moving: mpsc::UnboundedSender<Arrival>,
    class: Class,
}

/// Which sessions a worker relays.
#[derive(Clone)]
pub(super) enum Class {
    /// Urgent ones, whose statements are told.
    Urgent(Answers),
    /// The low class.
    Low(LowClass),
}

/// What is left of a session that is not relayed here any more.
#[derive(Default)]
struct Left {
    /// It goes on elsewhere.
    moving: Option<Moving>,
    /// It is over, and its client may still speak: that has so long to hear the last words. None where it rests.
    client: Option<(Stream, Span)>,
}

impl Class {
    fn is_low(&self) -> bool {
        matches!(self, Class::Low(_))
    }
}

impl Worker {
    /// Starts a worker's thread. The thread ends with the proxy.
    pub(super) fn start(
        name: &str,
        phase: watch::Receiver<Phase>,
        moving: mpsc::UnboundedSender<Arrival>,
        class: Class,
    ) -> Result<Worker, GateError> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // No timer of the runtime's: see `clock::within`.
        let runtime = builder.enable_io().build().map_err(GateError::system("start a worker"))?;
        let (sessions, arriving) = mpsc::unbounded_channel();
        let load = Arc::new(AtomicUsize::new(0));
        let (alive, gone) = mpsc::channel(1);
        let shared = Shared { phase, alive, moving, class };
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

    /// Hands a session over.
    pub(super) fn hand(&self, session: Arrival) {
        self.load.fetch_add(1, Ordering::Relaxed);
        if self.sessions.send(session).is_err() {
            tracing::error!("a worker is gone: a session is dropped");
        }
    }
}

async fn work(
    mut arriving: mpsc::UnboundedReceiver<Arrival>,
    shared: Shared,
    mut gone: mpsc::Receiver<Infallible>,
    load: Arc<AtomicUsize>,
) {
    if let Class::Low(low) = shared.class.clone() {
        let tended = low.clone();
        tokio::spawn(async move {
            if let Err(error) = low.drive().await {
                tracing::error!(%error, "the low class's timer failed: its sessions stand still");
            }
        });
        tokio::spawn(async move {
            if let Err(error) = tended.tend().await {
                tracing::error!(%error, "the low class's timer failed: its rate stays as it is");
            }
        });
    }
    // Made now: at the end there may be no descriptor for it.
    let last_words = clock::Timer::new();
    let mut phase = shared.phase.clone();
    loop {
        let arrival = tokio::select! {
            biased;
            // An error means that the proxy was dropped, which is the same.
            _ = phase.wait_for(|phase| *phase == Phase::Ending) => break,
            arrival = arriving.recv() => arrival,
        };
        let Some(arrival) = arrival else { break };
        let (shared, load) = (shared.clone(), Arc::clone(&load));
        tokio::spawn(async move {
            serve(arrival, shared).await;
            load.fetch_sub(1, Ordering::Relaxed);
        });
    }
    drop(shared);
    // The runtime lives as long as its sessions: until the last has ended, or has had time to.
    let in_time = async {
        let _ = phase.wait_for(|phase| *phase == Phase::Ending).await;
        if let Ok(timer) = &last_words {
            let _ = timer.until(clock::now() + LAST_WORDS_WITHIN).await;
        }
    };
    tokio::select! {
        _ = gone.recv() => {}
        () = in_time => {}
    }
}

async fn serve(arrival: Arrival, shared: Shared) {
    let Arrival { moving, mut rest } = arrival;
    let live = Arc::clone(rest.entry.live());
    let is_low = shared.class.is_low();
    live.is_in(is_low);
    let (peer, user, pool) = (&live.identity.peer, shown(&live.identity.user), &live.pool.name);
    tracing::debug!(%peer, %user, %pool, is_low, "a session arrives");
    let ended = match &shared.class {
        Class::Low(low) => {
            let pacer = low.open(live.identity.id, live.pool.id, moving.client_socket());
            relay(moving, pacer, &mut rest, &shared).await
        }
        Class::Urgent(answers) => relay(moving, Urgent(answers.clone()), &mut rest, &shared).await,
    };
    match ended {
        Ok(Left { moving: Some(moving), .. }) => {
            // An error means that the proxy has ended, and its sessions with it.
            let _ = shared.moving.send(Arrival { moving, rest });
        }
        Ok(Left { client, .. }) => {
            tracing::debug!(%peer, %user, %pool, "a session ended");
            // It is nobody's to judge any more.
            drop(rest.entry);
            if let Some((mut client, most)) = client {
                client.linger(most).await;
            }
        }
        Err((side, error)) => tracing::debug!(%peer, %user, %pool, side, %error, "a session broke off"),
    }
    drop(shared.alive);
}

/// Relays a session until it ends here.
async fn relay(
    moving: Moving,
    mut pacer: impl Pacer,
    rest: &mut Rest,
    shared: &Shared,
) -> Result<Left, (&'static str, io::Error)> {
    let broken = |error| ("proxy", error);
    let live = Arc::clone(rest.entry.live());
    let mut relay = moving.attach().map_err(broken)?;
    let mut phase = shared.phase.clone();
    let is_low = shared.class.is_low();
    let end = loop {
        let now = *phase.borrow_and_update();
        if now == Phase::Ending {
            break End::Quiet;
        }
        if let Some(ending) = live.ending() {
            tracing::info!(session = %live.identity.id, "{}", ending.why);
            break End::Told(ending);
        }
        if live.wants_low() != is_low {
            let not_sent = if is_low { URGENT_NOT_SENT_BYTES } else { LOW_NOT_SENT_BYTES };
            let moving = relay.detach(not_sent).map_err(broken)?;
            return Ok(Left { moving: Some(moving), client: None });
        }
        tokio::select! {
            biased;
            end = relay.run(&mut pacer, now == Phase::Draining) => break end,
            // The proxy itself is gone: its sessions go too.
            changed = phase.changed() => if changed.is_err() { break End::Quiet },
            () = live.called.notified() => {}
        }
    };
    drop(pacer);
    rest.place = None;
    let ending = match end {
        End::Closed => return Ok(Left::default()),
        End::ServerDone => return Ok(Left { moving: None, client: Some((relay.into_client(), LINGER)) }),
        End::Failed(side, error) => return Err((side, error)),
        End::Told(ending) => ending,
        End::Quiet => Ending { sqlstate: "57P01", why: GOODBYE.to_owned() },
    };
    let client = relay.say_goodbye(&ending).await;
    Ok(Left { moving: None, client: client.map(|client| (client, LAST_WORDS_WITHIN)) })
}
