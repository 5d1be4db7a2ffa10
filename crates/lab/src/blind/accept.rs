//! Did it really happen? Each deed has a test of its own on counters of the kernel and positions of the servers, made
//! before anybody looks at findings and without any of the rules. A run that fails it proves nothing either way and is
//! listed apart.

use super::act::Acted;
use super::deed::{Deed, Stage};
use super::setup::Setup;
use backwater_model::{Bytes, Window, catalogue};

/// What was seen, and whether it is what the deed is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Accepted {
    pub(super) happened: bool,
    /// The figures it follows from.
    pub(super) because: String,
}

pub(super) fn accepted(happened: bool, because: String) -> Accepted {
    Accepted { happened, because }
}

/// A limit is reached where the mean over the whole load comes to this share of it.
pub(super) const REACHED: f64 = 0.6;
/// A load is held where it does at most this share of what was asked.
pub(super) const HELD: f64 = 0.75;
/// It is not where it does at least this share.
const SERVED: f64 = 0.85;
/// So long without a completion, though requests are in the device, a volume of the engine's stands still.
const STOOD_S: f64 = 2.0;
/// WAL that must wait in the end, in seconds of what the load asks for.
const BEHIND_S: f64 = 3.0;
/// WAL that a slot or an absent standby must come to lack.
const KEPT: f64 = 16.0 * 1_048_576.0;

/// What the readings say of the deed.
pub(super) fn accept(deed: Deed, setup: &Setup, acted: &Acted, window: &Window) -> Accepted {
    let seen = Look { setup, acted, window };
    let stood_s = if deed.stage() == Stage::Engine { seen.volume_stood_s() } else { 0.0 };
    if stood_s >= STOOD_S {
        let because =
            format!("the volume stood still for {stood_s:.1} s with requests in it, which nobody had done to it");
        return accepted(false, because);
    }
    match deed {
        Deed::PrimaryCapped | Deed::BothCapped | Deed::PrimarySlow => seen.cap_holds_the_load(),
        Deed::StandbyCapped => seen.standby_is_behind_its_cap(),
        Deed::NetworkNarrow => seen.way_is_full(setup.arm.network.bytes_per_s),
        Deed::WalsenderReading => seen.way_is_full(setup.arm.read_bytes_per_s),
        Deed::ReplayPaused | Deed::ReplayConflicting => seen.replay_stands(),
        Deed::ReplayStarved => seen.replay_falls_behind(),
        Deed::RetentionExceeded => accepted(
            acted.standby_is_dead,
            "WAL that the standby needs is ".to_owned() + if acted.standby_is_dead { "gone" } else { "still there" },
        ),
        Deed::SlotLeft => seen.slot_keeps(),
        Deed::StandbyStopped => {
            let made = seen.wal_made();
            accepted(made >= KEPT, format!("{} of WAL made without it", show(made)))
        }
        Deed::SyncStandbyCapped | Deed::SyncStandbyStopped | Deed::WritesCapped => seen.load_is_held(),
        Deed::DirtyLimit => seen.volume_filled(),
        Deed::SmallBatches | Deed::SmallBatchesFar => seen.commits_cost(),
        Deed::EngineCheckpoint => seen.journal_waits_for_checkpoints(),
        Deed::EngineCacheOversized => seen.checkpoints_bring_long_bursts(),
        Deed::EngineDirtyStall => seen.applications_evict(),
        Deed::EngineExpiry => seen.expiry_is_felt(),
        Deed::EngineThreads => seen.threads_are_felt(),
        Deed::EngineCapped => seen.volume_is_full(),
        Deed::EngineDirtyLimit => seen.volume_is_dirty(),
        Deed::EngineSlowMember => seen.dirty_pages_stay(),
        Deed::EngineHeldSnapshot => seen.history_is_held(),
        _ => seen.load_is_served(),
    }
}

pub(super) fn show(bytes: f64) -> String {
    Bytes(bytes.max(0.0) as u64).to_string()
}

pub(super) struct Look<'a> {
    pub(super) setup: &'a Setup,
    pub(super) acted: &'a Acted,
    pub(super) window: &'a Window,
}

