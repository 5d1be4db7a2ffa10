//! Rows of standbys that end although no standby is lost: its slot was dropped, or it goes on under another name.

use super::{head_series, is_logical, standby_row};
use backwater_model::{Moment, Track, Window, catalogue as cat};

/// Slots are read as often as the server's own position: one that was not for so many seconds was dropped.
const DROPPED_S: f64 = 5.0;
/// A name that is read for the first time within so many seconds after another has ended is taken for the same standby's, which was
/// restarted, or given a slot or another address.
const RENAMED_S: f64 = 30.0;

/// When a server's own position was last read.
pub(crate) fn last_read(window: &Window, server: &str) -> Option<Moment> {
    window.track(head_series(window, server), &[("target", server)])?.points.last().map(|point| point.at)
}

/// Whether nothing is to come under a standby's name any more, although no standby was lost.
pub(crate) fn has_ended(window: &Window, primary: &str, name: &str) -> bool {
    slot_dropped(window, primary, name) || goes_on(window, primary, name)
}

fn slot_dropped(window: &Window, primary: &str, name: &str) -> bool {
    let slot = window.track(cat::PG_SLOT_ACTIVE.name, &[("target", primary), ("slot", name)]);
    let read = slot.and_then(|track| track.points.last()).zip(last_read(window, primary));
    read.is_some_and(|(slot, server)| server.seconds_since(slot.at) >= DROPPED_S)
}

/// Whether a standby whose row has ended is read later under another name: with the same walsender, with a younger one of its
/// application and address (while the old one waits for its time-out, the two are told apart by their processes), or with a name
/// that nobody had before.
fn goes_on(window: &Window, primary: &str, name: &str) -> bool {
    let own = standby_row(window, &cat::PG_REPL_PID, primary, name).and_then(|track| track.points.last());
    let Some(last) = own else { return false };
    let is_it = |track: Track<'_>| {
        let other = track.series.labels.get("standby").filter(|other| *other != name)?;
        let after = &track.points[track.points.partition_point(|point| point.at <= last.at)..];
        let next = after.first()?;
        let same = after.iter().any(|point| point.value == last.value);
        let younger = || began(window, primary, next.value) >= began(window, primary, last.value);
        let new = after.len() == track.points.len() && next.at.seconds_since(last.at) <= RENAMED_S;
        let alike = || is_logical(window, primary, other) == is_logical(window, primary, name);
        Some(same || (place(other) == place(name) && younger()) || (new && alike()))
    };
    window.tracks(cat::PG_REPL_PID.name, &[("target", primary)]).any(|track| is_it(track) == Some(true))
}

/// When a walsender was first read, under whichever name.
fn began(window: &Window, primary: &str, pid: f64) -> Option<Moment> {
    let first = |track: Track<'_>| track.points.iter().find(|point| point.value == pid).map(|point| point.at);
    window.tracks(cat::PG_REPL_PID.name, &[("target", primary)]).filter_map(first).min()
}

/// A name without the walsender's process: application and address, or the slot.
fn place(name: &str) -> &str {
    let numbered = name.rsplit_once('#').filter(|(_, pid)| pid.bytes().all(|byte| byte.is_ascii_digit()));
    numbered.map_or(name, |(place, _)| place)
}
