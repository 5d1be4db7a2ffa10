//! Windows made by hand, for the tests of metrics.

use super::{Metrics, Phases, Seen};
use crate::workloads::LoadResult;
use backwater_model::{Epoch, Moment, Point, SeriesId, Window};

/// Readings of one life of a server: seconds, and what was read.
pub(super) fn points<S: Into<f64>>(values: impl IntoIterator<Item = (S, f64)>) -> Vec<Point> {
    let point = |(at_s, value): (S, f64)| Point {
        at: Moment::from_seconds(at_s.into()),
        series: SeriesId(0),
        epoch: Epoch(1),
        value,
        as_of: None,
    };
    values.into_iter().map(point).collect()
}

/// What one file of metrics reads of a window that is loaded all the while: a primary `p` and its standby `s`.
pub(super) fn measured(window: &Window, measure: fn(&Seen<'_>, &mut Metrics)) -> Metrics {
    let load = LoadResult::default();
    let seen = Seen {
        window,
        phases: Phases { load_start: window.from, load_end: window.to, end: window.to },
        load: &load,
        table: None,
        primary: "p",
        standby: Some("s"),
        device: None,
        findings: &[],
    };
    let mut metrics = Metrics::default();
    measure(&seen, &mut metrics);
    metrics
}
