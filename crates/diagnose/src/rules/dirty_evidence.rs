//! What a dirty-throttle finding says: figures, causes ruled out, what was not seen, remedies.

use super::dirty_throttle::{Throttle, checkpoint_sync_s};
use super::draft::draft;
use crate::Options;
use crate::advise;
use crate::caps::{self, CapUnit};
use crate::figures::Figures;
use crate::grid::Grid;
use crate::limits::{DirtyLimit, LimitOwner};
use crate::remedy::{checkpoint, dirty};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use crate::waits::{Wait, classify};
use backwater_model::{Confidence, Figure, Finding, Remedy, RuledOut, Severity, Target, Unit, catalogue as cat};
use std::ops::Range;

/// The finding for one limit that held writers.
pub(super) fn finding(scene: &Scene<'_>, throttle: &Throttle<'_>, options: &Options) -> Finding {
    let (limit, range) = (&throttle.limit, &throttle.range);
    let queue = queue_name(throttle);
    let mut finding = draft("dirty-throttle", limit.owner.cause(), queue, scene.grid.span(range));
    finding.victims = vec!["pg.commit".to_owned()];
    let targets = throttle.device.map(|device| device.targets.clone()).unwrap_or_default();
    let held = |wait: Wait| matches!(wait, Wait::Paused | Wait::Queued | Wait::Writing);
    let stuck = scene.share(&targets, range, |sample| held(classify(sample)));
    let sessions = !scene.target(throttle.device).is_some_and(Target::is_engine);
    finding.foreground_lost = stuck.filter(|_| sessions);
    let paused = scene.share(&targets, range, |sample| classify(sample) == Wait::Paused);
    finding.evidence = evidence(scene, throttle, paused);
    finding.ruled_out = ruled_out(scene, throttle);
    finding.unseen = not_seen(scene, throttle);
    let (before, during) = scene.throughput_around(range);
    let fell = before.zip(during).filter(|(before, _)| *before > 0.0).map(|(before, during)| 1.0 - during / before);
    if stuck.is_some_and(|share| share >= 0.3) || fell.is_some_and(|fell| fell >= 0.3) {
        finding.severity = Severity::Critical;
    }
    let direct = paused.is_some_and(|share| share > 0.0);
    finding.confidence = match (throttle.kernel_seen, limit.level_is_bound) {
        (true, false) if direct || fell.is_some_and(|fell| fell >= 0.2) => Confidence::High,
        (true, false) => Confidence::Medium,
        // The whole host's level: what fills it may be another device.
        _ => Confidence::Low,
    };
    finding.summary = summary(&finding, throttle, fell);
    finding.remedies = remedies(scene, throttle, options);
    finding
}

fn queue_name(throttle: &Throttle<'_>) -> String {
    match (&throttle.limit.owner, throttle.device) {
        (LimitOwner::Cgroup(group), _) => format!("host.dirty@{group}"),
        (_, Some(device)) => format!("host.dirty@{}", device.dev),
        (_, None) => "host.dirty".to_owned(),
    }
}

