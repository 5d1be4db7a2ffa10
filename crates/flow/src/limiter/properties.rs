//! What each limiter promises, driven by one clock: the article's comparison of counting limit, leaky bucket and token
//! bucket as properties.

#![allow(clippy::unwrap_used)]

use super::*;
use backwater_model::Span;
use proptest::prelude::*;

/// Every moment at which bytes went, and how many.
fn drive(limiter: &mut dyn Limiter, asks: &[(i64, u64)]) -> Vec<(i64, u64)> {
    let mut now = 0;
    let mut sent = Vec::new();
    for (pause_us, wanted) in asks {
        now += pause_us;
        sent.push((now, limiter.take(Moment(now), *wanted)));
    }
    sent
}

/// By how much any window of these grants exceeds what the rate brings in it, at most. Each window begins and ends at a
/// grant, for no other one can exceed more.
fn worst_excess(sent: &[(i64, u64)], rate_bps: u64) -> f64 {
    // sum(i..=j) − r·(t_j − t_i) = (S_j − r·t_j) − (S_{i−1} − r·t_i): one pass with a running minimum.
    let (mut total, mut least, mut worst) = (0.0, f64::INFINITY, 0.0f64);
    for (at, bytes) in sent {
        let line = rate_bps as f64 * *at as f64 / 1e6;
        least = least.min(total - line);
        total += *bytes as f64;
        worst = worst.max(total - line - least);
    }
    worst
}

fn asks() -> impl Strategy<Value = Vec<(i64, u64)>> {
    let pause = prop_oneof![Just(0i64), 0..100i64, 0..3_000i64, 0..50_000i64];
    let wanted = prop_oneof![0..2_000u64, Just(16_384u64), 0..4_000_000u64, Just(u64::MAX)];
    prop::collection::vec((pause, wanted), 1..400)
}

fn take_quantum(bucket: &mut TokenBucket, now: i64, total: &mut u64) -> bool {
    let quantum = bucket.quantum_bytes();
    let granted = bucket.take_whole(Moment(now), quantum);
    *total += if granted { quantum } else { 0 };
    granted
}

fn rates() -> impl Strategy<Value = u64> {
    prop_oneof![1_024..100_000u64, 1_000_000..1_000_000_000u64, Just(256u64 << 20), Just(1u64 << 30)]
}

