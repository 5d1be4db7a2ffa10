//! How well it was told ahead when WAL that the standby needs would be removed: predictions made while the load ran, held
//! beside what then happened.
//!
//! Two moments are predicted: the earliest at which the primary may remove it, and the checkpoint that does. The first is
//! judged where at least [`HORIZON_S`] were left, for what is as good as there needs no prediction. The second is judged in
//! seconds, in checkpoints (by the mean distance that was told), and in checkpoints as they came, whose distances vary by a
//! third where WAL forces them and comes in lumps.

use super::{Metrics, Seen};
use backwater_diagnose::{Retention, retention, standby_names};
use backwater_model::{Event, EventKind, Moment, Span, Window, catalogue};

/// A prediction is made no sooner than so many seconds into the load: it rests on rates over twenty seconds, and in the first
/// ones buffers on the way fill, so that more is sent than will be.
const STEADY_S: f64 = 22.0;
/// Predictions are made so many seconds apart.
const EVERY_S: f64 = 1.0;
/// How far ahead an earliest moment must lie to be judged, in seconds.
const HORIZON_S: f64 = 10.0;

pub(super) fn measure(seen: &Seen<'_>, into: &mut Metrics) {
    let loaded = seen.window.slice(seen.phases.load_start, seen.phases.load_end);
    // A standby that comes back under another name was gone before.
    let told = standby_names(&loaded, seen.primary);
    let told = told.iter().map(|standby| told_of(&loaded, seen.primary, standby)).max_by_key(Vec::len);
    let Some(told) = told else { return };
    let earliest =
        told.iter().find(|(_, told)| told.earliest_s == Some(0.0)).and_then(|(at, _)| read(&loaded, seen.primary, *at));
    let (Some(earliest), Some(removed)) = (earliest, removal(&loaded, seen.primary, &told)) else { return };
    // What was removed could be: between two readings it may have been no longer kept, and the standby have left it since.
    let earliest = earliest.min(removed);
    let completions: Vec<Moment> = completions(&loaded, seen.primary).map(|event| event.at).collect();
    let ahead = told.iter().filter_map(|(at, told)| Ahead::of(*at, told, earliest, removed, &completions));
    put(&ahead.collect::<Vec<_>>(), into);
}

/// What was said of one standby, second by second, each time from nothing but what was known then.
fn told_of(loaded: &Window, primary: &str, standby: &str) -> Vec<(Moment, Retention)> {
    let told = |known: Window| Some((known.to, retention(&known, primary, standby, known.to)?));
    loaded.as_it_grew(Span::from_seconds(EVERY_S)).filter_map(told).collect()
}

/// When the head was read on which something rests that was told at a moment.
fn read(loaded: &Window, primary: &str, at: Moment) -> Option<Moment> {
    let head = loaded.track(catalogue::PG_WAL_INSERT.name, &[("target", primary)])?;
    head.at(at, EVERY_S * 2.0).map(|point| point.at)
}

/// When WAL that the standby needed was gone: the first reading by which the oldest segment kept lies past that, or the end
/// of the checkpoint just before it.
fn removal(loaded: &Window, primary: &str, told: &[(Moment, Retention)]) -> Option<Moment> {
    let own = [("target", primary)];
    let oldest = loaded.track(catalogue::PG_WAL_OLDEST_KEPT.name, &own)?;
    let head = loaded.track(catalogue::PG_WAL_INSERT.name, &own)?;
    let needed = |at: Moment| {
        let (then, told) = told.iter().rev().find(|(then, _)| *then <= at)?;
        Some(head.at(*then, EVERY_S * 2.0)?.value - told.level_bytes)
    };
    let gone = oldest.points.iter().position(|point| needed(point.at).is_some_and(|needed| point.value > needed))?;
    let before = gone.checked_sub(1).map_or(loaded.from, |place| oldest.points[place].at);
    let at = oldest.points[gone].at;
    let ended = completions(loaded, primary).filter(|event| before < event.at && event.at <= at);
    Some(ended.last().map_or(at, |event| event.at))
}

/// The ends of checkpoints, as the server's log tells them.
fn completions<'a>(loaded: &'a Window, primary: &'a str) -> impl Iterator<Item = &'a Event> {
    let is_end = move |event: &&Event| event.source == primary && event.message.contains("checkpoint complete");
    loaded.events_of(EventKind::Log).filter(is_end)
}

/// Where a moment lies among completions, in checkpoints: between two of them by their distance, beyond them by the one that
/// was told. None where nothing completed.
fn place(completions: &[Moment], at: Moment, interval_s: f64) -> Option<f64> {
    let later = completions.partition_point(|completed| *completed <= at);
    let (last, next) = (later.checked_sub(1).map(|last| completions[last]), completions.get(later));
    match (last, next) {
        (Some(last), next) => {
            let distance_s = next.map_or(interval_s, |next| next.seconds_since(last));
            Some((later - 1) as f64 + at.seconds_since(last) / distance_s)
        }
        (None, Some(first)) => Some(-first.seconds_since(at) / interval_s),
        (None, None) => None,
    }
}

/// One prediction beside what happened, all in seconds from when it was made.
struct Ahead {
    earliest_s: f64,
    removal_s: Option<f64>,
    interval_s: Option<f64>,
    truly_earliest_s: f64,
    truly_removed_s: f64,
    /// How far off the removal was, in checkpoints as they came.
    completions_off: Option<f64>,
}

