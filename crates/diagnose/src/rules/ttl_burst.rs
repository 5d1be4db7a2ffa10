//! ttl-burst: documents that expire at the same time are deleted at the same time, beside the day's own writes.

use super::draft::draft;
use super::wt_evidence::{Engine, contrast, engines, flags_of, rate, slower};
use crate::figures::Figures;
use crate::grid::{Lane, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, Severity, Unit, Unseen, catalogue as cat};
use std::ops::Range;

/// Deletes a second from which they can matter, and their share of all writes.
const LEAST_PER_S: f64 = 100.0;
const LEAST_SHARE: f64 = 0.2;
/// Seconds it must last. The monitor works through its passes with short pauses, which do not end it.
const LEAST_S: usize = 10;
const BRIDGE_S: usize = 15;
/// Latency inside ÷ outside, from which the burst is felt; and how much more it must be in milliseconds.
const SUFFERS: f64 = 1.5;
const SUFFERS_MS: f64 = 5.0;
/// Writes answered, as a share of what it was before, at which a server stands still; seconds of that from which it is felt; and
/// seconds before the burst that are looked at.
const STANDS: f64 = 0.1;
const STOOD_S: usize = 3;
const BEFORE_S: usize = 60;
/// The monitor counts a pass at its end in old releases, so its count comes in steps: looked at over so many seconds to both sides.
const REACH_S: usize = 5;

/// Share of what is known from which documents expire all along; and what it then stands beside: a disk busy for this share of the time,
/// or so many threads waiting for the cache.
const ALWAYS: f64 = 0.9;
const BUSY: f64 = 0.8;
const HELD_THREADS: f64 = 0.5;

/// From these releases on a pass is counted when it ends, and no longer when it begins (`ttl.cpp`; SERVER-52724, which came to 4.4 too);
/// and deletes come, and are counted, in batches. How long the monitor sleeps between two passes, unless told otherwise (ttlMonitorSleepSecs).
const PASSES_AT_THEIR_END: i32 = 40_414;
const IN_BATCHES: i32 = 60_100;
const SLEEPS_S: usize = 60;
const SLEEPS: &str = "setParameter.ttlMonitorSleepSecs";

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    engines(scene).iter().filter_map(|engine| of_engine(scene, engine)).collect()
}

/// Inserts, updates and deletes of clients, a second; all writes that were answered where those are not told apart.
fn client_writes(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    let of = |op| rate(scene, &cat::MONGO_OPCOUNTERS, &engine.name, Some(op));
    let sum = |a: f64, b: f64| a + b;
    of("insert").with(&of("update"), sum).with(&of("delete"), sum).or(&engine.writes)
}

/// Seconds of a burst in which next to nothing is answered, though as many clients are at work as before it, and more than none:
/// what is not answered has no latency.
fn stood_s(engine: &Engine<'_>, burst: &Range<usize>) -> usize {
    let before = burst.start.saturating_sub(BEFORE_S)..burst.start;
    let Some((writes, at_work)) = engine.writes.median(&before).zip(engine.active.median(&before)) else { return 0 };
    let stands = |second: &usize| {
        let few = engine.writes.get(*second).is_some_and(|now| now < STANDS * writes);
        few && engine.active.get(*second).is_some_and(|now| now >= at_work.max(1.0))
    };
    burst.clone().filter(stands).count()
}

/// Documents that expired, a second. Before deletes came in batches, what a pass deleted by an index was counted when all of it was
/// gone, be it ten minutes later: such a step is spread over the time since the step before it, or since its pass began.
pub(crate) fn deleted(scene: &Scene<'_>, engine: &Engine<'_>) -> Lane {
    let counted = rate(scene, &cat::MONGO_TTL_DELETED, &engine.name, None);
    let passes = rate(scene, &cat::MONGO_TTL_PASSES, &engine.name, None).flags(|passes| passes > 0.0);
    if !passes.contains(&true) {
        return counted;
    }
    let target = scene.window.meta.targets.iter().find(|target| target.name == engine.name);
    match target.and_then(|target| target.version_num) {
        Some(version) if version < PASSES_AT_THEIR_END => spread(&counted, |second| passes[second]),
        Some(version) if version < IN_BATCHES => {
            let told = target.and_then(|target| target.settings.get(SLEEPS)?.parse().ok());
            let sleeps_s: usize = told.unwrap_or(SLEEPS_S);
            let slept = |second: usize| second.checked_sub(sleeps_s).is_some_and(|ended| passes[ended]);
            spread(&counted, slept)
        }
        _ => counted,
    }
}

/// Each step of a lane over the time since the step before it, or since a pass began. A step that falls between two seconds is in both.
fn spread(counted: &Lane, begins: impl Fn(usize) -> bool) -> Lane {
    let mut spread = counted.clone();
    let (mut since, mut second) = (None, 0);
    while second < counted.0.len() {
        since = if begins(second) { Some(second) } else { since };
        match counted.get(second) {
            // What was counted in a hole is not known to be of this pass.
            None => since = None,
            Some(documents) if documents > 0.0 => {
                let rest = counted.get(second + 1).filter(|rest| *rest > 0.0);
                let end = second + usize::from(rest.is_some());
                let over = since.unwrap_or(second)..end + 1;
                let each = (documents + rest.unwrap_or(0.0)) / over.len() as f64;
                over.for_each(|at| spread.0[at] = Some(each));
                (since, second) = (Some(end + 1), end);
            }
            Some(_) => {}
        }
        second += 1;
    }
    spread
}

