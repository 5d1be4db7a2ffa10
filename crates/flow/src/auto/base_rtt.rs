//! How long each socket's way is without a queue, and how much longer it is now.

use crate::SessionId;
use backwater_model::{Moment, Span};
use std::collections::HashMap;

/// A socket's round trip is the least of the last so many readings: one late acknowledgement is no queue.
const WINDOW: usize = 3;
/// A socket that carried less than this share of the class's bytes says nothing of the class's queue.
const BULK_SHARE: f64 = 0.05;
/// A socket that is not read for so long is forgotten.
const FORGET_AFTER: Span = Span::from_millis(30_000);

/// What one of the low class's sockets showed since the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketReading {
    /// Whose socket.
    pub session: SessionId,
    /// Round trip, as TCP_INFO's `tcpi_rtt`.
    pub rtt: Span,
    /// The shortest that the kernel saw (`tcpi_min_rtt`), where it tells: a socket that comes to the class from a full link
    /// has never shown it here.
    pub least: Option<Span>,
    /// Bytes acknowledged since the last tick.
    pub delivered_bytes: u64,
    /// Size of a segment. A receiver may keep back its word on a few of them for 40 ms, which is no queue.
    pub segment_bytes: u64,
}

/// Fewer segments since the last tick than this show delayed acknowledgements rather than the way.
const ENOUGH_SEGMENTS: u64 = 4;

impl SocketReading {
    /// Whether so little went that its round trip says nothing of a queue.
    pub fn is_thin(&self) -> bool {
        self.delivered_bytes < ENOUGH_SEGMENTS * self.segment_bytes
    }
}

/// The least round trip of each socket, over this refresh period and the one before.
#[derive(Clone, Debug, Default)]
pub struct BaseRtt {
    sockets: HashMap<SessionId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    recent: [Option<Span>; WINDOW],
    least: Span,
    least_before: Option<Span>,
    seen_at: Moment,
}

impl BaseRtt {
    /// Takes readings. Returns the worst queueing delay among the sockets that carry the bulk, or None if none does, or all
    /// too little to tell.
    pub fn add(&mut self, now: Moment, readings: &[SocketReading]) -> Option<Span> {
        let total: u64 = readings.iter().map(|reading| reading.delivered_bytes).sum();
        let bulk = |reading: &SocketReading| reading.delivered_bytes as f64 >= BULK_SHARE * total as f64;
        let mut worst = None;
        let tells = |reading: &&SocketReading| reading.delivered_bytes > 0 && bulk(reading) && !reading.is_thin();
        for reading in readings.iter().filter(tells) {
            let first = reading.least.map_or(reading.rtt, |least| least.min(reading.rtt));
            let known = self.sockets.entry(reading.session).or_insert_with(|| Known::new(first, now));
            known.add(reading.rtt, now);
            worst = worst.max(Some(known.queueing()));
        }
        self.sockets.retain(|_, known| now - known.seen_at < FORGET_AFTER);
        worst
    }

    /// A refresh begins: what was least before the last one is forgotten, in case the way has become longer.
    pub fn refresh(&mut self) {
        for known in self.sockets.values_mut() {
            known.least_before = Some(known.least);
            known.least = known.recent.iter().flatten().max().copied().unwrap_or(known.least);
        }
    }

    /// The shortest way of any socket.
    pub fn least(&self) -> Option<Span> {
        self.sockets.values().map(Known::base).min()
    }
}

impl Known {
    fn new(rtt: Span, now: Moment) -> Self {
        Known { recent: [None; WINDOW], least: rtt, least_before: None, seen_at: now }
    }

    fn add(&mut self, rtt: Span, now: Moment) {
        self.recent.rotate_right(1);
        self.recent[0] = Some(rtt);
        self.least = self.least.min(rtt);
        self.seen_at = now;
    }

    fn base(&self) -> Span {
        self.least_before.map_or(self.least, |before| before.min(self.least))
    }

    fn queueing(&self) -> Span {
        let now = self.recent.iter().flatten().min().copied().unwrap_or(self.least);
        Span(now.0 - self.base().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(session: u64, rtt_us: i64, bytes: u64) -> SocketReading {
        let (session, rtt) = (SessionId(session), Span(rtt_us));
        SocketReading { session, rtt, least: None, delivered_bytes: bytes, segment_bytes: 0 }
    }

    #[test]
    fn a_socket_from_a_full_link_is_measured_by_the_kernels_own_least() {
        let mut base = BaseRtt::default();
        let full = SocketReading { least: Some(Span(200)), ..reading(1, 70_000, 1_000) };
        assert_eq!(base.add(Moment(0), &[full]), Some(Span(69_800)));
        assert_eq!(base.least(), Some(Span(200)));
    }

    #[test]
    fn a_few_segments_say_nothing_of_a_queue() {
        let mut base = BaseRtt::default();
        let thin = SocketReading { segment_bytes: 1_448, ..reading(1, 40_000, 2 * 1_448) };
        assert!(thin.is_thin());
        assert_eq!(base.add(Moment(0), &[thin]), None);
    }

    #[test]
    fn a_queue_is_what_all_recent_round_trips_exceed_the_least_by() {
        let mut base = BaseRtt::default();
        for rtt in [500, 2_500, 2_600] {
            base.add(Moment(0), &[reading(1, rtt, 1_000)]);
        }
        assert_eq!(base.add(Moment(0), &[reading(1, 2_400, 1_000)]), Some(Span(1_900)));
    }

    #[test]
    fn a_socket_that_hardly_sends_does_not_count() {
        let mut base = BaseRtt::default();
        base.add(Moment(0), &[reading(1, 500, 100_000), reading(2, 500, 100_000)]);
        for _ in 0..WINDOW {
            let queue = base.add(Moment(0), &[reading(1, 600, 100_000), reading(2, 90_000, 100)]);
            assert!(queue <= Some(Span(100)));
        }
        assert_eq!(base.add(Moment(0), &[reading(2, 90_000, 0)]), None);
    }

    #[test]
    fn a_way_that_became_longer_is_learned_in_two_refreshes() {
        let mut base = BaseRtt::default();
        let longer = |base: &mut BaseRtt| (0..WINDOW).filter_map(|_| base.add(Moment(0), &[reading(1, 900, 1)])).last();
        base.add(Moment(0), &[reading(1, 500, 1)]);
        assert_eq!(longer(&mut base), Some(Span(400)));
        base.refresh();
        assert_eq!(longer(&mut base), Some(Span(400)));
        base.refresh();
        assert_eq!(longer(&mut base), Some(Span(0)));
    }
}