impl Ahead {
    fn of(at: Moment, told: &Retention, earliest: Moment, removed: Moment, completions: &[Moment]) -> Option<Ahead> {
        let truly_earliest_s = earliest.seconds_since(at);
        (truly_earliest_s >= HORIZON_S).then_some(())?;
        let completions_off = || {
            let interval_s = told.checkpoint_interval_s.filter(|interval| *interval > 0.0)?;
            let place = |moment: Moment| place(completions, moment, interval_s);
            Some((place(at + Span::from_seconds(told.removal_s?))? - place(removed)?).abs())
        };
        Some(Ahead {
            earliest_s: told.earliest_s?,
            removal_s: told.removal_s,
            interval_s: told.checkpoint_interval_s,
            truly_earliest_s,
            truly_removed_s: removed.seconds_since(at),
            completions_off: completions_off(),
        })
    }

    fn error(&self) -> f64 {
        (self.earliest_s - self.truly_earliest_s).abs() / self.truly_earliest_s
    }

    /// How far off the removal was, in seconds.
    fn removal_off_s(&self) -> Option<f64> {
        Some((self.removal_s? - self.truly_removed_s).abs())
    }

    /// The same in checkpoints, by the distance that was told.
    fn checkpoints_off(&self) -> Option<f64> {
        Some(self.removal_off_s()? / self.interval_s.filter(|interval| *interval > 0.0)?)
    }
}

fn put(ahead: &[Ahead], into: &mut Metrics) {
    let steady = (STEADY_S / EVERY_S) as usize - 1;
    let ahead = ahead.get(steady..).unwrap_or_default();
    let Some(first) = ahead.first() else { return };
    into.put("predicted_retention_left_s", Some(first.earliest_s));
    into.put("retention_left_s", Some(first.truly_earliest_s));
    into.put("predicted_removal_left_s", first.removal_s);
    into.put("removal_left_s", Some(first.truly_removed_s));
    into.put("checkpoint_interval_s", first.interval_s);
    let worst = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
    into.put("retention_prediction_error_ratio", worst(&mut ahead.iter().map(Ahead::error)));
    into.put("removal_off_checkpoints", worst(&mut ahead.iter().filter_map(Ahead::checkpoints_off)));
    into.put("removal_off_completions", worst(&mut ahead.iter().filter_map(|one| one.completions_off)));
    into.put("removal_off_s", worst(&mut ahead.iter().filter_map(Ahead::removal_off_s)));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::testing::{measured, points};
    use backwater_model::{Meta, Point, Series, Target};
    use std::sync::Arc;

    const SEGMENT: f64 = 16.0 * 1_048_576.0;
    const MB: f64 = 1e6;

    /// 10 MB a second are made, 4 sent; 256 MiB are kept; checkpoints every 5 s, the one before the reading at `removed_at` removes.
    fn run(removed_at: f64) -> Window {
        let own = [("target", "p")];
        let row = [("target", "p"), ("standby", "s")];
        let tick = |each: f64| (0..=(60.0 / each) as u32).map(move |n| f64::from(n) * each);
        let base = 100.0 * SEGMENT;
        let settings = [("wal_keep_size", "256MB"), ("max_wal_size", "96MB"), ("checkpoint_completion_target", "0.9")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let target = Target { name: "p".to_owned(), settings: settings.into_iter().collect(), ..Target::default() };
        let series: Vec<(Series, Vec<Point>)> = vec![
            (catalogue::PG_WAL_INSERT.series(&own), points(tick(0.5).map(|at| (at, base + at * 10.0 * MB)))),
            (catalogue::PG_REPL_SENT.series(&row), points(tick(1.0).map(|at| (at, base + at * 4.0 * MB)))),
            (
                catalogue::PG_CHECKPOINT_REDO.series(&own),
                points(tick(1.0).map(|at| (at, base + (at / 5.0).floor().mul_add(50.0 * MB, -45.0 * MB).max(0.0)))),
            ),
            (
                catalogue::PG_WAL_OLDEST_KEPT.series(&own),
                points(
                    tick(2.0)
                        .map(|at| (at, if at < removed_at { base - 9.0 * SEGMENT } else { base + 13.0 * SEGMENT })),
                ),
            ),
        ];
        let series = series.into_iter().map(|(series, points)| (Arc::new(series), points)).collect();
        let line =
            |at: f64| Event::new(Moment::from_seconds(at), "p", EventKind::Log, "checkpoint complete: wrote 9", &[]);
        let meta = Meta { targets: vec![target], ..Meta::default() };
        let (from, to) = (Moment::from_seconds(0.0), Moment::from_seconds(60.0));
        let events = vec![line(10.0), line(removed_at - 0.5)];
        Window::new(from, to, Arc::new(meta), series, Vec::new(), events)
    }

    #[test]
    fn what_was_told_is_held_beside_what_came() {
        let numbers = measured(&run(50.0), measure).numbers;
        // 256 MiB and the rest of a segment, growing by 6 MB a second: after 46 s.
        let truly = numbers["retention_left_s"] + STEADY_S;
        assert!((43.0..49.0).contains(&truly), "{numbers:?}");
        assert!(numbers["retention_prediction_error_ratio"] < 0.2, "{numbers:?}");
        assert_eq!(numbers["removal_left_s"], 27.5);
        assert!(numbers["removal_off_checkpoints"] <= 2.0, "{numbers:?}");
    }

    #[test]
    fn a_checkpoint_is_as_long_as_it_was() {
        let completions = [10.0, 18.0, 23.0].map(Moment::from_seconds);
        let places = |at: f64| place(&completions, Moment::from_seconds(at), 6.0);
        assert_eq!([10.0, 14.0, 18.0, 20.5, 26.0].map(places), [0.0, 0.5, 1.0, 1.5, 2.5].map(Some));
        assert_eq!((places(7.0), place(&[], Moment::from_seconds(1.0), 6.0)), (Some(-0.5), None));
    }

    #[test]
    fn nothing_is_said_where_nothing_was_removed() {
        assert!(measured(&run(100.0), measure).numbers.is_empty());
    }
}
