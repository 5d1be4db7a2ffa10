//! Round trips out of a kernel's smoothed ones, and how long a way's queue is by them.
//!
//! `tcpi_rtt` is a mean over about eight acknowledgements, however old they are: `srtt += (sample − srtt) / 8`
//! (`tcp_rtt_estimator` in net/ipv4/tcp_input.c). A socket that comes to the class from a full link brings the full link's round
//! trip with it, and at the class's floor, with an acknowledgement now and then, it would show it for seconds: seen, 54 ms that
//! took five seconds to go, at a link that had been empty all the while. So the smoothing is undone: with `n` acknowledgements
//! between two readings, the mean of their samples is `(now − before · (7/8)ⁿ) / (1 − (7/8)ⁿ)`.

use crate::SessionId;
use backwater_model::{Moment, Span};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// What of the smoothed round trip an acknowledgement leaves standing.
const KEEPS: f64 = 7.0 / 8.0;
/// A queue is the least that the latest looks at a way show, so many of them that there are at least this many readings: a late
/// acknowledgement, a burst of the class's own and a busy processor delay one or the other, a standing queue all of them (as
/// CoDel has it, RFC 8289).
const READINGS: usize = 5;
/// Older readings say nothing of now: a queue can have come or gone.
const RECENT: Span = Span::from_millis(60);
/// A way that carried less than this share of the class's bytes says nothing of the class's queue.
const BULK_SHARE: f64 = 0.05;
/// A socket or a way that is not read for so long is forgotten.
const FORGET_AFTER: Span = Span::from_millis(30_000);
/// Fewer segments since the last tick than this show delayed acknowledgements rather than the way.
const ENOUGH_SEGMENTS: u64 = 4;

/// Of the time that a socket's burst waited for others', its next is sent so much of it later.
const SPREAD: f64 = 0.4;
/// A socket that sent nothing for so long has stopped: no period of bursts is taken for longer.
pub(super) const BURSTS_WITHIN: Span = Span::from_millis(500);
/// A shorter wait is as well a busy processor's.
const WORTH_SPREADING: Span = Span::from_millis(1);
/// A kernel sends bursts of up to so many bytes where the way is short (`tcp_tso_autosize` in net/ipv4/tcp_output.c).
pub(super) const BURST_BYTES: f64 = 65_536.0;

/// What one of the low class's sockets showed since the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketReading {
    /// Whose socket.
    pub session: SessionId,
    /// Its client's host: sockets with the same share their way. None where that is not known, which is one way, too.
    pub peer: Option<IpAddr>,
    /// Smoothed round trip, as TCP_INFO's `tcpi_rtt`.
    pub rtt: Span,
    /// The shortest that the kernel saw (`tcpi_min_rtt`), where it tells: a socket that comes to the class from a full link
    /// has never shown it here.
    pub least: Option<Span>,
    /// Bytes acknowledged since the last tick.
    pub delivered_bytes: u64,
    /// Size of a segment. A receiver may keep back its word on a few of them for 40 ms, which is no queue.
    pub segment_bytes: u64,
    /// Segments that came in since the socket was opened (`tcpi_segs_in`): acknowledgements, where the client says little.
    /// None (before Linux 4.2): the smoothed round trip is taken as it stands.
    pub segments_in: Option<u32>,
    /// Bytes a second that it delivered while it had something to send, before it came to the class; None: not known.
    pub usual_bps: Option<u64>,
}

impl SocketReading {
    /// Whether so little went that its round trip says nothing of a queue.
    pub fn is_thin(&self) -> bool {
        self.delivered_bytes < ENOUGH_SEGMENTS * self.segment_bytes
    }
}

