//! wt-cache-oversized: the cache is too large for what stands below it. Either a checkpoint brings more at once than the disk
//! can take in seconds, because background eviction begins only at a share of a large cache; or the cache leaves the kernel's
//! page cache, through which the data files are read, no memory.

use super::draft::draft;
use super::wt_checkpoint::suffers;
use super::wt_evidence::{
    Contrast, Engine, caps_reached, contrast, engines, flags_of, gauge, host_memory, is_here, means, rate,
};
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::grid::{Lane, both, episodes, longest, median, runs};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, Severity, Unit, catalogue as cat};
use std::ops::Range;

/// A burst that the disk needs so long for holds up everybody's journal for as long.
const LEAST_DRAIN_S: f64 = 3.0;
/// A checkpoint shorter than this cannot be told from noise on a grid of seconds; and so many must be seen.
const SHORTEST_S: usize = 2;
const HABIT: usize = 2;
/// A burst of up to so many times the dirty target was left alone by background eviction until the checkpoint came.
const LEFT_ALONE: f64 = 1.1;
/// The disk must be busy while the burst drains, and have time otherwise: then writing earlier would have been free.
const BUSY: f64 = 0.8;
const IDLE: f64 = 0.6;
/// A device this busy between checkpoints is never idle.
const ALWAYS: f64 = 0.9;
/// Work inside ÷ outside at most; latency inside ÷ outside at least, and how much more it must be in milliseconds.
const DIP: f64 = 0.7;
const JUMP: f64 = 2.0;
const JUMP_MS: f64 = 10.0;

/// Share of the memory that the cache takes, what is left, and faults a second that need the disk.
const OF_MEMORY: f64 = 0.55;
pub(crate) const LEFT: f64 = 0.10;
const FAULTS_PER_S: f64 = 50.0;
const LEAST_S: usize = 10;
const BRIDGE_S: usize = 5;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let all = engines(scene);
    // Several caches on one host leave it too little memory together.
    let alone = all.iter().filter(|engine| is_here(scene, engine)).count() == 1;
    let of = |engine| burst(scene, engine).or_else(|| starved(scene, engine).filter(|_| alone));
    all.iter().filter_map(of).collect()
}

/// What a checkpoint brings, in bytes, and how fast the disk takes it.
struct Burst {
    runs: Vec<Range<usize>>,
    bytes: f64,
    drain_bytes_per_s: f64,
    drain_s: f64,
    at_work: AtWork,
    jumped: Option<Contrast>,
    fell: Option<Contrast>,
}

