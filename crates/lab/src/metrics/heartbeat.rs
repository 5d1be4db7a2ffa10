//! What a failover manager would have seen, and how long before it acts it was told.
//!
//! A manager that waits in vain for an overloaded primary fails over to a standby that is behind. Here three
//! checks in a row that fail count as the false failover.

use super::{Metrics, Seen};
use backwater_diagnose::{Heartbeats, Options, diagnose};
use backwater_model::{EventKind, Moment, Span, Track, Window, catalogue};

/// Beats missed in a row after which a manager would have failed over.
const IN_A_ROW: f64 = 3.0;
/// A beat is sent each second, and as often it is asked what would be told by then. What a look at the beats saw is stamped with
/// its begin, and is known at its end, up to so long after.
const EVERY_S: f64 = 1.0;

pub(super) fn measure(seen: &Seen<'_>, into: &mut Metrics) {
    let loaded = seen.window.slice(seen.phases.load_start, seen.phases.load_end);
    let Some(missed) = loaded.track(catalogue::PG_HEARTBEATS_MISSED.name, &[("target", seen.primary)]) else { return };
    let beats = Heartbeats::of(&loaded, seen.primary, &[(loaded.from, loaded.to)]);
    into.put("heartbeat_p99_ms", beats.p99_s().map(|seconds| seconds * 1e3));
    into.put("heartbeat_unanswered", Some(beats.unanswered()).filter(|count| *count > 0.0));
    into.put("heartbeat_missed", missed.increase());
    let after = |at: Option<Moment>| at.map(|at| at.seconds_since(loaded.from));
    into.put("heartbeat_told_after_s", after(told(&loaded, seen.primary)));
    let rows = rows(&loaded, seen.primary);
    into.put("heartbeat_missed_after_s", after(rows.first().map(|(first, _)| *first)));
    let lost = rows.iter().find(|(_, missed)| *missed >= IN_A_ROW).and_then(|(first, _)| lost(missed, *first));
    into.put("heartbeat_lost_after_s", after(lost));
}

/// When it was first told that the heartbeat is at risk, each time from nothing but what was known then.
fn told(loaded: &Window, primary: &str) -> Option<Moment> {
    let each = Span::from_seconds(EVERY_S);
    let at_risk = |known: &Window| {
        let found = diagnose(known, &Options::default());
        found.iter().any(|found| found.rule == "heartbeat-at-risk" && found.server.as_deref() == Some(primary))
    };
    loaded.as_it_grew(each).find(at_risk).map(|known| known.to + each)
}

/// Rows of beats that were missed one after the other: when the first of each was given up, and how many they were, without end
/// where none was answered since.
fn rows(loaded: &Window, primary: &str) -> Vec<(Moment, f64)> {
    let mut rows = Vec::new();
    let mut begun = None;
    for event in loaded.events_of(EventKind::Recorder).filter(|event| event.source == primary) {
        match (event.fields.get("what").map(String::as_str), begun) {
            (Some("heartbeat_missed"), _) => begun = begun.or(Some(event.at)),
            (Some("heartbeat_answered"), Some(first)) => {
                let missed = event.fields.get("missed").and_then(|missed| missed.parse().ok());
                rows.push((first, missed.unwrap_or(1.0)));
                begun = None;
            }
            _ => {}
        }
    }
    rows.extend(begun.map(|first| (first, f64::INFINITY)));
    rows
}

