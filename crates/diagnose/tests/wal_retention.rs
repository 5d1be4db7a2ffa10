//! How long until WAL that a standby needs is removed: predicted from the first readings, compared with what the plant then does.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Holder, Options, replication_path, replication_queues, retention, warn};
use backwater_model::{Event, EventKind, Path, Severity, catalogue as cat};
use common::judged::diagnose;
use common::wal_plant::{Keep, MIB, Replay, S, START_S, State, WalPlant, at, narrow, run, until};

/// When the head was first so far past what the standby needs that it was no longer kept: the earliest moment, in truth.
fn truly(plant: &WalPlant, states: &[State]) -> f64 {
    let Keep::Size(keep) = plant.keep else { panic!("by size") };
    let segment = 16.0 * MIB;
    let over = |state: &State| (state.insert / segment).floor() - keep / segment > (state.sent / segment).floor();
    states.iter().position(over).unwrap() as f64
}

#[test]
fn both_moments_are_told_ahead() {
    for seed in 1..6 {
        let plant = WalPlant { seed, ..narrow() };
        let (window, states) = run(&plant);
        let (earliest, removed) = (truly(&plant, &states), states.last().unwrap().removed_at.unwrap());
        for second in [25.0, 35.0, 45.0] {
            let told = retention(&until(&window, second), "primary", S, at(second)).unwrap();
            assert_eq!((told.holder, told.connected), (Holder::KeepSize, true));
            let (left, truth) = (told.earliest_s.unwrap(), earliest - second);
            assert!((left / truth - 1.0).abs() <= 0.2, "seed {seed} at {second}: {left} for {truth}");
            let (gone, truth) = (told.removal_s.unwrap(), removed - second);
            let interval = told.checkpoint_interval_s.unwrap();
            assert!(
                (gone - truth).abs() <= interval,
                "seed {seed} at {second}: {gone} for {truth}, interval {interval}"
            );
            assert!(gone >= left);
        }
    }
}

#[test]
fn a_size_that_is_not_of_whole_segments_is_rounded_down() {
    let left = |keep: f64| {
        let (window, _) = run(&WalPlant { keep: Keep::Size(keep), ..narrow() });
        retention(&until(&window, 25.0), "primary", S, at(25.0)).unwrap().earliest_s.unwrap()
    };
    assert_eq!(left(520.0 * MIB), left(512.0 * MIB));
    assert!(left(528.0 * MIB) > left(520.0 * MIB));
}

/// As on a real server: 8 MiB in one lump a second, sooner or later, and 208 MB kept.
#[test]
fn lumps_are_counted_down_until_ten_seconds_before() {
    for seed in 1..9 {
        let late = |n: u32| f64::from((n * (7 + 2 * seed as u32)) % 10) * 0.05;
        let bursts = (0..100).map(|n| (f64::from(n) + late(n), 0.4, 20.0 * MIB)).collect();
        let keep = Keep::Size(208.0 * MIB);
        let plant = WalPlant { seed, seconds: 100.0, rate: 0.0, bursts, keep, max_wal: 96.0 * MIB, ..narrow() };
        let (window, states) = run(&plant);
        let (earliest, removed) = (truly(&plant, &states), states.last().unwrap().removed_at.unwrap());
        let moments = (22..).map(f64::from).take_while(|second| earliest - second >= 10.0);
        let off = |second: f64| {
            let told = retention(&until(&window, second), "primary", S, at(second)).unwrap();
            let interval = told.checkpoint_interval_s.unwrap();
            assert!((5.4..6.6).contains(&interval), "seed {seed} at {second}: three segments take 6 s, not {interval}");
            let earliest = (told.earliest_s.unwrap() / (earliest - second) - 1.0).abs();
            (earliest, (told.removal_s.unwrap() - (removed - second)).abs() / interval)
        };
        let off: Vec<(f64, f64)> = moments.map(off).collect();
        let close = off.iter().all(|(earliest, checkpoints)| *earliest <= 0.2 && *checkpoints <= 1.0);
        assert!(off.len() >= 5 && close, "seed {seed}: {off:?}");
    }
}

#[test]
fn a_standby_that_is_away_is_counted_down_as_well() {
    let plant = WalPlant { link: None, away: Some((10.0, 1e9)), ..narrow() };
    let (window, states) = run(&plant);
    let removed = states.last().unwrap().removed_at.unwrap();
    let told = retention(&until(&window, 25.0), "primary", S, at(25.0)).unwrap();
    assert!(!told.connected && told.outflow_bytes_per_s == 0.0);
    assert!((told.removal_s.unwrap() - (removed - 25.0)).abs() <= told.checkpoint_interval_s.unwrap());
    let gone = diagnose(&until(&window, 25.0), &Options::default());
    assert_eq!((gone[0].rule.as_str(), gone[0].severity), ("standby-gone", Severity::Critical));
    assert!(gone[0].figure("removal_left_s").is_some());
}

