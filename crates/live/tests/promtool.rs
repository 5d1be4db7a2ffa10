//! Prometheus' own tool on the alert rules and on what the server answers. It is found as BACKWATER_PROMTOOL or on the PATH.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use common::{LONG, Served, recording};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn monitoring(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring").join(name)
}

/// What promtool says of these arguments with this input; none, and said so, where there is no promtool.
fn promtool(test: &str, arguments: &[&str], input: &str) -> Option<Result<String, String>> {
    let program = std::env::var_os("BACKWATER_PROMTOOL").unwrap_or_else(|| "promtool".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(monitoring(""));
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        eprintln!("skipped: {test}: needs promtool (Debian's package prometheus)");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Some(if output.status.success() { Ok(text) } else { Err(text) })
}

/// A server of a recording whose dirty pages are about to reach their limit.
fn served() -> (tempfile::TempDir, Served) {
    let dir = tempfile::tempdir().unwrap();
    recording(&dir.path().join("rec"), 40);
    let served = Served::start(&dir.path().join("rec"), LONG);
    (dir, served)
}

#[test]
fn the_alert_rules_fire_when_they_should() {
    const NAME: &str = "the_alert_rules_fire_when_they_should";
    let Some(checked) = promtool(NAME, &["check", "rules", "alerts.yml"], "") else { return };
    assert!(checked.as_ref().is_ok_and(|text| text.contains("SUCCESS")), "{checked:?}");
    let tested = promtool(NAME, &["test", "rules", "alerts_test.yml"], "").unwrap();
    assert!(tested.is_ok(), "{}", tested.unwrap_err());
}

#[test]
fn prometheus_takes_what_the_server_answers() {
    const NAME: &str = "prometheus_takes_what_the_server_answers";
    let (_dir, served) = served();
    let (_, _, text) = served.with_token("/metrics");
    let Some(checked) = promtool(NAME, &["check", "metrics"], &text) else { return };
    assert!(checked.is_ok(), "{}\n{text}", checked.unwrap_err());
    let odd = promtool(NAME, &["check", "metrics"], "# TYPE odd_total gauge\nodd_total 1\n").unwrap();
    assert!(odd.is_err(), "it finds fault with others");
}

/// Names of the labels of a series, such as `name{one="1", two="2"}`.
fn labels(series: &str) -> BTreeSet<String> {
    let inside = series.split_once('{').map(|(_, rest)| rest).unwrap_or_default();
    let before_values = inside.split("=\"").map(|part| part.rsplit(['{', ',', ' ', '"']).next().unwrap_or_default());
    let all: Vec<&str> = before_values.collect();
    // What follows the last value is no label.
    all[..all.len() - 1].iter().map(|label| (*label).to_owned()).collect()
}

#[test]
fn rules_are_tested_on_series_as_they_are_told() {
    let (_dir, served) = served();
    let (_, _, text) = served.metrics();
    let told: BTreeMap<&str, BTreeSet<String>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some((line.split_once('{')?.0, labels(line))))
        .collect();
    let tests = std::fs::read_to_string(monitoring("alerts_test.yml")).unwrap();
    let given = tests.lines().filter_map(|line| line.trim().strip_prefix("- series: '"));
    let mut names = BTreeSet::new();
    for series in given {
        let name = series.split('{').next().unwrap();
        let mut expected = told.get(name).unwrap_or_else(|| panic!("{name} is not told: {text}")).clone();
        // Prometheus adds these itself.
        expected.extend(["job".to_owned(), "instance".to_owned()]);
        assert_eq!(labels(series), expected, "{series}");
        names.insert(name);
    }
    assert!(names.len() >= 6, "{names:?}");
    // Each rule is tested.
    let rules = std::fs::read_to_string(monitoring("alerts.yml")).unwrap();
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let fires = tests
            .split("- eval_time:")
            .skip(1)
            .any(|test| test.lines().nth(1).is_some_and(|line| line.trim() == format!("alertname: {alert}")));
        assert!(fires, "no test says when {alert} fires");
    }
}
