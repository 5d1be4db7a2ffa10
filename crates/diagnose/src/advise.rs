//! Advice: the dirty limit for a drain-time target, PostgreSQL's own flushing, and what more I/O operations would buy.
//!
//! The limit is outflow × target: then everything that can be dirty is written within the target, which is what is at risk if
//! the power fails, and what a failover waits for. It is stricter than the drain that is seen (to the background limit),
//! on purpose. It is never under 16 MiB, and nothing is advised where no writing under load was seen.

mod engine;
mod replication;
mod ttl;

use crate::caps::{self, Cap, Op};
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::grid::Lane;
use crate::iops::{self, IopsRow};
use crate::limits::{self, DirtyLimit, LimitOwner};
use crate::remedy::{checkpoint, dirty};
use crate::scene::Scene;
use backwater_model::{Figure, Remedy, Unit, Window, catalogue as cat};
use serde::Serialize;
use std::ops::Range;

pub use crate::remedy::dirty::Mechanism;
pub(crate) use engine::remedies as engine_remedies;
pub use engine::{EngineAdvice, EngineChange, EngineOptions, advise_engines};
pub use replication::{StandbyAdvice, SurviveOptions, advise_standbys};

/// No limit below this: the flusher works in chunks, and writers would be held for every one of them.
const FLOOR_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Advised limits are whole MiB.
const MIB: f64 = 1024.0 * 1024.0;
/// A device that is busy for this share of the time does all it can.
const BUSY: f64 = 0.9;
/// A limit that moved by more than this share since it was set has drifted.
const DRIFT: f64 = 0.02;

/// What to aim for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviseOptions {
    /// Everything dirty shall be written within so many seconds.
    pub drain_target_s: f64,
    /// Price of one provisioned operation a second, a month.
    pub price_per_iops: Option<f64>,
}

impl Default for AdviseOptions {
    fn default() -> Self {
        AdviseOptions { drain_target_s: 30.0, price_per_iops: None }
    }
}

/// Advice for a whole system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The target it is for.
    pub drain_target_s: f64,
    /// For each device.
    pub devices: Vec<DeviceAdvice>,
    /// PostgreSQL's settings worth a try, whatever the device.
    pub settings: Vec<Remedy>,
    /// Why there is nothing to advise, and what to keep in mind.
    pub notes: Vec<String>,
}

/// Advice for one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceAdvice {
    /// `MAJ:MIN`.
    pub dev: String,
    /// Kernel name.
    pub name: String,
    /// What was seen: rates, levels, limits.
    pub observed: Vec<Figure>,
    /// The dirty limit to set; none where the present one serves, or too little was seen.
    pub limit: Option<LimitAdvice>,
    /// What other ratings would lead to.
    pub more_iops: Vec<IopsRow>,
    /// What is wrong with the limits as they stand: drift, a limit that does not hold.
    pub warnings: Vec<String>,
    /// Why no limit is advised.
    pub notes: Vec<String>,
}

/// A dirty limit for a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitAdvice {
    /// The limit.
    pub bytes: u64,
    /// How it is set.
    pub mechanism: Mechanism,
    /// The limit that holds now.
    pub now_bytes: Option<f64>,
    /// Time to write everything that can be dirty, now and then.
    pub whole_drain_now_s: Option<f64>,
    /// The same with the advised limit.
    pub whole_drain_s: f64,
    /// Commands.
    pub remedy: Option<Remedy>,
}

/// What to set for this system.
pub fn advise(window: &Window, options: &AdviseOptions) -> Advice {
    let scene = Scene::of(window);
    let data = scene.devices.iter().filter(|device| device.holds_data);
    let devices: Vec<DeviceAdvice> = data.map(|device| of_device(&scene, device, options)).collect();
    let mut notes = Vec::new();
    if devices.is_empty() {
        notes.push("No device with data files was seen: run on the server's host, or record as root.".to_owned());
    }
    let any = devices.iter().any(|device| device.limit.is_some());
    let target = scene.target(scene.devices.iter().find(|device| device.holds_data));
    let postgres = target.is_none_or(|target| target.kind == "postgres");
    let settings = if any && postgres { vec![checkpoint::flush_after(target)] } else { Vec::new() };
    if any {
        notes.push(
            "A smaller limit makes the drain short and the throughput steady; it does not make the device faster. \
             If more is dirtied than written, writers are held at any limit, only sooner."
                .to_owned(),
        );
    }
    Advice { drain_target_s: options.drain_target_s, devices, settings, notes }
}

