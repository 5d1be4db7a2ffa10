//! Advice for standbys: sizes follow from measured rates and the outage to survive, and every setting has its risk and its way back.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{StandbyAdvice, SurviveOptions, advise_standbys};
use backwater_model::{Meta, Remedy, Window, catalogue as cat};
use common::wal_plant::{Keep, MIB, START_S, WalPlant};

fn advice(window: &Window, survive_s: f64) -> StandbyAdvice {
    let list = advise_standbys(window, &SurviveOptions { survive_s });
    assert_eq!(list.len(), 1);
    list.into_iter().next().unwrap()
}

fn with<'a>(advice: &'a StandbyAdvice, text: &str) -> Option<&'a Remedy> {
    let lines = |remedy: &&Remedy| remedy.runtime.iter().chain(&remedy.persistent).any(|line| line.contains(text));
    advice.remedies.iter().find(lines)
}

fn predicted(remedy: &Remedy, name: &str) -> f64 {
    remedy.predicted.iter().find(|figure| figure.name == name).unwrap().value
}

#[test]
fn what_is_kept_covers_the_outage() {
    let plant = WalPlant { keep: Keep::Size(0.0), ..WalPlant::default() };
    let window = plant.window();
    let half = advice(&window, 1_500.0);
    let keep = with(&half, "SET wal_keep_size").unwrap();
    let bytes = predicted(keep, "kept_bytes");
    assert!((bytes / (8.0 * MIB * 1_500.0 * 1.2) - 1.0).abs() < 0.1, "{bytes}");
    assert!(predicted(keep, "survive_s") >= 1_500.0);
    assert_eq!(keep.undo[0], "ALTER SYSTEM SET wal_keep_size = '0MB';");
    let slot = with(&half, "pg_create_physical_replication_slot('walreceiver_10_0_0_2', true)").unwrap();
    assert!(slot.risk.contains("max_slot_wal_keep_size"));
    assert!(with(&half, "max_slot_wal_keep_size").is_some() && with(&half, "restore_command").is_some());
    // Twenty times the outage does not fit the disk: said, and not advised.
    let long = advice(&window, 36_000.0);
    assert!(
        with(&long, "SET wal_keep_size").is_none() && long.notes.iter().any(|note| note.contains("enlarge")),
        "{:?}",
        long.notes
    );
    let enough = WalPlant { keep: Keep::Size(40.0 * 1024.0 * MIB), ..WalPlant::default() };
    assert!(with(&advice(&enough.window(), 1_500.0), "SET wal_keep_size").is_none());
}

#[test]
fn release_12_has_segments_and_no_limit_for_slots() {
    let plant = WalPlant { keep: Keep::Size(0.0), ..WalPlant::default() };
    let mut meta: Meta = plant.meta();
    meta.targets[0].version_num = Some(120_022);
    meta.targets[0].settings.remove("SET wal_keep_size");
    meta.targets[0].settings.insert("wal_keep_segments".into(), "0".into());
    let window = plant.readings().window(meta, START_S, START_S + 40.0);
    let found = advice(&window, 1_500.0);
    let segments: f64 =
        with(&found, "wal_keep_segments").unwrap().runtime[0].split('\'').nth(1).unwrap().parse().unwrap();
    assert!((segments / (8.0 * 1_500.0 * 1.2 / 16.0) - 1.0).abs() < 0.1, "{segments}");
    assert!(with(&found, "max_slot_wal_keep_size").is_none());
}

#[test]
fn what_was_not_read_was_not_nothing() {
    let note = |rate: f64, is_read: bool| {
        let plant = WalPlant { rate, ..WalPlant::default() };
        let mut readings = plant.readings();
        if !is_read {
            ["pg.wal.insert_bytes", "pg.wal.flush_bytes"].iter().for_each(|name| readings.forget(name));
        }
        let found = advice(&readings.window(plant.meta(), START_S, START_S + plant.seconds), 1_500.0);
        let says = |begin: &str| found.notes.iter().any(|note| note.starts_with(begin));
        (says("No WAL was made"), says("How much WAL is made was not read"))
    };
    assert_eq!(note(0.0, true), (true, false));
    assert_eq!(note(0.0, false), (false, true));
    assert_eq!(note(8.0 * MIB, true), (false, false));
}

