//! A larger cache, where this one is too small for what is written or leaves no room below its trigger.

use super::measured::Measured;
use super::{
    Changed, EngineChange, FULL, GIB, HELD_THREADS, HIGHEST_TRIGGER, OF_MEMORY, READ_BACK, ROOM, ROOMY, WORTH,
};
use crate::figures::Figures;
use crate::remedy::engine as remedy;
use crate::rules::wt_evidence::{Engine, Limits, host_memory, rate};
use crate::scene::Scene;
use backwater_model::{Target, Unit, catalogue as cat};

/// A cache that keeps what is read back: random writes of more pages than it holds evict each page dirty and read it again, and
/// both take what the disk has left. As large as it was full, with all that was read into it; or so
/// that its trigger leaves room for what would stand, were no thread held, or, where it stands near that and pages are waited for, twice
/// as much. No larger than memory allows.
pub(super) fn larger_cache(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    target: Option<&Target>,
    seen: &Measured,
    crowded: bool,
) -> Option<Changed> {
    let all = 0..scene.grid.count;
    let (used, drain) = (engine.used.max(&all)?, seen.drain?);
    let read = rate(scene, &cat::WT_CACHE_READ, &engine.name, None);
    let held = engine.waiting.flags(|threads| threads >= HELD_THREADS);
    let while_held: Vec<f64> = all.clone().filter(|s| held[*s]).filter_map(|second| read.get(second)).collect();
    let back = while_held.iter().sum::<f64>() / while_held.len().max(1) as f64;
    let full = used >= FULL * engine.limits.cache_target * seen.cache;
    let reads_back = full && back >= READ_BACK * drain;
    let kept = (used + read.values(&all).iter().sum::<f64>()) / engine.limits.cache_target;
    // More would stand than any trigger of this cache leaves room for.
    let stands = seen.unheld_peak.map(|peak| peak * ROOM).filter(|peak| *peak > HIGHEST_TRIGGER * seen.cache);
    // A trigger in bytes does not grow with the cache.
    let in_twice = Limits::of(target, Some(2.0 * seen.cache)).dirty_trigger;
    let by_share = in_twice == engine.limits.dirty_trigger;
    let room = stands.filter(|_| by_share).map(|peak| peak / in_twice);
    let roomy = seen.unheld_peak.filter(|_| crowded && by_share).map(|peak| peak * ROOM / (ROOMY * in_twice));
    let wanted = Some(kept).filter(|_| reads_back).into_iter().chain(room).chain(roomy).reduce(f64::max)?;
    let (memory, available) = host_memory(scene, engine);
    let (memory, free) = (memory.median(&all)?, available.values(&all).into_iter().reduce(f64::min)?);
    let most = (OF_MEMORY * (memory - GIB)).min(seen.cache + OF_MEMORY * free);
    let bytes = wanted.min(most);
    let mut predicted = Figures::default();
    predicted.add("cache_max_bytes", Some(bytes), Unit::Bytes, "size of the cache");
    predicted.add(
        "read_back_bytes_per_s",
        Some(back),
        Unit::BytesPerSecond,
        "read back while threads waited, as it is",
    );
    let limits = Limits::of(target, Some(bytes));
    let room = |limits: &Limits, cache: f64| Some((limits.dirty_trigger - limits.dirty_target) * cache);
    let words = "between where eviction begins and where threads help";
    predicted.add("room_bytes", room(&limits, bytes), Unit::Bytes, words);
    predicted.add("room_now_bytes", room(&engine.limits, seen.cache), Unit::Bytes, "the same as it is");
    let change = EngineChange {
        relieves: engine.queue(),
        settings: [("cache_size".to_owned(), remedy::mebibytes(bytes))].into(),
        ..EngineChange::default()
    };
    let outlook = seen.predict(seen.now(), seen.in_cache(limits, bytes));
    let predicted = predicted.list().into_iter().chain(outlook).collect();
    let remedy = remedy::larger_cache(target, bytes, seen.cache, predicted);
    (seen.cache <= WORTH * bytes).then_some((remedy, change))
}
