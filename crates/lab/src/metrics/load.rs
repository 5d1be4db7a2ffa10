//! What a load came to, and what it left of the processors.

use super::{Metrics, Seen};
use backwater_diagnose::cliff;
use backwater_model::{Event, EventKind, Moment, Window, catalogue};

/// Throughput as the load's own counter shows it: seconds since `from`, transactions a second, one value a second.
pub fn throughput(window: &Window, from: Moment, to: Moment) -> Vec<(f64, f64)> {
    let Some(track) = window.track(catalogue::LOAD_COMPLETED.name, &[]) else { return Vec::new() };
    let rates = track.between(from, to).rates(1.0);
    rates.iter().map(|rate| (rate.from.seconds_since(from), rate.per_second)).collect()
}

pub(super) fn measure(seen: &Seen<'_>, into: &mut Metrics) {
    let (phases, load) = (seen.phases, seen.load);
    let curve = throughput(seen.window, phases.load_start, phases.load_end);
    into.put("tps_mean", Some(load.tps()));
    into.put("tps_peak", cliff::peak(&curve.iter().map(|(_, rate)| *rate).collect::<Vec<_>>()));
    into.put("tps_least", curve.iter().map(|(_, rate)| *rate).reduce(f64::min));
    into.put("latency_p50_ms", Some(load.latency_ms(0.50)));
    into.put("latency_p99_ms", Some(load.latency_ms(0.99)));
    into.put("service_p99_ms", Some(load.service_ms(0.99)));
    into.put("failed", Some(load.failed as f64));
    into.put("never_started", Some(load.never_started as f64));
    // A standby's fall has other causes than full buffers, and a name of its own.
    if seen.standby.is_none()
        && let Some(fall) = cliff::find(&curve)
    {
        into.put("time_to_cliff_s", Some(fall.at_s));
        into.put("tps_after", Some(fall.after_per_s));
    }
    checkpoints(seen, into);
}

fn checkpoints(seen: &Seen<'_>, into: &mut Metrics) {
    let labels = [("target", seen.primary)];
    let Some(track) = seen.window.tracks(catalogue::PG_CHECKPOINT_SYNC_MS.name, &labels).next() else { return };
    let points = track.between(seen.phases.load_start, seen.phases.end).points;
    let longest = points.windows(2).map(|pair| pair[1].value - pair[0].value).filter(|ms| *ms >= 0.0).reduce(f64::max);
    into.put("checkpoint_sync_max_s", longest.map(|ms| ms / 1e3));
    into.put("checkpoint_unfinished_s", unfinished_checkpoint_s(seen));
}

/// How long the checkpoint had run that was still under way when the arm ended; its sync is in no counter yet. None where
/// the last one that the log knows of had ended.
fn unfinished_checkpoint_s(seen: &Seen<'_>) -> Option<f64> {
    let (from, to) = (seen.phases.load_start, seen.phases.end);
    let lines = seen.window.events_of(EventKind::Log).filter(|event| event.source == seen.primary);
    let lines = lines.filter(|event| from <= event.at && event.at <= to);
    let last = lines.filter(|event| event.message.contains("checkpoint starting:") || complete(event)).last()?;
    (!complete(last)).then(|| to.seconds_since(last.at))
}

fn complete(event: &Event) -> bool {
    event.message.contains("checkpoint complete:")
}

/// What was left of the processors.
pub(super) fn processors(seen: &Seen<'_>, into: &mut Metrics) {
    let phases = seen.phases;
    let rate =
        |def: &catalogue::Def| seen.window.track(def.name, &[])?.between(phases.load_start, phases.load_end).rate();
    let parts = [
        &catalogue::CPU_USER,
        &catalogue::CPU_SYSTEM,
        &catalogue::CPU_IDLE,
        &catalogue::CPU_IOWAIT,
        &catalogue::CPU_STEAL,
    ];
    let rates: Vec<f64> = parts.iter().filter_map(|def| rate(def)).collect();
    if let [_, _, idle, iowait, _] = rates[..] {
        into.put("idle_cpu_ratio", Some((idle + iowait) / rates.iter().sum::<f64>()));
    }
}
