//! `backwater top` as a whole program, on the processes of this test.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::process::{Command, Output};

fn top(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_backwater")).arg("top").args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_process_and_its_children_are_shown_as_often_as_asked() {
    let own = std::process::id().to_string();
    let output = top(&["--pid", &own, "--count", "2", "--interval", "200ms", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    let processes = lines[1]["processes"].as_array().unwrap();
    let found = processes.iter().find(|process| process["pid"] == std::process::id()).unwrap();
    assert_eq!(found["uid"], rustix::process::geteuid().as_raw());
    assert!(found["read_calls_per_s"].is_number() && found["cpu_share"].is_number(), "{found}");
    // The program itself is a child of this test, and reads.
    assert!(processes.iter().any(|process| process["what"] == "backwater"), "{text}");
    assert!(lines[0]["seconds"].as_f64().unwrap() > 0.1);
}

#[test]
fn without_a_terminal_tables_follow_each_other_at_full_width() {
    let own = std::process::id().to_string();
    let output = top(&["--pid", &own, "--count", "2", "--interval", "0.2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("total of").count(), 2, "{text}");
    assert!(text.contains("device") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let cases: [(&[&str], &str); 4] = [
        (&["--pid", "2147483647"], "2147483647"),
        (&["--from", "03:10"], "--from and --to choose a part of a recording"),
        (&["nowhere"], "is no recording"),
        (&["--sort", "luck"], "possible values"),
    ];
    for (arguments, expected) in cases {
        let output = top(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(expected), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn who_may_not_see_others_is_told_which_privilege_is_missing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: who_may_not_see_others_is_told_which_privilege_is_missing: needs root (to become nobody)");
        return;
    }
    // A copy that everybody may run: directories above the program may be closed to others.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let program = dir.path().join("backwater");
    std::fs::copy(env!("CARGO_BIN_EXE_backwater"), &program).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65_534), Some(65_534)).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).arg("top").args(arguments);
        let output = command.args(["--count", "1", "--interval", "0.2"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let missing = "run as root (or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)";
    let host = as_nobody(&[]);
    assert!(host.contains("of other users") && host.contains(missing), "{host}");
    let own = std::process::id().to_string();
    let server = as_nobody(&["--pid", &own]);
    assert!(server.contains("Not seen: I/O of") && server.contains(&format!("{missing}, or as root")), "{server}");
}

#[test]
fn a_recording_without_servers_says_why_it_has_no_processes() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("rec");
    let recording = recording.to_str().unwrap();
    let record = Command::new(env!("CARGO_BIN_EXE_backwater"))
        .args(["record", "host", "-o", recording, "--for", "2s", "--free-floor", "1MB"])
        .output()
        .unwrap();
    assert_eq!(record.status.code(), Some(0), "{}", said(&record));
    let output = top(&[recording]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("no readings of processes"), "{}", said(&output));
}