fn measured(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Burst> {
    let device = engine.device?;
    let runs = runs(&engine.checkpoint, SHORTEST_S);
    let inside = flags_of(&runs, scene.grid.count);
    if runs.len() < HABIT {
        return None;
    }
    // The level just before a checkpoint begins is what it brings.
    let before = |run: &Range<usize>| engine.dirty.max(&(run.start.saturating_sub(2)..run.start + 1));
    let bytes = median(runs.iter().filter_map(before).collect())?;
    let drains: Vec<Range<usize>> = runs.iter().filter_map(|run| drain(device, run)).collect();
    let rates = drains.iter().filter_map(|drain| device.written_bytes.mean(drain));
    let drain_bytes_per_s = median(rates.collect()).filter(|rate| *rate > 0.0)?;
    // No checkpoint takes longer than it does: where pages are compressed, more than a byte of the cache is written in each. Of its
    // first and last second it takes a part.
    let length_s = median(runs.iter().map(|run| engine.checkpoint.values(run).iter().sum()).collect())?;
    let drain_s = (bytes / drain_bytes_per_s).min(length_s);
    let during = flags_of(&drains, scene.grid.count);
    let at_work = at_work(scene, engine, device, &beside(&inside, &during), &during)?;
    // Who waits for what drains waits until the checkpoint has ended.
    let waits = |run: &Range<usize>| Some(drain(device, run)?.start..run.end);
    let waited: Vec<Range<usize>> = runs.iter().filter_map(waits).collect();
    let while_waited = flags_of(&waited, scene.grid.count);
    let (jumped, fell) = felt(engine, &waited, &beside(&inside, &while_waited), &while_waited);
    Some(Burst { runs, bytes, drain_bytes_per_s, drain_s, at_work, jumped, fell })
}

/// Some seconds of checkpoints and those in which none runs: neither are the other seconds of checkpoints.
fn beside(inside: &[bool], some: &[bool]) -> Vec<bool> {
    inside.iter().zip(some).map(|(inside, some)| !inside || *some).collect()
}

/// Latency that jumped and work that fell from when checkpoints drained until they ended, in most of them.
fn felt(
    engine: &Engine<'_>,
    drains: &[Range<usize>],
    compared: &[bool],
    during: &[bool],
) -> (Option<Contrast>, Option<Contrast>) {
    let latency = contrast(&engine.felt_ms().during(compared), during);
    let usual = contrast(&engine.writes.during(compared), during).map(|writes| writes.outside);
    let work = usual.and_then(|usual| means(&engine.writes_up_to(usual).during(compared), during));
    let bad = drains.iter().filter(|drain| suffers(engine, drain, work.zip(usual), latency)).count();
    if bad < HABIT || 2 * bad < drains.len() {
        return (None, None);
    }
    let jumps = |latency: &Contrast| latency.times() >= JUMP && latency.inside >= latency.outside + JUMP_MS;
    (latency.filter(jumps), work.filter(|work| work.times() <= DIP))
}

/// The half of a checkpoint, on end, in which the disk writes most. First the engine gathers what it then writes, for seconds where
/// its processors are slow or its clients many: the disk has nothing to do with how long that takes.
fn drain(device: &DeviceView, run: &Range<usize>) -> Option<Range<usize>> {
    let length = run.len().div_ceil(2);
    let halves = (run.start..=run.end - length).map(|start| start..start + length);
    let written = halves.filter_map(|half| device.written_bytes.mean(&half).map(|rate| (half, rate)));
    written.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(half, _)| half)
}

/// What is done of all that may be written: of a cap that holds checkpoints back before they reach the device, else how busy that is.
/// One that is held back is hardly busy then, and busy with syncs of the journal when it is not. Of several caps the one that leaves
/// the least between checkpoints.
fn at_work(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    device: &DeviceView,
    compared: &[bool],
    drains: &[bool],
) -> Option<AtWork> {
    let of = |lane: &Lane| contrast(&lane.during(compared), drains);
    let busy = of(&device.busy)?;
    let caps = caps_reached(scene, engine, drains).filter_map(|used| of(&used));
    let used = caps.max_by(|a, b| a.outside.total_cmp(&b.outside));
    // A device that is busy all the while has no time to spare, whatever a cap leaves.
    let used = used.filter(|_| busy.outside < ALWAYS);
    Some(used.map_or(AtWork { of: "the disk", used: busy }, |used| {
        // What passes in lumps is more than the limit in some seconds.
        let used = Contrast { inside: used.inside.min(1.0), outside: used.outside.min(1.0) };
        AtWork { of: "the cap on the disk", used }
    }))
}

/// How much of what is used while checkpoints drain, and while none runs.
#[derive(Clone, Copy)]
struct AtWork {
    of: &'static str,
    used: Contrast,
}

