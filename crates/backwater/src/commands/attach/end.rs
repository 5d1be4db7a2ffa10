//! When attach mode ends: as soon as somebody wants so, and after the time that it was given, whatever it waits for then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How soon a pause heeds that somebody wants to end.
const HEEDED_WITHIN: Duration = Duration::from_millis(50);

/// What is near.
const NEAR_S: f64 = 0.5;

/// The end, for whoever waits for something.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// Raised when somebody wants to end.
    cancel: Arc<AtomicBool>,
    /// When the time is over, where it has begun.
    at: Option<Instant>,
}

impl End {
    /// Whenever somebody wants so.
    pub(super) fn when_wanted(cancel: Arc<AtomicBool>) -> End {
        End { cancel, at: None }
    }

    /// Also after so many seconds from now on, where that is given.
    pub(super) fn within(&self, seconds: Option<f64>) -> End {
        let at = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        End { cancel: Arc::clone(&self.cancel), at }
    }

    /// Whether it is time to end.
    pub(super) fn is_here(&self) -> bool {
        self.cancel.load(Ordering::SeqCst) || self.at.is_some_and(|at| at <= Instant::now())
    }

    /// Whether it is time to end, or will be in a moment: who ends a service tells its processes one after the other.
    pub(super) fn is_near(&self) -> bool {
        self.pause(NEAR_S);
        self.is_here()
    }

    /// Waits, and not beyond the end.
    pub(super) fn pause(&self, seconds: f64) {
        let next = Instant::now() + Duration::from_secs_f64(seconds);
        let until = self.at.map_or(next, |at| at.min(next));
        while !self.is_here() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(HEEDED_WITHIN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: f64 = 3_600.0;
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn a_pause_is_no_longer_than_the_time_that_is_left() {
        let end = End::when_wanted(Arc::default());
        let begun = Instant::now();
        let brief = end.within(Some(0.2));
        brief.pause(HOUR_S);
        assert!(brief.is_here() && begun.elapsed() >= Duration::from_millis(200) && begun.elapsed() < SOON);
        assert!(!end.is_here() && !end.within(None).is_here() && !end.within(Some(HOUR_S)).is_here());
    }

    #[test]
    fn a_pause_is_as_long_as_asked_for_where_nobody_ends_it() {
        let (end, begun) = (End::when_wanted(Arc::default()).within(Some(HOUR_S)), Instant::now());
        end.pause(0.2);
        assert!(!end.is_here() && begun.elapsed() >= Duration::from_millis(200) && begun.elapsed() < SOON);
    }

    #[test]
    fn whoever_wants_to_end_waits_for_no_pause() {
        let cancel: Arc<AtomicBool> = Arc::default();
        let end = End::when_wanted(Arc::clone(&cancel)).within(Some(HOUR_S));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| end.pause(HOUR_S));
            cancel.store(true, Ordering::SeqCst);
        });
        assert!(end.is_here() && begun.elapsed() < SOON);
    }
}
