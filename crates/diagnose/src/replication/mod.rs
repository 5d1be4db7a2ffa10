//! WAL on its way to each standby: its hops as levels over time, the stages that move it, and what keeps it from being
//! removed too early. The queues, reports, rules and advice all read these views, so that they cannot disagree.
//!
//! Levels are differences of positions at the time at which the standby's were true (`as_of`), for a standby tells its
//! positions when it likes: at most `wal_receiver_status_interval` (10 s) apart. The lag times that the server shows are not
//! used: they are of the last WAL acknowledged, and stand still while gigabytes wait (PostgreSQL `LagTrackerRead`,
//! walsender.c).

mod archive;
mod checkpoints;
mod ended;
mod hops;
mod keeping;
mod lag;
mod link;
mod path;
mod peer;
mod queues;
mod retention;
mod sync_waits;
pub(crate) mod synchronous;
mod tcp;
#[cfg(test)]
mod testing;
mod unread;
mod volume;

use crate::scene::Scene;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{EventKind, Meta, Moment, Path, Target, Track, Window};
use std::ops::Range;

pub use queues::{replication_queues, retained_queue, standby_queues};
pub use retention::{Holder, Retention, retention};

pub(crate) use checkpoints::{bytes as setting_bytes, seconds, segment};
pub(crate) use ended::{has_ended, last_read, maybe_renamed};
pub(crate) use hops::Hops;
pub(crate) use keeping::keep_bytes;
pub(crate) use lag::{Lag, Lags, lags};
pub(crate) use link::{CeilingKind, Link, links};
pub(crate) use path::{owners, walsender_activity};
pub(crate) use peer::{Activity, Doing, Peer, activity, candidates};
pub(crate) use retention::retention_since;
pub(crate) use sync_waits::SyncWaits;
pub(crate) use tcp::Tcp;
pub(crate) use unread::{HOLE_S, View, allowed_since, down_since, missed_s, unread, unread_between};
pub(crate) use volume::free_bytes;

/// One standby, as far as it is seen: from its primary, from itself, or both.
pub(crate) struct Standby {
    /// The primary's name as a target; none where only the standby itself is watched.
    pub(crate) primary: Option<String>,
    /// By what the primary knows it (slot, else application_name and address), else its own name as a target.
    pub(crate) name: String,
    /// Its own side.
    pub(crate) peer: Option<Peer>,
    /// Its hops.
    pub(crate) hops: Hops,
    /// The connection on the primary's side.
    pub(crate) tcp: Tcp,
}

impl Standby {
    /// Name of one of its queues.
    pub(crate) fn queue(&self, hop: &str) -> String {
        format!("pg.wal.{hop}@{}", self.name)
    }

    /// What its connection carries over a stretch, in bytes a second.
    pub(crate) fn carried(&self, range: &Range<usize>) -> Option<f64> {
        self.tcp.acked.mean(range).or_else(|| self.hops.sent_rate.mean(range))
    }
}

/// Names of all standbys of a target, in order.
pub(crate) fn names(window: &Window, target: &str) -> Vec<String> {
    let series = [cat::PG_REPL_SENT, cat::PG_REPL_FLUSH, cat::PG_REPL_REPLAY, cat::PG_REPL_PID, cat::PG_REPL_STREAMING];
    let mut names: Vec<String> = Vec::new();
    let own = [("target", target)];
    for def in series {
        let tracks = window.tracks(def.name, &own).filter(|track| !track.points.is_empty());
        names.extend(tracks.filter_map(|track| track.series.labels.get("standby").map(str::to_owned)));
    }
    names.sort();
    names.dedup();
    names
}

