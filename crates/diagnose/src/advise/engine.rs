//! Advice for MongoDB and WiredTiger, from the figures of the queue itself: what a checkpoint brings at once (burst), how fast the
//! disk takes it (drain), how much room there is between where eviction begins and where application threads must evict
//! (trigger), and how fast that room fills. Never a fixed recipe: a setting that helps where the cache's share is the burst
//! makes things worse where reads need the cache.
//!
//! Arithmetic: drain time = burst ÷ drain; time to the trigger = (trigger − target) ÷ (inflow − drain), where inflow is what is
//! made dirty: what the cache wrote, and what its dirty level rose by. Of the drain the journal takes its part first, where it
//! lies on the same disk.

mod cache;
mod measured;
mod members;
mod notes;
mod page_cache;
mod pauses;
mod updates;

use crate::figures::Figures;
use crate::remedy::{engine as remedy, mongod};
use crate::rules::oplog_window::covered;
use crate::rules::wt_cache_oversized::LEFT;
use crate::rules::wt_evidence::{Engine, Limits, configured, engines, servers};
use crate::scene::Scene;
use backwater_model::{Figure, Finding, Remedy, Target, Unit, Window};
use cache::larger_cache;
use measured::{Measured, Outlook, journal_sync_s, page_waiters};
use members::in_the_way;
use serde::Serialize;
use std::collections::BTreeMap;

/// What to aim for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineOptions {
    /// What a checkpoint brings at once shall be written within so many seconds.
    pub burst_target_s: f64,
    /// A member shall be able to be away for so many seconds and go on afterwards.
    pub survive_s: f64,
    /// Deletes of expired documents shall be at most so many a second; a tenth of the load of the busiest hour where not told.
    pub ttl_per_s: Option<f64>,
}

impl Default for EngineOptions {
    /// Half a second, which clients with time-outs of one second bear; and an hour.
    fn default() -> Self {
        EngineOptions { burst_target_s: 0.5, survive_s: 3_600.0, ttl_per_s: None }
    }
}

/// Advice for one server's engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineAdvice {
    /// The server's name as a target.
    pub server: String,
    /// Its release as a number: 70012 for 7.0.12.
    pub version_num: Option<i32>,
    /// What the disk shall need at most for what a checkpoint brings.
    pub burst_target_s: f64,
    /// Burst, drain, inflow, room: as they were seen.
    pub observed: Vec<Figure>,
    /// What to set, each with what it relieves, what it predicts and what it risks.
    pub remedies: Vec<Remedy>,
    /// What the first of these set, in their order, for a program that applies them.
    pub changes: Vec<EngineChange>,
    /// Why something is not advised, and what to keep in mind.
    pub notes: Vec<String>,
    /// Nobody was seen to wait for this engine: it is best left as it is.
    pub at_ease: bool,
}

/// What a remedy sets, by name and value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineChange {
    /// The queue that it relieves.
    pub relieves: String,
    /// At most so many of the device's pages dirty.
    pub dirty_limit_bytes: Option<u64>,
    /// The engine's settings, as it takes them when it is opened.
    pub settings: BTreeMap<String, String>,
}

/// A remedy beside what it sets.
type Changed = (Remedy, EngineChange);

/// Eviction is not asked to begin below this share of the cache: every page would be written again and again.
const LEAST_SHARE: f64 = 0.01;
/// Share of the cache up to which the trigger is raised where threads stall below it.
const HIGHEST_TRIGGER: f64 = 0.4;
/// Pages that are read back take this share of what the disk does, at least, where the cache is too small for what is written.
const READ_BACK: f64 = 0.2;
/// A cache this near the level that eviction holds it at is full.
const FULL: f64 = 0.9;
/// Application threads that wait for the cache, on average, from which on writers are held.
const HELD_THREADS: f64 = 0.5;
/// From this share of the threads at work on, those that wait for a page are many.
const MANY: f64 = 0.5;
/// A change smaller than this share is not worth a setting.
const WORTH: f64 = 0.8;
/// The cache may take this share of the memory, as MongoDB itself sets it: half of what is over a gibibyte.
const OF_MEMORY: f64 = 0.5;
const GIB: f64 = 1_073_741_824.0;
/// Room over what was seen; and the share of the trigger that it shall come to where it was near that.
const ROOM: f64 = 1.2;
const ROOMY: f64 = 0.5;

