//! How long until WAL that a standby needs may be removed, and until it is.
//!
//! The earliest moment follows from what is kept for the standby, what it still needs, and how fast the two grow apart, counted
//! in whole segments, as the server does: the segment in which the standby reads goes once the head enters the one that is
//! so many further on. Nothing is removed then, though, but at the end of the first checkpoint that finds what the standby needs by
//! then no longer kept, and whose redo position has passed that (PostgreSQL `KeepLogSeg`, `RemoveOldXlogFiles`,
//! `InvalidateObsoleteReplicationSlots`).

use super::archive::{Archive, Archiving, archiving, fails};
use super::checkpoints::{CHECKPOINT_UNSURE_S, Checkpoints, segment};
use super::keeping::{Keeping, Limit, keep_bytes};
use super::unread::{HOLE_S, View, unread_between};
use super::volume::Kept;
use super::{head_series, standby_row, target_at};
use backwater_model::{Moment, Point, Span, Target, Track, Window, catalogue as cat};
use serde::Serialize;

/// Rates are slopes of the straight line through the readings of so many seconds. (The mean between the first and the last
/// of them would be off by a whole lump, where WAL is made in lumps.)
const RATE_S: f64 = 20.0;
/// A shorter time since something began tells no rate.
const LEAST_RATE_S: f64 = 5.0;
/// Where a standby will read is known to so many seconds: WAL comes in lumps, and positions are read once a second. So many
/// steps of its way are taken to either side.
const UNSURE_S: f64 = 1.0;
const STEPS: f64 = 4.0;
/// Segments of the head that are looked at one by one; what lies further ahead needs no such care.
const MOST_SEGMENTS: u32 = 1_000;
/// An archiver is behind when more than the segment that is being written and the one before it wait for it.
const ARCHIVED_LATE: f64 = 2.0;

/// What keeps WAL for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// wal_keep_size, or wal_keep_segments up to 12.
    KeepSize,
    /// Its slot, up to max_slot_wal_keep_size.
    Slot,
    /// Whatever it is, it keeps until the disk is full, which stops the primary: a slot without a limit, an archive that lags, or a
    /// limit that is larger than the disk.
    Disk,
}

/// What is kept for one standby, and for how long it will be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Retention {
    /// What keeps it.
    pub holder: Holder,
    /// WAL from the oldest that the standby needs to the head, in bytes.
    pub level_bytes: f64,
    /// What that may grow to before some of it may be removed. For the disk: the WAL that it holds, of which others may need a part.
    pub limit_bytes: Option<f64>,
    /// WAL made, bytes a second.
    pub inflow_bytes_per_s: f64,
    /// WAL no longer needed, bytes a second; 0 while the standby is away.
    pub outflow_bytes_per_s: f64,
    /// Whether the standby is connected.
    pub connected: bool,
    /// Seconds until WAL that it needs may be removed (or the disk is full), at the present rates; none where it will not come to
    /// that.
    pub earliest_s: Option<f64>,
    /// Seconds until the checkpoint that will remove it, at the present rates; none where that cannot be told, or where nothing
    /// will be removed.
    pub removal_s: Option<f64>,
    /// From the start of one checkpoint to the next, in seconds, at the present rate: how far off `removal_s` may be.
    pub checkpoint_interval_s: Option<f64>,
}

impl Retention {
    /// Seconds until something is lost: WAL that the standby needs, or the primary, where its disk is full first. None where that
    /// cannot be told.
    pub fn end_s(&self) -> Option<f64> {
        if self.holder == Holder::Disk { self.earliest_s } else { self.removal_s }
    }
}

/// What stands where at one moment.
pub(super) struct Positions {
    pub(super) head: f64,
    pub(super) needed: f64,
    pub(super) inflow: f64,
    pub(super) outflow: f64,
    pub(super) connected: bool,
    pub(super) slot: bool,
    /// End of what is archived; none without an archive, and where it is not seen.
    pub(super) archived: Option<f64>,
    pub(super) archiving: Archiving,
}

