//! `backwater ftdc` as a user meets it, on a recording made here: command, exit code, both streams.

#![allow(clippy::unwrap_used)]

use ftdc::{Builder, encode};
use std::path::Path;
use std::process::Command;

/// A server of 90 seconds that stood still for half a minute in the middle, and a file that ends in damage.
fn recording(dir: &Path) {
    let start = 1_700_000_000_000i64;
    let about = Builder::new()
        .document("buildInfo", |b| b.string("version", "7.0.0"))
        .document("hostInfo", |h| h.document("system", |s| s.string("hostname", "a.example").int32("numCores", 4)))
        .finish();
    let mut bytes = encode::metadata(start, &about);
    let mut encoder = encode::Encoder::new(29);
    for second in (0..30).chain(60..90) {
        let at = start + second * 1_000;
        let cache = |c: Builder| c.int64("tracked dirty bytes in the cache", second * 1_000_000);
        let status =
            |s: Builder| s.document("wiredTiger", |w| w.document("cache", cache)).double("uptime", second as f64);
        let sample = Builder::new().date("start", at).document("serverStatus", status).finish();
        bytes.extend(encoder.add(at, &sample).unwrap().unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    bytes.extend([0x2a; 40]);
    std::fs::write(dir.join("metrics.2023-11-14T22-13-20Z-00000"), bytes).unwrap();
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
