//! Looks of the probe, kept together: what an observer would have recorded.

use backwater_model::{Batch, Event, EventKind, Point, Registry, Sample};
use backwater_probe::postgres::{ConnInfo, PostgresOptions, PostgresProbe};
use backwater_probe::{Probe, ProbeError, Sink};
use std::collections::HashSet;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

pub struct Looks {
    pub probe: PostgresProbe,
    pub target: backwater_model::Target,
    registry: Registry,
    absences: HashSet<String>,
    pub points: Vec<Point>,
    pub samples: Vec<Sample>,
    pub events: Vec<Event>,
}

impl Looks {
    pub fn connect(info: ConnInfo) -> Looks {
        Looks::connect_with(info, PostgresOptions { name: Some("primary".to_owned()), ..PostgresOptions::default() })
    }

    pub fn connect_with(info: ConnInfo, options: PostgresOptions) -> Looks {
        let (probe, target) = PostgresProbe::connect(info, options).unwrap();
        Looks {
            probe,
            target,
            registry: Registry::new(),
            absences: HashSet::new(),
            points: Vec::new(),
            samples: Vec::new(),
            events: Vec::new(),
        }
    }

    pub fn look(&mut self) -> Result<(), ProbeError> {
        let mut batch = Batch::default();
        let mut sink = Sink::new(backwater_probe::now(), &self.registry, &mut batch, &mut self.absences);
        let result = self.probe.read(&mut sink);
        self.points.append(&mut batch.points);
        self.samples.append(&mut batch.samples);
        self.events.append(&mut batch.events);
        result
    }

    /// Looks at the probe's period until something is seen.
    pub fn until(&mut self, what: &str, mut seen: impl FnMut(&Looks) -> bool) {
        let begun = Instant::now();
        while !seen(self) {
            let events: Vec<_> = self.events.iter().map(|event| &event.message).collect();
            assert!(begun.elapsed() < PATIENCE, "not seen: {what}; events: {events:#?}");
            std::thread::sleep(self.probe.period());
            let _ = self.look();
        }
    }

    /// The points of one series, oldest first.
    pub fn of(&self, name: &str) -> Vec<Point> {
        let is = |point: &&Point| self.registry.get(point.series).is_some_and(|series| series.name == name);
        self.points.iter().filter(is).copied().collect()
    }

    /// The values of one label among the points of a series.
    pub fn labels(&self, name: &str, label: &str) -> Vec<String> {
        let series = self.of(name).into_iter().filter_map(|point| self.registry.get(point.series));
        series.filter_map(|series| series.labels.get(label).map(str::to_owned)).collect()
    }

    pub fn event(&self, kind: EventKind, text: &str) -> Option<&Event> {
        self.events.iter().find(|event| event.kind == kind && event.message.contains(text))
    }
}
