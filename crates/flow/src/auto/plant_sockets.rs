//! The controller on many sockets as a kernel shows them: smoothed round trips, acknowledgements that come late because a
//! processor was busy or a receiver waited for more, bursts, and sockets that come from a full link and remember it. Once as
//! the proxy has it (a bucket, an in-flight cap, looks every 10 ms), once as attach mode has it (paced sockets that send
//! 64 KiB at a time on short ways, looks every 50 ms, and no cap). Every figure is of virtual time.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use super::*;
use crate::SessionId;
use crate::limiter::{TokenBucket, in_flight_bytes};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const STEP: Span = Span(100);
const STEP_S: f64 = 1e-4;
const LINK_BPS: f64 = 25e6;
/// What the link lets pass at once after a pause, as a token bucket filter does.
const LINK_BURST: f64 = 65_536.0;
const SEGMENT: f64 = 1_448.0;
/// When the class has begun and what stood there before has gone: figures count from here.
const SETTLED: f64 = 2.0;
/// How full the link is when the class begins.
const FULL_S: f64 = 0.06;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Proxy,
    Attach,
}

#[derive(Clone, Copy)]
struct Run {
    mode: Mode,
    streams: usize,
    base_rtt: Span,
    /// Share of acknowledgements that come up to 2 ms late because a processor was busy, and that are kept back for 40 ms or
    /// until the next.
    late: [f64; 2],
    /// Urgent bytes at a time, and every how many steps.
    urgent: (f64, i64),
    seconds: f64,
}

#[derive(Debug)]
struct Outcome {
    mean_ms: f64,
    p99_ms: f64,
    low_of_rest: f64,
}

/// A generator for the noise, the same at every run (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A socket as its kernel keeps it.
struct Socket {
    smoothed_us: f64,
    least_us: f64,
    segments_in: u32,
    delivered: f64,
    in_flight: f64,
    /// When its pacing lets it send again: set when it sends, and not changed by another rate.
    next_us: f64,
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Packet {
    socket: Option<usize>,
    bytes: f64,
    sent_us: f64,
}

/// First come, first served.
struct Link {
    queue: VecDeque<Packet>,
    backlog: f64,
    credit: f64,
}

impl Link {
    fn put(&mut self, socket: Option<usize>, bytes: f64, now_us: f64) {
        // Two acknowledgements for each burst.
        for _ in 0..2 {
            self.queue.push_back(Packet { socket, bytes: bytes / 2.0, sent_us: now_us });
        }
        self.backlog += bytes;
    }

    /// What has passed after one more step.
    fn carry(&mut self) -> Vec<Packet> {
        self.credit = (self.credit + LINK_BPS * STEP_S).min(LINK_BURST);
        let mut passed = Vec::new();
        while let Some(packet) = self.queue.front().copied().filter(|packet| packet.bytes <= self.credit) {
            self.credit -= packet.bytes;
            self.backlog -= packet.bytes;
            passed.push(packet);
            self.queue.pop_front();
        }
        passed
    }

    fn wait_ms(&self) -> f64 {
        (self.backlog - self.credit).max(0.0) / LINK_BPS * 1e3
    }
}

struct World {
    run: Run,
    dice: Dice,
    sockets: Vec<Socket>,
    link: Link,
    /// When, whose (as it was sent): by time.
    acks: BinaryHeap<Reverse<(i64, usize, i64, i64)>>,
    /// The one that each receiver keeps back: until when at most, as it was sent, how much.
    kept_back: Vec<Option<(i64, i64, i64)>>,
    next: usize,
}

impl World {
    fn new(run: Run) -> World {
        let base_us = run.base_rtt.0 as f64;
        let socket = |_| Socket {
            smoothed_us: FULL_S * 1e6,
            least_us: base_us,
            segments_in: 0,
            delivered: 0.0,
            in_flight: 0.0,
            next_us: 0.0,
        };
        let link = Link { queue: VecDeque::new(), backlog: 0.0, credit: 0.0 };
        let sockets: Vec<Socket> = (0..run.streams).map(socket).collect();
        let kept_back = vec![None; run.streams];
        let mut world = World { run, dice: Dice(7), sockets, link, acks: BinaryHeap::new(), kept_back, next: 0 };
        let mut full = FULL_S * LINK_BPS;
        while full > 0.0 {
            world.send(16_384.0, 0.0);
            full -= 16_384.0;
        }
        world
    }

    fn send(&mut self, bytes: f64, now_us: f64) {
        let turn = self.next % self.sockets.len();
        self.next += 1;
        self.send_on(turn, bytes, now_us);
    }

