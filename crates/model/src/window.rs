//! A stretch of a recording, or of a live run's memory, as rules and reports see it.

use crate::{Event, EventKind, Meta, Moment, Point, Sample, Series, Span, Track};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Series with their points, in order of time.
type Tracks = Vec<(Arc<Series>, Vec<Point>)>;

/// Everything known of one stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// First moment of the stretch.
    pub from: Moment,
    /// Last moment of the stretch.
    pub to: Moment,
    /// What the recording says of itself.
    pub meta: Arc<Meta>,
    tracks: BTreeMap<String, Tracks>,
    samples: Vec<Sample>,
    events: Vec<Event>,
}

impl Window {
    /// A window from its parts. Points, samples and events are put in order of time.
    pub fn new(
        from: Moment,
        to: Moment,
        meta: Arc<Meta>,
        series: Vec<(Arc<Series>, Vec<Point>)>,
        mut samples: Vec<Sample>,
        mut events: Vec<Event>,
    ) -> Self {
        let mut tracks: BTreeMap<String, Tracks> = BTreeMap::new();
        for (series, mut points) in series {
            points.sort_by_key(|point| point.at);
            tracks.entry(series.name.to_string()).or_default().push((series, points));
        }
        samples.sort_by_key(|sample| sample.at);
        events.sort_by_key(|event| event.at);
        Window { from, to, meta, tracks, samples, events }
    }

    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.to.seconds_since(self.from)
    }

    /// All series of this name that carry these labels (and perhaps more).
    pub fn tracks<'a>(&'a self, name: &str, labels: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = Track<'a>> {
        let list = self.tracks.get(name).map(Vec::as_slice).unwrap_or_default();
        list.iter()
            .filter(move |(series, _)| labels.iter().all(|(label, value)| series.labels.get(label) == Some(value)))
            .map(|(series, points)| Track { series, points })
    }

    /// The one series of this name and these labels that has points; none where there is none or more than one
    /// (a sum over unlike things would be a wrong number).
    pub fn track<'a>(&'a self, name: &str, labels: &[(&str, &str)]) -> Option<Track<'a>> {
        let list = self.tracks.get(name)?;
        let mut fitting = list.iter().filter(|(series, points)| {
            !points.is_empty() && labels.iter().all(|(label, value)| series.labels.get(label) == Some(value))
        });
        let (series, points) = fitting.next()?;
        fitting.next().is_none().then_some(Track { series, points })
    }

    /// Every series, in order of name.
    pub fn all_tracks(&self) -> impl Iterator<Item = Track<'_>> {
        self.tracks.values().flatten().map(|(series, points)| Track { series, points })
    }

    /// Samples in order of time.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Events in order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Events of one sort.
    pub fn events_of(&self, kind: EventKind) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.kind == kind)
    }

    /// The part of this window between two moments. What was said to be absent before it stays said, and settings are those
    /// in force when it begins.
    pub fn slice(&self, from: Moment, to: Moment) -> Window {
        let within = |at: Moment| from <= at && at <= to;
        let tracks = self.tracks.iter().map(|(name, list)| {
            let list = list.iter().map(|(series, points)| {
                let part = Track { series, points }.between(from, to).points.to_vec();
                (Arc::clone(series), part)
            });
            (name.clone(), list.collect())
        });
        Window {
            from,
            to,
            meta: settings_at(&self.meta, &self.events, from),
            tracks: tracks.collect(),
            samples: self.samples.iter().filter(|sample| within(sample.at)).cloned().collect(),
            events: self
                .events
                .iter()
                .filter(|event| within(event.at) || (event.kind == EventKind::Absent && event.at <= to))
                .cloned()
                .collect(),
        }
    }

    /// What had been read after each so long: the window from its begin to then, copied each time. What is told of each
    /// can be held beside what came.
    pub fn as_it_grew(&self, each: Span) -> impl Iterator<Item = Window> {
        let count = (self.to - self.from).0 / each.0.max(1);
        (1..=count).map(move |n| self.slice(self.from, self.from + Span(each.0 * n)))
    }
}

/// What is known of a stretch with the settings in force just before `from`, by the changes among these events.
pub fn settings_at(meta: &Arc<Meta>, events: &[Event], from: Moment) -> Arc<Meta> {
    let earlier = || events.iter().filter(|event| event.kind == EventKind::Setting && event.at < from);
    if earlier().next().is_none() {
        return Arc::clone(meta);
    }
    let mut meta = Meta::clone(meta);
    earlier().for_each(|event| meta.note_setting(event));
    Arc::new(meta)
}
