//! A simulated link with a queue: the controller must keep the queue short for urgent work, use what is left, and never
//! fall under its floor. Every figure is of virtual time.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use super::*;
use crate::SessionId;
use crate::limiter::{Limiter, TokenBucket, in_flight_bytes};
use proptest::prelude::*;
use std::collections::VecDeque;

/// One step of the simulation.
const STEP: Span = Span(100);
const STEP_S: f64 = 1e-4;

/// What a run looks like.
struct Run {
    link_bps: fn(f64) -> f64,
    /// Urgent bytes a second at a time.
    urgent_bps: fn(f64) -> f64,
    base_rtt: Span,
    seconds: f64,
}

/// What came of it.
#[derive(Debug)]
struct Outcome {
    /// Queueing delay that urgent bytes met, in milliseconds.
    mean_ms: f64,
    p95_ms: f64,
    /// Bytes of both over what the link could have carried.
    used: f64,
    /// Share of what urgent work left that the low class got.
    low_of_rest: f64,
    least_rate_bps: u64,
}

impl Outcome {
    fn print(&self, name: &str) {
        eprintln!(
            "{name}: urgent waits {:.2} ms (p95 {:.2}), link used {:.1} %, low class gets {:.1} % of the rest",
            self.mean_ms,
            self.p95_ms,
            self.used * 100.0,
            self.low_of_rest * 100.0
        );
    }
}

/// A link that carries bytes in order, with half a round trip to it and half back.
struct Link {
    queue: VecDeque<(bool, f64)>,
    backlog: f64,
}

impl Link {
    /// Carries so many bytes; returns those of the low class.
    fn carry(&mut self, mut bytes: f64) -> (f64, f64) {
        let (mut low, mut all) = (0.0, 0.0);
        while bytes > 0.0
            && let Some((is_low, size)) = self.queue.front_mut()
        {
            let part = size.min(bytes);
            *size -= part;
            bytes -= part;
            all += part;
            if *is_low {
                low += part;
            }
            if *size <= 1e-9 {
                self.queue.pop_front();
            }
        }
        self.backlog = (self.backlog - all).max(0.0);
        (low, all)
    }

    fn put(&mut self, is_low: bool, bytes: f64) {
        if bytes > 0.0 {
            self.queue.push_back((is_low, bytes));
            self.backlog += bytes;
        }
    }
}

fn simulate(run: &Run) -> Outcome {
    let mut auto = Auto::new(Moment(0), FLOOR_BPS);
    let mut bucket = TokenBucket::new(Moment(0), auto.rate_bps());
    let mut link = Link { queue: VecDeque::new(), backlog: 0.0 };
    let (mut in_flight, mut delivered) = (0.0f64, 0.0f64);
    // Acknowledgements on their way back: when, bytes, and the round trip that they will show.
    let mut acks: VecDeque<(i64, f64)> = VecDeque::new();
    let mut rtts: VecDeque<(i64, i64)> = VecDeque::new();
    let mut rtt_seen = run.base_rtt;
    let (mut waits, mut carried, mut could, mut low_carried, mut urgent_sent) = (Vec::new(), 0.0, 0.0, 0.0, 0.0);
    let mut least_rate_bps = u64::MAX;
    let steps = (run.seconds / STEP_S) as i64;
    for step in 0..steps {
        let now = Moment(step * STEP.0);
        let (seconds, link_bps) = (now.seconds(), (run.link_bps)(now.seconds()));
        let urgent = (run.urgent_bps)(seconds) * STEP_S;
        urgent_sent += urgent;
        if urgent > 0.0 {
            waits.push(link.backlog / link_bps * 1e3);
        }
        link.put(false, urgent);
        let cap = in_flight_bytes(bucket.rate_bps(), auto.min_rtt().unwrap_or(TARGET), 16_384) as f64;
        let low = bucket.take(now, (cap - in_flight).max(0.0) as u64) as f64;
        rtts.push_back((now.0 + run.base_rtt.0, run.base_rtt.0 + (link.backlog / link_bps * 1e6) as i64));
        link.put(true, low);
        in_flight += low;
        let (low_out, out) = link.carry(link_bps * STEP_S);
        acks.push_back((now.0 + run.base_rtt.0, low_out));
        (carried, low_carried, could) = (carried + out, low_carried + low_out, could + link_bps * STEP_S);
        while acks.front().is_some_and(|(at, _)| *at <= now.0) {
            let (_, bytes) = acks.pop_front().unwrap();
            (in_flight, delivered) = (in_flight - bytes, delivered + bytes);
        }
        while rtts.front().is_some_and(|(at, _)| *at <= now.0) {
            rtt_seen = Span(rtts.pop_front().unwrap().1);
        }
        if step % (TICK.0 / STEP.0) == 0 {
            let sockets = [reading(rtt_seen, delivered as u64)];
            delivered = 0.0;
            let rate = auto.tick(now, &Readings { sockets: &sockets, ..Readings::default() });
            least_rate_bps = least_rate_bps.min(rate);
            bucket.set_rate(now, rate);
        }
    }
    waits.sort_by(f64::total_cmp);
    let mean_ms = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
    let p95_ms = waits.get(waits.len() * 95 / 100).copied().unwrap_or(0.0);
    Outcome { mean_ms, p95_ms, used: carried / could, low_of_rest: low_carried / (could - urgent_sent), least_rate_bps }
}

pub(super) fn reading(rtt: Span, delivered_bytes: u64) -> SocketReading {
    SocketReading {
        session: SessionId(1),
        peer: None,
        rtt,
        least: None,
        delivered_bytes,
        segment_bytes: 0,
        segments_in: None,
        usual_bps: None,
    }
}

