//! What the recording shows of the WiredTiger engine and of how evenly it used its disk. What only its driver sees
//! (latencies, stalls, evicting) comes with the load's own figures.

use super::{Metrics, Seen};
use backwater_diagnose::{EngineOptions, advise_engines};
use backwater_model::catalogue;

/// Whether it is an engine that was watched.
pub(super) fn is_one(seen: &Seen<'_>) -> bool {
    seen.window.track(catalogue::WT_CACHE_DIRTY.name, &[("target", seen.primary)]).is_some()
}

/// What a checkpoint brings, and how long the disk takes for that: as `backwater advise` reckons it.
fn burst(seen: &Seen<'_>, into: &mut Metrics) {
    let window = seen.window.slice(seen.phases.load_start, seen.phases.load_end);
    let Some(advice) = advise_engines(&window, &EngineOptions::default()).into_iter().next() else { return };
    for name in ["burst_bytes", "drain_s"] {
        into.put(name, advice.observed.iter().find(|figure| figure.name == name).map(|figure| figure.value));
    }
}

pub(super) fn measure(seen: &Seen<'_>, into: &mut Metrics) {
    let (from, to) = (seen.phases.load_start, seen.phases.load_end);
    let of_engine =
        |def: &catalogue::Def| Some(seen.window.track(def.name, &[("target", seen.primary)])?.between(from, to).points);
    let Some(dirty) = of_engine(&catalogue::WT_CACHE_DIRTY) else { return };
    burst(seen, into);
    let largest = |points: &[backwater_model::Point]| points.iter().map(|point| point.value).reduce(f64::max);
    let dirty_peak = largest(dirty);
    into.put("cache_dirty_peak_bytes", dirty_peak);
    let cache = of_engine(&catalogue::WT_CACHE_MAX).and_then(largest).filter(|bytes| *bytes > 0.0);
    into.put("cache_dirty_peak_ratio", dirty_peak.zip(cache).map(|(dirty, cache)| dirty / cache));
    let checkpoint_ms = of_engine(&catalogue::WT_CHECKPOINT_MS).and_then(largest);
    into.put("checkpoint_max_s", checkpoint_ms.filter(|ms| *ms > 0.0).map(|ms| ms / 1e3));
    if let Some(device) = seen.device
        && let Some(written) = seen.window.track(catalogue::DISK_WRITTEN_BYTES.name, &[("dev", device)])
    {
        let rates: Vec<f64> = written.between(from, to).rates(1.0).iter().map(|rate| rate.per_second).collect();
        into.put("disk_written_bytes_per_s", mean(&rates));
        into.put("disk_cv", variation(&rates));
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard deviation as a share of the mean; none of fewer than three values.
fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean > 0.0 && values.len() >= 3)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / values.len() as f64).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_busy_half_the_seconds_varies_by_its_mean() {
        assert_eq!(variation(&[10.0, 0.0, 10.0, 0.0]), Some(1.0));
        assert_eq!(variation(&[5.0, 5.0, 5.0]), Some(0.0));
        assert_eq!(variation(&[0.0, 0.0, 0.0]), None);
    }
}
