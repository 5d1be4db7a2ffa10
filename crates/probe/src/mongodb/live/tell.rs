//! What the probe of a live server says besides readings: a restart, settings that changed, what cannot be seen here.

use super::server::Unseen;
use crate::Sink;
use backwater_model::{Event, EventKind};
use std::collections::{BTreeMap, BTreeSet};

/// Says what this user, server or place keeps from being seen; each once.
pub(super) fn unseen(target: &str, list: &[Unseen], sink: &mut Sink<'_>) {
    for unseen in list {
        sink.absent(target, unseen.what, &unseen.why, unseen.remedy.as_deref());
    }
}

/// Says that counters begin anew.
pub(super) fn restarted(target: &str, sink: &mut Sink<'_>) {
    let fields = [("change", "restarted")];
    sink.event(Event::new(sink.at, target, EventKind::Restart, format!("{target} was started anew"), &fields));
}

/// Says which settings have another value than before.
pub(super) fn settings(
    target: &str,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    sink: &mut Sink<'_>,
) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let value = |of: &BTreeMap<String, String>| of.get(name).cloned().unwrap_or_default();
        let (before, after) = (value(before), value(after));
        if before != after {
            let fields = [("name", name.as_str()), ("before", &before), ("after", &after)];
            let message = format!("{name}: '{before}' → '{after}'");
            sink.event(Event::new(sink.at, target, EventKind::Setting, message, &fields));
        }
    }
}