const MBIT: f64 = 125_000.0;

#[test]
fn urgent_work_hardly_queues_and_the_rest_of_the_link_is_used() {
    let fifth = |_: f64| 200.0 * MBIT * 0.2;
    for (name, link_bps) in [("200 Mbit/s", (|_| 200.0 * MBIT) as fn(f64) -> f64), ("1 Gbit/s", |_| 1_000.0 * MBIT)] {
        for rtt_ms in [0, 1, 10] {
            let run = Run { link_bps, urgent_bps: fifth, base_rtt: Span(rtt_ms * 1_000 + 100), seconds: 30.0 };
            let outcome = simulate(&run);
            outcome.print(&format!("{name}, {rtt_ms} ms"));
            assert!(outcome.mean_ms < 1.0 && outcome.p95_ms < 2.5, "{outcome:?}");
            assert!(outcome.low_of_rest > 0.85, "{outcome:?}");
            assert!(outcome.least_rate_bps >= FLOOR_BPS);
        }
    }
}

#[test]
fn bursts_of_urgent_work_find_the_way_free_again_soon() {
    // Half the link, every other half second.
    let urgent_bps = |s: f64| if (s * 2.0) as i64 % 2 == 0 { 100.0 * MBIT } else { 0.0 };
    let run = Run { link_bps: |_| 200.0 * MBIT, urgent_bps, base_rtt: Span(500), seconds: 30.0 };
    let outcome = simulate(&run);
    outcome.print("bursts");
    assert!(outcome.mean_ms < 1.0, "{outcome:?}");
    assert!(outcome.low_of_rest > 0.6, "{outcome:?}");
}

#[test]
fn a_link_that_narrows_and_widens_is_followed() {
    let link_bps = |s: f64| if (10.0..20.0).contains(&s) { 50.0 * MBIT } else { 200.0 * MBIT };
    let run = Run { link_bps, urgent_bps: |_| 5.0 * MBIT, base_rtt: Span(1_000), seconds: 30.0 };
    let outcome = simulate(&run);
    outcome.print("narrowing");
    assert!(outcome.mean_ms < 1.0, "{outcome:?}");
    assert!(outcome.low_of_rest > 0.8, "{outcome:?}");
}

#[test]
fn without_urgent_work_it_takes_the_whole_link() {
    let run = Run { link_bps: |_| 200.0 * MBIT, urgent_bps: |_| 0.0, base_rtt: Span(200), seconds: 30.0 };
    let outcome = simulate(&run);
    outcome.print("alone");
    assert!(outcome.low_of_rest > 0.9, "{outcome:?}");
}

#[test]
fn a_rate_that_is_not_used_and_a_missing_signal_do_not_raise_it() {
    let mut auto = Auto::new(Moment(0), FLOOR_BPS);
    for tick in 1..500 {
        auto.tick(Moment(tick * TICK.0), &Readings::default());
        assert_eq!(auto.rate_bps(), FLOOR_BPS);
    }
    let sockets = [reading(Span(100), 10)];
    for tick in 500..900 {
        auto.tick(Moment(tick * TICK.0), &Readings { sockets: &sockets, ..Readings::default() });
        assert_eq!(auto.rate_bps(), FLOOR_BPS);
    }
}

proptest! {
    /// Whatever is read, the rate stays between its bounds and time may do what it likes.
    #[test]
    fn any_readings_are_survived(steps in prop::collection::vec(
        (any::<i64>(), any::<i64>(), any::<u32>(), prop::option::of(any::<(i64, i64)>())), 1..100,
    )) {
        let mut auto = Auto::new(Moment(0), FLOOR_BPS);
        for (at, rtt, delivered, urgent) in steps {
            let sockets = [reading(Span(rtt >> 2), u64::from(delivered))];
            let urgent: Vec<_> = urgent.iter().map(|(began, ended)| UrgentStatement { began: Moment(*began), ended: Moment(*ended) }).collect();
            let readings = Readings { sockets: &sockets, urgent: &urgent };
            let rate = auto.tick(Moment(at), &readings);
            prop_assert!((FLOOR_BPS..=1 << 40).contains(&rate));
        }
    }
}

#[test]
fn a_class_too_thin_to_show_its_round_trip_grows_on_what_it_delivers() {
    let mut auto = Auto::new(Moment(0), FLOOR_BPS);
    let tick = |auto: &mut Auto, number: i64, share: f64| {
        let delivered = (auto.rate_bps() as f64 * share * TICK.seconds()) as u64 / 10;
        // Ten sockets, each with the 40 ms of a delayed acknowledgement.
        let thin = |session| SocketReading {
            session: SessionId(session),
            segment_bytes: 100_000,
            ..reading(Span(40_000), delivered)
        };
        let sockets: Vec<_> = (0..10).map(thin).collect();
        auto.tick(Moment(number * TICK.0), &Readings { sockets: &sockets, ..Readings::default() })
    };
    let grown = (0..100).map(|number| tick(&mut auto, number, 1.0)).last().unwrap();
    assert!(grown > 10 * FLOOR_BPS, "{grown}");
    // What does not come through is no reason to send more, once what did is forgotten.
    let held = (100..250).map(|number| tick(&mut auto, number, 0.5)).last().unwrap();
    assert!(held < 2 * grown, "{grown}, {held}");
    assert_eq!((250..400).map(|number| tick(&mut auto, number, 0.5)).last().unwrap(), held);
}
