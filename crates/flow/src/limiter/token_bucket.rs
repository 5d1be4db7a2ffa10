//! The token bucket of one class of traffic. Credit flows in at the class's rate; a byte sent takes one byte of
//! credit.
//!
//! Three spans bound it. A class that comes from idleness finds [`BURST`] worth of credit, one millisecond, so that no
//! more than that is put into send buffers at once. A class that *wants* more than it got keeps what accrues, for up to
//! [`CATCH_UP`]: on a busy machine whoever serves it is late again and again, by milliseconds (a late wake-up, another
//! program's turn on the processor, a way that was full), and all that credit lost is mean rate lost. It stands behind its
//! schedule then, and comes back to it, never ahead of it. What was sent already and is charged afterwards makes debt, at
//! most [`DEBT`] worth, so that one mistake is not paid for by innocent statements for minutes.
//!
//! So, at a constant rate `r`: while the class wants more, what it has sent since it began is never more than `r · t +
//! burst`; whoever is served the moment its credit is there never exceeds that in any window; and whoever is served
//! late never exceeds `r · T + burst + r · CATCH_UP` in any window of length `T`. How fast it catches up is not bounded
//! here, but by what the kernel paces its sockets to and by what may be on its way ([`super::InFlight`]).
//!
//! Credit is counted in millionths of a byte: bytes a second times microseconds, so nothing is rounded.

use super::Limiter;
use crate::{LEAST_QUANTUM_BYTES, MOST_QUANTUM_BYTES};
use backwater_model::{Moment, Span};

/// Credit that an idle class finds, as time at its rate.
pub const BURST: Span = Span::from_millis(1);
/// Credit that a class may collect beyond a burst while it is served late, as time at its rate: a hundredth of the ten
/// seconds over which its mean is held to a hundredth.
pub const CATCH_UP: Span = Span::from_millis(100);
/// Debt that a class may run into, as time at its rate.
pub const DEBT: Span = Span::from_millis(1_000);
/// A burst is never smaller than this, or a slow class would send crumbs: the least quantum.
pub const LEAST_BURST_BYTES: u64 = LEAST_QUANTUM_BYTES;
/// No class is held to less: a floor of zero never recovers.
pub const LEAST_RATE_BPS: u64 = 1024;

/// Above this a rate is no limit on any machine; bounds the arithmetic.
const MOST_RATE_BPS: u64 = 1 << 40;
const MICRO: i64 = 1_000_000;

/// Bytes at a rate, with bounded bursts, catching up and debt. See the head of this file.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate_bps: u64,
    /// Millionths of a byte; negative is debt.
    credit: i64,
    refilled_at: Moment,
    demand: Demand,
}

/// Whether somebody wants what accrues.
#[derive(Clone, Copy, Debug)]
enum Demand {
    /// Somebody was refused, and waits.
    Waits,
    /// All who asked were granted it by then; they did not say that they want no more.
    Served(Moment),
    /// Nobody wants anything since then. What stood then (millionths of a byte) is kept for those who come back soon.
    Idle { since: Moment, kept: i64 },
}

impl TokenBucket {
    /// A bucket that holds one burst, for a class of `rate_bps` bytes a second (at least [`LEAST_RATE_BPS`]).
    pub fn new(now: Moment, rate_bps: u64) -> Self {
        let demand = Demand::Idle { since: now, kept: 0 };
        let mut bucket = TokenBucket { rate_bps: bounded(rate_bps), credit: 0, refilled_at: now, demand };
        bucket.credit = bucket.burst();
        bucket
    }

    /// The rate in force, in bytes a second.
    pub fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// Changes the rate from `now` on. Time before it counts at the old rate; debt stays, in bytes, but is held to the
    /// new cap.
    pub fn set_rate(&mut self, now: Moment, rate_bps: u64) {
        self.refill(now);
        self.rate_bps = bounded(rate_bps);
        self.credit = self.credit.min(self.depth()).max(-self.debt_cap());
    }

    /// Charges bytes that went already, whatever credit there is: they make debt, which is capped.
    pub fn charge(&mut self, now: Moment, bytes: u64) {
        self.refill(now);
        self.credit = self.credit.saturating_sub(micro(bytes)).max(-self.debt_cap());
    }

    /// Takes all of `bytes` or nothing; who gets nothing waits, and [`TokenBucket::ready_for`] says until when. More than
    /// a burst is never there at once for an idle class, so nobody should ask for more than [`TokenBucket::quantum_bytes`]. Either
    /// way somebody wants more until [`TokenBucket::idle`] says otherwise.
    pub fn take_whole(&mut self, now: Moment, bytes: u64) -> bool {
        self.refill(now);
        if self.available(now) < bytes {
            self.demand = Demand::Waits;
            return false;
        }
        self.credit -= micro(bytes);
        self.demand = Demand::Served(self.refilled_at);
        true
    }

