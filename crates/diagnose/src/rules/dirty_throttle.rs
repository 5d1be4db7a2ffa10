//! dirty-throttle: dirty pages reached a limit and the kernel holds whoever writes.
//!
//! Held sessions are seen twice over: the level stands at or over the point where pauses begin, and sessions sleep in
//! `balance_dirty_pages` or in the queue behind one that does. Either alone is no finding.

use super::dirty_evidence;
use crate::Options;
use crate::device::DeviceView;
use crate::grid::{Lane, both, episodes, longest};
use crate::limits::{self, DirtyLimit, LimitOwner};
use crate::scene::Scene;
use crate::waits::{Wait, Waits, classify};
use backwater_model::{Finding, Sample, catalogue as cat};
use std::ops::Range;

/// The level counts as at the pausing point from this share of it on: the readings are a moment old.
const AT_PAUSE: f64 = 0.97;
/// The same while sessions are seen in the kernel's pause itself: a narrow limit is passed and left again many times a
/// second, and what is read of a second is its mean.
const NEAR_PAUSE: f64 = 0.85;
/// Share of the sessions that must then be seen there; and where many stand in line behind those, in the middle of a write of
/// their own, how many do, and what share of all that stand it must be: a file lets in one at a time, so of fifty threads that
/// write to one file, one is paused.
const SEEN_PAUSED: f64 = 0.04;
const IN_LINE: f64 = 0.4;
const SEEN_PAUSED_IN_LINE: f64 = 0.01;
/// Share of the sessions that must be held, seen in the kernel.
const HELD: f64 = 0.08;
/// The same where only the server's own wait events are seen, which writes of a healthy server show too.
const HELD_BY_SERVER: f64 = 0.3;
/// The same where the whole host's dirty pages stand in for the device's: any other busy disk fills those, so only what
/// sessions wait on tells.
const HELD_BY_BOUND: f64 = 0.4;
/// Share of the sessions that must then be seen in `balance_dirty_pages` itself.
const PAUSED_BY_BOUND: f64 = 0.02;
/// Throughput must also fall to this share where the kernel's waits are not seen.
const FALLEN: f64 = 0.75;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 3;
const BRIDGE_S: usize = 2;

/// One limit that held writers, and when.
pub(super) struct Throttle<'a> {
    pub(super) device: Option<&'a DeviceView>,
    pub(super) limit: DirtyLimit,
    pub(super) range: Range<usize>,
    pub(super) stalled_s: usize,
    pub(super) kernel_seen: bool,
}

/// The findings of a window: at most one for each limit.
pub(super) fn find(scene: &Scene<'_>, options: &Options) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut owners: Vec<LimitOwner> = Vec::new();
    // The fullest device first: a limit of the host or a group is told once, of the device that fills it.
    for device in by_level(scene) {
        let Some(throttle) = first_that_holds(scene, device) else { continue };
        if throttle.limit.owner != LimitOwner::Device && owners.contains(&throttle.limit.owner) {
            continue;
        }
        owners.push(throttle.limit.owner.clone());
        findings.push(dirty_evidence::finding(scene, &throttle, options));
    }
    findings
}

fn by_level<'a>(scene: &'a Scene<'_>) -> Vec<&'a DeviceView> {
    let all = 0..scene.grid.count;
    let mut devices: Vec<&DeviceView> = scene.devices.iter().collect();
    devices.sort_by(|a, b| b.level.max(&all).unwrap_or(-1.0).total_cmp(&a.level.max(&all).unwrap_or(-1.0)));
    devices
}

/// The narrowest limit that visibly holds the users of a device.
fn first_that_holds<'a>(scene: &Scene<'_>, device: &'a DeviceView) -> Option<Throttle<'a>> {
    let waits = scene.waits(device);
    for limit in limits::of(scene, device) {
        // A device that holds a sliver of the host's dirty pages is not what fills the host's limit.
        if limit.owner == LimitOwner::Host && !matters(scene, device) {
            continue;
        }
        if let Some((range, stalled_s)) = held(scene, &limit, &waits, &device.targets) {
            let kernel_seen = waits.kernel_seen;
            return Some(Throttle { device: Some(device), limit, range, stalled_s, kernel_seen });
        }
    }
    None
}

fn matters(scene: &Scene<'_>, device: &DeviceView) -> bool {
    let all = 0..scene.grid.count;
    match (device.level.max(&all), scene.host_level.max(&all)) {
        (Some(own), Some(host)) => own >= 0.1 * host,
        _ => true,
    }
}

/// When the level stood at the limit while sessions were held: the longest stretch, and all such seconds.
fn held(scene: &Scene<'_>, limit: &DirtyLimit, waits: &Waits, targets: &[String]) -> Option<(Range<usize>, usize)> {
    let fill: Lane = limit.level.with(&limit.pause(), |level, pause| if pause > 0.0 { level / pause } else { 0.0 });
    let seen = |paused: f64, throttled: f64| {
        let in_line = throttled >= IN_LINE && paused >= SEEN_PAUSED_IN_LINE;
        f64::from(u8::from(!limit.level_is_bound && (paused >= SEEN_PAUSED || in_line)))
    };
    let seen = waits.paused.smooth(1).with(&waits.throttled.smooth(1), seen);
    let at_pause = seen.map(|seen| if seen > 0.0 { NEAR_PAUSE } else { AT_PAUSE });
    let full = fill.with(&at_pause, |fill, at_pause| fill / at_pause).flags(|reached| reached >= 1.0);
    let least = match (limit.level_is_bound, waits.kernel_seen) {
        (true, _) => HELD_BY_BOUND,
        (false, true) => HELD,
        (false, false) => HELD_BY_SERVER,
    };
    let stuck = waits.throttled.smooth(1).flags(|share| share >= least);
    let mut stretches = episodes(&both(&full, &stuck), LEAST_S, BRIDGE_S);
    if !waits.kernel_seen {
        stretches.retain(|range| fell(scene, range));
    }
    if limit.level_is_bound {
        stretches.retain(|range| surely_held(scene, range, targets, waits.kernel_seen));
    }
    longest(&stretches)
}

/// Whether the kernel's own word on the sessions makes up for a level that is only an upper bound: some are seen paused,
/// or, where functions are unseen, those in a write of the server sleep uninterruptibly (which everybody may read).
fn surely_held(scene: &Scene<'_>, range: &Range<usize>, targets: &[String], kernel_seen: bool) -> bool {
    if kernel_seen {
        let paused = scene.share(targets, range, |sample| classify(sample) == Wait::Paused);
        return paused.is_some_and(|share| share >= PAUSED_BY_BOUND);
    }
    let stuck = |sample: &Sample| classify(sample) == Wait::Writing && sample.kernel_state == Some('D');
    scene.share(targets, range, stuck).is_some_and(|share| share >= HELD_BY_BOUND)
}

fn fell(scene: &Scene<'_>, range: &Range<usize>) -> bool {
    let (before, during) = scene.throughput_around(range);
    before.zip(during).is_some_and(|(before, during)| during <= FALLEN * before)
}

/// Whether a checkpoint synced within a stretch, by the server's own count of time.
pub(super) fn checkpoint_sync_s(scene: &Scene<'_>, range: &Range<usize>) -> Option<f64> {
    let (from, to) = scene.grid.span(range);
    let tracks = scene.window.tracks(cat::PG_CHECKPOINT_SYNC_MS.name, &[]);
    tracks.filter_map(|track| track.between(from, to).increase()).reduce(f64::max).map(|ms| ms / 1e3)
}
