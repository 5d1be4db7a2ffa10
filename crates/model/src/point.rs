//! Values in time and the one way rates are formed from them.

use crate::{Event, Kind, Moment, Sample, Series, SeriesId};
use serde::{Deserialize, Serialize};

/// Identifies one uninterrupted life of a source: a server's system id + timeline + start, a socket's inode, a
/// boot. Counters are comparable only inside one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(
    /// A hash of what identifies the life; equal means the same life.
    pub u64,
);

impl Epoch {
    /// The epoch identified by these parts (FNV-1a over the parts and their ends, so `ab`+`c` is not `a`+`bc`).
    pub fn of(parts: &[&str]) -> Self {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let bytes = parts.iter().flat_map(|part| part.bytes().map(u16::from).chain([0x100]));
        for byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Epoch(hash)
    }
}

/// One value of one series. Absent values have no point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When it was read.
    pub at: Moment,
    /// Of which series.
    pub series: SeriesId,
    /// In which life of the source.
    pub epoch: Epoch,
    /// The value in the series' unit. Exact for whole numbers up to 2⁵³ (an LSN of 8 PiB).
    pub value: f64,
    /// When the value was true, where the source says that it is older than the read.
    pub as_of: Option<Moment>,
}

impl Point {
    /// When the value was true: `as_of`, or else the time of the read.
    pub fn true_at(&self) -> Moment {
        self.as_of.unwrap_or(self.at)
    }
}

/// What one look of one probe brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Values.
    pub points: Vec<Point>,
    /// Sessions.
    pub samples: Vec<Sample>,
    /// Happenings.
    pub events: Vec<Event>,
}

impl Batch {
    /// Whether the look brought nothing.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.samples.is_empty() && self.events.is_empty()
    }
}

/// A rate over a stretch of time inside one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Units a second.
    pub per_second: f64,
    /// When the stretch began.
    pub from: Moment,
    /// When it ended.
    pub to: Moment,
}

/// Why two points give no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// They belong to different lives of the source.
    #[error("the source began anew between the two readings")]
    EpochChanged,
    /// The counter went down inside one epoch: it was reset or wrapped, and how far is unknown.
    #[error("the counter went backwards")]
    WentBackwards,
    /// They lie closer together than two resolutions of the source, or in the wrong order.
    #[error("the readings lie too close together for a rate")]
    TooClose,
}

/// The rate of a counter between two of its points. `resolution_s` is how often the source renews the value, in
/// seconds (0 where every read is fresh); the points must lie at least two resolutions apart, by the times at
/// which they were true.
pub fn rate_between(first: &Point, last: &Point, resolution_s: f64) -> Result<Rate, RateError> {
    if first.epoch != last.epoch {
        return Err(RateError::EpochChanged);
    }
    let (from, to) = (first.true_at(), last.true_at());
    let seconds = to.seconds_since(from);
    if seconds <= 0.0 || seconds < 2.0 * resolution_s {
        return Err(RateError::TooClose);
    }
    if last.value < first.value {
        return Err(RateError::WentBackwards);
    }
    Ok(Rate { per_second: (last.value - first.value) / seconds, from, to })
}

/// A series with its points in order of time: what rules and reports read.
#[derive(Clone, Copy, Debug)]
pub struct Track<'a> {
    /// What it is.
    pub series: &'a Series,
    /// Its points, oldest first.
    pub points: &'a [Point],
}