/// Every target that has standbys, by its series.
pub(crate) fn primaries(window: &Window) -> Vec<String> {
    let labelled = |name| window.tracks(name, &[]).filter(|track| !track.points.is_empty());
    let tracks = labelled(cat::PG_REPL_SENT.name).chain(labelled(cat::PG_REPL_FLUSH.name));
    let mut names: Vec<String> =
        tracks.filter_map(|track| track.series.labels.get("target").map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    names
}

/// All standbys of a window: those that a primary sees, then those that are watched themselves and match none of them.
pub(crate) fn standbys(scene: &Scene<'_>) -> Vec<Standby> {
    let window = scene.window;
    let mut list = Vec::new();
    let mut matched: Vec<String> = Vec::new();
    for primary in primaries(window) {
        for name in names(window, &primary) {
            let own = peer::of(window, &primary, &name);
            matched.extend(own.clone());
            list.push(view(scene, Some(primary.clone()), name, own));
        }
    }
    for own in peer::candidates(window) {
        if !matched.contains(&own) {
            list.push(view(scene, None, own.clone(), Some(own)));
        }
    }
    list
}

fn view(scene: &Scene<'_>, primary: Option<String>, name: String, own: Option<String>) -> Standby {
    let primary_name = primary.as_deref().unwrap_or_default();
    let hops = Hops::of(scene, primary_name, &name, own.as_deref());
    let tcp = Tcp::of(scene, primary_name, &name);
    let peer = own.map(|own| Peer::of(scene, own));
    Standby { primary, name, peer, hops, tcp }
}

/// A series of one standby as its primary tells it.
pub(crate) fn standby_row<'a>(window: &'a Window, def: &Def, primary: &str, standby: &str) -> Option<Track<'a>> {
    window.track(def.name, &[("target", primary), ("standby", standby)])
}

/// Whether a name is that of a logical slot: what reads from it has no copy of the server's files, and is no standby.
pub(crate) fn is_logical(window: &Window, primary: &str, slot: &str) -> bool {
    let told = window.track(cat::PG_SLOT_LOGICAL.name, &[("target", primary), ("slot", slot)]);
    told.and_then(Track::last) == Some(1.0)
}

/// What reads under a name, at the beginning of a sentence.
pub(crate) fn whose(window: &Window, primary: &str, name: &str) -> String {
    let what = if is_logical(window, primary, name) { "The reader of logical slot" } else { "Standby" };
    format!("{what} {name}")
}

/// The series that tells how far a server's WAL goes. A cascading standby makes none: what it has received is its head.
pub(crate) fn head_series(window: &Window, server: &str) -> &'static str {
    let told =
        |name: &'static str| window.track(name, &[("target", server)]).is_some_and(|track| !track.points.is_empty());
    let (made, received) = (cat::PG_WAL_INSERT.name, cat::PG_WAL_RECEIVE.name);
    if !told(made) && told(received) { received } else { made }
}

/// A target's own words about itself, its settings being those in force at a moment.
pub(crate) fn target_at(window: &Window, name: &str, at: Moment) -> Option<Target> {
    let mut meta = Meta { targets: vec![known(window, name)?.clone()], ..Meta::default() };
    window.events_of(EventKind::Setting).filter(|event| event.at <= at).for_each(|event| meta.note_setting(event));
    meta.targets.pop()
}

/// The same at the end of a window.
pub(crate) fn target(window: &Window, name: &str) -> Option<Target> {
    target_at(window, name, window.to)
}

/// A target as it was when the window began.
pub(crate) fn known<'a>(window: &'a Window, name: &str) -> Option<&'a Target> {
    window.meta.targets.iter().find(|target| target.name == name)
}

/// The queues and stages from a primary's WAL to one standby's replay over the last `over_s` seconds of a window, shares being
/// means over that time. `Path::binding` names the stage that holds the stream up.
pub fn replication_path(window: &Window, target: &str, standby: &str, over_s: f64) -> Path {
    let scene = Scene::of(window);
    let own = peer::of(window, target, standby);
    let view = view(&scene, Some(target.to_owned()), standby.to_owned(), own);
    let count = scene.grid.count;
    path::whole(&scene, &view, &(count.saturating_sub(over_s.ceil().max(1.0) as usize)..count))
}

/// Names of a target's standbys, as its queues are labelled.
pub fn standby_names(window: &Window, target: &str) -> Vec<String> {
    names(window, target)
}