/// The rule about a device that no setting of an engine reaches.
const STANDING: &str = "device-below-rating";

/// What to set for the engines of a window. Empty where none is seen.
pub fn advise_engines(window: &Window, options: &EngineOptions) -> Vec<EngineAdvice> {
    let scene = Scene::of(window);
    let engines = engines(&scene);
    if engines.is_empty() {
        return Vec::new();
    }
    let findings = crate::rules::diagnose(window, &crate::Options::default());
    engines.iter().map(|engine| of_engine(&scene, engine, &findings, options)).collect()
}

/// What answers one finding about an engine, with the aims of [`EngineOptions::default`].
pub(crate) fn remedies(scene: &Scene<'_>, finding: &Finding) -> Vec<Remedy> {
    // A router has no engine, but clients.
    let all = servers(scene);
    let Some(engine) = all.iter().find(|engine| is_of(finding, engine)) else { return Vec::new() };
    let options = EngineOptions::default();
    let target = scene.window.meta.targets.iter().find(|target| target.name == engine.name);
    let of_burst = ["wt-dirty-stall", "wt-cache-oversized", "checkpoint-burst"].contains(&finding.rule.as_str());
    if let Some(seen) = Measured::of(scene, engine).filter(|_| of_burst && finding.cause != "page-cache-starved") {
        return of_bursts(scene, engine, target, &seen, &[finding], &options)
            .0
            .into_iter()
            .map(|(remedy, _)| remedy)
            .collect();
    }
    of_finding(scene, engine, target, finding, &options).into_iter().collect()
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>, findings: &[Finding], options: &EngineOptions) -> EngineAdvice {
    let target = scene.window.meta.targets.iter().find(|target| target.name == engine.name);
    let mut advice = EngineAdvice {
        server: engine.name.clone(),
        version_num: target.and_then(|target| target.version_num),
        burst_target_s: options.burst_target_s,
        observed: Vec::new(),
        remedies: Vec::new(),
        changes: Vec::new(),
        notes: Vec::new(),
        at_ease: false,
    };
    let own: Vec<&Finding> = findings.iter().filter(|finding| is_of(finding, engine)).collect();
    if let Some(seen) = Measured::of(scene, engine) {
        advice.observed = observed(&seen);
        // What nobody counted is no proof of ease.
        let counted = journal_sync_s(scene, engine).is_some();
        advice.at_ease = counted && own.is_empty() && !is_felt(scene, engine, options);
        let of_cache: Vec<&Finding> = own.iter().copied().filter(|finding| finding.rule != STANDING).collect();
        let (changed, notes) = of_bursts(scene, engine, target, &seen, &of_cache, options);
        (advice.remedies, advice.changes) = changed.into_iter().unzip();
        advice.notes = notes;
    }
    let mut bursts = Vec::new();
    for finding in &own {
        let remedy = of_finding(scene, engine, target, finding, options);
        bursts.extend((finding.rule == "ttl-burst").then_some(remedy.is_some()));
        remedy.into_iter().for_each(|remedy| add(&mut advice.remedies, remedy));
    }
    // A member that is away for so long must find where it was; with the finding it was added above.
    if !own.iter().any(|finding| finding.rule == "oplog-window") {
        let covers = covered(scene, engine);
        advice.remedies.extend(covers.and_then(|covers| oplog_for(target, covers, options.survive_s)));
    }
    // With a finding it was added above.
    let plan = super::ttl::plan(scene, engine, options.ttl_per_s, false).filter(|_| bursts.is_empty());
    if plan.is_none() && !bursts.contains(&true) {
        advice.notes.extend(super::ttl::without(scene, engine, !bursts.is_empty(), options.ttl_per_s));
    }
    advice.remedies.extend(plan);
    advice.notes.extend(notes::release_unknown(&advice));
    advice
}

