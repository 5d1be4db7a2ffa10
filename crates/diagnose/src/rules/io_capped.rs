//! io-capped: a ceiling on I/O is reached while the device itself could do more.
//!
//! A request that a control group or a cloud volume holds back is in no queue that the host shows. What shows it is the
//! rate of completions, flat at the limit, while tasks wait on I/O; and the device, which is idle for some
//! of the time behind a control group, and busy in front of a volume's own queue.

use super::wal_evidence::held_by_device;
use crate::Options;
use crate::caps::{self, Cap, CapOwner, CapUnit};
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::grid::{Lane, both, episodes, longest};
use crate::iops;
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use crate::waits::{Wait, classify};
use backwater_model::{Confidence, Figure, Finding, RuledOut, Severity, Unit, catalogue as cat};
use std::ops::Range;

/// Share of time in which tasks must wait on I/O: a ceiling that nobody waits at costs nothing.
const WAITING: f64 = 0.2;
/// A device busier than this could not do twice as much; reads beside the capped writes make it somewhat busy.
const NOT_BUSY: f64 = 0.5;
/// A device busier than this may itself be what tasks wait for, its rate at a control group's limit by chance. Idle for a fifth
/// of the time it is not, though it be busy: one that serves many requests at once is so long before it is full.
pub(super) const LEAVES_IDLE: f64 = 0.8;
/// A volume at its rating has something in line most of the time; one that is less busy is near it by chance.
const BUSY_AT_RATING: f64 = 0.5;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 4;
const BRIDGE_S: usize = 2;
/// A plateau: seconds it must last and how little the rate may vary (standard deviation ÷ mean).
const PLATEAU_S: usize = 8;
const PLATEAU_CV: f64 = 0.03;

/// A ceiling that was reached.
struct Reached<'a> {
    device: &'a DeviceView,
    cause: &'static str,
    cap: &'a Cap,
    range: Range<usize>,
    seconds: usize,
    limit: f64,
}

/// The findings of a window: at most one a device, of the ceiling that held longest.
pub(super) fn find(scene: &Scene<'_>, options: &Options) -> Vec<Finding> {
    let of_device = |device| {
        let caps = caps::of(scene, device);
        let reached = caps.iter().filter_map(|cap| reached(scene, device, cap, &caps));
        let best = reached.max_by_key(|reached| reached.seconds);
        best.map(|reached| finding(scene, &reached, options)).or_else(|| plateau(scene, device, options))
    };
    scene.devices.iter().filter_map(of_device).collect()
}

/// When anything known caps this device, for rules that must not blame the device for it.
pub(super) fn capped(scene: &Scene<'_>, device: &DeviceView) -> Vec<bool> {
    let mut any = vec![false; scene.grid.count];
    for cap in caps::of(scene, device) {
        any.iter_mut().zip(cap.reached()).for_each(|(any, reached)| *any |= reached);
    }
    any
}

fn reached<'a>(scene: &Scene<'_>, device: &'a DeviceView, cap: &'a Cap, all: &[Cap]) -> Option<Reached<'a>> {
    let waiting = scene.waiting(&scene.waits(device), WAITING);
    let flags = both(&both(&cap.reached(), &waiting), &fits(device, cap, LEAVES_IDLE));
    let at_limit = longest(&episodes(&flags, LEAST_S, BRIDGE_S));
    let stretches = [at_limit, in_lumps(device, cap, &waiting)];
    let (range, seconds) = stretches.into_iter().flatten().max_by_key(|(_, seconds)| *seconds)?;
    let limit = cap.limit.median(&range)?;
    let spent = cap.owner == CapOwner::Declared && cap.unit == CapUnit::Operations && burst_before(cap, all, &range);
    let cause = match cap.owner {
        CapOwner::Cgroup(_) => "cgroup-cap",
        CapOwner::Declared if spent => "burst-spent",
        CapOwner::Declared => "declared-cap",
    };
    Some(Reached { device, cause, cap, range, seconds, limit })
}

/// Second by second, whether the device is as busy as it would be at this limit. The guest sees a cloud volume's queue as a device
/// that is busy; a control group's never reaches the device, which is busy for `idle` of the time at most.
pub(super) fn fits(device: &DeviceView, cap: &Cap, idle: f64) -> Vec<bool> {
    let busy = device.busy.smooth(1);
    match cap.owner {
        CapOwner::Declared => busy.flags(|busy| busy >= BUSY_AT_RATING),
        CapOwner::Cgroup(_) => busy.flags(|busy| busy <= idle),
    }
}