/// When so many of a row were missed that a manager acts, by the readings of their number.
fn lost(missed: Track<'_>, first: Moment) -> Option<Moment> {
    let before = missed.points.iter().rev().find(|point| point.at < first)?.value;
    missed.points.iter().find(|point| point.at >= first && point.value >= before + IN_A_ROW).map(|point| point.at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::testing::{measured, points};
    use backwater_model::{Event, Meta, Point, Series, Target};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const OF: [(&str, &str); 1] = [("target", "p")];

    fn seen(series: Vec<(Series, Vec<Point>)>, events: Vec<Event>) -> Metrics {
        let series = series.into_iter().map(|(series, points)| (Arc::new(series), points)).collect();
        let p = Target { name: "p".to_owned(), heartbeat_timeout_s: Some(1.0), ..Target::default() };
        let meta = Arc::new(Meta { targets: vec![p], ..Meta::default() });
        let window = Window::new(Moment(0), Moment(60_000_000), meta, series, Vec::new(), events);
        measured(&window, measure)
    }

    #[test]
    fn a_beat_without_an_answer_took_the_time_out_at_least() {
        let beats = |answered: &[(i32, f64)], sent: &[(i32, f64)]| {
            let missed = points([(1, 4.0), (3, 6.0)]);
            let series = vec![
                (catalogue::PG_HEARTBEAT.series(&OF), points(answered.to_vec())),
                (catalogue::PG_HEARTBEATS.series(&OF), points(sent.to_vec())),
                (catalogue::PG_HEARTBEATS_MISSED.series(&OF), missed),
            ];
            seen(series, Vec::new()).numbers
        };
        let late = beats(&[(1, 2_000.0), (2, 1_900_000.0), (3, 1_000.0)], &[(1, 0.0), (3, 1.0)]);
        assert_eq!((late["heartbeat_p99_ms"], late["heartbeat_missed"]), (1_900.0, 2.0), "the slowest of few");
        let never = beats(&[(1, 2_000.0), (3, 1_000.0)], &[(1, 0.0), (3, 2.0)]);
        assert_eq!((never["heartbeat_p99_ms"], never["heartbeat_unanswered"]), (1_000.0, 2.0));
    }

    /// One is missed at 20 s, answered again, and from 40 s on all are.
    fn rising(seconds_of: impl Fn(i32) -> f64) -> BTreeMap<String, f64> {
        let is_missed = |at: &i32| *at == 20 || *at >= 40;
        let answered: Vec<_> = (1..60).filter(|at| !is_missed(at)).map(|at| (at, seconds_of(at) * 1e6)).collect();
        let count = |missed: bool| -> Vec<(i32, f64)> {
            (0..=60).map(|at| (at, (1..at + 1).filter(|at| is_missed(at) == missed).count() as f64)).collect()
        };
        let series = vec![
            // It takes writes: nobody fails over from a server that was never met.
            (catalogue::PG_WAL_INSERT.series(&OF), points([(0, 1e6), (60, 2e6)])),
            (catalogue::PG_HEARTBEAT.series(&OF), points(answered)),
            (catalogue::PG_HEARTBEATS.series(&OF), points(count(false))),
            (catalogue::PG_HEARTBEATS_MISSED.series(&OF), points(count(true))),
        ];
        let event = |at: i32, fields: &[(&str, &str)]| {
            Event::new(Moment::from_seconds(at.into()), "p", EventKind::Recorder, "a heartbeat", fields)
        };
        let events = vec![
            event(20, &[("what", "heartbeat_missed")]),
            event(21, &[("what", "heartbeat_answered"), ("missed", "1")]),
            event(40, &[("what", "heartbeat_missed")]),
        ];
        seen(series, events).numbers
    }

    #[test]
    fn what_was_told_is_held_beside_the_first_miss_and_the_third_in_a_row() {
        let steep = rising(|_| 0.01);
        assert_eq!(steep["heartbeat_missed_after_s"], 20.0);
        assert_eq!(steep["heartbeat_lost_after_s"], 42.0);
        assert_eq!(steep["heartbeat_told_after_s"], 21.0, "by the miss itself, once the look that saw it was over");
        // Slower from beat to beat: told before anything is missed.
        let slow = rising(|at| (f64::from(at) / 20.0).min(0.95));
        assert!((11.0..17.0).contains(&slow["heartbeat_told_after_s"]), "{slow:?}");
        let calm = seen(vec![(catalogue::PG_HEARTBEATS_MISSED.series(&OF), points([(1, 0.0), (9, 0.0)]))], Vec::new());
        assert_eq!(calm.numbers.keys().collect::<Vec<_>>(), ["heartbeat_missed"]);
    }
}
