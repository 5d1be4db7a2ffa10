//! The class's grants, in virtual time and with real sockets.

#![allow(clippy::unwrap_used)]

use super::*;
use backwater_flow::{LEAST_QUANTUM_BYTES, MOST_QUANTUM_BYTES};
use backwater_model::Span;
use std::io::Write;
use std::os::fd::AsFd;

const RATE: u64 = 100 << 20;

fn class(pools: &[(u32, u32, Option<u64>)]) -> LowClass {
    LowClass::new(
        LowPriorityBandwidth::Fixed(RATE),
        pools.iter().map(|(id, weight, bandwidth_bps)| LowPool {
            id: PoolId(*id),
            weight: *weight,
            bandwidth_bps: *bandwidth_bps,
        }),
    )
}

/// A session as of a network, but with no socket to look at.
fn open(class: &LowClass, session: u64, pool: u32) -> LowSession {
    let mut session = local(class, session, pool);
    session.uses_link = true;
    session
}

/// A session whose client came by a Unix socket.
fn local(class: &LowClass, session: u64, pool: u32) -> LowSession {
    class.open(SessionId(session), PoolId(pool), Ok(None))
}

/// Sessions that always want more, for a second of virtual time. Returns the bytes of each.
fn drive(class: &LowClass, sessions: &[LowSession]) -> Vec<u64> {
    drive_from(class, sessions, clock::now() + Span::from_millis(1_000))
}

fn drive_from(class: &LowClass, sessions: &[LowSession], begun: Moment) -> Vec<u64> {
    let mut inner = class.lock();
    let mut sent = vec![0; sessions.len()];
    let mut now = begun;
    while now < begun + Span::from_millis(1_000) {
        for (number, session) in sessions.iter().enumerate() {
            let waiting = inner.waiting.get(&session.session);
            let granted = waiting.map(|waiting| waiting.granted);
            if granted.is_none_or(|granted| granted.is_some()) {
                sent[number] += granted.flatten().map_or(0, |grant| grant.bytes);
                inner.ask(session);
            }
        }
        let next = inner.grant(now);
        // Whoever was granted something asks again before time goes on.
        if !inner.waiting.values().any(|waiting| waiting.granted.is_some()) {
            now = next.unwrap().max(now + Span(1));
        }
    }
    sent
}

#[test]
fn a_class_is_shared_by_weight_and_held_to_its_rate() {
    let class = class(&[(1, 1, None), (2, 3, None)]);
    let sessions = [open(&class, 1, 1), open(&class, 2, 2), open(&class, 3, 2)];
    let sent = drive(&class, &sessions);
    let total: u64 = sent.iter().sum();
    assert!(total.abs_diff(RATE) < RATE / 100, "{sent:?}");
    let share = sent[0] as f64 / total as f64;
    assert!((share - 0.25).abs() < 0.02, "{sent:?}");
}

#[test]
fn at_a_high_rate_what_accrues_goes_together_and_nothing_is_lost() {
    let rate = 1_000_000_000;
    let pool = LowPool { id: PoolId(1), weight: 1, bandwidth_bps: None };
    let class = LowClass::new(LowPriorityBandwidth::Fixed(rate), [pool]);
    let sessions = [open(&class, 1, 1)];
    let begun = clock::now();
    let sent = drive_from(&class, &sessions, begun)[0];
    assert!(sent.abs_diff(rate) < rate / 1_000, "{sent}");
    // A quantum takes 131 microseconds at that rate.
    let mut inner = class.lock();
    let now = begun + Span::from_millis(1_001);
    let next = loop {
        let next = inner.grant(now);
        if inner.waiting.values().all(|waiting| waiting.granted.is_none()) {
            break next;
        }
        inner.ask(&sessions[0]);
    };
    assert_eq!(next, Some(now + LEAST_SLEEP));
}

#[test]
fn a_pool_with_a_bandwidth_does_not_keep_the_others_from_theirs() {
    let class = class(&[(1, 100, Some(10 << 20)), (2, 1, None)]);
    let sessions = [open(&class, 1, 1), open(&class, 2, 2)];
    let sent = drive(&class, &sessions);
    assert!(sent[0].abs_diff(10 << 20) < 1 << 18, "{sent:?}");
    assert!(sent[1].abs_diff(90 << 20) < 1 << 20, "{sent:?}");
}

