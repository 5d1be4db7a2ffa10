//! How long until WAL that a standby needs may be removed, and until it is.
//!
//! The earliest moment follows from what is kept for the standby, what it still needs, and how fast the two grow apart. Nothing is
//! removed then, though, but at the end of the next checkpoint whose redo position has passed what the standby needs
//! (PostgreSQL `KeepLogSeg`, `RemoveOldXlogFiles`, `InvalidateObsoleteReplicationSlots`).

use super::checkpoints::{Checkpoints, bytes, segment};
use super::{standby_row, target_at};
use backwater_model::{Moment, Span, Target, Track, Window, catalogue as cat};
use serde::Serialize;

/// Rates are means over so many seconds.
const RATE_S: f64 = 20.0;
/// A row this old is no longer there: the standby has gone.
const GONE_S: f64 = 3.0;

/// What keeps WAL for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// wal_keep_size, or wal_keep_segments up to 12.
    KeepSize,
    /// Its slot, up to max_slot_wal_keep_size.
    Slot,
    /// Its slot without a limit, or an archive that lags: until the disk is full, which stops the primary.
    Disk,
}

/// What is kept for one standby, and for how long it will be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Retention {
    /// What keeps it.
    pub holder: Holder,
    /// WAL from the oldest that the standby needs to the head, in bytes.
    pub level_bytes: f64,
    /// What that may grow to before some of it may be removed (or, for the disk, before it is full).
    pub limit_bytes: Option<f64>,
    /// WAL made, bytes a second.
    pub inflow_bytes_per_s: f64,
    /// WAL no longer needed, bytes a second; 0 while the standby is away.
    pub outflow_bytes_per_s: f64,
    /// Whether the standby is connected.
    pub connected: bool,
    /// Seconds until WAL that it needs may be removed, at the present rates; none where it will not come to that.
    pub earliest_s: Option<f64>,
    /// Seconds until the checkpoint that will remove it, at the present rates; none where that cannot be told.
    pub removal_s: Option<f64>,
    /// From the start of one checkpoint to the next, in seconds, at the present rate: how far off `removal_s` may be.
    pub checkpoint_interval_s: Option<f64>,
}

/// What stands where at one moment.
struct Positions {
    head: f64,
    needed: f64,
    inflow: f64,
    outflow: f64,
    connected: bool,
    slot: bool,
}

/// The retention of WAL for one standby (or slot) of a primary as it stood at a moment. None where the head of WAL or the
/// standby's position is unknown.
pub fn retention(window: &Window, primary: &str, standby: &str, at: Moment) -> Option<Retention> {
    let settings = target_at(window, primary, at);
    let settings = settings.as_ref();
    let positions = positions(window, primary, standby, at, segment(settings))?;
    let (holder, limit) = limit(window, settings, &positions, primary, standby, at);
    let level = (positions.head - positions.needed).max(0.0);
    let growth = positions.inflow - positions.outflow;
    let earliest_s = limit.and_then(|limit| match limit - level {
        room if room <= 0.0 => Some(0.0),
        room => (growth > 0.0).then(|| room / growth),
    });
    let checkpoints = Checkpoints::of(window, primary, at, positions.inflow);
    let removal_s = match holder {
        Holder::Disk => earliest_s,
        _ => earliest_s
            .zip(checkpoints)
            .and_then(|(earliest, next)| removal(&positions, earliest, next, segment(settings))),
    };
    Some(Retention {
        holder,
        level_bytes: level,
        limit_bytes: limit,
        inflow_bytes_per_s: positions.inflow,
        outflow_bytes_per_s: positions.outflow,
        connected: positions.connected,
        earliest_s,
        removal_s,
        checkpoint_interval_s: checkpoints.map(|next| next.interval_s),
    })
}

fn rate(track: Track<'_>, at: Moment) -> Option<f64> {
    track.between(at - Span::from_seconds(RATE_S), at).rate()
}

