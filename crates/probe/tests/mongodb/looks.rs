//! Looks of the probe, kept together: what an observer would have recorded.

use backwater_model::{Batch, Event, EventKind, Point, Registry, Span, Target};
use backwater_probe::host::Roots;
use backwater_probe::mongodb::{MongoProbe, servers};
use backwater_probe::{Probe, ProbeError, Sink};
use std::collections::HashSet;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Looks {
    pub(crate) probe: MongoProbe,
    pub(crate) target: Target,
    registry: Registry,
    absences: HashSet<String>,
    pub(crate) points: Vec<Point>,
    pub(crate) events: Vec<Event>,
    /// Seconds by which the clock of the looks is ahead.
    ahead_s: f64,
}

impl Looks {
    pub(crate) fn connect(uri: &str) -> Looks {
        Looks::try_connect(uri).unwrap()
    }

    pub(crate) fn try_connect(uri: &str) -> Result<Looks, ProbeError> {
        let server = servers(uri, &|_| None)?.remove(0);
        let (probe, target) = MongoProbe::connect(server, &Roots::default())?;
        let (registry, absences) = (Registry::new(), HashSet::new());
        Ok(Looks { probe, target, registry, absences, points: Vec::new(), events: Vec::new(), ahead_s: 0.0 })
    }

    pub(crate) fn look(&mut self) -> Result<(), ProbeError> {
        let mut batch = Batch::default();
        let at = backwater_probe::now() + Span::from_seconds(self.ahead_s);
        let mut sink = Sink::new(at, &self.registry, &mut batch, &mut self.absences);
        let result = self.probe.read(&mut sink);
        self.points.append(&mut batch.points);
        self.events.append(&mut batch.events);
        result
    }

    /// The next looks are taken so much later.
    pub(crate) fn later(&mut self, seconds: f64) {
        self.ahead_s += seconds;
    }

    /// Looks again and again until something is seen.
    pub(crate) fn until(&mut self, what: &str, mut seen: impl FnMut(&Looks) -> bool) {
        let begun = Instant::now();
        while !seen(self) {
            assert!(begun.elapsed() < PATIENCE, "not seen: {what}; events: {:#?}", self.events);
            std::thread::sleep(Duration::from_millis(100));
            self.later(1.0);
            let _ = self.look();
        }
    }

    fn of(&self, name: &str, labels: &[(&str, &str)]) -> Vec<Point> {
        let is = |point: &&Point| {
            self.registry.get(point.series).is_some_and(|series| {
                series.name == name && labels.iter().all(|(label, value)| series.labels.get(label) == Some(value))
            })
        };
        self.points.iter().filter(is).copied().collect()
    }

    /// The newest value of a series with these labels.
    pub(crate) fn last(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.of(name, labels).last().map(|point| point.value)
    }

    /// How many lives the points of a series belong to.
    pub(crate) fn epochs(&self, name: &str) -> usize {
        self.of(name, &[]).iter().map(|point| point.epoch).collect::<HashSet<_>>().len()
    }

    pub(crate) fn of_kind(&self, kind: EventKind) -> Vec<&Event> {
        self.events.iter().filter(|event| event.kind == kind).collect()
    }
}
