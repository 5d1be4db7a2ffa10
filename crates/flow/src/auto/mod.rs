//! `low_priority_bandwidth = 'auto'`: the low class gets what the link has left while almost nothing queues.
//!
//! A less-than-best-effort controller in the line of LEDBAT (RFC 6817): queueing delay is measured, and the class's rate
//! moves with the distance from a target of [`TARGET`]. The signal of a queue comes of the low class's own bulk sockets: what all of
//! their latest round trips exceed the shortest by ([`Ways`]), in this host's own queue or beyond it. Not the urgent sockets': on an
//! idle link their smoothed round trip measures their client's think time through delayed acknowledgements.
//!
//! And one of everything else that the class may do to urgent work: the latency of urgent statements ([`UrgentStatement`]) against
//! what it is while the class sends next to nothing. It can only lower the rate: that statements are quick says nothing of the
//! way. Where they are slow though the class is at its floor, it was not the class, and that is what they take from then on.
//!
//! While nothing queues the rate grows: at first so that it doubles every fifth of a second; after a queue was seen slowly,
//! and the faster the longer none comes back, so that most of the time is spent just below what the link has. When a queue stands
//! over the target, what came through meanwhile is what the link has: the class goes a little below that, and for a moment so far
//! below that the queue is gone.
//!
//! Every [`REFRESH_EVERY`] the class is put to its floor for [`REFRESH_FOR`] (to a quarter of its rate where it is paced), so
//! that a queue of its own making cannot come to be taken for the way's length. The rate alone cannot bound a queue that
//! builds faster than it is seen: the class's in-flight cap ([`crate::limiter::in_flight_bytes`]) does that where there is
//! one, and is to be set from the same rate.
//!
//! A class of a few segments a tick shows no round trip but its receivers' delayed acknowledgements. While that is so, what
//! it was allowed and delivered in full is what speaks: the rate grows on it until round trips can be told.

mod delivered;
#[cfg(test)]
mod plant;
#[cfg(test)]
mod plant_sockets;
#[cfg(test)]
mod plant_urgent;
mod round_trip;
mod urgent;

pub use round_trip::{Seen, SocketReading, Ways};
pub use urgent::UrgentStatement;

use crate::SessionId;
use backwater_model::{Moment, Span};
use delivered::{Delivered, Most};
use round_trip::{BURST_BYTES, BURSTS_WITHIN};
use urgent::{Slower, UrgentLatency};

/// Queueing delay that the class may cause.
pub const TARGET: Span = Span::from_millis(1);
/// How often the base is refreshed.
pub const REFRESH_EVERY: Span = Span::from_millis(10_000);
/// For how long the class is at its floor then.
pub const REFRESH_FOR: Span = Span::from_millis(200);
/// How often [`Auto::tick`] wants to be called; readings are those since the last call. Rarer calls are served, too.
pub const TICK: Span = Span::from_millis(10);
/// The floor unless told otherwise, in bytes a second.
pub const FLOOR_BPS: u64 = 1 << 20;

