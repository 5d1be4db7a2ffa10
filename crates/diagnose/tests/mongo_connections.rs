//! Connections on planted series: storms that pass and storms that last, pools, limits, routers, and holes in the readings.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::{Finding, Meta, Severity, Target, catalogue as cat};
use common::Readings;
use common::judged::{causes, diagnose};
use common::mongo_plant::{Plant, SECONDS, T, count, healthy, trouble};

#[test]
fn storms_of_connections_are_told_from_pools_and_from_limits() {
    let storm = Plant {
        opened: |s| if trouble(s) { 800.0 } else { 1.0 },
        write_ms: |s| if trouble(s) { 15.0 } else { 1.0 },
        checkpoint: |_| false,
        ..healthy()
    };
    let found = storm.found();
    assert_eq!(causes(&found), ["connection-storm churn"]);
    assert!((found[0].figure("life_s").unwrap() - 500.0 / 800.0).abs() < 0.3, "{found:?}");
    let rollout =
        Plant { opened: |s| if trouble(s) { 800.0 } else { 1.0 }, connections: |s| 500.0 + 800.0 * s as f64, ..storm };
    assert_eq!(causes(&rollout.found()), [""; 0], "connections that stay are no churn");
    let full = Plant { free: |s| if trouble(s) { 3.0 } else { 500.0 }, ..healthy() };
    let found = full.found();
    assert_eq!(causes(&found), ["connection-storm limit"]);
    let remedy = &found[0].remedies[0];
    assert!(
        remedy.persistent[0].contains("maxIncomingConnections: M") && remedy.undo[1].contains("without"),
        "{remedy:?}"
    );
    let set = full.found_with(|_, meta| {
        meta.targets[0].version_num = Some(40_212);
        meta.targets[0].settings.insert("net.maxIncomingConnections".to_owned(), "400".to_owned());
    });
    let remedy = &set[0].remedies[0];
    assert!(!format!("{remedy:?}").contains("serviceExecutor"), "it raises no limit: {remedy:?}");
    assert!(remedy.undo[1].contains("{maxIncomingConnections: 400}"), "{remedy:?}");
}

#[test]
fn a_router_has_connections_though_it_has_no_engine() {
    let told = Target { name: "router".into(), kind: "mongodb".into(), ..Target::default() };
    // Also where the recording does not tell what the target is: its readings do.
    for router in [Some(told), None] {
        let mut readings = healthy().readings();
        for second in 0..=SECONDS {
            let (at, router) = (1_000.0 + second as f64, ("target", "router"));
            readings.put(&cat::MONGO_CONNECTIONS, &[router], at, 9_900.0);
            readings.put(&cat::MONGO_CONNECTIONS_FREE, &[router], at, 100.0);
        }
        let mut meta = healthy().meta();
        meta.targets.extend(router);
        let found = diagnose(&readings.window(meta, 1_000.0, 1_000.0 + SECONDS as f64), &Options::default());
        assert_eq!(causes(&found), ["connection-storm limit"]);
        assert_eq!(found[0].queue, "mongo.connections@router");
    }
}

/// Opened and thrown away all the time, 0.6 s each, but for what is changed of it.
fn lasting() -> Plant {
    Plant { opened: |_| 800.0, checkpoint: |_| false, write_ms: |_| 5.0, ..healthy() }
}

/// Four processors, of whose time this share is idle.
fn processors(readings: &mut Readings, meta: &mut Meta, idle: f64) {
    meta.host.cpus = Some(4);
    let parts = [(&cat::CPU_IDLE, 0.5 * idle), (&cat::CPU_IOWAIT, 0.5 * idle), (&cat::CPU_USER, 1.0 - idle)];
    for (def, share) in parts.into_iter().chain([(&cat::CPU_SYSTEM, 0.0)]) {
        count(readings, def, &[], |_| 4.0 * share);
    }
}

fn severities(found: &[Finding]) -> Vec<(String, Severity)> {
    causes(found).into_iter().zip(found.iter().map(|finding| finding.severity)).collect()
}

fn churn(severity: Severity) -> Vec<(String, Severity)> {
    vec![("connection-storm churn".to_owned(), severity)]
}

