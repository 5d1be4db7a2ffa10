//! The heartbeat: what a failover manager's check would see. Once a second, at absolute times, a new connection writes
//! one row in one transaction. It writes, so it runs only where it was asked for.
//!
//! A beat is measured from when it was to begin, and is missed when it has no answer in time (1 s, where not told
//! otherwise); one that is answered later still tells how long it took. At most [`MOST_OPEN`] beats stand open at a
//! time: where that many have no answer, the next ones are missed without asking, so that a server in trouble is not
//! asked to death. One that is given up stands open until its session is known to be over, so that sessions are never
//! more than that either: where a commit waits for a standby that is gone, or a connection for a lock, they stay in the
//! server whether or not anybody listens. Beats that this host slept through are nobody's miss.

mod beat;
mod pace;
mod table;

use super::connect;
use super::conninfo::{ConnInfo, SessionAttrs};
use super::probe::runtime;
use crate::{Probe, ProbeError, Sink};
use backwater_model::{Epoch, Event, EventKind, Moment, Span, Text, catalogue};
use beat::{Beaten, Common, LONGEST, Mode, beat};
use pace::{LEAD, Pace};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

const PERIOD: Span = Span::from_millis(1_000);
/// Beats that may stand open at a time, and so how many sessions the server may have of them.
const MOST_OPEN: usize = 5;
/// How long a host may leave unacknowledged what it was sent before it is taken for gone.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long seeing off the last beats and taking the row away may take at the end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// After so many beats that were not allowed to write, it is tried again.
const BARRED_BEATS: u64 = 60;
/// application_name of beats, which are no sessions of the server's work.
pub(super) const APPLICATION: &str = "backwater heartbeat";

/// A beat under way.
#[derive(Debug)]
struct Open {
    connected: Arc<AtomicBool>,
    missed: bool,
}

/// Beats on one server.
#[derive(Debug)]
pub struct Heartbeat {
    name: String,
    target: Text,
    common: Arc<Common>,
    /// Tells beats that the recorder leaves.
    leave: watch::Sender<()>,
    /// A beat without an answer for this long is missed.
    limit: Span,
    epoch: Epoch,
    pace: Pace,
    mode: Mode,
    /// Whether a beat was to write: then there may be a row to take away, if any was let in.
    writes: bool,
    barred_beats: u64,
    answered: u64,
    missed: u64,
    /// How many were missed in a row.
    missed_in_row: u64,
    open: BTreeMap<Moment, Open>,
    beats: JoinSet<Beaten>,
    runtime: Runtime,
}

impl Heartbeat {
    /// Beats on the first server of this address, under this name. `limit` is how long an answer may take; `hostname` names the
    /// recorder there.
    ///
    /// # Errors
    /// [`ProbeError::System`] where this process can open no more files.
    pub(crate) fn new(
        target: &str,
        info: &ConnInfo,
        limit: Duration,
        hostname: Option<&str>,
    ) -> Result<Self, ProbeError> {
        let mut info = info.clone();
        info.application_name = Some(APPLICATION.to_owned());
        info.attrs = SessionAttrs::Any;
        info.connect_timeout = Some(connect::UNTIL_LET_IN);
        // A host that is gone is noticed, whether or not it has acknowledged all, and one that came back under the same
        // address is not waited for: else the places would be taken for ever.
        info.tcp.keepalives = Some(true);
        info.tcp.user_timeout.get_or_insert(HOST_TIMEOUT);
        info.tcp.idle.get_or_insert(Duration::from_secs(5));
        info.tcp.interval.get_or_insert(Duration::from_secs(2));
        info.tcp.count.get_or_insert(3);
        let begun = crate::anchor().unix_us;
        let pid = std::process::id();
        let recorder = table::recorder(hostname.unwrap_or_default(), pid, begun);
        let (leave, leaving) = watch::channel(());
        Ok(Heartbeat {
            name: format!("heartbeat.{target}"),
            target: Text::from(target),
            common: Arc::new(Common { info, recorder, longest: LONGEST, leaving, was_let_in: AtomicBool::new(false) }),
            leave,
            limit: Span(limit.as_micros().min(i64::MAX as u128) as i64),
            epoch: Epoch::of(&["heartbeat", target, &pid.to_string(), &begun.to_string()]),
            pace: Pace::new(PERIOD),
            mode: Mode::Unknown,
            writes: false,
            barred_beats: 0,
            answered: 0,
            missed: 0,
            missed_in_row: 0,
            open: BTreeMap::new(),
            beats: JoinSet::new(),
            runtime: runtime()?,
        })
    }

