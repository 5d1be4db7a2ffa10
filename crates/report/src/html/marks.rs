//! What happened: events as marks, the lab's phases as stretches, and what could not be read at all.

use super::axis::Axis;
use super::document::{Mark, Phase};
use backwater_model::{Event, EventKind, Moment, Unseen, Window};
use std::collections::BTreeMap;

/// The most marks: more cannot be told apart on a chart.
const MOST_MARKS: usize = 2_000;
/// Characters of a message.
const LONGEST: usize = 400;

/// Of so many events, those that fit, in order of time, and how many were left out. What is rare is kept rather than what is
/// frequent.
pub(super) fn fitting(mut marks: Vec<Mark>) -> (Vec<Mark>, usize) {
    let rank = |mark: &Mark| match mark.kind {
        EventKind::Restart | EventKind::Setting | EventKind::Gap | EventKind::Mark => 0,
        EventKind::Decision | EventKind::Recorder => 1,
        EventKind::Log => 2,
        EventKind::Absent => 3,
    };
    marks.sort_by_key(rank);
    let left_out = marks.len().saturating_sub(MOST_MARKS);
    marks.truncate(MOST_MARKS);
    marks.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    (marks, left_out)
}

/// Events from `since` on. What is absent is no moment: it is listed apart.
pub(super) fn marks(window: &Window, axis: &Axis, since: Moment) -> Vec<Mark> {
    let is_mark = |event: &&Event| event.kind != EventKind::Absent && event.at >= since;
    let mark = |event: &Event| Mark {
        at_s: axis.seconds(event.at),
        kind: event.kind,
        source: event.source.clone(),
        message: event.message.chars().take(LONGEST).collect(),
    };
    window.events().iter().filter(is_mark).map(mark).collect()
}

/// From each mark of an arm to the next, the last one to the end.
pub(super) fn phases(marks: &[Event], end: Moment, axis: &Axis) -> Vec<Phase> {
    let phase = |(place, event): (usize, &Event)| {
        let (arm, phase) = event.fields.get("arm").zip(event.fields.get("phase"))?;
        if phase == "end" {
            return None;
        }
        let to = marks.get(place + 1).map_or(end, |next| next.at);
        let (from_s, to_s) = (axis.seconds(event.at), axis.seconds(to));
        Some(Phase { arm: arm.clone(), phase: phase.clone(), from_s, to_s })
    };
    marks.iter().enumerate().filter_map(phase).collect()
}

/// Takes note of probes that stop reading and read again, in order of time: of each that does not, what was said when it stopped.
pub(super) fn failing(known: &mut BTreeMap<String, String>, window: &Window, since: Moment) {
    for event in window.events_of(EventKind::Gap).filter(|event| event.at >= since) {
        let Some(probe) = event.fields.get("probe") else { continue };
        if event.fields.contains_key("ended") {
            known.remove(probe);
        } else if event.fields.keys().all(|field| ["probe", "reason"].contains(&field.as_str())) {
            known.insert(probe.clone(), event.message.clone());
        }
        // Whatever says more was lost once, and has no end that would be told: lines of a log, a single reading.
    }
}

/// What was said to be absent, each once.
pub(super) fn unseen(window: &Window) -> Vec<Unseen> {
    let mut list: Vec<Unseen> = Vec::new();
    for event in window.events_of(EventKind::Absent) {
        let field = |name: &str| event.fields.get(name).filter(|text| !text.is_empty()).cloned();
        let what = field("what").unwrap_or_else(|| event.message.clone());
        let unseen = Unseen { what, why: field("why").unwrap_or_default(), remedy: field("remedy") };
        if !list.contains(&unseen) {
            list.push(unseen);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn who_reads_again_is_not_failing() {
        let gap = |second: f64, fields: &[(&str, &str)]| {
            let message = format!("at {second}");
            Event::new(Moment::from_seconds(second), "recorder", EventKind::Gap, message, fields)
        };
        let failed = [("probe", "postgres.a"), ("reason", "connection closed")];
        let other = [("probe", "host.b"), ("reason", "no such file")];
        let events = vec![
            gap(1.0, &failed),
            gap(2.0, &[("probe", "postgres.a"), ("ended", "true")]),
            gap(3.0, &other),
            gap(4.0, &failed),
            gap(5.0, &[("probe", "postgres.log"), ("reason", "too fast"), ("skipped_bytes", "7")]),
        ];
        let (from, to) = (Moment(0), Moment::from_seconds(9.0));
        let window = Window::new(from, to, Arc::default(), vec![], vec![], events);
        let mut known = BTreeMap::new();
        failing(&mut known, &window, Moment::from_seconds(3.5));
        assert_eq!(known.values().collect::<Vec<_>>(), ["at 4"], "of the second part of a recording");
        failing(&mut known, &window, from);
        assert_eq!(known.values().collect::<Vec<_>>(), ["at 3", "at 4"]);
    }
}
