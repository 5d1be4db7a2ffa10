//! What a load has done so far, for whoever looks on while it runs.

use backwater_model::{Epoch, catalogue};
use backwater_probe::{Probe, ProbeError, Sink, now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Running totals of a load, warm-up included. Shared by its clients and whoever looks on.
#[derive(Debug, Default)]
pub struct Counters {
    /// Transactions completed.
    pub completed: AtomicU64,
    /// Transactions that failed.
    pub failed: AtomicU64,
    /// Sum of latencies from the intended start, in microseconds.
    pub latency_us_total: AtomicU64,
    /// Sum of latencies from the actual start, in microseconds.
    pub service_us_total: AtomicU64,
    /// Transactions begun and not yet answered.
    pub in_flight: AtomicU64,
    /// Rows whose statement was answered, where they are counted.
    pub rows: AtomicU64,
    /// Time in the commits of completed transactions alone, in microseconds, where rows are counted.
    pub commit_us_total: AtomicU64,
    /// Whether this load counts rows and times commits.
    pub counts_rows: AtomicBool,
}

impl Counters {
    /// A transaction begins. It is in flight until what is returned is dropped.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(self)
    }

    pub(crate) fn complete(&self, latency: Duration, service: Duration) {
        self.completed.fetch_add(1, Relaxed);
        self.latency_us_total.fetch_add(latency.as_micros() as u64, Relaxed);
        self.service_us_total.fetch_add(service.as_micros() as u64, Relaxed);
    }

    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Relaxed);
    }
}

/// One transaction that has begun.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a Counters);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Reads a load's counters into the recording, ten times a second.
#[derive(Debug)]
pub struct LoadProbe {
    counters: Arc<Counters>,
    epoch: Epoch,
}

impl LoadProbe {
    /// A probe of these counters. Each probe is an epoch of its own.
    pub fn new(counters: Arc<Counters>) -> Self {
        let began = now().0.to_string();
        LoadProbe { counters, epoch: Epoch::of(&["load", &std::process::id().to_string(), &began]) }
    }
}

impl Probe for LoadProbe {
    fn name(&self) -> &str {
        "load"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        let counters = &self.counters;
        for (def, value) in [
            (&catalogue::LOAD_COMPLETED, &counters.completed),
            (&catalogue::LOAD_FAILED, &counters.failed),
            (&catalogue::LOAD_LATENCY_US, &counters.latency_us_total),
            (&catalogue::LOAD_SERVICE_US, &counters.service_us_total),
            (&catalogue::LOAD_WAITING, &counters.in_flight),
        ] {
            sink.put::<&str>(def, &[], self.epoch, value.load(Relaxed) as f64);
        }
        if counters.counts_rows.load(Relaxed) {
            sink.put::<&str>(&catalogue::LOAD_ROWS, &[], self.epoch, counters.rows.load(Relaxed) as f64);
            let commit_us = counters.commit_us_total.load(Relaxed) as f64;
            sink.put::<&str>(&catalogue::LOAD_COMMIT_US, &[], self.epoch, commit_us);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Batch, Moment, Registry};
    use std::collections::HashSet;

    #[test]
    fn the_probe_tells_every_counter_in_one_epoch() {
        let counters = Arc::new(Counters::default());
        counters.complete(Duration::from_millis(5), Duration::from_millis(2));
        counters.fail();
        let _one = counters.begin();
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        let mut probe = LoadProbe::new(Arc::clone(&counters));
        probe.read(&mut Sink::new(Moment(1), &registry, &mut batch, &mut absences)).unwrap();
        let values: Vec<f64> = batch.points.iter().map(|point| point.value).collect();
        assert_eq!(values, [1.0, 1.0, 5_000.0, 2_000.0, 1.0]);
        assert!(batch.points.iter().all(|point| point.epoch == batch.points[0].epoch));
    }

    #[test]
    fn what_is_dropped_is_no_longer_in_flight() {
        let counters = Counters::default();
        drop(counters.begin());
        assert_eq!(counters.in_flight.load(Relaxed), 0);
    }
}
