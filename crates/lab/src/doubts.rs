//! What makes a figure doubtful, and what to do about it.

use crate::arm::Repeat;
use crate::metrics::overload;
use crate::scenario::LoadKind;
use crate::workloads::LoadResult;
use std::collections::BTreeMap;

/// An arm that leaves less than this share of the processors idle may be limited by them and not by what it is about.
const LEAST_IDLE: f64 = 0.20;
/// A load that reached less than this share of its rate before anything was full was limited by the driver or the server.
const LEAST_RATE: f64 = 0.90;
/// Where a larger share of operations than this never began, a tenth of what lies above the 99th percentile may be theirs.
const MOST_NEVER_BEGUN: f64 = 0.001;
/// Share of rows or commits that the server's own counts may lack.
const MOST_UNPROVED: f64 = 0.001;

/// Doubts about one repeat.
pub(crate) fn of_repeat(repeat: &Repeat) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut doubt = |text: String| doubts.push(format!("{}: {text}", repeat.arm));
    if let Some(idle) = repeat.metrics.numbers.get("idle_cpu_ratio").filter(|idle| **idle < LEAST_IDLE) {
        doubt(format!(
            "only {:.0} % of the processors were idle, so they may be the limit; ask for a lower rate or run on more processors",
            idle * 100.0
        ));
    }
    if let Some(why) = &repeat.given_up {
        doubt(format!("a first try was given up, for {why}: what is told is the second"));
    }
    let load = &repeat.load;
    if load.failed > 0 {
        doubt(format!("{} of {} transactions failed; see the server's log", load.failed, load.failed + load.completed));
    }
    if let (Some(rate), Some(peak)) = (repeat.part.rate_per_s, repeat.metrics.numbers.get("tps_peak"))
        && *peak < LEAST_RATE * rate
    {
        doubt(format!("the load never reached its {rate:.0} a second (peak {peak:.0}); something else limits it"));
    }
    if let Some(text) = never_begun(load, repeat.part.kind) {
        doubt(text);
    }
    if let Some(text) = overload::doubt(&repeat.part.overload, &repeat.metrics.numbers) {
        doubt(text);
    }
    if repeat.part.kind == LoadKind::CommitBatches {
        unproved(&repeat.metrics.numbers).into_iter().for_each(&mut doubt);
    }
    if repeat.gaps > 0 {
        doubt(format!("{} times a probe could not read; figures may have holes", repeat.gaps));
    }
    doubts
}

/// What the load says that it did and the server has not counted. Whoever else works there can only add to its counts.
fn unproved(numbers: &BTreeMap<String, f64>) -> Vec<String> {
    let of = |(name, count): (&str, &str)| {
        let done = *numbers.get(name)?;
        match numbers.get(&format!("{name}_proved")) {
            None => Some(format!("nothing proves its {done:.0} {name}: {count} of the server could not be read")),
            Some(proved) if *proved < done * (1.0 - MOST_UNPROVED) - 1.0 => {
                let why = "track_counts may be off, or its statistics were lost or reset";
                Some(format!("the server counted {proved:.0} {name} ({count}) of {done:.0}; {why}"))
            }
            Some(_) => None,
        }
    };
    [("rows", "tup_inserted"), ("commits", "xact_commit")].into_iter().filter_map(of).collect()
}

/// Operations that nobody got round to: what can be said of their latency, by whose load it is.
fn never_begun(load: &LoadResult, kind: LoadKind) -> Option<String> {
    let intended = load.completed + load.failed + load.cancelled + load.never_started;
    if load.never_started as f64 <= MOST_NEVER_BEGUN * intended as f64 {
        return None;
    }
    let latency = match kind {
        LoadKind::WiredTiger => {
            "each is in the latency with what it had waited when the load ended, which is the least it can be"
        }
        _ => "they are in no latency, so that its high percentiles are too low",
    };
    Some(format!(
        "{} of {intended} intended operations never began: {latency}; ask for a lower rate or drive it with more clients",
        load.never_started
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::Phases;
    use crate::scenario::{Arm, Scenario};
    use backwater_model::Moment;

    fn repeat(scenario: &str, never_started: u64) -> Repeat {
        let moment = Moment::from_seconds(1.0);
        let phases = Phases { load_start: moment, load_end: moment, end: moment };
        let arm = Arm { name: "loaded".to_owned(), ..Arm::default() };
        let mut repeat = Repeat::new(&arm, None, Scenario::load(scenario).unwrap().load, phases);
        repeat.load = LoadResult { completed: 10_000 - never_started, never_started, ..LoadResult::default() };
        repeat
    }

    #[test]
    fn what_the_server_has_not_counted_is_a_doubt() {
        let doubts = |proved: &[(&str, f64)]| {
            let mut repeat = repeat("commit-wait", 0);
            let done = [("rows", 5_000.0), ("commits", 50.0)];
            let numbers = done.iter().chain(proved);
            repeat.metrics.numbers.extend(numbers.map(|(name, value)| ((*name).to_owned(), *value)));
            of_repeat(&repeat)
        };
        assert_eq!(doubts(&[("rows_proved", 5_030.0), ("commits_proved", 50.0)]), Vec::<String>::new());
        let lacking = doubts(&[("rows_proved", 0.0), ("commits_proved", 70.0)]);
        assert!(
            matches!(&lacking[..], [one] if one.starts_with("loaded: the server counted 0 rows (tup_inserted) of 5000;")),
            "{lacking:?}"
        );
        let unread = doubts(&[("rows_proved", 5_000.0)]);
        assert!(matches!(&unread[..], [one] if one.contains("nothing proves its 50 commits")), "{unread:?}");
    }

    #[test]
    fn more_than_one_in_a_thousand_that_never_began_is_a_doubt() {
        assert_eq!(of_repeat(&repeat("wt-stall", 10)), Vec::<String>::new());
        let doubts = of_repeat(&repeat("wt-stall", 11));
        assert!(
            matches!(&doubts[..], [one] if one.starts_with("loaded: 11 of 10000 intended operations never began: each is in the latency")),
            "{doubts:?}"
        );
        let doubts = of_repeat(&repeat("stampede", 11));
        assert!(matches!(&doubts[..], [one] if one.contains("in no latency")), "{doubts:?}");
        assert_eq!(never_begun(&LoadResult::default(), LoadKind::Tpcb), None, "nothing was intended");
    }
}
