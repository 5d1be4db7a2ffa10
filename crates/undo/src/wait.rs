//! Waiting for a condition of the host that nothing announces: looked at often, with a deadline.

use std::time::{Duration, Instant};

/// Looks until `done` says so or `limit` has passed; whether it came to be.
pub(crate) fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
