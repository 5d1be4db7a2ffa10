//! What a server tells of standbys and was not read. That a row is missing says something only while it would be seen: a hole in all
//! readings, a view that fails and one that a role may not read are no absence.

use super::head_series;
use crate::grid::Grid;
use backwater_model::{Event, EventKind, Moment, Point, Track, Unseen, Window, catalogue as cat};
use std::collections::BTreeMap;

/// Readings of a server further apart than so many seconds have a hole between them, in which a row may have come and
/// gone, or a checkpoint; what was last read longer ago is no longer there, or no longer read. They come once a second,
/// and a look may wait two seconds for a view that is slow.
pub(crate) const HOLE_S: f64 = 3.0;

/// What the probe says to be absent to a role that sees no statistics of others.
const STANDBYS: &str = "standbys";

/// Why a view was not read of which the window holds the end of that alone.
const BEFORE: &str = "it could not be read as the window begins, and why was told before";

/// A view in which a server tells of standbys. Each is read by itself: one may fail while all others are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The rows of those that are connected.
    Standbys,
    /// Slots.
    Slots,
}

impl View {
    /// As the probe calls it.
    fn name(self) -> &'static str {
        match self {
            View::Standbys => "pg_stat_replication",
            View::Slots => "pg_replication_slots",
        }
    }

    /// Whether it is this that the probe says to be absent.
    fn is_meant_by(self, what: &str) -> bool {
        what == self.name() || (self == View::Standbys && what == STANDBYS)
    }

    /// A series that every row of it has.
    fn series(self) -> &'static str {
        match self {
            View::Standbys => cat::PG_REPL_STREAMING.name,
            View::Slots => cat::PG_SLOT_ACTIVE.name,
        }
    }
}

/// The newest readings of a track, back to a hole or to another life of the server: what came and went is unknown.
pub(crate) fn unbroken(track: Track<'_>) -> &[Point] {
    let breaks = |pair: &[Point]| pair[0].epoch != pair[1].epoch || pair[1].at.seconds_since(pair[0].at) > HOLE_S;
    let begin = track.points.windows(2).rposition(breaks).map_or(0, |place| place + 1);
    &track.points[begin..]
}

/// Since when a flag has been down without a break; none where it is up, or no longer read.
pub(crate) fn down_since(window: &Window, flag: Track<'_>) -> Option<Moment> {
    flag.at(window.to, HOLE_S)?;
    // Whoever was not looked for in between may have come and gone.
    let down = unbroken(flag).iter().rev().take_while(|point| point.value == 0.0).last()?;
    Some(down.at)
}

/// Seconds, up to its newest reading, for which a server was read without what a view of it had shown at a moment. None while that
/// view is not read: it may be there.
pub(crate) fn missed_s(window: &Window, server: &str, view: View, seen: Moment) -> Option<f64> {
    let read = unbroken(window.track(head_series(window, server), &[("target", server)])?);
    let (first, last) = (read.first()?, read.last()?);
    let since = read_since(window, server, view, seen).ok()?;
    Some(last.at.seconds_since(since.max(first.at)))
}

/// That a view has not been read any more since a moment at which it was, and why.
pub(crate) fn unread(window: &Window, server: &str, view: View, seen: Moment) -> Option<Unseen> {
    read_since(window, server, view, seen).err().map(|event| unseen(event, server, view))
}

/// That a view was not read for some of the time between two moments, and why.
pub(crate) fn unread_between(
    window: &Window,
    server: &str,
    view: View,
    (from, to): (Moment, Moment),
) -> Option<Unseen> {
    let lies_in = |(event, again): &(&Event, Option<Moment>)| {
        let begun = begun(window, event);
        // The end of what was told before in this window is no stretch of its own.
        begun <= to && again.is_none_or(|again| again > from.max(begun))
    };
    stretches(window, server, view).find(lies_in).map(|(event, _)| unseen(event, server, view))
}

/// The seconds in which a view is not read, as far as that is told.
pub(crate) fn unread_seconds(window: &Window, grid: &Grid, server: &str, view: View) -> Vec<bool> {
    let mut seconds = vec![false; grid.count];
    let place = |at: Moment| (at.seconds_since(grid.from).max(0.0) as usize).min(grid.count);
    for (event, again) in stretches(window, server, view) {
        let (from, to) = (place(begun(window, event)), again.map_or(grid.count, place));
        seconds[from..to.max(from)].fill(true);
    }
    seconds
}

/// Since when that is so of which an event tells. Of a stretch that began before the window, that it lasts or its end alone may be told.
fn begun(window: &Window, event: &Event) -> Moment {
    if event.ends_gap() {
        let same = |other: &Event| other.kind == event.kind && other.fields.get("probe") == event.fields.get("probe");
        let mut earlier = window.events().iter().take_while(|other| !std::ptr::eq(*other, event));
        return if earlier.any(same) { event.at } else { window.from };
    }
    event.failing_since()
}

