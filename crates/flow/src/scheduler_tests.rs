//! What the scheduler promises, against a model that only adds and subtracts, and with real bytes.

#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

const HIGH: PoolId = PoolId(1);

fn with(sessions: &[(u64, u32, Priority, u64)]) -> Scheduler {
    let mut scheduler = Scheduler::new();
    for (id, pool, priority, bytes) in sessions {
        scheduler.place(SessionId(*id), PoolId(*pool), *priority);
        scheduler.offer(SessionId(*id), *bytes);
    }
    scheduler
}

#[test]
fn a_demoted_session_keeps_what_it_has_to_send() {
    let mut scheduler = with(&[(1, 1, Priority::High, 100), (2, 1, Priority::High, 100)]);
    scheduler.place(SessionId(1), HIGH, Priority::Low);
    assert_eq!(scheduler.next(u64::MAX, 0).unwrap().session, SessionId(2));
    assert_eq!(scheduler.next(u64::MAX, 0), None);
    let turn = scheduler.next(u64::MAX, 60).unwrap();
    assert_eq!(turn, Turn { session: SessionId(1), bytes: 60, priority: Priority::Low });
    assert_eq!(scheduler.close(SessionId(1)), 40);
    assert_eq!(scheduler.next(u64::MAX, u64::MAX), None);
}

