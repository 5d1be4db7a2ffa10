//! Rules and predictions against runs that were measured on a real server.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{AdviseOptions, Options, advise, cliff, drain, drain_time, time_to_cliff};
use backwater_model::Moment;
use common::judged::diagnose;
use common::run::{self, Run};

const STAMPEDES: [&str; 6] = ["slow-start-384", "steady-384", "steady-256", "fast-256", "fast-short-256", "steady-64"];

fn summary(findings: &[backwater_model::Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{} {} {}", finding.rule, finding.cause, finding.queue)).collect()
}

/// The load, without the drain after it.
fn loaded(run: &Run) -> backwater_model::Window {
    run.window.slice(run.window.from, run.load_end)
}

#[test]
fn stampedes_are_named() {
    for name in ["slow-start-384", "steady-256", "fast-256", "fast-short-256", "steady-64", "dirty-start-256"] {
        let run = run::load(name);
        for window in [run.window.clone(), loaded(&run)] {
            let findings = diagnose(&window, &Options::default());
            assert_eq!(
                summary(&findings),
                ["dirty-throttle device-limit host.dirty@7:0", "io-capped cgroup-cap host.disk@7:0"],
                "{name}"
            );
            assert!(findings[0].foreground_lost.unwrap() > 0.3, "{name}: {:?}", findings[0].foreground_lost);
        }
    }
}

#[test]
fn runs_with_operations_to_spare_are_healthy() {
    for name in ["wide-256", "wide-64"] {
        let findings = diagnose(&run::load(name).window, &Options::default());
        assert_eq!(summary(&findings), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn cliffs_are_predicted_from_three_seconds() {
    let mut errors = Vec::new();
    for name in STAMPEDES {
        let run = run::load(name);
        // Some loads read their tables for a second before they write: the cliff as throughput shows it, a second wide.
        let Some(cliff) = cliff::find(&run.tps) else { continue };
        let predicted = time_to_cliff(&run.window, "7:0", run.window.from, 3.0).unwrap();
        let error = (predicted.at_s - cliff.at_s) / cliff.at_s;
        errors.push((name, cliff.at_s, predicted.at_s, error.abs()));
    }
    assert!(errors.len() >= 5);
    assert!(errors.iter().all(|(.., error)| *error <= 0.3), "{errors:?}");
}

#[test]
fn drains_are_predicted_at_the_end_of_the_load() {
    let mut errors = Vec::new();
    for name in STAMPEDES {
        let run = run::load(name);
        let Some(drain) = drain::measure(&run.window, "7:0", run.load_end) else { continue };
        let predicted = drain_time(&run.window, "7:0", run.load_end).unwrap();
        let error = (predicted.drain_s - drain.drain_s) / drain.drain_s;
        errors.push((name, drain.drain_s, predicted.drain_s, error.abs()));
    }
    assert!(errors.len() >= 4);
    assert!(errors.iter().all(|(.., error)| *error <= 0.3), "{errors:?}");
}

#[test]
fn a_limit_is_advised_from_a_measured_run() {
    let run = run::load("slow-start-384");
    let advice = advise(&run.window, &AdviseOptions { drain_target_s: 10.0, price_per_iops: Some(0.065) });
    let device = &advice.devices[0];
    let limit = device.limit.as_ref().unwrap();
    let mib = limit.bytes as f64 / 1_048_576.0;
    assert!((110.0..=160.0).contains(&mib), "{mib} MiB");
    let now = device.more_iops.iter().find(|row| row.now).unwrap();
    assert_eq!(now.iops, 1500.0);
    assert!((now.throughput_per_s.unwrap() / 2060.0 - 1.0).abs() < 0.3, "{now:?}");
    assert!(device.more_iops.last().unwrap().throughput_per_s.unwrap() > 3_800.0);
    assert!(!device.more_iops.last().unwrap().still_held);
    let empty = advise(&run.window.slice(Moment(0), Moment(1)), &AdviseOptions::default());
    assert!(empty.devices.iter().all(|device| device.limit.is_none() && device.more_iops.is_empty()));
}