impl Positions {
    pub(super) fn level(&self) -> f64 {
        (self.head - self.needed).max(0.0)
    }

    /// Whether what is needed is not archived yet.
    pub(super) fn unarchived(&self) -> bool {
        self.archived.is_some_and(|upto| upto < self.needed)
    }

    /// What keeps WAL while nothing but the volume ends it: the slot; the archive, of what it does not have; and of `least`, which a
    /// size keeps whoever has it, so much.
    fn kept(&self, size: f64, least: f64) -> Vec<Kept> {
        let slot = Kept { from: self.needed, speed: self.outflow, saved: true };
        let late = |upto: f64| self.head - upto >= ARCHIVED_LATE * size;
        let archive = self.archived.map(|upto| {
            // It is never done with the segment that is being written.
            let Archiving { bytes_per_s, of_next } =
                if late(upto) { self.archiving } else { Archiving { bytes_per_s: self.inflow, of_next: 0.0 } };
            Kept { from: upto + of_next, speed: bytes_per_s, saved: false }
        });
        let least = Kept { from: self.head - least, speed: self.inflow, saved: false };
        let slot = Some(slot).filter(|_| self.slot);
        [slot, archive, Some(least)].into_iter().flatten().collect()
    }
}

/// The retention of WAL for one standby (or slot) of a primary as it stood at a moment. None where the head of WAL or the
/// standby's position is unknown.
pub fn retention(window: &Window, primary: &str, standby: &str, at: Moment) -> Option<Retention> {
    retention_since(window, primary, standby, (window.from, at))
}

/// The same by the rates since a moment, before which others were: none where that is too short a time ago.
pub(crate) fn retention_since(
    window: &Window,
    primary: &str,
    standby: &str,
    (since, at): (Moment, Moment),
) -> Option<Retention> {
    let now = Now { since: since.max(at - Span::from_seconds(RATE_S)), at };
    let short = since > window.from && at.seconds_since(since) < LEAST_RATE_S;
    if short {
        return None;
    }
    let settings = target_at(window, primary, at);
    let settings = settings.as_ref();
    let size = segment(settings);
    let archive = Archive::of(window, settings, primary, at);
    let positions = positions(window, settings, primary, standby, now, archive)?;
    let keeping = Keeping::of(window, settings, primary, standby, positions.slot, archive);
    let Limit { holder, bytes: limit, volume } = keeping.limit(window, settings, &positions, at);
    let checkpoints = Checkpoints::of(window, primary, at, positions.inflow);
    let own = limit.filter(|_| holder != Holder::Disk);
    let places = own.map_or_else(Vec::new, |limit| places(&positions, limit, size));
    let earliest_s = match holder {
        Holder::Disk => volume.filter(|_| positions.inflow > 0.0).and_then(|volume| {
            let least = (keep_bytes(settings).unwrap_or(0.0) / size).floor() * size;
            let kept = positions.kept(size, least);
            // A size for which the volume is too small, with the segment that is being written, keeps all of it.
            let fills = kept.iter().any(|kept| kept.speed < positions.inflow) || least + size > volume.bytes;
            // An archive of which nothing is seen may keep what a slot lets go.
            let seen = archive != Archive::Unseen || positions.outflow == 0.0;
            let full = || volume.full_s((positions.head, positions.inflow), &kept, checkpoints, size);
            (fills && seen).then(full).flatten()
        }),
        _ => earliest(&places),
    };
    // Nothing is removed before it may be.
    let removal_s = checkpoints.and_then(|next| removal(&positions, &places, next, size));
    let removal_s = removal_s.map(|removal_s| removal_s.max(earliest_s.unwrap_or(0.0)));
    Some(Retention {
        holder,
        level_bytes: positions.level(),
        limit_bytes: limit,
        inflow_bytes_per_s: positions.inflow,
        outflow_bytes_per_s: positions.outflow,
        connected: positions.connected,
        earliest_s,
        removal_s,
        checkpoint_interval_s: checkpoints.map(|next| next.interval_s),
    })
}