    fn send_on(&mut self, turn: usize, bytes: f64, now_us: f64) {
        self.sockets[turn].in_flight += bytes;
        self.link.put(Some(turn), bytes, now_us);
    }

    fn standing(&self) -> f64 {
        self.sockets.iter().map(|socket| (socket.in_flight - 2.0 * SEGMENT).max(0.0)).sum()
    }

    /// The link's step; returns bytes of the class that passed.
    fn step(&mut self, now: Moment) -> f64 {
        let mut low = 0.0;
        for packet in self.link.carry() {
            let Some(socket) = packet.socket else { continue };
            low += packet.bytes;
            let [busy, waits] = self.run.late;
            let late_us = self.dice.roll() * if self.dice.roll() < busy { 2_000.0 } else { 20.0 };
            let at = now.0 + self.run.base_rtt.0 + late_us as i64;
            // What was kept back goes with the next: the kernel measures by the oldest of them.
            let kept =
                self.kept_back[socket].take().map_or((packet.sent_us as i64, 0), |(_, sent, bytes)| (sent, bytes));
            let (sent_us, bytes) = (kept.0.min(packet.sent_us as i64), kept.1 + packet.bytes as i64);
            if self.dice.roll() < waits {
                self.kept_back[socket] = Some((at + 40_000, sent_us, bytes));
            } else {
                self.acks.push(Reverse((at, socket, sent_us, bytes)));
            }
        }
        for (socket, kept) in self.kept_back.iter_mut().enumerate() {
            if let Some((at, sent_us, bytes)) = kept.take_if(|kept| kept.0 <= now.0) {
                self.acks.push(Reverse((at, socket, sent_us, bytes)));
            }
        }
        while let Some(Reverse((at, number, sent_us, bytes))) = self.acks.peek().copied().filter(|ack| ack.0.0 <= now.0)
        {
            self.acks.pop();
            let socket = &mut self.sockets[number];
            let sample = (at - sent_us) as f64;
            socket.smoothed_us += (sample - socket.smoothed_us) / 8.0;
            socket.least_us = socket.least_us.min(sample);
            socket.segments_in += 1;
            socket.delivered += bytes as f64;
            socket.in_flight = (socket.in_flight - bytes as f64).max(0.0);
        }
        low
    }