#[test]
fn the_warning_comes_before_and_not_without_danger() {
    let (window, states) = run(&narrow());
    let removed = states.last().unwrap().removed_at.unwrap();
    let warned = |second: f64| {
        let list = warn(&until(&window, second), 30.0);
        list.into_iter().find(|finding| finding.rule == "wal-removed" && finding.cause == "approaching")
    };
    let early = warned(30.0).unwrap();
    assert!(early.figure("removal_left_s").unwrap() <= removed - 30.0 + 60.0);
    assert!(early.severity <= Severity::Warning && !early.remedies.is_empty());
    assert_eq!(early.queue, format!("pg.wal.retained@{S}"));
    let calm = [
        WalPlant { keep: Keep::Size(512.0 * MIB), ..WalPlant::default() },
        WalPlant { keep: Keep::Size(0.0), ..WalPlant::default() },
        WalPlant { keep: Keep::Slot(Some(512.0 * MIB)), ..WalPlant::default() },
        WalPlant { keep: Keep::Slot(None), ..WalPlant::default() },
        WalPlant { rate: 0.0, ..WalPlant::default() },
    ];
    for plant in calm {
        let window = plant.window();
        for second in [5.0, 15.0, 30.0, 40.0] {
            assert_eq!(warn(&until(&window, second), 30.0), [], "{:?} at {second}", plant.keep);
        }
    }
}

#[test]
fn once_it_is_gone_that_comes_first() {
    let (window, states) = run(&narrow());
    let removed = states.last().unwrap().removed_at.unwrap();
    let findings = diagnose(&until(&window, removed + 12.0), &Options::default());
    let first = &findings[0];
    assert_eq!((first.rule.as_str(), first.cause.as_str()), ("wal-removed", "segment-removed"));
    assert!(first.summary.contains("000000010000000000000040"), "{}", first.summary);
    assert!(first.remedies.iter().any(|remedy| remedy.persistent.iter().any(|line| line.contains("pg_basebackup"))));
    let gone = findings.iter().find(|finding| finding.rule == "standby-gone");
    assert!(gone.is_none_or(|finding| finding.severity == Severity::Info));
}

#[test]
fn each_standby_that_lost_its_wal_is_named() {
    let plant = WalPlant { link: None, away: Some((10.0, 1e9)), ..narrow() };
    let (mut readings, states) = plant.run();
    let removed = states.last().unwrap().removed_at.unwrap();
    readings.adopt(plant.readings(), "b", 777);
    let window = readings.window(plant.meta(), START_S, START_S + plant.seconds);
    let findings = diagnose(&until(&window, removed + 12.0), &Options::default());
    let gone: Vec<&str> = findings.iter().filter(|f| f.rule == "wal-removed").map(|f| f.queue.as_str()).collect();
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert!(gone.contains(&format!("pg.wal.retained@{S}").as_str()) && gone[0] != gone[1], "{gone:?}");
}

#[test]
fn why_a_slot_was_given_up_is_said_where_the_server_tells() {
    let plant = WalPlant { keep: Keep::Slot(Some(256.0 * MIB)), link: None, away: Some((10.0, 1e9)), ..narrow() };
    let told = |version: i32, code: Option<f64>| {
        let (mut readings, states) = plant.run();
        let end = states.last().unwrap().removed_at.unwrap() + 3.0;
        if let Some(code) = code {
            readings.put(
                &cat::PG_SLOT_INVALIDATION,
                &[("target", "primary"), ("slot", "s1")],
                START_S + end - 1.0,
                code,
            );
        }
        let mut meta = plant.meta();
        meta.targets[0].version_num = Some(version);
        let window = readings.window(meta, START_S, START_S + end);
        let first = diagnose(&window, &Options::default()).remove(0);
        assert_eq!((first.rule.as_str(), first.cause.as_str()), ("wal-removed", "slot-lost"));
        (first.summary, format!("{:?}", first.remedies))
    };
    assert!(told(150_004, None).0.contains("more than max_slot_wal_keep_size"));
    assert!(told(180_001, Some(1.0)).0.contains("more than max_slot_wal_keep_size"));
    let (unknown, _) = told(160_004, None);
    assert!(!unknown.contains("max_slot_wal_keep_size") && unknown.contains("log"), "{unknown}");
    let (idle, remedies) = told(180_001, Some(4.0));
    assert!(idle.contains("idle_replication_slot_timeout") && remedies.contains("idle_replication_slot_timeout = '0'"));
    assert!(!remedies.contains("max_slot_wal_keep_size = "), "{remedies}");
    let (level, remedies) = told(170_004, Some(3.0));
    assert!(level.contains("wal_level") && remedies.contains("CREATE SUBSCRIPTION"), "{level} {remedies}");
    assert!(level.contains("with a new slot and a copy of its tables") && idle.contains("goes on with a new slot"));
}

