//! One thread a probe, one bounded channel out.

use crate::{Probe, ProbeError, Sink, Ticker};
use backwater_model::{Batch, Epoch, Event, EventKind, Moment, Registry, catalogue};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many batches may wait for the recorder. At 30 batches a second this is ten seconds of a stuck disk.
const WAITING_BATCHES: usize = 300;
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
        let mut observer = Observer { ended, threads: Vec::new(), source };
        for probe in probes {
            observer.add(probe, registry)?;
        }
        Ok((observer, receiver))
    }

    /// Starts a thread for one more probe.
    pub fn add(&mut self, probe: Box<dyn Probe>, registry: &Arc<Registry>) -> Result<(), ProbeError> {
        let looker = Looker {
            ticker: Ticker::new(probe.period())?,
            probe,
            registry: Arc::clone(registry),
            source: self.source.clone(),
            ended: Arc::clone(&self.ended),
            absences: HashSet::new(),
            failing: None,
            told_missed: 0,
        };
        let name: String = looker.probe.name().chars().take(15).collect();
        let spawned = std::thread::Builder::new().name(name).spawn(move || looker.run());
        self.threads.push(spawned.map_err(|source| ProbeError::System { call: "clone", source })?);
        Ok(())
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

/// A probe that failed: since when, and when it will be tried again.
#[derive(Clone, Copy)]
struct Failing {
    since: Moment,
    wait: Duration,
    next: Moment,
}

struct Looker {
    probe: Box<dyn Probe>,
    ticker: Ticker,
    registry: Arc<Registry>,
    source: Source,
    ended: Arc<OwnedFd>,
    absences: HashSet<String>,
    failing: Option<Failing>,
    told_missed: u64,
}

impl Looker {
    fn run(mut self) {
        loop {
            let at = match self.ticker.wait_unless(&self.ended) {
                Ok(Some(at)) => at,
                Ok(None) => return,
                Err(error) => return tracing::error!(probe = self.probe.name(), %error, "the probe has stopped"),
            };
            if self.failing.is_some_and(|failing| at < failing.next) {
                continue;
            }
            let batch = self.look(at);
            if !batch.is_empty() {
                self.source.send(batch);
            }
        }
    }

    fn look(&mut self, at: Moment) -> Batch {
        let mut batch = Batch::default();
        let mut sink = Sink::new(at, &self.registry, &mut batch, &mut self.absences);
        let result = self.probe.read(&mut sink);
        self.tell_missed(at, &mut batch);
        match result {
            Ok(()) => self.recovered(at, &mut batch),
            Err(error) => self.failed(at, &error, &mut batch),
        }
        batch
    }

    fn tell_missed(&mut self, at: Moment, batch: &mut Batch) {
        let missed = self.ticker.missed();
        if missed == self.told_missed {
            return;
        }
        self.told_missed = missed;
        let mut sink = Sink::new(at, &self.registry, batch, &mut self.absences);
        sink.put(&catalogue::SELF_MISSED, &[("probe", self.probe.name())], Epoch::default(), missed as f64);
    }

    fn recovered(&mut self, at: Moment, batch: &mut Batch) {
        if let Some(failing) = self.failing.take() {
            let name = self.probe.name();
            let message = format!("{name} reads again after {:.1} s", at.seconds_since(failing.since));
            let fields = [("probe", name), ("ended", "true")];
            batch.events.push(Event::new(at, "recorder", EventKind::Gap, message, &fields));
        }
    }

    fn failed(&mut self, at: Moment, error: &ProbeError, batch: &mut Batch) {
        let period = self.probe.period();
        let wait = self.failing.map_or(period, |failing| (failing.wait * 2).min(LONGEST_BACKOFF.max(period)));
        let since = self.failing.map_or(at, |failing| failing.since);
        if self.failing.is_none() {
            let name = self.probe.name();
            tracing::warn!(probe = name, %error, "a probe cannot read; it will be tried again");
            let reason = error.to_string();
            let fields = [("probe", name), ("reason", reason.as_str())];
            let message = format!("{name} cannot read: {error}");
            batch.events.push(Event::new(at, "recorder", EventKind::Gap, message, &fields));
        }
        let next = Moment(at.0 + wait.as_micros() as i64);
        self.failing = Some(Failing { since, wait, next });
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
