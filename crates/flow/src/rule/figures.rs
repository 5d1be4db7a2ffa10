//! What is known of a running session at one moment, the five-second mean that a bandwidth is, and a session's WAL.

use super::Attribute;
use crate::MB;
use backwater_model::{Moment, Span};
use std::collections::VecDeque;

/// Figures of one session's running statement. None: cannot be measured here, or not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Seconds since the statement began; None between statements.
    pub elapsed_s: Option<f64>,
    /// Seconds it waited for its turn or on a lock.
    pub blocked_s: Option<f64>,
    /// MB a second to the client, mean of [`MEAN_OVER`].
    pub bandwidth_mb_per_s: Option<f64>,
    /// Seconds of CPU.
    pub cpu_s: Option<f64>,
    /// Percent of one CPU since it began.
    pub cpu_percent: Option<f64>,
    /// MB of temporary files.
    pub spill_mb: Option<f64>,
    /// MB of private memory.
    pub memory_mb: Option<f64>,
    /// MB of WAL a second of its session, mean of [`MEAN_OVER`]: a server tells it when a statement has ended.
    pub wal_mb_per_s: Option<f64>,
    /// MB of WAL that its session wrote in one go ([`SessionWal`]).
    pub wal_mb: Option<f64>,
    /// Rows.
    pub rows: Option<f64>,
}

impl Figures {
    /// The figure that a rule's attribute looks at, in the attribute's unit.
    pub fn get(&self, attribute: Attribute) -> Option<f64> {
        match attribute {
            Attribute::ElapsedTime => self.elapsed_s,
            Attribute::BlockTime => self.blocked_s,
            Attribute::Bandwidth => self.bandwidth_mb_per_s,
            Attribute::CpuTime => self.cpu_s,
            Attribute::CpuAvgPercent => self.cpu_percent,
            Attribute::SpillSize => self.spill_mb,
            Attribute::MemSize => self.memory_mb,
            Attribute::WalRate => self.wal_mb_per_s,
            Attribute::WalSize => self.wal_mb,
            Attribute::Rows => self.rows,
        }
    }
}

/// What bandwidths and WAL rates are the mean of.
pub const MEAN_OVER: Span = Span::from_millis(5_000);
/// Bytes are counted in slots of this length, so that a session costs fifty numbers and not one a message.
const SLOT: Span = Span::from_millis(100);

/// Bytes a second over the last [`MEAN_OVER`]. What lies before the first byte counts as silence, so a session that has
/// just begun to send is not over a rate before it has sent five seconds' worth.
#[derive(Clone, Debug, Default)]
pub struct MeanRate {
    /// Slot number and bytes, oldest first.
    slots: VecDeque<(i64, u64)>,
    total_bytes: u64,
}

impl MeanRate {
    /// Bytes went at `now`. Time that runs backwards counts as no time.
    pub fn add(&mut self, now: Moment, bytes: u64) {
        let slot = now.0.div_euclid(SLOT.0);
        self.forget(slot);
        self.total_bytes += bytes;
        match self.slots.back_mut() {
            Some((last, sum)) if *last >= slot => *sum += bytes,
            _ => self.slots.push_back((slot, bytes)),
        }
    }

    /// Bytes went within the time `passed` that ends at `now`, and are counted as if they had gone evenly: those of a part that is
    /// longer ago than [`MEAN_OVER`] not at all.
    pub fn add_over(&mut self, now: Moment, bytes: u64, passed: Span) {
        let counted = passed.min(MEAN_OVER);
        let bytes = i128::from(bytes) * i128::from(counted.0.max(1)) / i128::from(passed.0.max(1));
        let slots = (counted.0 + SLOT.0 - 1).div_euclid(SLOT.0).max(1);
        let until = |slot: i64| u64::try_from(bytes * i128::from(slot) / i128::from(slots)).unwrap_or(u64::MAX);
        for slot in 0..slots {
            self.add(now - Span((slots - 1 - slot) * SLOT.0), until(slot + 1) - until(slot));
        }
    }

