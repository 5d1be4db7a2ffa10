//! The in-line proxy: session mode, one server connection for each client connection, no message rewritten.
//!
//! One thread accepts and negotiates ([`negotiate`]); urgent sessions are relayed by one thread a core but one, the low
//! class by one thread of its own, where its bucket and scheduler live ([`low_class`]). A relay is two [`direction`]s
//! with bounded, reused buffers. What is known of a session comes from message heads alone ([`crate::wire`]).

mod acceptor;
mod address;
mod admission;
mod buffers;
mod cancel;
mod change;
mod config;
mod console;
mod control;
mod direction;
mod first_words;
mod follow;
mod glance;
mod hidden;
mod judge;
mod last_words;
mod limits;
mod live;
mod log_limit;
mod low_class;
mod negotiate;
mod openings;
mod orders;
mod outside;
mod placed;
mod pools;
mod process;
mod reach;
mod relay;
mod secure;
mod server_view;
mod sockets;
mod sources;
mod state_file;
mod stream;
mod terms;
mod tls;
mod turns;
mod urgent;
mod worker;

pub use address::Address;
pub use config::ProxyConfig;
pub use console::Admin;
#[cfg(fuzzing)]
pub use console::exercise as exercise_console;
pub(crate) use console::shown_columns;
pub use glance::Glance;
pub use limits::Limits;
pub use outside::{Console, OutsideSession, PoolStep, Unseen, not_enforced};
pub use server_view::ServerAccount;
pub use sources::Network;
#[cfg(fuzzing)]
pub use state_file::exercise as exercise_state_file;
pub use tls::{ClientTls, ServerTls};

use crate::GateError;
use acceptor::{Bound, Reception, Workers};
use backwater_model::Event;
use control::Control;
use negotiate::{Agreed, Door};
use server_view::ServerView;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use urgent::Answers;
use worker::{Arrival, Class, Phase, Rest, Worker};

/// Who hears of decisions and changes.
pub type Tell = Arc<dyn Fn(Event) + Send + Sync>;

/// How long sessions have to say goodbye once they are told to end.
const END_WITHIN: Duration = Duration::from_secs(2);

/// A running proxy. Dropping it ends it at once; [`Proxy::drain`] is the gentle way.
pub struct Proxy {
    addresses: Vec<Address>,
    console_addresses: Vec<Address>,
    control: Arc<Control>,
    front: Front,
    gone: mpsc::Receiver<Infallible>,
    /// Ends with the proxy, after it has told what is over.
    judge: std::thread::JoinHandle<()>,
}

/// Where people come in, and the word on what is done. Dropping it ends everything behind it.
struct Front {
    phase: watch::Sender<Phase>,
    acceptor: Option<std::thread::JoinHandle<()>>,
    /// Unix sockets, removed when nobody is taken in any more.
    sockets: Vec<PathBuf>,
}

