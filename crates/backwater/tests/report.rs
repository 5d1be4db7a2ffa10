//! `backwater report` as a user meets it, and its page in a real browser.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "browser/mod.rs"]
mod browser;

use backwater_model::catalogue as cat;
use backwater_model::{
    Batch, ClockAnchor, Device, Epoch, Event, EventKind, FlowHeld, FlowPool, FlowRule, FlowState, Meta, Moment, Point,
    Registry, Role, Sample, Target,
};
use backwater_record::{Options, Writer, write_flow};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

const MIB: f64 = 1_048_576.0;
/// What would show if any of it ran: a dialog, a request, a broken page.
const HOSTILE: &str = "</script><script>alert('ran')</script><img src=x onerror=alert('ran')>'\"&amp;";

fn report(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_backwater")).arg("report").args(arguments).output().unwrap()
}

fn meta() -> Meta {
    let target = Target {
        name: "primary".to_owned(),
        kind: "postgres".to_owned(),
        version_num: Some(180_000),
        data_device: Some("7:0".to_owned()),
        ..Target::default()
    };
    let device = Device {
        dev: "7:0".to_owned(),
        name: "loop0".to_owned(),
        mount_points: vec![HOSTILE.to_owned()],
        roles: vec![(Role::Data, "primary".to_owned())],
        ..Device::default()
    };
    Meta {
        anchors: vec![ClockAnchor { boot: Moment(0), unix_us: 1_795_262_400_000_000 }],
        targets: vec![target],
        devices: vec![device],
        written_by: HOSTILE.to_owned(),
        ..Meta::default()
    }
}