    /// After how many seconds a beat is missed.
    pub(crate) fn limit_s(&self) -> f64 {
        self.limit.seconds()
    }

    fn begin(&mut self, intended: Moment, sink: &mut Sink<'_>) {
        if self.open.len() >= MOST_OPEN {
            self.miss(&format!("{} earlier ones still have no answer", self.open.len()), sink);
            return;
        }
        if matches!(self.mode, Mode::Barred(_)) {
            self.barred_beats += 1;
            if self.barred_beats.is_multiple_of(BARRED_BEATS) {
                self.mode = Mode::Unknown;
            }
        }
        self.writes |= matches!(self.mode, Mode::Unknown | Mode::Writing);
        let connected = Arc::new(AtomicBool::new(false));
        let task = beat(Arc::clone(&self.common), self.mode.clone(), intended, Arc::clone(&connected));
        self.beats.spawn_on(task, self.runtime.handle());
        self.open.insert(intended, Open { connected, missed: false });
    }

    /// Lets open beats go on until `until`, or until none is open.
    fn drive(&mut self, until: Moment, only_open: bool, sink: &mut Sink<'_>) {
        loop {
            let left = until - crate::now();
            if left.0 <= 0 || (only_open && self.beats.is_empty()) {
                return;
            }
            let left = Duration::from_micros(left.0 as u64);
            let beats = &mut self.beats;
            let ended = self.runtime.block_on(async {
                tokio::time::timeout(left, async {
                    match beats.join_next().await {
                        Some(ended) => ended,
                        None => std::future::pending().await,
                    }
                })
                .await
            });
            match ended {
                Ok(Ok(beaten)) => self.ended(beaten, sink),
                Ok(Err(error)) => tracing::error!(%error, "a heartbeat ended unexpectedly"),
                Err(_elapsed) => return,
            }
        }
    }

    /// Puts down how a beat ended.
    fn ended(&mut self, beaten: Beaten, sink: &mut Sink<'_>) {
        let counted_missed = self.open.remove(&beaten.intended).is_some_and(|open| open.missed);
        let response = beaten.acknowledged - beaten.intended;
        if let Some(failure) = &beaten.failure {
            if !counted_missed {
                self.miss(failure, sink);
            }
            return;
        }
        self.adopt(beaten.mode, sink);
        if !beaten.ordinary {
            return;
        }
        let labels = [("target", self.target.as_ref())];
        // An answer that came before this look is older than it.
        let as_of = Some(beaten.acknowledged).filter(|at| *at < sink.at);
        sink.put_as_of(&catalogue::PG_HEARTBEAT, &labels, self.epoch, response.0 as f64, as_of);
        if counted_missed {
            return;
        }
        if response > self.limit {
            self.miss(&self.late(true), sink);
        } else {
            self.answered += 1;
            self.recovered(sink);
        }
    }

    fn adopt(&mut self, mode: Mode, sink: &mut Sink<'_>) {
        let what = "heartbeat writes";
        match &mode {
            Mode::Standby => {
                let why = "the server is a standby, where nothing can be written: beats connect and ask";
                sink.absent(&self.target, what, why, None);
            }
            Mode::Barred(why) => {
                let remedy = table::remedy(&self.common.info.user, &self.common.info.database);
                let why = format!("{why}; beats connect and ask");
                // Told at once: whoever rehearses a failover shall not learn at the end that nothing was written.
                if !matches!(self.mode, Mode::Barred(_)) {
                    tracing::warn!("heartbeat of {}: {why}; to let them write: {remedy}", self.target);
                }
                sink.absent(&self.target, "heartbeat's table", &why, Some(&remedy));
            }
            Mode::Unknown | Mode::Writing => {}
        }
        self.mode = mode;
    }