impl<'a> Track<'a> {
    /// The points between two moments, both included.
    pub fn between(self, from: Moment, to: Moment) -> Track<'a> {
        let start = self.points.partition_point(|point| point.at < from);
        let end = self.points.partition_point(|point| point.at <= to);
        Track { points: &self.points[start..end.max(start)], ..self }
    }

    /// The newest point at or before `at` that is no older than `oldest_s` seconds.
    pub fn at(self, at: Moment, oldest_s: f64) -> Option<&'a Point> {
        let end = self.points.partition_point(|point| point.at <= at);
        let point = self.points[..end].last()?;
        (at.seconds_since(point.at) <= oldest_s).then_some(point)
    }

    /// The newest value.
    pub fn last(self) -> Option<f64> {
        self.points.last().map(|point| point.value)
    }

    /// The largest value.
    pub fn max(self) -> Option<f64> {
        self.points.iter().map(|point| point.value).reduce(f64::max)
    }

    /// The smallest value.
    pub fn min(self) -> Option<f64> {
        self.points.iter().map(|point| point.value).reduce(f64::min)
    }

    /// The plain mean of a gauge's values.
    pub fn mean(self) -> Option<f64> {
        let count = self.points.len();
        (count > 0).then(|| self.points.iter().map(|point| point.value).sum::<f64>() / count as f64)
    }

    /// How much a counter grew, summed over the stretches in which it is known; none where no stretch is, and for a gauge.
    /// Stretches across a new epoch or a reset are left out, so this is a lower bound.
    pub fn increase(self) -> Option<f64> {
        if self.series.kind == Kind::Gauge {
            return None;
        }
        self.stretches().map(|(rise, _)| rise).reduce(|sum, rise| sum + rise)
    }

    /// How much a counter grew between two moments; of a stretch that lies in part between them, its even share. None where no
    /// stretch does, and for a gauge.
    pub fn rise(self, from: Moment, to: Moment) -> Option<f64> {
        if self.series.kind == Kind::Gauge {
            return None;
        }
        let within = |(rise, rate): (f64, Rate)| {
            let seconds = rate.to.min(to).seconds_since(rate.from.max(from));
            (seconds > 0.0).then(|| rise * seconds / rate.to.seconds_since(rate.from))
        };
        self.stretches().filter_map(within).reduce(|sum, rise| sum + rise)
    }

    /// The mean rate of a counter, per second, over the time in which it is known. A gauge has none.
    pub fn rate(self) -> Option<f64> {
        if self.series.kind == Kind::Gauge {
            return None;
        }
        let (rise, seconds) = self
            .stretches()
            .map(|(rise, rate)| (rise, rate.to.seconds_since(rate.from)))
            .reduce(|sum, next| (sum.0 + next.0, sum.1 + next.1))?;
        (seconds > 0.0).then(|| rise / seconds)
    }

    /// The rate of a counter over consecutive stretches of at least `step_s` seconds, each stamped with its end.
    /// A new epoch or a reset starts a new stretch and leaves a hole. A gauge has none.
    pub fn rates(self, step_s: f64) -> Vec<Rate> {
        let mut rates = Vec::new();
        let counts = self.series.kind != Kind::Gauge;
        let Some((mut start, rest)) = self.points.split_first().filter(|_| counts) else { return rates };
        let mut before = start;
        for point in rest {
            if stale(before, point) {
                continue;
            }
            if point.epoch != before.epoch || point.value < before.value {
                start = point;
            } else if point.true_at().seconds_since(start.true_at()) >= step_s * 0.999
                && let Ok(rate) = rate_between(start, point, 0.0)
            {
                rates.push(rate);
                start = point;
            }
            before = point;
        }
        rates
    }

    /// Rise and rate of each pair of neighbouring truths that allows one.
    fn stretches(self) -> impl Iterator<Item = (f64, Rate)> {
        let mut newest = self.points.first();
        self.points.iter().skip(1).filter_map(move |point| {
            let before = newest.filter(|before| !stale(before, point))?;
            newest = Some(point);
            let rate = rate_between(before, point, 0.0).ok()?;
            Some((point.value - before.value, rate))
        })
    }
}

/// Whether a reading brings no newer truth than the one before: a source that has not renewed its value yet, or an answer
/// that was overtaken by a later one.
fn stale(before: &Point, point: &Point) -> bool {
    point.epoch == before.epoch && point.true_at() <= before.true_at()
}
