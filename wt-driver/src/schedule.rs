//! When operations are to begin: drawn one after the other, whatever became of those before (an open loop).

use crate::protocol::Arrivals;

/// The starts of a load, in nanoseconds from its beginning.
#[derive(Debug)]
pub(crate) struct Schedule {
    next_ns: f64,
    end_ns: f64,
    gap_ns: f64,
    arrivals: Arrivals,
    random: fastrand::Rng,
}

impl Schedule {
    pub(crate) fn new(rate_per_s: f64, seconds: f64, arrivals: Arrivals, random: fastrand::Rng) -> Schedule {
        let gap_ns = 1e9 / rate_per_s;
        let mut schedule = Schedule { next_ns: 0.0, end_ns: seconds * 1e9, gap_ns, arrivals, random };
        schedule.next_ns = schedule.gap();
        schedule
    }

    /// The next start; none once the load is over.
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.next_ns >= self.end_ns {
            return None;
        }
        let due = self.next_ns as u64;
        self.next_ns += self.gap();
        Some(due)
    }

    fn gap(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Even => self.gap_ns,
            // 1 − u lies in (0, 1], so the logarithm is finite.
            Arrivals::Poisson => -(1.0 - self.random.f64()).ln() * self.gap_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_asked_for_and_in_order() {
        let mut even = Schedule::new(100.0, 1.0, Arrivals::Even, fastrand::Rng::with_seed(1));
        let starts: Vec<u64> = std::iter::from_fn(|| even.next()).collect();
        assert_eq!((starts.len(), starts[0]), (99, 10_000_000));
        let mut poisson = Schedule::new(10_000.0, 10.0, Arrivals::Poisson, fastrand::Rng::with_seed(1));
        let starts: Vec<u64> = std::iter::from_fn(|| poisson.next()).collect();
        assert!(starts.is_sorted() && (98_000..102_000).contains(&starts.len()), "{}", starts.len());
        assert_eq!(poisson.next(), None);
    }
}
