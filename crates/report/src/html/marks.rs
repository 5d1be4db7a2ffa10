//! What happened: events as marks, the lab's phases as stretches, and what could not be read at all.

use super::axis::Axis;
use super::document::{Mark, Phase};
use backwater_model::{Event, EventKind, Gaps, Moment, Unseen, Window};

/// The most marks on a page: more cannot be told apart on a chart.
pub(super) const MOST_MARKS: usize = 2_000;
/// Characters of a message.
const LONGEST: usize = 400;

/// Of events in order of time those that fit, in order of time, and how many were left out. What is rare is kept rather than what
/// is frequent, and of what is as rare the latest.
pub(super) fn fitting(mut marks: Vec<Mark>, most: usize) -> (Vec<Mark>, usize) {
    let rank = |mark: &Mark| match mark.kind {
        EventKind::Restart | EventKind::Setting | EventKind::Gap | EventKind::Mark => 0,
        EventKind::Decision | EventKind::Recorder => 1,
        EventKind::Log => 2,
        EventKind::Absent => 3,
    };
    marks.reverse();
    marks.sort_by_key(rank);
    let left_out = marks.len().saturating_sub(most);
    marks.truncate(most);
    marks.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    (marks, left_out)
}

/// Events from `since` on. What is absent is no moment: it is listed apart. A gap is a mark where it is first told of and where it
/// ends, however often it is told.
pub(super) fn marks(gaps: &mut Gaps, window: &Window, axis: &Axis, since: Moment) -> Vec<Mark> {
    let mut is_mark = |event: &&Event| match event.kind {
        EventKind::Absent => false,
        EventKind::Gap => gaps.is_first(event) || event.ends_gap(),
        _ => true,
    };
    let mark = |event: &Event| Mark {
        at_s: axis.seconds(event.at),
        kind: event.kind,
        source: event.source.clone(),
        message: event.message.chars().take(LONGEST).collect(),
    };
    let later = window.events().iter().filter(|event| event.at >= since);
    later.filter(|event| is_mark(event)).map(mark).collect()
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
    use backwater_model::OpenGaps;
    use std::sync::Arc;

    fn gap(second: f64, fields: &[(&str, &str)]) -> Event {
        let message = format!("at {second}");
        Event::new(Moment::from_seconds(second), "recorder", EventKind::Gap, message, fields)
    }

    /// A server that stops at 60 s, so that it is told again and again, and is read again at 200 s.
    fn down(from_s: f64, to_s: f64) -> Window {
        let probe = ("probe", "postgres.a");
        let told = [
            gap(60.0, &[probe, ("reason", "refused")]),
            gap(90.0, &[probe, ("reason", "refused"), ("failing_s", "30")]),
            gap(120.0, &[probe, ("reason", "starting up"), ("failing_s", "60")]),
            gap(150.0, &[probe, ("reason", "starting up"), ("failing_s", "90")]),
            gap(200.0, &[probe, ("ended", "true")]),
        ];
        let (from, to) = (Moment::from_seconds(from_s), Moment::from_seconds(to_s));
        let events = told.into_iter().filter(|event| from <= event.at && event.at <= to).collect();
        Window::new(from, to, Arc::default(), vec![], vec![], events)
    }

    #[test]
    fn a_gap_that_is_told_again_and_again_is_one_mark_and_its_end() {
        let places = |windows: &[Window]| -> Vec<f64> {
            let mut gaps = Gaps::default();
            let axis = Axis::between(windows[0].from, windows[windows.len() - 1].to, &windows[0].meta);
            let marks = windows.iter().flat_map(|window| marks(&mut gaps, window, &axis, window.from));
            marks.map(|mark| mark.at_s + windows[0].from.seconds()).collect()
        };
        assert_eq!(places(&[down(0.0, 300.0)]), [60.0, 200.0]);
        assert_eq!(places(&[down(0.0, 100.0), down(100.1, 300.0)]), [60.0, 200.0], "also over parts of a recording");
        assert_eq!(places(&[down(70.0, 160.0)]), [90.0], "it began before what is looked at");
        let open = OpenGaps::of(&down(100.0, 160.0));
        assert_eq!(open.messages().collect::<Vec<_>>(), ["at 150"], "who looks at the last minute knows of it");
    }
}
