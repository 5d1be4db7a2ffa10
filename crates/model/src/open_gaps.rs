//! Which probes do not read as a stretch of time ends.

use crate::{Event, EventKind, Moment, Span, Window, catalogue};
use std::collections::BTreeMap;

/// What is told of a gap that lasts. Whatever says more was lost once, and has no end that would be told: lines of a log, a single
/// reading.
const LASTING: [&str; 3] = ["probe", "reason", "failing_s"];

/// Probes that stopped reading and do not read again, as far as is told.
#[derive(Clone, Debug, Default)]
pub struct OpenGaps {
    by_probe: BTreeMap<String, OpenGap>,
}

#[derive(Clone, Debug)]
struct OpenGap {
    since: Moment,
    /// When it was told last, and how.
    told: Moment,
    message: String,
}

impl OpenGaps {
    /// Those of a window.
    pub fn of(window: &Window) -> Self {
        let mut gaps = OpenGaps::default();
        gaps.take(window, window.from);
        gaps
    }

    /// Takes note of what a window tells from a moment on; of windows that follow one another, in order of time.
    pub fn take(&mut self, window: &Window, since: Moment) {
        let begins = begins(window);
        for event in window.events_of(EventKind::Gap).filter(|event| event.at >= since) {
            self.forget_former(&begins, event.at);
            self.note(event, window.from);
        }
        self.forget_former(&begins, window.to);
    }

    /// Since when a probe does not read, as far as the window reaches back in which that was told; none where it does.
    pub fn since(&self, probe: &str) -> Option<Moment> {
        self.by_probe.get(probe).map(|gap| gap.since)
    }

    /// What was last told of each, in order of the probes' names.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.by_probe.values().map(|gap| gap.message.as_str())
    }

    fn note(&mut self, event: &Event, from: Moment) {
        let Some(probe) = event.fields.get("probe") else { return };
        if event.ends_gap() {
            self.by_probe.remove(probe);
        } else if event.fields.keys().all(|field| LASTING.contains(&field.as_str())) {
            let begun = event.failing_since().max(from);
            let since = self.since(probe).map_or(begun, |known| known.min(begun));
            let gap = OpenGap { since, told: event.at, message: event.message.clone() };
            self.by_probe.insert(probe.clone(), gap);
        }
    }

    /// A recorder tells no end of what failed under the one before: what is not told again since it began is not known to last.
    fn forget_former(&mut self, begins: &[Moment], now: Moment) {
        let is_over = |gap: &OpenGap| begins.iter().any(|begin| gap.told < *begin && *begin <= now);
        self.by_probe.retain(|_, gap| !is_over(gap));
    }
}

/// When the recorder began anew: halfway between the last reading of itself and the first one after. Of which of the two a failure
/// is that was told in between, nothing else tells.
fn begins(window: &Window) -> Vec<Moment> {
    let Some(itself) = window.track(catalogue::SELF_DROPPED.name, &[]) else { return Vec::new() };
    let anew = itself.points.windows(2).filter(|pair| pair[0].epoch != pair[1].epoch);
    anew.map(|pair| pair[0].at + Span((pair[1].at - pair[0].at).0 / 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Point, SeriesId};
    use std::sync::Arc;

    fn gap(second: f64, fields: &[(&str, &str)]) -> Event {
        let message = format!("at {second}");
        Event::new(Moment::from_seconds(second), "recorder", EventKind::Gap, message, fields)
    }

    /// With a recorder that tells of itself each second, in one life after another, each from one second to another.
    fn window(events: Vec<Event>, lives: &[(u32, u32)]) -> Window {
        let point = |second: u32, life: u64| {
            let at = Moment::from_seconds(f64::from(second));
            Point { at, series: SeriesId(0), epoch: Epoch(life), value: 0.0, as_of: None }
        };
        let points = lives.iter().zip(1..).flat_map(|((from, to), life)| (*from..*to).map(move |at| point(at, life)));
        let itself = (Arc::new(catalogue::SELF_DROPPED.series::<&str>(&[])), points.collect());
        Window::new(Moment(0), Moment::from_seconds(100.0), Arc::default(), vec![itself], vec![], events)
    }

    fn told(gaps: &OpenGaps) -> Vec<&str> {
        gaps.messages().collect()
    }

    #[test]
    fn who_reads_again_is_not_failing() {
        let failed = [("probe", "postgres.a"), ("reason", "connection closed")];
        let other = [("probe", "host.b"), ("reason", "no such file")];
        let events = vec![
            gap(1.0, &failed),
            gap(2.0, &[("probe", "postgres.a"), ("ended", "true")]),
            gap(3.0, &other),
            gap(4.0, &failed),
            gap(5.0, &[("probe", "postgres.log"), ("reason", "too fast"), ("skipped_bytes", "7")]),
            gap(34.0, &[failed[0], failed[1], ("failing_s", "30")]),
        ];
        let window = window(events, &[(0, 100)]);
        let mut gaps = OpenGaps::default();
        gaps.take(&window, Moment::from_seconds(3.5));
        assert_eq!(told(&gaps), ["at 34"], "of the second part of a recording");
        let all = OpenGaps::of(&window);
        assert_eq!(told(&all), ["at 3", "at 34"]);
        assert_eq!(all.since("postgres.a"), Some(Moment::from_seconds(4.0)));
        assert_eq!(all.since("postgres.log"), None, "lines that were skipped have no end");
    }

    #[test]
    fn what_failed_under_a_recorder_that_ended_is_not_known_to_last() {
        let view = [("probe", "postgres.a pg_stat_replication"), ("reason", "no answer")];
        let since = |events: &[f64], lives: &[(u32, u32)]| {
            let events = events.iter().map(|second| gap(*second, &view)).collect();
            OpenGaps::of(&window(events, lives)).since(view[0].1).map(Moment::seconds)
        };
        assert_eq!(since(&[20.0], &[(0, 100)]), Some(20.0));
        assert_eq!(since(&[20.0], &[(0, 40), (60, 100)]), None);
        assert_eq!(since(&[39.5], &[(0, 40), (60, 100)]), None, "told after its last word of itself");
        assert_eq!(since(&[20.0, 59.5], &[(0, 40), (60, 100)]), Some(59.5), "and fails again");
        assert_eq!(since(&[20.0], &[]), Some(20.0), "nothing is known of the recorder");
    }
}