fn unseen(event: &Event, server: &str, view: View) -> Unseen {
    let field = |name: &str| event.fields.get(name).cloned();
    Unseen {
        what: format!("{} of {server}", view.name()),
        why: field("reason").or_else(|| field("why")).unwrap_or_else(|| {
            // All that is told of it is that it is over.
            if event.ends_gap() { BEFORE.to_owned() } else { event.message.clone() }
        }),
        remedy: field("remedy"),
    }
}

/// Since when a view is read that was read at a moment: since then, or since it is read again. Else what says that it is not.
fn read_since<'a>(window: &'a Window, server: &str, view: View, seen: Moment) -> Result<Moment, &'a Event> {
    if let Some(event) = cut(window, server, view) {
        return Err(event);
    }
    let mut since = seen;
    for (event, again) in stretches(window, server, view).take_while(|(event, _)| event.at >= seen) {
        since = since.max(again.ok_or(event)?);
    }
    Ok(since)
}

/// That a view has more rows than are put down, if that is told: whose row is missing may be one of those that are left out.
fn cut<'a>(window: &'a Window, server: &str, view: View) -> Option<&'a Event> {
    let begins = format!("rows of {} beyond", view.name());
    let is_it = |event: &&Event| {
        event.source == server && event.fields.get("what").is_some_and(|what| what.starts_with(&begins))
    };
    window.events_of(EventKind::Absent).find(is_it)
}

/// What is told of a view that is not read, or of the whole server, and when that is over, the newest first: that this begins, lasts
/// and ends, or that it may not be read.
fn stretches<'a>(window: &'a Window, server: &str, view: View) -> impl Iterator<Item = (&'a Event, Option<Moment>)> {
    let probe = format!("postgres.{server}");
    let mut ends: BTreeMap<&'a str, Moment> = BTreeMap::new();
    window.events().iter().rev().filter_map(move |event| {
        let part = part(event, server, &probe, view)?;
        let name = event.fields.get("probe").map_or("", String::as_str);
        if event.ends_gap() {
            ends.insert(name, event.at);
        }
        let ended = ends.get(name).copied().filter(|_| event.kind == EventKind::Gap);
        // A recorder that is started anew tells no end of what had failed before: that there are readings does.
        // (`OpenGaps` tells what surely fails, and has it end with the recorder; what may be unread is no absence here.)
        let read = read_after(window, server, view, part, event.at);
        Some((event, ended.into_iter().chain(read).chain(allowed_after(window, server, event)).min()))
    })
}

/// Of how much it is told that it is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Server,
    View,
}

/// Of which part an event tells that it is not read, if of any that this view needs.
fn part(event: &Event, server: &str, probe: &str, view: View) -> Option<Part> {
    let field = |name: &str| event.fields.get(name).map(String::as_str);
    let is_own = event.source == server;
    match event.kind {
        EventKind::Absent => (is_own && view.is_meant_by(field("what")?)).then_some(Part::View),
        // Of a whole server the recorder tells.
        EventKind::Gap if !is_own => (field("probe") == Some(probe)).then_some(Part::Server),
        EventKind::Gap => {
            let of = field("probe").and_then(|name| name.strip_prefix(probe)?.strip_prefix(' '));
            match of {
                Some(name) => (name == view.name()).then_some(Part::View),
                // Lines of its log that were skipped are of no view.
                None => field("skipped_bytes").is_none().then_some(Part::Server),
            }
        }
        _ => None,
    }
}

/// When a role has the right again that it lacked by what an event tells: it sees the server's other processes, which takes the same.
/// Where no standby is connected there is no row that would tell.
fn allowed_after(window: &Window, server: &str, event: &Event) -> Option<Moment> {
    let lacked = event.kind == EventKind::Absent && event.fields.get("what").is_some_and(|what| what == STANDBYS);
    if lacked { allowed_since(window, server, event.at) } else { None }
}

/// When a role sees the server's other processes, after a moment at which it lacked that right.
pub(crate) fn allowed_since(window: &Window, server: &str, moment: Moment) -> Option<Moment> {
    let samples = window.samples();
    let later = &samples[samples.partition_point(|sample| sample.at <= moment)..];
    later.iter().find(|sample| *sample.target == *server && sample.is_carrier()).map(|sample| sample.at)
}

/// The first reading of a server, or of one of its views, after a moment.
fn read_after(window: &Window, server: &str, view: View, part: Part, moment: Moment) -> Option<Moment> {
    let series = if part == Part::Server { head_series(window, server) } else { view.series() };
    let first = |track: Track<'_>| {
        let later = track.points.partition_point(|point| point.at <= moment);
        track.points.get(later).map(|point| point.at)
    };
    window.tracks(series, &[("target", server)]).filter_map(first).min()
}