    /// Somebody wants credit and cannot use it now: what accrues meanwhile is kept.
    pub fn wait(&mut self, now: Moment) {
        self.refill(now);
        self.demand = Demand::Waits;
    }

    /// Nobody wants anything for now: what accrues from here on beyond a burst is lost.
    pub fn idle(&mut self, now: Moment) {
        self.refill(now);
        self.demand = Demand::Idle { since: self.refilled_at, kept: self.credit };
    }

    /// Gives bytes back that were taken and not sent.
    pub fn give_back(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(micro(bytes)).min(self.depth());
    }

    /// Bytes that would be granted at `now`.
    pub fn available(&self, now: Moment) -> u64 {
        (self.credit_at(now).max(0) / MICRO).unsigned_abs()
    }

    /// Bytes of debt at `now`.
    pub fn debt_bytes(&self, now: Moment) -> u64 {
        ((-self.credit_at(now)).max(0) / MICRO).unsigned_abs()
    }

    /// The most credit that an idle class finds, in bytes.
    pub fn burst_bytes(&self) -> u64 {
        (self.burst() / MICRO).unsigned_abs()
    }

    /// What is worth taking at once, in bytes: a quarter of a burst, between [`LEAST_QUANTUM_BYTES`] and [`MOST_QUANTUM_BYTES`].
    /// At 1 GB/s a relay kept its rate better with the larger ones (docs/bench/pacing.md).
    pub fn quantum_bytes(&self) -> u64 {
        (self.burst_bytes() / 4).clamp(LEAST_QUANTUM_BYTES, MOST_QUANTUM_BYTES)
    }

    /// The most that may go at once, in bytes: a burst, and what a class that was served late may catch up.
    pub fn depth_bytes(&self) -> u64 {
        (self.depth() / MICRO).unsigned_abs()
    }

    /// The first moment from `now` on with `bytes` of credit (or with as much as the bucket ever holds, if less).
    pub fn ready_for(&self, now: Moment, bytes: u64) -> Moment {
        let missing = micro(bytes).min(self.burst()) - self.credit_at(now);
        if missing <= 0 {
            return now;
        }
        now + Span(missing.div_ceil_by(self.rate_bps))
    }

    fn refill(&mut self, now: Moment) {
        self.credit = self.credit_at(now);
        self.refilled_at = self.refilled_at.max(now);
    }

    fn credit_at(&self, now: Moment) -> i64 {
        let elapsed_us = (now - self.refilled_at).0.max(0);
        let accrued = i128::from(self.rate_bps) * i128::from(elapsed_us);
        let accrued = i64::try_from(accrued).unwrap_or(i64::MAX);
        self.credit.saturating_add(accrued).min(self.most_at(now))
    }

    /// How much credit may stand at `now`. Whoever is silent for longer than could be caught up is idle, whatever it said
    /// last.
    fn most_at(&self, now: Moment) -> i64 {
        match self.demand {
            Demand::Waits => self.depth(),
            Demand::Served(at) if now - at <= CATCH_UP => self.depth(),
            Demand::Idle { since, kept } if now - since <= CATCH_UP => self.burst().max(kept.min(self.depth())),
            Demand::Served(_) | Demand::Idle { .. } => self.burst(),
        }
    }

    fn burst(&self) -> i64 {
        worth(self.rate_bps, BURST).max(micro(LEAST_BURST_BYTES))
    }

    fn depth(&self) -> i64 {
        self.burst() + worth(self.rate_bps, CATCH_UP)
    }

    fn debt_cap(&self) -> i64 {
        worth(self.rate_bps, DEBT)
    }
}

impl Limiter for TokenBucket {
    fn take(&mut self, now: Moment, wanted: u64) -> u64 {
        self.refill(now);
        let granted = wanted.min(self.available(now));
        self.credit -= micro(granted);
        // Whoever got all that it asked for wants no more.
        if granted < wanted {
            self.wait(now);
        } else {
            self.idle(now);
        }
        granted
    }

    fn ready_at(&self, now: Moment) -> Moment {
        self.ready_for(now, 1)
    }
}

fn bounded(rate_bps: u64) -> u64 {
    rate_bps.clamp(LEAST_RATE_BPS, MOST_RATE_BPS)
}

/// Millionths of a byte that a span brings.
fn worth(rate_bps: u64, span: Span) -> i64 {
    // 2^40 bytes a second for a second is 2^60: it fits.
    i64::try_from(u128::from(rate_bps) * u128::from(span.0.unsigned_abs())).unwrap_or(i64::MAX)
}

fn micro(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(MICRO)
}