/// Two findings may ask for the same: it is told once, with what is predicted of it.
fn add(remedies: &mut Vec<Remedy>, new: Remedy) {
    match remedies.iter_mut().find(|known| known.title == new.title) {
        Some(known) if known.predicted.len() < new.predicted.len() => *known = new,
        Some(_) => {}
        None => remedies.push(new),
    }
}

/// Whether a finding is about this engine, or about the device that it lies on.
fn is_of(finding: &Finding, engine: &Engine<'_>) -> bool {
    let on_device = |dev: &str| finding.rule == STANDING && finding.queue == format!("host.disk@{dev}");
    finding.queue.ends_with(&format!("@{}", engine.name)) || engine.device.is_some_and(|device| on_device(&device.dev))
}

fn observed(seen: &Measured) -> Vec<Figure> {
    let mut figures = Figures::default();
    let per_s = Unit::BytesPerSecond;
    figures.add("cache_max_bytes", Some(seen.cache), Unit::Bytes, "size of the cache");
    figures.add("burst_bytes", Some(seen.burst), Unit::Bytes, "dirty in the cache when a checkpoint begins");
    figures.add("drain_bytes_per_s", seen.disk(), per_s, "written by the disk when it does all it can");
    let packed = Some(seen.packed).filter(|packed| *packed > 1.0);
    let words = "bytes of the cache in each that is written: pages are compressed";
    figures.add("packed_ratio", packed, Unit::Count, words);
    let words = if packed.is_some() { "burst ÷ drain, as bytes of the cache" } else { "burst ÷ drain" };
    figures.add("drain_s", seen.drain.map(|drain| seen.burst / drain), Unit::Seconds, words);
    let journal = Some(seen.journal / seen.packed).filter(|journal| *journal > 0.0);
    figures.add("journal_bytes_per_s", journal, per_s, "of which the journal takes, on average");
    figures.add("inflow_bytes_per_s", seen.inflow, per_s, "made dirty, on average");
    figures.add("inflow_peak_bytes_per_s", seen.inflow_peak, per_s, "made dirty, at most");
    figures.add("dirty_target_bytes", Some(seen.target), Unit::Bytes, "where background eviction begins");
    figures.add("dirty_trigger_bytes", Some(seen.trigger), Unit::Bytes, "where application threads must evict");
    let left = seen.to_trigger_s(seen.target.min(seen.burst), seen.trigger);
    let words = "until application threads must, from what usually stands there, at the highest inflow";
    figures.add("to_trigger_s", left, Unit::Seconds, words);
    figures.add("unheld_peak_bytes", seen.unheld_peak, Unit::Bytes, "dirty at most, were no thread held");
    figures.add("checkpoint_interval_s", seen.interval_s, Unit::Seconds, "from one checkpoint's begin to the next");
    figures.list()
}

