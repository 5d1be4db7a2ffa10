//! The recording of whoever holds work back: what was decided, as events; who is held and how much is let through, as series each
//! second; and the newest state in one piece, for the page.

use anyhow::Context;
use backwater_gate::proxy::Tell;
use backwater_model::catalogue::{
    Def, FLOW_HELD, FLOW_POOL_HELD, FLOW_POOL_RATE, FLOW_POOL_RUNNING, FLOW_POOL_SENT, FLOW_POOL_SESSIONS,
    FLOW_POOL_WAITING, FLOW_QUEUEING, FLOW_RATE, FLOW_WAITING,
};
use backwater_model::{Batch, Epoch, FlowState, Meta, Moment, Point, Registry};
use backwater_probe::{anchor, now, session};
use backwater_record::{Options, Pump, RecordError, Summary, Writer, write_flow};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Events that may wait for the disk; what comes beyond is in the log alone.
const WAITING: usize = 10_000;

/// What is held back now.
pub(crate) type Look = Box<dyn FnMut() -> FlowState + Send>;

/// A recording that is being made.
pub(crate) struct Recorder {
    /// Who is to be told of decisions.
    pub(crate) tell: Tell,
    look: Arc<Mutex<Option<Look>>>,
    each: Arc<Mutex<EachSecond>>,
    batches: SyncSender<Batch>,
    pump: Pump,
}

impl Recorder {
    /// Begins a recording, or continues the one that is there.
    pub(crate) fn start(dir: &Path) -> anyhow::Result<Recorder> {
        let meta = Meta {
            host: session::this_host(),
            anchors: vec![anchor()],
            written_by: format!("backwater {}", env!("CARGO_PKG_VERSION")),
            ..Meta::default()
        };
        let registry = Arc::new(Registry::new());
        let writer = Writer::create(dir, meta, Arc::clone(&registry), Options::default())?;
        let look = Arc::new(Mutex::new(None));
        let epoch = Epoch::of(&["process", &std::process::id().to_string(), &now().0.to_string()]);
        let each = EachSecond { dir: dir.to_owned(), look: Arc::clone(&look), registry, epoch, failed: false };
        let each = Arc::new(Mutex::new(each));
        let (batches, arriving) = sync_channel(WAITING);
        let reads = Arc::clone(&each);
        let read = move |at| reads.lock().unwrap_or_else(PoisonError::into_inner).read(at);
        let pump = Pump::start(writer, arriving, now, Box::new(read));
        let pump = pump.context("cannot start the recorder")?;
        let events = batches.clone();
        let tell = move |event| {
            // A disk that does not keep up, or has failed, must not hold sessions up.
            if events.try_send(Batch { events: vec![event], ..Batch::default() }).is_err() {
                tracing::warn!("the recording missed an event");
            }
        };
        Ok(Recorder { tell: Arc::new(tell), look, each, batches, pump })
    }

    /// There is something to look at: it is, now and each second from now on.
    pub(crate) fn watch(&self, look: Look) {
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
        // What is decided within the first second lies within the readings then.
        self.read();
    }

    fn read(&self) {
        let batch = self.each.lock().unwrap_or_else(PoisonError::into_inner).read(now());
        if self.batches.try_send(batch).is_err() {
            tracing::warn!("the recording missed a reading");
        }
    }

    /// Takes a last look, writes what is left and closes the recording.
    pub(crate) fn stop(self) -> Result<Summary, RecordError> {
        self.read();
        self.pump.flush();
        self.pump.stop()
    }
}

struct EachSecond {
    dir: PathBuf,
    look: Arc<Mutex<Option<Look>>>,
    registry: Arc<Registry>,
    epoch: Epoch,
    /// Whether the state could not be written lately: told once.
    failed: bool,
}

impl EachSecond {
    fn read(&mut self, at: Moment) -> Batch {
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = look.as_mut().map(|look| look()) else { return Batch::default() };
        drop(look);
        let written = write_flow(&self.dir, &state);
        if let Err(error) = &written
            && !self.failed
        {
            tracing::warn!(%error, "pages will show an old state of what is held back");
        }
        self.failed = written.is_err();
        let point = |(def, pool, value): (Def, Option<&str>, f64)| {
            let labels: Vec<(&'static str, &str)> = pool.map(|pool| ("pool", pool)).into_iter().collect();
            let series = self.registry.number(&def, &labels)?;
            Some(Point { at, series, epoch: self.epoch, value, as_of: None })
        };
        Batch { points: figures(&state).into_iter().filter_map(point).collect(), ..Batch::default() }
    }
}

/// A state as values of series.
fn figures(state: &FlowState) -> Vec<(Def, Option<&str>, f64)> {
    let mut list = vec![(FLOW_HELD, None, state.held_in_all as f64), (FLOW_WAITING, None, state.waiting as f64)];
    list.extend(state.rate_bps.map(|rate| (FLOW_RATE, None, rate)));
    list.extend(state.queueing_us.map(|queue| (FLOW_QUEUEING, None, queue)));
    for pool in &state.pools {
        let of = Some(pool.name.as_str());
        list.extend([
            (FLOW_POOL_SESSIONS, of, pool.sessions as f64),
            (FLOW_POOL_HELD, of, pool.held as f64),
            (FLOW_POOL_RUNNING, of, pool.running as f64),
            (FLOW_POOL_WAITING, of, pool.waiting as f64),
            (FLOW_POOL_SENT, of, pool.sent_bytes as f64),
        ]);
        list.extend(pool.bandwidth_bps.map(|rate| (FLOW_POOL_RATE, of, rate)));
    }
    list
}