#[test]
fn who_reads_a_logical_slot_reads_no_archive() {
    let plant = WalPlant { keep: Keep::Slot(None), see_standby: false, ..WalPlant::default() };
    let reads = |logical: f64| {
        let mut readings = plant.readings();
        readings.put(&cat::PG_SLOT_LOGICAL, &[("target", "primary"), ("slot", "s1")], START_S + 1.0, logical);
        let found = advice(&readings.window(plant.meta(), START_S, START_S + plant.seconds), 1_500.0);
        with(&found, "restore_command").is_some()
    };
    assert!(reads(0.0) && !reads(1.0));
}

#[test]
fn a_cap_is_raised_or_lifted_by_the_exact_command() {
    let capped = WalPlant { primary_cap: Some(2.0 * MIB), ..WalPlant::default() };
    let found = advice(&capped.window(), 3_600.0);
    let file = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
    let lift = with(&found, &format!("echo '7:0 0' > {file}")).unwrap();
    assert_eq!(lift.undo, [format!("echo '7:0 2097152' > {file}")]);
    assert!(lift.risk.contains("removed") && found.notes.iter().any(|note| note.contains("cap")));
    let mut meta = capped.meta();
    meta.host.cgroup_version = Some("v2".into());
    let v2 = advice(&capped.readings().window(meta, START_S, START_S + 40.0), 3_600.0);
    assert!(with(&v2, "echo '7:0 wbps=max' > /sys/fs/cgroup/io.max").is_some(), "{:?}", v2.remedies);
}

#[test]
fn the_link_and_compression_follow_from_rates() {
    let narrow = WalPlant { link: Some(3.0 * MIB), ..WalPlant::default() };
    let mut readings = narrow.readings();
    for second in 0..=40 {
        // 600 images a second of 8 KiB each: 60 % of 8 MiB.
        let (at, images) = (START_S + f64::from(second), 600.0 * f64::from(second));
        readings.put(&cat::PG_WAL_FPI, &[("target", "primary")], at, images);
    }
    let found = advice(&readings.window(narrow.meta(), START_S, START_S + 40.0), 3_600.0);
    let link = found.remedies.iter().find(|remedy| remedy.title.contains("Mbit/s")).unwrap();
    assert!(predicted(link, "link_bytes_per_s") >= 8.0 * MIB);
    let saving = predicted(with(&found, "wal_compression").unwrap(), "saved_ratio");
    assert!((0.25..=0.35).contains(&saving), "{saving}");
}

#[test]
fn what_the_way_carries_is_the_limit_where_no_ceiling_of_it_is_seen() {
    let plant = WalPlant { link: Some(3.0 * MIB), see_shaper: false, ..WalPlant::default() };
    let mut readings = plant.readings();
    // An interface of 1 Gbit/s that carries something else, for a moment.
    for second in 0..=40 {
        let (other, at) = ([("target", "host"), ("if", "eth9")], START_S + f64::from(second));
        readings.put(&cat::NET_SPEED, &other, at, 125e6);
        readings.put(&cat::NET_SENT_BYTES, &other, at, if second < 20 { 0.0 } else { 20e6 });
    }
    let found = advice(&readings.window(plant.meta(), START_S, START_S + 40.0), 3_600.0);
    let limits = found.observed.iter().filter(|figure| figure.name == "link_limit_bytes_per_s");
    assert_eq!(limits.count(), 0, "{:?}", found.observed);
    let link = found.remedies.iter().find(|remedy| remedy.title.contains("Mbit/s")).unwrap();
    // 3 MiB a second are 25 Mbit/s.
    assert!(link.title.contains("(now 2"), "{}", link.title);
    assert!(predicted(link, "link_bytes_per_s") >= 8.0 * MIB);
    let wide = advice(&WalPlant { see_shaper: false, ..WalPlant::default() }.window(), 3_600.0);
    assert!(wide.remedies.iter().all(|remedy| !remedy.title.contains("Mbit/s")), "{:?}", wide.remedies);
}

#[test]
fn where_nothing_is_made_nothing_is_advised() {
    let idle = advice(&WalPlant { rate: 0.0, ..WalPlant::default() }.window(), 3_600.0);
    assert!(idle.remedies.is_empty() && !idle.notes.is_empty());
    assert!(advise_standbys(&Window::default(), &SurviveOptions::default()).is_empty());
    let found = advice(&WalPlant::default().window(), 3_600.0);
    for remedy in &found.remedies {
        assert!(!remedy.undo.is_empty() && !remedy.risk.is_empty(), "{remedy:?}");
        assert!(remedy.predicted.iter().all(|figure| figure.value.is_finite()));
    }
    serde_json::to_string(&found).unwrap();
}
