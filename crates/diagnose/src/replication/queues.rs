//! The queues of WAL on its way to standbys, as views over series. The levels are in bytes; how long what stands takes to leave
//! (`Queue::residence_s`) and until a limit is reached (`Queue::time_to_limit_s`) follow from them.

use super::archive::Archive;
use super::{head_series, keeping::Keeping, names, peer, primaries, target};
use crate::rules::named_in_log;
use backwater_model::{QueueSpec, Source, Term, Track, Unit, Window, catalogue as cat};

/// A standby's word is good for so many seconds in a queue: it speaks at least every wal_receiver_status_interval, which is
/// 10 s unless set otherwise. A level made of older positions is unknown.
pub(super) const WORD_S: f64 = 12.0;

type Label<'a> = (&'static str, &'a str);

pub(super) fn term(name: &'static str, labels: &[Label<'_>], factor: f64) -> Term {
    (name, labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect(), factor)
}

/// Whether two are one queue: two primaries may have slots of one name.
fn same(one: &QueueSpec, other: &QueueSpec) -> bool {
    one.name == other.name && one.server() == other.server()
}

/// The queues of every standby and every slot that a window knows of.
pub fn replication_queues(window: &Window) -> Vec<QueueSpec> {
    let mut list = Vec::new();
    for primary in primaries(window) {
        for standby in names(window, &primary) {
            list.extend(standby_queues(&primary, &standby));
            list.push(retained_queue(window, &primary, &standby));
        }
    }
    // Slots whose reader is not connected have no hops, but they keep WAL; one that is lost has no position either.
    let of_slot = [cat::PG_SLOT_RESTART, cat::PG_SLOT_ACTIVE, cat::PG_SLOT_LOST];
    let tracks = of_slot.iter().flat_map(|def| window.tracks(def.name, &[]));
    for track in tracks.filter(|track| !track.points.is_empty()) {
        let labels = &track.series.labels;
        let Some((primary, slot)) = labels.get("target").zip(labels.get("slot")) else { continue };
        let queue = retained_queue(window, primary, slot);
        if list.iter().all(|known| !same(known, &queue)) {
            list.push(queue);
        }
    }
    list.extend(watched_alone(window).iter().flat_map(|own| own_queues(own)));
    for (primary, name) in named_in_log(window) {
        let queue = QueueSpec {
            inflow: Source::series(cat::PG_WAL_INSERT.name, &[("target", &primary)]),
            ..QueueSpec::new(format!("pg.wal.retained@{name}"), Unit::Bytes)
        };
        // A server that is named itself is nobody's slot: its primary's queue for it is the same.
        let known = |known: &QueueSpec| same(known, &queue) || (name == primary && known.name == queue.name);
        if !list.iter().any(known) {
            list.push(queue);
        }
    }
    list
}

/// Standbys that are watched themselves and that no primary tells of: its primary is not watched, or it is away.
fn watched_alone(window: &Window) -> Vec<String> {
    let told = |primary: &String| {
        let names = names(window, primary).into_iter();
        names.filter_map(|name| peer::of(window, primary, &name)).collect::<Vec<_>>()
    };
    let matched: Vec<String> = primaries(window).iter().flat_map(told).collect();
    peer::candidates(window).into_iter().filter(|own| !matched.contains(own)).collect()
}

/// What a standby tells of itself, and how far it is behind what its upstream last told it. Another server that is watched may be
/// anybody's primary.
fn own_queues(own: &str) -> Vec<QueueSpec> {
    let of = [("target", own)];
    let hop = |name: &str, more: &'static str, less: &'static str| QueueSpec {
        inflow: Source::series(more, &of),
        outflow: Source::series(less, &of),
        level: Source::difference(more, less, &of),
        ..QueueSpec::new(format!("pg.wal.{name}@{own}"), Unit::Bytes)
    };
    vec![
        hop("standby_write", cat::PG_RECEIVER_LATEST_END.name, cat::PG_RECEIVER_WRITTEN.name),
        hop("standby_flush", cat::PG_RECEIVER_WRITTEN.name, cat::PG_WAL_RECEIVE.name),
        hop("standby_replay", cat::PG_WAL_RECEIVE.name, cat::PG_WAL_REPLAY.name),
        hop("retained", cat::PG_RECEIVER_LATEST_END.name, cat::PG_WAL_RECEIVE.name),
    ]
}

/// The hops of one standby that its primary counts.
pub fn standby_queues(target: &str, standby: &str) -> Vec<QueueSpec> {
    let own = [("target", target), ("standby", standby)];
    let hop = |name: &str, inflow: &[&'static str], head: bool, outflow: &'static str| {
        let from = if head { &own[..1] } else { &own[..] };
        let level = |inflow: &&'static str| Source::Sum(vec![term(inflow, from, 1.0), term(outflow, &own, -1.0)]);
        let first = |each: &dyn Fn(&&'static str) -> Source| Source::FirstOf(inflow.iter().map(each).collect());
        QueueSpec {
            inflow: first(&|inflow| Source::series(inflow, from)),
            outflow: Source::series(outflow, &own),
            level: Source::Fresh(Box::new(first(&level)), WORD_S),
            ..QueueSpec::new(format!("pg.wal.{name}@{standby}"), Unit::Bytes)
        }
    };
    vec![
        // A cascading standby has no WAL of its own making: what it has received is its head.
        hop("send", &[cat::PG_WAL_FLUSH.name, cat::PG_WAL_RECEIVE.name], true, cat::PG_REPL_SENT.name),
        hop("standby_write", &[cat::PG_REPL_SENT.name], false, cat::PG_REPL_WRITE.name),
        hop("standby_flush", &[cat::PG_REPL_WRITE.name], false, cat::PG_REPL_FLUSH.name),
        hop("standby_replay", &[cat::PG_REPL_FLUSH.name], false, cat::PG_REPL_REPLAY.name),
    ]
}

/// WAL that the primary keeps because a standby, or a slot, still needs it. The limit is what is kept, or what the volume
/// holds, whichever is less.
pub fn retained_queue(window: &Window, primary: &str, standby: &str) -> QueueSpec {
    let (head, slot, row) =
        ([("target", primary)], [("target", primary), ("slot", standby)], [("target", primary), ("standby", standby)]);
    let has_slot = window.tracks(cat::PG_SLOT_RESTART.name, &slot).any(|track: Track<'_>| !track.points.is_empty());
    let needed = if has_slot { (cat::PG_SLOT_RESTART.name, &slot) } else { (cat::PG_REPL_SENT.name, &row) };
    let made = head_series(window, primary);
    let level = vec![term(made, &head, 1.0), term(needed.0, needed.1, -1.0)];
    let settings = target(window, primary);
    let archive = Archive::of(window, settings.as_ref(), primary, window.to);
    let keeping = Keeping::of(window, settings.as_ref(), primary, standby, has_slot, archive);
    let limit = keeping.source(&level, &term(needed.0, needed.1, 1.0));
    QueueSpec {
        inflow: Source::series(made, &head),
        outflow: Source::series(needed.0, needed.1),
        level: Source::Sum(level),
        hard_limit: limit,
        ..QueueSpec::new(format!("pg.wal.retained@{standby}"), Unit::Bytes)
    }
}
