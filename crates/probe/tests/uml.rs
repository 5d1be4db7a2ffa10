//! Limits of cgroup v2 for real, in user-mode Linux: a group held by the `io.max` and `memory.max` of its parent.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "uml/guest.rs"]
mod guest;

use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "limits_of_cgroup_v2_are_read_where_they_hold";
const MIB: f64 = 1_048_576.0;

/// One value that the guest printed.
#[derive(Debug)]
struct Reading {
    at_s: f64,
    name: String,
    labels: serde_json::Value,
    value: f64,
}

/// The example beside this test, built now if the test was asked for alone.
fn dump_host() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    // Of the whole workspace and with a shell's variables, as CI has built it: for this package alone features differ, and
    // where cargo's variables of a test are seen, build scripts run again; either builds everything once more.
    build.args(["build", "--quiet", "--workspace", "--example", "dump_host"]);
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars().filter(|(name, _)| of_package(name)) {
        build.env_remove(name);
    }
    let target = std::env::current_exe().unwrap();
    let target = target.parent().and_then(Path::parent).unwrap();
    if target.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    target.join("examples/dump_host")
}

fn readings(lines: &[String]) -> Vec<Reading> {
    let parsed = lines.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let reading = |line: serde_json::Value| {
        Some(Reading {
            at_s: line["at_s"].as_f64()?,
            name: line["name"].as_str()?.to_owned(),
            labels: line["labels"].clone(),
            value: line["value"].as_f64()?,
        })
    };
    parsed.filter_map(reading).collect()
}

/// The readings of one series, oldest first; there must be some.
fn series<'a>(all: &'a [Reading], name: &str, labels: &[(&str, &str)]) -> Vec<&'a Reading> {
    let fits =
        |reading: &&Reading| reading.name == name && labels.iter().all(|(key, value)| reading.labels[*key] == *value);
    let found: Vec<_> = all.iter().filter(fits).collect();
    assert!(!found.is_empty(), "no {name} {labels:?} among {:?}", names(all));
    found
}

fn names(all: &[Reading]) -> std::collections::BTreeSet<String> {
    all.iter().map(|reading| format!("{} {}", reading.name, reading.labels)).collect()
}

fn largest(list: &[&Reading]) -> f64 {
    list.iter().map(|reading| reading.value).fold(0.0, f64::max)
}

#[test]
fn limits_of_cgroup_v2_are_read_where_they_hold() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    let made =
        Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").status();
    assert!(made.unwrap().success());
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/uml/init.sh");
    let words = ["mem=256M".to_owned(), format!("ubda={}", disk.display()), format!("DUMP={}", dump_host().display())];
    let Some(lines) = guest::run(NAME, &init, &words, |line| line == "GUEST DONE") else { return };
    let all = readings(&lines);
    io_limits_hold(&all);
    memory_limit_holds(&all);
    the_writer_is_seen(&all);
    assert!(lines.iter().any(|line| line.contains("PSI")), "this kernel has no PSI, which must be said");
}

fn io_limits_hold(all: &[Reading]) {
    let limited = [("cgroup", "/db"), ("op", "write")];
    assert_eq!(largest(&series(all, "host.cgroup.bytes_limit_per_s", &limited)), 4.0 * MIB);
    assert_eq!(largest(&series(all, "host.cgroup.iops_limit", &limited)), 400.0);
    assert!(
        !names(all).iter().any(|name| name.contains("limit") && name.contains("\"/db/pg\"") && name.contains("op"))
    );
    for group in ["/", "/db", "/db/pg"] {
        let written = series(all, "host.cgroup.io_bytes", &[("cgroup", group), ("op", "write")]);
        let (first, last) = (written[0], written[written.len() - 1]);
        let rate = (last.value - first.value) / (last.at_s - first.at_s);
        assert!((1.0 * MIB..5.0 * MIB).contains(&rate), "{group} wrote {rate} B/s");
    }
}

/// The group's writers are held at a few MB while the host's own limits are far.
fn memory_limit_holds(all: &[Reading]) {
    let group = [("cgroup", "/db/pg")];
    assert_eq!(largest(&series(all, "host.cgroup.memory_limit_bytes", &group)), 48.0 * MIB);
    let dirty = series(all, "host.cgroup.dirty_bytes", &group);
    let writeback = series(all, "host.cgroup.writeback_bytes", &group);
    let held = dirty.iter().zip(&writeback).map(|(dirty, writeback)| dirty.value + writeback.value).fold(0.0, f64::max);
    let dirtyable = series(all, "host.cgroup.dirtyable_bytes", &group);
    assert!(held > MIB && held < 24.0 * MIB, "{held} bytes dirty or being written");
    assert!(largest(&dirtyable) > 24.0 * MIB && largest(&dirtyable) <= 49.0 * MIB, "{}", largest(&dirtyable));
    assert!(held < largest(&dirtyable) * 0.5);
    assert!(largest(&series(all, "host.cgroup.file_bytes", &group)) > MIB);
    let host = largest(&series(all, "host.vm.dirty_bytes", &[]));
    assert!(
        host < largest(&series(all, "host.vm.dirty_background_threshold_bytes", &[])),
        "{host} bytes dirty on the host"
    );
}

fn the_writer_is_seen(all: &[Reading]) {
    let writer = [("target", "main"), ("what", "checkpointer")];
    assert!(largest(&series(all, "host.process.write_bytes", &writer)) > 8.0 * MIB);
    assert!(largest(&series(all, "host.disk.written_bytes", &[])) > 8.0 * MIB);
}
