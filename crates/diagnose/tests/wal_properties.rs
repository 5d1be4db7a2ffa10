//! Whatever the rates and times: a healthy plant is never accused, and the fault that was put in comes first.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Options, warn};
use backwater_model::{Finding, Severity, Window};
use common::judged::diagnose;
use common::wal_plant::{Keep, MIB, Replay, START_S, WalPlant};
use proptest::prelude::*;

fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options::default())
}

fn names(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .map(|finding| format!("{} {} {:?}: {}", finding.rule, finding.cause, finding.severity, finding.summary))
        .collect()
}

/// Rates up to half of what every hop can take, with bursts that the buffers and a few seconds swallow.
fn healthy() -> impl Strategy<Value = WalPlant> {
    // Far enough apart that one has drained before the next.
    let burst = (0.5..2.5_f64, 50.0..300.0_f64, any::<bool>());
    let bursts = (5.0..10.0_f64, 27.0..36.0_f64, burst.clone(), burst).prop_map(|(first, second, a, b)| {
        let list = [(first, a.0, a.1 * MIB, a.2), (second, b.0, b.1 * MIB, b.2)];
        list.into_iter().filter(|burst| burst.3).map(|(at, long, rate, _)| (at, long, rate)).collect::<Vec<_>>()
    });
    let keep = prop_oneof![
        Just(Keep::Size(0.0)),
        (64.0..4096.0_f64).prop_map(|size| Keep::Size(size * MIB)),
        Just(Keep::Slot(None)),
        (512.0..4096.0_f64).prop_map(|size| Keep::Slot(Some(size * MIB))),
    ];
    (0.0..55.0_f64, bursts, keep, any::<bool>(), any::<bool>(), any::<bool>(), any::<u64>(), -60.0..60.0_f64).prop_map(
        |(rate, bursts, keep, see_standby, see_tcp, synchronous, seed, skew_s)| WalPlant {
            rate: rate * MIB,
            bursts,
            keep,
            see_standby,
            see_tcp,
            synchronous,
            seed,
            skew_s,
            ..WalPlant::default()
        },
    )
}

/// A fault that takes less than half of what is made, and the rule that must name it.
fn faulty() -> impl Strategy<Value = (WalPlant, &'static str)> {
    let kind = 0..7_usize;
    (kind, 6.0..40.0_f64, 0.1..0.5_f64, 3.0..15.0_f64, any::<bool>(), any::<u64>()).prop_map(
        |(kind, rate, share, from, see_standby, seed)| {
            let rate = rate * MIB;
            let slow = rate * share;
            let base = WalPlant {
                rate,
                seed,
                see_standby,
                fault: (from, 1e9),
                keep: Keep::Size(8192.0 * MIB),
                ..WalPlant::default()
            };
            match kind {
                0 => (WalPlant { primary_cap: Some(slow), ..base }, "wal-device-capped"),
                1 => (WalPlant { standby_cap: Some(slow), ..base }, "standby-disk"),
                2 => (WalPlant { link: Some(slow), ..base }, "network-narrow"),
                3 => (WalPlant { replay: Replay::Paused, ..base }, "replay-paused"),
                4 => (
                    WalPlant { replay: Replay::Conflict("Lock", "relation"), see_standby: true, ..base },
                    "replay-conflict",
                ),
                5 => (WalPlant { replay: Replay::Rate(slow), see_standby: true, ..base }, "replay-cpu"),
                _ => (WalPlant { walsender_reads: Some(slow), ..base }, "walsender-starved"),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_healthy_run_is_never_accused(plant in healthy()) {
        let window = plant.window();
        let findings = found(&window);
        prop_assert!(findings.is_empty(), "{:?}", names(&findings));
        let warnings: Vec<Finding> = warn(&window, 30.0).into_iter().filter(|w| w.severity > Severity::Info).collect();
        prop_assert!(warnings.is_empty(), "{:?}", names(&warnings));
    }

    #[test]
    fn the_fault_that_was_put_in_comes_first((plant, rule) in faulty()) {
        let findings = found(&plant.window());
        prop_assert_eq!(findings.first().map(|finding| finding.rule.as_str()), Some(rule), "{:?}", names(&findings));
    }

    #[test]
    fn a_hole_in_the_readings_accuses_nobody(plant in healthy(), from in 5.0..25.0_f64, long in 3.0..15.0_f64) {
        let mut readings = plant.readings();
        readings.gap(START_S + from, START_S + from + long);
        let findings = found(&readings.window(plant.meta(), START_S, START_S + plant.seconds));
        prop_assert!(findings.is_empty(), "{:?}", names(&findings));
    }
}

#[test]
fn a_hundred_standbys_are_looked_at_one_by_one() {
    let plant = WalPlant::default();
    let mut readings = plant.readings();
    let slow = WalPlant { link: Some(3.0 * MIB), ..plant.clone() };
    for number in 0..100 {
        let name = format!("s{number:03}");
        let part = if number == 42 { slow.readings() } else { plant.readings() };
        readings.adopt(part, &name, 10_000 * (number + 1));
    }
    let mut meta = plant.meta();
    meta.targets.truncate(1);
    readings.forget("pg.replay.");
    readings.forget("pg.receiver.");
    readings.forget("pg.wal.re");
    let findings = found(&readings.window(meta, START_S, START_S + 40.0));
    let queues: Vec<&str> = findings.iter().map(|finding| finding.queue.as_str()).collect();
    assert_eq!(queues, ["pg.wal.send@s042"], "{:?}", names(&findings));
}
