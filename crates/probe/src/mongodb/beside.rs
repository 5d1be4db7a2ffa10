//! What lies beside a flight recorder, on its axis: slow operations of the server's log, handed out stretch by stretch as the
//! recorder's chunks are.

use super::log::History;
use backwater_model::{Event, Moment, Point, Registry, SeriesId, catalogue as cat};

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

    /// What the log tells from where it was last asked until a moment: a column for each series, and happenings.
    pub(super) fn take(&mut self, until: Moment) -> ([Vec<Point>; 2], Vec<Event>) {
        let after = self.until;
        self.until = after.max(until);
        match (self.history, self.series) {
            (Some(history), Some(series)) if until > after => {
                let (counts, ms) = history.points((after, until), series);
                ([counts, ms], history.events(after, until))
            }
            _ => Default::default(),
        }
    }
}
