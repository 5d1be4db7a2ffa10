//! The TCP connection from a walsender to its standby, as the primary's kernel counts it.
//!
//! Positions cannot tell a slow network from a slow disk behind it: either way the backlog stands on the primary, unsent. The
//! kernel's timers can: `rwnd_limited` runs while data wait for the peer to make room, that is, to read its socket; it is
//! compared with the time on the clock, for compared with the connection's busy time it is half even when all is well
//! (net/ipv4/tcp_output.c, `tcp_chrono_start`; gerrit 05b055e89121).

use crate::grid::Lane;
use crate::scene::Scene;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Kind, Track};
use std::ops::Range;

/// Unsent bytes from which a connection has more than it can send: several of the largest segments.
pub(crate) const STANDING: f64 = 64.0 * 1024.0;

/// One connection, over its reconnections.
pub(crate) struct Tcp {
    /// Share of time with data to send.
    pub(crate) busy: Lane,
    /// Share of time held by the peer's receive window.
    pub(crate) rwnd: Lane,
    /// Share of time held by the own send buffer.
    pub(crate) sndbuf: Lane,
    /// Written by the walsender, not yet sent.
    pub(crate) notsent: Lane,
    /// Acknowledged, bytes a second.
    pub(crate) acked: Lane,
    /// Segments sent again, a second.
    pub(crate) retransmits: Lane,
    /// Segments sent, a second.
    pub(crate) segments: Lane,
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
        let lane = |def: &Def| {
            let mut joined = scene.grid.unknown();
            for pid in &pids {
                let labels = [("target", primary), ("pid", pid.as_str())];
                for track in scene.window.tracks(def.name, &labels) {
                    joined = joined.or(&of_track(scene, track));
                }
            }
            joined
        };
        let share = |def: &Def| lane(def).map(|us| (us / 1e6).clamp(0.0, 1.0));
        Tcp {
            busy: share(&cat::TCP_BUSY),
            rwnd: share(&cat::TCP_RWND_LIMITED),
            sndbuf: share(&cat::TCP_SNDBUF_LIMITED),
            notsent: lane(&cat::TCP_NOTSENT),
            acked: lane(&cat::TCP_ACKED),
            retransmits: lane(&cat::TCP_RETRANSMITS),
            segments: lane(&cat::TCP_SEGMENTS_OUT),
            min_rtt_s: lane(&cat::TCP_MIN_RTT).map(|us| us / 1e6),
            window: lane(&cat::TCP_PEER_WINDOW),
        }
    }

    /// Shares over a stretch; none where the timers were not seen.
    pub(crate) fn shares(&self, range: &Range<usize>) -> Option<TcpShares> {
        let standing = self.notsent.values(range);
        let count = standing.iter().filter(|bytes| **bytes >= STANDING).count();
        Some(TcpShares {
            busy: self.busy.mean(range)?,
            rwnd: self.rwnd.mean(range)?,
            sndbuf: self.sndbuf.mean(range).unwrap_or(0.0),
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
