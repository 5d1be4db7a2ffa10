//! One thread a probe, one bounded channel out. A probe whose looks are brief is read by whichever thread is awake when it
//! is due, and by its own only where none was: on an idle host, whose caches are cold, waking a thread costs more (some
//! 70 µs) than what it reads.

use crate::clock::Alarm;
use crate::failing::{Failing, Tell};
use crate::{Probe, ProbeError, Sink, Ticker};
use backwater_model::{Batch, Epoch, Event, EventKind, Moment, Registry, Span, catalogue};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many batches may wait for the recorder. At 30 batches a second this is twenty seconds of a stuck disk; the recorder
/// takes what waits twice a second, so that ten servers may be looked at a hundred times a second.
const WAITING_BATCHES: usize = 600;
/// A failing probe is tried again after one period, then after twice as long, up to this.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// A way into the stream of batches. Never blocks: when the stream is full the batch is dropped and counted.
#[derive(Clone, Debug)]
pub struct Source {
    sender: SyncSender<Batch>,
    dropped: Arc<AtomicU64>,
}

impl Source {
    /// Adds a batch to the stream.
    pub fn send(&self, batch: Batch) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(batch) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a batch to the stream, waiting for room if need be. At once where nobody takes batches any more.
    pub fn insist(&self, batch: Batch) {
        let _nobody_listens = self.sender.send(batch);
    }

    /// How many batches were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Runs probes until it is dropped or stopped.
#[derive(Debug)]
pub struct Observer {
    /// An eventfd that can be read once all probes are to end: it wakes those that sleep for seconds.
    ended: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    source: Source,
    brief: Briefs,
}

impl Observer {
    /// Starts one thread for each probe. Batches arrive at the receiver; further sources may join.
    pub fn start(
        probes: Vec<Box<dyn Probe>>,
        registry: &Arc<Registry>,
    ) -> Result<(Observer, Receiver<Batch>), ProbeError> {
        let (sender, receiver) = sync_channel(WAITING_BATCHES);
        let source = Source { sender, dropped: Arc::default() };
        let fail = |error: rustix::io::Errno| ProbeError::System { call: "eventfd", source: error.into() };
        let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(fail)?);
        let mut observer = Observer { ended, threads: Vec::new(), source, brief: Briefs::default() };
        for probe in probes {
            observer.add(probe, registry)?;
        }
        Ok((observer, receiver))
    }

    /// Starts a thread for one more probe.
    pub fn add(&mut self, probe: Box<dyn Probe>, registry: &Arc<Registry>) -> Result<(), ProbeError> {
        let (period, is_brief) = (probe.period(), probe.is_brief());
        let looker = Looker {
            probe,
            registry: Arc::clone(registry),
            source: self.source.clone(),
            absences: HashSet::new(),
            failing: Failing::default(),
            backoff: Backoff::default(),
            told_missed: 0,
            points: 0,
        };
        let name = looker.probe.name().chars().take(15).collect();
        let ended = Arc::clone(&self.ended);
        if is_brief {
            let brief = Arc::new(Brief::new(looker, period)?);
            self.briefs().push(Arc::clone(&brief));
            self.spawn(name, move || brief.run(&ended))
        } else {
            let (ticker, brief) = (Ticker::new(period)?, Arc::clone(&self.brief));
            self.spawn(name, move || looker.run(ticker, &ended, &brief))
        }
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), ProbeError> {
        let spawned = std::thread::Builder::new().name(name).spawn(run);
        self.threads.push(spawned.map_err(|source| ProbeError::System { call: "clone", source })?);
        Ok(())
    }

    fn briefs(&self) -> MutexGuard<'_, Vec<Arc<Brief>>> {
        self.brief.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A way into the stream for those who are no probe, such as the lab's load.
    pub fn source(&self) -> Source {
        self.source.clone()
    }

    /// Lets every probe finish its look, then ends its thread.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        // Adding to an eventfd that nobody reads cannot fail before it was added to 2^64 times.
        let _woken = rustix::io::write(&self.ended, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a probe's thread panicked");
            }
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.halt();
    }
}

/// When a probe that failed will be tried again, and after how long a wait.
#[derive(Clone, Copy, Default)]
struct Backoff {
    wait: Duration,
    next: Moment,
}

/// Those whose looks are brief.
type Briefs = Arc<Mutex<Vec<Arc<Brief>>>>;

/// A probe whose looks are brief.
#[derive(Debug)]
struct Brief {
    period: Span,
    turn: Mutex<Turn>,
    /// Rings where nobody has looked for half a period too long.
    alarm: Alarm,
}

#[derive(Debug)]
struct Turn {
    looker: Looker,
    due: Moment,
    /// Looks that nobody took.
    missed: u64,
}