fn evidence(scene: &Scene<'_>, throttle: &Throttle<'_>, paused: Option<f64>) -> Vec<Figure> {
    let (limit, range) = (&throttle.limit, &throttle.range);
    let mut figures = Figures::default();
    let (level, threshold) = (limit.level.mean(range), limit.threshold.median(range));
    let what = if limit.level_is_bound {
        "dirty and under writeback on the whole host, mean: the device's own is not seen"
    } else {
        "dirty and under writeback, mean"
    };
    figures.add("dirty_level_bytes", level, Unit::Bytes, what);
    figures.add("dirty_peak_bytes", limit.level.max(range), Unit::Bytes, "the most that was dirty");
    figures.add(
        "pause_begins_bytes",
        limit.pause().median(range),
        Unit::Bytes,
        "where the kernel begins to pause writers",
    );
    figures.add("dirty_threshold_bytes", threshold, Unit::Bytes, "the dirty limit that applies");
    figures.add(
        "dirty_background_bytes",
        limit.background.median(range),
        Unit::Bytes,
        "where background writing begins",
    );
    figures.add("fill_ratio", level.zip(threshold).map(|(level, limit)| level / limit), Unit::Ratio, "level ÷ limit");
    if let Some(device) = throttle.device {
        let before = range.start.saturating_sub(15)..range.start;
        figures.add(
            "inflow_before_bytes_per_s",
            device.inflow.max(&before),
            Unit::BytesPerSecond,
            "dirtied just before, at most",
        );
        figures.add(
            "inflow_bytes_per_s",
            device.inflow.mean(range),
            Unit::BytesPerSecond,
            "dirtied while writers were held",
        );
        figures.add("outflow_bytes_per_s", device.drained().mean(range), Unit::BytesPerSecond, "written meanwhile");
        figures.add("device_busy_ratio", device.busy.mean(range), Unit::Ratio, "device busy");
    }
    let (before, during) = scene.throughput_around(range);
    figures.add("throughput_before_per_s", before, Unit::PerSecond, &format!("{} before", scene.counted.label()));
    figures.add("throughput_during_per_s", during, Unit::PerSecond, &format!("{} during", scene.counted.label()));
    figures.add("stalled_s", Some(throttle.stalled_s as f64), Unit::Seconds, "seconds of it in this window");
    figures.add(
        "kernel_paused_ratio",
        paused.filter(|_| throttle.kernel_seen),
        Unit::Ratio,
        "sessions in balance_dirty_pages",
    );
    figures.add("psi_io_some_ratio", scene.psi_io.mean(range), Unit::Ratio, "time in which some task waited on I/O");
    figures.list()
}

/// Causes that would look alike, each with the reading that speaks against it.
fn ruled_out(scene: &Scene<'_>, throttle: &Throttle<'_>) -> Vec<RuledOut> {
    let (limit, range) = (&throttle.limit, &throttle.range);
    let mut list = Vec::new();
    let mut rule = |cause: &str, because: String| list.push(RuledOut { cause: cause.to_owned(), because });
    if limit.owner != LimitOwner::Host
        && let Some((level, threshold)) = host_fill(scene, range)
        && level < 0.7 * threshold
    {
        let (level, threshold) = (Unit::Bytes.show(level), Unit::Bytes.show(threshold));
        rule("host-limit", format!("the host has {level} dirty of {threshold} allowed"));
    }
    if limit.owner == LimitOwner::Host {
        let own = throttle
            .device
            .is_some_and(|device| crate::limits::of(scene, device).iter().any(|l| l.owner == LimitOwner::Device));
        if !own {
            rule("device-limit", "the device has no dirty limit of its own".to_owned());
        }
    }
    if let Some(busy) = throttle.device.and_then(|device| device.busy.mean(range)).filter(|busy| *busy < 0.6) {
        rule("device-saturated", format!("the device is busy {} of the time", Unit::Ratio.show(busy)));
    }
    if let Some(sync) = checkpoint_sync_s(scene, range).filter(|sync| *sync < 0.1 * range.len() as f64) {
        rule(
            "checkpoint-burst",
            format!("checkpoints synced for {} of these {} s", Unit::Seconds.show(sync), range.len()),
        );
    }
    let idle = scene.grid.rate(scene.window.track(cat::CPU_IDLE.name, &[])).mean(range);
    let cpus = scene.window.meta.host.cpus.map(f64::from);
    if let Some(idle) = idle.zip(cpus).map(|(idle, cpus)| idle / cpus).filter(|idle| *idle > 0.2) {
        rule("processors busy", format!("they are idle {} of the time", Unit::Ratio.show(idle)));
    }
    list
}

fn host_fill(scene: &Scene<'_>, range: &Range<usize>) -> Option<(f64, f64)> {
    let threshold = scene.grid.gauge(scene.window.track(cat::VM_DIRTY_THRESHOLD.name, &[])).median(range)?;
    Some((scene.host_level.mean(range)?, threshold))
}

fn not_seen(scene: &Scene<'_>, throttle: &Throttle<'_>) -> Vec<backwater_model::Unseen> {
    let mut missing = Missing::default();
    let by_device = throttle.device.is_some_and(|device| device.level.known());
    missing.unless(scene.window, by_device, &unseen::DEVICE_CACHE);
    missing.unless(scene.window, throttle.kernel_seen, &unseen::KERNEL_WAITS);
    let group = matches!(throttle.limit.owner, LimitOwner::Cgroup(_));
    missing.unless(scene.window, !group || crate::limits::ratios_measured(scene.window), &unseen::DIRTY_RATIOS);
    missing.unless(scene.window, unseen::seen(scene.window, &cat::PSI_IO_SOME), &unseen::PRESSURE);
    missing.list()
}