/// Where the device writes as fast as it can: more is dirty than the background limit, so that the flusher never rests, or
/// a ceiling is reached, or the device is busy all the time. Elsewhere it writes what it is sent, which says nothing of
/// what it could write.
fn at_full_rate(scene: &Scene<'_>, device: &DeviceView) -> Vec<bool> {
    let over = holding(scene, device)
        .map(|limit| limit.level.with(&limit.background, |level, background| level - background))
        .unwrap_or_else(|| scene.grid.unknown());
    let mut full = over.flags(|bytes| bytes >= 0.0);
    let busy = device.busy.smooth(1).flags(|busy| busy >= BUSY);
    let caps = caps::of(scene, device);
    let writing = caps.iter().filter(|cap| cap.bounds_writeback && cap.op != Op::Read);
    let capped: Vec<Vec<bool>> = writing.map(Cap::reached).collect();
    for flags in capped.iter().chain([&busy]) {
        full.iter_mut().zip(flags).for_each(|(full, flag)| *full |= flag);
    }
    full
}

/// Whether a server is looked at whose load is told by its engine.
fn of_engine(scene: &Scene<'_>) -> bool {
    scene.window.meta.targets.iter().any(|target| target.kind == "mongodb")
}

/// Seconds in which the device wrote all it could while clients worked, and how much that was.
fn flushing(scene: &Scene<'_>, device: &DeviceView) -> Option<(Range<usize>, f64)> {
    let peak = scene.throughput.max(&(0..scene.grid.count))?;
    let loaded = scene.throughput.flags(|rate| rate > 0.1 * peak && rate > 0.0);
    let out: &Lane = device.drained();
    // The most while clients worked: what is written at once before or after (a sync, a checkpoint) is no measure.
    let smooth = out.smooth(1);
    let under_load = (0..scene.grid.count).filter(|second| loaded[*second]).filter_map(|second| smooth.get(second));
    let most = under_load.reduce(f64::max).filter(|rate| *rate > 0.0)?;
    let writing = smooth.flags(|rate| rate >= 0.25 * most);
    let full = at_full_rate(scene, device);
    let counts = |second: &usize| loaded[*second] && writing[*second] && full[*second];
    let seconds: Vec<usize> = (0..scene.grid.count).filter(counts).collect();
    let rates = seconds.iter().filter_map(|second| out.get(*second)).collect();
    let range = *seconds.first()?..*seconds.last()? + 1;
    // Three seconds are the least from which a rate of flushing, which goes in bursts, can be told.
    (seconds.len() >= 3).then_some((range, crate::grid::median(rates)?))
}

/// The limit that is nearest for this device now.
fn holding(scene: &Scene<'_>, device: &DeviceView) -> Option<DirtyLimit> {
    limits::of(scene, device).into_iter().find(|limit| !matches!(limit.owner, LimitOwner::Cgroup(_)))
}

/// The limit for a target, if it is lower than the one that holds.
pub(crate) fn device_limit(scene: &Scene<'_>, device: &DeviceView, target_s: f64) -> Option<LimitAdvice> {
    let (range, outflow) = flushing(scene, device)?;
    let bytes = ((outflow * target_s / MIB).floor() * MIB).max(FLOOR_BYTES);
    let holding = holding(scene, device)?;
    let now = holding.threshold.median(&range)?;
    if bytes >= now * 0.95 {
        return None;
    }
    let mechanism = dirty::mechanism(scene.window, &device.dev);
    let share = holding.background.median(&range).map_or(0.5, |background| background / now.max(1.0));
    let background = bytes * mechanism.background_share(share);
    // Under a lasting load the kernel steers the level to the middle between pausing point and limit
    // (the setpoint of `wb_position_ratio`, mm/page-writeback.c).
    let settles = ((bytes + background) / 2.0 + bytes) / 2.0;
    let demand = device.inflow.smooth(1).max(&(0..scene.grid.count));
    let mut predicted = vec![
        Figure::new("dirty_limit_bytes", bytes, Unit::Bytes, "the new limit"),
        Figure::new("whole_drain_s", bytes / outflow, Unit::Seconds, "time to write all that can be dirty"),
        Figure::new(
            "drain_s",
            (settles - background) / outflow,
            Unit::Seconds,
            "drain to the background limit, if a long load filled it",
        ),
        Figure::new("whole_drain_now_s", now / outflow, Unit::Seconds, "time to write all, with the threshold of now"),
    ];
    if let Some(demand) = demand.filter(|demand| *demand > outflow) {
        let cliff = (bytes + background) / 2.0 / demand;
        predicted.push(Figure::new(
            "time_to_cliff_s",
            cliff,
            Unit::Seconds,
            "until writers are held at full speed, at least",
        ));
    }
    Some(LimitAdvice {
        bytes: bytes as u64,
        mechanism,
        now_bytes: Some(now),
        whole_drain_now_s: Some(now / outflow),
        whole_drain_s: bytes / outflow,
        remedy: Some(dirty::set_limit(scene.window, &device.dev, bytes, predicted)),
    })
}

