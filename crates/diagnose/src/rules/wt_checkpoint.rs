//! checkpoint-burst, cause engine-burst: writes dip, or take longer, while WiredTiger's checkpoints run, because what a
//! checkpoint brings at once stands in the device before the journal.

use super::draft::draft;
use super::wt_evidence::{Contrast, Engine, engines, flags_of};
use crate::figures::Figures;
use crate::grid::episodes;
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, RuledOut, Severity, Unit};
use std::ops::Range;

/// A checkpoint shorter than this cannot be told from noise on a grid of seconds.
const SHORTEST_S: usize = 2;
/// Checkpoints that must be seen: one dip may have any reason.
const HABIT: usize = 2;
/// Share of the window beyond which checkpoints are no bursts: there is nothing to compare with.
const MOST_SHARE: f64 = 0.7;
/// Work inside ÷ outside at most; latency inside ÷ outside at least.
const DIP: f64 = 0.7;
const JUMP: f64 = 2.0;
/// How many more times the device must be busy, or write, inside than outside.
const BURST: f64 = 1.3;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    engines(scene).iter().filter_map(|engine| of_engine(scene, engine)).collect()
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let runs = episodes(&engine.checkpoint.flags(|running| running > 0.0), SHORTEST_S, 0);
    let inside = flags_of(&runs, scene.grid.count);
    let seconds = inside.iter().filter(|flag| **flag).count();
    if runs.len() < HABIT || seconds as f64 > MOST_SHARE * scene.grid.count as f64 {
        return None;
    }
    let (work, latency) = (engine.work(&inside), engine.latency(&inside));
    let fell = work.filter(|work| work.times() <= DIP);
    let jumped = latency.filter(|latency| latency.times() >= JUMP);
    if (fell.is_none() && jumped.is_none()) || !bursts(engine, &inside)? {
        return None;
    }
    // Most checkpoints must be so, not one bad one among many.
    let bad = runs.iter().filter(|run| suffers(engine, run, work, latency)).count();
    (bad >= HABIT && bad * 2 >= runs.len()).then(|| finding(scene, engine, &runs, (fell, jumped), &inside))
}

/// Whether the device does more while checkpoints run; none where it is not seen.
fn bursts(engine: &Engine<'_>, inside: &[bool]) -> Option<bool> {
    let device = engine.device?;
    let more =
        |lane| super::wt_evidence::contrast(lane, inside).is_some_and(|c| c.times() >= BURST || c.outside == 0.0);
    Some(more(&device.written_bytes) || more(&device.busy))
}

fn suffers(engine: &Engine<'_>, run: &Range<usize>, work: Option<Contrast>, latency: Option<Contrast>) -> bool {
    let low = engine.writes.mean(run).zip(work).is_some_and(|(own, work)| own <= DIP * work.outside);
    let slow = engine.write_ms.mean(run).zip(latency).is_some_and(|(own, latency)| own >= JUMP * latency.outside);
    low || slow
}

fn finding(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    runs: &[Range<usize>],
    (fell, jumped): (Option<Contrast>, Option<Contrast>),
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
    finding.summary.push_str(": what a checkpoint brings at once stands in the device before everything else.");
    let mut figures = Figures::default();
    figures.add("checkpoint_s", Some(mean_s), Unit::Seconds, "length of a checkpoint");
    figures.add("checkpoint_interval_s", interval_s, Unit::Seconds, "from one checkpoint's start to the next");
    figures.add("burst_bytes", burst, Unit::Bytes, "dirty in the cache when a checkpoint begins");
    figures.add("writes_inside_per_s", fell.map(|work| work.inside), Unit::PerSecond, "writes meanwhile");
    figures.add("writes_outside_per_s", fell.map(|work| work.outside), Unit::PerSecond, "writes otherwise");
    figures.add("write_inside_ms", jumped.map(|l| l.inside), Unit::Milliseconds, "latency of a write meanwhile");
    figures.add("write_outside_ms", jumped.map(|l| l.outside), Unit::Milliseconds, "latency of a write otherwise");
    if let Some(device) = engine.device {
        let written = super::wt_evidence::contrast(&device.written_bytes, inside);
        figures.add(
            "written_inside_bytes_per_s",
            written.map(|w| w.inside),
            Unit::BytesPerSecond,
            "device writes meanwhile",
        );
        figures.add(
            "written_outside_bytes_per_s",
            written.map(|w| w.outside),
            Unit::BytesPerSecond,
            "device writes otherwise",
        );
        let busy = super::wt_evidence::contrast(&device.busy, inside);
        figures.add("device_busy_inside_ratio", busy.map(|b| b.inside), Unit::Ratio, "device busy meanwhile");
        figures.add("device_busy_outside_ratio", busy.map(|b| b.outside), Unit::Ratio, "device busy otherwise");
    }
    finding.evidence = figures.list();
    finding.victims = vec![format!("wt.journal@{}", engine.name), format!("mongo.writes@{}", engine.name)];
    let peak = engine.dirty_share().max(&whole);
    if let Some(peak) = peak.filter(|peak| *peak < engine.limits.dirty_trigger * 0.9) {
        let because = format!("dirty pages filled at most {} of the cache", Unit::Ratio.show(peak));
        finding.ruled_out.push(RuledOut { cause: "wt-dirty-stall".to_owned(), because });
    }
    finding
}
