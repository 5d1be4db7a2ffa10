//! Rules about WAL on runs of a real server: the injected cause first, whatever of the system could be seen; and nothing where
//! nothing was injected.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Options, SurviveOptions, advise_standbys, replication_path, standby_queues, warn};
use backwater_model::{Finding, Severity, Span, Window};
use common::judged::diagnose;
use common::recorded;

const NO_CAP: &str = include_str!("runs/wal/no-cap.txt");
const PRIMARY_CAPPED: &str = include_str!("runs/wal/primary-capped.txt");
const STANDBY_CAPPED: &str = include_str!("runs/wal/standby-capped.txt");
const NETWORK_NARROW: &str = include_str!("runs/wal/network-narrow.txt");
const PRIMARY_SLOW: &str = include_str!("runs/wal/primary-slow.txt");
const REPLAY_PAUSED: &str = include_str!("runs/wal/replay-paused.txt");
const REPLAY_STARVED: &str = include_str!("runs/wal/replay-starved.txt");
const WALSENDER_READING: &str = include_str!("runs/wal/walsender-reading.txt");
const REPLAY_CONFLICTING: &str = include_str!("runs/wal/replay-conflicting.txt");
const RETENTION_EXCEEDED: &str = include_str!("runs/wal/retention-exceeded.txt");

const PRIMARY: &str = "localhost:5432";
const STANDBY: &str = "localhost:5433";

fn found(window: &Window) -> Vec<Finding> {
    diagnose(window, &Options::default())
}

fn first(text: &str, keep: impl Fn(&str) -> bool) -> String {
    let findings = found(&recorded::window(text, keep));
    findings.first().map_or("nothing".to_owned(), |finding| format!("{} {}", finding.rule, finding.cause))
}

#[test]
fn with_both_servers_watched() {
    let cases = [
        (NO_CAP, "nothing"),
        (PRIMARY_CAPPED, "wal-device-capped cgroup-cap"),
        (STANDBY_CAPPED, "standby-disk cgroup-cap"),
        (NETWORK_NARROW, "network-narrow shaper"),
        (PRIMARY_SLOW, "wal-device-saturated slow-requests"),
        (REPLAY_PAUSED, "replay-paused paused"),
        (REPLAY_STARVED, "replay-cpu host-cpu"),
        (WALSENDER_READING, "walsender-starved wal-read"),
        (REPLAY_CONFLICTING, "replay-conflict snapshot"),
        (RETENTION_EXCEEDED, "wal-removed segment-removed"),
    ];
    for (text, expected) in cases {
        assert_eq!(first(text, |_| true), expected);
    }
}

#[test]
fn with_the_primary_alone() {
    let alone = |word: &str| !word.contains(STANDBY) && !word.contains("dev=7:1");
    let cases = [
        (NO_CAP, "nothing"),
        (PRIMARY_CAPPED, "wal-device-capped cgroup-cap"),
        (STANDBY_CAPPED, "standby-disk seen-from-primary"),
        (NETWORK_NARROW, "network-narrow shaper"),
        (REPLAY_CONFLICTING, "replay-paused standstill"),
        (PRIMARY_SLOW, "wal-device-saturated slow-requests"),
        (REPLAY_PAUSED, "replay-paused standstill"),
        (REPLAY_STARVED, "nothing"),
        (WALSENDER_READING, "walsender-starved wal-read"),
    ];
    for (text, expected) in cases {
        assert_eq!(first(text, alone), expected);
    }
    // From another host, by SQL alone, nobody can tell the two apart: nothing is said.
    for text in [NO_CAP, STANDBY_CAPPED, NETWORK_NARROW] {
        assert_eq!(first(text, |word| alone(word) && !word.starts_with("host.")), "nothing");
    }
}

#[test]
fn without_tcp_or_without_interfaces() {
    let no_tcp = |word: &str| !word.starts_with("host.tcp.");
    assert_eq!(first(STANDBY_CAPPED, no_tcp), "standby-disk cgroup-cap");
    assert_eq!(first(NETWORK_NARROW, no_tcp), "network-narrow shaper");
    assert_eq!(first(NETWORK_NARROW, |word| !word.starts_with("host.net.")), "network-narrow path");
}

#[test]
fn a_process_that_is_kept_from_running_waits_for_no_file() {
    // More than half of its samples tell the wait of a system call that it has come out of; without the kernel's word they are
    // taken at theirs.
    let window = recorded::window(REPLAY_STARVED, |_| true);
    let finding = &found(&window)[0];
    assert!(finding.figure("startup_cpu_ratio").unwrap() < 0.1, "{finding:?}");
    assert!(finding.figure("startup_runs_ratio").unwrap() > 0.9, "{finding:?}");
    let told = window.samples().iter().filter(|sample| sample.backend_type.as_deref() == Some("startup"));
    let (waits, all) = told.fold((0, 0), |(waits, all), sample| {
        (waits + usize::from(sample.wait_event_type.as_deref() == Some("IO")), all + 1)
    });
    assert!(waits * 2 > all, "{waits} of {all}");
    // Release 12 does not say what else it waits for: there the kernel's word alone counts.
    let old = REPLAY_STARVED.replace("\"version_num\":150018", "\"version_num\":120022");
    assert_eq!(first(&old, |_| true), "replay-cpu host-cpu");
}