    fn readings(&mut self) -> Vec<SocketReading> {
        let read = |(number, socket): (usize, &mut Socket)| SocketReading {
            session: SessionId(number as u64),
            peer: None,
            rtt: Span(socket.smoothed_us as i64),
            least: Some(Span(socket.least_us as i64)),
            delivered_bytes: std::mem::take(&mut socket.delivered) as u64,
            segment_bytes: SEGMENT as u64,
            segments_in: Some(socket.segments_in),
            usual_bps: (self.run.mode == Mode::Attach).then_some((LINK_BPS / self.run.streams as f64) as u64),
        };
        self.sockets.iter_mut().enumerate().map(read).collect()
    }
}

fn simulate(run: Run) -> Outcome {
    let mut world = World::new(run);
    let mut auto = match run.mode {
        Mode::Proxy => Auto::new(Moment(0), FLOOR_BPS),
        Mode::Attach => Auto::unbounded(Moment(0), FLOOR_BPS),
    };
    let mut bucket = TokenBucket::new(Moment(0), auto.rate_bps());
    let (mut waits, mut low) = (Vec::new(), 0.0);
    let (urgent_bytes, every) = run.urgent;
    let urgent_bps = urgent_bytes / (every as f64 * STEP_S);
    let (mut tick_at, mut looks) = (0, 0);
    for step in 0..(run.seconds / STEP_S) as i64 {
        let now = Moment(step * STEP.0);
        if step % every == 0 {
            if now.seconds() >= SETTLED {
                waits.push(world.link.wait_ms());
            }
            world.link.put(None, urgent_bytes, now.0 as f64);
        }
        match run.mode {
            Mode::Proxy => {
                let cap = in_flight_bytes(bucket.rate_bps(), auto.min_rtt().unwrap_or(TARGET), 16_384) as f64;
                let quantum = bucket.quantum_bytes();
                while world.standing() < cap && bucket.take_whole(now, quantum) {
                    world.send(quantum as f64, now.0 as f64);
                }
            }
            Mode::Attach => {
                let each = auto.rate_bps() as f64 / run.streams as f64;
                let each = if looks < 2 { each.max(FIRST_BPS as f64) } else { each };
                for turn in 0..run.streams {
                    let now_us = now.0 as f64;
                    if now_us >= world.sockets[turn].next_us {
                        let told = auto.spread_bps(SessionId(turn as u64), each as u64) as f64;
                        world.sockets[turn].next_us = now_us + 65_160.0 / told * 1e6;
                        world.send_on(turn, 65_160.0, now_us);
                    }
                }
            }
        }
        let passed = world.step(now);
        if now.seconds() >= SETTLED {
            low += passed;
        }
        if now.0 >= tick_at {
            let every = if run.mode == Mode::Proxy { TICK.0 } else { 5 * TICK.0 };
            tick_at = now.0 + every + (world.dice.roll() * 3_000.0) as i64;
            // What came since the look before is known at the second.
            let mut sockets = world.readings();
            looks += 1;
            if run.mode == Mode::Attach && looks < 2 {
                sockets.clear();
            }
            let rate = auto.tick(now, &Readings { sockets: &sockets, ..Readings::default() });
            bucket.set_rate(now, rate);
        }
    }
    waits.sort_by(f64::total_cmp);
    Outcome {
        mean_ms: waits.iter().sum::<f64>() / waits.len() as f64,
        p99_ms: waits[waits.len() * 99 / 100],
        low_of_rest: low / ((LINK_BPS - urgent_bps) * (run.seconds - SETTLED)),
    }
}

fn check(run: Run, most_mean_ms: f64, least_share: f64) {
    let outcome = simulate(run);
    eprintln!(
        "{:?}, {} sockets, {} us, late {:?}, {:?}: urgent waits {:.2} ms (p99 {:.2}), low class gets {:.1} % of the rest",
        run.mode,
        run.streams,
        run.base_rtt.0,
        run.late,
        run.urgent,
        outcome.mean_ms,
        outcome.p99_ms,
        outcome.low_of_rest * 100.0
    );
    assert!(outcome.mean_ms < most_mean_ms && outcome.low_of_rest > least_share, "{outcome:?}");
}

/// One part in a hundred of the link; and results of 100 kB each, thirty a second, of which each is a queue for 4 ms.
const TRICKLE: (f64, i64) = (1_250.0, 50);
const RESULTS: (f64, i64) = (100_000.0, 333);
const QUIET: [f64; 2] = [0.0, 0.0];
/// Small quanta end in a segment that is kept back more often than large ones.
const BUSY_PROXY: [f64; 2] = [0.1, 0.05];
const BUSY_ATTACH: [f64; 2] = [0.1, 0.01];

#[test]
fn sockets_from_a_full_link_find_its_rate_within_two_seconds_in_the_proxy() {
    for late in [QUIET, BUSY_PROXY] {
        for streams in [1, 3, 10] {
            for base in [70, 1_000, 10_000] {
                check(
                    Run { mode: Mode::Proxy, streams, base_rtt: Span(base), late, urgent: TRICKLE, seconds: 20.0 },
                    1.2,
                    0.88,
                );
            }
        }
    }
}

/// Three fifths of the link.
const HEAVY: (f64, i64) = (15_000.0, 10);

#[test]
fn where_urgent_work_fills_most_of_the_link_the_class_does_not_press() {
    for (streams, base) in [(1, 70), (3, 1_000), (10, 70), (10, 1_000)] {
        let run =
            Run { mode: Mode::Attach, streams, base_rtt: Span(base), late: BUSY_ATTACH, urgent: HEAVY, seconds: 30.0 };
        check(run, 1.5, 0.85);
    }
}

/// Nearly every acknowledgement late, as where receiver, sender and what is measured share two processors.
const HARDLY_A_PROCESSOR: [f64; 2] = [0.95, 0.01];

#[test]
fn one_socket_whose_acknowledgements_are_always_late_still_gets_most_of_the_link() {
    for (base, urgent) in [(70, TRICKLE), (1_000, TRICKLE), (70, RESULTS), (1_000, RESULTS)] {
        let run = Run {
            mode: Mode::Attach,
            streams: 1,
            base_rtt: Span(base),
            late: HARDLY_A_PROCESSOR,
            urgent,
            seconds: 20.0,
        };
        check(run, 0.5, 0.6);
    }
}

#[test]
fn sockets_from_a_full_link_find_its_rate_within_two_seconds_in_attach_mode() {
    for (late, urgent) in [QUIET, BUSY_ATTACH].into_iter().flat_map(|late| [(late, TRICKLE), (late, RESULTS)]) {
        // All begin at once here, and so do their bursts: of many it takes seconds until they are spread.
        for (streams, most_mean_ms, least_share) in [(1, 0.4, 0.85), (3, 0.7, 0.85), (10, 0.8, 0.85), (30, 3.0, 0.5)] {
            for base in [70, 1_000, 10_000] {
                let run = Run { mode: Mode::Attach, streams, base_rtt: Span(base), late, urgent, seconds: 20.0 };
                check(run, most_mean_ms, least_share);
            }
        }
    }
}