impl Brief {
    fn new(looker: Looker, period: Duration) -> Result<Self, ProbeError> {
        let turn = Mutex::new(Turn { looker, due: crate::now(), missed: 0 });
        Ok(Brief { period: Span(period.as_micros() as i64), turn, alarm: Alarm::new()? })
    }

    /// Its own thread.
    fn run(&self, ended: &OwnedFd) {
        loop {
            match self.alarm.wait_unless(ended) {
                Ok(true) => self.look_if_due(),
                Ok(false) => return,
                Err(error) => return tracing::error!(%error, "a probe of the host has stopped"),
            }
        }
    }

    /// Looks if it is time and no other thread is at it.
    fn look_if_due(&self) {
        let Ok(mut turn) = self.turn.try_lock() else { return };
        let now = crate::now();
        // Ticks come a little early and late.
        if now + Span(self.period.0 / 10) < turn.due {
            return;
        }
        let whole = ((now - turn.due).0 / self.period.0).max(0);
        turn.missed += whole as u64;
        turn.due = turn.due + Span(self.period.0 * (whole + 1));
        let missed = turn.missed;
        turn.looker.turn(now, missed);
        if let Err(error) = self.alarm.set(turn.due + Span(self.period.0 / 2) - crate::now()) {
            tracing::error!(%error, "a probe of the host is read only while another one is");
        }
    }
}

struct Looker {
    probe: Box<dyn Probe>,
    registry: Arc<Registry>,
    source: Source,
    absences: HashSet<String>,
    failing: Failing,
    backoff: Backoff,
    told_missed: u64,
    /// How many its last look had.
    points: usize,
}

impl std::fmt::Debug for Looker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Looker").field("probe", &self.probe.name()).finish_non_exhaustive()
    }
}

impl Looker {
    fn run(mut self, mut ticker: Ticker, ended: &OwnedFd, brief: &Briefs) {
        loop {
            let at = match ticker.wait_unless(ended) {
                Ok(Some(at)) => at,
                Ok(None) => return,
                Err(error) => return tracing::error!(probe = self.probe.name(), %error, "the probe has stopped"),
            };
            self.turn(at, ticker.missed());
            let brief = brief.lock().unwrap_or_else(PoisonError::into_inner).clone();
            brief.iter().for_each(|brief| brief.look_if_due());
        }
    }

    /// One look, unless it failed a short time ago.
    fn turn(&mut self, at: Moment, missed: u64) {
        if self.failing.is_so() && at < self.backoff.next {
            return;
        }
        let batch = self.look(at, missed);
        if !batch.is_empty() {
            self.source.send(batch);
        }
    }

    fn look(&mut self, at: Moment, missed: u64) -> Batch {
        let mut batch = Batch { points: Vec::with_capacity(self.points), ..Batch::default() };
        let mut sink = Sink::new(at, &self.registry, &mut batch, &mut self.absences);
        let begun = crate::now();
        let result = self.probe.read(&mut sink);
        // A try that took seconds is not followed at once by the next one.
        let ended = at + (crate::now() - begun);
        self.tell_missed(at, missed, &mut batch);
        match result {
            Ok(()) => self.recovered(at, &mut batch),
            Err(error) => self.failed(at, ended, &error, &mut batch),
        }
        self.points = batch.points.len();
        batch
    }

    fn tell_missed(&mut self, at: Moment, missed: u64, batch: &mut Batch) {
        if missed == self.told_missed {
            return;
        }
        self.told_missed = missed;
        let mut sink = Sink::new(at, &self.registry, batch, &mut self.absences);
        sink.put(&catalogue::SELF_MISSED, &[("probe", self.probe.name())], Epoch::default(), missed as f64);
    }

    fn recovered(&mut self, at: Moment, batch: &mut Batch) {
        if let Some(since) = self.failing.worked() {
            let name = self.probe.name();
            let lasted_s = format!("{:.1}", at.seconds_since(since));
            let message = format!("{name} reads again after {lasted_s} s");
            let fields = [("probe", name), ("ended", "true"), ("lasted_s", &lasted_s)];
            batch.events.push(Event::new(at, "recorder", EventKind::Gap, message, &fields));
        }
    }

    fn failed(&mut self, at: Moment, ended: Moment, error: &ProbeError, batch: &mut Batch) {
        let (name, period) = (self.probe.name(), self.probe.period());
        let told = self.failing.failed(at);
        let wait = match told {
            Some(Tell::Begins) => period,
            _ => (self.backoff.wait * 2).min(LONGEST_BACKOFF.max(period)),
        };
        let next = Moment(ended.0 + wait.as_micros() as i64);
        if self.failing.is_to_be_said(next) {
            tracing::warn!(probe = name, %error, "a probe cannot read; it will be tried again");
        }
        batch.events.extend(told.map(|tell| tell.event(at, "recorder", name, "cannot read", error)));
        self.backoff = Backoff { wait, next };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Instant;

    struct Rare;

    impl Probe for Rare {
        fn name(&self) -> &str {
            "rare"
        }

        fn period(&self) -> Duration {
            Duration::from_secs(3_600)
        }

        fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
            sink.put::<&str>(&catalogue::VM_DIRTY, &[], Epoch::default(), 1.0);
            Ok(())
        }
    }