/// A moment, and since when rates count for it.
#[derive(Clone, Copy)]
struct Now {
    since: Moment,
    at: Moment,
}

/// How fast a position moves: by least squares over the readings since it last began anew.
fn rate(track: Track<'_>, now: Now) -> Option<f64> {
    let recent = track.between(now.since, now.at);
    let anew = |pair: &[Point]| pair[0].epoch != pair[1].epoch || pair[1].value < pair[0].value;
    let begin = recent.points.windows(2).rposition(anew).map_or(0, |place| place + 1);
    let points = recent.points.get(begin..).unwrap_or_default();
    slope(points).or_else(|| recent.rate())
}

fn slope(points: &[Point]) -> Option<f64> {
    let (first, count) = (points.first()?, points.len() as f64);
    // Positions are large: only what lies between them is added up.
    let offset = |point: &Point| (point.true_at().seconds_since(first.true_at()), point.value - first.value);
    let (x, y) = points.iter().map(offset).fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x / count, sum.1 + y / count));
    let (xx, xy) = points
        .iter()
        .map(offset)
        .fold((0.0, 0.0), |sum, (at, value)| (sum.0 + (at - x) * (at - x), sum.1 + (at - x) * (value - y)));
    (xx > 0.0).then(|| (xy / xx).max(0.0))
}

/// Seconds until the level passes its limit; none where it does not grow. (Counting places would take sides: where the head
/// grows in lumps, a few of them were right two times in three.)
fn earliest(places: &[Place]) -> Option<f64> {
    between(places.iter().map(|place| place.lost_s))
}

/// Between the soonest and the latest of some times what is told is off by the same share whichever comes true: their harmonic
/// mean.
pub(super) fn between(times_s: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let (soonest, latest) = (times_s.clone().reduce(f64::min)?, times_s.reduce(f64::max)?);
    Some(if soonest > 0.0 { 2.0 / (1.0 / soonest + 1.0 / latest) } else { 0.0 })
}

/// Where the standby may read now, in how many segments from the one where it reads WAL is kept, and the seconds until what it
/// reads then is no longer kept.
struct Place {
    needed: f64,
    kept: f64,
    lost_s: f64,
}

/// Where segments decide and the standby is about to leave one just then, a moment tells which: so all is told from these places
/// where it may read, a second of its way sooner or later. Empty where the level does not grow.
fn places(positions: &Positions, limit: f64, size: f64) -> Vec<Place> {
    let room = limit - positions.level();
    let growth = positions.inflow - positions.outflow;
    if room > 0.0 && growth <= 0.0 {
        return Vec::new();
    }
    let kept = ((positions.needed + limit) / size).round() - (positions.needed / size).floor();
    let place = |step: u32| {
        let needed = positions.needed + UNSURE_S * positions.outflow * (f64::from(step) / STEPS - 1.0);
        let lost = || segment_lost(positions, needed, kept, size).unwrap_or(room / growth);
        Place { needed, kept, lost_s: if room > 0.0 { lost() } else { 0.0 } }
    };
    (0..=2 * STEPS as u32).map(place).collect()
}

/// Seconds until the head enters the first segment from which the one that is needed then is no longer kept, where so many are
/// and the standby reads at `needed` now; none where that lies far ahead.
fn segment_lost(positions: &Positions, needed: f64, kept: f64, size: f64) -> Option<f64> {
    let segment = |position: f64| (position / size).floor();
    let room = (segment(needed) + kept) * size - positions.head;
    // What is needed lies anywhere in its segment, now and then: the straight line is off by one of them at most.
    let soonest = ((room - size) / (positions.inflow - positions.outflow)).max(0.0);
    let next = segment(positions.head + positions.inflow * soonest).max(segment(positions.head) + 1.0);
    let enters = |ahead: u32| {
        let entered = next + f64::from(ahead);
        let at = (entered * size - positions.head).max(0.0) / positions.inflow;
        (entered >= segment(needed + positions.outflow * at) + kept).then_some(at)
    };
    (0..MOST_SEGMENTS).find_map(enters)
}

