//! Rules on simulated windows whose readings allow another reading: what is only likely is told so, and chance is no finding.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::all_queues;
use backwater_model::Confidence;
use backwater_model::catalogue as cat;
use common::judged::{capped, found, names, silent, stampede};
use common::plant::{Limit, MIB, Plant, START_S};

#[test]
fn a_deep_queue_is_a_fault_only_where_requests_slow_down() {
    // At a thirtieth of its rate first, which shows its quiet time, then all it can.
    let window = |full_ms: f64, quiet_s: f64| {
        let busy = Plant { synchronous: true, device_iops: 3_000.0, request_ms: (0.3, full_ms), ..Plant::default() };
        let quiet = Plant { offered_per_s: 100.0, seconds: quiet_s, ..busy.clone() };
        let mut readings = busy.readings();
        readings.after(quiet.readings(), quiet_s);
        readings.window(busy.meta(), START_S - quiet_s, START_S + 40.0)
    };
    silent(&window(0.3, 10.0), "an NVMe that serves many at once as fast as one");
    silent(&window(0.8, 10.0), "slower than when quiet, and still fast");
    let findings = found(&window(4.0, 10.0));
    assert_eq!(names(&findings), ["device-saturated deep-queue host.disk@7:0"]);
    assert_eq!(findings[0].confidence, Confidence::Medium);
    assert!(findings[0].summary.contains("may be all it can do"), "{}", findings[0].summary);
    assert!((findings[0].figure("await_quiet_ms").unwrap() - 0.3).abs() < 0.01);
    // Without a quiet stretch nothing tells a deep queue from a wide device.
    silent(&window(4.0, 0.0), "no quiet stretch to compare with");
    let slow = found(&window(35.0, 0.0));
    assert_eq!(names(&slow), ["device-saturated deep-queue host.disk@7:0"]);
    assert_eq!(slow[0].confidence, Confidence::High);
}

#[test]
fn a_group_is_blamed_for_its_own_rate_only() {
    for cgroup_version in ["v1", "v2"] {
        let sent = |share| {
            let cap_group = ("/lab.slice", share);
            Plant { synchronous: true, cap_iops: Some(1_000.0), cap_group, cgroup_version, ..Plant::default() }
        };
        let findings = found(&sent(Some(1.0)).window());
        assert_eq!(names(&findings), ["io-capped cgroup-cap host.disk@7:0"], "{cgroup_version}");
        assert_eq!(findings[0].confidence, Confidence::High);
        assert!(findings[0].summary.contains("is sent"), "{}", findings[0].summary);
        silent(&sent(Some(0.3)).window(), "others make the device's rate what the group may have");
        let findings = found(&sent(None).window());
        assert_eq!((findings.len(), findings[0].confidence), (1, Confidence::Low), "{cgroup_version}");
        assert!(findings[0].unseen.iter().any(|unseen| unseen.what.contains("control group itself")));
    }
    // The root group of v1 counts what is handed in, not what passes: there the device's rate tells.
    let root = Plant { cap_group: ("/", Some(3.0)), ..capped(Limit::Device) };
    assert_eq!(names(&found(&root.window()))[1], "io-capped cgroup-cap host.disk@7:0");
}

#[test]
fn a_device_that_leaves_time_idle_is_not_what_holds() {
    let at = |device_iops| Plant { synchronous: true, cap_iops: Some(1_000.0), device_iops, ..Plant::default() };
    // Busy for 71 % of the time, as measured of a loop device on a busy disk: tasks wait for the limit all the same.
    let findings = found(&at(1_400.0).window());
    assert_eq!(names(&findings), ["io-capped cgroup-cap host.disk@7:0"]);
    assert!(findings[0].figure("device_busy_ratio").is_some_and(|busy| busy > 0.65), "{:?}", findings[0].evidence);
    assert!(findings[0].ruled_out.is_empty(), "not twice as much: {:?}", findings[0].ruled_out);
    silent(&at(1_050.0).window(), "it may be the device, and the limit chance");
}

