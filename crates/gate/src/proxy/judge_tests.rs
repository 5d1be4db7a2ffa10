#![allow(clippy::unwrap_used)]
use super::super::control::Control;
use super::super::follow::Follow;
use super::super::live::Identity;
use super::super::pools::LivePool;
use super::super::server_view::ServerView;
use super::super::{Address, ProxyConfig};
use super::*;
use crate::wire::{Side, Tracker};

/// A judge, and a session of a pool with a rule that aborts whatever has waited.
struct Court {
    bench: Bench,
    follow: Follow,
    rule: Rule,
    at: Moment,
}

impl Court {
    fn new() -> Court {
        let nowhere = || Address::Unix("/nonexistent".into());
        let (view, _) = ServerView::new();
        let (visits, _visited) = mpsc::unbounded_channel();
        let control = Control::new(&ProxyConfig::plain(nowhere(), nowhere()), Arc::new(|_| ()), visits, view, None);
        let live = Live::new(Identity::of_test(SessionId(1)), LivePool::new("p", PoolId(0)), false);
        let mut follow = Follow::new(Tracker::new(), live);
        follow.pass(Side::Down, b"K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I");
        let thresholds = BTreeMap::from([(Attribute::BlockTime, Some(1.0))]);
        let rule = Rule { thresholds, action: Action::Abort, cooldown_s: 60.0 };
        Court { bench: Bench::new(control), follow, rule, at: clock::now() }
    }

    /// Two seconds later, by what was known of the session then.
    fn look(&mut self, glimpse: Glimpse) {
        self.at = self.at + Span::from_millis(2_000);
        let (control, rules) = (Arc::clone(&self.bench.control), [("r", &self.rule)]);
        let terms = control.terms();
        let round = Round { now: self.at, control: &control, terms: &terms, told_at: None, news: false };
        self.bench.look_at(&self.follow.live, glimpse, &rules, &round);
    }

    fn now(&self) -> Glimpse {
        self.follow.live.glimpse(self.at + Span::from_millis(2_000))
    }

    /// Looks at it while it waits for its turn, which comes before anything is done about it.
    fn look_too_late(&mut self) {
        self.follow.live.waits(self.at);
        let waiting = self.now();
        assert!(waiting.is_waiting && self.follow.live.waited(waiting.since + waiting.waited));
        self.look(waiting);
        assert_eq!((self.cancels(), self.follow.live.ending().is_some()), (0, false), "it has not begun");
    }

    fn begins(&mut self) {
        self.follow.pass(Side::Up, b"Q\0\0\0\x04");
    }

    fn cancels(&self) -> u64 {
        self.bench.control.counters.cancels.load(Ordering::Relaxed)
    }
}

#[test]
fn an_abort_whose_statement_just_got_its_turn_is_sent_once_that_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    for looked_at_between in [false, true] {
        let mut court = Court::new();
        court.look_too_late();
        if looked_at_between {
            court.look(court.now());
            assert_eq!(court.cancels(), 0, "nothing runs");
        }
        court.begins();
        for _ in 0..2 {
            court.look(court.now());
            assert_eq!(
                court.cancels(),
                1,
                "cancelled once, whether it was looked at between or not: {looked_at_between}"
            );
        }
    }
}

#[test]
fn an_abort_whose_statement_has_ended_reaches_no_other() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let mut court = Court::new();
    court.look_too_late();
    court.begins();
    court.follow.pass(Side::Down, b"Z\0\0\0\x05I");
    court.begins();
    court.look(court.now());
    assert_eq!(court.cancels(), 0);
}
