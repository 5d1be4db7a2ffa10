//! What keeps WAL for a standby, and how far that goes: a size, its slot, an archive that lags, or the volume.

use super::archive::Archive;
use super::checkpoints::{bytes, segment};
use super::head_series;
use super::queues::term;
use super::retention::{Holder, Positions};
use super::unread::HOLE_S;
use backwater_model::{Moment, Point, Source, Target, Term, Window, catalogue as cat};

/// What is told of a volume is good for so many seconds.
const FREE_S: f64 = 30.0;

/// What keeps WAL for a standby. What ends it is whichever comes first: its own limit, or a full volume.
pub(super) struct Keeping {
    primary: String,
    standby: String,
    slot: bool,
    /// Bytes kept from the beginning of the segment in which the standby reads: that goes once the head is more than the kept
    /// segments past it.
    own: Option<f64>,
    archive: Archive,
    /// Whether it is told what else is on the volume, such as WAL that wal_keep_size keeps there already.
    oldest_told: bool,
    device: Option<String>,
}

/// The sum of these and one more series.
fn with(terms: &[Term], name: &'static str, labels: &[(&'static str, &str)]) -> Source {
    Source::Sum([terms, &[term(name, labels, 1.0)]].concat())
}

/// How far the level may grow, and what happens then.
pub(super) struct Limit {
    pub(super) holder: Holder,
    pub(super) bytes: Option<f64>,
}

impl Keeping {
    /// What the settings say, with or without a slot.
    pub(super) fn of(
        window: &Window,
        settings: Option<&Target>,
        primary: &str,
        standby: &str,
        slot: bool,
        archive: Archive,
    ) -> Self {
        let size = segment(settings);
        let least = keep_bytes(settings);
        let most = bytes(settings, "max_slot_wal_keep_size").map(|most| most.max(least.unwrap_or(0.0)));
        let oldest = window.track(cat::PG_WAL_OLDEST_KEPT.name, &[("target", primary)]);
        Keeping {
            primary: primary.to_owned(),
            standby: standby.to_owned(),
            slot,
            // A size that is not of whole segments is rounded down (`XLogMBVarToSegs`).
            own: if slot { most } else { least }.map(|bytes| (bytes / size).floor() * size + size),
            archive,
            oldest_told: oldest.is_some_and(|track| !track.points.is_empty()),
            device: settings.and_then(|known| known.wal_device.clone().or_else(|| known.data_device.clone())),
        }
    }

    /// Its own limit: of a slot the server's word, else what the settings say.
    fn own(&self, window: &Window, positions: &Positions, at: Moment, size: f64) -> Option<f64> {
        let slot = [("target", self.primary.as_str()), ("slot", self.standby.as_str())];
        let safe = window.track(cat::PG_SLOT_SAFE.name, &slot).filter(|_| self.slot);
        let told = safe.and_then(|track| track.at(at, HOLE_S)).map(|safe| positions.level() + safe.value);
        told.or_else(|| self.own.map(|own| own - positions.needed.rem_euclid(size)))
    }

    /// Whether the volume is the limit where the own limit lies further off. Without a slot that is known only where it is told
    /// what is on the volume already.
    fn volume_counts(&self) -> bool {
        self.slot || self.oldest_told
    }

    pub(super) fn limit(&self, window: &Window, settings: Option<&Target>, positions: &Positions, at: Moment) -> Limit {
        let oldest = window.track(cat::PG_WAL_OLDEST_KEPT.name, &[("target", &self.primary)]);
        let oldest = oldest.and_then(|track| track.at(at, FREE_S)).map_or(positions.needed, |point| point.value);
        let free = free(window, settings, at);
        // What is on the volume, and what still fits.
        let volume = free.map(|free| (positions.head - oldest.min(positions.needed)) + free);
        let own = self.own(window, positions, at, segment(settings));
        let endless = if self.slot { own.is_none() } else { positions.unarchived() };
        let full = volume.zip(own).is_some_and(|(volume, own)| self.volume_counts() && volume < own);
        if endless || full {
            return Limit { holder: Holder::Disk, bytes: volume };
        }
        // An archive of which nothing is seen may hold more than the size does.
        let own = own.filter(|_| self.slot || self.archive != Archive::Unseen);
        Limit { holder: if self.slot { Holder::Slot } else { Holder::KeepSize }, bytes: own }
    }

    /// The same as a source: the limit of a queue with this level, whose WAL is needed from that series on.
    pub(super) fn source(&self, level: &[Term], needed: &Term) -> Source {
        let primary = [("target", self.primary.as_str())];
        let volume = |dev: &str| {
            let dev = [("dev", dev)];
            let on_it = [level[0].clone(), term(cat::PG_WAL_OLDEST_KEPT.name, &primary, -1.0)];
            let free = cat::VOLUME_FREE.name;
            Source::Most(vec![with(&on_it, free, &dev), with(level, free, &dev)])
        };
        let volume = self.device.as_deref().map_or(Source::Unknown, volume);
        let told = self.own.map_or(Source::Unknown, Source::Fixed);
        if self.slot {
            let slot = [primary[0], ("slot", self.standby.as_str())];
            let own = Source::FirstOf(vec![with(level, cat::PG_SLOT_SAFE.name, &slot), told]);
            return Source::Least(vec![own, volume]);
        }
        let own = match told {
            Source::Fixed(_) if self.volume_counts() => Source::Least(vec![told, volume.clone()]),
            told => told,
        };
        match self.archive {
            Archive::Off => return own,
            Archive::Failing => return volume,
            Archive::Unseen => return Source::Unknown,
            Archive::Told => {}
        }
        let ahead = Source::Sum(vec![needed.clone(), term(cat::PG_ARCHIVED_UPTO.name, &primary, -1.0)]);
        // Nothing else counts while the archive lacks what is needed: not even the size, where the volume is unknown.
        let held = Source::Least(vec![volume, Source::Fixed(f64::INFINITY)]);
        let held = Source::Share(Box::new([held, ahead.clone(), ahead]));
        Source::Below(Box::new(Source::FirstOf(vec![held, own])), f64::MAX)
    }
}

