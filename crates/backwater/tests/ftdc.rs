//! `backwater ftdc` as a user meets it, on a recording made here: command, exit code, both streams.

#![allow(clippy::unwrap_used)]

mod flight;

use ftdc::{Builder, encode};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// A server of 90 seconds that stood still for half a minute in the middle, and a file that ends in damage.
fn recording(dir: &Path) {
    let mut bytes = flight::bytes((0..30).chain(60..90), |status, second, _| {
        let cache = |c: Builder| c.int64("tracked dirty bytes in the cache", second * 1_000_000);
        status.document("wiredTiger", |w| w.document("cache", cache)).double("uptime", second as f64)
    });
    bytes.extend([0x2a; 40]);
    std::fs::write(dir.join(flight::FILE), bytes).unwrap();
}

fn told(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_backwater"))
        .arg("ftdc")
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .env("COLUMNS", "110")
        .env("TZ", "UTC")
        .output()
        .unwrap();
    format!(
        "$ backwater ftdc {}\n[exit {}]\n--- stdout\n{}--- stderr\n{}\n",
        arguments.join(" "),
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn mistakes_are_told_and_destroy_nothing() {
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path());
    let ends = |arguments: &[&str], words: &str| {
        let text = told(dir.path(), arguments);
        assert!(text.contains("[exit 2]") && text.contains(words), "{words}: {text}");
    };
    for asked in [&[][..], &["--names"], &["--export", "csv"], &["--export", "jsonl", "-o", "out"]] {
        let arguments = [&[".", "--metric", "nosuch"], asked].concat();
        ends(&arguments, "no metric of that time is called 'nosuch'");
    }
    let before = std::fs::read(dir.path().join(flight::FILE)).unwrap();
    ends(&[".", "--export", "csv", "-o", flight::FILE], "is what is exported");
    assert_eq!(std::fs::read(dir.path().join(flight::FILE)).unwrap(), before);
    std::fs::write(dir.path().join("words"), "no flight recorder at all, and longer than a length is\n".repeat(9))
        .unwrap();
    for asked in [&[][..], &["--list"], &["--names"], &["--export", "csv"], &["--export", "csv", "-o", "out"]] {
        ends(&[&["words"], asked].concat(), "nothing of MongoDB's flight recorder in it");
    }
    assert!(!dir.path().join("out").exists() && !dir.path().join("out.part").exists());
    ends(&["mongodb://mon:s3cr3t@h/"], "mongodb://mon:***@h/");
}

/// Two minutes of a server, three hundred days apart.
#[test]
fn a_recording_with_a_long_gap_is_diagnosed_hour_by_hour() {
    let dir = tempfile::tempdir().unwrap();
    let seconds = (0..60).chain(25_920_000..25_920_060);
    let bytes = flight::bytes(seconds, |status, second, _| {
        let cache = |c: Builder| {
            c.int64("maximum bytes configured", 1 << 30).int64("tracked dirty bytes in the cache", second % 60)
        };
        status.document("wiredTiger", |w| w.document("cache", cache)).int64("uptimeMillis", second * 1_000)
    });
    std::fs::write(dir.path().join(flight::FILE), bytes).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
        command.args(arguments).current_dir(dir.path()).env_clear().env("TZ", "UTC").output().unwrap()
    };
    let recorded = run(&["record", ".", "-o", "rec"]);
    assert!(recorded.status.success(), "{recorded:?}");
    let found = run(&["diagnose", "rec", "--json"]);
    assert_eq!((found.status.code(), found.stdout.as_slice()), (Some(0), b"[]\n".as_slice()), "{found:?}");
    let advised = run(&["advise", "rec"]);
    let words = String::from_utf8_lossy(&advised.stderr).into_owned();
    assert!(advised.status.code() == Some(2) && words.contains("choose at most"), "{advised:?}");
    // What is of no use with the past is refused, and what was made is told as with a live server.
    for live in [&["--for", "3s"][..], &["--on-finding", "true"], &["--heartbeat"]] {
        let refused = run(&[&["record", ".", "-o", "live"], live].concat());
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && words.contains("watched live"), "{refused:?}");
    }
    let rated = run(&["record", ".", "-o", "rated", "--json", "--volume-iops", "3000", "--volume-bps", "125MiB"]);
    let told: serde_json::Value = serde_json::from_slice(&rated.stdout).unwrap();
    assert!(told["dir"] == "rated" && told["points"].as_u64() > Some(200), "{rated:?}");
    assert!(
        std::fs::read_to_string(dir.path().join("rated/meta.json")).unwrap().contains("3000"),
        "the rating is lost"
    );
    // Nor does it go on in a directory that holds another's time.
    let again = run(&["record", ".", "-o", "rec"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("holds a recording already"), "{again:?}");
}