#[test]
fn the_figures_are_those_of_the_run() {
    let narrow = recorded::window(NETWORK_NARROW, |_| true);
    let finding = &found(&narrow)[0];
    let figure = |name: &str| finding.figure(name).unwrap();
    // 3 MiB a second pass the shaper, 8 MiB are made: 5 MiB more stand with every second.
    assert!(
        (2.5e6..3.3e6).contains(&figure("sent_bytes_per_s")) && (8e6..9e6).contains(&figure("generated_bytes_per_s"))
    );
    assert!(figure("stream_lag_bytes") > 100e6 && figure("rwnd_limited_ratio") < 0.2);
    let disk = &found(&recorded::window(STANDBY_CAPPED, |_| true))[0];
    assert!(disk.figure("rwnd_limited_ratio").unwrap() > 0.8, "{disk:?}");
    assert!(disk.figure("device_busy_ratio").unwrap() < 0.05, "a device under a throttle looks idle");
    let binding = replication_path(&narrow, PRIMARY, "standby", 20.0).binding().unwrap();
    assert_eq!(binding.stage, "tcp@standby");
    assert!(binding.victims.contains(&"pg.wal.send@standby".to_owned()));
}

#[test]
fn the_path_shows_no_more_than_the_evidence_says() {
    for text in [STANDBY_CAPPED, NETWORK_NARROW, REPLAY_CONFLICTING] {
        let window = recorded::window(text, |word| !word.contains(STANDBY) && !word.contains("dev=7:1"));
        let finding = &found(&window)[0];
        let queues = standby_queues(PRIMARY, "standby");
        let replay = queues.iter().find(|queue| queue.name == "pg.wal.standby_replay@standby").unwrap();
        let seconds = 1..=finding.to.seconds_since(finding.from) as i64;
        let at = |second: i64| finding.from + Span::from_millis(second * 1_000);
        let levels = seconds.filter_map(|second| replay.read(&window, at(second), 5.0).level);
        let (shown, told) = (levels.reduce(f64::max).unwrap(), finding.figure("replay_lag_bytes").unwrap());
        assert!(shown <= told, "{}: {shown} shown, {told} told", finding.cause);
        // The advice, of the whole window.
        let advice = advise_standbys(&window, &SurviveOptions::default());
        let advised = advice[0].observed.iter().find(|figure| figure.name == "replay_lag_bytes").unwrap().value;
        assert!(advised >= told, "{}: {told} told, {advised} in the advice", finding.cause);
    }
}

#[test]
fn warnings_and_advice_follow() {
    let capped = recorded::window(STANDBY_CAPPED, |_| true);
    let advice = advise_standbys(&capped, &SurviveOptions::default());
    let lift = advice[0].remedies.iter().find(|remedy| remedy.title.contains("lift")).unwrap();
    assert_eq!(lift.runtime, ["echo '7:1 0' > /sys/fs/cgroup/blkio/blkio.throttle.write_bps_device"]);
    let calm = warn(&recorded::window(NO_CAP, |_| true), 30.0);
    assert!(calm.iter().all(|finding| finding.severity == Severity::Info), "{calm:?}");
}

#[test]
fn the_standbys_device_is_a_stage_where_its_own_side_is_seen() {
    let window = recorded::window(STANDBY_CAPPED, |_| true);
    let path = replication_path(&window, PRIMARY, "standby", window.seconds());
    let device = path.stages.iter().find(|stage| stage.name == format!("wal-device@{STANDBY}")).unwrap();
    let receives = path.stages.iter().find(|stage| stage.name.starts_with("walreceiver@")).unwrap();
    assert!(device.from.as_deref().unwrap().contains("standby_flush") && receives.to == device.from, "{path:?}");
    assert!(device.to.as_deref().unwrap().contains("standby_replay"), "{device:?}");
    assert!(device.resource.as_deref().is_some_and(|resource| resource.starts_with("disk ")), "{device:?}");
    let blind = recorded::window(STANDBY_CAPPED, |word| !word.contains(STANDBY));
    let path = replication_path(&blind, PRIMARY, "standby", blind.seconds());
    assert!(path.stages.iter().all(|stage| stage.name != format!("wal-device@{STANDBY}")), "{path:?}");
}
