//! Predictions: when the cliff comes, and how long the drain will take.
//!
//! The kernel begins to pause writers when dirty + under writeback passes (background + threshold) ÷ 2
//! (`dirty_freerun_ceiling`, mm/page-writeback.c). Nothing is written until the background limit is passed and the
//! flusher wakes, at most one period of vm.dirty_writeback_centisecs (5 s) later. So the level goes up in two straight lines:
//! by what is dirtied, then by what is dirtied less what the device writes. Against eight measured runs (limits of 64, 256
//! and 384 MiB at 1,500 operations a second) this came within 30 % of the cliff as seen in throughput. A device that has
//! written little lately has a low threshold that will climb; the prediction aims at where it goes (`limits::settled`).

use crate::caps;
use crate::device::DeviceView;
use crate::drain;
use crate::grid::Grid;
use crate::limits::{self, DirtyLimit, LimitOwner};
use crate::scene::Scene;
use backwater_model::{Moment, Span, Window};
use serde::Serialize;

/// The flusher's period in seconds (vm.dirty_writeback_centisecs), and how late it starts on average.
const FLUSHER_S: f64 = 5.0;
/// PostgreSQL's block: the size of a write where none was seen.
const BLOCK_BYTES: f64 = 8192.0;
/// The level counts as rising once it has gained this share of the limit.
const RISEN: f64 = 0.01;
/// Rates at the end of a load are taken over so many seconds.
const RATE_S: f64 = 3.0;

/// What a prediction of the cliff rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The device was already writing: the level's own slope.
    NetSlope,
    /// The device was not writing yet, and what it can write is known: two slopes.
    InflowThenCeiling,
    /// The device was not writing yet, and what it can write is unknown: what is dirtied, as if nothing were written.
    InflowOnly,
    /// The level was already there.
    Reached,
}

/// When writers will begin to be paused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CliffPrediction {
    /// Seconds after the start of the readings that were used.
    pub at_s: f64,
    /// The level at the end of those readings.
    pub level_bytes: f64,
    /// How fast it grew.
    pub growth_bytes_per_s: f64,
    /// Where pauses begin.
    pub target_bytes: f64,
    /// Whose limit it is.
    pub limit: LimitOwner,
    /// What the prediction rests on.
    pub basis: Basis,
}

/// When the drain would end if the load ended now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DrainPrediction {
    /// Seconds until the level is at the background limit: (level − background) ÷ outflow.
    pub drain_s: f64,
    /// Seconds until nothing is dirty, if the kernel wrote all of it: level ÷ outflow. What is at risk until then.
    pub whole_s: f64,
    /// Dirty and under writeback at that moment.
    pub level_bytes: f64,
    /// The background limit.
    pub background_bytes: f64,
    /// What leaves, a second.
    pub outflow_bytes_per_s: f64,
    /// Whether that was seen (else it is the known ceiling × the size of a write).
    pub outflow_seen: bool,
}

/// The slopes of a device's dirty pages over a stretch.
struct Slopes {
    /// When the level began to rise.
    rise: Moment,
    end: Moment,
    level: f64,
    net: f64,
    outflow: f64,
}

/// When the cliff will come, from the readings of `seen_s` seconds after `from`. The earliest of the limits that hold for the
/// device. None where the level does not grow, is unknown, or will stop growing before it gets there.
pub fn time_to_cliff(window: &Window, dev: &str, from: Moment, seen_s: f64) -> Option<CliffPrediction> {
    // Only what was known by then: the future must not leak into a prediction.
    let seen = window.slice(from, from + Span::from_seconds(seen_s));
    let known = window.slice(window.from, from + Span::from_seconds(seen_s));
    let ceiling = ceiling(&known, dev);
    let scene = Scene::bare(&seen);
    let device = DeviceView::of(&seen, &scene.grid, dev);
    let predictions = limits::of(&scene, &device).into_iter().filter_map(|limit| {
        let slopes = slopes(&seen, dev, &limit)?;
        predict(&limit, &slopes, &seen, ceiling, from)
    });
    predictions.min_by(|a, b| a.at_s.total_cmp(&b.at_s))
}

/// What the device can write, in bytes a second, where a ceiling is known.
fn ceiling(known: &Window, dev: &str) -> Option<f64> {
    let scene = Scene::bare(known);
    let device = DeviceView::of(known, &scene.grid, dev);
    let all = 0..scene.grid.count;
    let size = device.write_size(&all).unwrap_or(BLOCK_BYTES).max(BLOCK_BYTES);
    // Metadata and merged writes make the mean of a quiet device large; a flood of data blocks is what is coming.
    caps::drain_ceiling(&caps::of(&scene, &device), size.min(2.0 * BLOCK_BYTES))
}

