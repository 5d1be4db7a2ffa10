//! What a load has come to: counters, latencies, and what was intended and done in each second.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Latencies up to an hour, to three digits.
const LONGEST_US: u64 = 3_600_000_000;
/// A second with less than this share of its intended work done is a stall.
const STALL_SHARE: f64 = 0.05;

/// One distribution of latencies, in microseconds.
#[derive(Debug)]
pub(crate) struct Latencies(Mutex<Histogram<u64>>);

impl Latencies {
    fn new() -> Latencies {
        Latencies(Mutex::new(Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are constant and valid")))
    }

    pub(crate) fn record(&self, ns: u64) {
        let mut histogram = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        histogram.saturating_record((ns / 1_000).max(1));
    }

    /// The usual figures in milliseconds, and every bucket as `[microseconds, count]`.
    fn told(&self) -> Value {
        let histogram = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = |share: f64| histogram.value_at_quantile(share) as f64 / 1e3;
        let buckets: Vec<[u64; 2]> =
            histogram.iter_recorded().map(|step| [step.value_iterated_to(), step.count_at_value()]).collect();
        json!({
            "count": histogram.len(),
            "mean_ms": histogram.mean() / 1e3,
            "p50_ms": ms(0.5),
            "p99_ms": ms(0.99),
            "p999_ms": ms(0.999),
            "max_ms": histogram.max() as f64 / 1e3,
            "buckets": buckets,
        })
    }
}

/// Everything that is counted of a load.
#[derive(Debug)]
pub(crate) struct Tally {
    /// From the intended start until it counted as done; until the load's end where it never began.
    pub(crate) latency: Latencies,
    /// From the intended start until its commit had returned; until the load's end where it never began.
    pub(crate) commit: Latencies,
    /// From the actual start until its commit had returned.
    pub(crate) service: Latencies,
    pub(crate) begun: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Times a transaction was rolled back and tried again.
    pub(crate) conflicts: AtomicU64,
    pub(crate) never_started: AtomicU64,
    /// Documents deleted because they had expired.
    pub(crate) deleted: AtomicU64,
    pub(crate) threads_made: AtomicU64,
    pub(crate) threads_ended: AtomicU64,
    latency_us: AtomicU64,
    service_us: AtomicU64,
    intended: Vec<AtomicU32>,
    done: Vec<AtomicU32>,
    first_failure: Mutex<Option<String>>,
}

impl Tally {
    pub(crate) fn new(seconds: f64) -> Tally {
        let rows = || (0..seconds.ceil() as usize).map(|_| AtomicU32::new(0)).collect();
        Tally {
            latency: Latencies::new(),
            commit: Latencies::new(),
            service: Latencies::new(),
            begun: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            never_started: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            threads_made: AtomicU64::new(0),
            threads_ended: AtomicU64::new(0),
            latency_us: AtomicU64::new(0),
            service_us: AtomicU64::new(0),
            intended: rows(),
            done: rows(),
            first_failure: Mutex::new(None),
        }
    }

    /// An operation was to begin then.
    pub(crate) fn intend(&self, due_ns: u64) {
        count(&self.intended, due_ns);
    }

    /// Its commit has returned.
    pub(crate) fn committed(&self, due_ns: u64, began_ns: u64, now_ns: u64) {
        self.commit.record(now_ns.saturating_sub(due_ns));
        self.served(began_ns, now_ns);
    }

    /// It has taken so long, whatever came of it.
    pub(crate) fn served(&self, began_ns: u64, now_ns: u64) {
        self.service.record(now_ns.saturating_sub(began_ns));
        self.service_us.fetch_add(now_ns.saturating_sub(began_ns) / 1_000, Relaxed);
    }

    /// It counts as done.
    pub(crate) fn finish(&self, due_ns: u64, now_ns: u64) {
        let latency = now_ns.saturating_sub(due_ns);
        self.latency.record(latency);
        self.latency_us.fetch_add(latency / 1_000, Relaxed);
        self.completed.fetch_add(1, Relaxed);
        count(&self.done, now_ns);
    }

    /// It was due and nobody got round to it before the load's end: it took that long at least, and would have gone on waiting.
    /// Left out, what an overload does to most operations would be in no latency.
    pub(crate) fn never_began(&self, due_ns: u64, end_ns: u64) {
        let waited = end_ns.saturating_sub(due_ns);
        self.latency.record(waited);
        self.commit.record(waited);
        self.never_started.fetch_add(1, Relaxed);
    }

    pub(crate) fn fail(&self, why: &str) {
        self.failed.fetch_add(1, Relaxed);
        self.first_failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_owned());
    }

    /// Running totals.
    pub(crate) fn progress(&self) -> Value {
        let (completed, failed) = (self.completed.load(Relaxed), self.failed.load(Relaxed));
        // Ended first: what ends meanwhile is then counted as alive, never the other way round.
        let ended = self.threads_ended.load(Relaxed);
        let made = self.threads_made.load(Relaxed);
        json!({
            "event": "progress",
            "at_us": crate::protocol::boot_us(),
            "completed": completed,
            "failed": failed,
            "in_flight": self.begun.load(Relaxed).saturating_sub(completed + failed),
            "latency_us_total": self.latency_us.load(Relaxed),
            "service_us_total": self.service_us.load(Relaxed),
            "deleted": self.deleted.load(Relaxed),
            "threads_made": made,
            "threads": made.saturating_sub(ended),
        })
    }

    /// Everything, at the end of `seconds`.
    pub(crate) fn told(&self, seconds: f64) -> Value {
        let rows = self.rows();
        json!({
            "seconds": seconds,
            "completed": self.completed.load(Relaxed),
            "failed": self.failed.load(Relaxed),
            "first_failure": *self.first_failure.lock().unwrap_or_else(PoisonError::into_inner),
            "conflicts": self.conflicts.load(Relaxed),
            "never_started": self.never_started.load(Relaxed),
            "deleted": self.deleted.load(Relaxed),
            "threads_made": self.threads_made.load(Relaxed),
            "ops_per_s": rows.iter().map(|[_, done]| f64::from(*done)).sum::<f64>() / seconds.max(1e-9),
            "stall_s": stalls(&rows),
            "busy_us": self.service_us.load(Relaxed),
            "latency": self.latency.told(),
            "commit": self.commit.told(),
            "service": self.service.told(),
            "per_second": rows,
        })
    }

    /// What was intended and done in each second.
    fn rows(&self) -> Vec<[u32; 2]> {
        self.intended.iter().zip(&self.done).map(|(a, b)| [a.load(Relaxed), b.load(Relaxed)]).collect()
    }
}

fn count(rows: &[AtomicU32], at_ns: u64) {
    // What is done after the end is in no row.
    if let Some(row) = rows.get((at_ns / 1_000_000_000) as usize) {
        row.fetch_add(1, Relaxed);
    }
}

/// Seconds with less than a twentieth of the intended work done.
fn stalls(rows: &[[u32; 2]]) -> usize {
    rows.iter().filter(|[intended, done]| f64::from(*done) < STALL_SHARE * f64::from(*intended)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_without_work_done_is_a_stall() {
        assert_eq!(stalls(&[[100, 100], [100, 4], [100, 5], [0, 0], [100, 0]]), 2);
    }

    #[test]
    fn figures_are_of_what_was_recorded() {
        let tally = Tally::new(2.0);
        for (due, done) in [(0, 4_000_000), (1_500_000_000, 1_900_000_000), (1_600_000_000, 2_100_000_000)] {
            tally.begun.fetch_add(1, Relaxed);
            tally.intend(due);
            tally.committed(due, due + 1_000_000, done);
            tally.finish(due, done);
        }
        let told = tally.told(2.0);
        assert_eq!(told["per_second"], json!([[1, 1], [2, 1]]));
        assert_eq!((&told["completed"], &told["ops_per_s"], &told["stall_s"]), (&json!(3), &json!(1.0), &json!(0)));
        assert!((told["latency"]["max_ms"].as_f64().unwrap_or(0.0) - 500.0).abs() < 1.0, "{told}");
        assert_eq!(tally.progress()["in_flight"], 0);
    }

    #[test]
    fn who_never_began_has_waited_until_the_end() {
        let tally = Tally::new(2.0);
        tally.begun.fetch_add(1, Relaxed);
        tally.committed(0, 0, 1_000_000);
        tally.finish(0, 1_000_000);
        for due in [500_000_000, 1_999_999_999] {
            tally.intend(due);
            tally.never_began(due, 2_000_000_000);
        }
        let told = tally.told(2.0);
        assert_eq!((&told["completed"], &told["never_started"]), (&json!(1), &json!(2)));
        let counts = ["latency", "commit", "service"].map(|name| told[name]["count"].as_u64());
        assert_eq!(counts, [Some(3), Some(3), Some(1)], "{told}");
        for name in ["latency", "commit"] {
            assert!((told[name]["max_ms"].as_f64().unwrap_or(0.0) - 1_500.0).abs() < 2.0, "{told}");
        }
        assert_eq!((tally.progress()["in_flight"].as_u64(), told["stall_s"].as_u64()), (Some(0), Some(1)));
    }
}