fn positions(
    window: &Window,
    settings: Option<&Target>,
    primary: &str,
    standby: &str,
    moment: Now,
    archive: Archive,
) -> Option<Positions> {
    let (size, at) = (segment(settings), moment.at);
    let head = window.track(head_series(window, primary), &[("target", primary)])?;
    let now = head.at(at, HOLE_S)?;
    let inflow = rate(head, moment)?;
    let slot = window.track(cat::PG_SLOT_RESTART.name, &[("target", primary), ("slot", standby)]);
    // Whoever has no slot is called by where it is.
    let may_be_slot = slot.is_some() || !standby.contains('@');
    let slot = slot.filter(|track| track.at(at, HOLE_S).is_some());
    // What a slot keeps that is not read is unknown: it was not dropped.
    let lately = (at - Span::from_seconds(HOLE_S), at);
    if may_be_slot && slot.is_none() && unread_between(window, primary, View::Slots, lately).is_some() {
        return None;
    }
    let sent = standby_row(window, &cat::PG_REPL_SENT, primary, standby);
    let connected = sent.is_some_and(|track| track.at(at, HOLE_S).is_some());
    let flushed = standby_row(window, &cat::PG_REPL_FLUSH, primary, standby);
    // A connected walsender reads where it sends; a standby that comes back begins at the segment in which it stopped.
    let reading = if connected { sent } else { flushed.or(sent) };
    let track = slot.or(reading)?;
    let last = track.between(window.from, at).points.last()?;
    if last.epoch != now.epoch {
        return None;
    }
    let needed = if connected || slot.is_some() { last.value } else { (last.value / size).floor() * size };
    let moving = connected.then(|| rate(track, moment)).flatten().unwrap_or(0.0);
    let archived = window.track(cat::PG_ARCHIVED_UPTO.name, &[("target", primary)]);
    let archived = archived.filter(|_| archive == Archive::Told);
    let nothing = (archive == Archive::Failing).then_some(0.0);
    let failed = window.track(cat::PG_ARCHIVE_FAILED.name, &[("target", primary)]);
    let archiving = |upto: Track<'_>| {
        // Before two segments followed one upon the other it is told by the rate alone.
        let by_rate = || Archiving { bytes_per_s: rate(upto, moment).unwrap_or(0.0), of_next: 0.0 };
        let fails = fails(upto, failed, at);
        if fails { Archiving::default() } else { archiving(upto, head, at, size).unwrap_or_else(by_rate) }
    };
    Some(Positions {
        head: now.value,
        needed,
        inflow,
        outflow: moving,
        connected,
        slot: slot.is_some(),
        archived: archived.and_then(|track| track.between(window.from, at).last()).or(nothing),
        archiving: archived.map(archiving).unwrap_or_default(),
    })
}

