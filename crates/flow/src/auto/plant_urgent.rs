//! A simulated server whose urgent statements are slowed by the low class, by something else, or by nothing, behind a way on
//! which nothing ever queues. Every figure is of virtual time.

#![allow(clippy::unwrap_used)]

use super::plant::reading;
use super::*;

const MB: f64 = 1e6;
/// What a statement takes alone.
const ALONE_MS: f64 = 2.0;
/// What the way carries of the class.
const WAY_BPS: f64 = 100.0 * MB;

/// The class's rate and the urgent statements' latency, tick by tick.
struct Outcome {
    rates_bps: Vec<f64>,
    latencies_ms: Vec<f64>,
}

impl Outcome {
    fn mean(of: &[f64], (from_s, to_s): (usize, usize)) -> f64 {
        let some = &of[from_s * 100..to_s * 100];
        some.iter().sum::<f64>() / some.len() as f64
    }

    fn rate_mb(&self, between_s: (usize, usize)) -> f64 {
        Outcome::mean(&self.rates_bps, between_s) / MB
    }

    fn latency_ms(&self, between_s: (usize, usize)) -> f64 {
        Outcome::mean(&self.latencies_ms, between_s)
    }
}

/// Two statements a tick, whose latency follows from the time in seconds and the class's rate.
fn simulate(seconds: i64, latency_ms: impl Fn(f64, f64) -> f64) -> Outcome {
    let mut auto = Auto::new(Moment(0), FLOOR_BPS);
    let mut running: Vec<UrgentStatement> = Vec::new();
    let mut outcome = Outcome { rates_bps: Vec::new(), latencies_ms: Vec::new() };
    for tick in 0..seconds * 100 {
        let (before, now) = (Moment(tick * TICK.0), Moment((tick + 1) * TICK.0));
        let sent_bps = (auto.rate_bps() as f64).min(WAY_BPS);
        let takes_ms = latency_ms(before.seconds(), sent_bps);
        running.extend([1, 5_000].map(|after| {
            let began = before + Span(after);
            UrgentStatement { began, ended: began + Span((takes_ms * 1e3) as i64) }
        }));
        let ended: Vec<_> = running.extract_if(.., |statement| statement.ended <= now).collect();
        let sockets = [reading(Span(100), (sent_bps * TICK.seconds()) as u64)];
        let before_bps = auto.rate_bps();
        auto.tick(now, &Readings { sockets: &sockets, urgent: &ended });
        let lowered = auto.rate_bps() < before_bps && !auto.is_refreshing();
        assert_eq!(lowered, lowered && auto.urgent_slower_by().is_some(), "nothing else lowers it here");
        outcome.rates_bps.push(sent_bps);
        outcome.latencies_ms.push(takes_ms);
    }
    outcome
}

/// A server that the class takes so much of, which the statements then wait for.
fn contended(sent_bps: f64, capacity_bps: f64) -> f64 {
    ALONE_MS / (1.0 - (sent_bps / capacity_bps).min(0.95))
}

#[test]
fn a_server_that_the_class_slows_down_is_left_to_urgent_work() {
    let outcome = simulate(60, |_, sent_bps| contended(sent_bps, 60.0 * MB));
    let (latency_ms, rate_mb) = (outcome.latency_ms((12, 60)), outcome.rate_mb((12, 60)));
    // It begins without a baseline, which the first refresh gives. Half as much again is allowed, which a third of what the server can do comes to.
    assert!(latency_ms < 1.6 * ALONE_MS, "{latency_ms}");
    assert!((12.0..25.0).contains(&rate_mb), "{rate_mb}");
}

#[test]
fn statements_that_the_class_does_not_slow_leave_it_the_way() {
    let outcome = simulate(60, |_, _| ALONE_MS);
    assert!(outcome.rate_mb((5, 60)) > 0.9 * WAY_BPS / MB, "{}", outcome.rate_mb((5, 60)));
}

#[test]
fn a_server_that_becomes_slower_under_the_class_and_recovers_is_followed() {
    let slow = |seconds: f64| (20.0..40.0).contains(&seconds);
    let outcome =
        simulate(60, |seconds, sent_bps| contended(sent_bps, if slow(seconds) { 12.0 * MB } else { 1e4 * MB }));
    let (before, during, after) = (outcome.rate_mb((10, 20)), outcome.rate_mb((22, 40)), outcome.rate_mb((45, 60)));
    assert!(during < 0.1 * before && after > 0.8 * before, "{before} {during} {after}");
    assert!(outcome.latency_ms((22, 40)) < 2.0 * ALONE_MS, "{}", outcome.latency_ms((22, 40)));
}

#[test]
fn a_server_that_is_slow_without_the_class_holds_it_back_for_a_moment_only() {
    let outcome = simulate(60, |seconds, _| if seconds < 20.0 { ALONE_MS } else { 4.0 * ALONE_MS });
    let least = outcome.rates_bps[2_000..2_500].iter().copied().fold(f64::MAX, f64::min);
    assert_eq!(least, FLOOR_BPS as f64);
    let after = outcome.rate_mb((30, 60));
    assert!(after > 0.8 * WAY_BPS / MB, "{after}");
}