/// One second of a device whose dirty pages climb to their limit, with a hole of ten seconds, and of sessions with hostile names.
fn second(second: i64, registry: &Registry) -> Batch {
    let at = Moment(second * 1_000_000);
    let dev = [("dev", "7:0")];
    let whole = second as f64;
    let gauge = [
        (cat::BDI_RECLAIMABLE, (whole * 4.0).min(250.0) * MIB),
        (cat::BDI_WRITEBACK, 6.0 * MIB),
        (cat::BDI_DIRTY_THRESH, 256.0 * MIB),
        (cat::BDI_GLOBAL_DIRTY_THRESH, 4_096.0 * MIB),
        (cat::BDI_BACKGROUND_THRESH, 2_048.0 * MIB),
        (cat::BDI_DIRTIED, whole * 30.0 * MIB),
        (cat::BDI_WRITTEN, whole * 14.0 * MIB),
        (cat::DISK_WRITES, whole * 900.0),
    ];
    let point = |series: &cat::Def, value: f64, labels: &[(&'static str, &str)]| Point {
        at,
        series: registry.number(series, labels).unwrap(),
        epoch: Epoch(1),
        value,
        as_of: None,
    };
    let mut points: Vec<Point> = gauge.iter().map(|(def, value)| point(def, *value, &dev)).collect();
    points.push(point(&cat::PG_XACT_COMMIT, whole * 500.0, &[("target", "primary"), ("database", HOSTILE)]));
    points.push(point(&cat::PG_PROBE_RESPONSE, 900.0, &[("target", "primary")]));
    let sample = |pid: i32| Sample {
        at,
        target: "primary".into(),
        pid,
        state: Some("active".into()),
        user: Some(HOSTILE.into()),
        wait_event_type: Some(HOSTILE.into()),
        wait_event: Some("DataFileWrite".into()),
        query: Some(HOSTILE.into()),
        ..Sample::default()
    };
    points.push(point(&cat::FLOW_RATE, 5.0 * MIB, &[]));
    points.push(point(&cat::FLOW_POOL_HELD, 1.0, &[("pool", HOSTILE)]));
    points.push(point(&cat::FLOW_POOL_SENT, whole * 4.0 * MIB, &[("pool", HOSTILE)]));
    let event = (second % 20 == 7).then(|| Event::new(at, HOSTILE, EventKind::Log, HOSTILE, &[]));
    let events = event.into_iter().chain(decision(second)).collect();
    Batch { points, samples: (0..3).map(sample).collect(), events }
}

/// What a rule did at this second: it slowed a session from the 30th to the 45th.
fn decision(second: i64) -> Option<Event> {
    let more: &[(&str, &str)] = match second {
        30 => &[("step", "began")],
        45 => &[("step", "lifted"), ("began", "30000000"), ("why", "the statement ended")],
        _ => return None,
    };
    let mut fields =
        vec![("rule", HOSTILE), ("action", "penalty"), ("session", "7"), ("user", HOSTILE), ("pool", HOSTILE)];
    fields.extend(more);
    Some(Event::new(Moment(second * 1_000_000), "proxy", EventKind::Decision, HOSTILE, &fields))
}

/// Who is held in the end.
fn flow() -> FlowState {
    let name = || HOSTILE.to_owned();
    let held = FlowHeld {
        session: 8,
        user: name(),
        database: name(),
        application: name(),
        client: "10.0.0.7:5000".to_owned(),
        pool: name(),
        rule: Some(name()),
        state: "active".to_owned(),
        for_s: 12.0,
        sent_bytes: 300 << 20,
        rate_bps: Some(4.0 * MIB),
        allowed_bps: Some(5.0 * MIB),
        bound_by: "low_priority_bandwidth".to_owned(),
    };
    let pool =
        FlowPool { name: name(), priority: "low".to_owned(), weight: 3, sessions: 2, held: 1, ..FlowPool::default() };
    let rule =
        FlowRule { name: name(), action: "penalty".to_owned(), conditions: name(), began: 1, ..FlowRule::default() };
    FlowState {
        at: Moment(89_000_000),
        by: name(),
        rate_bps: Some(5.0 * MIB),
        rate_by: "low_priority_bandwidth".to_owned(),
        waiting: 1,
        queueing_us: Some(1_200.0),
        pools: vec![pool],
        rules: vec![rule],
        held: vec![held],
        held_in_all: 1,
    }
}

fn recording(dir: &Path) {
    let registry = Arc::new(Registry::new());
    let options = Options { free_floor_bytes: 0, ..Options::default() };
    let mut writer = Writer::create(dir, meta(), Arc::clone(&registry), options).unwrap();
    for at in (0..90).filter(|at| !(50..60).contains(at)) {
        writer.write(&second(at, &registry)).unwrap();
        writer.tick(Moment(at * 1_000_000)).unwrap();
    }
    writer.close().unwrap();
    write_flow(dir, &flow()).unwrap();
}

/// The document inside a report.
fn document(page: &str) -> serde_json::Value {
    const BEGIN: &str = "<script type=\"application/json\" id=\"document\">";
    let begin = page.find(BEGIN).unwrap() + BEGIN.len();
    let end = begin + page[begin..].find("</script>").unwrap();
    serde_json::from_str(&page[begin..end]).unwrap()
}

#[test]
fn a_recording_becomes_one_page() {
    let dir = tempfile::tempdir().unwrap();
    let (recorded, file) = (dir.path().join("rec"), dir.path().join("report.html"));
    recording(&recorded);
    let output = report(&[recorded.to_str().unwrap(), "-o", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(&file).unwrap();
    assert_eq!(page.matches("<script").count(), 2, "its data and its program, nothing of the recording");
    let document = document(&page);
    let queues = document["path"]["queues"].as_array().unwrap();
    let dirty = queues.iter().find(|queue| queue["name"] == "host.dirty@7:0").unwrap();
    let series = |name: &str| &document["series"][dirty[name].as_u64().unwrap() as usize];
    // Dirty and under writeback together, to the recording's last readings, and nothing in the hole.
    let level = series("level")["max"].as_array().unwrap();
    // Written with four digits.
    let near = |value: &serde_json::Value, wanted: f64| (value.as_f64().unwrap() / wanted - 1.0).abs() < 0.001;
    assert!(near(&level[20], 86.0 * MIB), "20 × 4 MiB and 6: {}", level[20]);
    assert!(level[54].is_null() && level[70].is_number(), "{level:?}");
    assert!(near(&series("hard_limit")["max"][70], 256.0 * MIB));
    assert!(near(&series("inflow")["max"][70], 30.0 * MIB));
    assert_eq!(document["sessions"]["classes"][0]["name"], HOSTILE);
    let flow = &document["flow"];
    assert_eq!((&flow["state"]["held"][0]["user"], &flow["at_s"]), (&HOSTILE.into(), &89.0.into()));
    assert_eq!((&flow["holds"][0]["from_s"], &flow["holds"][0]["to_s"]), (&30.0.into(), &45.0.into()));
}

#[test]
fn json_is_the_same_document() {
    let dir = tempfile::tempdir().unwrap();
    let (recorded, page, json) =
        (dir.path().join("rec"), dir.path().join("report.html"), dir.path().join("report.json"));
    recording(&recorded);
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    assert!(report(&[&path(&recorded), "-o", &path(&page)]).status.success());
    assert!(report(&[&path(&recorded), "-o", &path(&json), "--format", "json"]).status.success());
    let inside = document(&std::fs::read_to_string(&page).unwrap());
    let apart: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(inside, apart);
}

#[test]
fn a_files_ending_chooses_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (recorded, file) = (dir.path().join("rec"), dir.path().join("report.md"));
    recording(&recorded);
    let recorded = recorded.to_str().unwrap();
    assert!(report(&[recorded, "-o", file.to_str().unwrap()]).status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# Backwater: ") && text.contains("| host.dirty@7:0 |"), "{text}");
    assert!(text.contains("256 MiB"), "its limit: {text}");
    assert!(text.contains("all low-priority sessions together may send 5.00 MiB/s"), "who is held: {text}");
    let output = report(&[recorded, "-o", "-", "--format", "md"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text, "the same on stdout, and nothing else");
    let json = dir.path().join("report.json");
    assert!(report(&[recorded, "-o", json.to_str().unwrap()]).status.success());
    let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(value["format"], "backwater-page");
}

#[test]
fn what_is_no_recording_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = dir.path().to_str().unwrap();
    let file = dir.path().join("report.html");
    let output = report(&[nothing, "-o", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!file.exists());
    let output = report(&[nothing, "-o", nothing]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is a directory"));
}

/// Runs web/test in an installed Chromium on the hostile recording, and on those that BACKWATER_RECORDINGS names.
#[test]
fn the_page_works_in_a_browser() {
    const NAME: &str = "the_page_works_in_a_browser";
    let Some(web) = browser::web(NAME) else { return };
    let dir = tempfile::tempdir().unwrap();
    recording(&dir.path().join("hostile"));
    let given = std::env::var("BACKWATER_RECORDINGS").unwrap_or_default();
    let recordings = given.split(':').filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut files = Vec::new();
    for recorded in recordings.chain([dir.path().join("hostile")]) {
        let file = dir.path().join(format!("{}.html", recorded.file_name().unwrap().to_string_lossy()));
        assert!(report(&[recorded.to_str().unwrap(), "-o", file.to_str().unwrap()]).status.success());
        files.push(file.display().to_string());
    }
    let mut command = Command::new("node");
    command
        .args(["--test", "test/units.test.mjs", "test/report.test.mjs"])
        .current_dir(&web)
        .env("BACKWATER_REPORTS", files.join(":"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
