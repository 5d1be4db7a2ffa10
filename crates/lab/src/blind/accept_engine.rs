//! Did it really happen to the engine? By what its driver counted and what the volume wrote, without any of the rules.

use super::accept::{Accepted, HELD, Look, REACHED, accepted, show};
use backwater_model::{Moment, Span, catalogue};

/// An operation that takes so long was held up, in milliseconds. With nothing in the way the slowest of a hundred take tens.
const HELD_UP_MS: f64 = 500.0;
/// What takes the volume so long, in seconds, is a burst.
const LONG_BURST_S: f64 = 3.0;
/// Checkpoints that make a habit.
const HABIT: usize = 2;
/// Share of the time of application threads that goes into eviction.
const EVICTING: f64 = 0.1;
/// Median latency, in times of what it was before; and the most that it may have been, in milliseconds: whoever is later than that
/// was held up by something else, so that what came then was not what made the load slow.
const FELT: f64 = 2.0;
const QUIET_MS: f64 = 100.0;
/// Dirty bytes in the cache at their highest, in times of what they were before; and as a share of what must be evicted by the threads
/// of applications.
const GREW: f64 = 2.0;
const NEAR_TRIGGER: f64 = 0.5;
/// Of what was done since a snapshot was taken, the share that its history must cover; and the dirty share of the trigger at which the
/// engine holds the cache there.
const MOSTLY: f64 = 0.5;
const AT_TRIGGER: f64 = 0.9;
/// Share of the time in which a device that stands still has a request in it.
const BUSY: f64 = 0.8;

