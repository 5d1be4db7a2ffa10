//! Keeps the cost of a reading within a share of one processor, by reading more rarely what turns out to be dear.

use backwater_model::{Moment, Span};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How much a new cost counts against those before: one that was interrupted must not slow a cheap reading down.
const NEWEST: f64 = 0.25;

/// When something is to be read next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    largest_share: f64,
    longest: Duration,
    /// Of one reading, in microseconds of processor time.
    cost_us: Option<f64>,
    next: Moment,
}

impl Pace {
    /// At most this share of one processor, but a reading at least every `longest`.
    pub(super) fn new(largest_share: f64, longest: Duration) -> Self {
        Pace { largest_share, longest, cost_us: None, next: Moment::default() }
    }

    /// Whether it may be read now.
    pub(super) fn is_due(&self, at: Moment) -> bool {
        at >= self.next
    }

    /// Reads at `at`, and counts what that costs.
    pub(super) fn timed<T>(&mut self, at: Moment, read: impl FnOnce() -> T) -> T {
        let before = processor_us();
        let result = read();
        self.count(at, processor_us().saturating_sub(before).max(0) as f64);
        result
    }

    /// A reading at `at` cost so many microseconds.
    fn count(&mut self, at: Moment, cost_us: f64) {
        let cost_us = self.cost_us.map_or(cost_us, |mean| mean + (cost_us - mean) * NEWEST);
        self.cost_us = Some(cost_us);
        let pause_us = (cost_us / self.largest_share).min(self.longest.as_micros() as f64);
        // A look comes now and then a little early; half a millisecond must not cost a whole period.
        self.next = at + Span(pause_us as i64 - 500);
    }
}

/// Processor time of this thread. (The time on the wall says how busy others keep the host.)
fn processor_us() -> i64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec.saturating_mul(1_000_000).saturating_add(used.tv_nsec / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the looks of ten seconds, ten a second, are taken when each costs so much.
    fn taken(cost_us: f64) -> usize {
        let mut pace = Pace::new(0.001, Duration::from_secs(1));
        let mut taken = 0;
        for at in (0..100).map(|look| Moment(1_000_000 + look * 100_000)) {
            if pace.is_due(at) {
                pace.count(at, cost_us);
                taken += 1;
            }
        }
        taken
    }

    #[test]
    fn what_is_dear_is_read_more_rarely_within_bounds() {
        assert_eq!((taken(0.0), taken(99.0)), (100, 100));
        assert_eq!(taken(100.0), 100);
        assert_eq!((taken(200.0), taken(500.0)), (50, 20));
        assert_eq!(taken(50_000.0), 10, "at least once a second");
    }

    #[test]
    fn one_interruption_does_not_slow_it_down_for_long() {
        let mut pace = Pace::new(0.001, Duration::from_secs(1));
        (0..20).for_each(|look| pace.count(Moment(look * 100_000), 10.0));
        pace.count(Moment(2_000_000), 400.0);
        assert!(!pace.is_due(Moment(2_100_000)) && pace.is_due(Moment(2_200_000)));
        pace.count(Moment(2_200_000), 10.0);
        assert!(pace.is_due(Moment(2_300_000)));
    }

    #[test]
    fn processor_time_is_counted() {
        let mut pace = Pace::new(1e-9, Duration::from_secs(1));
        let before = processor_us();
        pace.timed(Moment(0), || while processor_us() - before < 2_000 {});
        assert!(!pace.is_due(Moment(900_000)) && pace.is_due(Moment(1_000_000)));
    }
}
