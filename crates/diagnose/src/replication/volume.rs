//! When a primary's volume is full of WAL.
//!
//! Space is taken a whole segment at a time, before anything is in it, and segments that a checkpoint made ahead have theirs
//! already. So how much WAL a volume holds follows from what was allocated and what was free at one moment, however long ago
//! that was. What nobody needs any more leaves its space at the end of a checkpoint, never in between.

use super::checkpoints::{CHECKPOINT_UNSURE_S, Checkpoints, segment};
use super::head_series;
use super::retention::{Positions, between};
use super::unread::HOLE_S;
use backwater_model::{Moment, Point, Span, Target, Track, Window, catalogue as cat};

/// What is told of a volume is good for so many seconds.
const FREE_S: f64 = 30.0;
/// How much sooner or later than told a checkpoint may complete that is paced over minutes, as a share of the time from one to
/// the next.
const UNSURE_SHARE: f64 = 0.05;

/// Free space of the device on which WAL lies.
pub(crate) fn free_bytes(window: &Window, settings: Option<&Target>, at: Moment) -> Option<f64> {
    Some(free(window, settings)?.at(at, FREE_S)?.value)
}

fn free<'a>(window: &'a Window, settings: Option<&Target>) -> Option<Track<'a>> {
    let target = settings?;
    let dev = target.wal_device.as_ref().or(target.data_device.as_ref())?;
    window.track(cat::VOLUME_FREE.name, &[("dev", dev)])
}

/// A position from which on WAL is kept, in bytes, and how fast it moves, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) from: f64,
    pub(super) speed: f64,
    /// Whether a checkpoint lets go of what lay before it when it began, instead of when it completes: what a slot needs counts
    /// as it was saved then (`last_saved_restart_lsn`, in releases since the middle of 2025; those before removed more).
    pub(super) saved: bool,
}

impl Kept {
    /// From where on a checkpoint keeps WAL that begins and completes after so many seconds.
    fn by(self, start_s: f64, end_s: f64) -> f64 {
        self.from + self.speed * if self.saved { start_s } else { end_s }
    }
}

/// The volume on which a primary's WAL lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Volume {
    /// WAL that it holds, in bytes, from the begin of the oldest segment to the end of what there is room for.
    pub(super) bytes: f64,
    /// Begin of the oldest segment on it.
    oldest: f64,
}

impl Volume {
    /// As it was last read. None where its free space, or the head of WAL at that time, is unknown. Where it is not told what is
    /// on it, that is what the standby needs.
    pub(super) fn of(
        window: &Window,
        settings: Option<&Target>,
        primary: &str,
        positions: &Positions,
        at: Moment,
    ) -> Option<Volume> {
        let read = Read { window, settings, primary, positions, at };
        let free = free(window, settings)?.between(at - Span::from_seconds(FREE_S), at).points;
        // What was removed between a look at the files and one at the volume would be counted as there and as free.
        let steady =
            free.iter().rev().filter(|free| read.nothing_was_removed(free.at)).find_map(|free| read.holds(free));
        let bytes = steady.or_else(|| free.iter().rev().find_map(|free| read.holds(free)))?;
        Some(Volume { bytes, oldest: read.oldest(at)? })
    }

    /// Seconds until the head of WAL, which makes so many bytes a second, finds no room. A checkpoint that completes about then
    /// makes some, or comes too late: what is told lies between.
    pub(super) fn full_s(
        self,
        (head, inflow): (f64, f64),
        kept: &[Kept],
        checkpoints: Option<Checkpoints>,
        size: f64,
    ) -> Option<f64> {
        let Some(checkpoints) = checkpoints else { return self.full_in_the_end_s((head, inflow), kept, size) };
        let room_s = |oldest: f64| (oldest + self.bytes - head).max(0.0) / inflow;
        let full_s = |late_s: f64| {
            let mut oldest = self.oldest;
            for (start, end) in checkpoints.coming().map(|(start, end)| (start + late_s, (end + late_s).max(0.0))) {
                if room_s(oldest) <= end {
                    return Some(room_s(oldest));
                }
                let upto = kept.iter().map(|kept| kept.by(start, end)).fold(head + inflow * start, f64::min);
                oldest = oldest.max((upto / size).floor() * size);
            }
            self.full_in_the_end_s((head, inflow), kept, size)
        };
        let late_s = CHECKPOINT_UNSURE_S.max(UNSURE_SHARE * checkpoints.interval_s);
        let told: Vec<f64> = [-late_s, 0.0, late_s].into_iter().filter_map(full_s).collect();
        between(told.into_iter())
    }

