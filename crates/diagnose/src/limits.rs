//! Which dirty limits stand, and where writers begin to pause. Source: Linux `mm/page-writeback.c`:
//! `domain_dirty_limits` (background and threshold), `wb_calc_thresh` (a device's share), and
//! `dirty_freerun_ceiling`, by which `balance_dirty_pages` begins to pause writers at (background + threshold) ÷ 2.

use crate::device::{self, DeviceView};
use crate::grid::{Grid, Lane};
use crate::scene::Scene;
use backwater_model::{HostFacts, Source, Window, catalogue as cat};
use serde::Serialize;

/// Whose dirty limit it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitOwner {
    /// The device's own (`max_bytes`, `max_ratio`, `strict_limit`).
    Device,
    /// A memory cgroup's, by the name of the group.
    Cgroup(String),
    /// The whole host's.
    Host,
}

impl LimitOwner {
    /// The cause under which dirty-throttle names it.
    pub fn cause(&self) -> &'static str {
        match self {
            LimitOwner::Device => "device-limit",
            LimitOwner::Cgroup(_) => "cgroup-limit",
            LimitOwner::Host => "host-limit",
        }
    }
}

/// One dirty limit over time, in bytes.
pub(crate) struct DirtyLimit {
    pub(crate) owner: LimitOwner,
    pub(crate) level: Lane,
    pub(crate) background: Lane,
    pub(crate) threshold: Lane,
    /// What the threshold goes to while the present load lasts; differs from it only for a device's own (`settled`).
    pub(crate) settled: Lane,
    /// Whether `level` is an upper bound (the whole host's dirty pages) because the device's own is not visible.
    pub(crate) level_is_bound: bool,
}

impl DirtyLimit {
    /// Where writers begin to pause.
    pub(crate) fn pause(&self) -> Lane {
        self.background.with(&self.threshold, |background, threshold| (background + threshold) / 2.0)
    }

    /// How far the threshold will move, as of the last second: settled ÷ present, the background limit going with it. 1
    /// where unknown.
    pub(crate) fn growth(&self) -> f64 {
        let last = self.settled.0.iter().zip(&self.threshold.0).rev().find_map(|(settled, now)| settled.zip(*now));
        last.filter(|(_, now)| *now > 0.0).map_or(1.0, |(settled, now)| (settled / now).max(1.0))
    }
}

/// A device's limit counts as its own when it is below this share of the host's.
const OWN_BELOW: f64 = 0.9;
/// The least that can be dirty.
const PAGE_BYTES: f64 = 4096.0;
/// Seconds to each side over which the kernel's moving share of a device is steadied.
const STEADY: usize = 5;

/// Every limit that holds for writers to this device, the narrowest owner first.
pub(crate) fn of(scene: &Scene<'_>, device: &DeviceView) -> Vec<DirtyLimit> {
    let mut limits: Vec<DirtyLimit> = own(scene, device).into_iter().collect();
    limits.extend(cgroups(scene, device));
    limits.extend(host(scene));
    // A limit of less than a page is a misreading, not a limit.
    limits.iter_mut().for_each(|limit| limit.threshold = limit.threshold.at_least(PAGE_BYTES));
    limits.retain(|limit| limit.threshold.known());
    limits
}

/// Background ÷ threshold, as the kernel applies it to every domain.
pub(crate) fn background_share(window: &Window, grid: &Grid, dev: &str) -> Lane {
    let ratio =
        |background, threshold| grid.gauge(background).with(&grid.gauge(threshold), |b: f64, t: f64| share(b, t));
    let (background, threshold) = (&cat::BDI_BACKGROUND_THRESH, &cat::BDI_GLOBAL_DIRTY_THRESH);
    let by_device = ratio(device::track(window, background, dev), device::track(window, threshold, dev));
    let vm = |name| window.track(name, &[]);
    let by_host = ratio(vm(cat::VM_BACKGROUND_THRESHOLD.name), vm(cat::VM_DIRTY_THRESHOLD.name));
    // The kernel halves a background limit that is not below the threshold; half is also its default.
    by_device.or(&by_host).or(&grid.lane(|_| Some(0.5)))
}

fn share(background: f64, threshold: f64) -> f64 {
    if threshold > 0.0 && background < threshold { background / threshold } else { 0.5 }
}

/// The device's own limit, where one is set.
fn own(scene: &Scene<'_>, device: &DeviceView) -> Option<DirtyLimit> {
    let (window, grid) = (scene.window, &scene.grid);
    let gauge = |def| grid.gauge(device::track(window, def, &device.dev));
    let strict = gauge(&cat::BDI_STRICT_LIMIT);
    let host = gauge(&cat::BDI_GLOBAL_DIRTY_THRESH).or(&grid.gauge(window.track(cat::VM_DIRTY_THRESHOLD.name, &[])));
    let by_ratio = gauge(&cat::BDI_MAX_RATIO).with(&host, |ratio, host| ratio * host);
    let configured = gauge(&cat::BDI_MAX_BYTES).or(&by_ratio);
    let set = grid.lane(|second| {
        let narrow = configured.get(second).zip(host.get(second)).is_some_and(|(own, host)| own < OWN_BELOW * host);
        (strict.get(second).is_some_and(|flag| flag > 0.0) || narrow).then_some(1.0)
    });
    let measured = gauge(&cat::BDI_DIRTY_THRESH).steady(STEADY);
    let threshold = measured.or(&configured).with(&set, |threshold, _| threshold);
    if !threshold.known() {
        return None;
    }
    let level_is_bound = !device.level.known();
    let level = if level_is_bound { scene.host_level.clone() } else { device.level.clone() };
    let background = background_share(window, grid, &device.dev).with(&threshold, |share, threshold| share * threshold);
    let settled = settled(scene, device, &threshold, &configured.with(&set, |own, _| own), &host);
    Some(DirtyLimit { owner: LimitOwner::Device, level, background, threshold, settled, level_is_bound })
}