/// When a control group's limit held requests so large that each is seconds' worth of it: then it is reached in no second, though
/// tasks wait in all of them, and the device, which could do twice as much, does nothing in most.
fn in_lumps(device: &DeviceView, cap: &Cap, waiting: &[bool]) -> Option<(Range<usize>, usize)> {
    if cap.owner == CapOwner::Declared {
        return None;
    }
    let standing = both(waiting, &device.busy.smooth(1).flags(|busy| busy <= NOT_BUSY));
    let held: Vec<_> =
        episodes(&standing, LEAST_S, BRIDGE_S).iter().flat_map(|range| cap.held_in_lumps(range)).collect();
    longest(&held)
}

/// Whether the volume ran well above this rating, its baseline, before it fell to it: then its credit is spent.
fn burst_before(cap: &Cap, all: &[Cap], range: &Range<usize>) -> bool {
    let limit = cap.limit.median(range).unwrap_or(f64::INFINITY);
    let declared = all.iter().filter(|other| other.owner == CapOwner::Declared && other.unit == cap.unit);
    let has_burst = declared.filter_map(|other| other.limit.median(range)).any(|other| other > limit * 1.1);
    let before = cap.rate.smooth(1).flags(|rate| rate > limit * 1.3);
    has_burst && before[..range.start].iter().filter(|flag| **flag).count() >= 5
}

fn finding(scene: &Scene<'_>, reached: &Reached<'_>, options: &Options) -> Finding {
    let (device, range) = (reached.device, &reached.range);
    let storage = scene.lost(device, range, |sample| classify(sample) != Wait::Other);
    let (from, to) = scene.grid.span(range);
    let missing = not_seen(scene, reached);
    let pressure_seen = scene.psi_io.mean(range).is_some();
    let confidence = match (&reached.cap.owner, pressure_seen) {
        // The device's rate at the limit of a group that is not all of its users may be chance.
        (CapOwner::Cgroup(_), true) if reached.cap.of_some && !reached.cap.own_rate_seen() => Confidence::Low,
        (CapOwner::Cgroup(_), true) => Confidence::High,
        (CapOwner::Declared, true) => Confidence::Medium,
        _ => Confidence::Low,
    };
    let severe = storage.is_some_and(|share| share >= 0.5);
    Finding {
        rule: "io-capped".to_owned(),
        cause: reached.cause.to_owned(),
        severity: if severe { Severity::Critical } else { Severity::Warning },
        queue: format!("host.disk@{}", device.dev),
        server: None,
        from,
        to,
        foreground_lost: storage,
        summary: summary(scene, reached),
        evidence: evidence(scene, reached),
        ruled_out: ruled_out(device, range, reached.cause),
        unseen: missing,
        confidence,
        victims: held_by_device(scene, device),
        remedies: iops::remedies(scene, device, reached.cap, range, options),
    }
}

fn unit(cap: &Cap) -> (Unit, &'static str, &'static str) {
    match cap.unit {
        CapUnit::Operations => (Unit::PerSecond, "rate_iops", "limit_iops"),
        CapUnit::Bytes => (Unit::BytesPerSecond, "rate_bytes_per_s", "limit_bytes_per_s"),
    }
}

fn evidence(scene: &Scene<'_>, reached: &Reached<'_>) -> Vec<Figure> {
    let (device, range, cap) = (reached.device, &reached.range, reached.cap);
    let (unit, rate_name, limit_name) = unit(cap);
    let mut figures = Figures::default();
    figures.add(limit_name, Some(reached.limit), unit, "the ceiling");
    let rate = cap.passing().mean(range);
    let whose = if cap.own_rate_seen() { "counted for the group, mean" } else { "completed by the device, mean" };
    figures.add(rate_name, rate, unit, whose);
    figures.add("reached_ratio", rate.map(|rate| rate / reached.limit), Unit::Ratio, "rate ÷ ceiling");
    figures.add("psi_io_some_ratio", scene.psi_io.mean(range), Unit::Ratio, "time in which some task waited on I/O");
    figures.add("device_busy_ratio", device.busy.mean(range), Unit::Ratio, "device busy");
    figures.add("await_ms", device.await_ms.mean(range), Unit::Milliseconds, "time of a request in the device");
    figures.add("write_size_bytes", device.write_size(range), Unit::Bytes, "mean size of a write");
    figures.add("inflow_bytes_per_s", device.inflow.mean(range), Unit::BytesPerSecond, "page cache dirtied meanwhile");
    figures.add(
        "outflow_bytes_per_s",
        device.drained().mean(range),
        Unit::BytesPerSecond,
        "page cache written meanwhile",
    );
    figures.add("capped_s", Some(reached.seconds as f64), Unit::Seconds, "seconds of it in this window");
    figures.list()
}