#[test]
fn an_idle_slot_is_given_up_by_time_where_that_comes_first() {
    let plant = WalPlant { keep: Keep::Slot(None), link: None, away: Some((10.0, 1e9)), ..narrow() };
    let idle = |timeout: &str| {
        let mut meta = plant.meta();
        meta.targets[0].settings.insert("idle_replication_slot_timeout".to_owned(), timeout.to_owned());
        let window = plant.readings().window(meta, START_S, START_S + plant.seconds);
        let findings = diagnose(&until(&window, 60.0), &Options::default());
        findings.into_iter().find(|finding| finding.rule == "slot-inactive").unwrap()
    };
    let by_time = idle("2min");
    assert_eq!(by_time.cause, "approaching-limit");
    assert!(by_time.summary.contains("idle_replication_slot_timeout") && !by_time.summary.contains("full"));
    for timeout in ["0", "30d"] {
        assert!(idle(timeout).summary.contains("the volume of WAL is full"), "{timeout}");
    }
}

#[test]
fn slots_with_and_without_a_limit() {
    let slot = |most: Option<f64>| WalPlant { keep: Keep::Slot(most), link: None, away: Some((10.0, 1e9)), ..narrow() };
    let (window, states) = run(&slot(Some(256.0 * MIB)));
    let removed = states.last().unwrap().removed_at.unwrap();
    let early = until(&window, 25.0);
    let told = retention(&early, "primary", "s1", at(25.0)).unwrap();
    assert_eq!(told.holder, Holder::Slot);
    assert!((told.removal_s.unwrap() - (removed - 25.0)).abs() <= told.checkpoint_interval_s.unwrap());
    let findings = diagnose(&early, &Options::default());
    let idle = findings.iter().find(|finding| finding.rule == "slot-inactive").unwrap();
    assert_eq!((idle.cause.as_str(), idle.queue.as_str()), ("approaching-limit", "pg.wal.retained@s1"));
    let lost = diagnose(&until(&window, removed + 3.0), &Options::default());
    assert_eq!((lost[0].rule.as_str(), lost[0].cause.as_str()), ("wal-removed", "slot-lost"));
    let more = |remedy: &backwater_model::Remedy| remedy.persistent[0].contains("max_slot_wal_keep_size = '1024MB'");
    assert!(lost[0].remedies.iter().any(more), "{:?}", lost[0].remedies);
    let (endless, _) = run(&slot(None));
    let told = retention(&until(&endless, 60.0), "primary", "s1", at(60.0)).unwrap();
    assert_eq!(told.holder, Holder::Disk);
    let left = 20.0 * 1024.0 / 12.0;
    assert!((told.earliest_s.unwrap() / left - 1.0).abs() <= 0.2, "{told:?}");
    let findings = diagnose(&until(&endless, 60.0), &Options::default());
    let idle = findings.iter().find(|finding| finding.rule == "slot-inactive").unwrap();
    assert_eq!((idle.cause.as_str(), idle.severity), ("retaining", Severity::Warning));
    assert!(idle.remedies[0].runtime[0].contains("pg_drop_replication_slot('s1')"));
}

/// The network has been narrow for twelve seconds: what the standby took before says nothing of what it will.
#[test]
fn rates_of_before_a_lag_began_do_not_count() {
    let plant = WalPlant { fault: (40.0, 1e9), keep: Keep::Size(640.0 * MIB), ..narrow() };
    let (window, states) = run(&plant);
    let finding = diagnose(&until(&window, 52.0), &Options::default()).into_iter().find(|f| f.rule == "network-narrow");
    let (finding, truth) = (finding.unwrap(), truly(&plant, &states) - 52.0);
    assert!(finding.from >= at(39.0), "{:?}", finding.from);
    let left = finding.figure("retention_left_s").unwrap();
    assert!((left / truth - 1.0).abs() <= 0.2, "{left} for {truth}");
}

#[test]
fn the_queue_tells_the_same_time() {
    let (window, _) = run(&narrow());
    let early = until(&window, 35.0);
    let list = replication_queues(&early);
    let names: Vec<&str> = list.iter().map(|queue| queue.name.as_str()).collect();
    let expected = ["send", "standby_write", "standby_flush", "standby_replay", "retained"];
    assert_eq!(names, expected.map(|hop| format!("pg.wal.{hop}@{S}")));
    let kept = list[4].read(&early, at(35.0), 20.0);
    let told = retention(&early, "primary", S, at(35.0)).unwrap();
    assert!((kept.time_to_limit_s().unwrap() / told.earliest_s.unwrap() - 1.0).abs() <= 0.1);
    let unsent = list[0].read(&early, at(35.0), 5.0);
    assert!(unsent.level.unwrap() > 200.0 * MIB && unsent.residence_s().unwrap() > 60.0);
}

