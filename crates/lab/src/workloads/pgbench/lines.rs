//! The lines that pgbench writes: its progress, and its log of transactions.

use crate::workloads::{Counters, LoadResult};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One line of its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    at_s: f64,
    tps: f64,
    latency_ms: f64,
    lag_ms: f64,
    failed: u64,
}

impl Progress {
    /// Reads `progress: 5.0 s, 3984.9 tps, lat 0.512 ms stddev 0.101, 0 failed, lag 0.020 ms`; before version 15 it has
    /// no `failed`, and `lag` only with a rate.
    pub(crate) fn parse(line: &str) -> Option<Progress> {
        let mut progress = Progress::default();
        let mut has_rate = false;
        for part in line.trim().strip_prefix("progress:")?.split(',') {
            match part.split_whitespace().collect::<Vec<_>>()[..] {
                [at, "s"] => progress.at_s = at.parse().ok()?,
                [tps, "tps"] => (progress.tps, has_rate) = (tps.parse().ok()?, true),
                ["lat", latency, "ms", ..] => progress.latency_ms = latency.parse().ok()?,
                ["lag", lag, "ms"] => progress.lag_ms = lag.parse().ok()?,
                [failed, "failed"] => progress.failed = failed.parse().ok()?,
                _ => {}
            }
        }
        let whole = [progress.at_s, progress.tps, progress.latency_ms, progress.lag_ms];
        (has_rate && whole.iter().all(|number| number.is_finite() && *number >= 0.0)).then_some(progress)
    }

    /// Adds it to the counters; returns its time, for the next.
    pub(crate) fn count(&self, before_s: f64, counters: &Counters) -> f64 {
        let completed = (self.tps * (self.at_s - before_s).max(0.0)).round();
        let add = |counter: &AtomicU64, value: f64| counter.fetch_add(value as u64, Ordering::Relaxed);
        add(&counters.completed, completed);
        add(&counters.failed, self.failed as f64);
        add(&counters.latency_us_total, completed * self.latency_ms * 1e3);
        add(&counters.service_us_total, completed * (self.latency_ms - self.lag_ms).max(0.0) * 1e3);
        self.at_s
    }
}

/// One line of its log: a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    /// From the intended start, in microseconds; none where it failed.
    latency_us: Option<u64>,
    /// How late it started, in microseconds.
    lag_us: u64,
    /// When it ended, in microseconds of Unix time.
    ended_us: u64,
}

impl Logged {
    /// Reads `client transaction latency script seconds microseconds [lag]`.
    pub(crate) fn parse(line: &str) -> Option<Logged> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, latency, _, seconds, microseconds, ref rest @ ..] = fields[..] else { return None };
        let latency_us = match latency {
            "skipped" => return None,
            other => other.parse().ok(),
        };
        let ended_us = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(microseconds.parse().ok()?)?;
        let lag_us = rest.first().and_then(|lag| lag.parse().ok()).unwrap_or(0);
        Some(Logged { latency_us, lag_us, ended_us })
    }

    /// Adds it to the result if it ended in the measured part.
    pub(crate) fn count(&self, from_us: u64, duration: Duration, result: &mut LoadResult) {
        let Some(at) = self.ended_us.checked_sub(from_us).map(Duration::from_micros).filter(|at| *at < duration) else {
            return;
        };
        let Some(latency_us) = self.latency_us else {
            result.failed += 1;
            return;
        };
        result.completed += 1;
        if let Some(count) = result.per_second.get_mut(at.as_secs() as usize) {
            *count += 1;
        }
        result.latency.record(Duration::from_micros(latency_us));
        result.service.record(Duration::from_micros(latency_us.saturating_sub(self.lag_us)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn progress_is_read_of_old_and_new_versions() {
        let new =
            Progress::parse("progress: 5.0 s, 3984.9 tps, lat 0.512 ms stddev 0.101, 2 failed, lag 0.020 ms").unwrap();
        assert_eq!(new, Progress { at_s: 5.0, tps: 3984.9, latency_ms: 0.512, lag_ms: 0.020, failed: 2 });
        let old = Progress::parse("progress: 1.0 s, 10.0 tps, lat 2.000 ms stddev 0.101").unwrap();
        assert_eq!(old, Progress { at_s: 1.0, tps: 10.0, latency_ms: 2.0, ..Progress::default() });
        assert_eq!(Progress::parse("pgbench: error: connection lost"), None);
        let counters = Counters::default();
        assert_eq!(old.count(0.5, &counters), 1.0);
        assert_eq!(counters.completed.into_inner(), 5);
        assert_eq!(counters.latency_us_total.into_inner(), 10_000);
    }

    #[test]
    fn logged_transactions_are_counted_inside_the_measured_part() {
        let line = |ended: u64, latency: &str| Logged::parse(&format!("0 7 {latency} 0 {ended} 500000 300")).unwrap();
        let mut result = LoadResult { per_second: vec![0; 2], ..LoadResult::default() };
        for logged in [line(99, "1000"), line(100, "1000"), line(101, "2000"), line(101, "failed"), line(102, "1000")] {
            logged.count(100_000_000, Duration::from_secs(2), &mut result);
        }
        assert_eq!((result.completed, result.failed, result.per_second), (2, 1, vec![1, 1]));
        assert!((result.latency.max_ms() - 2.0).abs() < 0.01 && (result.service.max_ms() - 1.7).abs() < 0.01);
        assert_eq!(Logged::parse("0 7 skipped 0 99 1 1"), None);
    }

    proptest! {
        #[test]
        fn any_output_is_survived(text in ".*", numbers in "progress: [0-9eE.+, a-zN-]{0,60}|[0-9 ]{0,80}") {
            for line in [text, numbers] {
                if let Some(progress) = Progress::parse(&line) {
                    progress.count(0.0, &Counters::default());
                }
                if let Some(logged) = Logged::parse(&line) {
                    logged.count(0, Duration::from_secs(9), &mut LoadResult::default());
                }
            }
        }
    }
}