/// Four hours, of whose chunks all but the first few are damaged.
#[test]
fn what_lies_mostly_in_damage_is_not_told_to_be_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = flight::bytes(0..14_400, |status, second, _| {
        let cache = |c: Builder| {
            c.int64("maximum bytes configured", 1 << 30).int64("tracked dirty bytes in the cache", second % 60)
        };
        status.document("wiredTiger", |w| w.document("cache", cache)).int64("uptimeMillis", second * 1_000)
    });
    std::fs::write(dir.path().join(flight::FILE), &bytes).unwrap();
    let (code, told) = run(dir.path(), &["diagnose", "."]);
    assert!(code == Some(0) && !told.contains("cannot be seen") && !told.contains("damaged"), "{told}");
    let from = bytes.len() / 10;
    bytes[from..].iter_mut().step_by(97).for_each(|byte| *byte ^= 0x5a);
    std::fs::write(dir.path().join(flight::FILE), bytes).unwrap();
    let (code, told) = run(dir.path(), &["diagnose", "."]);
    assert!(code == Some(2) && told.contains("could not be read"), "{told}");
    assert!(told.contains(" of 239 min 30 s: a part of the flight recorder is damaged"), "{told}");
}

/// A day of 20,000 inserts a second by day and 1,000 by night, and 3,000 documents a second that expire from noon to one.
#[test]
fn the_plan_for_what_expires_goes_by_the_rate_that_is_stated() {
    let dir = tempfile::tempdir().unwrap();
    let sums = std::cell::Cell::new((0_i64, 0_i64));
    // 22:13:20 is the recording's first second.
    let hour = |second: i64| (second + 80_000) / 3_600 % 24;
    let bytes = flight::bytes((0..86_400).step_by(10), |status, second, _| {
        let (inserts, deleted) = sums.get();
        let by_day = (8..20).contains(&hour(second));
        let noon = hour(second) == 12;
        sums.set((inserts + if by_day { 200_000 } else { 10_000 }, deleted + if noon { 30_000 } else { 0 }));
        let cache = |c: Builder| {
            c.int64("maximum bytes configured", 1 << 30).int64("tracked dirty bytes in the cache", 1 << 20)
        };
        status
            .document("wiredTiger", |w| w.document("cache", cache))
            .document("opcounters", |o| {
                o.int64("insert", inserts).int64("update", 0).int64("delete", 0).int64("query", 0)
            })
            .document("metrics", |m| m.document("ttl", |t| t.int64("deletedDocuments", deleted)))
    });
    std::fs::write(dir.path().join(flight::FILE), bytes).unwrap();
    for (rate, hours) in [("1000", 3), ("500", 6)] {
        let (code, told) = run(dir.path(), &["advise", flight::FILE, "--ttl-rate", rate]);
        assert_eq!(code, Some(0), "{told}");
        assert!(told.contains(&format!("Math.random() * {hours} * 3600")), "{rate}: {told}");
    }
}

#[test]
fn what_is_no_file_is_written_to_and_stays_what_it_is() {
    use std::os::unix::fs::FileTypeExt;
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path());
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let read = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap())
    };
    let export = |out: &str| told(dir.path(), &[flight::FILE, "--export", "csv", "--metric", "*uptime", "-o", out]);
    let text = export("pipe");
    assert!(text.contains("60 samples written to pipe"), "{text}");
    assert_eq!(read.join().unwrap().lines().count(), 61);
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    // A link stays a link, and what it points to is written.
    std::os::unix::fs::symlink("there.csv", dir.path().join("link.csv")).unwrap();
    std::fs::write(dir.path().join("there.csv"), "old").unwrap();
    export("link.csv");
    assert!(std::fs::symlink_metadata(dir.path().join("link.csv")).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(dir.path().join("there.csv")).unwrap().lines().count(), 61);
    std::fs::create_dir(dir.path().join("out")).unwrap();
    assert!(export("out").contains("is a directory"));
}

