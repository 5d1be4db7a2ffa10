//! MongoDB as a user meets it: `check`, `record` and `diagnose` of a server of ours that plays documents back.

#![allow(clippy::unwrap_used)]

#[path = "../../probe/tests/mongodb/documents.rs"]
mod documents;
#[path = "../../probe/tests/mongodb/replay.rs"]
mod replay;

use documents::Server;
use ftdc::Builder;
use replay::{Replay, Script};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PASSWORD: &str = "correct horse";

/// A server that lets one user in, who may not see the members of the replica set.
fn server() -> Replay {
    let server = Server::of("7.0.12");
    Replay::start(Script {
        max_wire: 21,
        answers: server.answers(),
        user: Some(("monitor".to_owned(), PASSWORD.to_owned())),
        denied: ["replSetGetStatus".to_owned()].into(),
        ..Script::default()
    })
}

fn backwater(arguments: &[&str], password: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_backwater"))
        .args(arguments)
        .env_clear()
        .env("HOME", std::env::temp_dir())
        .env("COLUMNS", "100")
        .env("MONGODB_PASSWORD", password)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn uri(replay: &Replay) -> String {
    format!("mongodb://monitor@{}/?authMechanism=PLAIN&authSource=$external", replay.address)
}

/// Everything in a directory, one file behind the other.
fn bytes(dir: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        all.extend(if path.is_dir() { bytes(&path) } else { std::fs::read(&path).unwrap() });
    }
    all
}

#[test]
fn a_server_is_checked_recorded_and_read_back_and_no_secret_is_kept() {
    let replay = server();
    let uri = uri(&replay);
    let checked = text(&backwater(&["check", &uri], PASSWORD));
    assert!(checked.contains("members of the replica set") && checked.contains("clusterMonitor"), "{checked}");

    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rec");
    let out = out.to_str().unwrap();
    let recorded = backwater(&["record", &uri, "-o", out, "--for", "10s", "--free-floor", "1MB"], PASSWORD);
    assert!(recorded.status.success(), "{}", text(&recorded));
    let exported = backwater(&["export", out], PASSWORD);
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    for told in ["wt.cache.dirty_bytes", "mongo.tickets.out", "mongo.probe.response_us", "members of the replica set"] {
        assert!(exported.contains(told), "{told}");
    }
    let kept = [bytes(Path::new(out)), text(&recorded).into_bytes(), checked.into_bytes()].concat();
    for secret in [PASSWORD, "correct%20horse", "/etc/mongod.key"] {
        assert!(!kept.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret}");
    }
    let diagnosed = backwater(&["diagnose", out], PASSWORD);
    assert_eq!(diagnosed.status.code(), Some(0), "healthy: {}", text(&diagnosed));
}

/// Raises a flag when it goes.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A shard's primary so many seconds after it began: a thousand operations a second, each taking so many milliseconds.
fn shard(set: &str, up_s: f64, ms: f64) -> Vec<u8> {
    let operations = (up_s * 1_000.0) as i64;
    let one = |b: Builder| b.int64("ops", operations).int64("latency", (operations as f64 * ms * 1_000.0) as i64);
    Builder::new()
        .string("process", "mongod")
        .int64("pid", 7)
        .double("uptime", up_s)
        .int64("uptimeMillis", (up_s * 1_000.0) as i64)
        .document("opLatencies", |o| o.document("reads", one).document("writes", one))
        .document("repl", |r| r.string("setName", set))
        .document("wiredTiger", |w| w.document("cache", |c| c.double("maximum bytes configured", 1e9)))
        .finish()
}

/// What it was started with.
fn options(set: &str) -> Vec<u8> {
    let parsed = |p: Builder| {
        p.document("sharding", |s| s.string("clusterRole", "shardsvr"))
            .document("replication", |r| r.string("replSetName", set))
    };
    Builder::new().document("parsed", parsed).finish()
}

#[test]
fn a_shard_that_is_unlike_its_siblings_stands_out_behind_a_router() {
    const SETS: [&str; 3] = ["rs0", "rs1", "rs2"];
    let begun = Instant::now();
    let status =
        |place: usize| shard(SETS[place], 100.0 + begun.elapsed().as_secs_f64(), if place == 1 { 40.0 } else { 2.0 });
    let shards = [0, 1, 2].map(|place| {
        let mut answers = Server::of("7.0.12").answers();
        answers
            .extend([("serverStatus".to_owned(), status(place)), ("getCmdLineOpts".to_owned(), options(SETS[place]))]);
        Replay::start(Script { max_wire: 21, answers, ..Script::default() })
    });
    let list = |list: Builder| {
        SETS.iter().zip(&shards).enumerate().fold(list, |list, (place, (set, shard))| {
            let host = format!("{set}/{}", shard.address);
            list.document(&place.to_string(), |b| b.string("_id", set).string("host", &host))
        })
    };
    let mut answers = Server::of("7.0.12").answers();
    let router = Builder::new().string("process", "mongos").int64("pid", 8).int64("uptimeMillis", 500).finish();
    answers.extend([
        ("serverStatus".to_owned(), router),
        ("listShards".to_owned(), Builder::new().array("shards", list).finish()),
    ]);
    let router = Replay::start(Script { max_wire: 21, answers, ..Script::default() });

    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rec");
    let out = out.to_str().unwrap();
    let over = AtomicBool::new(false);
    let recorded = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for (place, shard) in shards.iter().enumerate() {
                    shard.script().answers.insert("serverStatus".to_owned(), status(place));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // Also where that panics: else the other would go on for ever.
        let _over = Raise(&over);
        backwater(&["record", &router.uri(), "-o", out, "--for", "45s", "--free-floor", "1MB"], PASSWORD)
    });
    assert!(recorded.status.success(), "{}", text(&recorded));
    let found = backwater(&["diagnose", out, "--json"], PASSWORD);
    let mut findings: Vec<serde_json::Value> = serde_json::from_slice(&found.stdout).unwrap();
    // They are on this host, whose own disk other tests may fill.
    findings.retain(|finding| !finding["queue"].as_str().is_some_and(|queue| queue.starts_with("host.disk@")));
    let told = text(&backwater(&["diagnose", out], PASSWORD));
    let first = (&findings[0]["rule"], &findings[0]["cause"]);
    assert_eq!(first, (&"shard-unlike".into(), &"slower".into()), "{told}");
    assert_eq!(findings[0]["queue"], format!("mongo.clients@{}", shards[1].address));
    // And they stand side by side.
    let (_, table) = told.split_once("Shards side by side").unwrap_or_else(|| panic!("{told}"));
    let row =
        |set: &str| table.lines().find(|line| line.starts_with(set)).unwrap_or_else(|| panic!("{told}")).to_owned();
    assert!(
        row("rs0").contains("2.00 ms") && row("rs1").contains("40.0 ms") && row("rs2").contains("2.00 ms"),
        "{told}"
    );
}

#[test]
fn what_cannot_be_watched_is_said_with_what_to_do() {
    let replay = server();
    let wrong = backwater(&["diagnose", &uri(&replay), "--for", "1s"], "wrong battery");
    let told = text(&wrong);
    assert_eq!(wrong.status.code(), Some(2), "{told}");
    assert!(told.contains("does not let user monitor in") && !told.contains("wrong battery"), "{told}");
    replay.script().max_wire = 6;
    let told = text(&backwater(&["check", &uri(&replay)], PASSWORD));
    assert!(told.contains("runs MongoDB 3.6") && told.contains("diagnostic.data"), "{told}");
}
