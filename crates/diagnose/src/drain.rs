//! The drain: how long the device's dirty pages take, once nobody dirties more, to come down to the background limit.
//!
//! Definition: it ends when dirty + under writeback is at or below the device's background limit, for below that the kernel
//! starts no more writing of its own accord; what is left then waits until it is old enough (vm.dirty_expire_centisecs).

use crate::device::DeviceView;
use crate::grid::Grid;
use crate::limits;
use crate::scene::Scene;
use backwater_model::{Moment, Span, Window, catalogue as cat};
use serde::Serialize;

/// Seconds around the end of the load over which the background limit is steadied: the kernel's share of a device moves.
const STEADY_S: f64 = 3.0;

/// A drain that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Drain {
    /// From the end of the load until the level was at the background limit.
    pub drain_s: f64,
    /// What was dirty then.
    pub residual_bytes: f64,
    /// The background limit that was used.
    pub background_bytes: f64,
}

/// The drain of a device after the load ended at `load_end`. None where the level did not come down to the background limit
/// within the window, or the readings have a hole of three seconds.
pub fn measure(window: &Window, dev: &str, load_end: Moment) -> Option<Drain> {
    let readings = levels(window, dev);
    let background = background_at(window, dev, load_end)?;
    let mut before = load_end;
    for (at, level) in readings.into_iter().filter(|(at, _)| *at >= load_end) {
        if at.seconds_since(before) > 3.0 {
            return None;
        }
        if level <= background {
            return Some(Drain {
                drain_s: at.seconds_since(load_end),
                residual_bytes: level,
                background_bytes: background,
            });
        }
        before = at;
    }
    None
}

/// Dirty and under writeback as it was read: the device's, else the host's.
pub(crate) fn levels(window: &Window, dev: &str) -> Vec<(Moment, f64)> {
    let of_device = |def| crate::device::track(window, def, dev);
    let pair = of_device(&cat::BDI_RECLAIMABLE).zip(of_device(&cat::BDI_WRITEBACK));
    let host = || window.track(cat::VM_DIRTY.name, &[]).zip(window.track(cat::VM_WRITEBACK.name, &[]));
    let Some((dirty, writing)) = pair.or_else(host) else { return Vec::new() };
    let level = |point: &backwater_model::Point| Some((point.at, point.value + writing.at(point.at, 1.5)?.value));
    dirty.points.iter().filter_map(level).collect()
}

/// The background limit of a device around a moment: its own where it has one, else its share of the host's.
pub(crate) fn background_at(window: &Window, dev: &str, at: Moment) -> Option<f64> {
    limits_at(window, dev, at).map(|(background, _)| background)
}

/// Background limit and threshold of a device's pages around a moment, in bytes.
pub(crate) fn limits_at(window: &Window, dev: &str, at: Moment) -> Option<(f64, f64)> {
    let near = window.slice(at - Span::from_seconds(STEADY_S), at + Span::from_seconds(STEADY_S));
    let grid = Grid::of(&near);
    let all = 0..grid.count;
    let scene = Scene::bare(&near);
    let device = DeviceView::of(&near, &grid, dev);
    let of_owner = limits::of(&scene, &device);
    let own = of_owner.iter().find(|limit| limit.owner == limits::LimitOwner::Device);
    let host = of_owner.iter().find(|limit| limit.owner == limits::LimitOwner::Host);
    let limit = own.or(host)?;
    Some((limit.background.median(&all)?, limit.threshold.median(&all)?))
}
