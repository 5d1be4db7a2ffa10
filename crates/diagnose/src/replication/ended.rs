//! Rows of standbys that end although no standby is lost: its slot was dropped, or it goes on under another name.

use super::unread::{View, missed_s};
use super::{head_series, is_logical, names, standby_row};
use backwater_model::{Moment, Point, Sample, Track, Unseen, Window, catalogue as cat};

/// Slots are read as often as the server's own position: one that was not for so many seconds was dropped.
const DROPPED_S: f64 = 5.0;
/// A name that is read for the first time within so many seconds after another has ended, holes in the readings not counted, may be the
/// same standby's, which was restarted, or given a slot or another address.
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
    let last = slot.and_then(|track| track.points.last());
    last.and_then(|last| missed_s(window, primary, View::Slots, last.at)).is_some_and(|missed| missed >= DROPPED_S)
}

/// A row that is read after that of another name has ended.
struct Next {
    name: String,
    /// Its first walsender since then.
    pid: f64,
    /// Whether it has, or comes to have, the walsender of the row that has ended.
    same_process: bool,
    /// Seconds after the other had ended, where nobody had this name before.
    new_after_s: Option<f64>,
}

/// The last reading of a row's walsender.
fn last_of<'a>(window: &'a Window, primary: &str, name: &str) -> Option<&'a Point> {
    standby_row(window, &cat::PG_REPL_PID, primary, name).and_then(|track| track.points.last())
}

fn nexts(window: &Window, primary: &str, name: &str, last: &Point) -> Vec<Next> {
    let own = [("target", primary)];
    let head = window.track(head_series(window, primary), &own).map(|track| track.points).unwrap_or_default();
    let again = head.iter().find(|point| point.at > last.at).map_or(last.at, |point| point.at);
    let next = |track: Track<'_>| {
        let other = track.series.labels.get("standby").filter(|other| *other != name)?;
        let after = &track.points[track.points.partition_point(|point| point.at <= last.at)..];
        let first = after.first()?;
        let is_new = after.len() == track.points.len();
        Some(Next {
            name: other.to_owned(),
            pid: first.value,
            same_process: after.iter().any(|point| point.value == last.value),
            new_after_s: is_new.then(|| first.at.seconds_since(again)).filter(|seconds| *seconds <= RENAMED_S),
        })
    };
    window.tracks(cat::PG_REPL_PID.name, &own).filter_map(next).collect()
}

/// Whether a standby whose row has ended is read later under another name: with the same walsender, with a younger one of its
/// application and address (while the old one waits for its time-out, the two are told apart by their processes), or with a name
/// that nobody had before, whose reader is told to be the same.
fn goes_on(window: &Window, primary: &str, name: &str) -> bool {
    let Some(last) = last_of(window, primary, name) else { return false };
    let is_it = |next: Next| {
        let younger = || began(window, primary, next.pid) >= began(window, primary, last.value);
        let beside = || place(&next.name) == place(name) && younger();
        let renamed = || may_be(window, primary, name, &next) && same_reader(window, primary, name, &next);
        next.same_process || beside() || renamed()
    };
    nexts(window, primary, name, last).into_iter().any(is_it)
}

fn may_be(window: &Window, primary: &str, name: &str, next: &Next) -> bool {
    next.new_after_s.is_some() && is_logical(window, primary, &next.name) == is_logical(window, primary, name)
}

/// That a name was read for the first time soon after another's row had ended, and nothing tells whether it is the same standby's.
pub(crate) fn maybe_renamed(window: &Window, primary: &str, name: &str) -> Option<Unseen> {
    let nexts = nexts(window, primary, name, last_of(window, primary, name)?);
    let next = nexts.into_iter().find(|next| may_be(window, primary, name, next))?;
    Some(Unseen {
        what: format!("whether {}, which came soon after, is the same standby under another name", next.name),
        why: "addresses and application_names, as far as they are known, do not say so".to_owned(),
        remedy: Some("SELECT pid, application_name, client_addr, backend_start FROM pg_stat_replication;".to_owned()),
    })
}

/// Whether two names are told to be of one reader: by its address; or by its application_name, where that is its alone. Of the
/// many that one host may run both must agree.
fn same_reader(window: &Window, primary: &str, name: &str, next: &Next) -> bool {
    let lost = last_of(window, primary, name).and_then(|last| reader(window, primary, name, last.value));
    let Some((lost, new)) = lost.zip(reader(window, primary, &next.name, next.pid)) else { return false };
    let (application, address) = (lost.0 == new.0, lost.1 == new.1);
    let is_here = lost.1 == "local" || lost.1 == "::1" || lost.1.starts_with("127.");
    let shared = || {
        let others = names(window, primary).into_iter().filter(|other| other != name && *other != next.name);
        let with_it = |other: String| {
            let last = last_of(window, primary, &other)?;
            Some(reader(window, primary, &other, last.value)?.0 == lost.0)
        };
        others.filter_map(with_it).any(|with_it| with_it)
    };
    (address && (application || !is_here)) || (application && is_of_one(lost.0) && !shared())
}

/// Whether an application_name may tell one standby from another: unlike what every standby has, by PostgreSQL's default or by
/// Debian's cluster_name (`16/main`).
fn is_of_one(application: &str) -> bool {
    let release = application.split_once('/').map(|(release, _)| release);
    let is_debians = release.is_some_and(|release| release.bytes().all(|byte| byte.is_ascii_digit()));
    !application.is_empty() && application != "walreceiver" && !is_debians
}

/// The application_name and the address of who reads from a walsender, by a name that is made of them, else by samples of it.
fn reader<'a>(window: &'a Window, primary: &str, name: &'a str, pid: f64) -> Option<(&'a str, &'a str)> {
    let is_it = |sample: &&Sample| {
        let is_walsender = sample.backend_type.as_deref() == Some("walsender");
        is_walsender && f64::from(sample.pid) == pid && *sample.target == *primary
    };
    let told = |sample: &'a Sample| {
        let (application, address) = (sample.application.as_deref(), sample.client_addr.as_deref());
        let is_known = application.is_some() || address.is_some();
        is_known.then(|| (application.unwrap_or_default(), address.unwrap_or("local")))
    };
    // No slot has an @ in its name.
    place(name).rsplit_once('@').or_else(|| window.samples().iter().filter(is_it).find_map(told))
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
