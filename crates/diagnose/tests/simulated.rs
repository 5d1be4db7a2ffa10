//! Rules on simulated windows: each fault by itself, both together, and everything that must stay silent.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Options, RULES, diagnose, rule};
use backwater_model::catalogue as cat;
use backwater_model::{Confidence, Event, EventKind, Finding, Moment, Severity, Window};
use common::plant::{Limit, MIB, Plant, START_S};

fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options { drain_target_s: 10.0, price_per_iops: Some(0.1) })
}

fn names(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{} {} {}", finding.rule, finding.cause, finding.queue)).collect()
}

fn silent(window: &Window, what: &str) {
    assert_eq!(names(&found(window)), Vec::<String>::new(), "{what}");
}

/// More is dirtied than the device writes, under a narrow limit.
fn stampede(limit: Limit) -> Plant {
    // Without a ceiling: the device itself writes too little, and is busy for it.
    Plant { limit, device_iops: 1_500.0, ..Plant::default() }
}

fn capped(limit: Limit) -> Plant {
    Plant { limit, cap_iops: Some(1_500.0), ..Plant::default() }
}

#[test]
fn healthy_and_idle_systems_are_silent() {
    silent(&Plant::default().window(), "healthy");
    silent(&Plant { limit: Limit::Device, ..Plant::default() }.window(), "flushing within a narrow limit");
    silent(&Plant { load_s: 0.0, ..Plant::default() }.window(), "idle");
    silent(&Window::default(), "nothing at all");
    let capped_but_not_reached = Plant { cap_iops: Some(6_000.0), limit: Limit::Device, ..Plant::default() };
    silent(&capped_but_not_reached.window(), "a ceiling with room");
    let before = capped(Limit::Device).window();
    silent(&before.slice(before.from, Moment::from_seconds(START_S + 9.0)), "the seconds before the cliff");
}

#[test]
fn each_limit_is_told_from_the_others() {
    let cases = [(Limit::Device, "device-limit"), (Limit::Host, "host-limit"), (Limit::Cgroup, "cgroup-limit")];
    for (limit, cause) in cases {
        let findings = found(&capped(limit).window());
        let first = &findings[0];
        assert_eq!((first.rule.as_str(), first.cause.as_str()), ("dirty-throttle", cause), "{:?}", names(&findings));
        let queue = if limit == Limit::Cgroup { "host.dirty@/lab" } else { "host.dirty@7:0" };
        assert_eq!(first.queue, queue);
        assert_eq!((first.severity, first.confidence), (Severity::Critical, Confidence::High));
        assert!((first.figure("dirty_threshold_bytes").unwrap() / (384.0 * MIB) - 1.0).abs() < 0.01);
        assert!(first.foreground_lost.unwrap() > 0.3);
        assert!(!first.remedies.is_empty());
        if limit != Limit::Host {
            assert!(first.ruled_out.iter().any(|out| out.cause == "host-limit"), "{:?}", first.ruled_out);
        }
    }
}

#[test]
fn a_full_queue_and_the_ceiling_below_it_are_both_told_in_that_order() {
    let findings = found(&capped(Limit::Device).window());
    assert_eq!(names(&findings), ["dirty-throttle device-limit host.dirty@7:0", "io-capped cgroup-cap host.disk@7:0"]);
    assert!(findings[0].summary.contains("io-capped"), "{}", findings[0].summary);
    assert!(findings[1].summary.contains("dirty-throttle"), "{}", findings[1].summary);
    assert!(findings[1].victims.contains(&"host.dirty@7:0".to_owned()));
    assert!(findings[1].severity <= findings[0].severity);
    assert_eq!(findings[1].figure("limit_iops"), Some(1_500.0));
    let raise = &findings[1].remedies[0];
    assert!(raise.runtime[0].contains("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device"), "{raise:?}");
    assert!(raise.undo[0].contains("'7:0 1500'"), "{raise:?}");
    assert!(raise.predicted.iter().any(|figure| figure.name == "extra_cost_per_month" && figure.value > 100.0));
}