/// Settings that make the burst smaller, or give it room; and what to keep in mind.
fn of_bursts(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    target: Option<&Target>,
    seen: &Measured,
    own: &[&Finding],
    options: &EngineOptions,
) -> (Vec<Changed>, Vec<String>) {
    let mut notes = Vec::new();
    let Some(drain) = seen.drain else {
        let note = "The disk was never seen to write all it can, so no burst can be measured against it: record while it falls behind.";
        return (Vec::new(), vec![note.to_owned()]);
    };
    let wanted = drain * options.burst_target_s;
    let stall = |cause| own.iter().any(|finding| finding.rule == "wt-dirty-stall" && finding.cause == cause);
    let stalls = stall("dirty-trigger");
    let updates = stall("updates-trigger").then(|| updates::room(scene, engine, target, seen)).flatten();
    let held = own.iter().any(|finding| finding.rule == "wt-dirty-stall");
    let crowded = pages_felt(scene, engine).is_some() && seen.is_crowded();
    let larger = if held || crowded { larger_cache(scene, engine, target, seen, crowded) } else { None };
    notes.extend(notes::outrun(seen, drain));
    if own.is_empty() && !is_felt(scene, engine, options) {
        notes.push(format!(
            "What a checkpoint brings, {}, takes the disk {}, and nobody was seen to wait for it: evicting earlier would only write \
             pages more often.",
            Unit::Bytes.show(seen.burst),
            Unit::Seconds.show(seen.burst / drain)
        ));
        return (Vec::new(), notes);
    }
    let train = own.iter().find(|finding| finding.cause == "back-to-back");
    let nothing_else = larger.is_none() && updates.is_none() && train.is_none() && pages_felt(scene, engine).is_none();
    if seen.burst <= wanted && !stalls && nothing_else {
        notes.push(format!(
            "What a checkpoint brings, {}, is written in {}: it serves the target.",
            Unit::Bytes.show(seen.burst),
            Unit::Seconds.show(seen.burst / drain)
        ));
        return (Vec::new(), notes);
    }
    // Where the page cache stands before the journal, no setting of the engine reaches the queue that breaks.
    let (mut remedies, without) = page_cache::past_or_less(scene, engine, target, seen, wanted / seen.packed, own);
    notes.extend(without);
    // Nor does it help to evict earlier what is read back at once.
    remedies.extend(larger);
    remedies.extend(fewer_threads(scene, engine, target, seen, options));
    // A disk that is full all the time leaves eviction no time to write earlier.
    let earliest = if train.is_some() { seen.target } else { wanted };
    remedies.extend(eviction(engine, target, seen, drain, earliest, stalls));
    notes.extend(updates.as_ref().and_then(updates::never_rose));
    remedies.extend(updates);
    // Where one hardly ends before the next begins, more of them are no remedy.
    remedies.extend(match train {
        Some(train) => pauses::longer(engine, target, seen, train),
        None => pauses::shorter(engine, target, seen, wanted),
    });
    notes.extend(notes::least_burst(target, seen, drain, wanted));
    notes.extend(notes::never_filled(seen));
    if remedies.is_empty() {
        let note = "What was seen leads to no setting: eviction begins as early and threads help as late as these figures ask for.";
        notes.push(note.to_owned());
    }
    if remedies.len() > 1 {
        let note = "Take the first and measure (backwater compare) before the next: together they can be worse than either alone.";
        notes.push(note.to_owned());
        notes.extend(notes::one_config_string(&remedies));
    }
    (remedies, notes)
}

/// Whether those who wait for the journal were held up for as long as a burst may take, or half of the threads at work for a page.
fn is_felt(scene: &Scene<'_>, engine: &Engine<'_>, options: &EngineOptions) -> bool {
    journal_sync_s(scene, engine).is_some_and(|longest| longest >= options.burst_target_s)
        || pages_felt(scene, engine).is_some()
}

