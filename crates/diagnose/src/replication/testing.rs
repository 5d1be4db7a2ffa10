//! Readings made by hand, for the tests of this room.

use backwater_model::{Epoch, Moment, Point, SeriesId};

/// Readings of one life of a server: seconds, and what was read.
pub(super) fn points(values: impl IntoIterator<Item = (f64, f64)>) -> Vec<Point> {
    let point = |(second, value): (f64, f64)| Point {
        at: Moment::from_seconds(second),
        series: SeriesId(0),
        epoch: Epoch(1),
        value,
        as_of: None,
    };
    values.into_iter().map(point).collect()
}
