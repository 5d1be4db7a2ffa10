//! The fixed metrics of one repeat of one arm, read from the recording.

use crate::workloads::LoadResult;
use backwater_diagnose::{Basis, cliff, drain, drain_time, time_to_cliff};
use backwater_model::{Moment, Span, Window, catalogue};
use std::collections::BTreeMap;

/// How much of a run's beginning a prediction may look at, in seconds.
pub const SEEN_S: f64 = 3.0;

/// When one repeat of an arm loaded the server and when it was over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phases {
    /// The load began, with all limits in force and nothing dirty.
    pub load_start: Moment,
    /// The last transaction was asked for.
    pub load_end: Moment,
    /// Nothing more was waited for.
    pub end: Moment,
}

/// Throughput as the load's own counter shows it: seconds since `from`, transactions a second, one value a second.
pub fn throughput(window: &Window, from: Moment, to: Moment) -> Vec<(f64, f64)> {
    let Some(track) = window.track(catalogue::LOAD_COMPLETED.name, &[]) else { return Vec::new() };
    let rates = track.between(from, to).rates(1.0);
    rates.iter().map(|rate| (rate.from.seconds_since(from), rate.per_second)).collect()
}

/// All metrics that this repeat could measure, by their fixed names.
pub fn of_arm(window: &Window, device: Option<&str>, phases: Phases, load: &LoadResult) -> BTreeMap<String, f64> {
    let mut metrics = Metrics::default();
    let curve = throughput(window, phases.load_start, phases.load_end);
    metrics.load(&curve, load);
    if let Some(fall) = cliff::find(&curve) {
        metrics.put("time_to_cliff_s", Some(fall.at_s));
        metrics.put("tps_after", Some(fall.after_per_s));
    }
    metrics.checkpoints(window, phases);
    metrics.processors(window, phases);
    if let Some(device) = device {
        metrics.dirty(window, device, phases);
    }
    metrics.error_of("cliff_prediction_error_ratio", "predicted_time_to_cliff_s", "time_to_cliff_s");
    metrics.error_of("drain_prediction_error_ratio", "predicted_drain_s", "drain_s");
    metrics.0
}

#[derive(Default)]
struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn put(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// How far a prediction was off, as a share of what was measured.
    fn error_of(&mut self, name: &str, predicted: &str, measured: &str) {
        if let (Some(predicted), Some(measured)) = (self.0.get(predicted), self.0.get(measured))
            && *measured > 0.0
        {
            let error = (predicted - measured).abs() / measured;
            self.put(name, Some(error));
        }
    }

    fn load(&mut self, curve: &[(f64, f64)], load: &LoadResult) {
        self.put("tps_mean", Some(load.tps()));
        self.put("tps_peak", curve.iter().map(|(_, rate)| *rate).reduce(f64::max));
        self.put("tps_least", curve.iter().map(|(_, rate)| *rate).reduce(f64::min));
        self.put("latency_p50_ms", Some(load.latency_ms(0.50)));
        self.put("latency_p99_ms", Some(load.latency_ms(0.99)));
        self.put("service_p99_ms", Some(load.service_ms(0.99)));
        self.put("failed", Some(load.failed as f64));
        self.put("never_started", Some(load.never_started as f64));
    }

    fn dirty(&mut self, window: &Window, device: &str, phases: Phases) {
        let early = window.slice(window.from, phases.load_start + Span::from_seconds(SEEN_S));
        let cliff = time_to_cliff(&early, device, phases.load_start, SEEN_S);
        // A cliff that has come within the readings is no prediction.
        let ahead = cliff.filter(|prediction| prediction.basis != Basis::Reached);
        self.put("predicted_time_to_cliff_s", ahead.map(|prediction| prediction.at_s));
        let loaded = window.slice(window.from, phases.load_end);
        let drain_ahead = drain_time(&loaded, device, phases.load_end);
        self.put("predicted_drain_s", drain_ahead.map(|prediction| prediction.drain_s));
        if let Some(drained) = drain::measure(window, device, phases.load_end) {
            self.put("drain_s", Some(drained.drain_s));
            self.put("residual_bytes", Some(drained.residual_bytes));
        }
        self.put("dirty_peak_bytes", dirty_levels(window, device, phases).into_iter().reduce(f64::max));
    }

    fn checkpoints(&mut self, window: &Window, phases: Phases) {
        let Some(track) = window.tracks(catalogue::PG_CHECKPOINT_SYNC_MS.name, &[]).next() else { return };
        let points = track.between(phases.load_start, phases.end).points;
        let longest =
            points.windows(2).map(|pair| pair[1].value - pair[0].value).filter(|ms| *ms >= 0.0).reduce(f64::max);
        self.put("checkpoint_sync_max_s", longest.map(|ms| ms / 1e3));
    }

    fn processors(&mut self, window: &Window, phases: Phases) {
        let rate =
            |def: &catalogue::Def| window.track(def.name, &[])?.between(phases.load_start, phases.load_end).rate();
        let parts = [
            &catalogue::CPU_USER,
            &catalogue::CPU_SYSTEM,
            &catalogue::CPU_IDLE,
            &catalogue::CPU_IOWAIT,
            &catalogue::CPU_STEAL,
        ];
        let rates: Vec<f64> = parts.iter().filter_map(|def| rate(def)).collect();
        if let [_, _, idle, iowait, _] = rates[..] {
            self.put("idle_cpu_ratio", Some((idle + iowait) / rates.iter().sum::<f64>()));
        }
    }
}

/// Dirty plus under writeback, at each reading of the device while it was loaded and drained.
pub fn dirty_levels(window: &Window, device: &str, phases: Phases) -> Vec<f64> {
    let labels = [("dev", device)];
    let between = |name| Some(window.track(name, &labels)?.between(phases.load_start, phases.end));
    let Some(reclaimable) = between(catalogue::BDI_RECLAIMABLE.name) else { return Vec::new() };
    let Some(writeback) = between(catalogue::BDI_WRITEBACK.name) else { return Vec::new() };
    reclaimable.points.iter().filter_map(|point| Some(point.value + writeback.at(point.at, 1.0)?.value)).collect()
}

/// The median of the values; none where there is none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
