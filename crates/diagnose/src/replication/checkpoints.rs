//! When checkpoints will complete: WAL is removed at the end of one, never in between.
//!
//! Source: PostgreSQL `CreateCheckPoint`, `CheckpointerMain`, `CalculateCheckpointSegments` and `XLogCheckpointNeeded`
//! (xlog.c, checkpointer.c): one starts after checkpoint_timeout since the last start, or when so many segments are full,
//! counted from the one with the last redo position on, as max_wal_size ÷ (1 + checkpoint_completion_target) holds. A redo
//! position lies where the head stands when a checkpoint starts, thus at the beginning of a segment where WAL forces one after
//! the other: these lie as many whole segments apart, or more where one runs longer than that. Each is spread over
//! checkpoint_completion_target of the interval, and removes, as it completes, what is no longer kept then and lies before its own
//! redo position.

use super::unread::HOLE_S;
use backwater_model::{Bytes, Event, EventKind, Moment, Point, Target, Track, Window, catalogue as cat};

/// PostgreSQL's defaults, where a setting is unknown.
const TIMEOUT_S: f64 = 300.0;
const MAX_WAL: f64 = 1024.0 * 1_048_576.0;
pub(super) const SEGMENT: f64 = 16.0 * 1_048_576.0;
/// How much sooner or later than told a checkpoint may complete: where these were 6 s apart they took 4.7 to 6.5 s, and completed
/// 5.0 to 8.5 s after one another.
pub(super) const CHECKPOINT_UNSURE_S: f64 = 1.5;
/// A checkpoint that is late completes within so many seconds.
const LATE_S: f64 = 1.0;
/// The distance between checkpoints is the mean of the last steps of the redo position. One of them tells more than the
/// settings do: where those say 6.0 s apart, checkpoints that ran a little longer than that came 7 to 8 s apart.
const MOST_STEPS: usize = 5;
/// A checkpoint this near to checkpoint_timeout after the one before was begun by the clock.
const BY_CLOCK: f64 = 0.9;

/// A size setting in bytes; none where it is unknown, or is −1.
pub(crate) fn bytes(target: Option<&Target>, name: &str) -> Option<f64> {
    target?.settings.get(name)?.parse::<Bytes>().ok().map(|bytes| bytes.0 as f64)
}

/// A time setting in seconds: `5min`, `30s`, `1h`, or a plain number of seconds.
pub(crate) fn seconds(target: Option<&Target>, name: &str) -> Option<f64> {
    let text = target?.settings.get(name)?.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    let unit = match text[split..].trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Some(number * unit)
}

/// Size of a WAL segment in bytes.
pub(crate) fn segment(target: Option<&Target>) -> f64 {
    bytes(target, "wal_segment_size").filter(|size| *size >= 1_048_576.0).unwrap_or(SEGMENT)
}

/// Checkpoints to come, in seconds from a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Checkpoints {
    /// From one start to the next.
    pub(crate) interval_s: f64,
    /// From a start to its completion.
    pub(crate) duration_s: f64,
    /// When the next one starts; negative where it has begun.
    pub(crate) next_s: f64,
}

impl Checkpoints {
    /// Those of a target, seen from `at`, with `inflow` bytes of WAL a second; none where its redo position is unknown.
    pub(crate) fn of(window: &Window, target: &str, at: Moment, inflow: f64) -> Option<Self> {
        let settings = super::target_at(window, target, at);
        let pace = Pace::of(settings.as_ref());
        let own = [("target", target)];
        let redo = window.track(cat::PG_CHECKPOINT_REDO.name, &own)?;
        let head = window.track(cat::PG_WAL_INSERT.name, &own)?;
        let past = redo.between(window.from, at);
        let last = past.points.last()?;
        let steps = pace.seen_bytes(redo.between(paced_since(window, target, at), at));
        let interval_s = pace.seconds(steps.unwrap_or(pace.segments * pace.segment), inflow);
        let first_s = pace.seconds(steps.unwrap_or(pace.next_bytes(last.value)), inflow);
        let next_s = first_s - since(head, at, last.value, inflow)?;
        let seen = seen_duration(past, head).map(|duration| duration.min(interval_s));
        Some(Checkpoints { interval_s, duration_s: seen.unwrap_or(pace.share * interval_s), next_s })
    }

