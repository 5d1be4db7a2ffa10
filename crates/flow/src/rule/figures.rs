//! What is known of a running session at one moment, and the five-second mean that a bandwidth is.

use super::Attribute;
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