/// What is written goes through a pipe, so that the export stands in its middle when the signal comes.
#[test]
fn an_export_that_is_ended_leaves_no_part_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = flight::bytes(0..20_000, |status, second, _| status.int64("uptimeMillis", second * 1_000));
    std::fs::write(dir.path().join(flight::FILE), bytes).unwrap();
    let part = dir.path().join("out.csv.part");
    assert!(Command::new("mkfifo").arg(&part).status().unwrap().success());
    let mut export = Command::new(env!("CARGO_BIN_EXE_backwater"))
        .args(["ftdc", flight::FILE, "--export", "csv", "-o", "out.csv"])
        .current_dir(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = std::fs::File::open(&part).unwrap();
    pipe.read_exact(&mut [0]).unwrap();
    kill_process(Pid::from_child(&export), Signal::TERM).unwrap();
    let mut words = BufReader::new(export.stderr.take().unwrap());
    let mut told = String::new();
    words.read_line(&mut told).unwrap();
    assert!(told.contains("stopping; once more to end at once"), "{told}");
    std::io::copy(&mut pipe, &mut std::io::sink()).unwrap();
    words.read_to_string(&mut told).unwrap();
    assert_eq!(export.wait().unwrap().code(), Some(2), "{told}");
    assert!(told.contains("ended by a signal"), "{told}");
    assert!(!part.exists() && !dir.path().join("out.csv").exists());
}

#[test]
fn a_recording_is_summed_up_listed_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path());
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let commands: &[&[&str]] = &[
        &["."],
        &[".", "--metric", "*dirty*", "--from", "-10s"],
        &[".", "--list"],
        &[".", "--names"],
        &[".", "--metadata"],
        &[".", "--export", "csv", "--metric", "*uptime", "--from", "22:13:48", "--to", "22:14:21"],
        &[".", "--export", "jsonl", "--metric", "*dirty*", "--from", "-1s"],
        &[".", "--export", "parquet", "-o", "out.parquet"],
        &[".", "--export", "parquet"],
        &[".", "--from", "23:00"],
        &["empty"],
        &["out.parquet"],
    ];
    let text: String = commands.iter().map(|arguments| told(dir.path(), arguments)).collect();
    insta::assert_snapshot!(text);
    let parquet = std::fs::read(dir.path().join("out.parquet")).unwrap();
    assert_eq!((&parquet[..4], &parquet[parquet.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]));
    assert!(!dir.path().join("out.parquet.part").exists());
}

/// Three minutes of a shard's primary: a thousand writes a second, each taking so many milliseconds.
fn shard(dir: &Path, host: &str, set: &str, ms: impl Fn(i64) -> i64) {
    let start = 1_700_000_000_000i64;
    let parsed = |p: Builder| {
        p.document("sharding", |s| s.string("clusterRole", "shardsvr"))
            .document("replication", |r| r.string("replSetName", set))
    };
    let about = Builder::new()
        .document("buildInfo", |b| b.string("version", "7.0.0"))
        .document("getCmdLineOpts", |o| o.document("parsed", parsed))
        .document("hostInfo", |h| h.document("system", |s| s.string("hostname", host)))
        .finish();
    let mut bytes = encode::metadata(start, &about);
    let mut encoder = encode::Encoder::default();
    let mut us = 0;
    for second in 0..180 {
        us += 1_000 * ms(second) * 1_000;
        let one = |b: Builder| b.int64("ops", second * 1_000).int64("latency", us);
        let status = |s: Builder| {
            s.int64("pid", 7)
                .int64("uptimeMillis", second * 1_000 + 500)
                .document("opLatencies", |o| o.document("reads", one).document("writes", one))
                .document("wiredTiger", |w| w.document("cache", |c| c.double("maximum bytes configured", 1e9)))
        };
        let at = start + second * 1_000;
        let sample = Builder::new()
            .date("start", at)
            .document("serverStatus", status)
            .document("replSetGetStatus", |r| r.int32("myState", 1))
            .finish();
        bytes.extend(encoder.add(at, &sample).unwrap().unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    std::fs::create_dir(dir).unwrap();
    std::fs::write(dir.join(flight::FILE), bytes).unwrap();
}

#[test]
fn a_shard_that_is_unlike_its_siblings_stands_out_of_their_recorders() {
    let dir = tempfile::tempdir().unwrap();
    for (place, set) in ["s1", "s2", "s3"].into_iter().enumerate() {
        let slow = move |second| if place == 1 && (60..120).contains(&second) { 40 } else { 2 };
        shard(&dir.path().join(set), &format!("{set}.example"), set, slow);
    }
    let (code, told) = run(dir.path(), &["diagnose", "s1", "s2", "s3", "--json"]);
    let findings: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, findings.as_array().unwrap().len()), (Some(1), 1), "{told}");
    assert_eq!((&findings[0]["rule"], &findings[0]["cause"]), (&"shard-unlike".into(), &"slower".into()));
    assert_eq!(findings[0]["queue"], "mongo.clients@s2.example:27017");
    let (code, told) = run(dir.path(), &["diagnose", "s1", "s2"]);
    assert_eq!(code, Some(0), "of two neither is the usual one: {told}");
    // They stand side by side all the same: 2 ms of 120 seconds and 40 ms of 60 are 14.7 ms on average.
    let (_, table) = told.split_once("Shards side by side").unwrap_or_else(|| panic!("{told}"));
    let cells = |set| table.lines().find(|line| line.starts_with(set)).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(cells("s1")[1..4], ["s1.example:27017", "2.00", "ms"], "{told}");
    assert!(cells("s2")[2].starts_with("14."), "{told}");
    assert!(!run(dir.path(), &["diagnose", "s1"]).1.contains("side by side"), "one alone");
    let (code, told) = run(dir.path(), &["diagnose", "s1", "s1"]);
    assert!(code == Some(2) && told.contains("same server, s1.example:27017"), "{told}");
}

