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

/// Free space of the device on which WAL lies.
pub(crate) fn free_bytes(window: &Window, settings: Option<&Target>, at: Moment) -> Option<f64> {
    Some(free(window, settings)?.at(at, FREE_S)?.value)
}

fn free<'a>(window: &'a Window, settings: Option<&Target>) -> Option<Track<'a>> {
    let target = settings?;
    let dev = target.wal_device.as_ref().or(target.data_device.as_ref())?;
    window.track(cat::VOLUME_FREE.name, &[("dev", dev)])
}

/// A position in WAL that moves, in bytes and bytes a second.
pub(super) type Moving = (f64, f64);

/// The volume on which a primary's WAL lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Volume {
    /// WAL that it holds, in bytes, from the begin of the oldest segment to the end of what there is room for.
    pub(super) bytes: f64,
    /// Begin of the oldest segment on it.
    pub(super) oldest: f64,
    /// How fast all else on the volume grows, in bytes a second, such as data that share it.
    others: f64,
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
        let free = free(window, settings)?;
        let last = free.at(at, FREE_S)?;
        let bytes = read.holds(last)?;
        // What was made or let go between two looks, at the volume and at the files, makes up to a segment.
        let first = free.between(last.at - Span::from_seconds(FREE_S), last.at).points.first()?;
        let fell = read.holds(first).map_or(0.0, |then| then - bytes - segment(settings)).max(0.0);
        let passed_s = last.at.seconds_since(first.at);
        let others = if passed_s > 0.0 { fell / passed_s } else { 0.0 };
        Some(Volume { bytes, oldest: read.oldest(at), others })
    }

    /// Seconds until the head of WAL finds no room, where what is needed moves as these do, the slowest of which holds the others'
    /// too. A checkpoint that completes about then makes room, or comes too late: what is told lies between.
    pub(super) fn full_s(
        self,
        head: Moving,
        needed: &[Moving],
        checkpoints: Option<Checkpoints>,
        size: f64,
    ) -> Option<f64> {
        let Some(checkpoints) = checkpoints else { return self.full_in_the_end_s(head, needed) };
        let lates_s = [-CHECKPOINT_UNSURE_S, 0.0, CHECKPOINT_UNSURE_S];
        between(lates_s.into_iter().filter_map(|late_s| self.full_between_s(head, needed, checkpoints, late_s, size)))
    }

    fn full_between_s(
        self,
        head: Moving,
        needed: &[Moving],
        checkpoints: Checkpoints,
        late_s: f64,
        size: f64,
    ) -> Option<f64> {
        let after = |(position, speed): Moving, seconds: f64| position + speed * seconds;
        let room_s = |oldest: f64| (oldest + self.bytes - head.0).max(0.0) / (head.1 + self.others);
        let mut oldest = self.oldest;
        for (start, end) in checkpoints.coming().map(|(start, end)| (start + late_s, (end + late_s).max(0.0))) {
            if room_s(oldest) <= end {
                return Some(room_s(oldest));
            }
            let upto = needed.iter().map(|needed| after(*needed, end)).fold(after(head, start), f64::min);
            oldest = oldest.max((upto / size).floor() * size);
        }
        self.full_in_the_end_s(head, needed)
    }

    /// By rates alone, as if all that is let go left at once.
    fn full_in_the_end_s(self, (head, inflow): Moving, needed: &[Moving]) -> Option<f64> {
        let full = |(position, speed): &Moving| {
            let room = self.bytes - (head - position.max(self.oldest));
            let filling = inflow + self.others - speed;
            (filling > 0.0).then(|| (room / filling).max(0.0))
        };
        needed.iter().filter_map(full).reduce(f64::min)
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

impl Read<'_> {
    fn value(&self, name: &str, at: Moment) -> Option<f64> {
        Some(self.window.track(name, &[("target", self.primary)])?.at(at, FREE_S)?.value)
    }

    /// Begin of the oldest segment at a moment.
    fn oldest(&self, at: Moment) -> f64 {
        let since_s = self.at.seconds_since(at);
        let needed = || self.positions.needed - self.positions.outflow * since_s;
        self.value(cat::PG_WAL_OLDEST_KEPT.name, at).unwrap_or_else(needed)
    }

    /// WAL that the volume holds, by its free space as it was read once.
    fn holds(&self, free: &Point) -> Option<f64> {
        let head = self.window.track(head_series(self.window, self.primary), &[("target", self.primary)])?;
        let head = head.at(free.at, HOLE_S)?;
        let head = head.value + self.positions.inflow * free.at.seconds_since(head.at);
        let (head, oldest) = (head.min(self.positions.head), self.oldest(free.at));
        // Files that were not filled with zeros take their space as they are written.
        if self.settings?.settings.get("wal_init_zero").is_some_and(|zero| zero == "off") {
            return Some(head - oldest + free.value);
        }
        let size = segment(self.settings);
        let entered = ((head / size).floor() + 1.0) * size;
        let files = self.value(cat::PG_WAL_DIR.name, free.at);
        let allocated = files.map_or(entered, |bytes| entered.max(oldest + bytes));
        Some(allocated - oldest + (free.value / size).floor() * size)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Epoch, Meta, Series, SeriesId};
    use std::sync::Arc;

    const SEGMENT: f64 = 16_777_216.0;

    /// Of a series that was read at these seconds; values in segments.
    fn read(series: Series, values: &[(f64, f64)]) -> (Arc<Series>, Vec<Point>) {
        let point = |(second, value): &(f64, f64)| Point {
            at: Moment::from_seconds(*second),
            series: SeriesId(0),
            epoch: Epoch(1),
            value: value * SEGMENT,
            as_of: None,
        };
        (Arc::new(series), values.iter().map(point).collect())
    }

    /// What a volume holds, and where that begins, as seen at a second, in segments.
    fn seen(second: f64, wal_init_zero: &str, more: &[(Arc<Series>, Vec<Point>)]) -> (f64, f64) {
        let free = read(cat::VOLUME_FREE.series(&[("dev", "7:0")]), &[(0.0, 10.5), (5.0, 8.4)]);
        let volume = volume(second, wal_init_zero, &[&[free], more].concat());
        (volume.bytes / SEGMENT, volume.oldest / SEGMENT)
    }

    /// As seen at a second: half a segment is made in each, the slot lets go a quarter.
    fn volume(second: f64, wal_init_zero: &str, more: &[(Arc<Series>, Vec<Point>)]) -> Volume {
        let own = [("target", "p")];
        let head: Vec<_> = (0..=9).map(|second| (f64::from(second), 5.25 + 0.5 * f64::from(second))).collect();
        let series = vec![read(cat::PG_WAL_INSERT.series(&own), &head)];
        let settings = [("wal_init_zero".to_owned(), wal_init_zero.to_owned())].into();
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
            archiving: 0.0,
            archived_of_next: 0.0,
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

    #[test]
    fn what_else_grows_on_a_volume_takes_of_it() {
        let others = |free: &[(f64, f64)]| {
            let free = read(cat::VOLUME_FREE.series(&[("dev", "7:0")]), free);
            volume(9.0, "on", &[free]).others / SEGMENT
        };
        // 34 segments find room from the third on, and nine seconds later 33.75 from the fifth: a part of one between looks.
        assert_eq!(others(&[(0.0, 30.5), (9.0, 28.5)]), 0.0);
        // 29.75, four less than that.
        assert_eq!(others(&[(0.0, 30.5), (9.0, 24.5)]), 3.25 / 9.0);
        let grown = Volume { others: 2.0, ..HOLDS };
        assert_eq!(grown.full_s((10.0, 2.0), &[(5.0, 1.0)], None, 1.0), Some(5.0));
        assert_eq!(grown.full_s((10.0, 2.0), &[(0.0, 0.0)], Some(EACH_6_S), 1.0), Some(2.5));
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
    fn files_that_are_not_filled_with_zeros_take_space_as_they_are_written() {
        assert_eq!([0.0, 4.0].map(|second| seen(second, "off", &ahead())), [(13.75, 2.0), (13.75, 3.0)]);
    }

    const HOLDS: Volume = Volume { bytes: 20.0, oldest: 0.0, others: 0.0 };
    /// They complete after 3, 9, 15 s and so on.
    const EACH_6_S: Checkpoints = Checkpoints { interval_s: 6.0, duration_s: 5.0, next_s: -2.0 };

    #[test]
    fn by_rates_the_one_that_holds_most_fills_it() {
        let full = |needed: &[Moving]| HOLDS.full_s((10.0, 2.0), needed, None, 1.0);
        assert_eq!((full(&[(5.0, 1.0)]), full(&[(5.0, 0.0)]), full(&[(5.0, 2.0)])), (Some(15.0), Some(7.5), None));
        assert_eq!(full(&[(5.0, 1.0), (2.0, 1.5), (4.0, 1.0)]), Some(14.0));
        assert_eq!(full(&[(-3.0, 0.0)]), Some(5.0), "it begins where it begins");
    }

    #[test]
    fn what_is_let_go_leaves_at_the_end_of_a_checkpoint() {
        let full = |needed: Moving| HOLDS.full_s((10.0, 2.0), &[needed], Some(EACH_6_S), 1.0);
        // Nothing goes: the same as by rates.
        assert_eq!(full((0.0, 0.0)), Some(5.0));
        // At 3 s all before its redo position of 6 goes, though the slot is at 8: full at 8 s. A second and a half sooner or later
        // what goes ends at 3 and at 9: full at 6.5 and 9.5 s.
        assert_eq!(full((5.0, 1.0)), Some(2.0 / (1.0 / 6.5 + 1.0 / 9.5)));
        // By rates alone it would be 15 s.
        assert_eq!(HOLDS.full_s((10.0, 2.0), &[(5.0, 1.0)], None, 1.0), Some(15.0));
        assert_eq!(full((0.9, 0.0)), Some(5.0), "a part of a segment stays");
    }
}
