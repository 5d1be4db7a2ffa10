//! The last seconds of a live run, in memory.

use crate::recording::joined;
use backwater_model::{Batch, Event, EventKind, Meta, Moment, Point, Registry, Series, SeriesId, Window, settings_at};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Absences that are remembered after their batch is gone.
const ABSENCES: usize = 1_000;
/// So many names of series are kept before any are looked at, whether their points are still held.
const FEW_NAMES: usize = 4_096;

/// Keeps the batches of the last seconds. A batch with 50 sessions takes about 15 KiB.
#[derive(Debug)]
pub struct Ring {
    seconds: f64,
    registry: Arc<Registry>,
    /// The series of the points that are held, which the registry may have let go by now.
    names: HashMap<SeriesId, Name>,
    /// How many names there may be before those of no point are dropped.
    most_names: usize,
    batches: VecDeque<(Moment, Batch)>,
    newest: Moment,
    absences: Vec<Event>,
    /// Changes of settings that are too old to be held.
    settings: Vec<Event>,
}

/// A series, and when its newest point is of.
#[derive(Debug)]
struct Name {
    series: Arc<Series>,
    newest: Moment,
}

impl Ring {
    /// A ring of so many seconds, of the points of a run whose series this registry knows.
    pub fn new(seconds: f64, registry: Arc<Registry>) -> Self {
        Ring {
            seconds,
            registry,
            names: HashMap::new(),
            most_names: FEW_NAMES,
            batches: VecDeque::new(),
            newest: Moment(i64::MIN),
            absences: Vec::new(),
            settings: Vec::new(),
        }
    }

