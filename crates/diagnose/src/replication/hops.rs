//! The hops of one standby's WAL, second by second: where positions stand, how fast they move, what lies between them.

use super::queues::WORD_S;
use crate::figures::Figures;
use crate::grid::{Grid, Lane};
use crate::scene::Scene;
use backwater_model::{Moment, Point, Track, Unit, Window, catalogue as cat};
use std::ops::Range;

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
    /// The same as the path shows it.
    pub(crate) shown: Shown,
}

/// Levels by what the standby told last, while its word is good: where that is old, some of it may be there by then.
pub(crate) struct Shown {
    pub(crate) in_flight: Lane,
    pub(crate) standby_flush: Lane,
    pub(crate) replay: Lane,
    pub(crate) stream: Lane,
    /// How old the standby's word is, in seconds.
    word_s: Lane,
}

impl Shown {
    /// The highest level of a stretch, and how old the standby's word was by which it is the highest, if too old for the present.
    pub(crate) fn most(&self, level: &Lane, range: &Range<usize>) -> Option<(f64, Option<f64>)> {
        let levels = range.clone().filter_map(|second| Some((second, level.get(second)?)));
        let (second, most) = levels.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((most, self.word_s.get(second).filter(|age| *age > FRESH_S)))
    }

    /// Adds the highest level of a stretch to the figures, with the age of the standby's word where that is old.
    pub(crate) fn add_most(&self, to: &mut Figures, name: &str, level: &Lane, label: &str, range: &Range<usize>) {
        let Some((bytes, old_s)) = self.most(level, range) else { return };
        let old =
            old_s.map_or(String::new(), |age| format!(" (by what it had told {} before)", Unit::Seconds.show(age)));
        to.add(name, Some(bytes), Unit::Bytes, &format!("{label}, at most{old}"));
    }
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
        let written_here = head(cat::PG_WAL_WRITE.name).or(flushed);
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
        let (in_flight, standby_flush) = (behind(sent, written), behind(written, received));
        let stream = behind(flushed, received).or(&send);
        let last = |upstream, position| last_told(grid, upstream, position, ages);
        let shown = Shown {
            in_flight: last(sent, written).or(&in_flight),
            standby_flush: last(written, received).or(&standby_flush),
            replay: if of_peer.is_some() { grid.unknown() } else { last(received, replayed) }.or(&replay),
            stream: last(flushed, received).or(&stream),
            word_s: word_s(grid, received, ages),
        };
        Hops {
            generated: rate(inserted),
            buffers: local(grid, inserted, written_here),
            local_flush: local(grid, written_here, flushed),
            flushed_rate: rate(flushed),
            stream,
            send,
            sent_rate: rate(sent),
            in_flight,
            standby_flush,
            received_rate: rate(received.or(peer_received)),
            replay,
            replayed_rate,
            shown,
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
        let true_at = Moment::from_seconds(point.at.seconds() - (told_s(point, ages) - skew).max(0.0));
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

/// How long before it was read a position was told.
fn told_s(point: &Point, ages: Option<Track<'_>>) -> f64 {
    let age = ages.and_then(|ages| ages.at(point.at, FRESH_S)).map_or(0.0, |age| age.value.max(0.0));
    point.as_of.map_or(age, |as_of| point.at.seconds_since(as_of))
}

/// How old the standby's word is in each second, by its own clock set right.
fn word_s(grid: &Grid, position: Option<Track<'_>>, ages: Option<Track<'_>>) -> Lane {
    let Some(position) = position else { return grid.unknown() };
    let skew = skew_s(position);
    grid.lane(|second| {
        let point = position.at(grid.start(second + 1), FRESH_S)?;
        Some((told_s(point, ages) - skew).max(0.0))
    })
}

/// How far a position, as it was told last, lies behind what the other one is at the time of reading.
fn last_told(grid: &Grid, upstream: Option<Track<'_>>, position: Option<Track<'_>>, ages: Option<Track<'_>>) -> Lane {
    let Some((upstream, position)) = upstream.zip(position) else { return grid.unknown() };
    let good = word_s(grid, Some(position), ages).map(|age| if age <= WORD_S { 1.0 } else { 0.0 });
    grid.lane(|second| {
        good.get(second).filter(|good| *good > 0.0)?;
        let point = position.at(grid.start(second + 1), FRESH_S)?;
        Some((upstream.at(point.at, FRESH_S)?.value - point.value).max(0.0))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Epoch, SeriesId};

    fn point(at_s: f64, value: f64, as_of_s: f64) -> Point {
        let [at, as_of] = [at_s, as_of_s].map(Moment::from_seconds);
        Point { at, series: SeriesId(0), epoch: Epoch(7), value, as_of: Some(as_of) }
    }

    /// WAL grows by 1 MB a second; the standby tells every ten seconds that it has half of it.
    #[test]
    fn the_most_is_what_the_path_shows_and_says_how_old_the_standbys_word_was() {
        let seconds = |value: &dyn Fn(f64) -> (f64, f64)| -> Vec<Point> {
            let points = (0..=40).map(f64::from);
            points.map(|at| (at, value(at))).map(|(at, (value, as_of))| point(at, value, as_of)).collect()
        };
        let series = cat::PG_WAL_FLUSH.series(&[("target", "a")]);
        let head = seconds(&|at| (at * 1e6, at));
        let told = seconds(&|at| ((at / 10.0).floor() * 5e6, (at / 10.0).floor() * 10.0));
        let track = |points| Some(Track { series: &series, points });
        let (upstream, position) = (track(&head[..]), track(&told[..]));
        let grid = Grid { from: Moment(0), count: 40 };
        let fresh = behind(&grid, upstream, position, None);
        let level = last_told(&grid, upstream, position, None);
        let shown = Shown {
            in_flight: grid.unknown(),
            standby_flush: grid.unknown(),
            replay: grid.unknown(),
            stream: level.or(&fresh),
            word_s: word_s(&grid, position, None),
        };
        let (whole, early) = (0..39, 30..34);
        assert_eq!(fresh.max(&whole), Some(15e6), "when it last spoke");
        assert_eq!(shown.most(&shown.stream, &whole), Some((39e6 - 15e6, Some(9.0))));
        assert_eq!(shown.most(&shown.stream, &early), Some((34e6 - 15e6, None)), "its word is fresh");
    }
}
