//! How far ahead of the cliff somebody is told.

#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::all_queues;
use backwater_live::{ahead_of, found_now};
use backwater_model::{Finding, Moment, Registry, Severity, Span, Window};
use backwater_record::Ring;
use common::planted;
use std::sync::Arc;

/// Where writers begin to pause: half-way between a device's background limit of 128 MiB and its limit of 256 MiB, of which
/// 6 MiB are under writeback from the first second on, at 4 MiB more each second.
const CLIFF_S: f64 = (192.0 - 6.0) / 4.0;

/// The first so many seconds.
fn until(seconds: i64) -> Window {
    let registry = Arc::new(Registry::new());
    let mut ring = Ring::new(600.0, Arc::clone(&registry));
    for at in 0..=seconds {
        ring.push(common::second(at, &registry));
    }
    ring.window(Some(Moment(0)), None, &Arc::new(planted::meta("sda")))
}

fn approaching(list: Vec<Finding>) -> Option<Finding> {
    list.into_iter().find(|finding| finding.cause == "approaching")
}

#[test]
fn the_warning_leaves_time_for_two_scrapes() {
    let told: Vec<(i64, Severity)> =
        (1..46).filter_map(|second| Some((second, approaching(found_now(&until(second)))?.severity))).collect();
    let (first, _) = *told.iter().find(|(_, severity)| *severity == Severity::Warning).unwrap();
    assert!(CLIFF_S - first as f64 >= 30.0, "first at {first} of {CLIFF_S} s: {told:?}");
    let still = told.iter().filter(|(second, severity)| *second >= first && *severity == Severity::Warning).count();
    assert_eq!(still as i64, 46 - first, "it stays: {told:?}");
    assert_eq!(approaching(found_now(&until(70))), None, "there is none any more once it has come");
}

#[test]
fn the_time_to_the_limit_is_the_time_to_the_cliff() {
    let window = until(30);
    let dirty = all_queues(&window).into_iter().find(|queue| queue.name == "host.dirty@7:0").unwrap();
    let queue = dirty.read(&window, window.to, 10.0);
    assert!((queue.time_to_limit_s().unwrap() - (CLIFF_S - 30.0)).abs() < 0.1, "{queue:?}");
    assert!((queue.fill().unwrap() - 126.0 / 192.0).abs() < 1e-6, "{queue:?}");
}

#[test]
fn a_rise_of_five_seconds_calls_nobody_half_a_minute_ahead() {
    let window = until(15);
    let severity = |window: &Window| approaching(ahead_of(window, &[])).map(|finding| finding.severity);
    assert_eq!(severity(&window), Some(Severity::Warning));
    let short = window.slice(window.to - Span::from_seconds(6.0), window.to);
    assert_eq!(severity(&short), Some(Severity::Info));
}

#[test]
fn what_is_found_already_is_not_told_as_ahead() {
    let window = until(20);
    let warning = approaching(ahead_of(&window, &[])).unwrap();
    // A warning of before is no reason to keep quiet, the cliff itself is.
    assert_eq!(ahead_of(&window, std::slice::from_ref(&warning)).len(), 1);
    let cliff = Finding { cause: "device-limit".to_owned(), ..warning };
    assert_eq!(ahead_of(&window, &[cliff]), []);
}
