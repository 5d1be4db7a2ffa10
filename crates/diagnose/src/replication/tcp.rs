//! The TCP connection from a walsender to its standby, as the primary's kernel counts it.
//!
//! Positions cannot tell a slow network from a slow disk behind it: either way the backlog stands on the primary, unsent. The
//! kernel's timers can: `rwnd_limited` runs while data wait for the peer to make room, that is, to read its socket; it is
//! compared with the time on the clock, for compared with the connection's busy time it is half even when all is well
//! (net/ipv4/tcp_output.c, `tcp_chrono_start`; gerrit 05b055e89121).

use crate::grid::{Grid, Lane};
use crate::scene::Scene;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Kind, Point, Track, rate_between};
use std::ops::Range;

/// Unsent bytes from which a connection has more than it can send: several of the largest segments.
pub(crate) const STANDING: f64 = 64.0 * 1024.0;

/// A stretch must be covered by a counter's readings for this share to have a rate.
const COVERED: f64 = 0.5;

/// A counter over a connection's lives. Readings may be rare while the host is busy, which is when they matter: what it gained
/// from one to the next is exact, however long that is.
pub(crate) struct Counter {
    grid: Grid,
    lives: Vec<Vec<Point>>,
}

impl Counter {
    /// Units a second over a stretch, from the readings within it (and the nearest ones around it).
    pub(crate) fn mean(&self, range: &Range<usize>) -> Option<f64> {
        let (from, to) = self.grid.span(range);
        let (mut gained, mut covered) = (0.0, 0.0);
        for pair in self.lives.iter().flat_map(|life| life.windows(2)) {
            let Ok(rate) = rate_between(&pair[0], &pair[1], 0.0) else { continue };
            let within = pair[1].at.min(to).seconds_since(pair[0].at.max(from));
            if within > 0.0 {
                gained += rate.per_second * within;
                covered += within;
            }
        }
        (covered >= COVERED * to.seconds_since(from) && covered > 0.0).then(|| gained / covered)
    }
}

/// One connection, over its reconnections.
pub(crate) struct Tcp {
    /// Time with data to send, in microseconds.
    busy: Counter,
    /// Time held by the peer's receive window, and by the own send buffer.
    rwnd: Counter,
    sndbuf: Counter,
    /// Written by the walsender, not yet sent.
    pub(crate) notsent: Lane,
    /// Acknowledged, in bytes.
    pub(crate) acked: Counter,
    /// The same, bytes a second in each second.
    pub(crate) acked_lane: Lane,
    /// Segments sent again, and sent.
    pub(crate) retransmits: Counter,
    pub(crate) segments: Counter,
    /// Smallest round trip in seconds.
    pub(crate) min_rtt_s: Lane,
    /// The window that the peer offers.
    pub(crate) window: Lane,
}

/// Shares of a stretch, of time on the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpShares {
    pub(crate) busy: f64,
    pub(crate) rwnd: f64,
    pub(crate) sndbuf: f64,
    /// Share of the readings with unsent bytes standing.
    pub(crate) standing: f64,
}

impl Tcp {
    pub(crate) fn of(scene: &Scene<'_>, primary: &str, standby: &str) -> Self {
        let pids = walsenders(scene, primary, standby);
        let labels: Vec<_> = pids.iter().map(|pid| [("target", primary), ("pid", pid.as_str())]).collect();
        let tracks = |def: &Def| -> Vec<Track<'_>> {
            labels.iter().flat_map(|labels| scene.window.tracks(def.name, labels)).collect()
        };
        let lane = |def: &Def| {
            let each = tracks(def).into_iter().map(|track| of_track(scene, track));
            each.fold(scene.grid.unknown(), |joined, lane| joined.or(&lane))
        };
        let counter = |def: &Def| Counter {
            grid: scene.grid,
            lives: tracks(def).into_iter().map(|track| track.points.to_vec()).collect(),
        };
        Tcp {
            busy: counter(&cat::TCP_BUSY),
            rwnd: counter(&cat::TCP_RWND_LIMITED),
            sndbuf: counter(&cat::TCP_SNDBUF_LIMITED),
            notsent: lane(&cat::TCP_NOTSENT),
            acked: counter(&cat::TCP_ACKED),
            acked_lane: lane(&cat::TCP_ACKED),
            retransmits: counter(&cat::TCP_RETRANSMITS),
            segments: counter(&cat::TCP_SEGMENTS_OUT),
            min_rtt_s: lane(&cat::TCP_MIN_RTT).map(|us| us / 1e6),
            window: lane(&cat::TCP_PEER_WINDOW),
        }
    }

    /// Shares over a stretch; none where the timers were not seen.
    pub(crate) fn shares(&self, range: &Range<usize>) -> Option<TcpShares> {
        let standing = self.notsent.values(range);
        let share = |time: &Counter| time.mean(range).map(|us| (us / 1e6).clamp(0.0, 1.0));
        let count = standing.iter().filter(|bytes| **bytes >= STANDING).count();
        Some(TcpShares {
            busy: share(&self.busy)?,
            rwnd: share(&self.rwnd)?,
            sndbuf: share(&self.sndbuf).unwrap_or(0.0),
            standing: if standing.is_empty() { return None } else { count as f64 / standing.len() as f64 },
        })
    }

    /// Whether it moves about a whole window of the peer in each round trip: then the window, not who empties it, is the limit.
    pub(crate) fn window_bound(&self, range: &Range<usize>) -> bool {
        let bound = || {
            let rtt = self.min_rtt_s.median(range).filter(|rtt| *rtt > 0.0)?;
            let (window, rate) = (self.window.median(range)?, self.acked.mean(range)?);
            Some(window >= STANDING && window / rtt <= 2.0 * rate)
        };
        bound().unwrap_or(false)
    }
}

/// A gauge's reading does not outlive its connection by more than a second.
fn of_track(scene: &Scene<'_>, track: Track<'_>) -> Lane {
    if track.series.kind != Kind::Gauge {
        return scene.grid.rate(Some(track));
    }
    scene.grid.lane(|second| track.at(scene.grid.start(second + 1), 2.0).map(|point| point.value))
}

/// Process ids that served this standby in the window.
fn walsenders(scene: &Scene<'_>, primary: &str, standby: &str) -> Vec<String> {
    let labels = [("target", primary), ("standby", standby)];
    let track = scene.window.track(cat::PG_REPL_PID.name, &labels);
    let mut pids: Vec<i64> =
        track.map(|track| track.points.iter().map(|point| point.value as i64).collect()).unwrap_or_default();
    pids.sort_unstable();
    pids.dedup();
    pids.iter().map(i64::to_string).collect()
}
