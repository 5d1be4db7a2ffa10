//! `backwater lab run commit-wait --dsn …` as a whole program, on a server that is not the lab's own.

#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "../../gate/tests/server/mod.rs"]
mod server;

use serde_json::Value;
use server::{PASSWORD, Server, text, with_server};
use std::process::{Command, Output};

/// Runs commit-wait with 5,000 rows as this role, once each, and looks whether a schema is left behind.
fn commit_wait(server: &Server, role: &str, more: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    let dsn = format!("postgres://{role}@{}/postgres", server.address());
    command.args(["lab", "run", "commit-wait", "--rows", "5000", "--repeats", "1", "--allow-writes", "--json"]);
    command.args(["--dsn", &dsn]).args(more).arg("--out").arg(dir.path().join("out"));
    let output = command.env("PGPASSWORD", PASSWORD).env("BACKWATER_STATE_DIR", dir.path()).output().unwrap();
    let ours = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'backwater%'";
    assert_eq!(server.value(ours), "0", "{more:?} left a schema: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn outcome(output: &Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}

fn arms(outcome: &Value) -> Vec<&str> {
    outcome["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect()
}

#[test]
fn commits_are_measured_on_a_given_server_and_nothing_is_left() {
    with_server("commits_are_measured_on_a_given_server_and_nothing_is_left", &[], |server| {
        let told = outcome(&commit_wait(server, "postgres", &["--batches", "10,1000"]));
        assert_eq!(arms(&told), ["rows-1000", "rows-10", "client-1000", "client-10"]);
        for (arm, commits) in told["arms"].as_array().unwrap().iter().zip([5.0, 500.0, 5.0, 500.0]) {
            let metric = |name: &str| arm["metrics"][name].as_f64().unwrap_or_else(|| panic!("{name}: {arm}"));
            assert_eq!((metric("rows"), metric("commits")), (5_000.0, commits), "{arm}");
            assert!(metric("elapsed_s") > 0.0 && metric("rows_per_s") > 0.0 && metric("commit_latency_ms") >= 0.0);
            assert!(metric("rows_proved") >= 5_000.0 && metric("wal_per_commit_bytes") > 0.0, "{arm}");
        }
        let figure = |name: &str| told["outcome"][name].as_f64().unwrap_or_else(|| panic!("{name}: {told}"));
        assert!([10.0, 1000.0].contains(&figure("knee_rows")) && figure("cost_per_row_us") > 0.0);
        assert!(told["expected"]["met"] == true && told.get("skipped").is_none(), "{told}");
    });
}

#[test]
fn what_would_change_a_given_server_is_skipped_and_told() {
    with_server("what_would_change_a_given_server_is_skipped_and_told", &[], |server| {
        let told = outcome(&commit_wait(server, "postgres", &["--arm", "rows-2000", "--arm", "rows-20-async"]));
        assert_eq!(arms(&told), ["rows-2000"]);
        let why = told["skipped"]["rows-20-async"].as_str().unwrap();
        assert!(why.contains("it changes the server's settings"), "{why}");
    });
}

#[test]
fn a_role_that_may_not_make_the_procedure_is_told_and_leaves_nothing() {
    with_server("a_role_that_may_not_make_the_procedure_is_told_and_leaves_nothing", &[], |server| {
        for sql in [
            &format!("CREATE ROLE bench LOGIN PASSWORD '{PASSWORD}'"),
            "GRANT CREATE ON DATABASE postgres TO bench",
            "REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC",
        ] {
            server.value(sql);
        }
        let refused = server::complaint(&commit_wait(server, "bench", &["--arm", "rows-2000"]));
        for part in ["the role bench may not make the procedure", "every size also runs from the client"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        // From the client it needs none.
        let told = outcome(&commit_wait(server, "bench", &["--batches", "1000"]));
        assert_eq!(arms(&told), ["client-1000"]);
        assert!(told["skipped"]["rows-1000"].as_str().unwrap().contains("may not make the procedure"), "{told}");
        // And one that may not even make a schema is told what it lacks.
        server.value("REVOKE CREATE ON DATABASE postgres FROM bench");
        let refused = server::complaint(&commit_wait(server, "bench", &["--batches", "1000"]));
        assert!(refused.contains("GRANT CREATE ON DATABASE postgres TO bench"), "{refused}");
    });
}
