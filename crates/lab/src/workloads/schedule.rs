//! When transactions are meant to start. One schedule is shared by all clients: whoever is free takes the next start,
//! and a start that is taken late stays where it was, so that a slow server cannot thin out its own load (coordinated
//! omission: Gil Tene, "How NOT to Measure Latency").

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How the starts of an open loop are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// At even distances.
    #[default]
    Even,
    /// As independent users arrive: distances are exponentially distributed.
    Poisson,
}

/// The starts of one load, as offsets from its beginning.
#[derive(Debug)]
pub(crate) enum Schedule {
    /// As soon as a client is free.
    Closed,
    /// At even distances: so many were taken, so many a second.
    Even(AtomicU64, f64),
    /// At random distances, so many a second on average: the last one in seconds, and the dice.
    Poisson(Box<Mutex<(f64, StdRng)>>, f64),
}

impl Schedule {
    pub(crate) fn new(rate_per_s: Option<f64>, arrivals: Arrivals, seed: u64) -> Schedule {
        match (rate_per_s, arrivals) {
            (None, _) => Schedule::Closed,
            (Some(rate), Arrivals::Even) => Schedule::Even(AtomicU64::new(0), rate),
            (Some(rate), Arrivals::Poisson) => {
                Schedule::Poisson(Box::new(Mutex::new((0.0, StdRng::seed_from_u64(seed)))), rate)
            }
        }
    }

    /// Takes the next start. None in a closed loop: start now.
    pub(crate) fn take(&self) -> Option<Duration> {
        match self {
            Schedule::Closed => None,
            Schedule::Even(taken, rate) => Some(Duration::from_secs_f64(taken.fetch_add(1, Relaxed) as f64 / rate)),
            Schedule::Poisson(state, rate) => {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                // 1 - [0, 1) is never 0, whose logarithm is no number.
                let dice = 1.0 - state.1.random::<f64>();
                state.0 -= dice.ln() / rate;
                Some(Duration::from_secs_f64(state.0))
            }
        }
    }
    /// How many starts before this offset nobody has taken; takes them.
    pub(crate) fn left_before(&self, end: Duration) -> u64 {
        if let Schedule::Even(taken, rate) = self {
            let due = (end.as_secs_f64() * rate).ceil() as u64;
            return due.saturating_sub(taken.load(Relaxed));
        }
        let mut left = 0;
        while self.take().is_some_and(|start| start < end) {
            left += 1;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn even_starts_have_even_distances() {
        let schedule = Schedule::new(Some(4_000.0), Arrivals::Even, 0);
        let starts: Vec<Duration> = (0..5).map(|_| schedule.take().unwrap()).collect();
        assert_eq!(starts, [0, 250, 500, 750, 1_000].map(Duration::from_micros));
    }

    #[test]
    fn what_nobody_took_is_counted() {
        for arrivals in [Arrivals::Even, Arrivals::Poisson] {
            let schedule = Schedule::new(Some(1_000.0), arrivals, 3);
            assert_eq!((0..100).filter_map(|_| schedule.take()).count(), 100);
            let left = schedule.left_before(Duration::from_secs(1));
            assert!((750..=1_050).contains(&left), "{arrivals:?}: {left}");
        }
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        assert_eq!(Schedule::new(None, Arrivals::Poisson, 0).take(), None);
    }

    #[test]
    fn random_starts_have_the_rate_and_spread_of_a_poisson_process() {
        let schedule = Schedule::new(Some(100.0), Arrivals::Poisson, 7);
        let starts: Vec<f64> = (0..20_000).map(|_| schedule.take().unwrap().as_secs_f64()).collect();
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((mean - 0.01).abs() < 0.000_5, "{mean}");
        assert!((spread / mean - 1.0).abs() < 0.05, "{spread}");
    }

    proptest! {
        #[test]
        fn starts_never_go_back(rate in 0.1f64..1e6, seed: u64, poisson: bool) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
            let schedule = Schedule::new(Some(rate), arrivals, seed);
            let mut before = Duration::ZERO;
            for _ in 0..100 {
                let next = schedule.take().unwrap();
                prop_assert!(next >= before);
                before = next;
            }
        }
    }
}
