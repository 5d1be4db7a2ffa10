//! checkpoint-burst, cause engine-burst: writes dip, or take longer, while WiredTiger's checkpoints run, because what a
//! checkpoint brings at once stands before the journal: in the device, which then does more than otherwise, or in the page
//! cache, which the checkpoint's fsync empties while the journal's own waits its turn.

use super::draft::draft;
use super::wt_back_to_back;
use super::wt_evidence::{Contrast, Engine, contrast, engines, flags_of, rate};
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::grid::{Lane, runs};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, RuledOut, Severity, Unit, catalogue as cat};
use std::ops::Range;

/// A checkpoint shorter than this cannot be told from noise on a grid of seconds.
const SHORTEST_S: usize = 2;
/// Checkpoints that must be seen: one dip may have any reason.
pub(super) const HABIT: usize = 2;
/// Share of the window beyond which checkpoints are no bursts: there is nothing to compare with.
const MOST_SHARE: f64 = 0.7;
/// Work inside ÷ outside at most; latency inside ÷ outside at least, and how much more it must be in milliseconds: what shares
/// processors and disk with a checkpoint takes a few more, which holds nobody up.
const DIP: f64 = 0.7;
const JUMP: f64 = 2.0;
const JUMP_MS: f64 = 10.0;
/// How many more times the device must be busy, or write, inside than outside.
const BURST: f64 = 1.3;
/// What that is, at least, of a device that does nothing otherwise: bytes a second, and share of the time.
const FROM_NOTHING_BYTES: f64 = 1_048_576.0;
const FROM_NOTHING_BUSY: f64 = 0.05;
/// How many more times a sync of the journal must take inside than outside, and how long, for it to be what waits.
const JOURNAL_TIMES: f64 = 5.0;
pub(super) const JOURNAL_MS: f64 = 100.0;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    engines(scene).iter().filter_map(|engine| of_engine(scene, engine)).collect()
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let runs = runs(&engine.checkpoint, SHORTEST_S);
    let inside = flags_of(&runs, scene.grid.count);
    let seconds = inside.iter().filter(|flag| **flag).count();
    if seconds as f64 > MOST_SHARE * scene.grid.count as f64 {
        return wt_back_to_back::of_engine(scene, engine);
    }
    if runs.len() < HABIT {
        return None;
    }
    let (work, latency) = (engine.work(&inside), engine.latency(&inside));
    let fell = work.filter(|work| work.times() <= DIP);
    let jumped = latency.filter(|latency| jumps(latency.inside, *latency));
    let journal = journal(scene, engine, &inside);
    let waits = journal.is_some_and(|sync| sync.inside >= JOURNAL_MS && sync.times() >= JOURNAL_TIMES);
    if (fell.is_none() && jumped.is_none()) || !(waits || bursts(engine, &inside)) {
        return None;
    }
    // Most checkpoints must be so, not one bad one among many.
    let usual = engine.usual_writes(&inside);
    let bad = runs.iter().filter(|run| suffers(engine, run, work.zip(usual), latency)).count();
    (bad >= HABIT && bad * 2 >= runs.len()).then(|| finding(scene, engine, &runs, (fell, jumped, journal), &inside))
}

/// Whether the device does more while checkpoints run; not where it is not seen.
fn bursts(engine: &Engine<'_>, inside: &[bool]) -> bool {
    let more = |lane, least| {
        contrast(lane, inside).is_some_and(|c| c.times() >= BURST || (c.outside == 0.0 && c.inside >= least))
    };
    engine
        .device
        .is_some_and(|device| more(&device.written_bytes, FROM_NOTHING_BYTES) || more(&device.busy, FROM_NOTHING_BUSY))
}

/// Mean time of a sync of the journal, in milliseconds. One is counted when it ends, be it a moment after the checkpoint.
fn journal(scene: &Scene<'_>, engine: &Engine<'_>, inside: &[bool]) -> Option<Contrast> {
    let (us, syncs) =
        (rate(scene, &cat::WT_LOG_SYNC_US, &engine.name, None), rate(scene, &cat::WT_LOG_SYNCS, &engine.name, None));
    let ms = us.with(&syncs, |us, syncs| if syncs > 0.0 { us / syncs / 1e3 } else { f64::NAN });
    let ms = Lane(ms.0.into_iter().map(|value| value.filter(|ms| ms.is_finite())).collect());
    let after = |second: usize| second > 0 && inside[second - 1];
    let wider: Vec<bool> = (0..inside.len()).map(|second| inside[second] || after(second)).collect();
    contrast(&ms, &wider)
}

/// Whether one checkpoint held writers up. `work` comes with what is usual of it.
pub(super) fn suffers(
    engine: &Engine<'_>,
    run: &Range<usize>,
    work: Option<(Contrast, f64)>,
    latency: Option<Contrast>,
) -> bool {
    let own = |usual| engine.writes_up_to(usual).mean(run);
    let fell = |(work, usual): (Contrast, f64)| usual > 0.0 && own(usual).is_some_and(|own| own <= DIP * work.outside);
    let low = work.is_some_and(fell);
    let slow = engine.write_ms.mean(run).zip(latency).is_some_and(|(own, latency)| jumps(own, latency));
    low || slow
}

/// Whether a latency is far above what it is outside.
fn jumps(own_ms: f64, latency: Contrast) -> bool {
    own_ms >= JUMP * latency.outside && own_ms >= latency.outside + JUMP_MS
}