impl Look<'_> {
    /// Seconds that the load lasted.
    fn seconds(&self) -> f64 {
        self.acted.to.seconds_since(self.acted.load_start)
    }

    /// The last reading of a position of the primary, or of what it knows of its standby.
    fn last(&self, def: &catalogue::Def) -> Option<f64> {
        let labels = [("target", self.acted.primary.as_str())];
        let tracks = self.window.tracks(def.name, &labels);
        let last = |track: backwater_model::Track<'_>| track.points.last().map(|point| (point.at, point.value));
        tracks.filter_map(last).max_by_key(|(at, _)| *at).map(|(_, value)| value)
    }

    fn wal_made(&self) -> f64 {
        let labels = [("target", self.acted.primary.as_str())];
        let track = self.window.track(catalogue::PG_WAL_INSERT.name, &labels);
        track.and_then(|track| track.between(self.acted.load_start, self.acted.to).increase()).unwrap_or(0.0)
    }

    /// The mean rate of a device's counter over the load.
    pub(super) fn device_rate(&self, def: &catalogue::Def, dev: Option<&str>) -> f64 {
        let labels = [("dev", dev.unwrap_or_default())];
        let track = self.window.track(def.name, &labels);
        track.and_then(|track| track.between(self.acted.load_start, self.acted.to).rate()).unwrap_or(0.0)
    }

    pub(super) fn done_ratio(&self) -> f64 {
        self.acted.driven.result.tps() / self.setup.asked_per_s.max(1e-9)
    }

    fn cap_holds_the_load(&self) -> Accepted {
        let arm = &self.setup.arm;
        let cap = arm.write_bytes_per_s.or(arm.device_bytes_per_s).map_or(0.0, |bytes| bytes.0 as f64);
        let written = self.device_rate(&catalogue::DISK_WRITTEN_BYTES, self.acted.device.as_deref());
        let made = self.wal_made() / self.seconds() / self.setup.wal_bytes_per_s.max(1.0);
        let because = format!(
            "{}/s written of {}/s allowed, {:.0} % of the WAL that was asked for",
            show(written),
            show(cap),
            1e2 * made
        );
        accepted(written >= REACHED * cap && made <= HELD, because)
    }

    /// What the primary has and the standby's position lacks in the end.
    fn behind(&self, position: &catalogue::Def) -> Option<f64> {
        Some(self.last(&catalogue::PG_WAL_INSERT)? - self.last(position)?)
    }

    fn standby_is_behind_its_cap(&self) -> Accepted {
        let cap = self.setup.arm.standby.write_bytes_per_s.map_or(0.0, |bytes| bytes.0 as f64);
        let written = self.device_rate(&catalogue::DISK_WRITTEN_BYTES, self.acted.standby_device.as_deref());
        let behind = self.behind(&catalogue::PG_REPL_FLUSH).unwrap_or(0.0);
        let because = format!(
            "{}/s written of {}/s allowed, {} not flushed there in the end",
            show(written),
            show(cap),
            show(behind)
        );
        accepted(written >= REACHED * cap && behind >= BEHIND_S * self.setup.wal_bytes_per_s, because)
    }

    /// What lets WAL through to the standby lets through what it may, and more waits before it.
    fn way_is_full(&self, limit: Option<Bytes>) -> Accepted {
        let limit = limit.map_or(0.0, |bytes| bytes.0 as f64);
        let labels = [("target", self.acted.primary.as_str())];
        let sent = self.window.tracks(catalogue::PG_REPL_WRITE.name, &labels);
        let sent = sent.filter_map(|track| track.between(self.acted.load_start, self.acted.to).rate());
        let sent = sent.fold(0.0, f64::max);
        let behind = self.behind(&catalogue::PG_REPL_WRITE).unwrap_or(0.0);
        let because =
            format!("{}/s arrived of {}/s allowed, {} not there in the end", show(sent), show(limit), show(behind));
        let full = sent >= REACHED * limit && sent <= 1.1 * limit;
        accepted(full && behind >= BEHIND_S * self.setup.wal_bytes_per_s, because)
    }

    fn replay_stands(&self) -> Accepted {
        let (made, behind) = (self.wal_made(), self.behind(&catalogue::PG_REPL_REPLAY).unwrap_or(0.0));
        let because = format!("{} of {} of WAL made not replayed in the end", show(behind), show(made));
        accepted(made > KEPT && behind >= 0.6 * made, because)
    }

    fn replay_falls_behind(&self) -> Accepted {
        let behind = self.behind(&catalogue::PG_REPL_REPLAY).unwrap_or(0.0);
        let labels = [("target", self.acted.standby.as_deref().unwrap_or_default()), ("what", "startup")];
        let used = self.window.tracks(catalogue::PROC_CPU.name, &labels);
        let used = used.filter_map(|track| track.between(self.acted.load_start, self.acted.to).rate());
        let used = used.fold(0.0, f64::max);
        let share = self.setup.arm.standby.replay_processor.unwrap_or(1.0);
        let because =
            format!("{used:.3} of a processor used of {share:.3} allowed, {} not replayed in the end", show(behind));
        let held = (REACHED * share..=1.5 * share).contains(&used);
        accepted(held && behind >= BEHIND_S * self.setup.wal_bytes_per_s, because)
    }

    fn slot_keeps(&self) -> Accepted {
        let labels = [("target", self.acted.primary.as_str())];
        let oldest = self.window.tracks(catalogue::PG_SLOT_RESTART.name, &labels).filter_map(|track| track.last());
        let kept =
            oldest.reduce(f64::min).zip(self.last(&catalogue::PG_WAL_INSERT)).map_or(0.0, |(slot, head)| head - slot);
        accepted(kept >= KEPT, format!("{} kept for nobody", show(kept)))
    }

    fn load_is_held(&self) -> Accepted {
        let done = self.done_ratio();
        accepted(done <= HELD, format!("{:.0} % of what it does unhindered", 1e2 * done))
    }

    /// The volume's dirty pages came near their limit, and commits fell.
    fn volume_filled(&self) -> Accepted {
        let limit = self.setup.dirty_limit_bytes.unwrap_or(0) as f64;
        let labels = [("dev", self.acted.device.as_deref().unwrap_or_default())];
        let peak =
            |def: &catalogue::Def| self.window.track(def.name, &labels).and_then(|track| track.max()).unwrap_or(0.0);
        let level = peak(&catalogue::BDI_RECLAIMABLE).max(peak(&catalogue::BDI_WRITEBACK));
        let per_second = &self.acted.driven.result.per_second;
        let last_third = &per_second[per_second.len() * 2 / 3..];
        let late =
            last_third.iter().sum::<u64>() as f64 / last_third.len().max(1) as f64 / self.setup.asked_per_s.max(1.0);
        let because = format!(
            "{} dirty of {} allowed, {:.0} % of unhindered transactions in the end",
            show(level),
            show(limit),
            1e2 * late
        );
        accepted(level >= 0.5 * limit && late <= HELD, because)
    }

    /// Rows took much longer than they do in large batches.
    fn commits_cost(&self) -> Accepted {
        let figure = |name: &str| self.acted.driven.figures.get(name).copied().unwrap_or(0.0);
        let ratio = figure("rows_per_s") / self.setup.asked_per_s.max(1e-9);
        let because = format!("{:.0} rows/s, {:.0} % of those in large batches", figure("rows_per_s"), 1e2 * ratio);
        accepted(ratio > 0.0 && ratio <= 0.6, because)
    }

    /// Nothing was in the way: the load got what it asked for, and a standby has all but the last seconds of WAL.
    fn load_is_served(&self) -> Accepted {
        let (done, least) = match self.acted.driven.figures.get("rows_per_s") {
            Some(rows_per_s) => (rows_per_s / self.setup.asked_per_s.max(1e-9), 0.6),
            None => (self.answered_ratio(), SERVED),
        };
        let behind = self.acted.standby.as_ref().and_then(|_| self.behind(&catalogue::PG_REPL_FLUSH));
        let allowed = (2.0 * BEHIND_S * self.setup.wal_bytes_per_s).max(KEPT);
        let late = behind.filter(|behind| *behind > allowed);
        let mut because = format!("{:.0} % of what was asked for", 1e2 * done);
        if let Some(behind) = late {
            because.push_str(&format!(", {} not on the standby in the end", show(behind)));
        }
        accepted(done >= least && late.is_none(), because)
    }

    /// Transactions answered of those that were due; each client may be at one in the end.
    pub(super) fn answered_ratio(&self) -> f64 {
        let result = &self.acted.driven.result;
        let left =
            result.never_started + result.failed + result.cancelled.saturating_sub(self.setup.load.clients as u64);
        if left == 0 { 1.0 } else { result.completed as f64 / (result.completed + left) as f64 }
    }
}

#[cfg(test)]
#[path = "accept_tests.rs"]
mod tests;
