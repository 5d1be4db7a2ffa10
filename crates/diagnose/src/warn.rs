//! A warning before the cliff: the level rises towards the point where writers are paused, and will be there soon.

use crate::device;
use crate::limits::LimitOwner;
use crate::predict::{Basis, time_to_cliff};
use crate::replication;
use crate::rules;
use backwater_model::{Confidence, Figure, Finding, Moment, Severity, Span, Unit, Window};

/// Seconds of readings the warning rests on.
const LOOK_S: f64 = 5.0;
/// Ahead of the removal of WAL, at least.
const AHEAD_S: f64 = 3_600.0;
/// In each of so many parts of them the level must have risen.
const PARTS: usize = 4;
/// Below this share of the pausing point there is no warning: a burst that will end is likelier.
const LEAST_FILL: f64 = 0.3;
/// Whoever is called rather than told must be so for a reason: the level has risen for this share of the time that is left.
const LASTED: f64 = 0.25;

/// Warnings at the end of a window, for every device whose dirty pages will reach the pausing point within `within_s` seconds.
/// Only where the level truly rises over several seconds and does so against the device's known or measured writing.
pub fn warn(window: &Window, within_s: f64) -> Vec<Finding> {
    let mut list: Vec<Finding> =
        device::watched(window).iter().filter_map(|dev| of_device(window, dev, within_s)).collect();
    list.extend(of_wal(window, within_s.max(AHEAD_S)));
    list
}

/// Warnings that WAL which a standby still needs will be removed. They come an hour ahead, for what helps takes long.
fn of_wal(window: &Window, within_s: f64) -> Vec<Finding> {
    let pairs = |primary: String| {
        let names = replication::standby_names(window, &primary);
        names.into_iter().map(move |name| (primary.clone(), name)).collect::<Vec<_>>()
    };
    let names: Vec<(String, String)> = replication::primaries(window).into_iter().flat_map(pairs).collect();
    rules::wal_approaching(&crate::scene::Scene::bare(window), &names, within_s)
}

fn of_device(window: &Window, dev: &str, within_s: f64) -> Option<Finding> {
    let from = (window.to - Span::from_seconds(LOOK_S)).max(window.from);
    if !rising(window, dev, from) {
        return None;
    }
    let prediction = time_to_cliff(window, dev, from, LOOK_S)?;
    // What is dirtied before the flusher wakes says nothing of whether the device will keep up.
    let certain = matches!(prediction.basis, Basis::NetSlope | Basis::InflowThenCeiling);
    let left_s = prediction.at_s - window.to.seconds_since(from);
    let fill = prediction.level_bytes / prediction.target_bytes;
    if !certain || !(0.0..=within_s).contains(&left_s) || fill < LEAST_FILL {
        return None;
    }
    let queue = match &prediction.limit {
        LimitOwner::Cgroup(group) => format!("host.dirty@{group}"),
        _ => format!("host.dirty@{dev}"),
    };
    let mut finding = rules::draft("dirty-throttle", "approaching", queue, (from, window.to));
    let lasted = rising(window, dev, window.to - Span::from_seconds((left_s * LASTED).max(LOOK_S)));
    finding.severity = if lasted { Severity::Warning } else { Severity::Info };
    finding.confidence = if prediction.basis == Basis::NetSlope { Confidence::Medium } else { Confidence::Low };
    finding.summary = format!(
        "{} are dirty, {} more each second: in {} the kernel begins to pause writers, at {}.",
        Unit::Bytes.show(prediction.level_bytes),
        Unit::Bytes.show(prediction.growth_bytes_per_s),
        Unit::Seconds.show(left_s),
        Unit::Bytes.show(prediction.target_bytes),
    );
    finding.evidence = vec![
        Figure::new("time_to_cliff_s", left_s, Unit::Seconds, "time until writers are paused"),
        Figure::new("dirty_level_bytes", prediction.level_bytes, Unit::Bytes, "dirty and under writeback"),
        Figure::new("growth_bytes_per_s", prediction.growth_bytes_per_s, Unit::BytesPerSecond, "growth"),
        Figure::new(
            "pause_begins_bytes",
            prediction.target_bytes,
            Unit::Bytes,
            "where the kernel begins to pause writers",
        ),
    ];
    Some(finding)
}

/// Whether the level rose in every part of the look; false where the readings do not reach back so far.
fn rising(window: &Window, dev: &str, from: Moment) -> bool {
    let mut readings = crate::drain::levels(window, dev);
    readings.retain(|(at, _)| *at <= window.to);
    let at = |part: usize| {
        let moment = from + Span::from_seconds(window.to.seconds_since(from) * part as f64 / PARTS as f64);
        let before = readings.iter().rev().find(|(when, _)| *when <= moment);
        let near = before.or(readings.first().filter(|_| part == 0))?;
        (moment.seconds_since(near.0).abs() <= 1.5).then_some(near.1)
    };
    let levels: Option<Vec<f64>> = (0..=PARTS).map(at).collect();
    levels.is_some_and(|levels| levels.windows(2).all(|pair| pair[1] > pair[0]))
}