/// Growth a second, as a power of e, until something first queues, and never more: doubling every fifth of a second.
const MOST_GAIN: f64 = 3.5;
/// Growth a second right after a cut; it doubles with every [`GAIN_DOUBLES`] without another.
const LEAST_GAIN: f64 = 0.05;
const GAIN_DOUBLES: Span = Span::from_millis(200);
/// The same where nothing bounds what is on its way: what is gone too far by before it is seen becomes a queue.
const GAIN_DOUBLES_UNBOUNDED: Span = Span::from_millis(500);
/// Until something queues, a socket that comes to the class brings so much of what it delivered before.
const BEGIN: f64 = 0.25;
/// One step is never of more than this, however long nothing was seen.
const LONGEST_STEP_S: f64 = 0.1;
/// Of what came through while a queue stood the class takes so much afterwards.
const BELOW: f64 = 0.97;
/// The same where nothing bounds what is on its way: each socket then sends a burst of up to 64 KiB at a time, and close to what
/// the link has they meet. It stays there for a while before it looks for more, since each look is paid for with a queue.
const BELOW_UNBOUNDED: f64 = 0.92;
const CRUISE_UNBOUNDED: Span = Span::from_millis(1_500);
/// While the base is refreshed such a class goes down to this share and not to its floor: having sent a burst at a low rate a
/// socket's kernel waits until that is paid for, however much it may send by then.
const REFRESH_SHARE_UNBOUNDED: f64 = 0.25;
/// Its first look at what stands without it.
const FIRST_REFRESH_UNBOUNDED: Span = Span::from_millis(2_000);
/// For how long what the way gave is remembered.
const KNOWN_FOR: Span = Span(3 * REFRESH_EVERY.0);
/// Below this share of it, a queue is hardly the class's: it must be seen at so many looks in a row.
const FAR_BELOW: f64 = 0.5;
const FAR_LOOKS: u32 = 6;
/// Growth a second down there: doubling every half second.
const FAR_GAIN: f64 = 1.4;
/// No more than this is taken for somebody else's queue.
const MOST_NOT_OURS: Span = Span(2 * TARGET.0);
/// What such a class's socket may be paced with until it is read for the first time: less, and the kernel would wait longer
/// after its first burst than [`Auto`] needs to find what there is.
pub const FIRST_BPS: u64 = 655_360;
/// What came through is the mean over this, and over this where bursts make clumps of it.
const THROUGH: Span = Span::from_millis(50);
const THROUGH_UNBOUNDED: Span = Span::from_millis(200);
/// Bursts that meet, and results of urgent work, look like a queue at one look: where they do, a queue must be seen at so many
/// in a row, unless it is that many targets long.
const LOOKS_UNBOUNDED: u32 = 5;
const PLAIN: f64 = 4.0;
/// A queue says nothing of the class while it is so new that sockets still come to it: those to come may be what stands.
const JOINING: Span = Span::from_millis(500);
/// A queue is drained within this, by so much less of the rate.
const DRAIN: Span = Span::from_millis(50);
const DRAIN_LEAST: f64 = 0.05;
const DRAIN_MOST: f64 = 0.5;
/// Slow statements take no more of the rate at once than down to this share.
const SPARE_LEAST: f64 = 0.5;
/// It then stays there for a while before it looks for more: each look is paid for with slow statements.
const SPARED_FOR: Span = Span::from_millis(1_000);
/// A rate that is not used says nothing: it grows only when so much of it is.
const USED: f64 = 0.8;
/// Nothing is faster.
const MOST_BPS: f64 = 1e12;

/// What was seen since the last tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings<'a> {
    /// The low class's own sockets. Those that hardly sent say little and do not count.
    pub sockets: &'a [SocketReading],
    /// Urgent statements that ended since, or some of them.
    pub urgent: &'a [UrgentStatement],
}

/// The controller. One for the class.
#[derive(Clone, Debug)]
pub struct Auto {
    floor_bps: f64,
    rate_bps: f64,
    /// Nothing that the class caused has queued yet.
    starting: bool,
    below: f64,
    /// At what share of its rate the class stands while the base is refreshed.
    refresh_share: f64,
    cruise: Span,
    gain_doubles: Span,
    /// At how many looks in a row a queue must be seen, and at how many it was.
    looks: u32,
    seen_looks: u32,
    /// When a socket last came to the class.
    joined_at: Option<Moment>,
    ways: Ways,
    phase: Phase,
    /// The last cut: how much of the rate is held back until when, and since when nothing queued.
    drain: (f64, Moment),
    grows_since: Moment,
    /// When something was last seen that the rate could grow on.
    told_at: Moment,
    ticked_at: Moment,
    /// Between the last two ticks.
    ticked: Span,
    delivered: Delivered,
    queueing: Option<Span>,
    /// What looked like a queue while the class was low, and so is not of its making; and the looks of this refresh.
    not_ours: Span,
    low_looks: Vec<Span>,
    /// The most that the way gave the class lately, or gave sockets that came together before they did.
    known: Most,
    joined_bps: f64,
    urgent: UrgentLatency,
    /// By how much urgent statements were too slow when the rate was last lowered for it, and until when it is not raised then.
    spared: Option<(Span, Moment)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Running { refresh_at: Moment },
    Refreshing { until: Moment },
}