#[test]
fn an_old_word_of_the_standby_is_unknown() {
    let silent = WalPlant { rate: 0.0, ..WalPlant::default() };
    let (window, _) = run(&silent);
    let flush = &replication_queues(&window)[2];
    assert_eq!(flush.read(&window, at(30.0), 3.0).level, Some(0.0));
    let mut readings = silent.readings();
    readings.age("pg.replication.", 60.0);
    let old = readings.window(silent.meta(), START_S, START_S + 40.0);
    assert_eq!(flush.read(&old, at(30.0), 3.0).level, None);
}

#[test]
fn the_path_names_the_binding_hop() {
    let cases = [
        (WalPlant { link: Some(3.0 * MIB), ..WalPlant::default() }, Some("tcp@")),
        (WalPlant { standby_cap: Some(2.0 * MIB), ..WalPlant::default() }, Some("walreceiver@")),
        (WalPlant { walsender_reads: Some(3.0 * MIB), ..WalPlant::default() }, Some("walsender@")),
        (WalPlant::default(), None),
    ];
    for (plant, stage) in cases {
        let binding = replication_path(&plant.window(), "primary", S, 20.0).binding();
        let found = binding.as_ref().map(|binding| binding.stage.clone());
        assert_eq!(found, stage.map(|stage| format!("{stage}{S}")), "{binding:?}");
    }
}

/// Replay that waits for reads is held by their device, where that is not its WAL's; the stream before it is not touched.
#[test]
fn the_device_of_the_standbys_data_is_a_hop_of_its_own() {
    let reads = WalPlant { replay: Replay::Reads(3.0 * MIB), data_apart: true, ..WalPlant::default() };
    let path = |plant: &WalPlant| replication_path(&plant.window(), "primary", S, 20.0);
    let stage = |path: &Path, name: &str| path.stages.iter().find(|stage| stage.name == name).cloned();
    let apart = path(&reads);
    let (startup, device) =
        (stage(&apart, &format!("startup@{S}")).unwrap(), stage(&apart, "data-device@standby").unwrap());
    assert_eq!((startup.to.as_deref(), device.from.as_deref()), (Some("host.disk@8:1"), Some("host.disk@8:1")));
    assert!(startup.shares.blocked.unwrap() > 0.9 && device.shares.busy.unwrap() > 0.7, "{apart:?}");
    let binding = apart.binding().unwrap();
    assert_eq!(binding.stage, "data-device@standby");
    assert!(binding.victims.contains(&format!("pg.wal.standby_replay@{S}")), "{binding:?}");
    // On one device the time is replay's own, as before.
    let one = path(&WalPlant { data_apart: false, ..reads.clone() });
    assert_eq!((stage(&one, "data-device@standby"), one.binding().unwrap().stage), (None, format!("startup@{S}")));
    // Whom a query holds up does not wait for the disk, however busy that is; and a healthy one waits for nothing.
    for replay in [Replay::Conflict("IPC", "RecoveryConflictSnapshot"), Replay::Paused, Replay::Rate(150.0 * MIB)] {
        let other = path(&WalPlant { replay, ..reads.clone() });
        assert_eq!(stage(&other, &format!("startup@{S}")).unwrap().to, None, "{replay:?}");
        assert!(other.binding().is_none_or(|binding| binding.stage != "data-device@standby"), "{replay:?}");
    }
}

#[test]
fn a_setting_changed_meanwhile_counts_from_then_on() {
    let (readings, _) = narrow().run();
    let mut meta = narrow().meta();
    meta.targets[0].settings.insert("wal_keep_size".into(), "8GB".into());
    let fields = [("name", "wal_keep_size"), ("before", "8GB"), ("after", "512MB")];
    let change = Event::new(at(20.0), "primary", EventKind::Setting, "wal_keep_size: '8GB' → '512MB'", &fields);
    let mut readings = readings;
    readings.events.push(change);
    let window = readings.window(meta, START_S, START_S + 140.0);
    let limit = |from: f64, to: f64| {
        let part = window.slice(at(from), at(to));
        retention(&part, "primary", S, at(to)).unwrap().limit_bytes.unwrap()
    };
    assert!(limit(0.0, 15.0) > 8_000.0 * MIB && limit(0.0, 35.0) < 600.0 * MIB);
    assert!(limit(25.0, 35.0) < 600.0 * MIB, "also where the change lies before the window");
}
