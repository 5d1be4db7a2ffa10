//! A bounded queue: what flows in, what flows out, what stands, and where it breaks.

use crate::{Moment, Track, Unit, Window};
use serde::{Deserialize, Serialize};

/// A queue's state at one moment, rates being means over the stretch before it. Every part may be unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// `host.dirty@7:0`, `pg.checkpoint`…
    pub name: String,
    /// What stands in it: bytes, sessions, requests.
    pub unit: Unit,
    /// Units a second that arrive.
    pub inflow_per_s: Option<f64>,
    /// Units a second that leave.
    pub outflow_per_s: Option<f64>,
    /// Units that stand in it.
    pub level: Option<f64>,
    /// Where background draining begins.
    pub soft_limit: Option<f64>,
    /// Where it breaks.
    pub hard_limit: Option<f64>,
    /// Whether whoever fills it is held from half-way between the two limits on.
    #[serde(default)]
    pub held_midway: bool,
    /// Sessions that wait on it.
    pub waiters: Option<f64>,
}

impl Queue {
    /// A queue of which nothing is known yet.
    pub fn unknown(name: impl Into<String>, unit: Unit) -> Self {
        Queue {
            name: name.into(),
            unit,
            inflow_per_s: None,
            outflow_per_s: None,
            level: None,
            soft_limit: None,
            hard_limit: None,
            held_midway: false,
            waiters: None,
        }
    }

    /// Where whoever fills it begins to be held: the cliff. Half-way between the soft and the hard limit where the kernel pauses
    /// writers from there on, else the hard limit.
    pub fn held_from(&self) -> Option<f64> {
        if self.held_midway { Some(f64::midpoint(self.soft_limit?, self.hard_limit?)) } else { self.hard_limit }
    }

    /// Level ÷ where whoever fills it begins to be held. None where either is unknown or the limit is not positive.
    pub fn fill(&self) -> Option<f64> {
        let limit = self.held_from().filter(|limit| *limit > 0.0)?;
        Some(self.level? / limit)
    }

    /// How long what arrives now will stay, in seconds: level ÷ outflow (Little's law). None where nothing leaves
    /// and something stands.
    pub fn residence_s(&self) -> Option<f64> {
        let (level, outflow) = (self.level?.max(0.0), self.outflow_per_s?);
        if level == 0.0 {
            return Some(0.0);
        }
        (outflow > 0.0).then(|| level / outflow)
    }

    /// Seconds until whoever fills it begins to be held, at the present rates: (limit − level) ÷ (inflow − outflow). Zero at or
    /// over that limit; none where the queue does not grow or something is unknown.
    pub fn time_to_limit_s(&self) -> Option<f64> {
        let room = self.held_from()? - self.level?;
        if room <= 0.0 {
            return Some(0.0);
        }
        let growth = self.inflow_per_s? - self.outflow_per_s?;
        (growth > 0.0).then(|| room / growth)
    }

    /// Seconds to drain down to `floor` (0 for all of it) once nothing more arrives: (level − floor) ÷ outflow.
    pub fn drain_time_s(&self, floor: f64) -> Option<f64> {
        let excess = self.level? - floor.max(0.0);
        if excess <= 0.0 {
            return Some(0.0);
        }
        let outflow = self.outflow_per_s?;
        (outflow > 0.0).then(|| excess / outflow)
    }
}

/// Where one part of a queue is read from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Source {
    /// It cannot be known.
    #[default]
    Unknown,
    /// A fixed value in the queue's unit.
    Fixed(f64),
    /// The sum of these series, each times its factor; known only where all of them are.
    Sum(Vec<Term>),
    /// The first of these that is known.
    FirstOf(Vec<Source>),
    /// The smallest of these that are known.
    Least(Vec<Source>),
    /// The largest of these that are known.
    Most(Vec<Source>),
    /// A level that counts only while its readings tell of a time no more than so many seconds before: positions of a
    /// standby are as old as its last word.
    Fresh(Box<Source>, f64),
    /// The sum of those of these that are there: things of one sort that come and go, such as connections, and are read together.
    /// Of levels those count that the newest look saw; a rate is what all of them moved, by the whole time that is looked at.
    Total(Vec<Source>),
    /// A value that counts only up to so much: beyond it, a reading tells of something that is not there.
    Below(Box<Source>, f64),
    /// From each of these moments on that one, in order of time: what follows from settings that may change. Before the first,
    /// nothing is known.
    Steps(Vec<(Moment, Source)>),
    /// A level as a share of another: the first × the second ÷ the third, which must be positive; no more than the whole first.
    Share(Box<[Source; 3]>),
    /// What was told once, while a rougher reading of the same lies within this share of it; else that reading, for what was told
    /// has been changed since.
    Told(Box<[Source; 2]>, f64),
}

/// One series of a sum: name, labels that must match, factor.
pub type Term = (&'static str, Vec<(&'static str, String)>, f64);