#[test]
fn the_summary_is_there_for_programs_too() {
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path());
    let told = told(dir.path(), &[".", "--json", "--metric", "*dirty*"]);
    let json = told.split("--- stdout\n").nth(1).unwrap().split("--- stderr").next().unwrap();
    let summary: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!((&summary["samples"], &summary["gaps"], &summary["fault_count"]), (&60.into(), &1.into(), &1.into()));
    assert_eq!(summary["chosen"][0]["most"], 89_000_000);
}

/// `backwater` with these arguments in a directory: exit code, and both streams.
fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    let output = command.args(arguments).current_dir(dir).env_clear().env("TZ", "UTC").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn slow_operations_of_the_log_go_with_the_recorder_into_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("diagnostic.data");
    std::fs::create_dir(&data).unwrap();
    recording(&data);
    // 22:13:20 is the recording's first second.
    let line = |second: u32| {
        format!(
            "2023-11-14T22:13:{second:02}.500+0000 I  WRITE    [conn7] update shop.carts command: {{ q: {{ name: \"somebody\" }} }} \
             planSummary: COLLSCAN storage:{{ timeWaitingMicros: {{ cache: 900000 }} }} 1200ms\n"
        )
    };
    std::fs::write(dir.path().join("mongod.log"), (25..35).map(line).collect::<String>()).unwrap();
    let with_log = |first: &[&'static str], last: &[&'static str]| {
        run(dir.path(), &[first, &["diagnostic.data", "--log", "mongod.log"], last].concat())
    };
    let (_, exported) = with_log(&["export"], &[]);
    assert!(
        exported.contains("mongo.slow_ops") && exported.contains("slow update on shop.carts: 1200 ms"),
        "{exported}"
    );
    let (code, recorded) = with_log(&["record"], &["-o", "rec", "--free-floor", "1MB"]);
    assert_eq!(code, Some(0), "{recorded}");
    let (_, read_back) = run(dir.path(), &["export", "rec"]);
    assert!(read_back.contains("mongo.slow_ops_ms") && read_back.contains("slow update on shop.carts"), "{read_back}");
    let (_, page) = with_log(&["report"], &["-o", "-", "--format", "json"]);
    assert!(page.contains("Slow operations of a.example:27017"), "the page lacks its chart");
    assert!(page.contains("slow update on shop.carts"), "the page lacks its mark");
    let (code, diagnosed) = with_log(&["diagnose"], &[]);
    assert_eq!(code, Some(0), "{diagnosed}");
    for told in [exported, read_back, page, diagnosed] {
        assert!(!told.contains("somebody"), "the command itself holds people's data");
    }
    // A log of another time, one that is none, and one beside something that has none.
    std::fs::write(dir.path().join("other.log"), line(25).replace("2023", "2021")).unwrap();
    std::fs::write(dir.path().join("none.log"), "hello\n").unwrap();
    for (arguments, why) in [
        (["export", "diagnostic.data", "--log", "other.log"], "tells of 2021"),
        (["export", "diagnostic.data", "--log", "none.log"], "no line in it begins"),
        (["export", "rec", "--log", "mongod.log"], "goes with MongoDB's flight recorder"),
        (["diagnose", "host", "--log", "mongod.log"], "goes with MongoDB's flight recorder"),
    ] {
        let (code, told) = run(dir.path(), &arguments);
        assert!(code == Some(2) && told.contains(why), "{arguments:?}: {told}");
    }
}
