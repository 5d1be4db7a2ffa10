//! Peers that acknowledge nothing of what is queued for them: gone without a word, or asleep. What is kept for them is no
//! reason to keep others back.

use backwater_model::{Moment, Span};

/// So many round trips without an acknowledgement are no delay on the way.
const ROUND_TRIPS: i64 = 4;

/// How long a socket's peer has acknowledged nothing, while something is queued for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    /// No more than so many bytes, since that moment.
    since: Option<(u64, Moment)>,
    takes_nothing: bool,
}

impl Silence {
    /// Something is queued, and so much was acknowledged of all that was sent. Returns whether the peer takes nothing: once it was
    /// silent for that long, and until it acknowledges more or nothing is queued.
    pub(crate) fn hear(&mut self, now: Moment, acked_bytes: u64, long: Span) -> bool {
        match self.since {
            Some((before, since)) if before == acked_bytes => self.takes_nothing |= now - since >= long,
            _ => *self = Silence { since: Some((acked_bytes, now)), takes_nothing: false },
        }
        self.takes_nothing
    }

    /// Nothing is queued.
    pub(crate) fn ends(&mut self) {
        *self = Silence::default();
    }

    /// As it was heard last.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.takes_nothing
    }
}

/// How long a silence must last at this round trip, in microseconds, to be more than a delay: at least as long as given.
pub(crate) fn long(rtt_us: Option<u32>, least: Span) -> Span {
    least.max(Span(i64::from(rtt_us.unwrap_or(0)).saturating_mul(ROUND_TRIPS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Span = Span(2_000);

    #[test]
    fn silence_begins_with_something_queued_and_ends_with_a_word() {
        let mut silence = Silence::default();
        let mut hear = |at, acked| silence.hear(Moment(at), acked, LONG);
        assert!(!hear(1_000, 7) && !hear(2_999, 7) && hear(3_000, 7));
        assert!(!hear(4_000, 8) && !hear(5_000, 8) && hear(9_000, 8));
        silence.ends();
        assert!(!silence.takes_nothing() && !silence.hear(Moment(10_000), 8, LONG));
    }

    #[test]
    fn what_was_found_lasts_whatever_is_asked_for_later() {
        let mut silence = Silence::default();
        silence.hear(Moment(0), 7, LONG);
        assert!(silence.hear(Moment(2_000), 7, LONG));
        // Whoever is told a lower rate for it is heard less often: that must not give it back what it does not take.
        assert!(silence.hear(Moment(2_100), 7, Span(1_000_000)) && silence.takes_nothing());
    }

    #[test]
    fn a_long_way_takes_longer_to_answer() {
        let ms = |ms| Span::from_millis(ms);
        assert_eq!((long(Some(1_000), ms(200)), long(None, ms(200))), (ms(200), ms(200)));
        assert_eq!(long(Some(100_000), ms(200)), ms(400));
    }
}
