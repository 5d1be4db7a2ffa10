//! Rules on simulated windows: each fault by itself, both together, and everything that must stay silent.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{RULES, rule};
use backwater_model::catalogue as cat;
use backwater_model::{Confidence, Event, EventKind, Moment, Severity, Target, Window};
use common::judged::{capped, found, names, silent, stampede};
use common::plant::{Limit, MIB, Plant, START_S};

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
fn synchronous_writes_at_a_ceiling_are_io_capped_alone() {
    let plant = Plant { synchronous: true, cap_iops: Some(1_000.0), ..Plant::default() };
    let findings = found(&plant.window());
    assert_eq!(names(&findings), ["io-capped cgroup-cap host.disk@7:0"]);
    assert!(findings[0].foreground_lost.unwrap() > 0.5);
    let saturated = Plant { synchronous: true, device_iops: 1_000.0, ..Plant::default() };
    assert_eq!(names(&found(&saturated.window())), ["device-saturated deep-queue host.disk@7:0"]);
}

#[test]
fn a_standby_that_commits_nothing_has_no_commits_to_wait() {
    let victims = |readings: common::Readings, plant: &Plant| {
        let findings = found(&readings.window(plant.meta(), START_S, START_S + plant.seconds));
        findings.iter().find(|finding| finding.queue == "host.disk@7:0").unwrap().victims.clone()
    };
    let capped = Plant { synchronous: true, cap_iops: Some(1_000.0), ..Plant::default() };
    let saturated = Plant { synchronous: true, device_iops: 1_000.0, ..Plant::default() };
    for plant in [capped, saturated] {
        assert_eq!(victims(plant.readings(), &plant), ["pg.commit"]);
        // The same device under a server that replays WAL from elsewhere.
        let mut replays = plant.readings();
        replays.put(&cat::PG_WAL_REPLAY, &[("target", "lab")], START_S + 1.0, 1_000.0);
        assert_eq!(victims(replays, &plant), ["pg.wal.standby_flush@lab", "pg.wal.standby_replay@lab"]);
    }
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
fn of_two_servers_the_one_whose_checkpoints_sync_is_named() {
    let plant = Plant { syncs: vec![(12.0, 3.0), (28.0, 4.0)], ..Plant::default() };
    let mut meta = plant.meta();
    meta.targets.push(Target { name: "other".into(), kind: "postgres".into(), ..Target::default() });
    for server in ["lab", "other"] {
        let mut readings = plant.readings();
        // The counters are the first one's.
        readings.forget(if server == "lab" { "nothing" } else { cat::PG_CHECKPOINT_SYNC_MS.name });
        readings.events.iter_mut().for_each(|event| event.source = server.into());
        // Its sessions are whoever's checkpoints sync.
        readings.samples.iter_mut().for_each(|sample| sample.target = server.into());
        let findings = found(&readings.window(meta.clone(), START_S, START_S + plant.seconds));
        let told: Vec<_> = findings.iter().map(|finding| (finding.rule.as_str(), finding.server.as_deref())).collect();
        assert_eq!(told, [("checkpoint-burst", Some(server))]);
    }
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
    assert_eq!(findings[0].foreground_lost, None, "waits for WAL are not its alone");
    let causes: Vec<&str> = findings[0].ruled_out.iter().map(|out| out.cause.as_str()).collect();
    assert_eq!(causes, ["dirty-throttle", "device-saturated"]);
    silent(&window(1e6), "CHECKPOINT commands");
}

#[test]
fn forced_checkpoints_of_two_loads_do_not_look_rare_for_the_quiet_between() {
    // One each ten seconds for a minute, half an hour of nothing, and one each ten seconds for two minutes more.
    let worked = |second: i32| f64::from(second.min(60) + (second - 1_860).max(0));
    let mut readings = Plant::default().readings();
    for second in 0..=1_980 {
        let at = START_S + f64::from(second);
        readings.put(&cat::PG_WAL_INSERT, &[("target", "lab")], at, worked(second) * 60e6);
        readings.put(&cat::PG_CHECKPOINTS_REQUESTED, &[("target", "lab")], at, (worked(second) / 10.0).floor());
    }
    let window = readings.window(Plant::default().meta(), START_S, START_S + 1_980.0);
    let findings = found(&window);
    let finding = findings.iter().find(|finding| finding.cause == "too-frequent").unwrap();
    assert_eq!(finding.figure("checkpoint_spacing_s"), Some(10.0));
    assert_eq!(finding.figure("checkpoints_forced_count"), Some(12.0));
    assert!(finding.from.seconds() >= START_S + 1_860.0, "{}", finding.from.seconds() - START_S);
    // Room for five minutes of 60 MB a second, with the share that is kept for the next one.
    assert!(finding.remedies[0].runtime[0].contains("32616MB"), "{:?}", finding.remedies[0].runtime);
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
