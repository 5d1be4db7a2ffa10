//! Things that happen: a log line, a settings change, a restart, a gap.

use crate::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// A probe could not read for a while (fields `probe`, `reason`); the data have a hole here.
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
}
