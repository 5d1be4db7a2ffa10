//! MongoDB as a user meets it: `check`, `record` and `diagnose` of a server of ours that plays documents back.

#![allow(clippy::unwrap_used)]

#[path = "../../probe/tests/mongodb/documents.rs"]
mod documents;
#[path = "../../probe/tests/mongodb/replay.rs"]
mod replay;

use documents::Server;
use replay::{Replay, Script};
use std::path::Path;
use std::process::{Command, Output};

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
    let recorded = backwater(&["record", &uri, "-o", out, "--for", "3s", "--free-floor", "1MB"], PASSWORD);
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
