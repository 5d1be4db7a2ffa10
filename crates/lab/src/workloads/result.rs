//! What a load came to.

use backwater_model::ArmTable;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies up to an hour, to three digits.
const LONGEST_US: u64 = 3_600_000_000;

/// Latencies of many transactions.
#[derive(Clone)]
pub struct Latencies(Option<Histogram<u64>>);

impl std::fmt::Debug for Latencies {
    /// The summary: there are thousands of buckets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.summary().fmt(f)
    }
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let made = Histogram::new_with_bounds(1, LONGEST_US, 3);
        debug_assert!(made.is_ok(), "the bounds are constant and valid");
        Latencies(made.ok())
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record((latency.as_micros() as u64).max(1));
        }
    }

    /// So many of the same latency, as another histogram has them.
    pub(crate) fn record_many(&mut self, latency: Duration, count: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record_n((latency.as_micros() as u64).max(1), count);
        }
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        if let (Some(histogram), Some(other)) = (&mut self.0, &other.0) {
            // Both have the same bounds, so adding cannot fail.
            let _ = histogram.add(other);
        }
    }

    /// The latency in milliseconds that this share (0 to 1) of transactions did not exceed; 0 where there are none.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.value_at_quantile(share) as f64 / 1e3)
    }

    /// The mean in milliseconds; 0 where there are none.
    pub fn mean_ms(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.mean() / 1e3)
    }

    /// The largest in milliseconds; 0 where there are none.
    pub fn max_ms(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.max() as f64 / 1e3)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// The figures that people ask for.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            mean_ms: self.mean_ms(),
            p50_ms: self.quantile_ms(0.50),
            p95_ms: self.quantile_ms(0.95),
            p99_ms: self.quantile_ms(0.99),
            max_ms: self.max_ms(),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies::new()
    }
}

/// The latencies that people ask for, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Of so many transactions.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95 of 100 did not exceed it.
    pub p95_ms: f64,
    /// 99 of 100 did not exceed it.
    pub p99_ms: f64,
    /// The largest.
    pub max_ms: f64,
}

/// What a load came to. The warm-up is not in it.
///
/// A transaction that was under way at the end is cancelled: it is neither completed nor failed, but its latency so
/// far is in both histograms, or an overload would look better than it is. Starts that were due and that no client
/// got round to are counted in `never_started`; of the engine's driver each is in `latency` too, with what it had waited
/// at the end.
#[derive(Clone, Debug, Default)]
pub struct LoadResult {
    /// How long it was measured, in seconds.
    pub seconds: f64,
    /// Transactions completed.
    pub completed: u64,
    /// Transactions that failed.
    pub failed: u64,
    /// Transactions under way at the end.
    pub cancelled: u64,
    /// Starts that were due before the end and that no client got round to.
    pub never_started: u64,
    /// Transactions completed in each whole second.
    pub per_second: Vec<u64>,
    /// From the intended start to the answer; in a closed loop the same as `service`.
    pub latency: Latencies,
    /// From the actual start to the answer.
    pub service: Latencies,
    /// Starts a second that were asked for; none in a closed loop.
    pub offered_per_s: Option<f64>,
    /// What the first transaction that failed was told.
    pub first_failure: Option<String>,
}

impl LoadResult {
    /// Transactions completed a second.
    pub fn tps(&self) -> f64 {
        if self.seconds > 0.0 { self.completed as f64 / self.seconds } else { 0.0 }
    }

    /// The latency from the intended start, in milliseconds, that this share (0 to 1) of transactions did not exceed.
    pub fn latency_ms(&self, share: f64) -> f64 {
        self.latency.quantile_ms(share)
    }

    /// The same from the actual start.
    pub fn service_ms(&self, share: f64) -> f64 {
        self.service.quantile_ms(share)
    }
}

/// What a load came to, with what only its own kind measures.
#[derive(Clone, Debug, Default)]
pub struct Driven {
    /// Transactions and their latencies.
    pub result: LoadResult,
    /// Metrics by their fixed names.
    pub figures: BTreeMap<String, f64>,
    /// Shares of a whole by the name of the whole.
    pub shares: BTreeMap<String, BTreeMap<String, f64>>,
    /// What it noted over time.
    pub table: Option<ArmTable>,
}

impl From<LoadResult> for Driven {
    fn from(result: LoadResult) -> Self {
        Driven { result, ..Driven::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_milliseconds_and_add_up() {
        let mut latencies = Latencies::new();
        for ms in 1..=100 {
            latencies.record(Duration::from_millis(ms));
        }
        let mut more = Latencies::new();
        more.record(Duration::from_secs(9_999));
        latencies.add(&more);
        assert_eq!(latencies.count(), 101);
        assert!((latencies.quantile_ms(0.5) - 51.0).abs() < 0.1, "{}", latencies.quantile_ms(0.5));
        assert!(latencies.max_ms() >= 3_600_000.0);
        assert_eq!(Latencies::new().summary(), LatencySummary::default());
    }
}
