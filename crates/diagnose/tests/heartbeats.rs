//! Heartbeats are judged by the time-out of the run that sent them, and by no other.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::all_queues;
use backwater_model::{Finding, Window, catalogue as cat};
use common::judged::found;
use common::{Readings, meta};

/// A minute of beats, the last twenty of them answered after so many seconds.
fn window(slow_s: f64, timeout_s: Option<f64>) -> Window {
    beats(|second| if second < 40 { 2e-3 } else { slow_s }, timeout_s)
}

/// A minute of beats, each answered after so many seconds.
fn beats(answered_s: impl Fn(u32) -> f64, timeout_s: Option<f64>) -> Window {
    let (of, mut readings) = ([("target", "lab")], Readings::default());
    for second in 0..60 {
        let at = f64::from(second);
        readings.put(&cat::PG_HEARTBEATS, &of, at, at);
        readings.put(&cat::PG_HEARTBEATS_MISSED, &of, at, 0.0);
        readings.put(&cat::PG_HEARTBEAT, &of, at, answered_s(second) * 1e6);
    }
    let mut meta = meta();
    meta.targets[0].heartbeat_timeout_s = timeout_s;
    readings.window(meta, 0.0, 60.0)
}

fn climbing(window: &Window) -> Option<Finding> {
    found(window).into_iter().find(|finding| finding.rule == "heartbeat-at-risk")
}

#[test]
fn a_beat_is_slow_by_the_time_out_of_its_own_run() {
    let finding = climbing(&window(0.7, Some(1.0))).unwrap();
    assert_eq!((finding.cause.as_str(), finding.figure("heartbeat_timeout_ms")), ("climbing", Some(1_000.0)));
    assert_eq!(climbing(&window(0.7, Some(10.0))), None);
    assert!(climbing(&window(7.0, Some(10.0))).unwrap().summary.contains("given up after 10.0 s"));
}

#[test]
fn beats_that_are_all_slow_are_at_risk_and_slow_ones_far_from_the_time_out_are_not() {
    let all = |seconds: f64| climbing(&beats(|_| seconds, Some(1.0)));
    let finding = all(0.9).unwrap();
    assert_eq!((finding.cause.as_str(), finding.figure("heartbeat_missed")), ("climbing", Some(0.0)));
    assert_eq!(finding.figure("heartbeat_usual_ms"), Some(900.0));
    // What is usual, and leaves time: a server far away, or a slow disk.
    for usual in [0.002, 0.3, 0.6] {
        assert_eq!(all(usual), None, "{usual}");
    }
    // Beats that double and stay below four fifths are no three times as slow.
    assert_eq!(climbing(&beats(|second| if second < 40 { 0.35 } else { 0.7 }, Some(1.0))), None);
}

#[test]
fn without_a_known_time_out_none_is_supposed() {
    let told = |timeout_s: Option<f64>| {
        let window = window(0.7, timeout_s);
        let queue = all_queues(&window).into_iter().find(|queue| queue.name == "pg.heartbeat").unwrap();
        (climbing(&window).is_some(), queue.hard_limit.value(&window, window.to, 1.0))
    };
    assert_eq!((told(None), told(Some(1.0))), ((false, None), (true, Some(1e6))));
}

/// A minute of beats of which none is answered from the fortieth second on, and nothing comes late, of a server that is a standby
/// in some seconds.
fn unanswered(is_standby: impl Fn(u32) -> bool) -> Option<Finding> {
    let (of, mut readings) = ([("target", "lab")], Readings::default());
    for second in 0..60_u32 {
        let at = f64::from(second);
        readings.put(&cat::PG_HEARTBEATS, &of, at, f64::from(second.min(39)));
        readings.put(&cat::PG_HEARTBEATS_MISSED, &of, at, f64::from(second.saturating_sub(39)));
        if second < 40 {
            readings.put(&cat::PG_HEARTBEAT, &of, at, 2_000.0);
        }
        let position = if is_standby(second) { &cat::PG_WAL_REPLAY } else { &cat::PG_WAL_INSERT };
        readings.put(position, &of, at, 1e9 + at);
    }
    let mut meta = meta();
    meta.targets[0].heartbeat_timeout_s = Some(1.0);
    climbing(&readings.window(meta, 0.0, 60.0))
}

#[test]
fn a_beat_without_an_answer_took_the_time_out_at_least() {
    let finding = unanswered(|_| false).unwrap();
    let p99 = finding.evidence.iter().find(|figure| figure.name == "heartbeat_p99_ms").unwrap();
    assert_eq!(p99.value, 1_000.0, "those that were answered took 2 ms");
    assert!(p99.label.contains("at least"), "{}", p99.label);
    let all_answered = climbing(&window(0.7, Some(1.0))).unwrap();
    assert!(all_answered.evidence.iter().all(|figure| !figure.label.contains("at least")), "{all_answered:?}");
}

#[test]
fn a_standby_is_not_judged_and_one_that_was_promoted_is() {
    assert_eq!(unanswered(|_| true), None);
    for promoted_at in [1, 30, 50] {
        let finding = unanswered(|second| second < promoted_at).unwrap();
        assert_eq!(finding.cause, "missed", "promoted at {promoted_at}");
    }
    // What was missed before is not counted.
    let promoted = unanswered(|second| second < 50).unwrap();
    assert_eq!(promoted.figure("heartbeat_missed"), Some(10.0));
}

#[test]
fn what_was_missed_before_a_primary_came_back_as_a_standby_is_told() {
    let demoted = unanswered(|second| second >= 50).unwrap();
    assert_eq!((demoted.cause.as_str(), demoted.figure("heartbeat_missed")), ("missed", Some(11.0)));
    assert!(demoted.to.seconds() <= 50.0, "{:?}", demoted.to);
    // A standby for a while in between: neither what it missed then, nor what it missed in all.
    let both = unanswered(|second| (45..50).contains(&second)).unwrap();
    assert_eq!(both.figure("heartbeat_missed"), Some(6.0 + 10.0));
    // Nothing was missed before.
    assert_eq!(unanswered(|second| second >= 38), None);
}
