//! The plan for documents that expire, on planted days: deletes beside the day's load, deletes that lie well already, and
//! less than a day.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use backwater_diagnose::{EngineAdvice, EngineOptions, advise_engines};
use backwater_model::catalogue as cat;
use backwater_model::{ClockAnchor, Meta, Moment, Remedy, Target};
use common::Readings;

const T: (&str, &str) = ("target", "m");
const HOUR: usize = 3_600;
/// Readings are so far apart, in seconds.
const STEP: usize = 10;

/// What is advised about expiry after so many hours of 20,000 operations a second by day, 1,000 by night, and these deletes.
fn plan(hours: usize, deletes: impl Fn(usize) -> f64, ttl_per_s: Option<f64>) -> Option<Remedy> {
    let mut readings = Readings::default();
    let (mut deleted, mut inserted) = (0.0, 0.0);
    for second in (0..=hours * HOUR).step_by(STEP) {
        let at = second as f64;
        let hour = second / HOUR % 24;
        readings.put(&cat::WT_CACHE_MAX, &[T], at, 1e9);
        readings.put(&cat::WT_CACHE_DIRTY, &[T], at, 1e7);
        readings.put(&cat::MONGO_TTL_DELETED, &[T], at, deleted);
        readings.put(&cat::MONGO_OPCOUNTERS, &[T, ("op", "insert")], at, inserted);
        deleted += deletes(hour) * STEP as f64;
        inserted += if (8..20).contains(&hour) { 20_000.0 } else { 1_000.0 } * STEP as f64;
    }
    let target = Target { name: "m".into(), kind: "mongodb".into(), ..Target::default() };
    let anchors = vec![ClockAnchor { boot: Moment(0), unix_us: 1_700_006_400_000_000 }];
    let window =
        readings.window(Meta { targets: vec![target], anchors, ..Meta::default() }, 0.0, (hours * HOUR) as f64);
    let advice = advise_engines(&window, &EngineOptions { ttl_per_s, ..EngineOptions::default() });
    advice[0].remedies.iter().find(|remedy| remedy.title.contains("expire")).cloned()
}

/// What is told of twelve million documents that expire at 03:00, gone in five minutes in which a write takes 30 ms, on such a day.
fn by_night(ttl_per_s: Option<f64>) -> EngineAdvice {
    let mut readings = Readings::default();
    let mut sums = [0.0; 4];
    let burst = 3 * HOUR..3 * HOUR + 300;
    for second in (0..=24 * HOUR).step_by(STEP) {
        let at = second as f64;
        let writes = if (8..20).contains(&(second / HOUR)) { 10_000.0 } else { 500.0 };
        let (deletes, ms) = if burst.contains(&second) { (40_000.0, 30.0) } else { (0.0, 1.0) };
        readings.put(&cat::WT_CACHE_MAX, &[T], at, 1e9);
        readings.put(&cat::WT_CACHE_DIRTY, &[T], at, 1e7);
        let counters = [
            (&cat::MONGO_TTL_DELETED, vec![T], deletes),
            (&cat::MONGO_OPCOUNTERS, vec![T, ("op", "insert")], writes),
            (&cat::MONGO_OPS, vec![T, ("op", "writes")], writes),
            (&cat::MONGO_LATENCY, vec![T, ("op", "writes")], writes * ms * 1e3),
        ];
        for ((def, labels, rate), sum) in counters.into_iter().zip(&mut sums) {
            readings.put(def, &labels, at, *sum);
            *sum += rate * STEP as f64;
        }
    }
    let target = Target { name: "m".into(), kind: "mongodb".into(), ..Target::default() };
    let anchors = vec![ClockAnchor { boot: Moment(0), unix_us: 1_700_006_400_000_000 }];
    let window = readings.window(Meta { targets: vec![target], anchors, ..Meta::default() }, 0.0, (24 * HOUR) as f64);
    advise_engines(&window, &EngineOptions { ttl_per_s, ..EngineOptions::default() }).remove(0)
}

#[test]
fn a_burst_by_night_is_spread_over_the_quiet_hours_or_it_is_said_that_it_cannot_be() {
    let advice = by_night(None);
    let plan = advice.remedies.iter().find(|remedy| remedy.title.contains("expire")).unwrap();
    // At a tenth of the busiest hour's load, 1,000 a second, 12,000,000 take less than four hours.
    assert!(plan.runtime.iter().any(|line| line.contains("Math.random() * 4 * 3600")), "{plan:?}");
    let (_, hours) = plan.title.split_once("between ").unwrap();
    let first: usize = hours[..2].parse().unwrap();
    assert!((0..4).all(|hour| !(8..20).contains(&((first + hour) % 24))), "{plan:?}");
    assert!(!advice.notes.iter().any(|note| note.contains("No plan")), "{advice:?}");
    let slower = by_night(Some(100.0));
    assert!(slower.notes.iter().any(|note| note.contains("No plan for what expires")), "{slower:?}");
    assert!(!slower.remedies.iter().any(|remedy| remedy.title.contains("expire")), "{slower:?}");
}