fn slopes(seen: &Window, dev: &str, limit: &DirtyLimit) -> Option<Slopes> {
    let readings = readings(seen, dev, limit);
    let threshold = limit.threshold.median(&(0..limit.threshold.0.len()))?;
    let (_, first) = *readings.first()?;
    let rise = readings.iter().position(|(_, level)| *level > first + RISEN * threshold)?;
    let ((rise, low), (end, level)) = (readings[rise.saturating_sub(1)], *readings.last()?);
    let seconds = end.seconds_since(rise);
    if seconds < 0.5 {
        return None;
    }
    let queue = crate::queues::queues(&seen.meta).into_iter().find(|queue| queue.name == format!("host.dirty@{dev}"));
    let outflow = queue.and_then(|queue| queue.outflow.rate(seen, end, seconds));
    Some(Slopes { rise, end, level, net: (level - low) / seconds, outflow: outflow.unwrap_or(0.0) })
}

/// The level as it was read, not averaged over seconds: three seconds hold too few of those.
fn readings(seen: &Window, dev: &str, limit: &DirtyLimit) -> Vec<(Moment, f64)> {
    if limit.owner == LimitOwner::Device && !limit.level_is_bound {
        return drain::levels(seen, dev);
    }
    let grid = Grid::of(seen);
    let level = |second| Some((grid.start(second + 1), limit.level.get(second)?));
    (0..grid.count).filter_map(level).collect()
}

fn predict(
    limit: &DirtyLimit,
    slopes: &Slopes,
    seen: &Window,
    ceiling: Option<f64>,
    from: Moment,
) -> Option<CliffPrediction> {
    let all = 0..limit.threshold.0.len();
    let growth = limit.growth();
    let (background, target) = (growth * limit.background.median(&all)?, growth * limit.pause().median(&all)?);
    let now = slopes.end.seconds_since(from);
    let found = |at_s: f64, basis| CliffPrediction {
        at_s,
        level_bytes: slopes.level,
        growth_bytes_per_s: slopes.net,
        target_bytes: target,
        limit: limit.owner.clone(),
        basis,
    };
    if slopes.level >= target {
        let passed = readings_passed(seen, limit, target, from).unwrap_or(now);
        return Some(found(passed.min(now), Basis::Reached));
    }
    if slopes.net <= 0.0 || slopes.end <= slopes.rise {
        return None;
    }
    let straight = now + (target - slopes.level) / slopes.net;
    if slopes.outflow > 0.1 * slopes.net {
        return Some(found(straight, Basis::NetSlope));
    }
    let Some(ceiling) = ceiling else { return Some(found(straight, Basis::InflowOnly)) };
    // The flusher wakes half a period after the background limit is passed, on average.
    let wakes = now + ((background - slopes.level) / slopes.net).max(0.0) + FLUSHER_S / 2.0;
    if wakes >= straight {
        return Some(found(straight, Basis::InflowThenCeiling));
    }
    let (level, growth) = (slopes.level + (wakes - now) * slopes.net, slopes.net - ceiling);
    (growth > 0.0).then(|| found(wakes + (target - level) / growth, Basis::InflowThenCeiling))
}

/// When the level passed the target within the readings.
fn readings_passed(seen: &Window, limit: &DirtyLimit, target: f64, from: Moment) -> Option<f64> {
    let second = limit.level.0.iter().position(|level| level.is_some_and(|level| level >= target))?;
    Some(Grid::of(seen).start(second).seconds_since(from))
}

/// How long the drain will take if the load ends at `at`: rates over the three seconds before. None where the level or the
/// limit is unknown, or nothing was written and no ceiling is known.
pub fn drain_time(window: &Window, dev: &str, at: Moment) -> Option<DrainPrediction> {
    let known = window.slice(window.from, at);
    let (at, level) =
        drain::levels(&known, dev).into_iter().next_back().filter(|(when, _)| at.seconds_since(*when) <= 1.5)?;
    let background = drain::background_at(&known, dev, at)?;
    let seen = outflow(&known, dev, at).filter(|rate| *rate > 0.0);
    let outflow = seen.or_else(|| ceiling(&known, dev))?;
    Some(DrainPrediction {
        drain_s: (level - background).max(0.0) / outflow,
        whole_s: level / outflow,
        level_bytes: level,
        background_bytes: background,
        outflow_bytes_per_s: outflow,
        outflow_seen: seen.is_some(),
    })
}

fn outflow(window: &Window, dev: &str, at: Moment) -> Option<f64> {
    let track = crate::device::track(window, &backwater_model::catalogue::BDI_WRITTEN, dev)
        .or_else(|| crate::device::track(window, &backwater_model::catalogue::DISK_WRITTEN_BYTES, dev))?;
    track.between(at - Span::from_seconds(RATE_S), at).rate()
}
