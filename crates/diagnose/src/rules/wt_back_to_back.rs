//! checkpoint-burst, cause back-to-back: a checkpoint has hardly ended when the next one begins, so that the disk never comes to
//! rest and the journal's syncs wait for it all the time. There are no other seconds to compare with: what is told is what a
//! sync takes, how long checkpoints last against their interval, and that the disk is what is short.

use super::draft::draft;
use super::wt_checkpoint::{HABIT, JOURNAL_MS, no_stall};
use super::wt_evidence::{Engine, caps_reached, flags_of, rate};
use crate::figures::Figures;
use crate::grid::holes;
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, Moment, Point, RuledOut, Severity, Unit, catalogue as cat};
use std::ops::Range;

/// Length of a checkpoint ÷ interval from which on they follow one another.
const OF_INTERVAL: f64 = 0.8;
/// Share of what the disk can do, or of a cap on it, from which on it is what is short.
const BUSY: f64 = 0.8;
/// Application threads that the cache holds up, on average, from which on it is what is short.
const HELD: f64 = 0.5;
/// A sync this long, in milliseconds, is more than clients with time-outs of one second bear.
const CRITICAL_MS: f64 = 1_000.0;

/// A write that takes this share of a sync on average waits for it.
const FELT: f64 = 0.1;

/// Whole checkpoints with their pauses, from the beginning of the first to that of the one after the last.
struct Train {
    count: usize,
    length_s: f64,
    interval_s: f64,
    span: (Moment, Moment),
}

/// Looks at a server whose checkpoints fill the window.
pub(super) fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let train = train(scene, engine).filter(|train| train.length_s >= OF_INTERVAL * train.interval_s)?;
    let (from, to) = train.span;
    let range = scene.grid.second(from)?..scene.grid.second(to).unwrap_or(scene.grid.count);
    let sync_ms = journal_ms(scene, engine, &range).filter(|ms| *ms >= JOURNAL_MS)?;
    let at_work = at_work(scene, engine, &range).filter(|(_, used)| *used >= BUSY)?;
    // What application threads evict stands before the journal as well.
    let no_stall = no_stall(engine, &range).filter(|_| engine.waiting.mean(&range).is_none_or(|held| held < HELD))?;
    let mut finding = finding(scene, engine, &train, &range, sync_ms, at_work);
    finding.ruled_out.push(no_stall);
    Some(finding)
}

