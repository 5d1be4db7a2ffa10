//! wt-dirty-stall: the cache stands at a trigger, so threads that should answer clients evict pages first.
//!
//! The engine's own test is `bytes_dirty > dirty_trigger% × bytes_max` (WiredTiger `evict_inline.h`); likewise for bytes
//! of updates and for the whole cache.

use super::draft::draft;
use super::wt_evidence::{Engine, Limits, engines, flags_of, gauge, rate, share};
use crate::figures::Figures;
use crate::grid::{both, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, RuledOut, Severity, Unit, catalogue as cat};
use std::ops::Range;

/// A level this near a trigger is at it: readings are a second apart, and the engine holds the level there.
const AT_TRIGGER: f64 = 0.95;
/// Application threads that must be held up by the cache, on average; and their share of those at work.
const LEAST_WAITING: f64 = 0.5;
const LEAST_SHARE: f64 = 0.1;
const CRITICAL_SHARE: f64 = 0.5;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 3;
const BRIDGE_S: usize = 3;
/// Latency of writes from which they visibly suffer, in times of what it is otherwise.
const SUFFERS: f64 = 2.0;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    engines(scene).iter().filter_map(|engine| of_engine(scene, engine)).collect()
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let held = held(engine);
    [Trigger::Dirty, Trigger::Updates, Trigger::Cache].into_iter().find_map(|trigger| {
        let at = trigger.level(engine).flags(|level| level >= trigger.limit(&engine.limits) * AT_TRIGGER);
        let found = episodes(&both(&at, &held), LEAST_S, BRIDGE_S);
        let (range, seconds) = longest(&found)?;
        Some(finding(scene, engine, trigger, &range, seconds, &found))
    })
}

/// Seconds in which application threads are held up by the cache.
fn held(engine: &Engine<'_>) -> Vec<bool> {
    let waits = engine.waiting.flags(|threads| threads >= LEAST_WAITING);
    let shares = share(&engine.waiting, &engine.active);
    let enough = |second: usize| shares.get(second).is_none_or(|share| share >= LEAST_SHARE);
    waits.iter().enumerate().map(|(second, waits)| *waits && enough(second)).collect()
}

/// Which limit is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Dirty,
    Updates,
    Cache,
}

impl Trigger {
    fn level(self, engine: &Engine<'_>) -> crate::grid::Lane {
        match self {
            Trigger::Dirty => engine.dirty_share(),
            Trigger::Updates => share(&engine.updates, &engine.max),
            Trigger::Cache => share(&engine.used, &engine.max),
        }
    }

    fn limit(self, limits: &Limits) -> f64 {
        match self {
            Trigger::Dirty => limits.dirty_trigger,
            Trigger::Updates => limits.updates_trigger,
            Trigger::Cache => limits.cache_trigger,
        }
    }

    fn cause(self) -> &'static str {
        match self {
            Trigger::Dirty => "dirty-trigger",
            Trigger::Updates => "updates-trigger",
            Trigger::Cache => "cache-full",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Trigger::Dirty => "Dirty pages",
            Trigger::Updates => "Updates not yet written",
            Trigger::Cache => "Pages",
        }
    }
}

/// Who evicts: the engine's own threads, and those that should answer.
fn threads(figures: &mut Figures, scene: &Scene<'_>, engine: &Engine<'_>, range: &Range<usize>) {
    let per_s = |def| rate(scene, def, &engine.name, None).mean(range);
    let workers = gauge(scene, &cat::WT_EVICT_WORKERS, &engine.name, None).mean(range);
    figures.add("eviction_workers_count", workers, Unit::Count, "eviction threads of the engine at work");
    let missed = per_s(&cat::WT_EVICT_MISSED);
    figures.add("eviction_missed_per_s", missed, Unit::PerSecond, "times that eviction could not reach its goal");
    let evicting = per_s(&cat::WT_APP_EVICT_US).map(|us| us / 1e6);
    figures.add("evicting_threads_count", evicting, Unit::Count, "threads that should answer, and evict");
    let evicted = per_s(&cat::WT_APP_EVICTED);
    figures.add("evicted_by_clients_per_s", evicted, Unit::PerSecond, "pages that such threads evicted");
}

fn finding(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    trigger: Trigger,
    range: &Range<usize>,
    seconds: usize,
    all: &[Range<usize>],
) -> Finding {
    let queue = format!("wt.dirty@{}", engine.name);
    let mut finding = draft("wt-dirty-stall", trigger.cause(), queue, scene.grid.span(range));
    let latency = engine.latency(&flags_of(all, scene.grid.count));
    let lost = share(&engine.waiting, &engine.active).mean(range).map(|share| share.min(1.0));
    let slower = latency.filter(|latency| latency.times() >= SUFFERS);
    let severe = lost.is_some_and(|lost| lost >= CRITICAL_SHARE) || slower.is_some();
    finding.severity = if severe { Severity::Critical } else { Severity::Warning };
    finding.confidence = if slower.is_some() && lost.is_some() { Confidence::High } else { Confidence::Medium };
    finding.foreground_lost = lost;
    let (level, limit) = (trigger.level(engine), trigger.limit(&engine.limits));
    let show = |value: Option<f64>, unit: Unit| value.map_or("an unknown share".to_owned(), |value| unit.show(value));
    finding.summary = format!(
        "{} filled {} of the cache, whose trigger is {}: {} threads that should answer clients waited for it.",
        trigger.words(),
        show(level.max(range), Unit::Ratio),
        Unit::Ratio.show(limit),
        show(engine.waiting.mean(range), Unit::Count),
    );
    if let Some(slower) = slower {
        let (inside, outside) = (Unit::Milliseconds.show(slower.inside), Unit::Milliseconds.show(slower.outside));
        finding.summary.push_str(&format!(" A write took {inside} instead of {outside}."));
    }
    let mut figures = Figures::default();
    figures.add("level_peak_ratio", level.max(range), Unit::Ratio, "highest share of the cache");
    figures.add("trigger_ratio", Some(limit), Unit::Ratio, "where application threads must evict");
    figures.add(
        "dirty_target_ratio",
        Some(engine.limits.dirty_target),
        Unit::Ratio,
        "where background eviction begins",
    );
    figures.add("dirty_peak_bytes", engine.dirty.max(range), Unit::Bytes, "most dirty bytes in the cache");
    figures.add("cache_max_bytes", engine.max.mean(range), Unit::Bytes, "size of the cache");
    figures.add("waiting_threads_count", engine.waiting.mean(range), Unit::Count, "threads held up, on average");
    figures.add("write_ms", latency.map(|l| l.inside), Unit::Milliseconds, "latency of a write meanwhile");
    figures.add("write_otherwise_ms", latency.map(|l| l.outside), Unit::Milliseconds, "latency of a write otherwise");
    threads(&mut figures, scene, engine, range);
    let disk = engine.device.and_then(|device| device.busy.mean(range));
    figures.add("device_busy_ratio", disk, Unit::Ratio, "the data's device busy meanwhile");
    figures.add("stalled_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.writes@{}", engine.name)];
    if let Some(busy) = disk.filter(|busy| *busy < 0.5) {
        let because = format!("the device was busy {} of the time", Unit::Ratio.show(busy));
        finding.ruled_out.push(RuledOut { cause: "device-saturated".to_owned(), because });
    }
    finding.unseen.extend(engine.unseen(scene));
    finding
}
