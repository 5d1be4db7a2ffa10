//! `backwater ash` as a whole program: over a recording of a real server, and live.

#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "../../gate/tests/held/mod.rs"]
mod held;
#[path = "../../gate/tests/server/mod.rs"]
mod server;

use held::Session;
use serde_json::Value;
use server::{PASSWORD, with_server};
use std::process::{Command, Output};

/// A recording of a stampede: sixteen sessions of TPC-B, most of which wait while they write data files.
const STAMPEDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/stampede");
/// A recording of an engine, in which no server's sessions were looked at.
const NO_SESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/ttl-burst");

fn ash(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.arg("ash").args(arguments).env("PGPASSWORD", PASSWORD).output().unwrap()
}

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&said(&ash(arguments))).unwrap()
}

#[test]
fn shares_are_of_all_time_and_of_the_waits_alone() {
    let told = json(&[STAMPEDE, "--by", "wait", "--json"]);
    let tally = &told["tallies"][0];
    let groups = tally["groups"].as_array().unwrap();
    let sum = |of: &str| groups.iter().filter_map(|group| group[of].as_f64()).sum::<f64>();
    assert!((sum("session_time_ratio") - 1.0).abs() < 1e-9 && (sum("wait_ratio") - 1.0).abs() < 1e-9, "{tally}");
    assert_eq!(groups[0]["names"][0], "IO:DataFileWrite");
    assert_eq!(groups[0]["kernel_waits"][0][0], "ext4_buffered_write_iter");
    let (time, waits) = (groups[0]["session_time_ratio"].as_f64(), groups[0]["wait_ratio"].as_f64());
    assert!(time.unwrap() < waits.unwrap(), "there was time on CPU as well");
    assert_eq!(sum("samples"), tally["samples"].as_f64().unwrap());
    // Who is idle is nobody's wait.
    assert!(
        groups.iter().all(|group| group["names"][0] != "Client:ClientRead" || group["sessions"].as_f64() < Some(1.0))
    );
    let slices = told["over_time"].as_array().unwrap();
    let of_time =
        |slice: &Value| slice["sessions"].as_object().unwrap().values().filter_map(Value::as_f64).sum::<f64>();
    let peak = slices.iter().map(of_time).fold(0.0, f64::max);
    assert!((10.0..=17.0).contains(&peak), "sixteen clients at most: {peak}");
    assert_eq!(told["commit"][0]["flavours"][0]["wait"], "group-commit");
}

#[test]
fn combinations_and_a_stretch_of_time_are_what_was_asked_for() {
    let told = json(&[STAMPEDE, "--by", "wait,query", "--from", "-20s", "--json"]);
    assert!(told["seconds"].as_f64().unwrap() < 21.0, "{told}");
    let first = &told["tallies"][0]["groups"][0];
    assert_eq!(first["names"][0], "IO:DataFileWrite");
    assert!(first["names"][1].as_str().unwrap().starts_with("UPDATE pgbench_accounts"), "{first}");
    let text = said(&ash(&[STAMPEDE, "--by", "wait", "--top", "2"]));
    for part in ["Active sessions over time", "on CPU", "IO:DataFileWrite", "LWLock:WALWrite", "Commits on"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains(" more with "), "two groups were asked for: {text}");
    assert!(!said(&ash(&[STAMPEDE, "--by", "wait", "--top", "100"])).contains(" more with "));
}

#[test]
fn nobody_looked_is_not_nobody_was_active() {
    let text = said(&ash(&[NO_SESSIONS]));
    assert!(text.contains("Sessions were not looked at") && !text.contains("No session was seen"), "{text}");
    for part in ["Watched: host lab", "Examined:", "active sessions: no server that has some was watched"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = ash(&["nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is no recording"), "{output:?}");
}

#[test]
fn a_live_server_is_watched_for_a_while() {
    with_server("a_live_server_is_watched_for_a_while", &[], |server| {
        let (busy, _idle) = (Session::open(server.port), Session::open(server.port));
        let pid = busy.pid();
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(|| busy.wait(busy.client.batch_execute("SELECT pg_sleep(30)")));
            server.until(
                &format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'"),
                "1",
            );
            let target = format!("postgres://postgres@{}/postgres", server.address());
            let told = json(&[&target, "--for", "3s", "--by", "wait,user", "--json"]);
            server.value(&format!("SELECT pg_cancel_backend({pid})"));
            assert!(sleeping.join().unwrap().is_err(), "it was cancelled");
            let first = &told["tallies"][0]["groups"][0];
            assert_eq!(first["names"], serde_json::json!(["Timeout:PgSleep", "postgres"]), "{told}");
            let sessions = first["sessions"].as_f64().unwrap();
            assert!((0.7..=1.0).contains(&sessions), "one sleeps, the other is idle: {sessions}");
        });
    });
}