impl Auto {
    /// A controller that begins at its floor (bytes a second).
    pub fn new(now: Moment, floor_bps: u64) -> Self {
        let floor_bps = floor_bps.max(crate::limiter::LEAST_RATE_BPS) as f64;
        Auto {
            floor_bps,
            rate_bps: floor_bps,
            starting: true,
            below: BELOW,
            refresh_share: 0.0,
            cruise: Span(0),
            gain_doubles: GAIN_DOUBLES,
            looks: 1,
            seen_looks: 0,
            joined_at: None,
            ways: Ways::default(),
            phase: Phase::Running { refresh_at: now + REFRESH_EVERY },
            drain: (0.0, now),
            grows_since: now,
            told_at: now,
            ticked_at: now,
            ticked: Span(0),
            delivered: Delivered::new(now, THROUGH),
            queueing: None,
            not_ours: Span(0),
            low_looks: Vec::new(),
            known: Most::new(KNOWN_FOR),
            joined_bps: 0.0,
            urgent: UrgentLatency::new(now),
            spared: None,
        }
    }

    /// The same for a class of which nothing bounds what is on its way: it stays further below what the link has.
    pub fn unbounded(now: Moment, floor_bps: u64) -> Self {
        Auto {
            below: BELOW_UNBOUNDED,
            refresh_share: REFRESH_SHARE_UNBOUNDED,
            cruise: CRUISE_UNBOUNDED,
            gain_doubles: GAIN_DOUBLES_UNBOUNDED,
            looks: LOOKS_UNBOUNDED,
            phase: Phase::Running { refresh_at: now + FIRST_REFRESH_UNBOUNDED },
            delivered: Delivered::new(now, THROUGH_UNBOUNDED),
            ..Auto::new(now, floor_bps)
        }
    }

    /// The rate in force at the last tick, in bytes a second.
    pub fn rate_bps(&self) -> u64 {
        match self.phase {
            Phase::Running { .. } => (self.rate_bps * (1.0 - self.drain.0)).max(self.floor_bps) as u64,
            Phase::Refreshing { .. } => (self.refresh_share * self.rate_bps).max(self.floor_bps) as u64,
        }
    }

    /// The queueing delay that was last seen; None where nothing showed any.
    pub fn queueing(&self) -> Option<Span> {
        self.queueing
    }

    /// By how much urgent statements were slower than without the class, while the rate is held down for it.
    pub fn urgent_slower_by(&self) -> Option<Span> {
        self.spared.filter(|(_, until)| self.ticked_at < *until).map(|(by, _)| by)
    }

    /// Whether the class is at its floor to see the way without it.
    pub fn is_refreshing(&self) -> bool {
        matches!(self.phase, Phase::Refreshing { .. })
    }

    /// The shortest way of the class's sockets, for its in-flight cap; None before anything was measured.
    pub fn min_rtt(&self) -> Option<Span> {
        self.ways.least()
    }

    /// What a socket is to be told of the rate that it has ([`Ways::spread_bps`]).
    pub fn spread_bps(&self, session: SessionId, rate_bps: u64) -> u64 {
        self.ways.spread_bps(session, rate_bps, self.ticked)
    }

