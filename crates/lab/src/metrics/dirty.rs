//! How full a volume's page cache became, when the cliff came, and how long the drain took: predicted and measured.

use super::{Metrics, Phases, SEEN_S, Seen};
use backwater_diagnose::{Basis, drain, drain_time, time_to_cliff};
use backwater_model::{Span, Window, catalogue};

pub(super) fn measure(seen: &Seen<'_>, device: &str, into: &mut Metrics) {
    let (window, phases) = (seen.window, seen.phases);
    into.put("dirty_peak_bytes", dirty_levels(window, device, phases).into_iter().reduce(f64::max));
    // Where WAL lies on the volume too, or a standby is what the experiment is about, there is no drain to wait for; and what an engine
    // has to drain stands in its own cache.
    if seen.standby.is_some() || super::engine::is_one(seen) {
        return;
    }
    let early = window.slice(window.from, phases.load_start + Span::from_seconds(SEEN_S));
    let cliff = time_to_cliff(&early, device, phases.load_start, SEEN_S);
    // A cliff that has come within the readings is no prediction.
    let ahead = cliff.filter(|prediction| prediction.basis != Basis::Reached);
    into.put("predicted_time_to_cliff_s", ahead.map(|prediction| prediction.at_s));
    let loaded = window.slice(window.from, phases.load_end);
    let drain_ahead = drain_time(&loaded, device, phases.load_end);
    into.put("predicted_drain_s", drain_ahead.map(|prediction| prediction.drain_s));
    if let Some(drained) = drain::measure(window, device, phases.load_end) {
        into.put("drain_s", Some(drained.drain_s));
        into.put("residual_bytes", Some(drained.residual_bytes));
    }
    into.error_of("cliff_prediction_error_ratio", "predicted_time_to_cliff_s", "time_to_cliff_s");
    into.error_of("drain_prediction_error_ratio", "predicted_drain_s", "drain_s");
}

/// Dirty plus under writeback, at each reading of the device while it was loaded and drained.
pub fn dirty_levels(window: &Window, device: &str, phases: Phases) -> Vec<f64> {
    let labels = [("dev", device)];
    let between = |name| Some(window.track(name, &labels)?.between(phases.load_start, phases.end));
    let Some(reclaimable) = between(catalogue::BDI_RECLAIMABLE.name) else { return Vec::new() };
    let Some(writeback) = between(catalogue::BDI_WRITEBACK.name) else { return Vec::new() };
    reclaimable.points.iter().filter_map(|point| Some(point.value + writeback.at(point.at, 1.0)?.value)).collect()
}