fn finding(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    runs: &[Range<usize>],
    (fell, jumped, journal): (Option<Contrast>, Option<Contrast>, Option<Contrast>),
    inside: &[bool],
) -> Finding {
    let whole = runs[0].start..runs[runs.len() - 1].end;
    let queue = format!("wt.checkpoint@{}", engine.name);
    let mut finding = draft("checkpoint-burst", "engine-burst", queue, scene.grid.span(&whole));
    finding.severity =
        if jumped.is_some_and(|jump| jump.times() >= 10.0) { Severity::Critical } else { Severity::Warning };
    finding.confidence = if fell.is_some() && jumped.is_some() { Confidence::High } else { Confidence::Medium };
    let lengths: Vec<f64> = runs.iter().map(|run| run.len() as f64).collect();
    let mean_s = lengths.iter().sum::<f64>() / lengths.len() as f64;
    let starts: Vec<f64> = runs.windows(2).map(|pair| (pair[1].start - pair[0].start) as f64).collect();
    let interval_s = crate::grid::median(starts);
    let burst = crate::grid::median(runs.iter().filter_map(|run| engine.dirty.get(run.start)).collect());
    finding.summary = format!("While {} checkpoints ran ({} each)", runs.len(), Unit::Seconds.show(mean_s));
    if let Some(work) = fell {
        let (inside, outside) = (Unit::PerSecond.show(work.inside), Unit::PerSecond.show(work.outside));
        finding.summary.push_str(&format!(", writes fell to {inside} from {outside}"));
    }
    if let Some(latency) = jumped {
        let (inside, outside) = (Unit::Milliseconds.show(latency.inside), Unit::Milliseconds.show(latency.outside));
        finding.summary.push_str(&format!(", a write took {inside} instead of {outside}"));
    }
    // What stands there while they run: that is what the journal's sync waits for.
    let standing = |device: &DeviceView| runs.iter().filter_map(|run| device.level.max(run)).reduce(f64::max);
    let backlog = engine.device.and_then(standing).filter(|bytes| *bytes > 0.0);
    let syncs = journal.filter(|sync| sync.inside >= JOURNAL_MS && sync.times() >= JOURNAL_TIMES);
    finding.summary.push_str(&syncs.map_or(String::new(), |sync| journal_waited(sync, backlog)));
    finding.summary.push_str(": what a checkpoint brings at once stands before everything else.");
    let mut figures = Figures::default();
    figures.add("checkpoint_s", Some(mean_s), Unit::Seconds, "length of a checkpoint");
    figures.add("checkpoint_interval_s", interval_s, Unit::Seconds, "from one checkpoint's start to the next");
    figures.add("burst_bytes", burst, Unit::Bytes, "dirty in the cache when a checkpoint begins");
    figures.add(
        "writes_inside_per_s",
        fell.map(|work| work.inside),
        Unit::PerSecond,
        "writes meanwhile, without what was caught up",
    );
    figures.add("writes_outside_per_s", fell.map(|work| work.outside), Unit::PerSecond, "writes otherwise");
    figures.add("write_inside_ms", jumped.map(|l| l.inside), Unit::Milliseconds, "latency of a write meanwhile");
    figures.add("write_outside_ms", jumped.map(|l| l.outside), Unit::Milliseconds, "latency of a write otherwise");
    figures.add(
        "journal_sync_inside_ms",
        journal.map(|j| j.inside),
        Unit::Milliseconds,
        "a sync of the journal meanwhile",
    );
    figures.add(
        "journal_sync_outside_ms",
        journal.map(|j| j.outside),
        Unit::Milliseconds,
        "a sync of the journal otherwise",
    );
    of_device(&mut figures, engine, inside);
    let words = "of the device in the page cache meanwhile, not yet written, at most";
    figures.add("page_cache_peak_bytes", backlog, Unit::Bytes, words);
    finding.evidence = figures.list();
    finding.victims = vec![format!("wt.journal@{}", engine.name), format!("mongo.writes@{}", engine.name)];
    finding.ruled_out.extend(no_stall(engine, &whole));
    finding
}

/// That dirty pages stayed well below where application threads must evict, if they did.
pub(super) fn no_stall(engine: &Engine<'_>, range: &Range<usize>) -> Option<RuledOut> {
    let peak = engine.dirty_share().max(range).filter(|peak| *peak < engine.limits.dirty_trigger * 0.9)?;
    let because = format!("dirty pages filled at most {} of the cache", Unit::Ratio.show(peak));
    Some(RuledOut { cause: "wt-dirty-stall".to_owned(), because })
}

/// How long the journal's sync took, and what stood in the page cache that it waits for.
fn journal_waited(sync: Contrast, backlog: Option<f64>) -> String {
    let (slow, usual) = (Unit::Milliseconds.show(sync.inside), Unit::Milliseconds.show(sync.outside));
    let behind = backlog.map_or(String::new(), |bytes| {
        format!(", with up to {} of the device in the page cache", Unit::Bytes.show(bytes))
    });
    format!("; a sync of the journal took {slow} instead of {usual}{behind}")
}

fn of_device(figures: &mut Figures, engine: &Engine<'_>, inside: &[bool]) {
    let Some(device) = engine.device else { return };
    let (written, busy) = (contrast(&device.written_bytes, inside), contrast(&device.busy, inside));
    let per_s = Unit::BytesPerSecond;
    figures.add("written_inside_bytes_per_s", written.map(|w| w.inside), per_s, "device writes meanwhile");
    figures.add("written_outside_bytes_per_s", written.map(|w| w.outside), per_s, "device writes otherwise");
    figures.add("device_busy_inside_ratio", busy.map(|b| b.inside), Unit::Ratio, "device busy meanwhile");
    figures.add("device_busy_outside_ratio", busy.map(|b| b.outside), Unit::Ratio, "device busy otherwise");
}