/// The ways of a class's sockets: each one's shortest round trip, and what stands on it.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    sockets: HashMap<SessionId, Smoothed>,
    ways: HashMap<Option<IpAddr>, Way>,
    /// Over which a queue must stand to be one.
    period: Span,
}

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    rtt: Span,
    segments_in: Option<u32>,
    seen_at: Moment,
    /// When it last delivered anything.
    sent_at: Option<Moment>,
    /// How much longer its round trip was at the last look than that of the quickest of its way, each beyond its own shortest.
    behind: Span,
}

#[derive(Clone, Debug)]
struct Way {
    /// The latest looks, the oldest first.
    recent: VecDeque<Look>,
    least: Span,
    least_before: Option<Span>,
    seen_at: Moment,
}

/// What the sockets of a way showed at one look.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Moment,
    readings: usize,
    least: Span,
    most: Span,
}

/// What readings held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Any of them told a round trip.
    pub told: bool,
    /// Any of them was of a socket that was not known.
    pub joined: bool,
    /// What those delivered together before.
    pub joined_bps: u64,
}

impl Ways {
    /// Sockets that send bursts now and then may all send at once and nothing after that, which is no queue while it is gone
    /// before the next: so long it takes until all have sent.
    pub fn set_period(&mut self, period: Span) {
        self.period = period;
    }

    /// That time.
    pub fn period(&self) -> Span {
        self.period
    }

    /// Takes readings.
    pub fn add(&mut self, now: Moment, readings: &[SocketReading]) -> Seen {
        let total: u64 = readings.iter().map(|reading| reading.delivered_bytes).sum();
        let mut carried: HashMap<Option<IpAddr>, u64> = HashMap::new();
        readings.iter().for_each(|reading| *carried.entry(reading.peer).or_default() += reading.delivered_bytes);
        let is_bulk = |peer| carried.get(&peer).is_some_and(|bytes| *bytes as f64 >= BULK_SHARE * total as f64);
        let mut seen = Seen::default();
        let mut samples = Vec::new();
        for reading in readings {
            if !self.sockets.contains_key(&reading.session) {
                seen.joined = true;
                seen.joined_bps = seen.joined_bps.saturating_add(reading.usual_bps.unwrap_or(0));
            }
            let Some(sample) = self.sample(now, reading) else { continue };
            if reading.is_thin() || reading.delivered_bytes == 0 || !is_bulk(reading.peer) {
                continue;
            }
            seen.told = true;
            samples.push((reading, sample));
            let shortest = reading.least.map_or(sample, |least| least.min(sample));
            self.ways.entry(reading.peer).or_insert_with(|| Way::new(shortest, now)).add(
                (now, self.period),
                sample,
                shortest,
            );
        }
        self.compare(&samples);
        self.sockets.retain(|_, socket| now - socket.seen_at < FORGET_AFTER);
        self.ways.retain(|_, way| now - way.seen_at < FORGET_AFTER);
        seen
    }

    /// The mean round trip of what was acknowledged since the socket's last reading; None at the first, which may be of any age.
    fn sample(&mut self, now: Moment, reading: &SocketReading) -> Option<Span> {
        let known = self.sockets.get(&reading.session);
        let sent_before = known.and_then(|socket| socket.sent_at);
        let sent_at = if reading.delivered_bytes > 0 { Some(now) } else { sent_before };
        let smoothed = Smoothed {
            rtt: reading.rtt,
            segments_in: reading.segments_in,
            seen_at: now,
            sent_at,
            // It counts for the next burst, which may be some looks away.
            behind: known.filter(|_| is_recent(now, sent_at, BURSTS_WITHIN)).map_or(Span(0), |socket| socket.behind),
        };
        let before = self.sockets.insert(reading.session, smoothed);
        let Some(segments_in) = reading.segments_in else { return Some(reading.rtt) };
        let before = before?;
        let count = segments_in.wrapping_sub(before.segments_in?);
        if count == 0 {
            return None;
        }
        let kept = KEEPS.powi(i32::try_from(count).unwrap_or(i32::MAX));
        let mean_us = (reading.rtt.0 as f64 - before.rtt.0 as f64 * kept) / (1.0 - kept);
        let least_us = reading.least.map_or(0, |least| least.0);
        Some(Span((mean_us as i64).max(least_us)))
    }