impl Look<'_> {
    fn p99_ms(&self) -> f64 {
        self.acted.driven.result.latency_ms(0.99)
    }

    fn figure(&self, name: &str) -> f64 {
        self.acted.driven.figures.get(name).copied().unwrap_or(0.0)
    }

    fn written(&self) -> f64 {
        self.device_rate(&catalogue::DISK_WRITTEN_BYTES, self.acted.device.as_deref())
    }

    fn cap(&self) -> f64 {
        self.setup.arm.write_bytes_per_s.map_or(0.0, |bytes| bytes.0 as f64)
    }

    /// The longest time in which requests were in the volume and none was completed, in seconds. No cap does that: it holds
    /// requests back before they reach the device. The host did it.
    pub(super) fn volume_stood_s(&self) -> f64 {
        let labels = [("dev", self.acted.device.as_deref().unwrap_or_default())];
        let track = |def: &catalogue::Def| self.window.track(def.name, &labels);
        let (Some(busy), Some(written)) = (track(&catalogue::DISK_BUSY_MS), track(&catalogue::DISK_WRITTEN_BYTES))
        else {
            return 0.0;
        };
        let (mut longest_s, mut stood_s) = (0.0_f64, 0.0);
        for pair in busy.points.windows(2) {
            let passed_s = pair[1].at.seconds_since(pair[0].at);
            let full = pair[1].value - pair[0].value >= BUSY * 1e3 * passed_s;
            let nothing = written.between(pair[0].at, pair[1].at).increase() == Some(0.0);
            stood_s = if full && nothing { stood_s + passed_s } else { 0.0 };
            longest_s = longest_s.max(stood_s);
        }
        longest_s
    }

    /// What the volume writes a second while no checkpoint runs, by the engine's own word on those.
    fn written_between_checkpoints(&self) -> Option<f64> {
        let running = self.window.track(catalogue::WT_CHECKPOINT_RUNNING.name, &[("target", &self.acted.primary)])?;
        let labels = [("dev", self.acted.device.as_deref().unwrap_or_default())];
        let written = self.window.track(catalogue::DISK_WRITTEN_BYTES.name, &labels)?;
        let quiet = running.between(self.acted.load_start, self.acted.to).points.windows(2).filter_map(|pair| {
            let none = pair.iter().all(|point| point.value == 0.0);
            let (from, to) = (pair[0].at, pair[1].at);
            none.then(|| Some((written.rise(from, to)?, to.seconds_since(from)))).flatten()
        });
        let (bytes, seconds) = quiet.fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        (seconds > 0.0).then(|| bytes / seconds)
    }

    /// The volume takes the mean, and between checkpoints it has room; but some operations wait long.
    pub(super) fn journal_waits_for_checkpoints(&self) -> Accepted {
        let (p99_ms, done, cap) = (self.p99_ms(), self.answered_ratio(), self.cap());
        let between = self.written_between_checkpoints();
        let because = format!(
            "p99 {p99_ms:.0} ms, {:.0} % of what was asked for, {} written of {}/s allowed between checkpoints",
            1e2 * done,
            between.map_or("nothing is known to be".to_owned(), |bytes| format!("{}/s", show(bytes))),
            show(cap)
        );
        let room = between.is_some_and(|bytes| bytes < REACHED * cap);
        accepted(p99_ms >= HELD_UP_MS && done >= HELD && room, because)
    }

    /// The same, and what checkpoints find in the cache is what the volume needs seconds for.
    pub(super) fn checkpoints_bring_long_bursts(&self) -> Accepted {
        let waits = self.journal_waits_for_checkpoints();
        let mut bursts = self.dirty_before_checkpoints();
        bursts.sort_by(f64::total_cmp);
        let burst = bursts.get(bursts.len() / 2).copied().unwrap_or(0.0);
        let because = format!("{}, {} checkpoints find {} each", waits.because, bursts.len(), show(burst));
        accepted(waits.happened && bursts.len() >= HABIT && burst >= LONG_BURST_S * self.cap(), because)
    }

    /// Bytes that are dirty in the cache whenever a checkpoint begins.
    fn dirty_before_checkpoints(&self) -> Vec<f64> {
        let labels = [("target", self.acted.primary.as_str())];
        let track = |def: &catalogue::Def| self.window.track(def.name, &labels);
        let (Some(running), Some(dirty)) =
            (track(&catalogue::WT_CHECKPOINT_RUNNING), track(&catalogue::WT_CACHE_DIRTY))
        else {
            return Vec::new();
        };
        let running = running.between(self.acted.load_start, self.acted.to);
        let begun = running.points.windows(2).filter(|pair| pair[0].value == 0.0 && pair[1].value > 0.0);
        begun.filter_map(|pair| dirty.between(pair[0].at, pair[1].at).max()).collect()
    }

    /// The volume's dirty pages came near their limit, and operations wait long.
    pub(super) fn volume_is_dirty(&self) -> Accepted {
        let limit = self.setup.dirty_limit_bytes.unwrap_or(0) as f64;
        let labels = [("dev", self.acted.device.as_deref().unwrap_or_default())];
        let peak =
            |def: &catalogue::Def| self.window.track(def.name, &labels).and_then(|track| track.max()).unwrap_or(0.0);
        let level = peak(&catalogue::BDI_RECLAIMABLE).max(peak(&catalogue::BDI_WRITEBACK));
        let p99_ms = self.p99_ms();
        let because = format!("{} dirty of {} allowed, p99 {p99_ms:.0} ms", show(level), show(limit));
        accepted(level >= 0.5 * limit && p99_ms >= HELD_UP_MS, because)
    }

    /// What is dirty in the cache grows from when no majority confirms, until it is a burden.
    pub(super) fn dirty_pages_stay(&self) -> Accepted {
        let Some([stands_s, _]) = self.setup.load.engine.majority_stands_s else {
            return accepted(false, "a majority confirmed all the time".to_owned());
        };
        let stands = self.acted.load_start + Span::from_seconds(stands_s);
        let most = |from, to| self.most(&catalogue::WT_CACHE_DIRTY, from, to);
        let (before, after) = (most(self.acted.load_start, stands), most(stands, self.acted.to));
        let trigger = self.dirty_trigger();
        let because =
            format!("{} dirty before, {} after, of {} at the trigger", show(before), show(after), show(trigger));
        accepted(before > 0.0 && after >= GREW * before && after >= NEAR_TRIGGER * trigger, because)
    }

    /// Most of what was done since the snapshot was taken is newer than what the engine must keep, and dirty pages come to where the
    /// threads of applications must evict: background eviction alone would hold them where it begins.
    pub(super) fn history_is_held(&self) -> Accepted {
        let (from, to) = (self.acted.load_start, self.acted.to);
        let pinned = self.most(&catalogue::WT_PINNED_IDS, from, to);
        let (dirty, trigger) = (self.most(&catalogue::WT_CACHE_DIRTY, from, to), self.dirty_trigger());
        let (done, share) = (self.acted.driven.result.completed as f64, self.figure("app_evict_share"));
        let because = format!(
            "{pinned:.0} IDs pinned after {done:.0} operations, {} dirty of {} at the trigger, {:.0} % of their time spent evicting",
            show(dirty),
            show(trigger),
            1e2 * share
        );
        accepted(pinned > 0.0 && pinned >= MOSTLY * done && dirty >= AT_TRIGGER * trigger, because)
    }

    /// The most that a gauge of the engine came to between two moments; 0 where it was not read.
    fn most(&self, def: &catalogue::Def, from: Moment, to: Moment) -> f64 {
        let track = self.window.track(def.name, &[("target", self.acted.primary.as_str())]);
        track.and_then(|track| track.between(from, to).max()).unwrap_or(0.0)
    }

    /// Dirty bytes in the cache from which the threads of applications must evict.
    fn dirty_trigger(&self) -> f64 {
        let size = self.window.track(catalogue::WT_CACHE_MAX.name, &[("target", self.acted.primary.as_str())]);
        let percent = self.setup.arm.settings.get("eviction_dirty_trigger").and_then(|text| text.parse::<f64>().ok());
        size.and_then(|size| size.max()).unwrap_or(0.0) * percent.unwrap_or(20.0) / 1e2
    }

    pub(super) fn applications_evict(&self) -> Accepted {
        let share = self.figure("app_evict_share");
        accepted(share >= EVICTING, format!("{:.0} % of the operations' time spent evicting", 1e2 * share))
    }

    /// Operations wait long, though they did not before the first document expired.
    pub(super) fn expiry_is_felt(&self) -> Accepted {
        let (deleted, p99_ms) = (self.figure("ttl_deleted"), self.p99_ms());
        let of = self.setup.load.engine.documents as f64;
        let before_ms = self.mean_ms_before_expiry();
        let because = format!(
            "{deleted:.0} of {of:.0} deleted, p99 {p99_ms:.0} ms, before that {} on average",
            before_ms.map_or("an unknown time".to_owned(), |ms| format!("{ms:.0} ms"))
        );
        let quiet = before_ms.is_some_and(|ms| ms <= QUIET_MS);
        accepted(deleted >= 0.5 * of && p99_ms >= HELD_UP_MS && quiet, because)
    }

    /// How long operations took on average before the first document expired, in milliseconds.
    fn mean_ms_before_expiry(&self) -> Option<f64> {
        let [expires_s, _] = self.setup.load.engine.expire_s?;
        let from = self.acted.load_start;
        let grown =
            |def: &catalogue::Def| self.window.track(def.name, &[])?.rise(from, from + Span::from_seconds(expires_s));
        let (us, operations) = (grown(&catalogue::LOAD_LATENCY_US)?, grown(&catalogue::LOAD_COMPLETED)?);
        (operations > 0.0).then(|| us / operations / 1e3)
    }

    /// The median: what makes a few operations slow is something else.
    pub(super) fn threads_are_felt(&self) -> Accepted {
        let median_ms = |result: &crate::workloads::LoadResult| result.latency_ms(0.5);
        let before = self.acted.calm.as_ref().map_or(f64::INFINITY, median_ms);
        let (after, made) = (median_ms(&self.acted.driven.result), self.figure("threads_made"));
        let because =
            format!("{made:.0} threads made, half of the operations took {after:.1} ms, {before:.1} ms with a pool");
        let felt = before <= QUIET_MS && after >= FELT * before;
        accepted(felt && made >= 0.5 * self.acted.driven.result.completed as f64, because)
    }

    pub(super) fn volume_is_full(&self) -> Accepted {
        let (written, cap, done) = (self.written(), self.cap(), self.done_ratio());
        let because = format!("{}/s written of {}/s allowed, {:.0} % done", show(written), show(cap), 1e2 * done);
        accepted(written >= REACHED * cap && done <= HELD, because)
    }
}
