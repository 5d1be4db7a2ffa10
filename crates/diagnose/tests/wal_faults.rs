//! Rules about WAL and standbys on a simulated plant: each fault by itself is named first, with its cause.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::{
    Confidence, Epoch, Event, EventKind, Finding, Moment, Point, Severity, Window, catalogue as cat,
};
use common::Readings;
use common::judged::{diagnose, names};
use common::wal_plant::{Keep, MIB, Replay, START_S, WalPlant};

fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options::default())
}

fn first(plant: &WalPlant) -> String {
    let names = names(&found(&plant.window()));
    names.into_iter().next().unwrap_or_else(|| "nothing".to_owned())
}

fn silent(plant: &WalPlant, what: &str) {
    let findings = found(&plant.window());
    assert_eq!(
        names(&findings),
        Vec::<String>::new(),
        "{what}: {:?}",
        findings.iter().map(|f| &f.summary).collect::<Vec<_>>()
    );
}

const S: &str = "walreceiver@10.0.0.2";

#[test]
fn healthy_and_idle_systems_are_silent() {
    silent(&WalPlant::default(), "healthy");
    silent(&WalPlant { rate: 0.0, ..WalPlant::default() }, "idle");
    silent(&WalPlant { rate: 2_000.0, ..WalPlant::default() }, "nearly idle");
    silent(&WalPlant { rate: 60.0 * MIB, ..WalPlant::default() }, "half of the link");
    let bursts = vec![(8.0, 2.0, 200.0 * MIB), (20.0, 1.0, 380.0 * MIB)];
    silent(&WalPlant { bursts, ..WalPlant::default() }, "bursts that drain at once");
    silent(&WalPlant { synchronous: true, ..WalPlant::default() }, "a synchronous standby that keeps up");
    silent(&WalPlant { see_standby: false, see_tcp: false, ..WalPlant::default() }, "seen from afar");
    silent(&WalPlant { keep: Keep::Slot(None), ..WalPlant::default() }, "with a slot");
    silent(&WalPlant { link: Some(20.0 * MIB), ..WalPlant::default() }, "a shaper with room");
    silent(
        &WalPlant { primary_cap: Some(40.0 * MIB), standby_cap: Some(40.0 * MIB), ..WalPlant::default() },
        "caps with room",
    );
}

#[test]
fn each_fault_is_named() {
    let plant = WalPlant::default;
    let cases: Vec<(WalPlant, String)> = vec![
        (
            WalPlant { primary_cap: Some(2.0 * MIB), ..plant() },
            "wal-device-capped cgroup-cap pg.wal.local_flush".into(),
        ),
        (
            WalPlant { primary_slow: Some(2.0 * MIB), ..plant() },
            "wal-device-saturated slow-requests pg.wal.local_flush".into(),
        ),
        (
            WalPlant { standby_cap: Some(2.0 * MIB), ..plant() },
            format!("standby-disk cgroup-cap pg.wal.standby_write@{S}"),
        ),
        (
            WalPlant { standby_slow: Some(2.0 * MIB), ..plant() },
            format!("standby-disk saturated pg.wal.standby_write@{S}"),
        ),
        (WalPlant { link: Some(3.0 * MIB), ..plant() }, format!("network-narrow shaper pg.wal.send@{S}")),
        (
            WalPlant { link: Some(3.0 * MIB), see_shaper: false, ..plant() },
            format!("network-narrow path pg.wal.send@{S}"),
        ),
        (WalPlant { replay: Replay::Paused, ..plant() }, format!("replay-paused paused pg.wal.standby_replay@{S}")),
        (
            WalPlant { replay: Replay::Conflict("IPC", "RecoveryConflictSnapshot"), ..plant() },
            format!("replay-conflict snapshot pg.wal.standby_replay@{S}"),
        ),
        (
            WalPlant { replay: Replay::Conflict("Lock", "relation"), ..plant() },
            format!("replay-conflict lock pg.wal.standby_replay@{S}"),
        ),
        (
            WalPlant { replay: Replay::Conflict("BufferPin", "BufferPin"), ..plant() },
            format!("replay-conflict bufferpin pg.wal.standby_replay@{S}"),
        ),
        (
            WalPlant { replay: Replay::Rate(4.0 * MIB), ..plant() },
            format!("replay-cpu single-process pg.wal.standby_replay@{S}"),
        ),
        (
            WalPlant { replay: Replay::Reads(3.0 * MIB), ..plant() },
            format!("standby-disk slow pg.wal.standby_replay@{S}"),
        ),
        (
            WalPlant { walsender_reads: Some(3.0 * MIB), ..plant() },
            format!("walsender-starved wal-read pg.wal.send@{S}"),
        ),
        (WalPlant { away: Some((10.0, 1e9)), ..plant() }, format!("standby-gone disconnected pg.wal.retained@{S}")),
    ];
    for (plant, expected) in cases {
        assert_eq!(
            first(&plant),
            expected,
            "{:#?}",
            found(&plant.window()).iter().map(|f| (&f.rule, f.severity, &f.summary)).collect::<Vec<_>>()
        );
    }
}

