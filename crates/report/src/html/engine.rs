//! Charts of a MongoDB server and its engine, one below the other: latency, dirty pages, threads that wait, lag, slow operations.
//! The data's disk stands on the same axis, with the other devices.

use super::document::CurveRole::{HardLimit, Line};
use super::panels::{kept, labels};
use super::shelf::Shelf;
use super::sources::{gauge, level, quotient, rate};
use backwater_model::catalogue as cat;
use backwater_model::{Source, Track, Unit};

/// The charts of every server with an engine.
pub(super) fn engines(shelf: &mut Shelf<'_>) {
    for target in labels(shelf, &cat::WT_CACHE_DIRTY, "target") {
        engine(shelf, &target);
    }
}

fn engine(shelf: &mut Shelf<'_>, target: &str) {
    let (window, axis) = (shelf.window, shelf.axis);
    let (of, group) = ([("target", target)], format!("Engine of {target}"));
    let latency = ["reads", "writes", "commands"].map(|op| {
        let track = |def: &cat::Def| window.track(def.name, &[("target", target), ("op", op)]);
        let lane = quotient(track(&cat::MONGO_LATENCY), track(&cat::MONGO_OPS), &axis, 1e-3);
        (shelf.keep(op, Unit::Milliseconds, lane), Line)
    });
    shelf.chart(&group, &format!("Mean latency of {target}"), Unit::Milliseconds, &latency);
    let dirty = kept(shelf, "dirty", &cat::WT_CACHE_DIRTY, &of);
    let updates = kept(shelf, "updates", &cat::WT_CACHE_UPDATES, &of);
    let used = kept(shelf, "used", &cat::WT_CACHE_USED, &of);
    let max = kept(shelf, "size", &cat::WT_CACHE_MAX, &of);
    shelf.chart(&group, &format!("Dirty pages of {target}"), Unit::Bytes, &[(dirty, Line), (updates, Line)]);
    shelf.chart(&group, &format!("Cache of {target}"), Unit::Bytes, &[(used, Line), (max, HardLimit)]);
    // As the engine's own targets and triggers are told.
    let dirty = Source::series(cat::WT_CACHE_DIRTY.name, &of);
    let whole = Source::series(cat::WT_CACHE_MAX.name, &of);
    let share = gauge(&Source::Share(Box::new([Source::Fixed(1.0), dirty, whole])), window, &axis);
    let share = shelf.keep("of the cache", Unit::Ratio, share);
    shelf.chart(&group, &format!("Dirty share of {target}"), Unit::Ratio, &[(share, Line)]);
    let threads = |def: &cat::Def| Source::Sum(vec![(def.name, vec![("target", target.to_owned())], 1e-6)]);
    let waiting = rate(&threads(&cat::WT_APP_WAIT_US), window, &axis);
    let waiting = shelf.keep("wait for room in the cache", Unit::Count, waiting);
    let evicting = rate(&threads(&cat::WT_APP_EVICT_US), window, &axis);
    let evicting = shelf.keep("evict themselves", Unit::Count, evicting);
    let curves = [(waiting, Line), (evicting, Line)];
    shelf.chart(&group, &format!("Application threads of {target}"), Unit::Count, &curves);
    let one = |def: &cat::Def, factor: f64| (def.name, vec![("target", target.to_owned())], factor);
    // A recorder that does not ask for the oplog's ends still knows the member's own newest entry.
    let is_self = |track: &Track<'_>| track.last() == Some(1.0);
    let members = window.tracks(cat::MONGO_MEMBER_SELF.name, &of).filter(is_self);
    let itself = members.filter_map(|track| track.series.labels.get("member").map(str::to_owned)).next();
    let newest = match itself {
        Some(member) => (cat::MONGO_MEMBER_OPTIME.name, vec![("target", target.to_owned()), ("member", member)], 1.0),
        None => one(&cat::MONGO_OPLOG_LAST, 1.0),
    };
    let behind = Source::Sum(vec![newest, one(&cat::MONGO_COMMITTED, -1.0)]);
    let behind = shelf.keep("behind the primary", Unit::Seconds, level(&behind, window, &axis));
    shelf.chart(&group, &format!("Majority of {target}"), Unit::Seconds, &[(behind, Line)]);
    let slow = kept(shelf, "in the log", &cat::MONGO_SLOW_OPS, &of);
    shelf.chart(&group, &format!("Slow operations of {target}"), Unit::PerSecond, &[(slow, Line)]);
}
