//! Predictions, drains, advice, comparison and live warnings on simulated windows.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{
    AdviseOptions, Basis, LimitOwner, Mechanism, advise, cliff, compare, drain, drain_time, queues, throughput,
    time_to_cliff, warn,
};
use backwater_model::{Moment, Severity, Window, catalogue as cat};
use common::plant::{Limit, MIB, Plant, START_S};

fn capped(limit: Limit) -> Plant {
    Plant { limit, cap_iops: Some(1_500.0), load_s: 25.0, ..Plant::default() }
}

fn close(value: f64, wanted: f64, share: f64) {
    assert!((value / wanted - 1.0).abs() <= share, "{value} is not within {share} of {wanted}");
}

fn until(window: &Window, seconds: f64) -> Window {
    window.slice(window.from, Moment::from_seconds(START_S + seconds))
}

#[test]
fn the_cliff_is_predicted_for_each_limit() {
    for (limit, owner) in [
        (Limit::Device, LimitOwner::Device),
        (Limit::Host, LimitOwner::Host),
        (Limit::Cgroup, LimitOwner::Cgroup("/lab".into())),
    ] {
        let window = capped(limit).window();
        let seen = cliff::find(&throughput(&window)).unwrap();
        let predicted = time_to_cliff(&window, "7:0", window.from, 3.0).unwrap();
        assert_eq!(predicted.limit, owner);
        assert_eq!(predicted.basis, Basis::InflowThenCeiling);
        close(predicted.at_s, seen.at_s, 0.3);
    }
}

#[test]
fn a_prediction_knows_nothing_of_the_future() {
    let window = capped(Limit::Device).window();
    let whole = time_to_cliff(&window, "7:0", window.from, 3.0);
    assert_eq!(time_to_cliff(&until(&window, 3.0), "7:0", window.from, 3.0), whole);
    let at = Moment::from_seconds(START_S + 20.0);
    assert_eq!(drain_time(&until(&window, 20.0), "7:0", at), drain_time(&window, "7:0", at));
}

#[test]
fn no_cliff_is_predicted_where_none_comes() {
    let keeps_up = Plant { limit: Limit::Device, cap_iops: Some(6_000.0), ..Plant::default() }.window();
    assert_eq!(time_to_cliff(&keeps_up, "7:0", keeps_up.from, 3.0), None);
    let idle = Plant { load_s: 0.0, ..Plant::default() }.window();
    assert_eq!(time_to_cliff(&idle, "7:0", idle.from, 3.0), None);
    assert_eq!(time_to_cliff(&Window::default(), "7:0", Moment(0), 3.0), None);
    let window = capped(Limit::Device).window();
    let late = Moment::from_seconds(START_S + 15.0);
    assert_eq!(time_to_cliff(&window, "7:0", late, 3.0).unwrap().basis, Basis::Reached);
}

#[test]
fn the_drain_is_predicted_and_measured() {
    let window = capped(Limit::Device).window();
    let end = Moment::from_seconds(START_S + 25.0);
    let seen = drain::measure(&window, "7:0", end).unwrap();
    let predicted = drain_time(&window, "7:0", end).unwrap();
    close(predicted.drain_s, seen.drain_s, 0.15);
    close(seen.residual_bytes, 192.0 * MIB, 0.02);
    assert!(predicted.outflow_seen && predicted.whole_s > predicted.drain_s);
    // Cut off before it ended, or with a hole in it: unknown, not short.
    assert_eq!(drain::measure(&until(&window, 28.0), "7:0", end), None);
    let mut readings = capped(Limit::Device).readings();
    readings.gap(START_S + 26.0, START_S + 36.0);
    let holed = readings.window(capped(Limit::Device).meta(), START_S, START_S + 40.0);
    assert_eq!(drain::measure(&holed, "7:0", end), None);
    assert_eq!(drain_time(&Window::default(), "7:0", end), None);
}