/// What is found of a standby of release 12, whose startup process says nothing of what it waits for; the kernel may.
fn release_12(replay: Replay, kernel: Option<char>, cpu_seen: bool) -> Vec<String> {
    let plant = WalPlant { replay, ..WalPlant::default() };
    let mut readings = plant.readings();
    if !cpu_seen {
        readings.forget(cat::PROC_CPU.name);
    }
    for sample in readings.samples.iter_mut().filter(|sample| sample.backend_type.as_deref() == Some("startup")) {
        (sample.wait_event_type, sample.wait_event, sample.kernel_state) = (None, None, kernel);
    }
    let mut meta = plant.meta();
    meta.targets.iter_mut().for_each(|target| target.version_num = Some(120_022));
    names(&found(&readings.window(meta, START_S, START_S + plant.seconds)))
}

#[test]
fn a_process_that_does_not_say_what_it_sleeps_for_does_not_work_for_that() {
    let conflict = Replay::Conflict("IPC", "RecoveryConflictSnapshot");
    for (kernel, cpu_seen) in [(None, false), (None, true), (Some('S'), false), (Some('S'), true)] {
        assert_eq!(release_12(conflict, kernel, cpu_seen), Vec::<String>::new(), "{kernel:?} {cpu_seen}");
        let paused = release_12(Replay::Paused, kernel, cpu_seen);
        assert_eq!(paused, [format!("replay-paused paused pg.wal.standby_replay@{S}")], "{kernel:?} {cpu_seen}");
    }
    // One that the kernel sees run, or that uses a processor, works.
    let works = format!("replay-cpu single-process pg.wal.standby_replay@{S}");
    for (kernel, cpu_seen) in [(Some('R'), false), (None, true)] {
        assert_eq!(release_12(Replay::Rate(4.0 * MIB), kernel, cpu_seen)[0], works, "{kernel:?} {cpu_seen}");
    }
}

#[test]
fn an_interface_that_is_full_of_something_else_is_not_to_blame() {
    let plant = WalPlant { link: Some(3.0 * MIB), see_shaper: false, ..WalPlant::default() };
    let mut readings = plant.readings();
    for second in 0..=40 {
        let (other, at) = ([("target", "host"), ("if", "eth9")], f64::from(second));
        readings.put(&cat::NET_SHAPER, &other, START_S + at, 10_000.0);
        readings.put(&cat::NET_SENT_BYTES, &other, START_S + at, 10_000.0 * at);
    }
    let window = readings.window(plant.meta(), START_S, START_S + plant.seconds);
    assert_eq!(names(&found(&window))[0], format!("network-narrow path pg.wal.send@{S}"));
}

#[test]
fn the_primary_alone_tells_network_from_disk() {
    let alone = WalPlant { see_standby: false, ..WalPlant::default() };
    let disk = found(&WalPlant { standby_cap: Some(2.0 * MIB), ..alone.clone() }.window());
    assert_eq!((disk[0].rule.as_str(), disk[0].cause.as_str()), ("standby-disk", "seen-from-primary"));
    assert!(disk[0].ruled_out.iter().any(|out| out.cause == "network-narrow"));
    assert!(disk[0].unseen.iter().any(|unseen| unseen.what.contains("standby")), "{:?}", disk[0].unseen);
    let network = found(&WalPlant { link: Some(3.0 * MIB), ..alone.clone() }.window());
    assert_eq!((network[0].rule.as_str(), network[0].cause.as_str()), ("network-narrow", "shaper"));
    assert!(network[0].ruled_out.iter().any(|out| out.cause == "standby-disk"));
    let paused = found(&WalPlant { replay: Replay::Paused, ..alone.clone() }.window());
    assert_eq!((paused[0].cause.as_str(), paused[0].confidence), ("standstill", Confidence::Low));
    assert!(paused[0].summary.contains("delayed on purpose"), "{}", paused[0].summary);
    let looks = &paused[0].remedies[0].runtime;
    assert!(looks.iter().any(|look| look.starts_with("SHOW recovery_min_apply_delay")), "{looks:?}");
    // Neither timers nor standby: the backlog is there, and nobody can say why.
    for plant in
        [WalPlant { standby_cap: Some(2.0 * MIB), ..alone.clone() }, WalPlant { link: Some(3.0 * MIB), ..alone }]
    {
        silent(&WalPlant { see_tcp: false, see_shaper: false, ..plant }, "no timers");
    }
}

