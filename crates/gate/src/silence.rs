//! Peers that acknowledge nothing of what is queued for them: gone without a word, or asleep. What is kept for them is no
//! reason to keep others back.

use backwater_model::{Moment, Span};

/// A peer of which nothing was acknowledged for so many round trips, and at least for so long (the kernel's shortest wait before
/// it sends again), takes nothing: what it was sent is lost, or it is gone, or it does not read.
const ROUND_TRIPS: i64 = 4;
const AT_LEAST: Span = Span::from_millis(200);

/// Since when a socket's peer, while something is queued for it, has acknowledged no more than so many bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence(Option<(u64, Moment)>);

impl Silence {
    /// Something is queued, and so much was acknowledged of all that was sent. Returns for how long it was no more.
    pub(crate) fn lasts(&mut self, now: Moment, acked_bytes: u64) -> Span {
        match self.0 {
            Some((before, since)) if before == acked_bytes => now - since,
            _ => {
                self.0 = Some((acked_bytes, now));
                Span(0)
            }
        }
    }

    /// Nothing is queued.
    pub(crate) fn ends(&mut self) {
        self.0 = None;
    }
}

/// Whether a peer that was silent for so long takes nothing, at this round trip in microseconds, where its socket is sent
/// something each `pause` at least.
pub(crate) fn takes_nothing(silent_for: Span, rtt_us: Option<u32>, pause: Span) -> bool {
    let round_trips = Span(i64::from(rtt_us.unwrap_or(0)).saturating_mul(ROUND_TRIPS));
    silent_for >= AT_LEAST.max(round_trips).max(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_with_something_queued_and_ends_with_a_word() {
        let mut silence = Silence::default();
        assert_eq!(silence.lasts(Moment(1_000), 7), Span(0));
        assert_eq!(silence.lasts(Moment(3_000), 7), Span(2_000));
        assert_eq!(silence.lasts(Moment(4_000), 8), Span(0));
        assert_eq!(silence.lasts(Moment(9_000), 8), Span(5_000));
        silence.ends();
        assert_eq!(silence.lasts(Moment(10_000), 8), Span(0));
    }

    #[test]
    fn a_long_way_and_a_slow_socket_take_longer_to_answer() {
        let nothing =
            |ms, rtt_us, pause_ms| takes_nothing(Span::from_millis(ms), Some(rtt_us), Span::from_millis(pause_ms));
        assert!(!nothing(199, 1_000, 0) && nothing(200, 1_000, 0));
        assert!(!nothing(399, 100_000, 0) && nothing(400, 100_000, 0));
        assert!(!nothing(4_999, 1_000, 5_000) && nothing(5_000, 1_000, 5_000));
    }
}
