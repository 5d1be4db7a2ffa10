//! Tells all clients of a load at once that it is over: those that sleep until their next start and those that wait
//! for the server.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// A load's end.
#[derive(Debug)]
pub(crate) struct Halt {
    halted: Mutex<bool>,
    changed: Condvar,
    sender: watch::Sender<bool>,
}

impl Halt {
    pub(crate) fn new() -> Self {
        Halt { halted: Mutex::new(false), changed: Condvar::new(), sender: watch::Sender::new(false) }
    }

    /// Ends it. Once is enough.
    pub(crate) fn halt(&self) {
        *self.halted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
        self.sender.send_replace(true);
    }

    pub(crate) fn is_halted(&self) -> bool {
        *self.sender.borrow()
    }

    /// Sleeps until `at`, to some 0.1 ms; whether the load goes on then.
    pub(crate) fn sleep_until(&self, at: Instant) -> bool {
        let mut halted = self.halted.lock().unwrap_or_else(PoisonError::into_inner);
        while !*halted {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            halted = self.changed.wait_timeout(halted, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Resolves when the load is over.
    pub(crate) async fn halted(&self) {
        let mut receiver = self.sender.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|halted| *halted).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sleepers_wake_on_time_and_at_once_when_it_is_over() {
        let halt = Halt::new();
        let began = Instant::now();
        assert!(halt.sleep_until(began + Duration::from_millis(20)));
        assert!(began.elapsed() >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| halt.sleep_until(began + Duration::from_secs(60)));
            halt.halt();
            assert!(sleeper.join().is_ok_and(|goes_on| !goes_on));
        });
        assert!(halt.is_halted() && began.elapsed() < Duration::from_secs(30));
    }
}