#[test]
fn a_limit_for_the_drain_target_is_offered_with_its_way_back() {
    let findings = found(&capped(Limit::Device).window());
    let remedy = &findings[0].remedies[0];
    let bytes = 1_500.0 * 9_600.0 * 10.0;
    let advised = remedy.predicted.iter().find(|figure| figure.name == "dirty_limit_bytes").unwrap().value;
    assert!((advised / bytes - 1.0).abs() < 0.05, "{advised} {bytes}");
    assert!(remedy.runtime.iter().any(|line| line == "echo 1 > /sys/class/bdi/7:0/strict_limit"), "{remedy:?}");
    assert!(remedy.undo.iter().any(|line| line.contains("max_ratio_fine")), "{remedy:?}");
    let host = found(&Plant { see_device: false, ..capped(Limit::Host) }.window());
    assert_eq!(host[0].cause, "host-limit", "{:?}", names(&host));
}

#[test]
fn a_slow_device_is_the_reason_when_nothing_caps_it() {
    let findings = found(&stampede(Limit::Device).window());
    assert_eq!(
        names(&findings),
        ["dirty-throttle device-limit host.dirty@7:0", "device-saturated deep-queue host.disk@7:0"]
    );
    assert!(!findings[0].ruled_out.iter().any(|out| out.cause == "device-saturated"));
    assert!(findings[1].ruled_out.iter().any(|out| out.cause == "io-capped"));
}

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
fn synchronous_writes_at_a_ceiling_are_io_capped_alone() {
    let plant = Plant { synchronous: true, cap_iops: Some(1_000.0), ..Plant::default() };
    let findings = found(&plant.window());
    assert_eq!(names(&findings), ["io-capped cgroup-cap host.disk@7:0"]);
    assert!(findings[0].foreground_lost.unwrap() > 0.5);
    let saturated = Plant { synchronous: true, device_iops: 1_000.0, ..Plant::default() };
    assert_eq!(names(&found(&saturated.window())), ["device-saturated deep-queue host.disk@7:0"]);
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
fn declared_ratings_and_spent_bursts_are_told_apart() {
    let volume = |rating, credit| Plant {
        synchronous: true,
        declared_iops: Some(rating),
        burst_credit: credit,
        ..Plant::default()
    };
    let findings = found(&volume((1_500.0, None), 0.0).window());
    assert_eq!(names(&findings), ["io-capped declared-cap host.disk@7:0"]);
    let findings = found(&volume((1_500.0, Some(3_000.0)), 20_000.0).window());
    assert_eq!(names(&findings), ["io-capped burst-spent host.disk@7:0"]);
    assert!(findings[0].from.seconds() > START_S + 10.0);
}

#[test]
fn a_flat_rate_below_the_declared_one_is_another_ceiling() {
    let mut plant = Plant { synchronous: true, declared_iops: Some((6_000.0, None)), ..Plant::default() };
    plant.cap_iops = Some(1_200.0);
    let mut readings = plant.readings();
    readings.forget("host.cgroup");
    let window = readings.window(plant.meta(), START_S, START_S + plant.seconds);
    let findings = found(&window);
    assert_eq!(names(&findings), ["io-capped volume-cap host.disk@7:0"]);
    assert_eq!(findings[0].confidence, Confidence::Low);
}

#[test]
fn syncs_that_stop_clients_are_a_checkpoint_burst() {
    let plant = Plant { syncs: vec![(12.0, 3.0), (28.0, 4.0)], ..Plant::default() };
    let findings = found(&plant.window());
    assert_eq!(names(&findings), ["checkpoint-burst sync-stall pg.checkpoint"]);
    assert_eq!(findings[0].figure("checkpoints_count"), Some(2.0));
    assert_eq!(findings[0].figure("sync_longest_s"), Some(2.0));
    let out = |cause: &str| findings[0].ruled_out.iter().find(|out| out.cause == cause).unwrap().because.clone();
    assert!(out("dirty-throttle").contains("writers pause from 2.93 GiB"), "{}", out("dirty-throttle"));
    assert!(out("device-saturated").contains("loop0 was busy"), "{}", out("device-saturated"));
    assert!(findings[0].foreground_lost.unwrap() > 0.3);
    // The same from the server's counters alone.
    let mut readings = plant.readings();
    readings.events.clear();
    let window = readings.window(plant.meta(), START_S, START_S + plant.seconds);
    let findings = found(&window);
    assert_eq!(names(&findings), ["checkpoint-burst sync-stall pg.checkpoint"]);
    assert!(findings[0].unseen.iter().any(|unseen| unseen.what.contains("log")), "{:?}", findings[0].unseen);
    // Syncs that nobody feels.
    let mut readings = Plant::default().readings();
    let line =
        "checkpoint complete: wrote 1 buffers (0.0%); write=1 s, sync=4.000 s, total=5 s; sync files=1, longest=4 s";
    readings.events.push(Event::new(Moment::from_seconds(START_S + 20.0), "lab", EventKind::Log, line, &[]));
    silent(&readings.window(plant.meta(), START_S, START_S + 40.0), "a sync that costs nothing");
}

#[test]
fn forced_checkpoints_count_only_with_wal_behind_them() {
    let window = |wal_per_s: f64| {
        let mut readings = Plant::default().readings();
        for sample in readings.samples.iter_mut().filter(|sample| sample.pid < 4) {
            sample.wait_event_type = Some("LWLock".into());
            sample.wait_event = Some("WALWrite".into());
        }
        for second in 0..=40 {
            let at = START_S + f64::from(second);
            readings.put(&cat::PG_WAL_INSERT, &[("target", "lab")], at, f64::from(second) * wal_per_s);
            readings.put(&cat::PG_CHECKPOINTS_REQUESTED, &[("target", "lab")], at, f64::from(second / 9));
        }
        readings.window(Plant::default().meta(), START_S, START_S + 40.0)
    };
    let findings = found(&window(60e6));
    assert_eq!(names(&findings), ["checkpoint-burst too-frequent pg.checkpoint"]);
    assert_eq!(findings[0].severity, Severity::Info);
    assert!(findings[0].remedies[0].runtime[0].contains("max_wal_size"));
    assert_eq!(findings[0].remedies[0].undo[0], "ALTER SYSTEM SET max_wal_size = '1GB';");
    assert!((findings[0].foreground_lost.unwrap() - 0.25).abs() < 0.02, "{:?}", findings[0].foreground_lost);
    let causes: Vec<&str> = findings[0].ruled_out.iter().map(|out| out.cause.as_str()).collect();
    assert_eq!(causes, ["dirty-throttle", "device-saturated"]);
    silent(&window(1e6), "CHECKPOINT commands");
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

#[test]
fn a_gap_is_no_finding() {
    for plant in [capped(Limit::Device), capped(Limit::Host), Plant { syncs: vec![(20.0, 4.0)], ..Plant::default() }] {
        let mut readings = plant.readings();
        readings.gap(9.0 + START_S, START_S + 39.5);
        let gap = Event::new(Moment::from_seconds(START_S + 9.0), "recorder", EventKind::Gap, "gap", &[]);
        readings.events.push(gap);
        silent(&readings.window(plant.meta(), START_S, START_S + 40.0), "a gap over the fault");
    }
    // A gap within a fault neither hides it nor stretches it.
    let plant = capped(Limit::Device);
    let mut readings = plant.readings();
    readings.gap(START_S + 25.0, START_S + 30.0);
    let findings = found(&readings.window(plant.meta(), START_S, START_S + 40.0));
    assert_eq!(findings[0].rule, "dirty-throttle");
    assert!(
        findings[0].to <= Moment::from_seconds(START_S + 26.0)
            || findings[0].from >= Moment::from_seconds(START_S + 29.0)
    );
}

#[test]
fn a_drain_after_the_load_is_no_fault() {
    let window = Plant { load_s: 25.0, ..capped(Limit::Device) }.window();
    let after = window.slice(Moment::from_seconds(START_S + 26.0), window.to);
    silent(&after, "the drain");
    let whole = found(&window);
    assert!(whole[0].to <= Moment::from_seconds(START_S + 26.5), "{}", whole[0].to.seconds() - START_S);
}

#[test]
fn what_privileges_hide_is_named_and_lowers_confidence() {
    let plant = Plant { see_kernel: false, see_device: false, ..capped(Limit::Device) };
    let mut readings = plant.readings();
    let fields = [
        ("what", "bdi stats"),
        ("why", "debugfs is not mounted"),
        ("remedy", "mount -t debugfs debugfs /sys/kernel/debug"),
    ];
    readings.events.push(Event::new(
        Moment::from_seconds(START_S),
        "host",
        EventKind::Absent,
        "bdi stats cannot be seen",
        &fields,
    ));
    let findings = found(&readings.window(plant.meta(), START_S, START_S + 40.0));
    let first = &findings[0];
    assert_eq!(
        (first.rule.as_str(), first.cause.as_str()),
        ("dirty-throttle", "device-limit"),
        "{:?}",
        names(&findings)
    );
    assert_eq!(first.confidence, Confidence::Low);
    assert!(first.unseen.iter().any(|unseen| unseen.why == "debugfs is not mounted"), "{:?}", first.unseen);
    assert!(first.unseen.iter().any(|unseen| unseen.what.contains("kernel functions")), "{:?}", first.unseen);

    let no_pressure = Plant { see_pressure: false, ..capped(Limit::Device) };
    let findings = found(&no_pressure.window());
    assert_eq!(findings.len(), 2, "{:?}", names(&findings));
    assert_eq!(findings[1].confidence, Confidence::Low);
    assert!(findings[1].unseen.iter().any(|unseen| unseen.what.contains("PSI")));
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
        let findings = found(&readings.window(plant.meta(), START_S, START_S + 40.0));
        let first = findings.into_iter().find(|finding| finding.cause == "cgroup-limit");
        first.map(|first| (first.figure("dirty_threshold_bytes").unwrap() / MIB, first.unseen))
    };
    let (told, unseen) = limit(None).unwrap();
    assert!((told - 384.0).abs() < 1.0 && unseen.iter().any(|unseen| unseen.what.contains("vm.dirty_ratio")));
    // The host's limit is a fifth of its memory, as the settings say, but for what the kernel counts otherwise.
    let (held, unseen) = limit(Some(18_500.0 * MIB)).unwrap();
    assert!((held - 384.0).abs() < 1.0 && !unseen.iter().any(|unseen| unseen.what.contains("vm.dirty_ratio")));
    // It is an eighth: the ratio was changed since, and the group's limit with it.
    let (changed, _) = limit(Some(32_000.0 * MIB)).unwrap();
    assert!((changed - 240.0).abs() < 5.0, "{changed}");
}

#[test]
fn without_the_needed_series_there_is_silence() {
    for prefix in ["host.", "host.bdi"] {
        let plant = capped(Limit::Device);
        let mut readings = plant.readings();
        readings.forget(prefix);
        readings.forget("host.vm");
        let findings = found(&readings.window(plant.meta(), START_S, START_S + 40.0));
        assert!(!names(&findings).iter().any(|name| name.starts_with("dirty")), "{prefix}: {:?}", names(&findings));
    }
    let plant = capped(Limit::Device);
    let mut readings = plant.readings();
    readings.samples.clear();
    let findings = found(&readings.window(plant.meta(), START_S, START_S + 40.0));
    assert!(
        !names(&findings).iter().any(|name| name.starts_with("dirty")),
        "nobody was seen to be held: {:?}",
        names(&findings)
    );
}

#[test]
fn figures_and_pages_keep_their_promises() {
    let units = ["bytes", "per_s", "iops", "ratio", "_s", "_ms", "count", "per_month"];
    let mut findings = found(&capped(Limit::Device).window());
    findings.extend(found(&Plant { syncs: vec![(12.0, 3.0)], ..Plant::default() }.window()));
    findings.extend(found(&stampede(Limit::Host).window()));
    for finding in &findings {
        let info = rule(&finding.rule).unwrap();
        assert!(info.causes.contains(&finding.cause.as_str()), "{}", finding.cause);
        assert!(finding.from < finding.to && !finding.summary.is_empty() && !finding.evidence.is_empty());
        for figure in finding.evidence.iter().chain(finding.remedies.iter().flat_map(|remedy| &remedy.predicted)) {
            assert!(units.iter().any(|unit| figure.name.ends_with(unit)), "{}", figure.name);
            assert!(figure.value.is_finite(), "{figure:?}");
        }
        for remedy in &finding.remedies {
            assert!(!remedy.undo.is_empty() && !remedy.risk.is_empty(), "{remedy:?}");
        }
        serde_json::to_string(finding).unwrap();
    }
    for info in RULES {
        assert!(info.page.starts_with(&format!("# {}\n", info.name)));
        for cause in info.causes {
            assert!(info.page.contains(&format!("`{cause}`")), "{}: {cause}", info.name);
        }
    }
}