/// Where a device's threshold goes. The kernel gives each device the part of the host's threshold that is its part of what
/// was lately written out, up to the configured limit (`wb_calc_thresh`): a device that has written nothing yet starts
/// low, and climbs once it is written to. In the long run what is written is what is dirtied, so its part of that says where.
fn settled(scene: &Scene<'_>, device: &DeviceView, threshold: &Lane, configured: &Lane, host: &Lane) -> Lane {
    let (window, grid) = (scene.window, &scene.grid);
    let everybody = grid.rate(window.track(cat::VM_DIRTIED.name, &[]));
    let part = device.inflow.with(&everybody, |own, all| if all > 0.0 { (own / all).min(1.0) } else { 0.0 });
    let earned = part.with(host, |part, host| part * host).with(configured, f64::min);
    threshold.with(&earned, f64::max).or(threshold)
}

/// Limits of the memory cgroups in which the device's users run (of all that are read, where that is unknown).
fn cgroups(scene: &Scene<'_>, device: &DeviceView) -> Vec<DirtyLimit> {
    let (window, grid) = (scene.window, &scene.grid);
    let meta = &window.meta;
    let ours: Vec<&str> = meta
        .targets
        .iter()
        .filter(|target| device.targets.is_empty() || device.targets.contains(&target.name))
        .filter_map(|target| target.memory_cgroup.as_deref())
        .collect();
    let groups = window.tracks(cat::CGROUP_DIRTY.name, &[]).filter_map(|track| track.series.labels.get("cgroup"));
    let groups = groups.filter(|group| ours.is_empty() || ours.contains(group));
    let limit = |group: &str| {
        let gauge = |name| grid.gauge(window.track(name, &[("cgroup", group)]));
        let level =
            gauge(cat::CGROUP_DIRTY.name).with(&gauge(cat::CGROUP_WRITEBACK.name), |dirty, writing| dirty + writing);
        let [background, threshold] =
            of_group(&meta.host, group).map(|limit| grid.level(window, &limit).steady(STEADY));
        let owner = LimitOwner::Cgroup(group.to_owned());
        let settled = threshold.clone();
        DirtyLimit { owner, level, background, threshold, settled, level_is_bound: false }
    };
    groups.map(limit).filter(|limit| limit.threshold.known() && limit.level.known()).collect()
}

/// A ratio that was read differs from the one measured by more than this share of it: it has been changed since. The
/// measured one is rough, for it is taken of MemAvailable and not of what the kernel counts as dirtyable.
const CHANGED: f64 = 0.25;

/// Where background writing begins for a control group, and its dirty limit: dirty_background_ratio and dirty_ratio of what it
/// may dirty. The settings are read when a recording begins; the host's thresholds, read all the time, tell whether they still
/// hold, and stand in for them where they do not. Where bytes are set instead, the kernel turns them into a share of the host's
/// dirtyable memory for every group; MemAvailable is the nearest reading of that.
pub(crate) fn of_group(host: &HostFacts, group: &str) -> [Source; 2] {
    let percent = |name: &str| host.sysctls.get(name).and_then(|text| text.trim().parse::<f64>().ok());
    let told = |name: &str| percent(name).filter(|percent| *percent > 0.0).map(|percent| percent / 100.0);
    let ratio = told("vm.dirty_ratio");
    // The kernel halves a background limit that is not below the threshold.
    let halved = |background: f64| ratio.filter(|ratio| background >= *ratio).map_or(background, |ratio| ratio / 2.0);
    let background = told("vm.dirty_background_ratio").map(halved);
    let may_dirty = |share: f64| {
        Source::Sum(vec![(cat::CGROUP_MEMORY_RECLAIMABLE.name, vec![("cgroup", group.to_owned())], share)])
    };
    let limit = |(told, threshold): (Option<f64>, &'static str)| {
        let [threshold, available] = [threshold, cat::MEM_AVAILABLE.name].map(|name| Source::series(name, &[]));
        let measured = Source::Share(Box::new([may_dirty(1.0), threshold, available]));
        Source::Told(Box::new([told.map_or(Source::Unknown, may_dirty), measured]), CHANGED)
    };
    [(background, cat::VM_BACKGROUND_THRESHOLD.name), (ratio, cat::VM_DIRTY_THRESHOLD.name)].map(limit)
}

/// Whether the ratios could be checked against readings of the window.
pub(crate) fn ratios_measured(window: &Window) -> bool {
    let seen = |def| crate::unseen::seen(window, def);
    seen(&cat::MEM_AVAILABLE) && seen(&cat::VM_DIRTY_THRESHOLD) && seen(&cat::VM_BACKGROUND_THRESHOLD)
}

/// The whole host's limit.
fn host(scene: &Scene<'_>) -> Option<DirtyLimit> {
    let gauge = |name| scene.grid.gauge(scene.window.track(name, &[]));
    let (threshold, background) = (gauge(cat::VM_DIRTY_THRESHOLD.name), gauge(cat::VM_BACKGROUND_THRESHOLD.name));
    let level = scene.host_level.clone();
    let known = level.known() && threshold.known() && background.known();
    let settled = threshold.clone();
    known.then_some(DirtyLimit {
        owner: LimitOwner::Host,
        level,
        background,
        threshold,
        settled,
        level_is_bound: false,
    })
}
