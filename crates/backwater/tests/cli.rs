//! The whole command as a user meets it: command, exit code, stdout, stderr.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program with an environment of its own.
fn backwater(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_backwater"))
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("HOME", std::env::temp_dir())
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

/// Command line, exit code and both streams as one text, with what differs between machines replaced.
fn told(arguments: &[&str], secret_paths: &[&Path]) -> String {
    let output = backwater(arguments);
    let mut text = format!(
        "$ backwater {}\n[exit {}]\n--- stdout\n{}--- stderr\n{}",
        arguments.join(" "),
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    for path in secret_paths {
        text = text.replace(&path.display().to_string(), "[DIR]");
    }
    text
}

#[test]
fn help_shows_examples() {
    insta::assert_snapshot!(told(&["--help"], &[]));
    for command in
        ["demo", "record", "diagnose", "advise", "compare", "check", "proxy", "lab", "export", "top", "serve", "watch"]
    {
        let output = backwater(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command}");
        assert!(!output.stdout.is_empty(), "{command}");
    }
}

#[test]
fn lab_lists_and_shows_its_scenarios() {
    insta::assert_snapshot!(told(&["lab", "list"], &[]));
    insta::assert_snapshot!(told(&["lab", "show", "stampede"], &[]));
    insta::assert_snapshot!(told(&["lab", "show", "wal-lag"], &[]));
}

#[test]
fn mistakes_are_named_with_what_to_do_next() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none");
    let missing = missing.to_str().unwrap();
    let cases: &[&[&str]] = &[
        &["diagnose", missing],
        &["diagnose", "--explain", "no-such-rule"],
        &["lab", "show", "stampeed"],
        &["lab", "compare", missing, missing],
        &["record", "postgres://nobody@127.0.0.1:1/none", "-o", missing],
        &["ash"],
        &["record", "-o", missing, "--keep", "soon"],
        &["record", "-o", missing, "--max-size", "much"],
    ];
    let told: Vec<String> = cases.iter().map(|case| told(case, &[dir.path()])).collect();
    for text in &told {
        assert!(text.contains("[exit 2]"), "{text}");
    }
    assert!(!Path::new(missing).exists(), "a command that could not be done left something behind");
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn what_does_not_fit_together_is_refused_with_a_way_on() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().to_str().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["diagnose", there, there], "backwater compare"),
        (&["advise", there, "host"], "one recording at a time"),
        (&["diagnose", there, "--for", "5"], "--from and --to"),
        (&["diagnose", "host", "--from", "-5min"], "--for"),
        (&["diagnose", file], "it is a file"),
        (&["report", file, "-o", "report.html"], "it is a file"),
        (&["watch", file, "--once"], "it is a file"),
        (&["report", there, "-o", "report.pdf"], "--format"),
        (&["record", "-o", file, "--for", "1s"], "a file stands where a directory is needed"),
        (&["record", "-o", "postgres://u:hunter2@h/d", "--for", "1s"], "directory of the recording"),
        (&["record", "-o", there, "--keep", "7"], "say 7d, 12h or 90min"),
        (&["record", "host=h", "postgres://u:hunter2@h:71O2/d", "-o", there], "address 2 of 2"),
        (&["ash", "host", "--for", "1s"], "no server was named"),
        (&["check", "postgress://u:hunter2@h/d"], "'postgress://'"),
        (&["check", "mongodb://u:hunter2@127.0.0.1:1"], "127.0.0.1:1 cannot be reached"),
        (&["check", "localhost"], "'localhost'"),
    ];
    for (arguments, wanted) in cases {
        let output = backwater(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(wanted) && !told.contains("hunter2"), "{arguments:?}: {told}");
    }
}

#[test]
fn a_run_that_cannot_begin_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("file"), dir.path().join("out"));
    std::fs::write(&file, "").unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_backwater"))
        .args(["lab", "run", "stampede", "--out", out.to_str().unwrap()])
        .env("BACKWATER_STATE_DIR", &file)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{told}");
    assert!(!out.exists(), "{told}");
}

#[test]
fn a_scenario_with_a_typo_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("typo.toml");
    let text = include_str!("../../../scenarios/stampede.toml").replace("drain_limit_s", "drain_limits");
    std::fs::write(&path, text).unwrap();
    let told = told(&["lab", "run", path.to_str().unwrap()], &[dir.path()]);
    assert!(told.contains("[exit 2]") && told.contains("drain_limits") && told.contains("line"), "{told}");
}

#[test]
fn a_password_in_a_target_is_never_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rec");
    let told =
        told(&["record", "postgres://someone:hunter2@127.0.0.1:1/none", "-o", out.to_str().unwrap()], &[dir.path()]);
    let after_command = told.split_once('\n').unwrap().1;
    assert!(!after_command.contains("hunter2"), "{after_command}");
}

#[test]
fn the_host_alone_is_recorded_and_diagnosed_healthy_or_not_but_never_fails() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rec");
    let out = out.to_str().unwrap();
    let recorded = backwater(&["record", "-o", out, "--for", "3s", "--free-floor", "1MB"]);
    assert_eq!(recorded.status.code(), Some(0), "{}", String::from_utf8_lossy(&recorded.stderr));
    let diagnosed = backwater(&["diagnose", out, "--json"]);
    assert!(matches!(diagnosed.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&diagnosed.stderr));
    let findings: serde_json::Value = serde_json::from_slice(&diagnosed.stdout).unwrap();
    assert!(findings.is_array());
    let exported = backwater(&["export", out]);
    let text = String::from_utf8(exported.stdout).unwrap();
    assert!(text.lines().count() > 50, "{} lines", text.lines().count());
    assert!(text.contains("host.vm.dirty_bytes"), "the page cache is in the export");
    let page = dir.path().join("page.html");
    let opened = backwater(&["report", out, "-o", page.to_str().unwrap(), "--open"]);
    let told = String::from_utf8_lossy(&opened.stderr).into_owned();
    assert!(opened.status.success() && page.exists(), "{told}");
    assert!(told.contains("not opened: there is no desktop") && told.contains(page.to_str().unwrap()), "{told}");
    let early = backwater(&["diagnose", out, "--from", "2001-01-01 00:00", "--to", "2001-01-02 00:00"]);
    assert_eq!(early.status.code(), Some(2));
    let told = String::from_utf8_lossy(&early.stderr).into_owned();
    assert!(told.contains("nothing was recorded") && told.contains("spans"), "{told}");
}
