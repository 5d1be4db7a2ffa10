//! A leaky bucket: bytes leave one after the other at exactly the rate, and nothing is ever saved up. Kept for
//! comparison: it never bursts, so whoever asks late loses what could have gone, and small requests wait where the
//! link was free.

use super::Limiter;
use backwater_model::{Moment, Span};

/// Bytes spaced at exactly a rate, in pieces of at most `piece_bytes`.
#[derive(Clone, Debug)]
pub struct LeakyBucket {
    rate_bps: u64,
    piece_bytes: u64,
    free_at: Moment,
}

impl LeakyBucket {
    /// A bucket of `rate_bps` bytes a second that lets pieces of at most `piece_bytes` out.
    pub fn new(now: Moment, rate_bps: u64, piece_bytes: u64) -> Self {
        LeakyBucket { rate_bps: rate_bps.max(1), piece_bytes: piece_bytes.max(1), free_at: now }
    }
}

impl Limiter for LeakyBucket {
    fn take(&mut self, now: Moment, wanted: u64) -> u64 {
        let granted = if now < self.free_at { 0 } else { wanted.min(self.piece_bytes) };
        if granted > 0 {
            let us = (u128::from(granted) * 1_000_000).div_ceil(u128::from(self.rate_bps));
            self.free_at = now + Span(i64::try_from(us).unwrap_or(i64::MAX));
        }
        granted
    }

    fn ready_at(&self, now: Moment) -> Moment {
        self.free_at.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_saved_up_while_idle() {
        let mut bucket = LeakyBucket::new(Moment(0), 100_000_000, 1_500);
        assert_eq!(bucket.take(Moment(1_000_000), u64::MAX), 1_500);
        assert_eq!(bucket.take(Moment(1_000_000), u64::MAX), 0);
        assert_eq!(bucket.ready_at(Moment(1_000_000)), Moment(1_000_015));
    }
}