#[test]
fn a_busy_neighbour_does_not_fill_a_limit_that_cannot_be_seen() {
    // Commits wait for the device; another disk has more dirty than this device's limit.
    let plant = Plant {
        limit: Limit::Device,
        cap_iops: Some(1_500.0),
        see_device: false,
        synchronous: true,
        dirty_elsewhere: 1_000.0 * MIB,
        ..Plant::default()
    };
    assert_eq!(names(&found(&plant.window())), ["io-capped cgroup-cap host.disk@7:0"]);
    // Some sessions in a buffered write, none of them paused by the limit: no proof either.
    let mut readings = plant.readings();
    for sample in readings.samples.iter_mut().filter(|sample| sample.kernel_state == Some('D')) {
        sample.wait_event = Some("DataFileWrite".into());
        sample.kernel_wait = Some("ext4_buffered_write_iter".into());
    }
    let findings = found(&readings.window(plant.meta(), START_S, START_S + 40.0));
    assert_eq!(names(&findings), ["io-capped cgroup-cap host.disk@7:0"]);
    // Half of the sessions held, one of them paused: told, as what it is.
    let held = Plant { see_device: false, ..capped(Limit::Device) };
    let findings = found(&held.window());
    assert_eq!((findings[0].cause.as_str(), findings[0].confidence), ("device-limit", Confidence::Low));
    assert!(findings[0].summary.contains("on the whole host"), "{}", findings[0].summary);
}

#[test]
fn ratios_changed_after_the_start_are_measured() {
    let plant = capped(Limit::Cgroup);
    let limit = |available: Option<f64>| {
        let mut readings = plant.readings();
        for second in 0..=40 {
            let at = START_S + f64::from(second);
            available.iter().for_each(|bytes| readings.put(&cat::MEM_AVAILABLE, &[], at, *bytes));
        }
        let window = readings.window(plant.meta(), START_S, START_S + 40.0);
        let first = found(&window).into_iter().find(|finding| finding.cause == "cgroup-limit").unwrap();
        // The path shows the limit that the rule goes by.
        let queue = all_queues(&window).into_iter().find(|queue| queue.name == first.queue).unwrap();
        let shown = queue.hard_limit.value(&window, first.from, 2.0).unwrap() / MIB;
        let judged = first.figure("dirty_threshold_bytes").unwrap() / MIB;
        assert!((shown - judged).abs() < 0.02 * judged, "{shown} on the path, {judged} in the finding");
        let background = queue.soft_limit.value(&window, first.from, 2.0).unwrap() / MIB;
        let judged = first.figure("dirty_background_bytes").unwrap() / MIB;
        assert!((background - judged).abs() < 0.02 * judged, "{background} on the path, {judged} in the finding");
        (shown, first.unseen)
    };
    let (told, unseen) = limit(None);
    assert!((told - 384.0).abs() < 1.0 && unseen.iter().any(|unseen| unseen.what.contains("vm.dirty_ratio")));
    // The host's limit is a fifth of its memory, as the settings say, but for what the kernel counts otherwise.
    let (held, unseen) = limit(Some(18_500.0 * MIB));
    assert!((held - 384.0).abs() < 1.0 && !unseen.iter().any(|unseen| unseen.what.contains("vm.dirty_ratio")));
    // It is an eighth: the ratio was changed since, and the group's limit with it.
    let (changed, _) = limit(Some(32_000.0 * MIB));
    assert!((changed - 240.0).abs() < 5.0, "{changed}");
}

#[test]
fn what_may_hold_writers_as_well_is_not_ruled_out() {
    // Syncs on a full device whose limit is at the pausing point: both stand.
    let plant = Plant { syncs: vec![(20.0, 4.0)], ..stampede(Limit::Device) };
    let findings = found(&plant.window());
    let burst = findings.iter().find(|finding| finding.rule == "checkpoint-burst").unwrap();
    assert_eq!(burst.ruled_out, Vec::new());
}

#[test]
fn settings_go_back_to_what_was_in_force() {
    let plant = capped(Limit::Device);
    let mut meta = plant.meta();
    meta.targets[0].settings.insert("backend_flush_after".into(), "512kB".into());
    let findings = found(&plant.readings().window(meta, START_S, START_S + 40.0));
    let flush = findings[0].remedies.iter().find(|remedy| remedy.runtime[0].contains("backend_flush_after")).unwrap();
    assert_eq!(flush.undo[0], "ALTER SYSTEM SET backend_flush_after = '512kB';");
    // What was not read can only be dropped.
    assert_eq!(flush.undo[1], "ALTER SYSTEM RESET bgwriter_flush_after;");
}