#[test]
fn the_standby_tells_where_the_timers_are_unseen() {
    let disk = WalPlant { standby_cap: Some(2.0 * MIB), see_tcp: false, ..WalPlant::default() };
    assert_eq!(first(&disk), format!("standby-disk cgroup-cap pg.wal.standby_write@{S}"));
}

#[test]
fn wal_comes_before_the_bare_device_and_data_alone_do_not() {
    let wal = found(&WalPlant { primary_cap: Some(2.0 * MIB), ..WalPlant::default() }.window());
    assert_eq!(wal[0].rule, "wal-device-capped");
    let bare = wal.iter().find(|finding| finding.rule == "io-capped");
    assert!(bare.is_none_or(|finding| finding.severity == Severity::Info), "{:?}", names(&wal));
    assert!(wal[0].remedies[0].runtime[0].contains("blkio.throttle.write_bps_device"), "{:?}", wal[0].remedies);
    let data = found(&WalPlant { primary_cap: Some(2.0 * MIB), wal_on_capped: false, ..WalPlant::default() }.window());
    assert_eq!(names(&data), ["io-capped cgroup-cap host.disk@7:0"]);
    let both =
        found(&WalPlant { primary_cap: Some(2.0 * MIB), standby_cap: Some(MIB), ..WalPlant::default() }.window());
    let rules: Vec<&str> = both.iter().filter(|f| f.severity > Severity::Info).map(|f| f.rule.as_str()).collect();
    assert_eq!(rules, ["wal-device-capped", "standby-disk"], "{:?}", names(&both));
}

#[test]
fn what_is_below_a_cascading_standby_is_told_as_below_a_primary() {
    let cascading = WalPlant { cascading: true, see_standby: false, ..WalPlant::default() };
    silent(&cascading, "a cascade in which all is well");
    let gone = WalPlant { away: Some((10.0, 1e9)), keep: Keep::Size(512.0 * MIB), ..cascading.clone() };
    assert_eq!(first(&gone), format!("standby-gone disconnected pg.wal.retained@{S}"));
    let finding = found(&gone.window()).remove(0);
    assert!(finding.figure("retained_bytes").is_some_and(|kept| kept > 8.0 * MIB), "{finding:?}");
    // It has a restartpoint only where its own upstream had a checkpoint: when WAL is removed cannot be told.
    assert!(finding.summary.contains("WAL that it needs may be removed in"), "{}", finding.summary);
    let narrow = found(&WalPlant { link: Some(3.0 * MIB), ..cascading }.window()).remove(0);
    assert_eq!(narrow.rule, "network-narrow");
    assert!(narrow.figure("sent_delay_bytes").is_some_and(|behind| behind > MIB), "{narrow:?}");
}

#[test]
fn a_standby_whose_clock_is_behind_is_not_behind_for_that() {
    for skew_s in [-30.0, 30.0, 900.0] {
        silent(&WalPlant { skew_s, ..WalPlant::default() }, "a clock that is off");
        let paused = WalPlant { replay: Replay::Paused, see_standby: false, skew_s, ..WalPlant::default() };
        assert_eq!(first(&paused), format!("replay-paused standstill pg.wal.standby_replay@{S}"), "{skew_s}");
    }
}

#[test]
fn a_fault_that_has_passed_is_told_with_its_time_and_the_drain_is_none() {
    let plant = WalPlant { link: Some(3.0 * MIB), fault: (5.0, 20.0), ..WalPlant::default() };
    let findings = found(&plant.window());
    assert_eq!(names(&findings), [format!("network-narrow shaper pg.wal.send@{S}")]);
    let length = findings[0].to.seconds_since(findings[0].from);
    assert!((8.0..=20.0).contains(&length), "{length}");
    let brief = WalPlant { away: Some((10.0, 14.0)), ..WalPlant::default() };
    silent(&brief, "a standby that was restarted");
}