    /// The mean of the last five seconds, in bytes a second.
    pub fn bytes_per_second(&mut self, now: Moment) -> f64 {
        self.forget(now.0.div_euclid(SLOT.0));
        self.total_bytes as f64 / MEAN_OVER.seconds()
    }

    fn forget(&mut self, slot: i64) {
        while let Some((oldest, bytes)) = self.slots.front().copied()
            && oldest <= slot - MEAN_OVER.0 / SLOT.0
        {
            self.total_bytes -= bytes;
            self.slots.pop_front();
        }
    }
}

/// What a session writes is one go until it has had neither statement nor transaction for this long. A server tells what a
/// session has written ten seconds after it fell silent at the latest (PGSTAT_IDLE_INTERVAL): by then all of it is told, and none
/// of it is counted to what comes next.
pub const RESTED_AFTER: Span = Span::from_millis(15_000);

/// No go is longer: a session of a pool may have a statement every few seconds for weeks.
pub const LONGEST_GO: Span = Span::from_millis(3_600_000);
/// What is written in one go is counted in slots of this length.
const GO_SLOT: Span = Span::from_millis(60_000);

/// A session's WAL, as its server tells it: how fast it is written, and how much in one go.
#[derive(Clone, Debug, Default)]
pub struct SessionWal {
    told_bytes: Option<f64>,
    told_at: Moment,
    rate: MeanRate,
    /// Slot number and bytes of this go, oldest first.
    go: VecDeque<(i64, f64)>,
}

impl SessionWal {
    /// What the server tells at `now`: bytes that the session has written since it began; None where it does not tell. `rested`
    /// is how long it has had neither statement nor transaction; None while it has one. What it wrote before it was first told
    /// of is not counted.
    pub fn see(&mut self, now: Moment, rested: Option<Span>, told_bytes: Option<f64>) {
        let slot = now.0.div_euclid(GO_SLOT.0);
        self.go.retain(|(of, _)| *of > slot - LONGEST_GO.0 / GO_SLOT.0);
        if let (Some(before), Some(bytes)) = (self.told_bytes, told_bytes) {
            let written = (bytes - before).max(0.0);
            self.rate.add_over(now, written as u64, now - self.told_at);
            self.go_on(slot, written);
        }
        (self.told_bytes, self.told_at) = (told_bytes, now);
        if rested.is_some_and(|rested| rested >= RESTED_AFTER) {
            self.go.clear();
        }
    }

    fn go_on(&mut self, slot: i64, written: f64) {
        match self.go.back_mut() {
            Some((last, bytes)) if *last >= slot => *bytes += written,
            _ => self.go.push_back((slot, written)),
        }
    }

    /// MB a second, mean of [`MEAN_OVER`]; None where it is not told.
    pub fn mb_per_s(&mut self, now: Moment) -> Option<f64> {
        self.told_bytes.map(|_| self.rate.bytes_per_second(now) / MB as f64)
    }