    /// Takes what was seen since the last tick and says the rate from now on.
    pub fn tick(&mut self, now: Moment, readings: &Readings<'_>) -> u64 {
        let since = std::mem::replace(&mut self.ticked_at, now);
        self.ticked = now - since;
        let sent: u64 = readings.sockets.iter().map(|socket| socket.delivered_bytes).fold(0, u64::saturating_add);
        self.delivered.add(now, sent);
        self.ways.set_period(self.period(now));
        let Seen { told, joined, joined_bps } = self.ways.add(now, readings.sockets);
        if joined {
            // Only what came together can have shared the way.
            if self.joined_at.is_none_or(|at| now - at > JOINING) {
                self.joined_bps = 0.0;
            }
            self.joined_at = Some(now);
        }
        if self.starting {
            self.rate_bps = (self.rate_bps + BEGIN * joined_bps as f64).min(MOST_BPS);
        }
        if joined {
            self.joined_bps += joined_bps as f64;
            self.known.see(now, self.joined_bps.min(MOST_BPS));
        }
        self.known.see(now, self.delivered.rate_bps(now));
        self.queueing = self.ways.queueing(now);
        self.urgent.passed(since, now, self.is_quiet(now));
        readings.urgent.iter().for_each(|statement| self.urgent.add(*statement));
        let slower = self.urgent.slower(now);
        if now >= self.drain.1 {
            self.drain.0 = 0.0;
        }
        let all_thin = sent > 0 && !told && self.queueing.is_none();
        match self.phase {
            Phase::Running { refresh_at } if now >= refresh_at => {
                self.refresh(now);
            }
            Phase::Running { .. } => match slower {
                Some(slower) => self.spare(now, slower),
                None if all_thin => self.grow(now, 1.0),
                None => self.adjust((since, now), told),
            },
            Phase::Refreshing { until } if now >= until => {
                self.phase = Phase::Running { refresh_at: now + REFRESH_EVERY };
                if self.low_looks.is_empty() {
                    self.not_ours = Span(0);
                }
                // What is seen in the next ticks was sent at the floor.
                (self.drain, self.told_at) = ((0.0, now), now);
            }
            Phase::Refreshing { until } => self.learn_what_stands(now, until),
        }
        self.rate_bps()
    }

    fn refresh(&mut self, now: Moment) {
        self.ways.refresh();
        self.low_looks.clear();
        self.phase = Phase::Refreshing { until: now + REFRESH_FOR };
    }

    /// What is seen once the class's own queue is gone. A host that is busy acknowledges late, whoever sends.
    fn learn_what_stands(&mut self, now: Moment, until: Moment) {
        if self.refresh_share > 0.0
            && until - now < Span(REFRESH_FOR.0 / 2)
            && let Some(queueing) = self.queueing
        {
            self.low_looks.push(queueing);
            self.low_looks.sort_unstable();
            self.not_ours = self.low_looks[self.low_looks.len() / 2].min(MOST_NOT_OURS);
        }
    }

    /// Whether the class is as good as not there: at its floor, or sending no more than at its floor.
    fn is_quiet(&self, now: Moment) -> bool {
        (self.rate_bps() as f64) <= self.floor_bps || self.delivered.rate_bps(now) <= self.floor_bps
    }

    /// `since` is when the tick before was: what is read now is of the time since then.
    fn adjust(&mut self, (since, now): (Moment, Moment), told: bool) {
        // Without any signal the rate is held: neither silence nor a gap is a reason to send more.
        let Some(queueing) = self.queueing else { return };
        let queueing = Span((queueing.0 - self.not_ours.0).max(0));
        let error = 1.0 - queueing.seconds() / TARGET.seconds();
        self.seen_looks = if error < 0.0 { self.seen_looks + u32::from(told || self.looks == 1) } else { 0 };
        let far = self.is_below_known();
        let plain = error < 1.0 - PLAIN && !self.is_far_below() && !far;
        if self.seen_looks >= if far { FAR_LOOKS } else { self.looks } || plain {
            self.cut((since, now), queueing);
        } else if error < 0.0 {
            self.told_at = now;
        } else if told {
            self.grow(now, error.min(1.0));
        }
    }