fn positions(window: &Window, primary: &str, standby: &str, at: Moment, size: f64) -> Option<Positions> {
    let head = window.track(cat::PG_WAL_INSERT.name, &[("target", primary)])?;
    let now = head.at(at, GONE_S)?;
    let inflow = rate(head, at)?;
    let slot = window.track(cat::PG_SLOT_RESTART.name, &[("target", primary), ("slot", standby)]);
    let slot = slot.filter(|track| track.at(at, GONE_S).is_some());
    let sent = standby_row(window, &cat::PG_REPL_SENT, primary, standby);
    let connected = sent.is_some_and(|track| track.at(at, GONE_S).is_some());
    let flushed = standby_row(window, &cat::PG_REPL_FLUSH, primary, standby);
    // A connected walsender reads where it sends; a standby that comes back begins at the segment in which it stopped.
    let reading = if connected { sent } else { flushed.or(sent) };
    let track = slot.or(reading)?;
    let last = track.between(window.from, at).points.last()?;
    if last.epoch != now.epoch {
        return None;
    }
    let needed = if connected || slot.is_some() { last.value } else { (last.value / size).floor() * size };
    let moving = connected.then(|| rate(track, at)).flatten().unwrap_or(0.0);
    Some(Positions { head: now.value, needed, inflow, outflow: moving, connected, slot: slot.is_some() })
}

/// What keeps WAL for the standby, and how far the level may grow.
fn limit(
    window: &Window,
    settings: Option<&Target>,
    positions: &Positions,
    primary: &str,
    slot: &str,
    at: Moment,
) -> (Holder, Option<f64>) {
    let size = segment(settings);
    let level = positions.head - positions.needed;
    // The segment in which the standby reads goes once the head is more than the kept segments past it.
    let kept = |keep: f64| {
        let segments = (keep / size).ceil();
        ((positions.needed / size).floor() + segments + 1.0) * size - positions.needed
    };
    let disk = || (Holder::Disk, free(window, settings, at).map(|free| level + free));
    if positions.slot {
        let safe = window.track(cat::PG_SLOT_SAFE.name, &[("target", primary), ("slot", slot)]);
        if let Some(safe) = safe.and_then(|track| track.at(at, GONE_S)) {
            return (Holder::Slot, Some(level + safe.value));
        }
        return match bytes(settings, "max_slot_wal_keep_size") {
            Some(most) => (Holder::Slot, Some(kept(most.max(keep_bytes(settings).unwrap_or(0.0))))),
            None => disk(),
        };
    }
    if archive_holds(window, settings, primary, positions.needed, at) {
        return disk();
    }
    (Holder::KeepSize, keep_bytes(settings).map(kept))
}

/// wal_keep_size, or wal_keep_segments of 12 in bytes.
pub(crate) fn keep_bytes(settings: Option<&Target>) -> Option<f64> {
    let segments = || settings?.settings.get("wal_keep_segments")?.trim().parse::<f64>().ok();
    bytes(settings, "wal_keep_size").or_else(|| segments().map(|count| count * segment(settings)))
}

/// WAL that is not archived yet is kept, whatever else.
fn archive_holds(window: &Window, settings: Option<&Target>, primary: &str, needed: f64, at: Moment) -> bool {
    let on = settings.and_then(|target| target.settings.get("archive_mode")).is_some_and(|mode| mode != "off");
    let upto = window.track(cat::PG_ARCHIVED_UPTO.name, &[("target", primary)]);
    let upto = upto.and_then(|track| track.between(window.from, at).points.last().copied());
    on && upto.is_some_and(|upto| upto.value < needed)
}

/// Free space of the device on which WAL lies.
pub(crate) fn free(window: &Window, settings: Option<&Target>, at: Moment) -> Option<f64> {
    let target = settings?;
    let dev = target.wal_device.as_ref().or(target.data_device.as_ref())?;
    window.track(cat::VOLUME_FREE.name, &[("dev", dev)])?.at(at, 30.0).map(|point| point.value)
}

/// The completion of the first checkpoint, at or after the earliest moment, whose redo position lies past what is needed.
fn removal(positions: &Positions, earliest_s: f64, checkpoints: Checkpoints, size: f64) -> Option<f64> {
    let removes = |(start, end): &(f64, f64)| {
        let redo = positions.head + positions.inflow * start;
        let needed = positions.needed + positions.outflow * end.max(0.0);
        *end >= earliest_s && (redo / size).floor() > (needed / size).floor()
    };
    checkpoints.coming().find(removes).map(|(_, end)| end)
}