#[test]
fn a_storm_that_lasts_is_a_warning_where_its_cost_is_measured() {
    let with_idle = |plant: &Plant, idle| plant.found_with(|readings, meta| processors(readings, meta, idle));
    let full = with_idle(&lasting(), 0.13);
    assert_eq!(severities(&full), churn(Severity::Warning));
    assert!(full[0].summary.contains("idle only 13.0 %"), "{}", full[0].summary);
    assert!((full[0].figure("life_s").unwrap() - 500.0 / 800.0).abs() < 0.01, "{full:?}");
    assert_eq!(severities(&with_idle(&lasting(), 0.5)), churn(Severity::Info), "nobody is seen to pay for it");
    assert_eq!(severities(&lasting().found()), churn(Severity::Info), "nothing tells what it costs");
    let pooled = Plant { connections: |_| 20_000.0, ..lasting() };
    assert_eq!(severities(&with_idle(&pooled, 0.13)), churn(Severity::Info), "they live for 25 s each");
    let few = Plant { opened: |_| 20.0, ..lasting() };
    assert_eq!(causes(&with_idle(&few, 0.13)), [""; 0]);
    // The processors that were read are of the recorder's host.
    let elsewhere = lasting().found_with(|readings, meta| {
        processors(readings, meta, 0.13);
        meta.targets[0].local = false;
    });
    assert_eq!(severities(&elsewhere), churn(Severity::Info));
}

#[test]
fn threads_without_number_are_such_a_cost_on_a_host_that_is_not_read_too() {
    let threads = |count: f64, here: bool| {
        let found = lasting().found_with(|readings, meta| {
            meta.host.cpus = Some(if here { 4 } else { 64 });
            meta.targets[0].local = here;
            if !here {
                meta.targets[0].settings.insert("hostInfo.system.numCores".into(), "4".into());
            }
            (0..=SECONDS).for_each(|s| readings.put(&cat::MONGO_THREADS, &[T], 1_000.0 + s as f64, count));
        });
        severities(&found)
    };
    assert_eq!((threads(480.0, true), threads(480.0, false)), (churn(Severity::Warning), churn(Severity::Warning)));
    assert_eq!(threads(60.0, true), churn(Severity::Info));
}

#[test]
fn a_storm_that_nearly_lasts_is_told_though_there_is_too_little_to_compare_with() {
    // In 7 s of 200 hardly any connection is opened.
    let nearly = Plant { opened: |s| if (90..97).contains(&s) { 1.0 } else { 800.0 }, ..lasting() };
    let found = nearly.found_with(|readings, meta| processors(readings, meta, 0.13));
    assert_eq!(severities(&found), churn(Severity::Warning));
    // With more of them writes are compared, and were as slow then: the storm costs them nothing.
    let compared = Plant { opened: |s| if (90..105).contains(&s) { 1.0 } else { 800.0 }, ..lasting() };
    let found = compared.found_with(|readings, meta| processors(readings, meta, 0.13));
    assert_eq!(severities(&found), churn(Severity::Info));
    let half = Plant { opened: |s| if s < 100 { 800.0 } else { 1.0 }, ..lasting() };
    assert_eq!(causes(&half.found_with(|readings, meta| processors(readings, meta, 0.13))), [""; 0]);
}

#[test]
fn what_was_not_read_neither_ends_a_storm_nor_makes_one() {
    let gap = |from: f64, to: f64| {
        let found = lasting().found_with(|readings, meta| {
            processors(readings, meta, 0.13);
            readings.gap(1_000.5 + from, 1_000.0 + to);
        });
        severities(&found)
    };
    assert_eq!(gap(90.0, 98.0), churn(Severity::Warning));
    assert_eq!(gap(20.0, 180.0), [], "most of it may have been calm");
    // Latencies were read on while connections were not: those seconds are no calm ones.
    let found = lasting().found_with(|readings, meta| {
        processors(readings, meta, 0.13);
        readings.forget(cat::MONGO_CONNECTIONS_CREATED.name);
        for second in (0..=SECONDS).filter(|second| !(90..120).contains(second)) {
            readings.put(&cat::MONGO_CONNECTIONS_CREATED, &[T], 1_000.0 + second as f64, 800.0 * second as f64);
        }
    });
    assert_eq!(severities(&found), churn(Severity::Warning));
}
