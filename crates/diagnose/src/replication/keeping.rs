//! What keeps WAL for a standby, and how far that goes: a size, its slot, an archive that lags, or the volume.

use super::archive::Archive;
use super::checkpoints::{bytes, segment};
use super::queues::term;
use super::retention::{Holder, Positions};
use super::unread::HOLE_S;
use super::volume::Volume;
use backwater_model::{Moment, Source, Target, Term, Window, catalogue as cat};

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
    /// The volume, where that is what ends it.
    pub(super) volume: Option<Volume>,
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
        let volume = Volume::of(window, settings, &self.primary, positions, at);
        let own = self.own(window, positions, at, segment(settings));
        let endless = if self.slot { own.is_none() } else { positions.unarchived() };
        let full = volume.zip(own).is_some_and(|(volume, own)| self.volume_counts() && volume.bytes < own);
        if endless || full {
            return Limit { holder: Holder::Disk, bytes: volume.map(|volume| volume.bytes), volume };
        }
        // An archive of which nothing is seen may hold more than the size does.
        let own = own.filter(|_| self.slot || self.archive != Archive::Unseen);
        Limit { holder: if self.slot { Holder::Slot } else { Holder::KeepSize }, bytes: own, volume: None }
    }

    /// The same as a source: the limit of a queue with this level, whose WAL is needed from that series on. The free space counts
    /// as it was last read, so that a full volume lies further off than [`Self::limit`] has it, by what was made since.
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
