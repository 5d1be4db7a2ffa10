//! How much of the class gets through: over what is recent, and the most lately.

use backwater_model::{Moment, Span};
use std::collections::VecDeque;

/// The most is remembered for this long.
const KEPT: Span = Span::from_millis(1_000);

/// Bytes that arrived, lately.
#[derive(Clone, Debug)]
pub(super) struct Delivered {
    /// A rate is the mean over this: one tick's acknowledgements come in clumps.
    window: Span,
    /// When each tick ended, and the bytes of it; the oldest first.
    ticks: VecDeque<(Moment, u64)>,
    /// When the first of them began.
    began: Moment,
    bytes: u64,
    most: Most,
}

/// The largest of what was seen within a time.
#[derive(Clone, Debug)]
pub(super) struct Most {
    kept: Span,
    /// Those that none later was above; the largest first.
    seen: VecDeque<(Moment, f64)>,
}

impl Most {
    pub(super) fn new(kept: Span) -> Self {
        Most { kept, seen: VecDeque::new() }
    }

    pub(super) fn see(&mut self, now: Moment, value: f64) {
        while self.seen.back().is_some_and(|(_, other)| *other <= value) {
            self.seen.pop_back();
        }
        self.seen.push_back((now, value));
        while self.seen.front().is_some_and(|(at, _)| now - *at > self.kept) {
            self.seen.pop_front();
        }
    }

    pub(super) fn get(&self) -> f64 {
        self.seen.front().map_or(0.0, |(_, value)| *value)
    }
}

impl Delivered {
    pub(super) fn new(now: Moment, window: Span) -> Self {
        Delivered { window, ticks: VecDeque::new(), began: now, bytes: 0, most: Most::new(KEPT) }
    }

    /// So much arrived since the last call.
    pub(super) fn add(&mut self, now: Moment, bytes: u64) {
        self.ticks.push_back((now, bytes));
        self.bytes = self.bytes.saturating_add(bytes);
        // A window is never shorter than asked for, once there has been as much.
        while let Some((at, bytes)) = self.ticks.front().copied()
            && now - at >= self.window
            && self.ticks.len() > 1
        {
            self.ticks.pop_front();
            (self.began, self.bytes) = (at, self.bytes.saturating_sub(bytes));
        }
        let rate = self.rate_bps(now);
        self.most.see(now, rate);
    }

    /// Bytes a second over what is recent.
    pub(super) fn rate_bps(&self, now: Moment) -> f64 {
        let seconds = now.seconds_since(self.began).max(self.window.seconds());
        self.bytes as f64 / seconds
    }

    /// The largest of such rates within the last second.
    pub(super) fn most_bps(&self) -> f64 {
        self.most.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Span = Span::from_millis(50);

    #[test]
    fn clumps_are_a_rate_and_the_most_is_remembered_for_a_second() {
        let mut delivered = Delivered::new(Moment(0), WINDOW);
        for tick in 1..=100 {
            delivered.add(Moment(tick * 10_000), if tick % 5 == 0 { 50_000 } else { 0 });
        }
        let rate = delivered.rate_bps(Moment(1_000_000));
        assert!((rate - 1e6).abs() < 1e5, "{rate}");
        assert!((delivered.most_bps() - 1e6).abs() < 3e5);
        for tick in 101..=190 {
            delivered.add(Moment(tick * 10_000), 0);
        }
        assert!(delivered.rate_bps(Moment(1_900_000)) == 0.0 && delivered.most_bps() > 7e5);
        for tick in 191..=230 {
            delivered.add(Moment(tick * 10_000), 0);
        }
        assert_eq!(delivered.most_bps(), 0.0);
    }

    #[test]
    fn rare_looks_count_whole() {
        let mut delivered = Delivered::new(Moment(0), WINDOW);
        (1..10).for_each(|tick| delivered.add(Moment(tick * 400_000), 400_000));
        assert_eq!(delivered.rate_bps(Moment(3_600_000)), 1e6);
    }
}
