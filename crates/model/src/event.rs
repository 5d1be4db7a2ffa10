//! Things that happen: a log line, a settings change, a restart, a gap.

use crate::{Moment, Span};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What sort of event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A line of the server's log.
    Log,
    /// A setting has another value than before (fields `name`, `before`, `after`).
    Setting,
    /// A server or host began anew.
    Restart,
    /// A probe could not read for a while (fields `probe`, `reason`); the data have a hole here. While it lasts it is told
    /// again (with `failing_s`, seconds since it began), and its end is told (with `ended`): [`Gaps`] makes one of these.
    ///
    /// A recorder that ends tells no end of what fails. That another one began is known to each who asks by what errs
    /// to the safe side for it: to who counts ([`Gaps`]) by a second beginning, to who tells what surely fails
    /// ([`OpenGaps`](crate::OpenGaps)) by the recorder's own epochs, and to rules, which must take nothing for read
    /// that was not, by readings alone.
    Gap,
    /// Something cannot be read here at all (fields `what`, `why`, `remedy`).
    Absent,
    /// A mark set by whoever runs the experiment (fields `arm`, `phase`).
    Mark,
    /// The recorder speaking of itself.
    Recorder,
    /// Somebody's work was slowed, ended or released (fields `rule`, `action`, `step`, `session`, `user`, `pool`,
    /// `statement`, and the figures that were over).
    Decision,
}

/// What an [`EventKind::Absent`] event tells (field `what`) where a server has more TCP connections than are read: a sum of those
/// that are is a lower bound.
pub const SOME_CONNECTIONS: &str = "some TCP connections";

/// Something that happened at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it happened, or was seen where the source has no time.
    pub at: Moment,
    /// Who says so: a target's name, `host`, `lab`, `recorder`.
    pub source: String,
    /// What sort.
    pub kind: EventKind,
    /// One line for people.
    pub message: String,
    /// The same as named values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

impl Event {
    /// An event with named values.
    pub fn new(at: Moment, source: &str, kind: EventKind, message: impl Into<String>, fields: &[(&str, &str)]) -> Self {
        Event {
            at,
            source: source.to_owned(),
            kind,
            message: message.into(),
            fields: fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    /// Of an event that tells that a gap begins or lasts: since when it does.
    pub fn failing_since(&self) -> Moment {
        let failing_s = self.fields.get("failing_s").and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0);
        self.at - Span::from_seconds(failing_s)
    }

    /// Whether it tells that a gap is over.
    pub fn ends_gap(&self) -> bool {
        self.kind == EventKind::Gap && self.fields.contains_key("ended")
    }
}

/// Makes one gap of all that is told of it, event by event in order of time.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Probes that do not read.
    open: BTreeSet<String>,
}

impl Gaps {
    /// Whether this event is the first that is told of a gap: that it begins, or, where that was before what is looked at, that it
    /// lasts or ends.
    pub fn is_first(&mut self, event: &Event) -> bool {
        if event.kind != EventKind::Gap {
            return false;
        }
        let probe = event.fields.get("probe").unwrap_or(&event.source);
        if event.ends_gap() {
            return !self.open.remove(probe);
        }
        let is_new = self.open.insert(probe.clone());
        // Who begins twice was begun anew in between: that a recorder ends, no probe is told.
        is_new || !event.fields.contains_key("failing_s")
    }

    /// How many gaps are told of.
    pub fn count<'a>(events: impl IntoIterator<Item = &'a Event>) -> usize {
        let mut gaps = Gaps::default();
        events.into_iter().filter(|event| gaps.is_first(event)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(second: f64, field: (&str, &str)) -> Event {
        Event::new(Moment::from_seconds(second), "recorder", EventKind::Gap, "", &[("probe", "postgres.a"), field])
    }

    #[test]
    fn what_lasts_has_failed_for_as_long_as_is_told() {
        let since = |field| gap(90.0, field).failing_since().seconds();
        assert_eq!([since(("failing_s", "30")), since(("reason", "refused"))], [60.0, 90.0]);
        assert!(gap(90.0, ("ended", "true")).ends_gap() && !gap(90.0, ("failing_s", "30")).ends_gap());
    }

    #[test]
    fn a_gap_that_is_told_again_and_again_is_one() {
        let begins = |second| gap(second, ("reason", "refused"));
        let lasts = |second| gap(second, ("failing_s", "30"));
        let ends = |second| gap(second, ("ended", "true"));
        assert_eq!(Gaps::count(&[begins(0.0), lasts(30.0), lasts(60.0), ends(70.0)]), 1);
        assert_eq!(Gaps::count(&[begins(0.0), ends(1.0), begins(2.0), lasts(32.0)]), 2);
        assert_eq!(Gaps::count(&[lasts(30.0), lasts(60.0), ends(70.0)]), 1, "it began before");
        assert_eq!(Gaps::count(&[ends(70.0)]), 1, "of which only the end is looked at");
        assert_eq!(Gaps::count(&[begins(0.0), begins(9.0)]), 2, "the recorder was started anew in between");
    }
}
