//! A counting limit: so many bytes in each window of fixed length. Kept for comparison: around the edge between two
//! windows it lets twice its limit through in no time.

use super::Limiter;
use backwater_model::{Moment, Span};

/// At most `limit` bytes in each window; windows begin at multiples of their length.
#[derive(Clone, Debug)]
pub struct WindowCounter {
    limit_bytes: u64,
    window: Span,
    number: i64,
    used_bytes: u64,
}

impl WindowCounter {
    /// A counter of `rate_bps` bytes a second over windows of this length (at least a microsecond).
    pub fn new(rate_bps: u64, window: Span) -> Self {
        let window = Span(window.0.max(1));
        let limit = u128::from(rate_bps) * u128::from(window.0.unsigned_abs()) / 1_000_000;
        let limit_bytes = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        WindowCounter { limit_bytes, window, number: i64::MIN, used_bytes: 0 }
    }

    /// Bytes that one window lets through.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }
}

impl Limiter for WindowCounter {
    fn take(&mut self, now: Moment, wanted: u64) -> u64 {
        let number = now.0.div_euclid(self.window.0);
        if number > self.number {
            self.number = number;
            self.used_bytes = 0;
        }
        let granted = wanted.min(self.limit_bytes - self.used_bytes);
        self.used_bytes += granted;
        granted
    }

    fn ready_at(&self, now: Moment) -> Moment {
        let number = now.0.div_euclid(self.window.0);
        if number > self.number || self.used_bytes < self.limit_bytes {
            return now;
        }
        Moment((self.number + 1).saturating_mul(self.window.0)).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_of_a_window_lets_two_limits_through() {
        let mut counter = WindowCounter::new(100_000_000, Span::from_millis(10));
        assert_eq!(counter.take(Moment(9_999), u64::MAX), 1_000_000);
        assert_eq!(counter.take(Moment(9_999), u64::MAX), 0);
        assert_eq!(counter.ready_at(Moment(9_999)), Moment(10_000));
        assert_eq!(counter.take(Moment(10_000), u64::MAX), 1_000_000);
    }
}