fn summary(finding: &Finding, throttle: &Throttle<'_>, fell: Option<f64>) -> String {
    let show = |name: &str| finding.evidence.iter().find(|figure| figure.name == name).map(Figure::show);
    let whose = match &throttle.limit.owner {
        LimitOwner::Device => "the device's own limit".to_owned(),
        LimitOwner::Cgroup(group) => format!("the limit of memory control group {group}"),
        LimitOwner::Host => "the host's limit".to_owned(),
    };
    let where_seen = if throttle.limit.level_is_bound { " on the whole host" } else { "" };
    // A narrow limit is passed and left again many times a second.
    let below = level_below_pause(finding).then(|| show("dirty_peak_bytes")).flatten();
    let peak = below.map(|peak| format!(" on average, {peak} at most")).unwrap_or_default();
    let mut text = format!(
        "{} of pages are dirty{where_seen}{peak}, and at {} the kernel begins to pause writers: {whose} is {}.",
        show("dirty_level_bytes").unwrap_or_default(),
        show("pause_begins_bytes").unwrap_or_default(),
        show("dirty_threshold_bytes").unwrap_or_default(),
    );
    if let (Some(inflow), Some(outflow)) = (show("inflow_before_bytes_per_s"), show("outflow_bytes_per_s")) {
        text.push_str(&format!(" Before that, up to {inflow} was dirtied while only {outflow} can be written."));
    }
    if let (Some(fell), Some(before), Some(during)) =
        (fell.filter(|fell| *fell > 0.1), show("throughput_before_per_s"), show("throughput_during_per_s"))
    {
        text.push_str(&format!(" Throughput fell by {:.0} % (from {before} to {during}).", fell * 100.0));
    }
    text
}

fn level_below_pause(finding: &Finding) -> bool {
    let (level, pause) = (finding.figure("dirty_level_bytes"), finding.figure("pause_begins_bytes"));
    level.zip(pause).is_some_and(|(level, pause)| level < pause)
}

fn remedies(scene: &Scene<'_>, throttle: &Throttle<'_>, options: &Options) -> Vec<Remedy> {
    let mut list = Vec::new();
    if let LimitOwner::Cgroup(group) = &throttle.limit.owner {
        list.extend(widen(scene, &throttle.limit, &throttle.range, group));
    } else if let Some(device) = throttle.device {
        let advice = advise::device_limit(scene, device, options.drain_target_s);
        list.extend(advice.and_then(|advice| advice.remedy));
        list.extend(faster(scene, throttle));
    }
    list.push(checkpoint::flush_after(scene.target(throttle.device)));
    list
}

/// Twice the group's memory, where its size is known.
fn widen(scene: &Scene<'_>, limit: &DirtyLimit, range: &Range<usize>, group: &str) -> Option<Remedy> {
    let grid: &Grid = &scene.grid;
    let memory = grid.gauge(scene.window.track(cat::CGROUP_MEMORY_LIMIT.name, &[("cgroup", group)])).median(range)?;
    let threshold = limit.threshold.median(range)?;
    let label = "the group's dirty limit then, at least";
    let predicted = vec![Figure::new("dirty_threshold_bytes", threshold * 2.0, Unit::Bytes, label)];
    Some(dirty::widen_group(group, scene.window.meta.host.cgroup_version.as_deref(), memory, memory * 2.0, predicted))
}

/// A ceiling high enough for what was dirtied before the fall, where the ceiling is known.
fn faster(scene: &Scene<'_>, throttle: &Throttle<'_>) -> Option<Remedy> {
    let (device, range) = (throttle.device?, &throttle.range);
    let caps = caps::of(scene, device);
    let holds = |cap: &&caps::Cap| cap.unit == CapUnit::Operations && cap.op != caps::Op::Read && cap.bounds_writeback;
    let cap = caps.iter().filter(holds).find(|cap| cap.limit.median(range).is_some())?;
    crate::iops::raise(scene, device, cap, range)
}