    /// Adds a batch and lets go of those that are too old.
    pub fn push(&mut self, batch: Batch) {
        let Some(last) = newest_of(&batch) else { return };
        self.newest = self.newest.max(last);
        self.learn_names(&batch);
        self.batches.push_back((last, batch));
        while self.batches.front().is_some_and(|(last, _)| self.newest.seconds_since(*last) > self.seconds) {
            let old = self.batches.pop_front().map(|(_, batch)| batch.events).unwrap_or_default();
            for event in old {
                match event.kind {
                    EventKind::Absent if self.absences.len() < ABSENCES => self.absences.push(event),
                    // Of a setting's changes the newest is the one that still holds.
                    EventKind::Setting => {
                        let same = |known: &Event| {
                            known.source == event.source && known.fields.get("name") == event.fields.get("name")
                        };
                        self.settings.retain(|known| !same(known));
                        self.settings.push(event);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Remembers whose points these are: for as long as they are held, whatever the registry lets go meanwhile.
    fn learn_names(&mut self, batch: &Batch) {
        for point in &batch.points {
            if let Some(name) = self.names.get_mut(&point.series) {
                name.newest = name.newest.max(point.at);
            } else if let Some(series) = self.registry.get(point.series) {
                self.names.insert(point.series, Name { series, newest: point.at });
            }
        }
        if self.names.len() > self.most_names {
            let (newest, seconds) = (self.newest, self.seconds);
            self.names.retain(|_, name| newest.seconds_since(name.newest) <= seconds);
            self.most_names = FEW_NAMES.max(2 * self.names.len());
        }
    }

    /// First and last moment held.
    pub fn span(&self) -> Option<(Moment, Moment)> {
        let moments = || {
            self.batches.iter().flat_map(|(_, batch)| {
                let points = batch.points.iter().map(|point| point.at);
                points.chain(batch.samples.iter().map(|sample| sample.at))
            })
        };
        Some((moments().min()?, moments().max()?))
    }

    /// What happened between two moments, both included; none for either is the end of what is held.
    pub fn window(&self, from: Option<Moment>, to: Option<Moment>, meta: &Arc<Meta>) -> Window {
        let (first, last) = self.span().unwrap_or_default();
        let (from, to) = (from.unwrap_or(first), to.unwrap_or(last));
        let within = |at: Moment| from <= at && at <= to;
        let mut points: BTreeMap<SeriesId, Vec<Point>> = BTreeMap::new();
        let mut samples = Vec::new();
        let mut events: Vec<Event> = self.absences.iter().filter(|event| event.at <= to).cloned().collect();
        let mut settings = self.settings.clone();
        for (_, batch) in &self.batches {
            for point in batch.points.iter().filter(|point| within(point.at)) {
                points.entry(point.series).or_default().push(*point);
            }
            samples.extend(batch.samples.iter().filter(|sample| within(sample.at)).cloned());
            let changes = batch.events.iter().filter(|event| event.kind == EventKind::Setting && event.at < from);
            settings.extend(changes.cloned());
            let told = |event: &&Event| within(event.at) || (event.kind == EventKind::Absent && event.at <= to);
            events.extend(batch.events.iter().filter(told).cloned());
        }
        let named = |(id, points): (SeriesId, Vec<Point>)| Some((Arc::clone(&self.names.get(&id)?.series), points));
        let series = joined(points.into_iter().filter_map(named));
        settings.sort_by_key(|event| event.at);
        Window::new(from, to, settings_at(meta, &settings, from), series, samples, events)
    }
}

fn newest_of(batch: &Batch) -> Option<Moment> {
    let points = batch.points.iter().map(|point| point.at);
    let samples = batch.samples.iter().map(|sample| sample.at);
    points.chain(samples).chain(batch.events.iter().map(|event| event.at)).max()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::Epoch;
    use backwater_model::catalogue::{TCP_ACKED, VM_DIRTY, VM_WRITTEN};

    #[test]
    fn settings_are_those_in_force_when_a_window_begins() {
        let mut ring = Ring::new(10.0, Arc::default());
        let change = |second: i64, after: &str| {
            let fields = [("name", "wal_keep_size"), ("before", "1GB"), ("after", after)];
            let event = Event::new(Moment(second * 1_000_000), "main", EventKind::Setting, "changed", &fields);
            Batch { events: vec![event], ..Batch::default() }
        };
        for (second, after) in [(1, "2GB"), (2, "0"), (20, "64MB"), (28, "4GB")] {
            ring.push(change(second, after));
        }
        let target = backwater_model::Target { name: "main".into(), ..Default::default() };
        let meta = Arc::new(Meta { targets: vec![target], ..Meta::default() });
        let kept = |from: i64| {
            let (from, to) = (Moment(from * 1_000_000), Moment(30_000_000));
            let window = ring.window(Some(from), Some(to), &meta);
            (window.meta.targets[0].settings.get("wal_keep_size").cloned(), window.events().len())
        };
        assert_eq!(kept(19), (Some("0".to_owned()), 2), "the newest of those that are no longer held");
        assert_eq!(kept(25), (Some("64MB".to_owned()), 1));
    }

    #[test]
    fn it_holds_the_last_seconds_and_what_was_said_to_be_absent() {
        let registry = Arc::new(Registry::new());
        let dirty = registry.intern(VM_DIRTY.series::<&str>(&[])).unwrap();
        registry.intern(VM_WRITTEN.series::<&str>(&[])).unwrap();
        let mut ring = Ring::new(10.0, Arc::clone(&registry));
        ring.push(Batch {
            events: vec![Event::new(Moment(0), "host", EventKind::Absent, "no PSI", &[])],
            ..Batch::default()
        });
        for second in 0..=30 {
            let at = Moment(second * 1_000_000);
            let point = Point { at, series: dirty, epoch: Epoch(1), value: second as f64, as_of: None };
            ring.push(Batch { points: vec![point], ..Batch::default() });
        }
        let window = ring.window(None, None, &Arc::default());
        assert_eq!((window.from.seconds(), window.to.seconds()), (20.0, 30.0));
        assert_eq!(window.track(VM_DIRTY.name, &[]).unwrap().points.len(), 11);
        assert_eq!(window.events().len(), 1);
        let part = ring.window(Some(Moment(25_000_000)), Some(Moment(26_000_000)), &Arc::default());
        assert_eq!(part.track(VM_DIRTY.name, &[]).unwrap().points.len(), 2);
    }

    #[test]
    fn a_series_is_named_for_as_long_as_its_points_are_held_and_no_longer() {
        let registry = Arc::new(Registry::new());
        let number = |pid: usize| registry.number(&TCP_ACKED, &[("pid", pid)]).unwrap();
        let mut ring = Ring::new(10.0, Arc::clone(&registry));
        let mut push = |second: i64, pid: usize| {
            let id = number(pid);
            let at = Moment(second * 1_000_000);
            let point = Point { at, series: id, epoch: Epoch(1), value: 0.0, as_of: None };
            ring.push(Batch { points: vec![point], ..Batch::default() });
            registry.gone([id]);
            id
        };
        let first = push(0, 0);
        // More come and go than a registry holds, all within the ring's seconds, and then some more later.
        for pid in 1..=Registry::LIMIT {
            push(1, pid);
        }
        assert_eq!(registry.get(first), None);
        let again = push(2, 0);
        assert!(again > first);
        let window = ring.window(None, None, &Arc::default());
        assert_eq!(window.tracks(TCP_ACKED.name, &[]).count(), Registry::LIMIT + 1);
        let points = window.track(TCP_ACKED.name, &[("pid", "0")]).unwrap().points;
        assert_eq!(points.iter().map(|point| point.at.seconds()).collect::<Vec<_>>(), [0.0, 2.0]);
        for pid in 0..2 * Registry::LIMIT {
            let at = Moment(30_000_000 + pid as i64 * 1_000);
            let point = Point { at, series: number(pid), epoch: Epoch(1), value: 0.0, as_of: None };
            ring.push(Batch { points: vec![point], ..Batch::default() });
            registry.gone([point.series]);
        }
        assert!(ring.names.len() <= ring.most_names && ring.most_names <= 4 * 10_001, "{}", ring.names.len());
    }
}