/// Checkpoints as the readings show them, which are closer than seconds where a recorder reads so. Of readings that miss some of
/// the time only the longest stretch in one piece is looked at.
fn train(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Train> {
    let track = scene.window.track(cat::WT_CHECKPOINT_RUNNING.name, &[("target", &engine.name)])?;
    let holes = holes(track);
    let place = |point: &Point| track.points.partition_point(|other| other.at < point.at);
    let near = |a: &Point, b: &Point| a.epoch == b.epoch && holes.bridges(place(a), b.at.seconds_since(a.at));
    let readings = track.points.chunk_by(near).max_by_key(|stretch| stretch.len())?;
    let runs = |at: usize| readings[at].value > 0.0;
    let begins: Vec<usize> = (1..readings.len()).filter(|at| runs(*at) && !runs(at - 1)).collect();
    let (first, last) = (*begins.first()?, *begins.last()?);
    let count = begins.len() - 1;
    let span = (readings[first].at, readings[last].at);
    let interval_s = span.1.seconds_since(span.0) / count as f64;
    let running = (first..last).filter(|at| runs(*at)).count() as f64 / (last - first) as f64;
    (count >= HABIT).then_some(Train { count, length_s: running * interval_s, interval_s, span })
}

/// Mean time of a sync of the journal, in milliseconds.
fn journal_ms(scene: &Scene<'_>, engine: &Engine<'_>, range: &Range<usize>) -> Option<f64> {
    let mean = |def| rate(scene, def, &engine.name, None).mean(range);
    let (us, syncs) = mean(&cat::WT_LOG_SYNC_US).zip(mean(&cat::WT_LOG_SYNCS))?;
    (syncs > 0.0).then(|| us / syncs / 1e3)
}

/// What of the disk's time, or of a cap on it that the server comes to, is used.
fn at_work(scene: &Scene<'_>, engine: &Engine<'_>, range: &Range<usize>) -> Option<(&'static str, f64)> {
    let device = engine.device?;
    let seconds = flags_of(std::slice::from_ref(range), scene.grid.count);
    let caps = caps_reached(scene, engine, &seconds).filter_map(|used| used.mean(range));
    // What passes in lumps is more than the limit in some seconds.
    let cap = caps.reduce(f64::max).map(|used| ("the cap on the disk", used.min(1.0)));
    cap.filter(|(_, used)| *used >= BUSY).or_else(|| Some(("the disk", device.busy.mean(range)?)))
}

fn finding(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    train: &Train,
    range: &Range<usize>,
    sync_ms: f64,
    (of, used): (&str, f64),
) -> Finding {
    let queue = format!("wt.checkpoint@{}", engine.name);
    let mut finding = draft("checkpoint-burst", "back-to-back", queue, scene.grid.span(range));
    // The journal is synced though nobody waits for that; whose latency is not seen may.
    let felt = engine.felt_ms().mean(range).is_none_or(|ms| ms >= FELT * sync_ms);
    finding.severity = match (felt, sync_ms >= CRITICAL_MS) {
        (false, _) => Severity::Info,
        (true, true) => Severity::Critical,
        (true, false) => Severity::Warning,
    };
    finding.confidence = Confidence::Medium;
    let [length, interval] = [train.length_s, train.interval_s].map(|seconds| Unit::Seconds.show(seconds));
    let share = Unit::Ratio.show(used);
    finding.summary = format!(
        "A checkpoint takes {length}, and {interval} after it began the next one begins: {share} of {of} is used all the time, \
         and a sync of the journal takes {} on average.",
        Unit::Milliseconds.show(sync_ms),
    );
    let mut figures = Figures::default();
    figures.add("checkpoints_count", Some(train.count as f64), Unit::Count, "whole checkpoints seen");
    figures.add("checkpoint_s", Some(train.length_s), Unit::Seconds, "length of a checkpoint");
    let label = "from one checkpoint's start to the next";
    figures.add("checkpoint_interval_s", Some(train.interval_s), Unit::Seconds, label);
    let ratio = train.length_s / train.interval_s;
    figures.add("checkpoint_ratio", Some(ratio), Unit::Ratio, "length of a checkpoint ÷ interval");
    figures.add("journal_sync_ms", Some(sync_ms), Unit::Milliseconds, "a sync of the journal, on average");
    figures.add("disk_used_ratio", Some(used), Unit::Ratio, &format!("of {of} used"));
    of_engine_and_disk(&mut figures, engine, range);
    finding.evidence = figures.list();
    finding.victims = vec![format!("wt.journal@{}", engine.name), format!("mongo.writes@{}", engine.name)];
    let because = format!("{share} of {of} is used, which leaves eviction hardly any time to write earlier");
    finding.ruled_out.push(RuledOut { cause: "wt-cache-oversized".to_owned(), because });
    finding
}

fn of_engine_and_disk(figures: &mut Figures, engine: &Engine<'_>, range: &Range<usize>) {
    figures.add("write_ms", engine.felt_ms().mean(range), Unit::Milliseconds, "latency of a write");
    figures.add("dirty_bytes", engine.dirty.mean(range), Unit::Bytes, "dirty in the cache, on average");
    let Some(device) = engine.device else { return };
    figures.add("written_bytes_per_s", device.written_bytes.mean(range), Unit::BytesPerSecond, "device writes");
    let label = "of the device in the page cache, not yet written, at most";
    figures.add("page_cache_peak_bytes", device.level.max(range), Unit::Bytes, label);
}