    fn compare(&mut self, samples: &[(&SocketReading, Span)]) {
        let excess = |(reading, sample): &(&SocketReading, Span)| sample.0 - reading.least.map_or(0, |least| least.0);
        let mut quickest: HashMap<Option<IpAddr>, i64> = HashMap::new();
        for sample in samples {
            let least = quickest.entry(sample.0.peer).or_insert(i64::MAX);
            *least = excess(sample).min(*least);
        }
        for sample in samples {
            if let (Some(socket), Some(least)) = (self.sockets.get_mut(&sample.0.session), quickest.get(&sample.0.peer))
            {
                socket.behind = Span(excess(sample) - least);
            }
        }
    }

    /// How many sockets sent something within this time.
    pub fn senders(&self, now: Moment, within: Span) -> usize {
        let sends = |socket: &&Smoothed| is_recent(now, socket.sent_at, within);
        self.sockets.values().filter(sends).count()
    }

    /// For how long a socket's bursts wait for others' of the class, as of its last round trip.
    fn behind(&self, session: SessionId) -> Span {
        self.sockets.get(&session).map_or(Span(0), |socket| socket.behind)
    }

    /// What a socket is to be told of the rate that it has until the next look: so much less that its bursts come when those that
    /// they waited for have passed. Sockets of one rate send at one rhythm, and once they meet they meet for ever.
    pub fn spread_bps(&self, session: SessionId, rate_bps: u64, look_every: Span) -> u64 {
        let period_s = BURST_BYTES / rate_bps.max(1) as f64;
        let behind = self.behind(session);
        if behind < WORTH_SPREADING {
            return rate_bps;
        }
        let later_s = SPREAD * behind.seconds().min(period_s);
        (rate_bps as f64 / (1.0 + later_s / period_s.max(look_every.seconds()))) as u64
    }

    /// The longest standing queue of any way; None where nothing lately showed one.
    pub fn queueing(&self, now: Moment) -> Option<Span> {
        self.ways.values().filter_map(|way| way.queueing(now, self.period)).max()
    }

    /// A refresh begins: what was least before the last one is forgotten, in case the way has become longer.
    pub fn refresh(&mut self) {
        for way in self.ways.values_mut() {
            way.least_before = Some(way.least);
            way.least = way.recent.iter().map(|look| look.most).max().unwrap_or(way.least);
        }
    }

    /// The shortest of all ways.
    pub fn least(&self) -> Option<Span> {
        self.ways.values().map(Way::base).min()
    }
}

fn is_recent(now: Moment, at: Option<Moment>, within: Span) -> bool {
    at.is_some_and(|at| now - at < within)
}

impl Way {
    fn new(least: Span, now: Moment) -> Self {
        Way { recent: VecDeque::new(), least, least_before: None, seen_at: now }
    }

    fn add(&mut self, (now, period): (Moment, Span), rtt: Span, shortest: Span) {
        match self.recent.back_mut().filter(|look| look.at == now) {
            Some(look) => {
                (look.readings, look.least, look.most) = (look.readings + 1, look.least.min(rtt), look.most.max(rtt));
            }
            None => self.recent.push_back(Look { at: now, readings: 1, least: rtt, most: rtt }),
        }
        let mut readings: usize = self.recent.iter().map(|look| look.readings).sum();
        while let Some(oldest) = self.recent.front().filter(|oldest| readings - oldest.readings >= READINGS)
            && now - oldest.at >= period
        {
            readings -= oldest.readings;
            self.recent.pop_front();
        }
        // The kernel remembers for minutes: after a refresh only what is seen counts.
        self.least = self.least.min(if self.least_before.is_some() { rtt } else { shortest });
        self.seen_at = now;
    }

    fn base(&self) -> Span {
        self.least_before.map_or(self.least, |before| before.min(self.least))
    }