#[test]
fn advice_meets_the_target_and_says_what_operations_buy() {
    let options = AdviseOptions { drain_target_s: 10.0, price_per_iops: Some(0.1) };
    let advice = advise(&capped(Limit::Device).window(), &options);
    let device = &advice.devices[0];
    let limit = device.limit.as_ref().unwrap();
    assert_eq!(limit.mechanism, Mechanism::PerDevice);
    close(limit.whole_drain_s, 10.0, 0.05);
    assert!(limit.whole_drain_now_s.unwrap() > 20.0);
    assert!(limit.remedy.is_some() && !advice.settings.is_empty());
    let needed = 4_000.0 * 7_500.0 / 9_600.0;
    for row in &device.more_iops {
        assert_eq!(row.still_held, row.iops < needed, "{row:?}");
        assert_eq!(row.cost_per_month, Some(row.iops * 0.1));
        close(row.throughput_per_s.unwrap(), (row.iops * 9_600.0 / 7_500.0).min(4_000.0), 0.1);
    }
    serde_json::to_string(&advice).unwrap();
}

#[test]
fn advice_is_silent_where_it_must_be() {
    let options = AdviseOptions::default();
    // 384 MiB at 14.4 MB/s is written in 28 s: the default target of 30 s is met.
    let met = advise(&capped(Limit::Device).window(), &options);
    assert!(met.devices[0].limit.is_none() && met.devices[0].notes[0].contains("serves the target"), "{met:?}");
    // The first seconds: nothing was written yet.
    let early = advise(&until(&capped(Limit::Device).window(), 5.0), &AdviseOptions { drain_target_s: 1.0, ..options });
    assert!(
        early.devices[0].limit.is_none() && early.devices[0].notes[0].contains("No writing under load"),
        "{early:?}"
    );
    // A device that keeps up writes what it is sent: that is no measure of what it could write.
    let eager = Plant { limit: Limit::Device, synchronous: true, ..Plant::default() }.window();
    let unknown = advise(&eager, &AdviseOptions { drain_target_s: 5.0, ..options });
    assert!(
        unknown.devices[0].limit.is_none() && unknown.devices[0].notes[0].contains("No writing under load"),
        "{unknown:?}"
    );
    // Never under the floor.
    let floor = advise(&capped(Limit::Device).window(), &AdviseOptions { drain_target_s: 0.1, ..options });
    assert_eq!(floor.devices[0].limit.as_ref().unwrap().bytes, 16 << 20);
    assert!(advise(&Window::default(), &options).devices.is_empty());
}

/// What is advised for a host whose devices have no limits of their own, after these readings of its settings.
fn advised_for_a_host(settings: &[(&str, f64)]) -> backwater_diagnose::LimitAdvice {
    let plant = capped(Limit::Host);
    let mut readings = plant.readings();
    readings.forget("host.bdi.max_bytes");
    readings.forget("host.bdi.strict_limit");
    for (name, value) in settings {
        readings.put(&cat::SYSCTL, &[("name", name)], START_S + 1.0, *value);
    }
    let window = readings.window(plant.meta(), START_S, START_S + 40.0);
    let advice = advise(&window, &AdviseOptions { drain_target_s: 10.0, price_per_iops: None });
    advice.devices[0].limit.clone().unwrap()
}

#[test]
fn a_host_without_device_limits_gets_the_sysctl() {
    let limit = advised_for_a_host(&[]);
    assert_eq!(limit.mechanism, Mechanism::WholeHost);
    let remedy = limit.remedy.unwrap();
    let quarter = format!("vm.dirty_background_bytes={}", limit.bytes / 4);
    assert!(remedy.runtime[0].contains(&quarter), "{remedy:?}");
    assert_eq!(remedy.undo[0], "sysctl -w vm.dirty_ratio=20 vm.dirty_background_ratio=10");
}

#[test]
fn what_was_set_while_the_readings_were_taken_comes_back() {
    // When the recording began it was vm.dirty_ratio=20.
    let set = [
        ("vm.dirty_bytes", 402_653_184.0),
        ("vm.dirty_ratio", 0.0),
        ("vm.dirty_background_bytes", 0.0),
        ("vm.dirty_background_ratio", 5.0),
    ];
    let remedy = advised_for_a_host(&set).remedy.unwrap();
    assert_eq!(remedy.undo[0], "sysctl -w vm.dirty_bytes=402653184 vm.dirty_background_ratio=5");
}