/// Division that rounds up, of a positive number of millionths by a rate.
trait DivCeil {
    fn div_ceil_by(self, rate_bps: u64) -> i64;
}

impl DivCeil for i64 {
    fn div_ceil_by(self, rate_bps: u64) -> i64 {
        i64::try_from(self.unsigned_abs().div_ceil(rate_bps)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn at(us: i64) -> Moment {
        Moment(us)
    }

    #[test]
    fn the_default_class_never_puts_more_than_256_kb_down_at_once() {
        let mut bucket = TokenBucket::new(at(0), 256 * MB);
        assert_eq!(bucket.burst_bytes(), 256 * MB / 1000);
        assert_eq!(bucket.take(at(5_000_000), 10 * MB), 256 * MB / 1000);
    }

    #[test]
    fn a_late_timer_loses_nothing_up_to_a_tenth_of_a_second() {
        let mut bucket = TokenBucket::new(at(0), 100_000_000);
        assert_eq!(bucket.take(at(0), u64::MAX), 100_000);
        assert_eq!(bucket.take(at(98_000), u64::MAX), 9_800_000);
        assert_eq!(bucket.take(at(398_000), u64::MAX), 10_100_000);
    }

    #[test]
    fn a_slow_class_that_is_served_late_loses_nothing_either() {
        let mut bucket = TokenBucket::new(at(0), MB);
        assert!(bucket.take_whole(at(0), 16_384) && !bucket.take_whole(at(0), 16_384));
        // Due after 15.6 ms, and woken twice as late.
        assert!(bucket.take_whole(at(31_250), 16_384) && bucket.take_whole(at(31_250), 16_384));
        assert!(!bucket.take_whole(at(31_250), 16_384));
    }

    #[test]
    fn what_was_caught_up_can_be_taken_in_pieces_but_does_not_last() {
        let mut bucket = TokenBucket::new(at(0), 100_000_000);
        assert_eq!(bucket.take(at(0), u64::MAX), 100_000);
        assert!(bucket.take_whole(at(8_000), 16_384) && bucket.take_whole(at(8_001), 16_384));
        bucket.idle(at(8_001));
        assert_eq!(bucket.available(at(8_001)), 800_100 - 32_768);
        assert_eq!(bucket.available(at(30_000)), 800_100 - 32_768);
        assert_eq!(bucket.available(at(108_002)), 100_000);
    }

    #[test]
    fn who_waits_for_something_else_than_credit_keeps_it_and_who_wants_nothing_does_not() {
        let mut bucket = TokenBucket::new(at(0), 100_000_000);
        assert!(bucket.take_whole(at(0), 16_384));
        bucket.wait(at(0));
        assert_eq!(bucket.available(at(5_000)), 583_616);
        bucket.idle(at(500));
        assert_eq!(bucket.available(at(5_000)), 133_616);
    }

    #[test]
    fn debt_is_paid_off_by_time_and_capped_at_a_second() {
        let mut bucket = TokenBucket::new(at(0), MB);
        bucket.charge(at(0), 100 * MB);
        assert_eq!(bucket.debt_bytes(at(0)), MB);
        assert_eq!(bucket.take(at(500_000), 1), 0);
        assert_eq!(bucket.ready_at(at(500_000)), at(1_000_001));
        assert_eq!(bucket.take(at(1_000_001), 1), 1);
    }

    #[test]
    fn a_new_rate_counts_from_its_moment() {
        let mut bucket = TokenBucket::new(at(0), 10_000_000);
        assert_eq!(bucket.take(at(0), u64::MAX), LEAST_BURST_BYTES);
        bucket.set_rate(at(4_000), 100_000_000);
        assert_eq!(bucket.available(at(4_000)), 40_000);
        assert_eq!(bucket.available(at(5_000)), 140_000);
        bucket.set_rate(at(5_000), 0);
        assert_eq!(bucket.rate_bps(), LEAST_RATE_BPS);
    }

    #[test]
    fn all_or_nothing_waits_and_catches_up() {
        let mut bucket = TokenBucket::new(at(0), 100_000_000);
        assert!(bucket.take_whole(at(0), 100_000));
        assert!(!bucket.take_whole(at(100), 16_384));
        assert_eq!(bucket.ready_for(at(100), 16_384), at(164));
        assert!((0..30).all(|_| bucket.take_whole(at(5_000), 16_384)));
        assert!(!bucket.take_whole(at(5_000), 16_384));
    }

    #[test]
    fn time_that_runs_backwards_is_no_time() {
        let mut bucket = TokenBucket::new(at(1_000), MB);
        assert_eq!(bucket.take(at(1_000), u64::MAX), LEAST_BURST_BYTES);
        assert_eq!(bucket.take(at(0), u64::MAX), 0);
        assert_eq!(bucket.take(at(1_000), u64::MAX), 0);
    }
}