    /// A queue stands: what came through meanwhile is all that there is for the class.
    fn cut(&mut self, (since, now): (Moment, Moment), queueing: Span) {
        // What is read now must be of after the last cut, or one queue would be paid for many times.
        if since < self.drain.1 {
            return;
        }
        // What stood there before the class had sent anything to speak of is not of its making: it begins when that is gone.
        if self.starting && self.joined_at.is_some_and(|at| now - at < JOINING) {
            self.told_at = now;
            return;
        }
        self.starting &= self.rate_bps <= self.floor_bps;
        let through = self.delivered.rate_bps(now).max(self.rate_bps / 2.0);
        if self.is_below_known() {
            // It was seen for long enough: the way gives no more now, whatever it gave before.
            self.known = Most::new(KNOWN_FOR);
            self.joined_bps = 0.0;
            self.known.see(now, through);
        }
        self.rate_bps = (self.below * self.rate_bps.min(through)).clamp(self.floor_bps, MOST_BPS);
        let share = (queueing.seconds() / self.drain_for().seconds()).clamp(DRAIN_LEAST, DRAIN_MOST);
        let until = self.hold_back(now, share);
        let cruises = !self.starting && !self.is_far_below();
        self.grows_since = if cruises { until + self.cruise } else { until };
    }

    /// Urgent statements are slow. What the class may have then, nothing says: it goes down by as much as they are over what they
    /// may be, and what is looked at next began after that.
    fn spare(&mut self, now: Moment, slower: Slower) {
        self.starting &= self.rate_bps <= self.floor_bps;
        let share = (BELOW / slower.times).max(SPARE_LEAST);
        self.rate_bps = (share * self.rate_bps).clamp(self.floor_bps, MOST_BPS);
        self.grows_since = self.hold_back(now, 0.0) + SPARED_FOR;
        self.spared = Some((slower.by, self.grows_since));
    }

    /// Holds so much of the rate back until what was sent before is gone. Returns until when.
    fn hold_back(&mut self, now: Moment, share: f64) -> Moment {
        let until = now + self.drain_for() + self.ways.least().unwrap_or(TICK);
        (self.drain, self.told_at) = ((share, until), now);
        self.urgent.begin_again(until);
        until
    }

    /// In how long all sockets that send have sent a burst, where they send such.
    fn period(&self, now: Moment) -> Span {
        if self.refresh_share == 0.0 {
            return Span(0);
        }
        let senders = self.ways.senders(now, BURSTS_WITHIN);
        Span::from_seconds(senders as f64 * BURST_BYTES / self.rate_bps).min(BURSTS_WITHIN)
    }

    /// What a kernel is told counts from its next burst on.
    fn drain_for(&self) -> Span {
        DRAIN.max(self.ways.period())
    }

    /// Whether the way is known to give far more.
    fn is_below_known(&self) -> bool {
        self.refresh_share > 0.0 && self.rate_bps < FAR_BELOW * self.known.get()
    }

    /// A class far below what came through lately only meets bursts of its own: there is nothing to stay at.
    fn is_far_below(&self) -> bool {
        self.rate_bps < self.delivered.most_bps() / 2.0
    }

    /// Raises the rate by this share of what the time since it was last raised allows, if what is allowed is used.
    fn grow(&mut self, now: Moment, share: f64) {
        let step_s = now.seconds_since(self.told_at).clamp(0.0, LONGEST_STEP_S);
        self.told_at = now;
        if now < self.drain.1.max(self.grows_since) || self.delivered.most_bps() < USED * self.rate_bps {
            return;
        }
        let quiet = now.seconds_since(self.grows_since).max(0.0) / self.gain_doubles.seconds();
        let gain = match (LEAST_GAIN * quiet.exp2()).min(MOST_GAIN) {
            _ if self.starting => MOST_GAIN,
            gain if self.is_below_known() => gain.max(FAR_GAIN),
            gain => gain,
        };
        self.rate_bps = (self.rate_bps * (gain * step_s * share).exp()).clamp(self.floor_bps, MOST_BPS);
    }
}
