//! Moments and spans. The clock is CLOCK_BOOTTIME, which never steps and counts while the host sleeps;
//! wall-clock time is reached through a [`ClockAnchor`](crate::ClockAnchor) kept beside the readings.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// A point in time: microseconds of CLOCK_BOOTTIME on the host that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(
    /// Microseconds since boot.
    pub i64,
);

/// A signed length of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(
    /// Microseconds.
    pub i64,
);

impl Moment {
    /// The moment `seconds` after boot.
    pub fn from_seconds(seconds: f64) -> Self {
        Moment((seconds * 1e6).round() as i64)
    }

    /// Seconds since boot.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds from `earlier` to this moment; negative where `earlier` is later.
    pub fn seconds_since(self, earlier: Moment) -> f64 {
        (self - earlier).seconds()
    }
}

impl Span {
    /// A span of so many milliseconds.
    pub const fn from_millis(ms: i64) -> Self {
        Span(ms * 1_000)
    }

    /// A span of so many seconds, rounded to a microsecond.
    pub fn from_seconds(seconds: f64) -> Self {
        Span((seconds * 1e6).round() as i64)
    }

    /// This span in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Sub for Moment {
    type Output = Span;
    fn sub(self, earlier: Moment) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Moment {
    type Output = Moment;
    fn add(self, span: Span) -> Moment {
        Moment(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Moment {
    type Output = Moment;
    fn sub(self, span: Span) -> Moment {
        Moment(self.0.saturating_sub(span.0))
    }
}