/// Whether they expire all along, so that there is nothing to compare with, beside a disk that has no more to give or threads that wait
/// for the cache.
fn lasts_at_a_cost(engine: &Engine<'_>, deleted: &Lane, inside: &[bool]) -> bool {
    let all = 0..inside.len();
    let lasting = inside.iter().filter(|flag| **flag).count() as f64 >= ALWAYS * deleted.values(&all).len() as f64;
    let busy = engine.device.and_then(|device| device.busy.mean(&all)).is_some_and(|busy| busy >= BUSY);
    let held = engine.waiting.mean(&all).is_some_and(|threads| threads >= HELD_THREADS);
    lasting && (busy || held)
}

fn nothing_to_compare() -> Unseen {
    Unseen {
        what: "what writes take without these deletes".to_owned(),
        why: "documents expired all along".to_owned(),
        remedy: Some("look at a time in which few expire, or record a day".to_owned()),
    }
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let deleted = deleted(scene, engine).smooth(REACH_S);
    let writes = client_writes(scene, engine).smooth(REACH_S);
    let shares = deleted.with(&writes, |ttl, own| if ttl + own > 0.0 { ttl / (ttl + own) } else { 0.0 });
    let many = deleted.flags(|per_s| per_s >= LEAST_PER_S);
    let flags = crate::grid::both(&many, &shares.flags(|share| share >= LEAST_SHARE));
    let found = episodes(&flags, LEAST_S, BRIDGE_S);
    let (range, seconds) = longest(&found)?;
    let inside = flags_of(&found, scene.grid.count);
    // Deletes that nobody feels are what a TTL index is for.
    let latency = slower(&engine.felt_ms(), &inside, SUFFERS, SUFFERS_MS);
    let stood_s = found.iter().map(|burst| stood_s(engine, burst)).max().filter(|seconds| *seconds >= STOOD_S);
    let felt = latency.is_some() || stood_s.is_some();
    if !felt && !lasts_at_a_cost(engine, &deleted, &inside) {
        return None;
    }
    let queue = format!("mongo.ttl@{}", engine.name);
    let cause = if felt { "expiry-at-once" } else { "expiry-all-along" };
    let mut finding = draft("ttl-burst", cause, queue, scene.grid.span(&range));
    let dirty = contrast(&engine.dirty_share(), &inside);
    let device = engine.device.and_then(|device| contrast(&device.written_bytes, &inside));
    let heavier = device.is_some_and(|device| device.times() >= 1.2) || dirty.is_some_and(|dirty| dirty.times() >= 1.2);
    finding.confidence = if heavier { Confidence::High } else { Confidence::Medium };
    let severe = stood_s.is_some() || latency.is_some_and(|latency| latency.times() >= 5.0);
    finding.severity = if severe { Severity::Critical } else { Severity::Warning };
    if !felt {
        (finding.severity, finding.confidence) = (Severity::Info, Confidence::Low);
        finding.unseen.push(nothing_to_compare());
    }
    let show = |value: Option<f64>, unit: Unit| value.map_or("an unknown share".to_owned(), |value| unit.show(value));
    finding.summary = format!(
        "Expired documents were deleted at {}, {} of all writes",
        show(deleted.mean(&range), Unit::PerSecond),
        show(shares.mean(&range), Unit::Ratio),
    );
    if let Some(latency) = latency {
        let (inside, outside) = (Unit::Milliseconds.show(latency.inside), Unit::Milliseconds.show(latency.outside));
        finding.summary.push_str(&format!(", and a write took {inside} instead of {outside}"));
    }
    if let Some(seconds) = stood_s {
        finding.summary.push_str(&format!("; for {seconds} s hardly any write of a client was answered"));
    }
    finding.summary.push('.');
    let mut figures = Figures::default();
    figures.add("ttl_deleted_per_s", deleted.mean(&range), Unit::PerSecond, "documents deleted because they expired");
    figures.add("client_writes_per_s", writes.mean(&range), Unit::PerSecond, "writes of clients meanwhile");
    figures.add("ttl_share_ratio", shares.mean(&range), Unit::Ratio, "share of expiry in all writes");
    figures.add("write_inside_ms", latency.map(|l| l.inside), Unit::Milliseconds, "latency of a write meanwhile");
    figures.add("write_outside_ms", latency.map(|l| l.outside), Unit::Milliseconds, "latency of a write otherwise");
    figures.add("dirty_inside_ratio", dirty.map(|d| d.inside), Unit::Ratio, "dirty share of the cache meanwhile");
    figures.add("dirty_outside_ratio", dirty.map(|d| d.outside), Unit::Ratio, "dirty share of the cache otherwise");
    figures.add("burst_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    let stood = stood_s.map(|seconds| seconds as f64);
    figures.add("stood_s", stood, Unit::Seconds, "seconds of it in which hardly any write was answered");
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.writes@{}", engine.name)];
    // The engine alone keeps no oplog.
    let targets = &scene.window.meta.targets;
    if !targets.iter().any(|target| target.name == engine.name && target.kind == "wiredtiger") {
        finding.victims.push(format!("mongo.oplog@{}", engine.name));
    }
    Some(finding)
}
