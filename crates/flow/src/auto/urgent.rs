//! How much slower urgent statements are than without the low class. Their unloaded latency is learned while the class is
//! at its floor; before that, nothing is claimed.

use super::TARGET;
use backwater_model::{Moment, Span};
use std::collections::VecDeque;

/// Statements that ended within this count as now.
const RECENT: Span = Span::from_millis(500);
/// Fewer statements than this say nothing.
const ENOUGH: usize = 8;
/// At most so many are kept of each kind.
const KEPT: usize = 256;
/// Latency that grows by this share of itself counts as much as a queue at the target: statements differ by nature.
const SHARE: f64 = 0.5;

/// Latencies of urgent statements, with the class at its floor and without.
#[derive(Clone, Debug, Default)]
pub struct UrgentLatency {
    unloaded: VecDeque<Span>,
    recent: VecDeque<(Moment, Span)>,
}

impl UrgentLatency {
    /// An urgent statement took this long; `at_floor` if the low class was at its floor all the while.
    pub fn add(&mut self, now: Moment, latency: Span, at_floor: bool) {
        if at_floor {
            self.unloaded.push_back(latency);
            if self.unloaded.len() > KEPT {
                self.unloaded.pop_front();
            }
        } else {
            self.recent.push_back((now, latency));
            if self.recent.len() > KEPT {
                self.recent.pop_front();
            }
        }
    }

    /// The excess of the median of late over the unloaded median, as a queueing delay beside [`TARGET`]. None without
    /// enough of either.
    pub fn delay(&mut self, now: Moment) -> Option<Span> {
        while self.recent.front().is_some_and(|(at, _)| now - *at > RECENT) {
            self.recent.pop_front();
        }
        let unloaded = median(self.unloaded.iter().copied())?;
        let recent = median(self.recent.iter().map(|(_, latency)| *latency))?;
        let excess = (recent.0 - unloaded.0).max(0) as f64;
        let allowed = (TARGET.0 as f64).max(SHARE * unloaded.0 as f64);
        Some(Span((TARGET.0 as f64 * excess / allowed) as i64))
    }
}

fn median(of: impl Iterator<Item = Span>) -> Option<Span> {
    let mut all: Vec<Span> = of.collect();
    if all.len() < ENOUGH {
        return None;
    }
    let middle = all.len() / 2;
    Some(*all.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_claimed_without_a_baseline_and_excess_is_relative() {
        let mut urgent = UrgentLatency::default();
        (0..10).for_each(|n| urgent.add(Moment(n), Span(15_000), false));
        assert_eq!(urgent.delay(Moment(10)), None);
        (0..10).for_each(|n| urgent.add(Moment(n), Span(10_000), true));
        assert_eq!(urgent.delay(Moment(10)), Some(TARGET));
        assert_eq!(urgent.delay(Moment(1_000_000)), None);
    }
}
