//! Rounds of every way in random order, and what they come to: medians, and ratios of runs of the same round.

use crate::peers::{DIRECT, LIMITED, OWN, Way};
use crate::pgbench::{Figures, Length, Load};
use crate::statistics::{Ratios, median};
use crate::{Bench, Result};
use rand::seq::SliceRandom;
use std::collections::BTreeMap;

/// What a peer must not be better by: throughput by more than a twentieth, with 95 % confidence.
const NO_LESS: f64 = 0.95;
/// And the other way round, p99 and processor time: no more than this one's, as far as can be told.
const NO_MORE_THAN: &str = "pgbouncer";
const NO_MORE: f64 = 1.0 / NO_LESS;
/// The peers that the goals name.
const PEERS: [&str; 2] = ["pgbouncer", "haproxy"];

type Rounds = BTreeMap<&'static str, Vec<Figures>>;

/// Runs a load over all ways and prints what came of it.
pub(crate) fn measure(bench: &Bench, ways: &[Way], load: Load, rounds: usize, length: Length) -> Result<()> {
    let mut figures = Rounds::new();
    let ways: Vec<&Way> = ways.iter().filter(|way| way.name != LIMITED || load.is_limited()).collect();
    for _ in 0..rounds {
        let mut order = ways.clone();
        order.shuffle(&mut rand::rng());
        for way in order {
            figures.entry(way.name).or_default().push(load.run(bench, way, length)?);
        }
    }
    println!("\n{}", load.name());
    println!("{:<12} {:>10} {:>9} {:>10} {:>9}", "", load.unit(), "p99, ms", "CPU us each", "/ direct");
    for way in &ways {
        println!("{}", line(way.name, &figures));
    }
    for own in [OWN, LIMITED].into_iter().filter(|own| figures.contains_key(own)) {
        for peer in PEERS.into_iter().filter(|peer| figures.contains_key(peer)) {
            println!("{}", beside(own, peer, &figures));
        }
    }
    Ok(())
}

fn line(name: &'static str, rounds: &Rounds) -> String {
    let own = &rounds[name];
    let of = |figure: fn(&Figures) -> f64| median(&own.iter().map(figure).collect::<Vec<_>>());
    let p99 = of(|figures| figures.p99_ms.unwrap_or(f64::NAN));
    let shown = |value: f64, digits: usize| match value.is_nan() {
        true => "-".to_owned(),
        false => format!("{value:.digits$}"),
    };
    let cpu = if name == DIRECT { f64::NAN } else { of(|figures| figures.cpu_us) };
    let direct = ratios(rounds, name, DIRECT, |figures| figures.per_s).median();
    format!(
        "{name:<12} {:>10} {:>9} {:>11} {:>9}",
        shown(of(|figures| figures.per_s), 1),
        shown(p99, 3),
        shown(cpu, 1),
        shown(direct, 3)
    )
}

/// The proxy, by one of its names, beside one peer: each round's runs are a pair.
fn beside(own: &'static str, peer: &'static str, rounds: &Rounds) -> String {
    let rate = ratios(rounds, own, peer, |figures| figures.per_s);
    let p99 = ratios(rounds, own, peer, |figures| figures.p99_ms.unwrap_or(f64::NAN));
    let cpu = ratios(rounds, own, peer, |figures| figures.cpu_us.max(0.01));
    let met = |met: bool| if met { "met" } else { "MISSED" };
    let no_more =
        |ratio: f64| if peer == NO_MORE_THAN { format!(": {}", met(ratio <= NO_MORE)) } else { String::new() };
    let latency = match p99.median() {
        ratio if ratio.is_nan() => String::new(),
        ratio => format!("; p99 {ratio:.2} ({:.2} at most{})", p99.at_most(), no_more(p99.at_most())),
    };
    format!(
        "{own} / {peer}: throughput {:.3} ({:.3} at least: {}){latency}; CPU {:.2} ({:.2} at most{})",
        rate.median(),
        rate.at_least(),
        met(rate.at_least() >= NO_LESS),
        cpu.median(),
        cpu.at_most(),
        no_more(cpu.at_most())
    )
}

fn ratios(rounds: &Rounds, one: &str, other: &str, of: fn(&Figures) -> f64) -> Ratios {
    let (Some(ones), Some(others)) = (rounds.get(one), rounds.get(other)) else { return Ratios(vec![f64::NAN]) };
    Ratios(ones.iter().zip(others).map(|(one, other)| of(one) / of(other)).collect())
}