    /// What all of the last readings exceed the shortest by.
    fn queueing(&self, now: Moment, period: Span) -> Option<Span> {
        let recent = self.recent.iter().filter(|look| now - look.at < RECENT.max(period));
        Some(Span(recent.map(|look| look.least).min()?.0.saturating_sub(self.base().0)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn reading(session: u64, rtt_us: i64, bytes: u64) -> SocketReading {
        SocketReading {
            session: SessionId(session),
            peer: None,
            rtt: Span(rtt_us),
            least: None,
            delivered_bytes: bytes,
            segment_bytes: 0,
            segments_in: None,
            usual_bps: None,
        }
    }

    fn queue_us(ways: &Ways, now: i64) -> i64 {
        ways.queueing(Moment(now)).unwrap().0
    }

    #[test]
    fn a_full_links_round_trip_is_not_carried_into_an_empty_one() {
        // As read at a floor of 1 MiB/s: one acknowledgement each, 160 ms apart, at a link that was empty by then.
        let mut ways = Ways::default();
        for (number, rtt_us) in [46_852, 41_003, 35_887, 31_410].into_iter().enumerate() {
            let segments_in = Some(100 + number as u32);
            let least = Some(Span(9));
            ways.add(
                Moment(number as i64 * 160_000),
                &[SocketReading { least, segments_in, ..reading(2, rtt_us, 16_384) }],
            );
        }
        assert_eq!(ways.least(), Some(Span(9)));
        assert_eq!(queue_us(&ways, 480_000), 62);
    }

    #[test]
    fn several_acknowledgements_between_two_readings_are_told_by_their_mean() {
        let mut ways = Ways::default();
        let (mut smoothed, mut segments) = (10_000.0, 0);
        for at in 0..10 {
            for _ in 0..=at {
                (smoothed, segments) = (smoothed + (2_000.0 - smoothed) / 8.0, segments + 1);
            }
            let segments_in = Some(segments);
            ways.add(Moment(at * 10_000), &[SocketReading { segments_in, ..reading(1, smoothed as i64, 16_384) }]);
        }
        // All samples were alike, so nothing stands; rounding to microseconds is worth eight of them at most.
        assert!((ways.least().unwrap().0 - 2_000).abs() <= 8 && queue_us(&ways, 100_000) <= 16, "{ways:?}");
    }

    #[test]
    fn a_queue_is_what_all_readings_of_a_way_show() {
        let mut ways = Ways::default();
        ways.add(Moment(0), &[reading(1, 500, 1_000)]);
        let all: Vec<_> = (0..5).map(|n| reading(n, 2_500 + 40_000 * (n as i64 % 2), 1_000)).collect();
        ways.add(Moment(10_000), &all);
        assert_eq!(queue_us(&ways, 10_000), 2_000);
        // One that is quick shows that nothing stands.
        ways.add(Moment(20_000), &[reading(3, 600, 1_000)]);
        assert_eq!(queue_us(&ways, 20_000), 100);
        assert_eq!(ways.queueing(Moment(2_000_000)), None);
    }

    #[test]
    fn a_socket_that_waits_for_others_goes_later_by_part_of_it_and_the_first_keeps_its_rate() {
        let mut ways = Ways::default();
        let other_way = |session, rtt_us| SocketReading {
            peer: Some(IpAddr::from([10, 0, 0, 9])),
            ..reading(session, rtt_us, 1_000)
        };
        ways.add(Moment(0), &[reading(1, 500, 1_000), reading(2, 10_500, 1_000), other_way(3, 30_000)]);
        let rate = 2 << 20;
        let told = |session| ways.spread_bps(SessionId(session), rate, Span::from_millis(50));
        assert_eq!((told(1), told(3), told(4)), (rate, rate, rate));
        // 4 ms in 50.
        assert_eq!(told(2), (rate as f64 / 1.08) as u64);
        // Where a burst comes every quarter of a second, that is what is made longer.
        let slow = ways.spread_bps(SessionId(2), 1 << 18, Span::from_millis(50));
        assert_eq!(slow, (f64::from(1 << 18) / 1.016) as u64);
        ways.add(Moment(50_000), &[reading(1, 500, 1_000), reading(2, 510, 1_000)]);
        assert_eq!(ways.spread_bps(SessionId(2), rate, Span::from_millis(50)), rate, "10 us are nothing");
    }

    #[test]
    fn who_is_further_away_waits_for_nobody_and_who_is_idle_no_longer() {
        let mut ways = Ways::default();
        let far = |rtt_us| SocketReading { least: Some(Span(200_000)), ..reading(2, rtt_us, 1_000) };
        let near = |rtt_us| SocketReading { least: Some(Span(1_000)), ..reading(1, rtt_us, 1_000) };
        ways.add(Moment(0), &[near(1_500), far(200_700)]);
        assert_eq!(ways.spread_bps(SessionId(2), 1 << 20, Span::from_millis(50)), 1 << 20);
        ways.add(Moment(50_000), &[near(1_500), far(210_500)]);
        assert!(ways.spread_bps(SessionId(2), 1 << 20, Span::from_millis(50)) < 1 << 20);
        let idle = SocketReading { delivered_bytes: 0, ..far(210_500) };
        ways.add(Moment(100_000), &[near(1_500), idle]);
        assert!(ways.spread_bps(SessionId(2), 1 << 20, Span::from_millis(50)) < 1 << 20);
        assert_eq!(ways.senders(Moment(100_000), BURSTS_WITHIN), 2);
        ways.add(Moment(550_000), &[near(1_500), idle]);
        assert_eq!(ways.spread_bps(SessionId(2), 1 << 20, Span::from_millis(50)), 1 << 20);
        assert_eq!(ways.senders(Moment(550_000), BURSTS_WITHIN), 1);
    }

    #[test]
    fn each_way_has_a_queue_of_its_own_and_the_longest_counts() {
        let mut ways = Ways::default();
        let to = |host: u8, session, rtt_us, bytes| {
            let peer = Some(IpAddr::from([10, 0, 0, host]));
            SocketReading { peer, ..reading(session, rtt_us, bytes) }
        };
        for at in 0..6 {
            let busy = if at == 0 { 500 } else { 9_000 };
            ways.add(Moment(at), &[to(1, 1, 300, 1_000), to(2, 2, busy, 1_000), to(3, 3, busy, 10)]);
        }
        assert_eq!(queue_us(&ways, 6), 8_500);
        assert_eq!(ways.least(), Some(Span(300)));
    }

    #[test]
    fn a_few_segments_and_nothing_delivered_tell_nothing() {
        let mut ways = Ways::default();
        let thin = SocketReading { segment_bytes: 1_448, ..reading(1, 40_000, 2 * 1_448) };
        assert!(thin.is_thin());
        assert_eq!(ways.add(Moment(0), &[thin]), Seen { told: false, joined: true, joined_bps: 0 });
        assert_eq!(ways.add(Moment(0), &[reading(1, 500, 0)]), Seen::default());
        assert_eq!(ways.queueing(Moment(0)), None);
    }

    #[test]
    fn a_way_that_became_longer_is_learned_in_two_refreshes() {
        let (mut ways, mut at) = (Ways::default(), 0);
        let mut longer = |ways: &mut Ways| {
            for _ in 0..READINGS {
                at += 10_000;
                ways.add(Moment(at), &[SocketReading { least: Some(Span(500)), ..reading(1, 900, 1) }]);
            }
            queue_us(ways, at)
        };
        ways.add(Moment(0), &[reading(1, 500, 1)]);
        assert_eq!(longer(&mut ways), 400);
        ways.refresh();
        assert_eq!(longer(&mut ways), 400);
        ways.refresh();
        assert_eq!(longer(&mut ways), 0);
    }
}