impl Front {
    /// Accepts on all of these from now on; `addresses` are theirs.
    fn open<'a>(
        doors: Vec<(Bound, Door)>,
        reception: Reception,
        phase: watch::Sender<Phase>,
        addresses: impl IntoIterator<Item = &'a Address>,
    ) -> Result<Front, GateError> {
        let acceptor = Some(start_acceptor(doors, reception, phase.subscribe())?);
        let sockets = addresses.into_iter().filter_map(|address| address.path().map(PathBuf::from)).collect();
        Ok(Front { phase, acceptor, sockets })
    }

    /// Takes nobody in any more. The addresses are free for the next one then, also while this one drains; so the sockets go
    /// first, or they might be that one's.
    fn close(&mut self, phase: Phase) {
        for path in self.sockets.drain(..) {
            // A socket that is gone already needs no removing.
            let _ = std::fs::remove_file(path);
        }
        self.phase.send_replace(phase);
        if let Some(acceptor) = self.acceptor.take()
            && acceptor.join().is_err()
        {
            tracing::error!("the acceptor's thread panicked");
        }
    }
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
    /// Listens, and relays from now on. Decisions are logged and told to nobody else.
    pub fn start(config: &ProxyConfig) -> Result<Proxy, GateError> {
        Proxy::start_telling(config, Arc::new(|_| ()))
    }

    /// The same; `tell` hears every decision and every change of a setting as an event, and must not block.
    pub fn start_telling(config: &ProxyConfig, tell: Tell) -> Result<Proxy, GateError> {
        config.check()?;
        config.may_be_kept()?;
        raise_open_files();
        let (bound, named) = bind(&config.listen)?;
        let (console, _) = bind(config.admin.as_ref().map_or(&[], |admin| &admin.listen))?;
        let addresses = addresses_of(&bound)?;
        let console_addresses = addresses_of(&console)?;
        let (visits, visited) = mpsc::unbounded_channel();
        let (view, orders) = ServerView::new();
        let control = Control::new(config, tell, visits, view, None);
        let (phase, seen) = watch::channel(Phase::Running);
        let (alive, gone) = mpsc::channel(1);
        let (moving, moved) = mpsc::unbounded_channel();
        let worker = |name: &str, class| Worker::start(name, seen.clone(), moving.clone(), class);
        let urgent = (0..urgent_workers(&config.limits))
            .map(|number| {
                let (answers, heard) = Answers::new();
                control.low_class.hear(heard);
                worker(&format!("urgent-{number}"), Class::Urgent(answers))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let low = worker("low", Class::Low(control.low_class.clone()))?;
        let workers = Arc::new(Workers { urgent, low });
        let judge = judge::start(Arc::clone(&control), Arc::clone(&workers), moved, seen.clone())?;
        console::start(Arc::clone(&control), visited, seen.clone())?;
        server_view::start(Arc::clone(&control), orders, seen)?;
        let doors = bound.into_iter().zip(named).map(|(bound, address)| (bound, Door::server(address)));
        let doors = doors.chain(console.into_iter().map(|bound| (bound, Door::Console))).collect();
        let hand = move |Agreed { moving, entry, place }| {
            workers.hand(Arrival { moving, rest: Rest { entry, place: Some(place), alive: alive.clone() } });
        };
        let reception = Reception { control: Arc::clone(&control), hand: Arc::new(hand) };
        let front = Front::open(doors, reception, phase, addresses.iter().chain(&console_addresses))?;
        Ok(Proxy { addresses, console_addresses, control, front, gone, judge })
    }

    /// Where it listens, with the ports that it got.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where the console listens by itself.
    pub fn console_addresses(&self) -> &[Address] {
        &self.console_addresses
    }

    /// Somebody who looks at what it holds back.
    pub fn glance(&self) -> Glance {
        let addresses: Vec<String> = self.addresses.iter().map(Address::to_string).collect();
        Glance::new(Arc::clone(&self.control), format!("proxy {}", addresses.join(", ")))
    }

    /// Takes over a configuration that was read again: sessions go on, by the new rules. Returns what it changes only
    /// when the proxy is started again. After an error everything is as it was.
    pub fn reload(&self, config: &ProxyConfig) -> Result<Vec<&'static str>, GateError> {
        self.control.reload(config)
    }

    /// A configuration that was read again is not taken over: that is logged, and told as what is taken over is.
    pub fn not_reloaded(&self, why: &str) {
        let told = format!("the configuration was not taken over, everything stays as it was: {why}");
        self.control.refused_change(&told);
    }

    /// How long sessions have to come to a good end, as the configuration says now.
    fn drain_timeout(&self) -> Duration {
        self.control.terms().limits.drain_timeout()
    }

    /// Ends gently: takes no more connections, ends each session as soon as it is between statements and transactions, and those
    /// that are not within the drain timeout, or once `hurry` says so, at once.
    pub fn drain(mut self, hurry: impl Fn() -> bool) -> Drained {
        self.front.close(Phase::Draining);
        tracing::info!("letting sessions end for up to {} s", self.drain_timeout().as_secs_f64());
        let whole = self.wait_until_gone(self.drain_timeout(), &hurry);
        self.front.phase.send_replace(Phase::Ending);
        if !whole {
            tracing::warn!("some sessions did not come to an end in time and are broken off");
            self.wait_until_gone(END_WITHIN, &|| false);
        }
        if self.judge.join().is_err() {
            tracing::error!("the judge did not come to its end: what rules did last is not told");
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

impl Drop for Front {
    fn drop(&mut self) {
        self.close(Phase::Ending);
    }
}

fn urgent_workers(limits: &Limits) -> usize {
    match limits.workers {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1)).max(1),
        told => told,
    }
}

/// Listens on all of these; each socket with the address that names it.
fn bind(addresses: &[Address]) -> Result<(Vec<Bound>, Vec<&Address>), GateError> {
    let mut all = (Vec::new(), Vec::new());
    for address in addresses {
        let bound = Bound::bind(address)?;
        all.extend(bound.into_iter().map(|bound| (bound, address)));
    }
    Ok(all)
}

fn addresses_of(bound: &[Bound]) -> Result<Vec<Address>, GateError> {
    let addresses: io::Result<_> = bound.iter().map(Bound::address).collect();
    addresses.map_err(GateError::system("ask for the address"))
}

fn start_acceptor(
    bound: Vec<(Bound, Door)>,
    reception: Reception,
    phase: watch::Receiver<Phase>,
) -> Result<std::thread::JoinHandle<()>, GateError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build().map_err(GateError::system("start the acceptor"))?;
    let run = move || {
        if let Err(error) = runtime.block_on(acceptor::accept(bound, reception, phase)) {
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