proptest! {
    #[test]
    fn token_bucket_any_window_is_the_rate_and_one_depth(rate in rates(), asks in asks()) {
        let mut bucket = TokenBucket::new(Moment(0), rate);
        let sent = drive(&mut bucket, &asks);
        prop_assert!(worst_excess(&sent, rate) <= bucket.depth_bytes() as f64 + 1.0);
    }

    /// A class that asks on time (never over a burst's span late) is never ahead of its rate by more than a burst.
    #[test]
    fn token_bucket_while_waiting_is_never_a_burst_ahead(
        rate in rates(), pauses in prop::collection::vec(0..40_000i64, 1..300),
    ) {
        let mut bucket = TokenBucket::new(Moment(0), rate);
        let burst = bucket.burst_bytes();
        let (mut now, mut total) = (0i64, 0u64);
        for pause in pauses {
            now += pause;
            total += bucket.take(Moment(now), u64::MAX >> 16);
            let line = u64::try_from(u128::from(rate) * now.unsigned_abs() as u128 / 1_000_000).unwrap();
            // Both are rounded down.
            prop_assert!(total <= line + burst + 1, "{total} > {line} + {burst} at {now}");
        }
    }

    /// Served late by up to what can be caught up, by its timer or by a way that is full, it loses nothing: it comes back to
    /// its schedule, and not beyond.
    #[test]
    fn token_bucket_keeps_its_mean_on_a_busy_machine(
        rate in 1_000_000..1_100_000_000u64,
        late in prop::collection::vec((prop_oneof![8 => 1..9_000i64, 1 => 0..CATCH_UP.0], 0..40u32), 100..300),
    ) {
        let mut bucket = TokenBucket::new(Moment(0), rate);
        let (mut now, mut total) = (0i64, 0u64);
        for (late_us, most_quanta) in late {
            // The way is full after so many, and is looked at again as late as the timer wakes.
            let room = most_quanta > 0 && (0..most_quanta).all(|_| take_quantum(&mut bucket, now, &mut total));
            if room { bucket.wait(Moment(now)) }
            while take_quantum(&mut bucket, now, &mut total) {}
            now = bucket.ready_for(Moment(now), bucket.quantum_bytes()).0 + late_us;
        }
        while take_quantum(&mut bucket, now, &mut total) {}
        let line = rate as f64 * now as f64 / 1e6;
        let (burst, quantum) = (bucket.burst_bytes() as f64, bucket.quantum_bytes() as f64);
        prop_assert!(total as f64 >= line + burst - quantum - 1.0 && total as f64 <= line + burst + 1.0, "{total} {line}");
    }

    /// A class that is served the moment its credit is there never exceeds its rate by more than a burst in any window,
    /// whatever it wants and however long it wants nothing.
    #[test]
    fn token_bucket_served_in_time_is_one_burst_in_any_window(
        rate in rates(), wants in prop::collection::vec((0..40_000i64, 1..60u32), 1..100),
    ) {
        let mut bucket = TokenBucket::new(Moment(0), rate);
        let quantum = bucket.quantum_bytes();
        let (mut now, mut sent) = (0i64, Vec::new());
        for (pause, quanta) in wants {
            for _ in 0..quanta {
                if !bucket.take_whole(Moment(now), quantum) {
                    now = bucket.ready_for(Moment(now), quantum).0;
                    prop_assert!(bucket.take_whole(Moment(now), quantum));
                }
                sent.push((now, quantum));
            }
            bucket.idle(Moment(now));
            now += pause;
        }
        // Waiting counts whole microseconds: each may bring one microsecond's worth.
        let rounding = rate as f64 / 1e6 + 1.0;
        prop_assert!(worst_excess(&sent, rate) <= bucket.burst_bytes() as f64 + rounding);
    }

    /// Who comes back from idleness finds a burst, or what it left behind if it comes back soon; never more.
    #[test]
    fn token_bucket_saves_nothing_up_while_nobody_wants_it(
        rate in rates(), late in 0..200_000i64, pauses in prop::collection::vec(0..150_000i64, 1..20),
    ) {
        let mut bucket = TokenBucket::new(Moment(0), rate);
        bucket.wait(Moment(0));
        bucket.idle(Moment(late));
        let (left, mut now) = (bucket.available(Moment(late)), late);
        for pause in pauses {
            now += pause;
            let most = if now - late <= CATCH_UP.0 { left.max(bucket.burst_bytes()) } else { bucket.burst_bytes() };
            prop_assert!(bucket.available(Moment(now)) <= most);
        }
    }

    #[test]
    fn token_bucket_debt_and_giving_back_stay_in_bounds(
        rate in rates(), steps in prop::collection::vec((0..20_000i64, 0..3u8, 0..10_000_000u64), 1..300),
    ) {
        let mut bucket = TokenBucket::new(Moment(0), rate);
        let (mut now, mut out) = (0i64, 0u64);
        for (pause, kind, bytes) in steps {
            now += pause;
            let moment = Moment(now);
            match kind {
                0 => out = bucket.take(moment, bytes),
                1 => bucket.charge(moment, bytes),
                _ => bucket.give_back(std::mem::take(&mut out)),
            }
            prop_assert!(bucket.debt_bytes(moment) <= rate.max(1_024));
            prop_assert!(bucket.available(moment) <= bucket.depth_bytes());
            let ready = bucket.ready_at(moment);
            prop_assert!(bucket.available(ready) >= 1 && ready >= moment);
            prop_assert!(ready == moment || bucket.available(Moment(ready.0 - 1)) == 0);
        }
    }

    /// Never over the rate whatever the rate becomes: each stretch at its own rate, and one depth of the largest.
    #[test]
    fn token_bucket_follows_a_changing_rate(changes in prop::collection::vec((1..30_000i64, rates()), 1..100)) {
        let mut bucket = TokenBucket::new(Moment(0), 1_000_000);
        let (mut now, mut total, mut line, mut depth) = (0i64, 0.0, 0.0, bucket.depth_bytes());
        for (pause, rate) in changes {
            line += bucket.rate_bps() as f64 * pause as f64 / 1e6;
            now += pause;
            total += bucket.take(Moment(now), u64::MAX) as f64;
            prop_assert!(total <= line + depth as f64 + 1.0);
            bucket.set_rate(Moment(now), rate);
            depth = depth.max(bucket.depth_bytes());
        }
    }

    #[test]
    fn window_counter_holds_each_window_and_doubles_at_an_edge(rate in 1_000_000..1_000_000_000u64, asks in asks()) {
        let window = Span::from_millis(10);
        let mut counter = WindowCounter::new(rate, window);
        let limit = counter.limit_bytes();
        let sent = drive(&mut counter, &asks);
        for number in 0..=sent.last().unwrap().0 / window.0 {
            let within = sent.iter().filter(|(at, _)| at / window.0 == number).map(|(_, bytes)| bytes).sum::<u64>();
            prop_assert!(within <= limit);
        }
        let mut counter = WindowCounter::new(rate, window);
        let edge = [(window.0 - 1, u64::MAX), (1, u64::MAX)];
        let burst: u64 = drive(&mut counter, &edge).iter().map(|(_, bytes)| bytes).sum();
        prop_assert_eq!(burst, 2 * limit);
    }

    #[test]
    fn leaky_bucket_never_bursts(rate in 1_000_000..1_000_000_000u64, asks in asks()) {
        let mut bucket = LeakyBucket::new(Moment(0), rate, 1_500);
        let sent = drive(&mut bucket, &asks);
        prop_assert!(worst_excess(&sent, rate) <= 1_500.0 + 1.0);
    }
}