impl Source {
    /// One series as it is.
    pub fn series(name: &'static str, labels: &[(&'static str, &str)]) -> Self {
        Source::Sum(vec![term(name, labels, 1.0)])
    }

    /// The sum of several series of the same labels.
    pub fn sum(names: &[&'static str], labels: &[(&'static str, &str)]) -> Self {
        Source::Sum(names.iter().map(|name| term(name, labels, 1.0)).collect())
    }

    /// One series minus another, as a level between two totals.
    pub fn difference(more: &'static str, less: &'static str, labels: &[(&'static str, &str)]) -> Self {
        Source::Sum(vec![term(more, labels, 1.0), term(less, labels, -1.0)])
    }

    /// The value at `at`, made of readings no older than `oldest_s` seconds.
    pub fn value(&self, window: &Window, at: Moment, oldest_s: f64) -> Option<f64> {
        let one = |track: Track<'_>, within_s: f64| {
            let point = track.at(at, oldest_s)?;
            (at.seconds_since(point.true_at()) <= within_s).then_some(point.value)
        };
        if let Source::Total(list) = self {
            let newest = newest_look(&self.tracks(window), at).filter(|look| at.seconds_since(*look) <= oldest_s)?;
            let there = |track: Track<'_>, _: f64| track.at(newest, 0.0).map(|point| point.value);
            let values = list.iter().filter_map(|each| each.evaluate(window, newest, f64::INFINITY, &there));
            return values.reduce(|sum, one| sum + one);
        }
        self.evaluate(window, at, f64::INFINITY, &one)
    }

    /// The rate, per second, over the `over_s` seconds before `at`.
    pub fn rate(&self, window: &Window, at: Moment, over_s: f64) -> Option<f64> {
        let from = Moment::from_seconds(at.seconds() - over_s);
        if let Source::Total(list) = self {
            // What was read last is told of, not what nobody has looked at yet.
            let to = newest_look(&self.tracks(window), at).unwrap_or(at);
            let from = Moment::from_seconds(to.seconds() - over_s).max(window.from);
            let rise = |track: Track<'_>, _: f64| track.rise(from, to);
            let rises = list.iter().filter_map(|each| each.evaluate(window, to, f64::INFINITY, &rise));
            return rises.reduce(|sum, one| sum + one).map(|rise| rise / to.seconds_since(from));
        }
        let one = |track: Track<'_>, _: f64| track.between(from, at).rate();
        self.evaluate(window, at, f64::INFINITY, &one)
    }

    /// The tracks that it reads, each with its factor; of alternatives those of the first that has any.
    pub fn tracks<'a>(&self, window: &'a Window) -> Vec<(Track<'a>, f64)> {
        match self {
            Source::Unknown | Source::Fixed(_) => Vec::new(),
            Source::Sum(terms) => {
                let one = |(name, labels, factor): &Term| {
                    let labels: Vec<_> = labels.iter().map(|(label, value)| (*label, value.as_str())).collect();
                    Some((window.track(name, &labels)?, *factor))
                };
                terms.iter().map(one).collect::<Option<Vec<_>>>().unwrap_or_default()
            }
            Source::FirstOf(list) => {
                list.iter().map(|source| source.tracks(window)).find(|found| !found.is_empty()).unwrap_or_default()
            }
            Source::Least(list) | Source::Most(list) | Source::Total(list) => {
                list.iter().flat_map(|source| source.tracks(window)).collect()
            }
            Source::Fresh(source, _) | Source::Below(source, _) => source.tracks(window),
            Source::Share(parts) => parts.iter().flat_map(|source| source.tracks(window)).collect(),
            Source::Told(both, _) => both.iter().flat_map(|source| source.tracks(window)).collect(),
            Source::Steps(steps) => steps.iter().flat_map(|(_, source)| source.tracks(window)).collect(),
        }
    }

    /// The value of a label in the first series that it reads: whose queue it is.
    pub fn label(&self, name: &str) -> Option<&str> {
        match self {
            Source::Sum(terms) => {
                let mut labels = terms.iter().flat_map(|(_, labels, _)| labels);
                labels.find(|(label, _)| *label == name).map(|(_, value)| value.as_str())
            }
            Source::FirstOf(list) | Source::Least(list) | Source::Most(list) | Source::Total(list) => {
                list.iter().find_map(|source| source.label(name))
            }
            Source::Fresh(source, _) | Source::Below(source, _) => source.label(name),
            Source::Share(parts) => parts.iter().find_map(|source| source.label(name)),
            Source::Told(both, _) => both.iter().find_map(|source| source.label(name)),
            Source::Steps(steps) => steps.iter().find_map(|(_, source)| source.label(name)),
            Source::Unknown | Source::Fixed(_) => None,
        }
    }

    /// The source that holds at a moment, of steps.
    pub fn at(&self, at: Moment) -> &Source {
        match self {
            Source::Steps(steps) => {
                steps.iter().rev().find(|(from, _)| *from <= at).map_or(&Source::Unknown, |(_, own)| own)
            }
            other => other,
        }
    }

    fn evaluate(
        &self,
        window: &Window,
        at: Moment,
        within_s: f64,
        one: &dyn Fn(Track<'_>, f64) -> Option<f64>,
    ) -> Option<f64> {
        let each = |source: &Source| source.evaluate(window, at, within_s, one);
        match self {
            Source::Unknown => None,
            Source::Fixed(value) => Some(*value),
            Source::Sum(terms) => terms.iter().try_fold(0.0, |sum, (name, labels, factor)| {
                let labels: Vec<_> = labels.iter().map(|(label, value)| (*label, value.as_str())).collect();
                Some(sum + factor * one(window.track(name, &labels)?, within_s)?)
            }),
            Source::FirstOf(list) => list.iter().find_map(each),
            Source::Least(list) => list.iter().filter_map(each).reduce(f64::min),
            Source::Most(list) => list.iter().filter_map(each).reduce(f64::max),
            Source::Total(list) => list.iter().filter_map(each).reduce(|sum, one| sum + one),
            Source::Below(source, most) => each(source).filter(|value| value <= most),
            Source::Fresh(source, within_s) => source.evaluate(window, at, *within_s, one),
            Source::Steps(_) => each(self.at(at)),
            Source::Share(parts) => {
                let [Some(of), Some(part), Some(whole)] = parts.each_ref().map(each) else { return None };
                (whole > 0.0).then(|| of * (part / whole).min(1.0))
            }
            Source::Told(both, within) => match both.each_ref().map(each) {
                [Some(told), Some(read)] if (read - told).abs() > within * told => Some(read),
                [told, read] => told.or(read),
            },
        }
    }
}