fn of_device(scene: &Scene<'_>, device: &DeviceView, options: &AdviseOptions) -> DeviceAdvice {
    let limit = device_limit(scene, device, options.drain_target_s);
    let flushing = flushing(scene, device);
    let holding = holding(scene, device);
    let excess = flushing
        .as_ref()
        .zip(holding.as_ref())
        .and_then(|((range, _), limit)| Some((limit.level.max(range)? - limit.background.median(range)?).max(0.0)));
    let more_iops =
        flushing.as_ref().map(|(range, _)| iops::table(scene, device, range, excess, options.price_per_iops));
    let mut notes = Vec::new();
    match (&limit, &flushing, &holding) {
        (Some(_), ..) => {}
        // What an engine's clients write is not told in these terms; its own advice says what the disk takes.
        (None, None, _) if !scene.throughput.known() && of_engine(scene) => {}
        (None, None, _) => notes.push(
            "No writing under load was seen that took all this device can do (more dirty than its background limit, a ceiling \
             reached, or the device busy), so no limit can be told. Record while it falls behind."
                .to_owned(),
        ),
        (None, Some((range, outflow)), Some(holding)) => {
            let now = holding.threshold.median(range).unwrap_or(0.0);
            let (now, takes) = (Unit::Bytes.show(now), Unit::Seconds.show(now / outflow));
            notes.push(format!("The limit of now, {now}, is written in {takes}: it serves the target."));
        }
        (None, Some(_), None) => notes.push("The dirty limit that holds now could not be read.".to_owned()),
    }
    DeviceAdvice {
        dev: device.dev.clone(),
        name: device.name.clone(),
        observed: observed(scene, device, flushing.as_ref(), holding.as_ref()),
        limit,
        more_iops: more_iops.unwrap_or_default(),
        warnings: warnings(scene, device),
        notes,
    }
}

fn observed(
    scene: &Scene<'_>,
    device: &DeviceView,
    flushing: Option<&(Range<usize>, f64)>,
    holding: Option<&DirtyLimit>,
) -> Vec<Figure> {
    let all = 0..scene.grid.count;
    let mut figures = Figures::default();
    figures.add("inflow_peak_bytes_per_s", device.inflow.smooth(1).max(&all), Unit::BytesPerSecond, "dirtied, at most");
    figures.add("outflow_bytes_per_s", flushing.map(|(_, rate)| *rate), Unit::BytesPerSecond, "written under load");
    figures.add("dirty_peak_bytes", device.level.max(&all), Unit::Bytes, "dirty, at most");
    let last = |def| crate::device::track(scene.window, def, &device.dev).and_then(backwater_model::Track::last);
    // The kernel keeps it as a share of the host's limit, and lets it breathe with how fast the device writes: what is set,
    // what is kept and what is in force are three figures.
    let kept = last(&cat::BDI_MAX_BYTES).filter(|_| last(&cat::BDI_STRICT_LIMIT) == Some(1.0));
    figures.add("dirty_limit_kept_bytes", kept, Unit::Bytes, "its own limit as the kernel keeps it (max_bytes)");
    // Of the same seconds as the limit of now below.
    let range = flushing.map_or(all.clone(), |(range, _)| range.clone());
    let of_limit = |lane: fn(&DirtyLimit) -> Lane| holding.and_then(|limit| lane(limit).median(&range));
    figures.add(
        "dirty_threshold_bytes",
        of_limit(|limit| limit.threshold.clone()),
        Unit::Bytes,
        "threshold in force (what of the limit the kernel allowed)",
    );
    figures.add(
        "dirty_background_bytes",
        of_limit(|limit| limit.background.clone()),
        Unit::Bytes,
        "its background limit",
    );
    figures.add("write_size_bytes", device.write_size(&range), Unit::Bytes, "mean size of a write");
    figures.add("writes_per_s", device.writes.mean(&range), Unit::PerSecond, "writes completed");
    figures.add("throughput_peak_per_s", scene.throughput.smooth(1).max(&all), Unit::PerSecond, scene.counted.label());
    figures.list()
}

/// Limits that do not do what whoever set them may think.
fn warnings(scene: &Scene<'_>, device: &DeviceView) -> Vec<String> {
    let mut list = Vec::new();
    let track = |def| crate::device::track(scene.window, def, &device.dev);
    let strict = track(&cat::BDI_STRICT_LIMIT).and_then(backwater_model::Track::last);
    let set = track(&cat::BDI_MAX_BYTES);
    let host = track(&cat::BDI_GLOBAL_DIRTY_THRESH).and_then(backwater_model::Track::last);
    if let Some((low, high)) = set.and_then(|track| track.min().zip(track.max()))
        && strict == Some(1.0)
        && low < high * (1.0 - DRIFT)
    {
        let (low, high) = (Unit::Bytes.show(low), Unit::Bytes.show(high));
        list.push(format!(
            "The device's limit moved between {low} and {high} within this window: either it was set anew, or it drifted, for the \
             kernel keeps it as a share of the host's limit, which moves with available memory. Set it again if it is off."
        ));
    }
    if let (Some(bytes), Some(host), Some(0.0)) = (set.and_then(backwater_model::Track::last), host, strict)
        && bytes < 0.9 * host
    {
        list.push(format!(
            "max_bytes is {}, but strict_limit is 0: the kernel looks at it only once the whole host is near its own limit.",
            Unit::Bytes.show(bytes)
        ));
    }
    list
}
