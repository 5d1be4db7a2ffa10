//! `low_priority_bandwidth = 'auto'`: the low class gets what the link has left while almost nothing queues.
//!
//! A less-than-best-effort controller in the line of LEDBAT (RFC 6817): queueing delay is measured, and the class's rate
//! moves with the distance from a target of [`TARGET`]. Three signals, of which the worst counts:
//! - the low class's own bulk sockets: round trip now, minus the least one seen ([`BaseRtt`]). Not the urgent sockets':
//!   on an idle link their smoothed round trip measures their client's think time through delayed acknowledgements;
//! - what stands in this host's own egress queue;
//! - the latency of urgent statements against what it is while the low class is at its floor ([`UrgentLatency`]).
//!
//! Every [`REFRESH_EVERY`] the class is put to its floor for [`REFRESH_FOR`], so that a queue of its own making cannot
//! come to be taken for the way's length. The rate alone cannot bound a queue that builds faster than it is seen: the
//! class's in-flight cap ([`crate::limiter::in_flight_bytes`]) does that, and is to be set from the same rate.
//!
//! A class of a few segments a tick shows no round trip but its receivers' delayed acknowledgements. While that is so, what
//! it was allowed and delivered in full is what speaks: the rate grows on it until round trips can be told.

mod base_rtt;
#[cfg(test)]
mod plant;
mod urgent;

pub use base_rtt::{BaseRtt, SocketReading};
pub use urgent::UrgentLatency;

use backwater_model::{Moment, Span};

/// Queueing delay that the class may cause.
pub const TARGET: Span = Span::from_millis(1);
/// How often the base is refreshed.
pub const REFRESH_EVERY: Span = Span::from_millis(10_000);
/// For how long the class is at its floor then.
pub const REFRESH_FOR: Span = Span::from_millis(200);
/// How often [`Auto::tick`] wants to be called; readings are those since the last call.
pub const TICK: Span = Span::from_millis(10);
/// The floor unless told otherwise, in bytes a second.
pub const FLOOR_BPS: u64 = 1 << 20;

/// Growth a tick until something first queues.
const START_GAIN: f64 = 0.25;
/// Growth a tick after that, at no queue at all.
const GAIN: f64 = 0.03;
/// The largest cut at once, at twice the target or more.
const CUT: f64 = 0.3;
/// A rate that is not used says nothing: it grows only when so much of it is.
const USED: f64 = 0.9;
/// Nothing is faster.
const MOST_BPS: f64 = 1e12;

/// What was seen since the last tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings<'a> {
    /// The low class's own sockets. Those that hardly sent say little and do not count.
    pub sockets: &'a [SocketReading],
    /// Bytes in this host's egress queue on the way to these clients; None where it cannot be read.
    pub egress_backlog_bytes: Option<u64>,
    /// By how much urgent statements are slower than unloaded, scaled to the target ([`UrgentLatency::delay`]).
    pub urgent_delay: Option<Span>,
}

/// The controller. One for the class.
#[derive(Clone, Debug)]
pub struct Auto {
    floor_bps: f64,
    rate_bps: f64,
    starting: bool,
    base: BaseRtt,
    phase: Phase,
    ticked_at: Option<Moment>,
    /// Cuts wait until the last one can have been seen.
    cut_until: Moment,
    delivered_bps: f64,
    queueing: Option<Span>,
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
            base: BaseRtt::default(),
            phase: Phase::Running { refresh_at: now + REFRESH_EVERY },
            ticked_at: None,
            cut_until: now,
            delivered_bps: 0.0,
            queueing: None,
        }
    }

    /// The rate in force, in bytes a second.
    pub fn rate_bps(&self) -> u64 {
        match self.phase {
            Phase::Running { .. } => self.rate_bps as u64,
            Phase::Refreshing { .. } => self.floor_bps as u64,
        }
    }

    /// The queueing delay that was last seen; None where nothing showed any.
    pub fn queueing(&self) -> Option<Span> {
        self.queueing
    }

    /// Whether the class is at its floor to see the way without it.
    pub fn is_refreshing(&self) -> bool {
        matches!(self.phase, Phase::Refreshing { .. })
    }

    /// The shortest way of the class's sockets, for its in-flight cap; None before anything was measured.
    pub fn min_rtt(&self) -> Option<Span> {
        self.base.least()
    }

    /// Takes what was seen since the last tick and says the rate from now on.
    pub fn tick(&mut self, now: Moment, readings: &Readings<'_>) -> u64 {
        let elapsed_s = self.ticked_at.map_or(TICK.seconds(), |at| now.seconds_since(at)).max(1e-6);
        self.ticked_at = Some(now);
        let sent: u64 = readings.sockets.iter().map(|socket| socket.delivered_bytes).sum();
        self.delivered_bps = sent as f64 / elapsed_s;
        let standing = self.base.add(now, readings.sockets);
        self.queueing = self.worst(standing, readings);
        let all_thin = !readings.sockets.is_empty() && readings.sockets.iter().all(SocketReading::is_thin);
        match self.phase {
            Phase::Running { refresh_at } if now >= refresh_at => {
                self.base.refresh();
                self.phase = Phase::Refreshing { until: now + REFRESH_FOR };
            }
            Phase::Running { .. } if all_thin && self.queueing.is_none() => self.grow(1.0),
            Phase::Running { .. } => self.adjust(now),
            Phase::Refreshing { until } if now >= until => {
                self.phase = Phase::Running { refresh_at: now + REFRESH_EVERY };
                // What is seen in the next ticks was sent at the floor.
                self.cut_until = now;
            }
            Phase::Refreshing { .. } => {}
        }
        self.rate_bps()
    }

    fn worst(&self, standing: Option<Span>, readings: &Readings<'_>) -> Option<Span> {
        let drain_bps = self.delivered_bps.max(self.floor_bps);
        let egress = readings.egress_backlog_bytes.map(|bytes| Span::from_seconds(bytes as f64 / drain_bps));
        [standing, egress, readings.urgent_delay].into_iter().flatten().max()
    }

    fn adjust(&mut self, now: Moment) {
        // Without any signal the rate is held: neither silence nor a gap is a reason to send more.
        let Some(queueing) = self.queueing else { return };
        let error = 1.0 - queueing.seconds() / TARGET.seconds();
        if error >= 0.0 {
            self.starting &= error > 0.5;
            self.grow(error);
        } else if now >= self.cut_until {
            self.starting = false;
            let through = self.rate_bps.min(self.delivered_bps.max(self.rate_bps / 2.0));
            self.rate_bps = through * (1.0 - CUT * (-error).min(1.0));
            self.cut_until = now + self.base.least().unwrap_or(TICK) + TICK;
        }
        self.rate_bps = self.rate_bps.clamp(self.floor_bps, MOST_BPS);
    }

    /// Raises the rate by this share of a tick's gain, if what is allowed is used.
    fn grow(&mut self, share: f64) {
        if self.delivered_bps >= USED * self.rate_bps {
            let gain = if self.starting { START_GAIN } else { GAIN };
            self.rate_bps = (self.rate_bps * (1.0 + gain * share)).min(MOST_BPS);
        }
    }
}