/// When things that come and go, and are read together, were last looked at: the newest of their readings, as long as the next
/// look is not overdue. After that there is none of them any more.
fn newest_look(tracks: &[(Track<'_>, f64)], at: Moment) -> Option<Moment> {
    // The last two readings of each hold the last two looks of all.
    let last = |(track, _): &(Track<'_>, f64)| {
        let end = track.points.partition_point(|point| point.at <= at);
        track.points[end.saturating_sub(2)..end].iter().map(|point| point.at).collect::<Vec<_>>()
    };
    let looks: Vec<Moment> = tracks.iter().flat_map(last).collect();
    let newest = *looks.iter().max()?;
    let before = looks.iter().filter(|look| **look < newest).max();
    let usual_s = before.map_or(LOOK_S, |before| newest.seconds_since(*before).max(LOOK_S));
    (at.seconds_since(newest) <= OVERDUE * usual_s).then_some(newest)
}

/// Such looks are at least so many seconds apart, and one is overdue after so many times their distance.
const LOOK_S: f64 = 1.0;
const OVERDUE: f64 = 2.5;

fn term(name: &'static str, labels: &[(&'static str, &str)], factor: f64) -> Term {
    (name, labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect(), factor)
}

/// What the label `target` of the host's own series says, such as those of its interfaces.
const HOST: &str = "host";

/// A queue as a view over series: which series are its inflow, outflow, level and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// The queue's name.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Counter of what arrived.
    pub inflow: Source,
    /// Counter of what left.
    pub outflow: Source,
    /// Gauge of what stands.
    pub level: Source,
    /// Gauge of the soft limit.
    pub soft_limit: Source,
    /// Gauge of the hard limit.
    pub hard_limit: Source,
    /// Whether whoever fills it is held from half-way between the two limits on, not only at the hard one.
    pub held_midway: bool,
    /// Gauge of the sessions waiting.
    pub waiters: Source,
    /// Whether more stands in it and leaves it than is read: its figures are lower bounds.
    pub at_least: bool,
}

impl QueueSpec {
    /// A view that knows nothing yet.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        QueueSpec {
            name: name.into(),
            unit,
            inflow: Source::Unknown,
            outflow: Source::Unknown,
            level: Source::Unknown,
            soft_limit: Source::Unknown,
            hard_limit: Source::Unknown,
            held_midway: false,
            waiters: Source::Unknown,
            at_least: false,
        }
    }

    /// The server whose queue it is; none where it is the host's own.
    pub fn server(&self) -> Option<&str> {
        self.label("target").filter(|target| *target != HOST)
    }

    /// The value of a label of what stands in it, arrives or leaves.
    pub fn label(&self, name: &str) -> Option<&str> {
        [&self.level, &self.inflow, &self.outflow].into_iter().find_map(|source| source.label(name))
    }

    /// The queue's state at `at`: gauges from readings at most `over_s` old, rates as means over `over_s` seconds.
    pub fn read(&self, window: &Window, at: Moment, over_s: f64) -> Queue {
        Queue {
            name: self.name.clone(),
            unit: self.unit,
            inflow_per_s: self.inflow.rate(window, at, over_s),
            outflow_per_s: self.outflow.rate(window, at, over_s),
            level: self.level.value(window, at, over_s),
            soft_limit: self.soft_limit.value(window, at, over_s),
            hard_limit: self.hard_limit.value(window, at, over_s),
            held_midway: self.held_midway,
            waiters: self.waiters.value(window, at, over_s),
        }
    }
}
