//! What lies beside a flight recorder, on its axis: slow operations of the server's log, handed out stretch by stretch as the
//! recorder's chunks are.

use super::log::History;
use backwater_model::{Event, Moment, Point, Registry, SeriesId, catalogue as cat};

/// So far apart chunks follow one another without a gap: a sample is written a second, ten at the most.
const GAP_US: i64 = 10_000_000;

/// The log of one reading of a recorder, and how far it was handed out.
pub(super) struct Beside<'f> {
    history: Option<&'f History>,
    series: Option<(SeriesId, SeriesId)>,
    until: Moment,
}

impl<'f> Beside<'f> {
    /// From a moment on.
    pub(super) fn new(history: Option<&'f History>, target: &str, registry: &Registry, from: Moment) -> Self {
        let labels = [("target", target)];
        let number = |def| registry.number(def, &labels);
        // No series is named of which nothing is known.
        let series = history.and_then(|_| number(&cat::MONGO_SLOW_OPS).zip(number(&cat::MONGO_SLOW_MS)));
        Beside { history, series, until: Moment(from.0.saturating_sub(1)) }
    }

    /// What the log tells from where it was last asked until a moment: a column for each series, and happenings. Between the recorder's
    /// last chunk and `from`, where the next begins, only the latter: readings of a time in which it stood still are of no use.
    pub(super) fn take(&mut self, from: Moment, until: Moment) -> ([Vec<Point>; 2], Vec<Event>) {
        let after = self.until;
        let from = after.max(Moment(from.0.saturating_sub(GAP_US)));
        self.until = after.max(until);
        match (self.history, self.series) {
            (Some(history), Some(series)) if until > after => {
                let (counts, ms) = history.points((from, until), series);
                ([counts, ms], history.events(after, until))
            }
            _ => Default::default(),
        }
    }
}