    /// Start and completion of the checkpoints to come, in seconds from now. One that has begun has a start in the past.
    pub(crate) fn coming(self) -> impl Iterator<Item = (f64, f64)> {
        let late = move |start: f64| (start + self.duration_s).max(LATE_S.min(self.duration_s));
        // A clock that says that several were missed is wrong: the next one is due now.
        let first = self.next_s.max(-self.duration_s);
        (0..1_000).map(move |n| first + f64::from(n) * self.interval_s).map(move |start| (start, late(start)))
    }
}

/// The settings that do.
const PACING: [&str; 3] = ["max_wal_size", "checkpoint_completion_target", "checkpoint_timeout"];

/// What begins checkpoints, by the settings.
struct Pace {
    timeout_s: f64,
    /// checkpoint_completion_target.
    share: f64,
    /// Size of a segment in bytes, and how many must be full.
    segment: f64,
    segments: f64,
}

impl Pace {
    fn of(settings: Option<&Target>) -> Self {
        let share = number(settings, "checkpoint_completion_target").unwrap_or(0.9).clamp(0.0, 1.0);
        let segment = segment(settings);
        // In whole segments already before it is divided.
        let most = (bytes(settings, "max_wal_size").unwrap_or(MAX_WAL) / segment).floor();
        let timeout_s = seconds(settings, "checkpoint_timeout").unwrap_or(TIMEOUT_S).max(1.0);
        Pace { timeout_s, share, segment, segments: (most / (1.0 + share)).floor().max(1.0) }
    }

    /// From a redo position to where the head forces the next checkpoint, in bytes.
    fn next_bytes(&self, redo: f64) -> f64 {
        self.segments * self.segment - redo.rem_euclid(self.segment)
    }

    /// How long so many bytes of WAL take, or the clock.
    fn seconds(&self, distance: f64, inflow: f64) -> f64 {
        if inflow > 0.0 { self.timeout_s.min(distance / inflow) } else { self.timeout_s }
    }

    /// Mean WAL between the last checkpoints that WAL forced, in bytes, as the redo position went; none where none was seen.
    /// One that the clock began, or a command sooner than WAL can, says nothing of it.
    fn seen_bytes(&self, redo: Track<'_>) -> Option<f64> {
        let moved = |pair: &&[Point]| pair[1].epoch == pair[0].epoch && pair[1].value > pair[0].value;
        let moves: Vec<&[Point]> = redo.points.windows(2).filter(moved).collect();
        let step = |pair: &[&[Point]]| {
            let (before, after) = (pair[0], pair[1]);
            // More than one may lie in a hole.
            let seen = after[1].at.seconds_since(after[0].at) <= HOLE_S && before[1].epoch == after[0].epoch;
            let by_clock = after[1].at.seconds_since(before[1].at) >= BY_CLOCK * self.timeout_s;
            let bytes = after[1].value - after[0].value;
            (seen && !by_clock && bytes >= (self.segments - 1.0) * self.segment).then_some(bytes)
        };
        let steps: Vec<f64> = moves.windows(2).rev().filter_map(step).take(MOST_STEPS).collect();
        let mean = (!steps.is_empty()).then(|| steps.iter().sum::<f64>() / steps.len() as f64);
        // The first one that WAL forced after a command's is shorter: a lone step may be that.
        mean.map(|mean| if steps.len() == 1 { mean.max(self.segments * self.segment) } else { mean })
    }
}

/// Since when checkpoints have come as the settings of this moment have them: what was seen before tells nothing of them.
fn paced_since(window: &Window, target: &str, at: Moment) -> Moment {
    let paces = |event: &&Event| {
        let name = event.fields.get("name").map(String::as_str);
        event.source == target && event.at <= at && name.is_some_and(|name| PACING.contains(&name))
    };
    window.events_of(EventKind::Setting).filter(paces).map(|event| event.at).max().unwrap_or(window.from)
}