#[derive(Clone, Debug)]
enum Step {
    Offer(u64, u64),
    Place(u64, u32, bool),
    Close(u64),
    Withdraw(u64),
    Next(u64, u64),
    /// Not all of the last turn could be sent.
    Unsent(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = 0..8u64;
    let step = prop_oneof![
        4 => (session.clone(), 0..200_000u64).prop_map(|(id, bytes)| Step::Offer(id, bytes)),
        2 => (session.clone(), 0..4u32, any::<bool>()).prop_map(|(id, pool, low)| Step::Place(id, pool, low)),
        1 => session.clone().prop_map(Step::Close),
        1 => session.prop_map(Step::Withdraw),
        8 => (0..100_000u64, 0..50_000u64).prop_map(|(most, low)| Step::Next(most, low)),
        2 => (0..100_000u64).prop_map(Step::Unsent),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// Every byte offered is sent once, given back at the close, or still waits; urgent before low; nobody idle
    /// while somebody may send.
    #[test]
    fn no_byte_is_lost_and_urgent_never_waits(steps in steps()) {
        let mut scheduler = Scheduler::new();
        let mut model: BTreeMap<u64, (Priority, u64)> = BTreeMap::new();
        let mut last: Option<Turn> = None;
        for step in steps {
            match step {
                Step::Offer(id, bytes) => {
                    scheduler.offer(SessionId(id), bytes);
                    if let Some(known) = model.get_mut(&id) { known.1 += bytes }
                }
                Step::Place(id, pool, low) => {
                    let priority = if low { Priority::Low } else { Priority::High };
                    scheduler.place(SessionId(id), PoolId(pool), priority);
                    model.entry(id).or_insert((priority, 0)).0 = priority;
                }
                Step::Close(id) => {
                    let left = scheduler.close(SessionId(id));
                    prop_assert_eq!(left, model.remove(&id).map_or(0, |known| known.1));
                }
                Step::Withdraw(id) => {
                    let known = model.get_mut(&id).map(|known| std::mem::take(&mut known.1));
                    prop_assert_eq!(scheduler.withdraw(SessionId(id)), known.unwrap_or(0));
                }
                Step::Next(most, low) => {
                    let waits = |level| model.values().filter(|known| known.0 == level).map(|known| known.1).sum::<u64>();
                    let (high_waits, low_waits) = (waits(Priority::High), waits(Priority::Low));
                    prop_assert_eq!(scheduler.backlog_bytes(Priority::High), high_waits);
                    prop_assert_eq!(scheduler.backlog_bytes(Priority::Low), low_waits);
                    last = scheduler.next(most, low);
                    let may = most > 0 && (high_waits > 0 || low_waits > 0 && low > 0);
                    prop_assert_eq!(last.is_some(), may, "work-conserving");
                    if let Some(turn) = last {
                        let known = model.get_mut(&turn.session.0).unwrap();
                        prop_assert_eq!(turn.priority, known.0);
                        prop_assert!(high_waits == 0 || turn.priority == Priority::High);
                        prop_assert!(turn.bytes > 0 && turn.bytes <= most.min(known.1));
                        prop_assert!(turn.priority == Priority::High || turn.bytes <= low);
                        known.1 -= turn.bytes;
                    }
                }
                Step::Unsent(bytes) => {
                    if let Some(turn) = last.take() {
                        let back = bytes.min(turn.bytes);
                        scheduler.offer(turn.session, back);
                        if let Some(known) = model.get_mut(&turn.session.0) { known.1 += back }
                    }
                }
            }
        }
    }

    /// Backlogged pools share by weight, and none waits longer than the stated bound; so do sessions of a pool.
    #[test]
    fn shares_follow_weights_and_nobody_starves(
        weights in prop::collection::vec(1..=100u32, 1..5), per_pool in 1..4u64, mosts in prop::collection::vec(1..60_000u64, 500),
    ) {
        let mut scheduler = Scheduler::new();
        for (pool, weight) in weights.iter().enumerate() {
            scheduler.set_weight(PoolId(pool as u32), *weight);
            for number in 0..per_pool {
                let id = SessionId(pool as u64 * 10 + number);
                scheduler.place(id, PoolId(pool as u32), Priority::Low);
                scheduler.offer(id, 1 << 40);
            }
        }
        let most_bytes = mosts.iter().copied().max().unwrap();
        let quantum = most_bytes as f64;
        let weight = |pool: usize| f64::from(weights[pool]);
        let mut sent = vec![0u64; weights.len()];
        // What each pool had sent at the last turn of each pool, and each session at the last turn of each session.
        let mut at_turn: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let mut waited: BTreeMap<u64, u64> = BTreeMap::new();
        for most in mosts {
            let turn = scheduler.next(most, u64::MAX).unwrap();
            let pool = (turn.session.0 / 10) as usize;
            if let Some(before) = at_turn.insert(pool, sent.clone()) {
                for other in (0..weights.len()).filter(|other| *other != pool) {
                    let bound = quantum * (1.0 + weight(other) / weight(pool)) + 1.0;
                    prop_assert!((sent[other] - before[other]) as f64 <= bound);
                }
            }
            sent[pool] += turn.bytes;
            for (_, wait) in waited.iter_mut().filter(|(number, _)| (*number / 10) as usize == pool) {
                *wait += turn.bytes;
            }
            let within = waited.insert(turn.session.0, 0).unwrap_or(0).saturating_sub(turn.bytes);
            prop_assert!(within <= (per_pool - 1) * most_bytes);
            for (one, other) in (0..weights.len()).flat_map(|a| (0..weights.len()).map(move |b| (a, b))) {
                let gap = sent[one] as f64 / weight(one) - sent[other] as f64 / weight(other);
                prop_assert!(gap <= quantum / weight(one) + quantum / weight(other) + 1.0, "{sent:?} {weights:?}");
            }
        }
    }
}

/// Pools that ask for one turn at a time, and again only after it, still share by weight.
#[test]
fn weights_hold_for_pools_that_are_empty_after_each_turn() {
    let mut scheduler = Scheduler::new();
    let mut sent = [0u64; 2];
    for (number, weight) in [(0, 1), (1, 9)] {
        scheduler.set_weight(PoolId(number), weight);
        scheduler.place(SessionId(u64::from(number)), PoolId(number), Priority::Low);
        scheduler.offer(SessionId(u64::from(number)), LEAST_QUANTUM_BYTES);
    }
    for _ in 0..1_000 {
        let turn = scheduler.next(LEAST_QUANTUM_BYTES, LEAST_QUANTUM_BYTES).unwrap();
        sent[turn.session.0 as usize] += turn.bytes;
        scheduler.offer(turn.session, turn.bytes);
    }
    assert_eq!(sent[0] / LEAST_QUANTUM_BYTES, 100, "{sent:?}");
}

proptest! {
    /// The bytes themselves, through buffers as a relay keeps them: each stream arrives whole, however long the turns
    /// are and however much of one a full socket takes.
    #[test]
    fn streams_arrive_whole(
        lengths in prop::collection::vec(0..20_000_u32, 1..8),
        (most, low) in (64..9_000_u64, 64..9_000_u64),
        taken in prop::collection::vec(1..=100_u64, 1..9),
    ) {
        let stream = |(id, length): (usize, &u32)| -> Vec<u8> {
            (0..*length).map(|at| (at.wrapping_mul(31) as u8) ^ id as u8).collect()
        };
        let streams: Vec<Vec<u8>> = lengths.iter().enumerate().map(stream).collect();
        let mut scheduler = Scheduler::new();
        for (id, stream) in streams.iter().enumerate() {
            let priority = if id % 2 == 0 { Priority::High } else { Priority::Low };
            scheduler.place(SessionId(id as u64), PoolId(id as u32 % 3), priority);
            scheduler.offer(SessionId(id as u64), stream.len() as u64);
        }
        let mut arrived = vec![Vec::new(); streams.len()];
        let mut percents = taken.iter().cycle();
        while let Some(turn) = scheduler.next(most, low) {
            let id = turn.session.0 as usize;
            let from = arrived[id].len();
            let sent = (turn.bytes * percents.next().unwrap()).div_ceil(100);
            arrived[id].extend_from_slice(&streams[id][from..from + sent as usize]);
            scheduler.offer(turn.session, turn.bytes - sent);
        }
        prop_assert_eq!(arrived, streams);
    }
}