fn burst(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let burst = measured(scene, engine)?;
    let all = 0..scene.grid.count;
    let cache = engine.max.median(&all)?;
    let left_alone = burst.bytes <= LEFT_ALONE * engine.limits.dirty_target * cache;
    let Burst { drain_s, jumped, fell, .. } = burst;
    let AtWork { of, used } = burst.at_work;
    let alternates = used.inside >= BUSY && used.outside <= IDLE;
    if drain_s < LEAST_DRAIN_S || !left_alone || !alternates || (jumped.is_none() && fell.is_none()) {
        return None;
    }
    let whole = burst.runs[0].start..burst.runs[burst.runs.len() - 1].end;
    let queue = format!("wt.dirty@{}", engine.name);
    let mut finding = draft("wt-cache-oversized", "burst-over-drain", queue, scene.grid.span(&whole));
    let severe = jumped.is_some_and(|jump| jump.times() >= 10.0);
    finding.severity = if severe { Severity::Critical } else { Severity::Warning };
    finding.confidence = if jumped.is_some() && fell.is_some() { Confidence::High } else { Confidence::Medium };
    let target = engine.limits.dirty_target * cache;
    finding.summary = format!(
        "Each checkpoint brings {} at once, for which the disk needs {}: background eviction leaves alone what is below {} \
         ({} of a cache of {}), so between checkpoints {} of {of} is used, and {} while each drains.",
        Unit::Bytes.show(burst.bytes),
        Unit::Seconds.show(drain_s),
        Unit::Bytes.show(target),
        Unit::Ratio.show(engine.limits.dirty_target),
        Unit::Bytes.show(cache),
        Unit::Ratio.show(used.outside),
        Unit::Ratio.show(used.inside),
    );
    let mut figures = Figures::default();
    figures.add("burst_bytes", Some(burst.bytes), Unit::Bytes, "dirty in the cache when a checkpoint begins");
    figures.add(
        "drain_bytes_per_s",
        Some(burst.drain_bytes_per_s),
        Unit::BytesPerSecond,
        "written by the disk while that drains",
    );
    figures.add(
        "drain_s",
        Some(drain_s),
        Unit::Seconds,
        "burst ÷ drain, or the checkpoint's length where that is less",
    );
    figures.add("cache_max_bytes", Some(cache), Unit::Bytes, "size of the cache");
    figures.add(
        "dirty_target_ratio",
        Some(engine.limits.dirty_target),
        Unit::Ratio,
        "where background eviction begins",
    );
    figures.add("used_inside_ratio", Some(used.inside), Unit::Ratio, &format!("of {of} used while that drains"));
    figures.add(
        "used_outside_ratio",
        Some(used.outside),
        Unit::Ratio,
        &format!("of {of} used while no checkpoint runs"),
    );
    figures.add("write_inside_ms", jumped.map(|l| l.inside), Unit::Milliseconds, "latency of a write meanwhile");
    figures.add("write_outside_ms", jumped.map(|l| l.outside), Unit::Milliseconds, "latency of a write otherwise");
    finding.evidence = figures.list();
    finding.victims = vec![format!("wt.checkpoint@{}", engine.name), format!("mongo.writes@{}", engine.name)];
    finding.unseen.extend(engine.unseen(scene));
    Some(finding)
}

fn starved(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let (total, available) = host_memory(scene, engine);
    let faults = rate(scene, &cat::MONGO_PAGE_FAULTS, &engine.name, None);
    let large = engine.max.with(&total, |cache, total| cache / total);
    let left = available.with(&total, |available, total| available / total);
    let low = both(&large.flags(|share| share >= OF_MEMORY), &left.flags(|share| share <= LEFT));
    let found = episodes(&both(&low, &faults.flags(|rate| rate >= FAULTS_PER_S)), LEAST_S, BRIDGE_S);
    let (range, _) = longest(&found)?;
    let queue = format!("wt.cache@{}", engine.name);
    let mut finding = draft("wt-cache-oversized", "page-cache-starved", queue, scene.grid.span(&range));
    finding.confidence = Confidence::Medium;
    finding.summary = format!(
        "The cache takes {} of the host's memory and leaves {}, too little for the page cache, through which the data files \
         are read: {} faults went to the disk.",
        large.median(&range).map_or("most".to_owned(), |share| Unit::Ratio.show(share)),
        available.median(&range).map_or("little".to_owned(), |bytes| Unit::Bytes.show(bytes)),
        faults.mean(&range).map_or("many".to_owned(), |rate| Unit::PerSecond.show(rate)),
    );
    let mut figures = Figures::default();
    figures.add("cache_max_bytes", engine.max.median(&range), Unit::Bytes, "size of the cache");
    figures.add("memory_bytes", total.median(&range), Unit::Bytes, "memory of the host");
    figures.add("available_bytes", available.median(&range), Unit::Bytes, "memory that is left");
    figures.add("faults_per_s", faults.mean(&range), Unit::PerSecond, "page faults that needed the disk");
    let used = gauge(scene, &cat::WT_CACHE_USED, &engine.name, None).median(&range);
    figures.add("cache_used_bytes", used, Unit::Bytes, "in the cache");
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.writes@{}", engine.name)];
    Some(finding)
}