fn number(target: Option<&Target>, name: &str) -> Option<f64> {
    target?.settings.get(name)?.trim().parse().ok()
}

/// Seconds since the head of WAL passed a position.
fn since(head: Track<'_>, at: Moment, position: f64, inflow: f64) -> Option<f64> {
    let past = head.points.partition_point(|point| point.at <= at);
    let points = &head.points[..past];
    let last = points.last()?;
    let after = points.partition_point(|point| point.value < position);
    if after > 0 && after < points.len() {
        return Some(at.seconds_since(points[after].at));
    }
    // Before the readings began: back at the present rate.
    let first = points.first()?;
    let before = if after == 0 { (first.value - position) / inflow.max(1.0) } else { 0.0 };
    let seen = if after == 0 { at.seconds_since(first.at) } else { at.seconds_since(last.at) };
    Some(seen + before.max(0.0))
}

/// How long the newest checkpoint that completed within the readings took: from when the head stood at its redo position to
/// when that became the control file's.
fn seen_duration(redo: Track<'_>, head: Track<'_>) -> Option<f64> {
    let moved = redo.points.windows(2).rev().find(|pair| pair[1].value > pair[0].value)?;
    if moved[0].epoch != moved[1].epoch || moved[1].at.seconds_since(moved[0].at) > HOLE_S {
        return None;
    }
    let passed = head.points.partition_point(|point| point.value < moved[1].value);
    let start = head.points.get(passed).filter(|_| passed > 0)?;
    // Somewhere between two readings.
    let completed_s = moved[0].at.seconds_since(start.at).midpoint(moved[1].at.seconds_since(start.at));
    Some(completed_s.max(0.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::testing::points;
    use super::*;
    use std::sync::Arc;

    fn target(settings: &[(&str, &str)]) -> Target {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Target { settings: settings.collect(), ..Target::default() }
    }

    #[test]
    fn settings_are_read_as_the_server_shows_them() {
        let target = target(&[("a", "5min"), ("b", "64MB"), ("c", "-1"), ("d", "90"), ("e", "1h"), ("f", "off")]);
        let target = Some(&target);
        assert_eq!(
            (seconds(target, "a"), seconds(target, "d"), seconds(target, "e")),
            (Some(300.0), Some(90.0), Some(3600.0))
        );
        assert_eq!(
            (bytes(target, "b"), bytes(target, "c"), bytes(target, "f")),
            (Some(64.0 * 1_048_576.0), None, None)
        );
        assert_eq!((seconds(target, "f"), seconds(target, "c"), bytes(None, "b")), (None, None, None));
    }

    const MB: f64 = 1_048_576.0;

    fn pace(max_wal_size: &str) -> Pace {
        Pace::of(Some(&target(&[("max_wal_size", max_wal_size), ("checkpoint_timeout", "1h")])))
    }

    #[test]
    fn wal_forces_a_checkpoint_where_it_was_seen_to() {
        // Seen: 121 MB after a redo position within a segment, at max_wal_size 256 MB.
        let pace = pace("256MB");
        assert_eq!((pace.segments, pace.next_bytes(1_607.0 * MB)), (8.0, 121.0 * MB));
        assert_eq!((pace.seconds(121.0 * MB, MB), pace.seconds(121.0 * MB, 0.0)), (121.0, 3600.0));
        // 127 MB are seven segments, of which three make a checkpoint.
        assert_eq!([self::pace("127MB").segments, self::pace("32MB").segments], [3.0, 1.0]);
    }

    /// Readings of a redo position, once a second: when it moved, and to what, in MB.
    fn redo(moves: &[(f64, f64)]) -> Vec<Point> {
        let value = |at: f64| moves.iter().rev().find(|(moved, _)| *moved <= at).unwrap().1 * MB;
        points((0..60).map(|second| (f64::from(second), value(f64::from(second)))))
    }

    fn seen_mb(pace: &Pace, points: &[Point]) -> Option<f64> {
        let series = cat::PG_CHECKPOINT_REDO.series(&[("target", "p")]);
        pace.seen_bytes(Track { series: &series, points }).map(|bytes| bytes / MB)
    }

    #[test]
    fn how_far_apart_they_were_seen_counts_before_the_settings() {
        let pace = pace("96MB");
        let steady = redo(&[(0.0, 0.0), (7.0, 20.0), (14.0, 70.0), (21.0, 120.0), (28.0, 172.0)]);
        assert_eq!(seen_mb(&pace, &steady), Some((50.0 + 50.0 + 52.0) / 3.0));
        // The first is not known to be one step.
        assert_eq!((seen_mb(&pace, &steady[..14]), seen_mb(&pace, &steady[..20])), (None, Some(50.0)));
        let shorter = redo(&[(0.0, 0.0), (7.0, 29.0), (14.0, 64.0)]);
        assert_eq!(seen_mb(&pace, &shorter), Some(48.0), "from within a segment to the next that is forced");
        // A command began that of 28 s.
        let asked = redo(&[(0.0, 0.0), (7.0, 20.0), (14.0, 70.0), (21.0, 120.0), (28.0, 130.0)]);
        assert_eq!(seen_mb(&pace, &asked), Some(50.0));
        // Two may lie in a gap.
        let gap: Vec<Point> = [&steady[..22], &steady[29..]].concat();
        assert_eq!(seen_mb(&pace, &gap), Some(50.0));
        let clock = Pace { timeout_s: 7.0, ..pace };
        assert_eq!(seen_mb(&clock, &steady), None);
    }

    #[test]
    fn what_was_seen_under_another_setting_tells_nothing() {
        let changed = |name: &str, after: &str| {
            let fields = [("name", name), ("before", ""), ("after", after)];
            Event::new(Moment::from_seconds(20.0), "p", EventKind::Setting, "", &fields)
        };
        let (from, to) = (Moment::from_seconds(0.0), Moment::from_seconds(60.0));
        let window = |event: Event| Window::new(from, to, Arc::default(), Vec::new(), Vec::new(), vec![event]);
        let since =
            |window: &Window, target: &str, at: f64| paced_since(window, target, Moment::from_seconds(at)).seconds();
        let lowered = window(changed("max_wal_size", "32MB"));
        assert_eq!(
            [since(&lowered, "p", 30.0), since(&lowered, "p", 10.0), since(&lowered, "s", 30.0)],
            [20.0, 0.0, 0.0]
        );
        assert_eq!(since(&window(changed("work_mem", "4MB")), "p", 30.0), 0.0);
    }

    /// The redo positions of runs/wal/retention-exceeded.txt, in segments: with so small a max_wal_size a checkpoint is due before
    /// the one before it is done.
    #[test]
    fn where_one_runs_into_the_next_they_lie_further_apart() {
        let steps = [
            (0.0, 17.415),
            (4.0, 18.319),
            (7.0, 20.198),
            (10.0, 21.452),
            (13.0, 23.274),
            (17.0, 25.299),
            (19.0, 26.294),
        ];
        let points = redo(&steps.map(|(at, segments)| (at, 16.0 * segments)));
        let (pace, inflow) = (pace("32MB"), 8.4e6 / MB);
        let apart = seen_mb(&pace, &points).unwrap() / inflow;
        assert!((2.6..3.6).contains(&apart), "seen: 2.0 to 4.2 s apart, told {apart}");
        assert!(pace.seconds(pace.segments * pace.segment, 8.4e6) < 2.1, "the settings tell less");
    }

    #[test]
    fn checkpoints_come_one_after_the_other_and_never_in_the_past() {
        let checkpoints = Checkpoints { interval_s: 10.0, duration_s: 9.0, next_s: -5.0 };
        let first: Vec<(f64, f64)> = checkpoints.coming().take(2).collect();
        assert_eq!(first, [(-5.0, 4.0), (5.0, 14.0)]);
        let overdue = Checkpoints { interval_s: 10.0, duration_s: 1.0, next_s: -490.0 };
        assert_eq!(overdue.coming().next(), Some((-1.0, 1.0)));
    }
}