/// All at noon: 3,000 a second for an hour.
fn noon(hour: usize) -> f64 {
    if hour == 12 { 3_000.0 } else { 0.0 }
}

#[test]
fn deletes_at_noon_are_moved_into_the_night() {
    let plan = plan(24, noon, Some(1_000.0)).unwrap();
    let predicted = |name: &str| plan.predicted.iter().find(|figure| figure.name == name).unwrap().value;
    assert!((predicted("ttl_deleted_mean_per_s") - 1_000.0).abs() < 20.0, "{plan:?}");
    assert!((predicted("ttl_deleted_mean_now_per_s") - 3_000.0).abs() < 20.0, "{plan:?}");
    assert!((predicted("load_quiet_per_s") - 1_000.0).abs() < 50.0, "{plan:?}");
    assert!(plan.runtime.iter().any(|line| line.contains("Math.random() * 3 * 3600")), "{plan:?}");
}

/// What a writer's code makes of moments all over the day: how many documents expire before they may, how many outside of these
/// hours, the longest that one stays beyond its life in hours, and how many expire in each of the window's hours.
const WRITER: &str = "
const LIFE_MS = 30 * 3600 * 1000;
let now = 0;
Date.now = () => now;
function write(document) { CODE }
let [early, outside, longest] = [0, 0, 0];
const hours = new Array(HOURS).fill(0);
for (let minute = 0; minute < 14400; minute++) {
  now = 1700000000000 + minute * 60000;
  const document = {};
  write(document);
  const beyond = document.expireAt.getTime() - now - LIFE_MS;
  if (beyond < 0) early++;
  longest = Math.max(longest, beyond / 3600000);
  const hour = (document.expireAt.getUTCHours() - FIRST + 24) % 24;
  if (hour < HOURS) hours[hour]++; else outside++;
}
console.log(early, outside, longest, ...hours);
";

#[test]
fn the_code_for_writers_lets_documents_expire_in_those_hours_evenly_and_never_early() {
    let plan = plan(24, noon, Some(1_000.0)).unwrap();
    assert!(plan.title.contains("between 00:00 and 03:00 UTC"), "{plan:?}");
    // As it stands, and moved to hours around midnight.
    let late = |line: &String| {
        line.replace("getUTCHours() >= 0", "getUTCHours() >= 22").replace("(0, 0, 0, 0)", "(22, 0, 0, 0)")
    };
    let code = [plan.runtime.join("\n"), plan.runtime.iter().map(late).collect::<Vec<_>>().join("\n")];
    assert_ne!(code[0], code[1]);
    for (code, first) in code.iter().zip(["0", "22"]) {
        let program = WRITER.replace("CODE", code).replace("HOURS", "3").replace("FIRST", first);
        let Ok(run) = std::process::Command::new("node").args(["-e", &program]).output() else {
            return eprintln!(
                "skipped: the_code_for_writers_lets_documents_expire_in_those_hours_evenly_and_never_early: needs node"
            );
        };
        let said = String::from_utf8(run.stdout).unwrap();
        let numbers: Vec<f64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 6, "{said} {}", String::from_utf8_lossy(&run.stderr));
        assert_eq!(numbers[..2], [0.0, 0.0], "early, outside: {said}");
        assert!(numbers[2] <= 27.0, "a day and the window at most: {said}");
        // A third of 14,400 each, and five standard deviations of it.
        assert!(numbers[3..].iter().all(|hour| (hour - 4_800.0).abs() < 300.0), "{said}");
    }
}

#[test]
fn hours_of_which_nothing_is_known_are_not_taken_for_quiet() {
    // From midnight on: the last four hours of the day were not recorded.
    let plan = plan(20, noon, Some(1_000.0)).unwrap();
    assert!(plan.title.contains("between 00:00 and 03:00 UTC"), "{plan:?}");
    let load = plan.predicted.iter().find(|figure| figure.name == "load_quiet_per_s").unwrap().value;
    assert!((load - 1_000.0).abs() < 50.0, "{plan:?}");
    assert!(plan.risk.contains("the hours from 20:00, 21:00, 22:00, 23:00 UTC"), "{plan:?}");
}

#[test]
fn what_lies_well_what_is_little_and_what_is_less_than_a_day_is_left_alone() {
    assert!(plan(24, |hour| if hour == 2 { 3_000.0 } else { 0.0 }, None).is_none(), "already in the night");
    assert!(plan(24, |hour| noon(hour) / 1_000.0, None).is_none(), "three a second");
    assert!(plan(14, noon, None).is_none(), "nobody has seen the night");
    assert!(plan(24, |_| 3_000.0, Some(1_000.0)).is_none(), "more than a day takes at that rate");
}
