//! Two primaries in one window: what befalls one is not laid on the other.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::catalogue as cat;
use backwater_model::{Device, EventKind, Finding, Moment, Role, Target, Window};
use common::Readings;
use common::judged::diagnose;
use common::wal_plant::{MIB, START_S, WalPlant};
use std::sync::Arc;

/// The first is capped. Of the second only what `take` lets through is recorded, of a run that is capped as well, so that
/// its heartbeats are missed and nothing says why.
fn window(take: &dyn Fn(&str) -> bool) -> Window {
    let capped = WalPlant { primary_cap: Some(2.0 * MIB), clients: 16, ..WalPlant::default() };
    let mut readings = capped.readings();
    readings.take_server(WalPlant { seed: 9, ..capped.clone() }.readings(), "second", take);
    let mut meta = capped.meta();
    meta.targets.push(Target {
        name: "second".into(),
        kind: "postgres".into(),
        local: true,
        data_device: Some("9:0".into()),
        wal_device: Some("9:0".into()),
        ..Target::default()
    });
    let roles = vec![(Role::Data, "second".to_owned()), (Role::Wal, "second".to_owned())];
    meta.devices.push(Device { dev: "9:0".into(), name: "loop9".into(), roles, ..Device::default() });
    readings.window(meta, START_S, START_S + capped.seconds)
}

fn of<'a>(findings: &'a [Finding], rule: &str, server: &str) -> Option<&'a Finding> {
    findings.iter().find(|finding| finding.rule == rule && finding.server.as_deref() == Some(server))
}

#[test]
fn a_capped_device_is_no_reason_for_another_servers_heartbeats() {
    let findings = diagnose(&window(&|series| series.starts_with("pg.heartbeat.")), &Options::default());
    let capped = of(&findings, "wal-device-capped", "primary").unwrap();
    assert!(of(&findings, "wal-device-capped", "second").is_none());
    let own = of(&findings, "heartbeat-at-risk", "primary").unwrap();
    assert!(own.summary.contains("The reason is likely wal-device-capped"), "{}", own.summary);
    assert!(capped.victims.contains(&"pg.heartbeat".to_owned()));
    let other = of(&findings, "heartbeat-at-risk", "second").unwrap();
    assert_eq!(other.cause, "missed");
    assert!(!other.summary.contains("The reason is likely"), "{}", other.summary);
}

#[test]
fn a_bare_ceiling_is_told_below_what_it_does_to_the_wal_of_its_own_server_alone() {
    // The second server's own device is capped too; its WAL is not seen, so that nothing tells what that does.
    let findings = diagnose(
        &window(&|series| series.starts_with("host.disk.") || series.starts_with("host.cgroup.")),
        &Options::default(),
    );
    assert!(of(&findings, "wal-device-capped", "primary").is_some());
    let bare = findings.iter().find(|finding| finding.queue == "host.disk@9:0").unwrap();
    assert!(!bare.summary.contains("What that does to WAL"), "{}", bare.summary);
}

impl Readings {
    /// Takes what another run has of its primary and of that one's device, under this name and as device 9:0.
    fn take_server(&mut self, other: Readings, name: &str, take: &dyn Fn(&str) -> bool) {
        for (series, points) in other.into_series() {
            if !take(&series.name) {
                continue;
            }
            let def = backwater_model::catalogue::ALL.iter().find(|def| def.name == series.name).unwrap();
            let value = |label: &'static str| match (label, series.labels.get(label)) {
                ("target", Some("primary")) => Some(name.to_owned()),
                ("dev", Some("7:0")) => Some("9:0".to_owned()),
                ("target" | "dev", _) => None,
                (_, value) => value.map(str::to_owned),
            };
            let labels: Option<Vec<(&'static str, String)>> =
                def.labels.iter().map(|label| Some((*label, value(label)?))).collect();
            let Some(labels) = labels.filter(|labels| !labels.is_empty()) else { continue };
            let labels: Vec<(&'static str, &str)> =
                labels.iter().map(|(label, value)| (*label, value.as_str())).collect();
            points.into_iter().for_each(|point| self.push(def, &labels, point));
        }
    }
}

/// Two servers, each with a slot s1 that nobody reads, as their series tell.
fn two_slots() -> Window {
    let quiet = WalPlant::default();
    let mut readings = Readings::default();
    for server in ["primary", "second"] {
        for second in 0..20 {
            let (at, slot) = (START_S + f64::from(second), [("target", server), ("slot", "s1")]);
            readings.put(&cat::PG_WAL_INSERT, &slot[..1], at, f64::from(second) * MIB);
            readings.put(&cat::PG_SLOT_RESTART, &slot, at, 0.0);
        }
    }
    readings.window(quiet.meta(), START_S, START_S + 20.0)
}

#[test]
fn slots_of_one_name_are_queues_of_their_own_servers() {
    let window = two_slots();
    let queues = backwater_diagnose::all_queues(&window);
    let kept = queues.iter().filter(|queue| queue.name == "pg.wal.retained@s1");
    let mut servers: Vec<Option<&str>> = kept.map(|queue| queue.server()).collect();
    servers.sort_unstable();
    assert_eq!(servers, [Some("primary"), Some("second")]);
}

#[test]
fn the_log_of_one_server_does_not_speak_of_anothers_slot() {
    let slot = |source: &str| {
        let line = "invalidating obsolete replication slot \"s1\"";
        backwater_model::Event::new(Moment::from_seconds(START_S + 20.0), source, EventKind::Log, line, &[])
    };
    let quiet = WalPlant::default();
    let window = quiet.readings().window(quiet.meta(), START_S, START_S + quiet.seconds);
    let series = window.all_tracks().map(|track| (Arc::new(track.series.clone()), track.points.to_vec())).collect();
    let events = vec![slot("primary"), slot("second")];
    let window = Window::new(window.from, window.to, Arc::clone(&window.meta), series, Vec::new(), events);
    let findings = diagnose(&window, &Options::default());
    let lost: Vec<_> = findings.iter().filter(|finding| finding.cause == "slot-lost").collect();
    let servers: Vec<Option<&str>> = lost.iter().map(|finding| finding.server.as_deref()).collect();
    assert_eq!(servers, [Some("primary"), Some("second")]);
    let queues = backwater_diagnose::all_queues(&window);
    let kept = queues.iter().filter(|queue| queue.name == "pg.wal.retained@s1");
    assert!(kept.filter_map(|queue| queue.server()).any(|server| server == "second"));
}