#[test]
fn a_synchronous_standby_that_is_slow_is_told_below_its_reason() {
    let plant = WalPlant { standby_cap: Some(MIB), synchronous: true, clients: 16, ..WalPlant::default() };
    let findings = found(&plant.window());
    let rules: Vec<&str> = findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(rules[0], "standby-disk", "{rules:?}");
    assert!(rules.contains(&"sync-standby-slow"), "{rules:?}");
    assert!(findings[0].severity >= Severity::Warning && findings[0].victims.contains(&"pg.commit".to_owned()));
}

#[test]
fn heartbeats_are_told_below_what_makes_them_late() {
    let plant = WalPlant { primary_cap: Some(2.0 * MIB), clients: 16, ..WalPlant::default() };
    let findings = found(&plant.window());
    assert_eq!(findings[0].rule, "wal-device-capped");
    let heartbeat = findings.iter().find(|finding| finding.rule == "heartbeat-at-risk").unwrap();
    assert_eq!(heartbeat.cause, "missed");
    assert!(heartbeat.summary.contains("wal-device-capped"), "{}", heartbeat.summary);
    assert!(heartbeat.figure("heartbeat_missed").unwrap() >= 2.0);
}

/// The readings, with every position lower by so much from a moment on: in another life of the servers, or in the same one.
fn put_back(plant: &WalPlant, at_s: f64, by: f64, marked: bool) -> Window {
    let mut readings = Readings::default();
    for (series, points) in plant.readings().into_series() {
        let position = series.name.starts_with("pg.") && series.name.ends_with("_bytes");
        let def = backwater_model::catalogue::ALL.iter().find(|def| def.name == series.name).unwrap();
        let labels: Vec<(&'static str, &str)> =
            def.labels.iter().filter_map(|label| Some((*label, series.labels.get(label)?))).collect();
        for mut point in points {
            if point.at.seconds() >= START_S + at_s && position {
                point.value = (point.value - by).max(0.0);
                point.epoch = if marked { Epoch(point.epoch.0 + 1_000) } else { point.epoch };
            }
            readings.push(def, &labels, point);
        }
    }
    (readings.samples, readings.events) = (plant.readings().samples, plant.readings().events);
    readings.window(plant.meta(), START_S, START_S + plant.seconds)
}

#[test]
fn positions_that_go_back_accuse_nobody() {
    for (by, marked) in [(200.0 * MIB, true), (200.0 * MIB, false), (20_000.0 * MIB, false), (0.5 * MIB, false)] {
        for plant in [
            WalPlant::default(),
            WalPlant { see_standby: false, ..WalPlant::default() },
            WalPlant { keep: Keep::Slot(None), ..WalPlant::default() },
        ] {
            let findings = found(&put_back(&plant, 20.3, by, marked));
            assert_eq!(names(&findings), Vec::<String>::new(), "{by} {marked} {plant:?}");
        }
    }
}

#[test]
fn who_is_not_seen_after_a_restart_is_not_said_to_stay_away() {
    let plant = WalPlant { seconds: 100.0, see_standby: false, ..WalPlant::default() };
    // The server is started anew in the tenth second and read again from the fourteenth on, without a row of a standby.
    let told = |absent: Option<f64>| {
        let mut readings = Readings::default();
        for (series, points) in plant.readings().into_series() {
            let def = cat::ALL.iter().find(|def| def.name == series.name).unwrap();
            let labels: Vec<(&'static str, &str)> =
                def.labels.iter().filter_map(|label| Some((*label, series.labels.get(label)?))).collect();
            for point in points {
                let second = point.at.seconds() - START_S;
                let is_row = series.name.starts_with("pg.replication.");
                if second < 10.0 || (second >= 14.0 && !is_row) {
                    let epoch = Epoch(point.epoch.0 + u64::from(second >= 14.0));
                    readings.push(def, &labels, Point { epoch, ..point });
                }
            }
        }
        let at = |second: f64| Moment::from_seconds(START_S + second);
        let whole = |second: f64| Event::new(at(second), "primary", EventKind::Gap, "", &[("probe", "primary")]);
        readings.events.extend([10.0, 13.8].map(whole));
        let fields = [("what", "standbys"), ("why", "role plain is no member of pg_monitor")];
        readings.events.extend(absent.map(|second| Event::new(at(second), "primary", EventKind::Absent, "", &fields)));
        let findings = found(&readings.window(plant.meta(), START_S, START_S + plant.seconds));
        findings.iter().any(|finding| finding.cause == "not-back")
    };
    // Told at the new connection's first look, before anything is read.
    assert_eq!((told(None), told(Some(13.8))), (true, false));
}