fn summary(scene: &Scene<'_>, reached: &Reached<'_>) -> String {
    let (unit, ..) = unit(reached.cap);
    let range = &reached.range;
    let rate = unit.show(reached.cap.passing().mean(range).unwrap_or(reached.limit));
    let whose = match (&reached.cap.owner, reached.cause) {
        (CapOwner::Cgroup(group), _) => format!("the limit of control group {group}"),
        (_, "burst-spent") => "the volume's baseline, its burst credit being spent,".to_owned(),
        _ => "the rating declared for the volume".to_owned(),
    };
    let what = if reached.cap.own_rate_seen() { "is sent" } else { "completes" };
    let (name, limit) = (&reached.device.name, unit.show(reached.limit));
    let mut text = format!("Device {name} {what} {rate}, which is {whose} of {limit}.");
    if let Some(psi) = scene.psi_io.mean(range) {
        text.push_str(&format!(" Some task waits on I/O {} of the time", Unit::Ratio.show(psi)));
        match reached.device.busy.mean(range) {
            Some(busy) => text.push_str(&format!(", while the device is busy {} of it.", Unit::Ratio.show(busy))),
            None => text.push('.'),
        }
    }
    text
}

fn ruled_out(device: &DeviceView, range: &Range<usize>, cause: &str) -> Vec<RuledOut> {
    let mut list = Vec::new();
    if let Some(busy) = device.busy.mean(range).filter(|busy| *busy <= NOT_BUSY) {
        let because = format!("the device is busy {} of the time", Unit::Ratio.show(busy));
        list.push(RuledOut { cause: "device-saturated".to_owned(), because });
    }
    if cause == "declared-cap" {
        let because = "no rate far above the rating was seen before".to_owned();
        list.push(RuledOut { cause: "burst-spent".to_owned(), because });
    }
    list
}

fn not_seen(scene: &Scene<'_>, reached: &Reached<'_>) -> Vec<backwater_model::Unseen> {
    let mut missing = Missing::default();
    let waits = scene.waits(reached.device);
    let counted = !reached.cap.of_some || reached.cap.own_rate_seen();
    missing.unless(scene.window, counted, &unseen::GROUP_RATES);
    missing.unless(scene.window, waits.active.known(), &unseen::SESSIONS);
    missing.unless(scene.window, waits.kernel_seen, &unseen::KERNEL_WAITS);
    missing.unless(scene.window, unseen::seen(scene.window, &cat::PSI_IO_SOME), &unseen::PRESSURE);
    missing.list()
}

/// A flat rate well below what was declared: the volume, or the machine it hangs on, has another ceiling. Looked for only on
/// volumes that were declared: on others a flat rate is more often a flat load.
fn plateau(scene: &Scene<'_>, device: &DeviceView, options: &Options) -> Option<Finding> {
    let [Some(declared), ..] = caps::ratings(scene.window, device) else { return None };
    let rate = caps::completions(device, caps::Op::Any, CapUnit::Operations);
    let waiting = scene.waiting(&scene.waits(device), WAITING);
    let quiet = device.busy.smooth(1).flags(|busy| busy <= NOT_BUSY);
    let below = rate.smooth(1).flags(|rate| rate > 10.0 && rate < 0.85 * declared);
    let flat = both(&flat(&rate), &below);
    let (range, seconds) = longest(&episodes(&both(&flat, &both(&waiting, &quiet)), PLATEAU_S, 0))?;
    let limit = rate.mean(&range)?;
    let owner = CapOwner::Declared;
    let lane = scene.grid.lane(|_| Some(limit));
    let cap = Cap {
        owner,
        op: caps::Op::Any,
        unit: CapUnit::Operations,
        limit: lane,
        rate,
        group_rate: scene.grid.unknown(),
        of_some: false,
        bounds_writeback: true,
    };
    let reached = Reached { device, cause: "volume-cap", cap: &cap, range, seconds, limit };
    let mut finding = finding(scene, &reached, options);
    finding.confidence = Confidence::Low;
    finding.summary = format!(
        "Device {} completes a flat {} though {} were declared: the volume or the machine it hangs on has a lower ceiling.",
        device.name,
        Unit::PerSecond.show(limit),
        Unit::PerSecond.show(declared),
    );
    finding.evidence.push(Figure::new("declared_iops", declared, Unit::PerSecond, "the declared rating"));
    Some(finding)
}

/// Seconds around which the rate hardly varies.
fn flat(rate: &Lane) -> Vec<bool> {
    let spread = |second: usize| {
        let values = rate.values(&(second.saturating_sub(2)..second + 3));
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
        values.len() >= 4 && mean > 0.0 && variance.sqrt() / mean <= PLATEAU_CV
    };
    (0..rate.0.len()).map(spread).collect()
}