    /// By rates alone, as if whole segments left as soon as they are let go.
    fn full_in_the_end_s(self, (head, inflow): (f64, f64), kept: &[Kept], size: f64) -> Option<f64> {
        let as_it_is_s = (self.oldest + self.bytes - head).max(0.0) / inflow;
        let full = |kept: &Kept| {
            let from = kept.from - size;
            if from + kept.speed * as_it_is_s <= self.oldest {
                return Some(as_it_is_s);
            }
            let room = self.bytes - (head - from);
            (inflow > kept.speed).then(|| (room / (inflow - kept.speed)).max(0.0))
        };
        kept.iter().filter_map(full).reduce(f64::min)
    }
}

/// What a volume is read from.
struct Read<'a> {
    window: &'a Window,
    settings: Option<&'a Target>,
    primary: &'a str,
    positions: &'a Positions,
    at: Moment,
}

impl<'a> Read<'a> {
    fn track(&self, name: &str) -> Option<Track<'a>> {
        self.window.track(name, &[("target", self.primary)])
    }

    /// Begin of the oldest segment at a moment.
    fn oldest(&self, at: Moment) -> Option<f64> {
        let told = self.track(cat::PG_WAL_OLDEST_KEPT.name).filter(|track| !track.points.is_empty());
        let needed = || self.positions.needed - self.positions.outflow * self.at.seconds_since(at);
        told.map_or_else(|| Some(needed()), |track| Some(track.at(at, FREE_S)?.value))
    }

    /// Whether the looks at the files before and after a moment saw the same oldest one.
    fn nothing_was_removed(&self, at: Moment) -> bool {
        let Some(track) = self.track(cat::PG_WAL_OLDEST_KEPT.name) else { return true };
        let after = track.between(at, self.at).points.first();
        after.zip(self.oldest(at)).is_some_and(|(after, before)| after.value <= before)
    }

    /// WAL that the volume holds, by its free space as it was read once.
    fn holds(&self, free: &Point) -> Option<f64> {
        let head = self.track(head_series(self.window, self.primary))?.at(free.at, HOLE_S)?;
        let head = head.value + self.positions.inflow * free.at.seconds_since(head.at);
        let (head, oldest) = (head.min(self.positions.head), self.oldest(free.at)?);
        let off =
            |name: &str| self.settings.is_some_and(|known| known.settings.get(name).is_some_and(|it| it == "off"));
        // Files that are neither filled with zeros nor used again take their space as they are written.
        if off("wal_init_zero") && off("wal_recycle") {
            return Some(head - oldest + free.value);
        }
        let size = segment(self.settings);
        let entered = ((head / size).floor() + 1.0) * size;
        let files = self.track(cat::PG_WAL_DIR.name).and_then(|track| track.at(free.at, FREE_S));
        let allocated = files.map_or(entered, |files| entered.max(oldest + files.value));
        Some(allocated - oldest + (free.value / size).floor() * size)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::archive::Archiving;
    use super::super::testing::points;
    use super::*;
    use backwater_model::{Meta, Series};
    use std::sync::Arc;

    const SEGMENT: f64 = 16_777_216.0;

    /// Of a series that was read at these seconds; values in segments.
    fn read(series: Series, values: &[(f64, f64)]) -> (Arc<Series>, Vec<Point>) {
        (Arc::new(series), points(values.iter().map(|(second, value)| (*second, value * SEGMENT))))
    }

    /// What a volume holds, and where that begins, as seen at a second, in segments.
    fn seen(second: f64, zero: &str, more: &[(Arc<Series>, Vec<Point>)]) -> (f64, f64) {
        let free = read(cat::VOLUME_FREE.series(&[("dev", "7:0")]), &[(0.0, 10.5), (5.0, 8.4)]);
        let volume = volume(second, zero, &[&[free], more].concat());
        (volume.bytes / SEGMENT, volume.oldest / SEGMENT)
    }

    /// As seen at a second: half a segment is made in each, the slot lets go a quarter.
    fn volume(second: f64, zero: &str, more: &[(Arc<Series>, Vec<Point>)]) -> Volume {
        let own = [("target", "p")];
        let head: Vec<_> = (0..=9).map(|second| (f64::from(second), 5.25 + 0.5 * f64::from(second))).collect();
        let series = vec![read(cat::PG_WAL_INSERT.series(&own), &head)];
        let settings = ["wal_init_zero", "wal_recycle"].map(|name| (name.to_owned(), zero.to_owned())).into();
        let p = Target { name: "p".to_owned(), wal_device: Some("7:0".to_owned()), settings, ..Target::default() };
        let meta = Arc::new(Meta { targets: vec![p.clone()], ..Meta::default() });
        let series = [series, more.to_vec()].concat();
        let at = Moment::from_seconds(second);
        let window = Window::new(Moment(0), Moment::from_seconds(9.0), meta, series, Vec::new(), Vec::new());
        let positions = Positions {
            head: (5.25 + 0.5 * second) * SEGMENT,
            needed: (2.0 + 0.25 * second) * SEGMENT,
            inflow: 0.5 * SEGMENT,
            outflow: 0.25 * SEGMENT,
            connected: true,
            slot: true,
            archived: None,
            archiving: Archiving::default(),
        };
        Volume::of(&window, Some(&p), "p", &positions, at).unwrap()
    }

    #[test]
    fn what_a_volume_holds_does_not_change_as_time_goes_on() {
        // From the third segment on: the sixth has its space, and ten more will find theirs; the half one never will.
        assert_eq!([0.0, 1.0, 4.0].map(|second| seen(second, "on", &[])), [(14.0, 2.0), (14.0, 2.25), (14.0, 3.0)]);
        // Read anew after two more were taken, and one and a quarter let go.
        assert_eq!(seen(5.0, "on", &[]), (12.75, 3.25));
    }

    /// Seven segments lie there, up to the ninth.
    fn ahead() -> [(Arc<Series>, Vec<Point>); 2] {
        let own = [("target", "p")];
        [
            read(cat::PG_WAL_OLDEST_KEPT.series(&own), &[(0.0, 2.0), (4.0, 3.0)]),
            read(cat::PG_WAL_DIR.series(&own), &[(0.0, 7.0), (4.0, 7.0)]),
        ]
    }

    #[test]
    fn segments_made_ahead_have_their_space() {
        assert_eq!([0.0, 1.0, 4.0].map(|second| seen(second, "on", &ahead())), [(17.0, 2.0), (17.0, 2.0), (17.0, 3.0)]);
    }

    #[test]
    fn files_that_are_neither_filled_nor_used_again_take_space_as_they_are_written() {
        assert_eq!([0.0, 4.0].map(|second| seen(second, "off", &ahead())), [(13.75, 2.0), (13.75, 3.0)]);
    }

    #[test]
    fn what_was_removed_between_two_looks_does_not_count_twice() {
        let own = [("target", "p")];
        let free = |later: f64| read(cat::VOLUME_FREE.series(&[("dev", "7:0")]), &[(0.5, 10.0), (5.5, later)]);
        let oldest =
            |upto: f64| read(cat::PG_WAL_OLDEST_KEPT.series(&own), &[(0.0, 0.0), (2.0, 0.0), (4.0, 0.0), (6.0, upto)]);
        let files = read(cat::PG_WAL_DIR.series(&own), &[(0.0, 6.0), (2.0, 7.0), (4.0, 8.0), (6.0, 5.0)]);
        let bytes = |at: f64, later: f64, upto: f64| {
            volume(at, "on", &[free(later), oldest(upto), files.clone()]).bytes / SEGMENT
        };
        // Sixteen segments; four go after the files were looked at, and before the volume is.
        assert_eq!(bytes(5.5, 12.0, 4.0), 16.0, "not known yet what went");
        assert_eq!(bytes(6.0, 12.0, 4.0), 16.0, "known to be told apart in time");
        // Nothing went: the later look counts.
        assert_eq!(bytes(6.0, 6.0, 0.0), 15.0);
    }

    #[test]
    fn a_hole_in_the_readings_of_the_head_leaves_what_was_known_before() {
        let free = read(cat::VOLUME_FREE.series(&[("dev", "7:0")]), &[(4.0, 9.0), (14.0, 3.0)]);
        // The head was last read at 9 s.
        assert_eq!(volume(14.0, "on", &[free]).bytes / SEGMENT, 8.0 - 3.0 + 9.0);
    }

    const HOLDS: Volume = Volume { bytes: 20.0, oldest: 0.0 };
    /// They complete after 3, 9, 15 s and so on.
    const EACH_6_S: Checkpoints = Checkpoints { interval_s: 6.0, duration_s: 5.0, next_s: -2.0 };

    fn kept(from: f64, speed: f64) -> Kept {
        Kept { from, speed, saved: false }
    }

    #[test]
    fn by_rates_what_holds_most_fills_it() {
        let full = |kept: &[Kept]| HOLDS.full_s((10.0, 2.0), kept, None, 1.0);
        assert_eq!(
            (full(&[kept(6.0, 1.0)]), full(&[kept(6.0, 0.0)]), full(&[kept(6.0, 2.0)])),
            (Some(15.0), Some(7.5), None)
        );
        assert_eq!(full(&[kept(6.0, 1.0), kept(3.0, 1.5), kept(5.0, 1.0)]), Some(14.0));
        assert_eq!(full(&[kept(-3.0, 0.0)]), Some(5.0), "it begins where it begins");
        assert_eq!(
            (full(&[kept(-9.0, 2.0)]), full(&[kept(-8.0, 2.0)])),
            (Some(5.0), None),
            "20 or 19 kept of 20, and one is written"
        );
    }

    #[test]
    fn what_is_let_go_leaves_at_the_end_of_a_checkpoint() {
        let full = |kept: &[Kept]| HOLDS.full_s((10.0, 2.0), kept, Some(EACH_6_S), 1.0);
        // Nothing goes: the same as by rates.
        assert_eq!(full(&[kept(0.0, 0.0)]), Some(5.0));
        assert_eq!(full(&[kept(0.9, 0.0)]), Some(5.0), "a part of a segment stays");
        // At 3 s all before its redo position of 6 goes, though 8 are not needed: full at 8 s. A second and a half sooner or later
        // what goes ends at 3 and at 9: full at 6.5 and 9.5 s.
        let lumps = Some(2.0 / (1.0 / 6.5 + 1.0 / 9.5));
        assert_eq!(full(&[kept(5.0, 1.0)]), lumps);
        // By rates alone it would be 14 s.
        assert_eq!(HOLDS.full_s((10.0, 2.0), &[kept(5.0, 1.0)], None, 1.0), Some(14.0));
        // A slot's counts as it was when the checkpoint began, two seconds ago: 3; 1 and 4 where that was sooner or later.
        let saved = Kept { saved: true, ..kept(5.0, 1.0) };
        assert_eq!(full(&[saved]), Some(2.0 / (1.0 / 5.5 + 1.0 / 7.0)));
        // Whatever else does not let go holds all.
        assert_eq!(full(&[kept(5.0, 1.0), kept(0.0, 0.0)]), Some(5.0));
    }

    #[test]
    fn checkpoints_that_come_seldom_come_within_a_share_of_their_distance() {
        let seldom = Checkpoints { interval_s: 100.0, duration_s: 1.0, next_s: 4.0 };
        // The one that completes at 5 s may come at 0 or at 10: in time, or too late.
        let full = HOLDS.full_s((10.0, 2.0), &[kept(4.0, 0.0)], Some(seldom), 1.0);
        assert_eq!(full, Some(2.0 / (1.0 / 5.0 + 1.0 / 7.0)));
    }
}
