//! When checkpoints will complete: WAL is removed at the end of one, never in between.
//!
//! Source: PostgreSQL `CreateCheckPoint`, `CheckpointerMain`, `CalculateCheckpointSegments` and `XLogCheckpointNeeded`
//! (xlog.c, checkpointer.c): one starts after checkpoint_timeout since the last start, or when WAL since its redo position
//! reaches max_wal_size ÷ (1 + checkpoint_completion_target), less a segment; it is spread over checkpoint_completion_target of
//! that interval, and removes what lies before its own redo position.

use backwater_model::{Bytes, Moment, Target, Track, Window, catalogue as cat};

/// PostgreSQL's defaults, where a setting is unknown.
const TIMEOUT_S: f64 = 300.0;
const MAX_WAL: f64 = 1024.0 * 1_048_576.0;
pub(super) const SEGMENT: f64 = 16.0 * 1_048_576.0;
/// A checkpoint that is late completes within so many seconds.
const LATE_S: f64 = 1.0;

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
    /// When the last completed one started; negative.
    pub(crate) started_s: f64,
}

impl Checkpoints {
    /// Those of a target, seen from `at`, with `inflow` bytes of WAL a second; none where its redo position is unknown.
    pub(crate) fn of(window: &Window, target: &str, at: Moment, inflow: f64) -> Option<Self> {
        let settings = super::target_at(window, target, at);
        let settings = settings.as_ref();
        let own = [("target", target)];
        let redo = window.track(cat::PG_CHECKPOINT_REDO.name, &own)?;
        let head = window.track(cat::PG_WAL_INSERT.name, &own)?;
        let past = redo.between(window.from, at);
        let last = past.points.last()?;
        let share = number(settings, "checkpoint_completion_target").unwrap_or(0.9).clamp(0.0, 1.0);
        let interval_s = interval(settings, share, inflow);
        let started_s = -since(head, at, last.value, inflow)?;
        let seen = seen_duration(past, head).map(|duration| duration.min(interval_s));
        Some(Checkpoints { interval_s, duration_s: seen.unwrap_or(share * interval_s), started_s })
    }

    /// Start and completion of the checkpoints to come, in seconds from now. One that has begun has a start in the past.
    pub(crate) fn coming(self) -> impl Iterator<Item = (f64, f64)> {
        let late = move |start: f64| (start + self.duration_s).max(LATE_S.min(self.duration_s));
        // A clock that says that several were missed is wrong: the next one is due now.
        let first = (self.started_s + self.interval_s).max(-self.duration_s);
        (0..1_000).map(move |n| first + f64::from(n) * self.interval_s).map(move |start| (start, late(start)))
    }
}

fn number(target: Option<&Target>, name: &str) -> Option<f64> {
    target?.settings.get(name)?.trim().parse().ok()
}

fn interval(settings: Option<&Target>, share: f64, inflow: f64) -> f64 {
    let timeout = seconds(settings, "checkpoint_timeout").unwrap_or(TIMEOUT_S).max(1.0);
    let (size, segment) = (bytes(settings, "max_wal_size").unwrap_or(MAX_WAL), segment(settings));
    let segments = (size / (1.0 + share) / segment).floor().max(1.0);
    // Looked at when a segment is full: on average half a one later.
    let distance = (segments - 0.5).max(0.5) * segment;
    if inflow > 0.0 { timeout.min(distance / inflow) } else { timeout }
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
    let passed = head.points.partition_point(|point| point.value < moved[1].value);
    let start = head.points.get(passed).filter(|_| passed > 0)?;
    Some(moved[1].at.seconds_since(start.at).max(0.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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

    #[test]
    fn wal_forces_a_checkpoint_where_it_was_seen_to() {
        // Seen: 121 MB after the redo position at max_wal_size 256 MB.
        let settings = target(&[("max_wal_size", "256MB"), ("checkpoint_timeout", "1h")]);
        let distance = interval(Some(&settings), 0.9, 1_048_576.0);
        assert!((115.0..125.0).contains(&distance), "{distance}");
        assert_eq!(interval(Some(&settings), 0.9, 0.0), 3600.0);
    }

    #[test]
    fn checkpoints_come_one_after_the_other_and_never_in_the_past() {
        let checkpoints = Checkpoints { interval_s: 10.0, duration_s: 9.0, started_s: -15.0 };
        let first: Vec<(f64, f64)> = checkpoints.coming().take(2).collect();
        assert_eq!(first, [(-5.0, 4.0), (5.0, 14.0)]);
        let overdue = Checkpoints { interval_s: 10.0, duration_s: 1.0, started_s: -500.0 };
        assert_eq!(overdue.coming().next(), Some((-1.0, 1.0)));
    }
}