#[test]
fn the_background_limit_of_a_queue_is_that_of_the_moment() {
    let plant = capped(Limit::Device);
    let soft = |second: f64, device_sees_host: bool| {
        let mut readings = plant.readings();
        // Somebody sets vm.dirty_background_ratio to a quarter of vm.dirty_ratio in the middle.
        readings.gap(START_S + 20.5, START_S + 26.0);
        for at in (1..50).map(|tenth| START_S + 21.0 + f64::from(tenth) / 10.0) {
            readings.put(&cat::BDI_DIRTY_THRESH, &[("dev", "7:0")], at, 384.0 * MIB);
            readings.put(&cat::BDI_BACKGROUND_THRESH, &[("dev", "7:0")], at, 1e9);
            readings.put(&cat::BDI_GLOBAL_DIRTY_THRESH, &[("dev", "7:0")], at, 4e9);
        }
        if !device_sees_host {
            readings.forget("host.bdi.background_threshold_bytes");
        }
        let window = readings.window(plant.meta(), START_S, START_S + 40.0);
        queues(&window.meta)[0].read(&window, Moment::from_seconds(START_S + second), 3.0).soft_limit.unwrap()
    };
    close(soft(20.0, true), 192.0 * MIB, 0.001);
    close(soft(25.0, true), 96.0 * MIB, 0.001);
    close(soft(20.0, false), 192.0 * MIB, 0.001);
}

#[test]
fn comparison_tells_change_from_noise() {
    let (before, after) = (capped(Limit::Device), Plant { cap_iops: Some(4_000.0), ..capped(Limit::Device) });
    let comparison = compare(&before.window(), &after.window());
    let change = |name: &str| comparison.changes.iter().find(|change| change.name == name).unwrap();
    assert!(change("throughput_mean_per_s").change_ratio.unwrap() > 0.1);
    assert!(change("dirty_peak_bytes").change_ratio.unwrap() < 0.0);
    assert!(change("time_to_cliff_s").before.is_some() && change("time_to_cliff_s").after.is_none());
    assert_eq!((comparison.findings_before.len(), comparison.findings_after.len()), (2, 0));
    let same = compare(&before.window(), &before.window());
    for change in &same.changes {
        assert!(change.change_ratio.is_none_or(|ratio| ratio == 0.0) && change.clear != Some(true), "{change:?}");
    }
    serde_json::to_string(&comparison).unwrap();
}

#[test]
fn the_warning_comes_before_the_cliff_and_not_without_one() {
    let window = capped(Limit::Device).window();
    let early: Vec<_> = (4..=12).map(|second| warn(&until(&window, f64::from(second)), 30.0)).collect();
    assert!(early.iter().any(|warnings| !warnings.is_empty()));
    for finding in early.iter().flatten() {
        assert_eq!((finding.rule.as_str(), finding.cause.as_str()), ("dirty-throttle", "approaching"));
        assert!(finding.severity <= Severity::Warning);
        assert!(finding.figure("time_to_cliff_s").unwrap() <= 30.0);
    }
    // As far ahead as half a minute: whoever is called has as long as the level took to tell.
    let called = early.iter().flatten().filter(|finding| finding.severity == Severity::Warning);
    let left: Vec<f64> = called.map(|finding| finding.figure("time_to_cliff_s").unwrap()).collect();
    assert!(left.first().is_some_and(|left| *left > 3.0), "{left:?}");
    let healthy = Plant { limit: Limit::Device, ..Plant::default() }.window();
    for second in 1..40 {
        assert!(warn(&until(&healthy, f64::from(second)), 30.0).is_empty(), "second {second}");
    }
    assert!(warn(&until(&window, 40.0), 30.0).is_empty(), "the load has ended");
    assert!(warn(&Window::default(), 30.0).is_empty());
}

#[test]
fn queues_read_the_plant() {
    let window = capped(Limit::Device).window();
    let list = queues(&window.meta);
    let names: Vec<&str> = list.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "host.dirty@7:0",
            "host.disk@7:0",
            "pg.wal.buffers",
            "pg.wal.local_flush",
            "pg.checkpoint",
            "pg.commit",
            "pg.heartbeat"
        ]
    );
    let dirty = list[0].read(&window, Moment::from_seconds(START_S + 20.0), 3.0);
    close(dirty.hard_limit.unwrap(), 384.0 * MIB, 0.001);
    close(dirty.soft_limit.unwrap(), 192.0 * MIB, 0.001);
    close(dirty.outflow_per_s.unwrap(), 1_500.0 * 9_600.0, 0.02);
    assert!(dirty.fill().unwrap() > 0.7);
    let checkpoint = list[4].read(&window, Moment::from_seconds(START_S + 20.0), 3.0);
    close(checkpoint.hard_limit.unwrap(), 1024.0 * MIB / 1.9, 0.001);
    assert_eq!(checkpoint.level, None);
}