    /// MB since it last rested for [`RESTED_AFTER`], within the last [`LONGEST_GO`]; None where it is not told.
    pub fn mb(&self) -> Option<f64> {
        self.told_bytes.map(|_| self.go.iter().map(|(_, bytes)| bytes).sum::<f64>() / MB as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mean_needs_five_seconds_to_be_reached_and_to_be_forgotten() {
        let mut mean = MeanRate::default();
        for ms in (0..5_000).step_by(10) {
            mean.add(Moment(ms * 1_000), 10_000);
        }
        assert_eq!(mean.bytes_per_second(Moment(2_499_000 + 2_500_000)), 1e6);
        assert_eq!(mean.bytes_per_second(Moment(7_500_000)), 480_000.0);
        assert_eq!(mean.bytes_per_second(Moment(20_000_000)), 0.0);
    }

    #[test]
    fn of_a_time_that_is_longer_than_the_mean_only_its_share_counts() {
        let mut mean = MeanRate::default();
        let mut now = Moment(0);
        let mut rate = |passed_ms: i64, mb_per_s: u64| {
            let passed = Span::from_millis(passed_ms);
            now = now + passed;
            mean.add_over(now, mb_per_s * MB * passed_ms.max(0) as u64 / 1_000, passed);
            mean.bytes_per_second(now) / MB as f64
        };
        for passed_ms in [10_000, 60_000, 1_000, 3_000, 3_000, 4_900, 4_900, 500, 7_000, 20, 20] {
            assert!((rate(passed_ms, 70) - 70.0).abs() < 1.5, "after {passed_ms} ms");
        }
        assert!((rate(500, 20) - 65.0).abs() < 1.5, "the last half second was slower");
        assert!(rate(0, 20) <= 66.5 && rate(-1_000, 20) <= 66.5, "time that does not pass");
        let mut wal = SessionWal::default();
        for s in [0, 10, 70] {
            wal.see(Moment(s * 1_000_000), None, Some((s as u64 * MB) as f64));
        }
        assert_eq!(wal.mb_per_s(Moment(70_000_000)), Some(1.0));
    }

    #[test]
    fn wal_is_counted_until_its_session_has_rested_and_what_is_told_late_is_of_the_go_before() {
        let mut wal = SessionWal::default();
        let mut see = |s: i64, rested_s: Option<i64>, mb: Option<u64>| {
            let rested = rested_s.map(|s| Span(s * 1_000_000));
            wal.see(Moment(s * 1_000_000), rested, mb.map(|mb| (mb * MB) as f64));
            wal.mb()
        };
        assert_eq!(see(0, None, None), None);
        assert_eq!(see(1, None, Some(100)), Some(0.0), "who was there before begins with nothing");
        assert_eq!(see(2, None, Some(130)), Some(30.0));
        // Pauses between its transactions are no rest.
        assert_eq!(see(16, Some(14), Some(130)), Some(30.0));
        assert_eq!(see(17, None, Some(150)), Some(50.0));
        // Its last transaction is told ten seconds after it.
        assert_eq!(see(28, Some(10), Some(160)), Some(60.0));
        assert_eq!(see(33, Some(15), Some(160)), Some(0.0));
        assert_eq!(see(34, None, Some(160)), Some(0.0));
        assert_eq!(see(35, None, Some(165)), Some(5.0));
        // Somebody set the server's statistics back.
        assert_eq!(see(36, None, Some(1)), Some(5.0));
        assert_eq!(see(37, None, None), None);
        assert_eq!(see(38, None, Some(2)), Some(5.0));
        assert!(Attribute::WalSize.about().contains(&format!("for {} s", RESTED_AFTER.seconds())));
    }

    #[test]
    fn a_session_that_never_rests_is_not_judged_by_what_it_wrote_hours_ago() {
        let (mut wal, mut most) = (SessionWal::default(), 0.0f64);
        // 1 MB every ten seconds, for a day.
        for look in 0..8_640 {
            wal.see(Moment(look * 10_000_000), Some(Span::from_millis(9_000)), Some((look * MB as i64) as f64));
            most = most.max(wal.mb().unwrap_or_default());
            assert!(wal.go.len() <= 60);
        }
        assert_eq!(most, 360.0, "an hour's worth");
    }

    proptest! {
        #[test]
        fn the_mean_is_of_bytes_within_five_seconds(steps in prop::collection::vec((0..2_000_000i64, 0..1u64 << 40), 1..200)) {
            let mut mean = MeanRate::default();
            let (mut now, mut all) = (0i64, Vec::new());
            for (pause, bytes) in steps {
                now += pause;
                mean.add(Moment(now), bytes);
                all.push((now, bytes));
                let since = |window: i64| all.iter().filter(|(at, _)| *at > now - window).map(|(_, bytes)| *bytes).sum::<u64>() as f64 / 5.0;
                let rate = mean.bytes_per_second(Moment(now));
                prop_assert!(rate <= since(MEAN_OVER.0) && rate >= since(MEAN_OVER.0 - SLOT.0));
                prop_assert!(mean.slots.len() <= 51);
            }
        }
    }
}