/// wal_keep_size, or wal_keep_segments of 12 in bytes.
pub(crate) fn keep_bytes(settings: Option<&Target>) -> Option<f64> {
    let segments = || settings?.settings.get("wal_keep_segments")?.trim().parse::<f64>().ok();
    bytes(settings, "wal_keep_size").or_else(|| segments().map(|count| count * segment(settings)))
}

/// Free space of the device on which WAL lies.
pub(crate) fn free(window: &Window, settings: Option<&Target>, at: Moment) -> Option<f64> {
    free_point(window, settings, at).map(|point| point.value)
}

fn free_point(window: &Window, settings: Option<&Target>, at: Moment) -> Option<Point> {
    let target = settings?;
    let dev = target.wal_device.as_ref().or(target.data_device.as_ref())?;
    window.track(cat::VOLUME_FREE.name, &[("dev", dev)])?.at(at, FREE_S).copied()
}

/// How much more WAL there will be when the volume is full, in bytes. Space is taken a whole segment at a time, before anything is
/// in it, and segments that a checkpoint made ahead have theirs already. So the position at which the volume is full follows
/// from what was allocated when the free space was read, however long ago: what was made since counts.
pub(super) fn room(
    window: &Window,
    settings: Option<&Target>,
    primary: &str,
    (head, inflow): (f64, f64),
    at: Moment,
) -> Option<f64> {
    let (size, own) = (segment(settings), [("target", primary)]);
    let free = free_point(window, settings, at)?;
    let value = |name: &str| window.track(name, &own)?.at(free.at, FREE_S).map(|point| point.value);
    let then = window.track(head_series(window, primary), &own)?.at(free.at, HOLE_S);
    let then = then.map_or(head, |point| point.value + inflow * free.at.seconds_since(point.at)).min(head);
    let entered = ((then / size).floor() + 1.0) * size;
    let made_ahead = value(cat::PG_WAL_OLDEST_KEPT.name).zip(value(cat::PG_WAL_DIR.name));
    let allocated = made_ahead.map_or(entered, |(oldest, bytes)| entered.max(oldest + bytes));
    Some((allocated + (free.value / size).floor() * size - head).max(0.0))
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

    /// Segments of WAL that find room at a second, half a segment being made in each.
    fn room_at(second: f64, made_ahead: &[(Arc<Series>, Vec<Point>)]) -> f64 {
        let own = [("target", "p")];
        let head: Vec<_> = (0..=9).map(|second| (f64::from(second), 5.25 + 0.5 * f64::from(second))).collect();
        let series = vec![
            read(cat::PG_WAL_INSERT.series(&own), &head),
            read(cat::VOLUME_FREE.series(&[("dev", "7:0")]), &[(0.0, 10.5), (5.0, 8.4)]),
        ];
        let p = Target { name: "p".to_owned(), wal_device: Some("7:0".to_owned()), ..Target::default() };
        let meta = Arc::new(Meta { targets: vec![p.clone()], ..Meta::default() });
        let series = [series, made_ahead.to_vec()].concat();
        let at = Moment::from_seconds(second);
        let window = Window::new(Moment(0), Moment::from_seconds(9.0), meta, series, Vec::new(), Vec::new());
        let head = (5.25 + 0.5 * second) * SEGMENT;
        room(&window, Some(&p), "p", (head, 0.5 * SEGMENT), at).unwrap() / SEGMENT
    }

    #[test]
    fn what_was_made_since_the_free_space_was_read_counts() {
        // The sixth segment has its space, and ten more will find theirs; the half one never will.
        assert_eq!([0.0, 1.0, 4.0].map(|second| room_at(second, &[])), [10.75, 10.25, 8.75]);
        // Read anew after two more were taken.
        assert_eq!(room_at(5.0, &[]), 8.25);
        assert_eq!(room_at(30.0, &[]), 0.0, "all of it was made since");
    }

    #[test]
    fn segments_made_ahead_have_their_space() {
        let own = [("target", "p")];
        let ahead = [
            read(cat::PG_WAL_OLDEST_KEPT.series(&own), &[(0.0, 2.0)]),
            read(cat::PG_WAL_DIR.series(&own), &[(0.0, 7.0)]),
        ];
        // Up to the ninth.
        assert_eq!([0.0, 4.0].map(|second| room_at(second, &ahead)), [13.75, 11.75]);
    }
}
