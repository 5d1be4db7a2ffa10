//! A blind test that is interrupted leaves the host as it was, and goes on where it was left.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(state: &Path, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.env("BACKWATER_STATE_DIR", state).env("RUST_BACKTRACE", "0");
    command.args(["lab", "blind", "--out"]).arg(out);
    command
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Mounts and namespaces of the run, by the names that the lab gives them.
fn left_on_host(process: u32) -> Vec<String> {
    let own = format!("backwater-{process}-");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> = mounts.lines().filter(|line| line.contains(&own)).map(str::to_owned).collect();
    if let Ok(namespaces) = std::fs::read_dir("/run/netns") {
        let names = namespaces.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        left.extend(names.filter(|name| name.contains(&own)));
    }
    left
}

#[test]
fn a_test_of_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let none = ["--runs", "0", "--healthy", "0"];
    let output = command(&dir.path().join("state"), &dir.path().join("blind")).args(none).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&output).contains("leaves nothing to test"), "{}", told(&output));
    assert!(!dir.path().join("blind").exists());
}

#[test]
fn an_interrupted_test_is_put_right_and_goes_on() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: an_interrupted_test_is_put_right_and_goes_on: needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (state, out) = (dir.path().join("state"), dir.path().join("blind"));
    let plan = out.join("plan.json");
    let few = ["--runs", "2", "--healthy", "1", "--seed", "5", "--seconds", "15"];
    let child = command(&state, &out).args(few).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = child.id();
    let began = Instant::now();
    // Once servers stand, there is something to put right.
    while left_on_host(process).is_empty() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!left_on_host(process).is_empty(), "no volume was made");
    let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert_eq!(left_on_host(process), [] as [String; 0]);
    assert!(!out.join("aside").exists());
    let drawn = std::fs::read_to_string(&plan).unwrap();
    // No run fits into a second: the test is found as it was left, and nothing is begun.
    let output = command(&state, &out).args(["--resume", "--for", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(told(&output).contains("3 runs are left"), "{}", told(&output));
    assert!(told(&output).contains("0 of 3 runs, seed 5, 15 s of load each"), "{}", told(&output));
    assert_eq!(std::fs::read_to_string(&plan).unwrap(), drawn);
    // Another test is not begun over it.
    let output = command(&state, &out).args(few).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&output).contains("--resume"), "{}", told(&output));
}