#[test]
fn a_session_that_waited_for_more_than_a_slower_class_gives_at_once_gets_less_and_pays_less() {
    let (fast, slow) = (1_000_000_000, 1_000_000);
    let pool = LowPool { id: PoolId(1), weight: 1, bandwidth_bps: Some(fast) };
    let class = LowClass::new(LowPriorityBandwidth::Fixed(fast), [pool]);
    let session = open(&class, 1, 1);
    let mut inner = class.lock();
    let begun = clock::now();
    let mut now = begun;
    // The class has nothing left, its pool has.
    inner.class.charge(now, 1_000_000);
    inner.ask(&session);
    inner.grant(now);
    assert_eq!(inner.scheduler.session_backlog_bytes(SessionId(1)), Some(MOST_QUANTUM_BYTES));
    let of_pool = |inner: &Inner, now| inner.pools[&PoolId(1)].bucket.as_ref().unwrap().available(now);
    let before = of_pool(&inner, begun);
    inner.allow(now, LowPriorityBandwidth::Fixed(slow));
    while inner.waiting[&SessionId(1)].granted.is_none() {
        now = inner.grant(now).unwrap_or(now);
    }
    assert_eq!(inner.waiting[&SessionId(1)].granted.unwrap().bytes, LEAST_QUANTUM_BYTES);
    assert_eq!(inner.scheduler.session_backlog_bytes(SessionId(1)), Some(0));
    // As it was then, but for what it got back.
    assert_eq!(of_pool(&inner, begun), before + MOST_QUANTUM_BYTES - LEAST_QUANTUM_BYTES);
}

#[test]
fn a_session_that_leaves_takes_nothing_with_it() {
    let class = class(&[(1, 1, Some(RATE))]);
    let now = clock::now() + Span::from_millis(1);
    let of = |inner: &Inner, now| {
        (inner.class.available(now), inner.pools[&PoolId(1)].bucket.as_ref().unwrap().available(now))
    };
    let before = of(&class.lock(), now);
    // Once with what it was granted, once while it waits for the class and its pool has paid.
    for spent in [0, 10_000_000] {
        let session = open(&class, 1, 1);
        let mut inner = class.lock();
        inner.class.charge(now, spent);
        let class_before = inner.class.available(now);
        inner.ask(&session);
        inner.grant(now);
        assert_eq!(inner.waiting[&SessionId(1)].granted.is_some(), spent == 0);
        drop(inner);
        drop(session);
        let inner = class.lock();
        assert_eq!(of(&inner, now), (class_before, before.1));
        assert!(inner.waiting.is_empty() && inner.pools[&PoolId(1)].sessions.is_empty());
    }
}

