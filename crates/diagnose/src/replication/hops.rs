//! The hops of one standby's WAL, second by second: where positions stand, how fast they move, what lies between them.

use crate::grid::{Grid, Lane};
use crate::scene::Scene;
use backwater_model::{Moment, Track, Window, catalogue as cat};

/// A standby's word is taken for the present for so many seconds. While WAL flows it speaks after every flush; what is older
/// says nothing of now.
const FRESH_S: f64 = 4.0;

/// Levels in bytes and rates in bytes a second.
pub(crate) struct Hops {
    /// WAL made on the primary.
    pub(crate) generated: Lane,
    /// Inserted, not yet written by the primary.
    pub(crate) buffers: Lane,
    /// Written, not yet flushed by the primary.
    pub(crate) local_flush: Lane,
    /// Flushed, a second.
    pub(crate) flushed_rate: Lane,
    /// Flushed by the primary, not yet sent.
    pub(crate) send: Lane,
    /// Sent, a second.
    pub(crate) sent_rate: Lane,
    /// Sent, not yet written by the standby: in buffers of both hosts and between them.
    pub(crate) in_flight: Lane,
    /// Written by the standby, not yet flushed.
    pub(crate) standby_flush: Lane,
    /// Flushed by the standby, a second.
    pub(crate) received_rate: Lane,
    /// Flushed by the standby, not yet replayed.
    pub(crate) replay: Lane,
    /// Replayed, a second.
    pub(crate) replayed_rate: Lane,
    /// Flushed by the primary, not yet by the standby. What was not sent where the standby's own word is too old.
    pub(crate) stream: Lane,
}

impl Hops {
    pub(crate) fn of(scene: &Scene<'_>, primary: &str, standby: &str, own: Option<&str>) -> Self {
        let (window, grid) = (scene.window, &scene.grid);
        let head = |name| window.track(name, &[("target", primary)]);
        let row = |name| window.track(name, &[("target", primary), ("standby", standby)]);
        let ages = row(cat::PG_REPL_REPLY_AGE.name);
        let behind = |upstream, position| behind(grid, upstream, position, ages);
        // A cascading standby has no WAL of its own making: what it has received is its head.
        let flushed = head(cat::PG_WAL_FLUSH.name).or_else(|| head(cat::PG_WAL_RECEIVE.name));
        let inserted = head(cat::PG_WAL_INSERT.name).or(flushed);
        let (sent, written) = (row(cat::PG_REPL_SENT.name), row(cat::PG_REPL_WRITE.name));
        let (received, replayed) = (row(cat::PG_REPL_FLUSH.name), row(cat::PG_REPL_REPLAY.name));
        let send = local(grid, flushed, sent);
        let of_peer = own.and_then(|own| of_peer(window, own));
        let rate = |track: Option<Track<'_>>| grid.rate(track);
        let (replay, replayed_rate) = match of_peer {
            Some((received, replayed)) => (local(grid, Some(received), Some(replayed)), rate(Some(replayed))),
            None => (behind(received, replayed), rate(replayed)),
        };
        let peer_received = of_peer.map(|(received, _)| received);
        Hops {
            generated: rate(inserted),
            buffers: local(grid, inserted, head(cat::PG_WAL_WRITE.name)),
            local_flush: local(grid, head(cat::PG_WAL_WRITE.name), head(cat::PG_WAL_FLUSH.name)),
            flushed_rate: rate(flushed),
            stream: behind(flushed, received).or(&send),
            send,
            sent_rate: rate(sent),
            in_flight: behind(sent, written),
            standby_flush: behind(written, received),
            received_rate: rate(received.or(peer_received)),
            replay,
            replayed_rate,
        }
    }
}

/// Received and replayed positions as the standby itself tells them.
fn of_peer<'a>(window: &'a Window, own: &str) -> Option<(Track<'a>, Track<'a>)> {
    let track = |name| window.track(name, &[("target", own)]);
    track(cat::PG_WAL_RECEIVE.name).zip(track(cat::PG_WAL_REPLAY.name))
}

/// The distance between two positions that one server reads of itself: both are of the moment of the read.
fn local(grid: &Grid, upstream: Option<Track<'_>>, position: Option<Track<'_>>) -> Lane {
    grid.gauge(upstream).with(&grid.gauge(position), |ahead, behind| (ahead - behind).max(0.0))
}

/// How far a standby's position lay behind another one when it was true. Known while the standby's word is fresh, and for as
/// long as it had everything: then it cannot have moved since.
fn behind(grid: &Grid, upstream: Option<Track<'_>>, position: Option<Track<'_>>, ages: Option<Track<'_>>) -> Lane {
    let Some((upstream, position)) = upstream.zip(position) else { return grid.unknown() };
    let skew = skew_s(position);
    grid.lane(|second| {
        let end = grid.start(second + 1);
        let point = position.at(end, FRESH_S)?;
        let age = ages.and_then(|ages| ages.at(point.at, FRESH_S)).map_or(0.0, |age| age.value.max(0.0));
        let told = point.as_of.map_or(age, |as_of| point.at.seconds_since(as_of));
        let true_at = Moment::from_seconds(point.at.seconds() - (told - skew).max(0.0));
        let now = upstream.at(point.at, FRESH_S)?;
        if now.epoch == point.epoch && point.value >= now.value {
            return Some(0.0);
        }
        let fresh = end.seconds_since(true_at) <= FRESH_S;
        fresh
            .then(|| crate::grid::value_at(upstream, true_at, FRESH_S))
            .flatten()
            .map(|head| (head - point.value).max(0.0))
    })
}

/// How far the standby's clock, by which it stamps its words, is behind: whenever its position has moved since the last reading,
/// it has spoken since then, so the smallest age seen at such times is the clocks' difference.
fn skew_s(position: Track<'_>) -> f64 {
    let moved = position.points.windows(2).filter(|pair| pair[1].value != pair[0].value);
    let ages = moved.filter_map(|pair| {
        let longest = pair[1].at.seconds_since(pair[0].at);
        Some((pair[1].at.seconds_since(pair[1].as_of?) - longest).max(0.0))
    });
    ages.reduce(f64::min).unwrap_or(0.0)
}
