//! The queues of WAL on its way to standbys, as views over series. The levels are in bytes; how long what stands takes to leave
//! (`Queue::residence_s`) and until a limit is reached (`Queue::time_to_limit_s`) follow from them.

use super::checkpoints::{bytes, segment};
use super::{names, primaries, retention::keep_bytes, target};
use backwater_model::{QueueSpec, Source, Term, Track, Unit, Window, catalogue as cat};

/// A standby's word is good for so many seconds in a queue: it speaks at least every wal_receiver_status_interval, which is
/// 10 s unless set otherwise. A level made of older positions is unknown.
const WORD_S: f64 = 12.0;

type Label<'a> = (&'static str, &'a str);

fn term(name: &'static str, labels: &[Label<'_>], factor: f64) -> Term {
    (name, labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect(), factor)
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
    // Slots whose reader is not connected have no hops, but they keep WAL.
    for track in window.tracks(cat::PG_SLOT_RESTART.name, &[]).filter(|track| !track.points.is_empty()) {
        let labels = &track.series.labels;
        let Some((primary, slot)) = labels.get("target").zip(labels.get("slot")) else { continue };
        if list.iter().all(|queue| queue.name != format!("pg.wal.retained@{slot}")) {
            list.push(retained_queue(window, primary, slot));
        }
    }
    list
}

/// The hops of one standby that its primary counts.
pub fn standby_queues(target: &str, standby: &str) -> Vec<QueueSpec> {
    let own = [("target", target), ("standby", standby)];
    let hop = |name: &str, inflow: &'static str, head: bool, outflow: &'static str| {
        let from = if head { &own[..1] } else { &own[..] };
        let level = Source::Sum(vec![term(inflow, from, 1.0), term(outflow, &own, -1.0)]);
        QueueSpec {
            inflow: Source::series(inflow, from),
            outflow: Source::series(outflow, &own),
            level: Source::Fresh(Box::new(level), WORD_S),
            ..QueueSpec::new(format!("pg.wal.{name}@{standby}"), Unit::Bytes)
        }
    };
    vec![
        hop("send", cat::PG_WAL_FLUSH.name, true, cat::PG_REPL_SENT.name),
        hop("standby_write", cat::PG_REPL_SENT.name, false, cat::PG_REPL_WRITE.name),
        hop("standby_flush", cat::PG_REPL_WRITE.name, false, cat::PG_REPL_FLUSH.name),
        hop("standby_replay", cat::PG_REPL_FLUSH.name, false, cat::PG_REPL_REPLAY.name),
    ]
}

/// WAL that the primary keeps because a standby, or a slot, still needs it. The limit is what is kept: by the slot up to its
/// safe_wal_size, else max_slot_wal_keep_size, else the room on the disk; without a slot, by wal_keep_size.
pub fn retained_queue(window: &Window, primary: &str, standby: &str) -> QueueSpec {
    let (head, slot, row) =
        ([("target", primary)], [("target", primary), ("slot", standby)], [("target", primary), ("standby", standby)]);
    let has_slot = window.tracks(cat::PG_SLOT_RESTART.name, &slot).any(|track: Track<'_>| !track.points.is_empty());
    let needed = if has_slot { (cat::PG_SLOT_RESTART.name, &slot) } else { (cat::PG_REPL_SENT.name, &row) };
    let level = vec![term(cat::PG_WAL_INSERT.name, &head, 1.0), term(needed.0, needed.1, -1.0)];
    let and =
        |name: &'static str, labels: &[Label<'_>]| Source::Sum([level.clone(), vec![term(name, labels, 1.0)]].concat());
    let settings = target(window, primary);
    let settings = settings.as_ref();
    // In whole segments: the one in which the standby reads goes once the head is more than the kept ones past it.
    let size = segment(settings);
    let kept = |bytes: Option<f64>| bytes.map(|bytes| Source::Fixed((bytes / size).ceil() * size + size));
    let device = settings.and_then(|known| known.wal_device.as_deref().or(known.data_device.as_deref()));
    let limit = if has_slot {
        let most = kept(bytes(settings, "max_slot_wal_keep_size"));
        let free = device.map(|dev| and(cat::VOLUME_FREE.name, &[("dev", dev)]));
        Source::FirstOf([Some(and(cat::PG_SLOT_SAFE.name, &slot)), most, free].into_iter().flatten().collect())
    } else {
        kept(keep_bytes(settings)).unwrap_or_default()
    };
    QueueSpec {
        inflow: Source::series(cat::PG_WAL_INSERT.name, &head),
        outflow: Source::series(needed.0, needed.1),
        level: Source::Sum(level),
        hard_limit: limit,
        ..QueueSpec::new(format!("pg.wal.retained@{standby}"), Unit::Bytes)
    }
}