#[test]
fn a_way_that_is_full_costs_no_credit_and_nobody_saves_any_up() {
    let class = class(&[(1, 1, None)]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    let socket = || server.as_fd().try_clone_to_owned().unwrap();
    let session = class.open(SessionId(1), PoolId(1), Ok(Some(socket())));
    // As if a link lay between.
    class.lock().sockets.add_on_its_way(SessionId(1), socket(), false);
    // Paced to a crawl, what is written stands.
    backwater_socket::set_pacing_rate(&server, Some(1_000)).unwrap();
    server.write_all(&[1; 1_000_000]).unwrap();
    let now = clock::now() + Span::from_millis(1);
    let mut inner = class.lock();
    // A bound that the peer's first window fills by itself.
    inner.sockets.bound(1 << 20, Some(Span(0)));
    inner.ask(&session);
    assert_eq!(inner.grant(now), Some(now + ROOM_LOOK));
    let worth = |span: Span| RATE * span.0.unsigned_abs() / 1_000_000;
    let (late, long) = (Span::from_millis(50), Span::from_millis(1_000));
    assert!(inner.class.available(now + late) >= worth(late));
    assert!(inner.class.available(now + long) < worth(Span::from_millis(102)));
    drop(inner);
    drop(session);
    let inner = class.lock();
    assert_eq!(inner.class.available(clock::now() + long), inner.class.burst_bytes());
}

#[test]
fn to_a_client_elsewhere_goes_less_at_once_and_what_it_had_no_use_for_is_not_on_its_way() {
    let rate = 1_000_000_000;
    for (within_host, most) in [(true, MOST_QUANTUM_BYTES), (false, 32 << 10)] {
        let pool = LowPool { id: PoolId(1), weight: 1, bandwidth_bps: None };
        let class = LowClass::new(LowPriorityBandwidth::Fixed(rate), [pool]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        let socket = || server.as_fd().try_clone_to_owned().unwrap();
        let mut session = class.open(SessionId(1), PoolId(1), Ok(Some(socket())));
        let now = clock::now() + Span::from_millis(1);
        let mut inner = class.lock();
        inner.sockets.add_on_its_way(SessionId(1), socket(), within_host);
        // The least that a bound is: one piece fills it.
        inner.sockets.bound(1, Some(Span(0)));
        inner.ask(&session);
        inner.grant(now);
        assert_eq!(inner.waiting.remove(&SessionId(1)).unwrap().granted.unwrap().bytes, most);
        assert_eq!(inner.sockets.has_room(now), within_host);
        drop(inner);
        session.unused(most.try_into().unwrap());
        assert!(class.lock().sockets.has_room(now));
    }
}

#[test]
fn a_rate_that_changes_holds_from_then_on() {
    let class = class(&[(1, 1, None)]);
    let sessions = [open(&class, 1, 1), open(&class, 2, 1)];
    drive(&class, &sessions);
    let pools = [LowPool { id: PoolId(1), weight: 1, bandwidth_bps: Some(20 << 20) }];
    class.set(LowPriorityBandwidth::Fixed(50 << 20), pools);
    assert_eq!(class.pressure().0, 50 << 20);
    let total: u64 = drive_from(&class, &sessions, clock::now() + Span::from_millis(4_000)).iter().sum();
    assert!(total.abs_diff(20 << 20) < 1 << 20, "the pool's own bandwidth binds: {total}");
    class.set(LowPriorityBandwidth::Fixed(50 << 20), []);
    let total: u64 = drive_from(&class, &sessions, clock::now() + Span::from_millis(8_000)).iter().sum();
    assert!(total.abs_diff(50 << 20) < 2 << 20, "{total}");
}

#[test]
fn a_rate_that_is_found_begins_at_the_floor_and_a_fixed_one_takes_its_place() {
    let class = class(&[]);
    assert_eq!(class.found(), None);
    class.set(LowPriorityBandwidth::Auto, []);
    assert_eq!((class.pressure().0, class.found()), (FLOOR_BPS, Some(Found::default())));
    // Set again, it goes on where it is.
    class.set(LowPriorityBandwidth::Auto, []);
    class.set(LowPriorityBandwidth::Fixed(RATE), []);
    assert_eq!((class.pressure().0, class.found()), (RATE, None));
}

#[test]
fn a_rate_that_is_found_holds_nobody_who_uses_no_link() {
    let class = class(&[(1, 1, None), (2, 1, Some(50 << 20))]);
    class.set(LowPriorityBandwidth::Auto, [LowPool { id: PoolId(2), weight: 1, bandwidth_bps: Some(50 << 20) }]);
    // A client of the network that is idle: the rate is looked for, and nothing of it is delivered.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    let _idle = class.open(SessionId(9), PoolId(1), Ok(Some(server.as_fd().try_clone_to_owned().unwrap())));
    class.lock().look(clock::now());
    let before = class.lock().class.available(clock::now());
    // One that no bandwidth holds is granted all that it asks for.
    let free = local(&class, 1, 1);
    for _ in 0..10_000 {
        let mut inner = class.lock();
        inner.ask(&free);
        inner.grant(clock::now());
        assert_eq!(inner.waiting.remove(&free.session).unwrap().granted.unwrap().paid, Paid::Pool);
    }
    // Its pool's own bandwidth holds another, and one of the network has the class's rate as ever.
    let sessions = [local(&class, 2, 2), open(&class, 3, 1)];
    let sent = drive(&class, &sessions);
    assert!(sent[0].abs_diff(50 << 20) < 1 << 20 && sent[1].abs_diff(FLOOR_BPS) < 1 << 18, "{sent:?}");
    // What a local one does not use goes back to its pool, not to a class that did not pay.
    let mut inner = class.lock();
    assert!(inner.class.available(clock::now()) <= before);
    let left = inner.class.available(clock::now());
    inner.give_back(PoolId(1), Paid::Pool, 1 << 30);
    assert!(inner.class.available(clock::now()) < left + (1 << 20));
    drop(inner);
    // A rate that is given is for all of the class.
    class.set(LowPriorityBandwidth::Fixed(RATE), []);
    let total: u64 = drive_from(&class, &sessions, clock::now() + Span::from_millis(4_000)).iter().sum();
    // With what it was late by before: a tenth of a second's worth.
    assert!(total.abs_diff(RATE) < RATE / 8, "{total}");
}

#[test]
fn who_has_no_descriptor_to_be_asked_by_is_held_all_the_same() {
    let class = LowClass::new(LowPriorityBandwidth::Auto, []);
    let none_left = std::io::Error::from_raw_os_error(24);
    let session = class.open(SessionId(1), PoolId(1), Err(none_left));
    assert!(session.uses_link, "it is no Unix socket");
    assert!(!class.open(SessionId(2), PoolId(1), Ok(None)).uses_link);
}