/// The completion of the first checkpoint that finds what is needed then no longer kept, and its own redo position past that. A
/// standby may have left the segment that was no longer kept by then, and have lost nothing yet. A checkpoint
/// that completes about when it does removes it, or comes a moment too early or too late and the next one does: so checkpoints
/// come sooner or later too, and between the soonest and the latest completion what is told is as far off whichever it is.
fn removal(positions: &Positions, places: &[Place], checkpoints: Checkpoints, size: f64) -> Option<f64> {
    let segment = |position: f64, speed: f64, after_s: f64| ((position + speed * after_s) / size).floor();
    let removed = |place: &Place, late_s: f64| {
        let removes = |(start, end): &(f64, f64)| {
            let end = (end + late_s).max(0.0);
            let needed = segment(place.needed, positions.outflow, end);
            let redo = segment(positions.head, positions.inflow, start + late_s);
            segment(positions.head, positions.inflow, end) >= needed + place.kept && redo > needed
        };
        checkpoints.coming().find(removes).map(|(_, end)| end)
    };
    let lates_s = [-CHECKPOINT_UNSURE_S, 0.0, CHECKPOINT_UNSURE_S];
    let all: Vec<f64> =
        places.iter().flat_map(|place| lates_s.map(|late_s| removed(place, late_s))).flatten().collect();
    let (soonest, latest) = (all.iter().copied().reduce(f64::min)?, all.iter().copied().reduce(f64::max)?);
    Some((soonest + latest) / 2.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::testing::points;
    use super::*;

    const SIZE: f64 = 16.0;

    fn at(head: f64, needed: f64) -> Positions {
        Positions {
            head,
            needed,
            inflow: 8.0,
            outflow: 3.0,
            connected: true,
            slot: false,
            archived: None,
            archiving: Archiving::default(),
        }
    }

    /// What comes, step by step: the head enters segments while the standby leaves its own.
    fn comes(positions: &Positions, segments: f64) -> f64 {
        let over = |step: &u32| {
            let at = f64::from(*step) * 1e-3;
            let (head, needed) = (positions.head + positions.inflow * at, positions.needed + positions.outflow * at);
            (head / SIZE).floor() > (needed / SIZE).floor() + segments
        };
        f64::from((0..).find(over).unwrap()) * 1e-3
    }

    #[test]
    fn segments_are_counted_as_the_server_counts_them() {
        // wal_keep_size of 13 segments; the standby reads anywhere in its own.
        for (head, needed) in [(100.0, 0.0), (100.0, 15.0), (107.0, 8.0), (130.0, 33.0), (130.0, 47.0), (175.0, 64.0)] {
            let positions = at(head, needed);
            let limit = ((needed / SIZE).floor() + 14.0) * SIZE - needed;
            let (told, truly) = (segment_lost(&positions, needed, 14.0, SIZE).unwrap(), comes(&positions, 13.0));
            assert!((told - truly).abs() < 0.01, "{head} {needed}: {told} for {truly}");
            // One segment of the head takes two seconds, and nothing is told that lies further off.
            let told = earliest(&places(&positions, limit, SIZE)).unwrap();
            assert!((told - truly).abs() < 2.0, "{head} {needed}: {told} for {truly}");
        }
    }

    #[test]
    fn what_does_not_grow_never_comes_and_what_is_past_has_come() {
        let even = Positions { outflow: 8.0, ..at(100.0, 0.0) };
        let told = |positions: &Positions, limit: f64| earliest(&places(positions, limit, SIZE));
        assert_eq!((told(&even, 224.0), told(&even, 99.0)), (None, Some(0.0)));
        // Far ahead the straight line is good enough.
        let slow = Positions { outflow: 8.0 - 1e-6, ..at(100.0, 0.0) };
        let (told, line) = (told(&slow, 224.0).unwrap(), 124.0 / 1e-6);
        assert!((told / line - 1.0).abs() < 0.2, "{told} for {line}");
    }

    #[test]
    fn between_two_segments_what_is_told_is_off_by_the_same_share_either_way() {
        let told = |lost_s: &[f64]| {
            earliest(&lost_s.iter().map(|lost_s| Place { needed: 0.0, kept: 1.0, lost_s: *lost_s }).collect::<Vec<_>>())
        };
        let between = told(&[10.0, 10.0, 10.0, 12.0]).unwrap();
        assert!(((between - 10.0) / 10.0 - (12.0 - between) / 12.0).abs() < 1e-9, "{between}");
        assert_eq!((told(&[7.0]), told(&[0.0, 2.0]), told(&[])), (Some(7.0), Some(0.0), None));
    }

    /// They complete after 3, 9, 15 s and so on.
    const EACH_6_S: Checkpoints = Checkpoints { interval_s: 6.0, duration_s: 5.0, next_s: -2.0 };

    /// What is told where the head stands at 100, the standby reads at `needed`, and so many segments are kept from there on.
    fn told(needed: f64, kept: f64) -> Option<f64> {
        let lost_s = segment_lost(&at(100.0, 0.0), needed, kept, SIZE).unwrap();
        removal(&at(100.0, 0.0), &[Place { needed, kept, lost_s }], EACH_6_S, SIZE)
    }

    #[test]
    fn between_two_checkpoints_what_is_told_is_as_far_from_either() {
        // No longer kept from 7.5, 9.5 and 11.5 s on: the second is too near to 9 s to be sure.
        assert_eq!((told(0.0, 9.0), told(12.0, 9.0), told(4.0, 10.0)), (Some(9.0), Some(12.0), Some(15.0)));
        assert_eq!(removal(&at(100.0, 0.0), &[], EACH_6_S, SIZE), None);
    }

    #[test]
    fn a_checkpoint_that_comes_well_after_the_loss_is_the_one() {
        // By the clock, every half an hour: no longer kept from 7.5 s on, and the one that runs completes in 20 s.
        let seldom = Checkpoints { interval_s: 1_800.0, duration_s: 1_620.0, next_s: -1_600.0 };
        let place = Place { needed: 0.0, kept: 9.0, lost_s: 7.5 };
        let before = Positions { outflow: 0.0, ..at(150.0, 0.0) };
        assert_eq!(
            removal(&before, &[place], Checkpoints { next_s: 0.0, duration_s: 20.0, ..seldom }, SIZE),
            Some(20.0)
        );
    }

    #[test]
    fn a_checkpoint_removes_nothing_that_the_standby_has_left_by_then() {
        // No longer kept from 7.5 s on, and left at 8.3: at 9 s nothing that it needs is removed, a second sooner it would be.
        assert_eq!(segment_lost(&at(100.0, 0.0), 7.0, 9.0, SIZE), Some(7.5));
        assert_eq!(told(7.0, 9.0), Some(12.0));
    }

    #[test]
    fn a_slot_an_archive_and_a_size_keep_wal_each_for_itself() {
        let archiving = Archiving { bytes_per_s: 3.2, of_next: 9.6 };
        let all = Positions { slot: true, archived: Some(32.0), archiving, ..at(200.0, 150.0) };
        let from = |positions: &Positions| -> Vec<(f64, f64, bool)> {
            positions.kept(SIZE, 64.0).iter().map(|kept| (kept.from, kept.speed, kept.saved)).collect()
        };
        assert_eq!(from(&all), [(150.0, 3.0, true), (41.6, 3.2, false), (136.0, 8.0, false)]);
        // An archiver waits for the segment that is being written; a standby without a slot keeps nothing.
        let done = Positions { slot: false, archived: Some(176.0), ..all };
        assert_eq!(from(&done), [(176.0, 8.0, false), (136.0, 8.0, false)]);
    }

    #[test]
    fn the_rate_of_lumps_is_that_of_the_line_through_them() {
        // A lump of 8 a second, looked at just before or just after it comes: the ends alone would tell 7.6 or 8.4.
        let seen = |late: f64| -> Vec<Point> {
            points((0..=20).map(|n| (f64::from(n), 1e13 + 8.0 * f64::from(n) + if n == 20 { late } else { 0.0 })))
        };
        for late in [-8.0, 8.0] {
            assert!((slope(&seen(late)).unwrap() / 8.0 - 1.0).abs() < 0.03, "{:?}", slope(&seen(late)));
        }
        assert_eq!((slope(&[]), slope(&points([(1.0, 0.0)]))), (None, None));
    }
}
