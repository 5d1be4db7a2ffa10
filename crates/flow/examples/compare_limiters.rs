//! The article's comparison of three ways to hold a stream to a rate, measured on the limiters themselves: a counting
//! limit bursts at the edges of its windows, a leaky bucket does not burst at all, a token bucket bursts within bounds.

#![allow(clippy::print_stdout)]

use backwater_flow::limiter::{LeakyBucket, Limiter, TokenBucket, WindowCounter};
use backwater_model::{Moment, Span};

const RATE_BPS: u64 = 256 << 20;
const WINDOW: Span = Span::from_millis(100);
const PIECE_BYTES: u64 = 16 * 1024;
const SECOND_US: i64 = 1_000_000;

/// A pattern of demand: at each moment, how many bytes somebody would like to send.
struct Demand {
    name: &'static str,
    asks: Vec<(i64, u64)>,
}

fn demands() -> Vec<Demand> {
    let always = (0..SECOND_US / 100).map(|tick| (tick * 100, u64::MAX)).collect();
    // A timer on a busy machine: every sixteenth wake-up is 5 ms late.
    let (mut now, mut late) = (0, Vec::new());
    for tick in 0.. {
        now += if tick % 16 == 15 { 5_000 } else { 1_000 };
        if now >= SECOND_US {
            break;
        }
        late.push((now, u64::MAX));
    }
    let edges = (0..10).flat_map(|n| [(n * 100_000 + 99_900, u64::MAX), (n * 100_000 + 100_000, u64::MAX)]).collect();
    let trickle = (0..200).map(|tick| (tick * 5_000, 200_000)).collect();
    vec![
        Demand { name: "always more to send", asks: always },
        Demand { name: "the same, woken late", asks: late },
        Demand { name: "bursts at the edges of windows", asks: edges },
        Demand { name: "200 KB every 5 ms", asks: trickle },
    ]
}

/// What one limiter let through: in all, and the most within any millisecond.
fn drive(limiter: &mut dyn Limiter, asks: &[(i64, u64)]) -> (u64, u64) {
    let mut sent: Vec<(i64, u64)> = Vec::new();
    for (at, wanted) in asks {
        let mut left = *wanted;
        // As a relay asks: piece by piece until it is refused.
        while left > 0 {
            let granted = limiter.take(Moment(*at), left.min(PIECE_BYTES));
            sent.push((*at, granted));
            left -= granted;
            if granted == 0 {
                break;
            }
        }
    }
    let total = sent.iter().map(|(_, bytes)| bytes).sum();
    let within_ms = |from: i64| sent.iter().filter(|(at, _)| (from..from + 1_000).contains(at)).map(|(_, b)| b).sum();
    let mut starts: Vec<i64> = sent.iter().map(|(at, _)| *at).collect();
    starts.dedup();
    (total, starts.into_iter().map(within_ms).max().unwrap_or(0))
}

fn main() {
    println!("256 MB/s for one second; a millisecond of it is {} KB", RATE_BPS / 1000 / 1024);
    println!("{:32} {:>16} {:>10} {:>26}", "demand", "limiter", "MB sent", "most within 1 ms, KB");
    for demand in demands() {
        let mut limiters: Vec<(&str, Box<dyn Limiter>)> = vec![
            ("window counter", Box::new(WindowCounter::new(RATE_BPS, WINDOW))),
            ("leaky bucket", Box::new(LeakyBucket::new(Moment(0), RATE_BPS, PIECE_BYTES))),
            ("token bucket", Box::new(TokenBucket::new(Moment(0), RATE_BPS))),
        ];
        for (name, limiter) in &mut limiters {
            let (total, most) = drive(limiter.as_mut(), &demand.asks);
            println!("{:32} {name:>16} {:>10.1} {:>26}", demand.name, total as f64 / 1048576.0, most / 1024);
        }
    }
}
