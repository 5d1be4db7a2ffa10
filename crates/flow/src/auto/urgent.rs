//! How much slower urgent statements are than without the low class. What they take without it is learned while the class
//! sends next to nothing; before that, nothing is claimed.
//!
//! A statement is of the time in which it began: one that began without the class and ended with it makes the baseline rather
//! too long than too short, and no kind of statement is too long to be in it.

use super::{DRAIN, LONGEST_STEP_S, REFRESH_EVERY, TARGET};
use backwater_model::{Moment, Span};
use std::collections::VecDeque;

/// Statements that ended within this count as now.
const RECENT: Span = Span::from_millis(500);
/// And these as what they take without the class: some refreshes give enough of them, and what a server is asked changes.
const UNLOADED: Span = Span(6 * REFRESH_EVERY.0);
/// Fewer statements than this say nothing.
const ENOUGH: usize = 8;
/// At most so many are kept of those without the class, and of late: the newest tell of the rate in force.
const KEPT: usize = 256;
const KEPT_RECENT: usize = 32;
/// Latency that grows by this share of itself counts as much as a queue at the target: statements differ by nature.
const SHARE: f64 = 0.5;

/// An urgent statement: from its client's last word to the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentStatement {
    /// When the client had said what it wanted.
    pub began: Moment,
    /// When it was answered.
    pub ended: Moment,
}

/// How much slower urgent statements are, where that is more than they may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slower {
    /// By so much more time.
    pub(super) by: Span,
    /// Which is so many times what it may be; over 1.
    pub(super) times: f64,
}

/// What urgent statements took, with the class and without.
#[derive(Clone, Debug)]
pub(super) struct UrgentLatency {
    /// When each ended, and what it took.
    unloaded: VecDeque<(Moment, Span)>,
    recent: VecDeque<(Moment, Span)>,
    /// The last stretch in which the class sent next to nothing.
    quiet: Option<(Moment, Moment)>,
    /// What began before says nothing: nobody looked at the class, or it has gone down since.
    counts_from: Moment,
}

impl UrgentLatency {
    pub(super) fn new(now: Moment) -> Self {
        UrgentLatency { unloaded: VecDeque::new(), recent: VecDeque::new(), quiet: None, counts_from: now }
    }

    /// The class was quiet between these two looks, or was not.
    pub(super) fn passed(&mut self, since: Moment, now: Moment, quiet: bool) {
        if now.seconds_since(since) > LONGEST_STEP_S {
            (self.quiet, self.counts_from) = (None, now);
        } else if quiet {
            self.quiet = match self.quiet {
                Some((began, until)) if until == since => Some((began, now)),
                // What it sent before has to be gone first.
                _ => Some((since + DRAIN, now)),
            };
        }
    }

    /// A statement ended.
    pub(super) fn add(&mut self, statement: UrgentStatement) {
        let UrgentStatement { began, ended } = statement;
        let (all, most) = match self.quiet {
            _ if began < self.counts_from => return,
            Some((since, _)) if began < since => return,
            Some((_, until)) if began <= until => (&mut self.unloaded, KEPT),
            _ => (&mut self.recent, KEPT_RECENT),
        };
        all.push_back((ended, ended - began));
        if all.len() > most {
            all.pop_front();
        }
    }

    /// The class has less from now on: what began before this moment is of another rate.
    pub(super) fn begin_again(&mut self, at: Moment) {
        self.recent.clear();
        self.counts_from = at;
    }

    /// The excess of the median of late over the one without the class. None without enough of either, and where it is not
    /// more than it may be.
    pub(super) fn slower(&mut self, now: Moment) -> Option<Slower> {
        forget(&mut self.recent, now, RECENT);
        forget(&mut self.unloaded, now, UNLOADED);
        let (unloaded, recent) = (median(&self.unloaded)?, median(&self.recent)?);
        let by = Span(recent.0.saturating_sub(unloaded.0));
        let allowed = (TARGET.0 as f64).max(SHARE * unloaded.0 as f64);
        let times = by.0 as f64 / allowed;
        (times > 1.0).then_some(Slower { by, times })
    }
}

fn forget(all: &mut VecDeque<(Moment, Span)>, now: Moment, after: Span) {
    while all.front().is_some_and(|(at, _)| now - *at > after) {
        all.pop_front();
    }
}

fn median(of: &VecDeque<(Moment, Span)>) -> Option<Span> {
    if of.len() < ENOUGH {
        return None;
    }
    let mut all: Vec<Span> = of.iter().map(|(_, latency)| *latency).collect();
    let middle = all.len() / 2;
    Some(*all.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: i64 = 10_000;

    /// Time passes between two moments, with a statement each tick that takes so long.
    fn run(urgent: &mut UrgentLatency, (from, to): (i64, i64), quiet: bool, takes: i64) {
        for at in (from..to).step_by(TICK as usize) {
            urgent.passed(Moment(at), Moment(at + TICK), quiet);
            urgent.add(UrgentStatement { began: Moment(at + 1), ended: Moment(at + 1 + takes) });
        }
    }

    #[test]
    fn nothing_is_claimed_without_a_baseline_and_excess_is_relative() {
        let mut urgent = UrgentLatency::new(Moment(0));
        run(&mut urgent, (0, 200_000), false, 16_000);
        assert_eq!(urgent.slower(Moment(200_000)), None);
        // The first of these began while what was sent before was still on its way.
        run(&mut urgent, (200_000, 330_000), true, 10_000);
        assert_eq!(urgent.unloaded.len(), 8);
        let slower = urgent.slower(Moment(330_000));
        assert_eq!(slower, Some(Slower { by: Span(6_000), times: 1.2 }));
        assert_eq!(urgent.slower(Moment(1_000_000)), None, "nothing is recent any more");
        run(&mut urgent, (1_000_000, 1_200_000), false, 14_000);
        assert_eq!(urgent.slower(Moment(1_200_000)), None, "statements differ by nature");
    }

    #[test]
    fn what_began_before_the_class_had_less_or_while_nobody_looked_does_not_count() {
        let mut urgent = UrgentLatency::new(Moment(0));
        run(&mut urgent, (0, 300_000), true, 1_000);
        run(&mut urgent, (300_000, 600_000), false, 9_000);
        assert!(urgent.slower(Moment(600_000)).is_some());
        urgent.begin_again(Moment(650_000));
        run(&mut urgent, (600_000, 720_000), false, 9_000);
        assert_eq!((urgent.recent.len(), urgent.slower(Moment(720_000))), (7, None));
        urgent.passed(Moment(720_000), Moment(900_000), false);
        urgent.add(UrgentStatement { began: Moment(800_000), ended: Moment(899_000) });
        assert_eq!(urgent.recent.len(), 7);
        run(&mut urgent, (900_000, 910_000), false, 9_000);
        assert!(urgent.slower(Moment(910_000)).is_some());
    }
}