    /// Of which each look takes as long as it is told, and is brief where that is nothing.
    struct Looks {
        name: &'static str,
        period: Duration,
        held: Arc<Mutex<()>>,
        is_brief: bool,
        threads: Arc<Mutex<Vec<String>>>,
    }

    impl Probe for Looks {
        fn name(&self) -> &str {
            self.name
        }

        fn period(&self) -> Duration {
            self.period
        }

        fn is_brief(&self) -> bool {
            self.is_brief
        }

        fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
            self.threads.lock().unwrap().push(std::thread::current().name().unwrap().to_owned());
            sink.put::<&str>(&catalogue::VM_DIRTY, &[], Epoch::default(), 1.0);
            drop(self.held.lock());
            Ok(())
        }
    }

    #[test]
    fn a_brief_look_is_taken_along_and_by_its_own_thread_where_the_other_hangs() {
        let (held, free, threads) = (Arc::default(), Arc::default(), Arc::<Mutex<Vec<String>>>::default());
        let probe = |name, is_brief, held: &Arc<Mutex<()>>, threads: &Arc<Mutex<Vec<String>>>| {
            let (held, threads) = (Arc::clone(held), Arc::clone(threads));
            Box::new(Looks { name, period: Duration::from_millis(100), held, is_brief, threads }) as Box<dyn Probe>
        };
        let probes = vec![probe("server", false, &held, &Arc::default()), probe("levels", true, &free, &threads)];
        let (observer, batches) = Observer::start(probes, &Arc::new(Registry::new())).unwrap();
        let until = |wanted: &str| {
            let begun = Instant::now();
            let looks = |threads: &[String]| threads.iter().filter(|thread| *thread == wanted).count();
            let before = looks(&threads.lock().unwrap());
            while looks(&threads.lock().unwrap()) < before + 5 {
                assert!(begun.elapsed() < Duration::from_secs(60), "nobody looks: {:?}", threads.lock());
                batches.recv().unwrap();
            }
        };
        until("server");
        let hangs = held.lock().unwrap();
        until("levels");
        drop(hangs);
        until("server");
        observer.stop();
    }

    /// Reads until and from these seconds on, and fails in between.
    struct Down(f64, f64);

    impl Probe for Down {
        fn name(&self) -> &str {
            "server"
        }

        fn period(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
            let at_s = sink.at.seconds();
            if (self.0..self.1).contains(&at_s) {
                return Err(ProbeError::System {
                    call: "connect",
                    source: std::io::ErrorKind::ConnectionRefused.into(),
                });
            }
            Ok(())
        }
    }

    #[test]
    fn a_gap_is_told_again_for_as_long_as_it_lasts() {
        let (sender, batches) = sync_channel(WAITING_BATCHES);
        let mut looker = Looker {
            probe: Box::new(Down(5.0, 1_200.0)),
            registry: Arc::new(Registry::new()),
            source: Source { sender, dropped: Arc::default() },
            absences: HashSet::new(),
            failing: Failing::default(),
            backoff: Backoff::default(),
            told_missed: 0,
            points: 0,
        };
        (0..1_300).for_each(|second| looker.turn(Moment(second * 1_000_000), 0));
        drop(looker);
        let told: Vec<Event> = batches.iter().flat_map(|batch| batch.events).collect();
        assert_eq!(told[0].message, "server cannot read: connect failed: connection refused");
        assert_eq!((told[0].at.seconds(), told[0].fields.contains_key("failing_s")), (5.0, false));
        for pair in told.windows(2) {
            let apart_s = pair[1].at.seconds_since(pair[0].at);
            assert!(apart_s <= 60.0, "whoever looks at the last minute hears of it: {pair:?}");
        }
        let last = &told[told.len() - 2];
        assert_eq!(last.fields["failing_s"], format!("{:.0}", last.at.seconds() - 5.0));
        assert!(last.message.starts_with(&format!("server has not been read for {} s: ", last.fields["failing_s"])));
        assert!(told.last().unwrap().fields.contains_key("ended"));
        assert_eq!(backwater_model::Gaps::count(&told), 1);
    }

    #[test]
    fn a_probe_that_sleeps_for_an_hour_ends_at_once() {
        let (observer, batches) = Observer::start(vec![Box::new(Rare)], &Arc::new(Registry::new())).unwrap();
        assert_eq!(batches.recv().unwrap().points.len(), 1);
        let asked = Instant::now();
        observer.stop();
        assert!(asked.elapsed() < Duration::from_secs(60));
        assert!(batches.recv().is_err(), "nobody is left to send");
    }
}