/// The threads that waited for a page in the worst second, where they are half of those at work.
fn pages_felt(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<f64> {
    let most_active = engine.active.max(&(0..scene.grid.count))?;
    page_waiters(scene, engine).filter(|waiting| *waiting >= MANY * most_active && *waiting >= HELD_THREADS)
}

/// Fewer eviction threads, where pages that they have are waited for: the disk's rate is shared among them, so each more makes the
/// eviction of a page longer, and whoever wants the page waits for its end. Time of a page = threads × page ÷ (drain − journal).
fn fewer_threads(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    target: Option<&Target>,
    seen: &Measured,
    options: &EngineOptions,
) -> Option<Changed> {
    let waiting = pages_felt(scene, engine)?;
    // The same counter tells of pages that another thread is reading: where much is read, it says nothing of eviction.
    seen.few_reads()?;
    // Fewer threads let more stand before a checkpoint takes it: it must not come to where application threads evict.
    if seen.is_crowded() {
        return None;
    }
    let left = Some(seen.drain? - seen.journal).filter(|left| *left > 0.0)?;
    let page = remedy::page_in_memory_bytes(target);
    let now = f64::from(remedy::eviction_threads(target)?[1]);
    let threads = (options.burst_target_s * left / page).floor().max(1.0);
    if threads >= now {
        return None;
    }
    let mut predicted = vec![
        Figure::new(
            "page_waiters",
            waiting,
            Unit::Count,
            "threads that waited for a page in the worst second, as it is",
        ),
        Figure::new("page_evict_s", threads * page / left, Unit::Seconds, "time to evict a page at its largest"),
        Figure::new("page_evict_now_s", now * page / left, Unit::Seconds, "the same with all threads at it, as it is"),
    ];
    // It is the disk that decides what is left for a checkpoint, not how many threads write to it.
    predicted.extend(seen.predict(seen.now(), seen.now()));
    let value = format!("(threads_min=1,threads_max={threads:.0})");
    let change = EngineChange {
        relieves: engine.queue(),
        settings: [("eviction".to_owned(), value.clone())].into(),
        ..EngineChange::default()
    };
    Some((remedy::fewer_threads(target, threads, value, predicted), change))
}

/// Background eviction from the level on that the disk takes in time; where threads stall, more room above it.
fn eviction(
    engine: &Engine<'_>,
    target: Option<&Target>,
    seen: &Measured,
    drain: f64,
    earliest: f64,
    stalls: bool,
) -> Option<Changed> {
    let lower = earliest.max(LEAST_SHARE * seen.cache);
    let (text, level) = remedy::level(target, lower, seen.cache);
    let mut changes = Vec::new();
    let percent = |bytes: f64| format!("{:.0}", bytes / seen.cache * 100.0);
    let before = |name: &str, bytes: f64| configured(target, name).unwrap_or_else(|| percent(bytes));
    let lowers = level <= WORTH * seen.target && level <= WORTH * seen.burst;
    if lowers {
        changes.push(("eviction_dirty_target", text, before("eviction_dirty_target", seen.target)));
    }
    let begins = if lowers { level } else { seen.target };
    // Room for what would stand, and no more than leaves eviction clean pages to take.
    let needed = seen.unheld_peak.map(|peak| (peak * ROOM).min(HIGHEST_TRIGGER * seen.cache));
    let higher = needed
        .filter(|higher| stalls && seen.trigger < WORTH * higher && seen.inflow.is_none_or(|inflow| inflow <= drain));
    let raises = higher.is_some();
    let higher = higher.unwrap_or(seen.trigger);
    if raises {
        changes.push(("eviction_dirty_trigger", percent(higher), before("eviction_dirty_trigger", seen.trigger)));
    }
    if changes.is_empty() {
        return None;
    }
    // Where only application threads help later, more is left than they left until now.
    let burst = if lowers { seen.burst.min(begins) } else { seen.at_most(higher, seen.target) };
    let after = Outlook { burst, target: begins, trigger: higher };
    let predicted = seen.predict(seen.now(), after);
    let title = match (lowers, raises) {
        (true, true) => {
            "Let eviction begin earlier, and application threads help later (relieves the cache's dirty pages)"
        }
        (true, false) => "Let eviction begin earlier (relieves the cache's dirty pages)",
        _ => "Let application threads help with eviction later (relieves the cache's dirty pages)",
    };
    let risk = "Pages that are changed again soon are written more than once: the disk writes more in all. With a higher trigger, more \
                is dirty when the power fails, and recovery takes longer.";
    let settings = changes.iter().map(|(name, value, _)| ((*name).to_owned(), value.clone())).collect();
    let change = EngineChange { relieves: engine.queue(), settings, ..EngineChange::default() };
    Some((remedy::engine(target, title.to_owned(), &changes, predicted, risk), change))
}

/// An oplog that covers so much time, where it covers less.
fn oplog_for(target: Option<&Target>, (window_s, now_bytes): (f64, f64), away_s: f64) -> Option<Remedy> {
    let bytes = now_bytes / window_s * away_s * ROOM;
    let predicted = vec![Figure::new("window_s", bytes / now_bytes * window_s, Unit::Seconds, "time that it covers")];
    (window_s < away_s).then(|| mongod::oplog_size(target, bytes, now_bytes, predicted))
}

/// What answers a finding beside the cache's own settings.
fn of_finding(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    target: Option<&Target>,
    finding: &Finding,
    options: &EngineOptions,
) -> Option<Remedy> {
    match (finding.rule.as_str(), finding.cause.as_str()) {
        ("wt-cache-oversized", "page-cache-starved") => {
            let (memory, now) = (finding.figure("memory_bytes")?, finding.figure("cache_max_bytes")?);
            // What the host lacks, and no more than MongoDB itself would take.
            let missing = LEFT * memory - finding.figure("available_bytes")?;
            let bytes = (OF_MEMORY * (memory - GIB)).min(now - missing).max(GIB / 4.0);
            let limits = Limits::of(target, Some(bytes));
            let (begins, trigger) = (limits.dirty_target * bytes, limits.dirty_trigger * bytes);
            let mut predicted = vec![
                Figure::new("cache_max_bytes", bytes, Unit::Bytes, "size of the cache"),
                Figure::new("dirty_target_bytes", begins, Unit::Bytes, "where eviction begins"),
                Figure::new("dirty_trigger_bytes", trigger, Unit::Bytes, "where threads help"),
            ];
            let seen = Measured::of(scene, engine);
            predicted.extend(seen.into_iter().flat_map(|seen| seen.predict(seen.now(), seen.in_cache(limits, bytes))));
            (bytes < now).then(|| remedy::cache_size(target, bytes, now, predicted))
        }
        ("connection-storm", "limit") => Some(mongod::connection_limit(target)),
        ("connection-storm", _) => Some(mongod::pooling(target)),
        // What expires all along is no burst that could be spread.
        ("ttl-burst", "expiry-all-along") => super::ttl::plan(scene, engine, options.ttl_per_s, false),
        ("ttl-burst", _) => super::ttl::plan(scene, engine, options.ttl_per_s, true)
            .or_else(|| super::ttl::scatter(scene, engine, finding, options.ttl_per_s)),
        (STANDING, _) => Some(mongod::standing_device(target, &engine.device?.name)),
        ("tickets-exhausted", _) => Some(mongod::tickets(target, finding.figure("tickets_total_count")?)),
        ("history-pinned", "slow-member") => {
            Some(mongod::slow_member(target, in_the_way(scene, engine, finding).as_deref(), members::kept_up(finding)))
        }
        ("history-pinned", "long-reader") => {
            // What was seen of an age that is told by a rate is certain: an older one is found by that, too.
            let age_s = finding.figure("behind_peak_s")?;
            Some(mongod::long_reader(target, finding.figure("seen_s").map_or(age_s, |seen_s| seen_s.min(age_s))))
        }
        ("flow-control-engaged", _) => {
            Some(mongod::slow_member(target, in_the_way(scene, engine, finding).as_deref(), Vec::new()))
        }
        ("oplog-window", _) => {
            let (window_s, now) = (finding.figure("window_s")?, finding.figure("oplog_max_bytes")?);
            let away_s = options.survive_s.max(finding.figure("lag_peak_s").unwrap_or(0.0) * 2.0);
            oplog_for(target, (window_s, now), away_s)
        }
        _ => None,
    }
}