    /// Counts beats whose time is over.
    fn judge(&mut self, now: Moment, sink: &mut Sink<'_>) {
        let over = |(intended, open): (&Moment, &mut Open)| {
            let over = !open.missed && now - *intended >= self.limit;
            open.missed |= over;
            over.then(|| open.connected.load(Ordering::Relaxed))
        };
        let over: Vec<bool> = self.open.iter_mut().filter_map(over).collect();
        for connected in over {
            self.miss(&self.late(connected), sink);
        }
    }

    fn late(&self, connected: bool) -> String {
        let stage = if connected { "connected, no acknowledgement" } else { "not let in" };
        format!("{stage} within {:.1} s", self.limit.seconds())
    }

    /// Counts a beat as missed; the first of a row is told.
    fn miss(&mut self, why: &str, sink: &mut Sink<'_>) {
        self.missed += 1;
        self.missed_in_row += 1;
        if self.missed_in_row == 1 {
            let message = format!("{}: a heartbeat was missed: {why}", self.target);
            let fields = [("what", "heartbeat_missed"), ("why", why)];
            sink.event(Event::new(sink.at, &self.target, EventKind::Recorder, message, &fields));
        }
    }

    fn recovered(&mut self, sink: &mut Sink<'_>) {
        let missed = std::mem::take(&mut self.missed_in_row);
        if missed > 0 {
            let count = missed.to_string();
            let message = format!("{}: a heartbeat was answered again after {missed} missed", self.target);
            let fields = [("what", "heartbeat_answered"), ("missed", count.as_str())];
            sink.event(Event::new(sink.at, &self.target, EventKind::Recorder, message, &fields));
        }
    }
}

impl Probe for Heartbeat {
    fn name(&self) -> &str {
        &self.name
    }

    fn period(&self) -> Duration {
        Duration::from_micros(PERIOD.0 as u64)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        let intended = self.pace.next(sink.at);
        self.drive(intended, false, sink);
        self.judge(crate::now(), sink);
        self.begin(intended, sink);
        // Until the next tick is near; what is open then goes on in the next look.
        self.drive(intended + PERIOD - LEAD - LEAD, true, sink);
        self.judge(crate::now(), sink);
        let labels = [("target", self.target.as_ref())];
        sink.put(&catalogue::PG_HEARTBEATS, &labels, self.epoch, self.answered as f64);
        sink.put(&catalogue::PG_HEARTBEATS_MISSED, &labels, self.epoch, self.missed as f64);
        Ok(())
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.leave.send_replace(());
        let (common, beats) = (&self.common, &mut self.beats);
        let may_have_row = self.writes
            && common.was_let_in.load(Ordering::Relaxed)
            && !matches!(self.mode, Mode::Standby | Mode::Barred(_));
        let leaving = async {
            // First those that stand open: one of them may hold the row, and no session more is opened beside them.
            while beats.join_next().await.is_some() {}
            if may_have_row { remove_row(common).await } else { Ok(()) }
        };
        let left = self.runtime.block_on(async { tokio::time::timeout(LEAVE_TIMEOUT, leaving).await });
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!(target = %self.target, ?left, "the heartbeat's row or sessions could not be taken away");
        }
    }
}

async fn remove_row(common: &Common) -> Result<(), String> {
    let opened = connect::open(&common.info).await.map_err(|error| error.to_string())?;
    let task = tokio::spawn(opened.task);
    let done = opened.client.simple_query(&table::leave(&common.recorder)).await;
    drop(opened.client);
    let _ended = task.await;
    done.map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
