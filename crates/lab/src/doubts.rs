//! What makes a figure doubtful, and what to do about it.

use crate::arm::Repeat;
use crate::metrics::overload;
use crate::scenario::LoadKind;
use crate::workloads::LoadResult;

/// An arm that leaves less than this share of the processors idle may be limited by them and not by what it is about.
const LEAST_IDLE: f64 = 0.20;
/// A load that reached less than this share of its rate before anything was full was limited by the driver or the server.
const LEAST_RATE: f64 = 0.90;
/// Where a larger share of operations than this never began, a tenth of what lies above the 99th percentile may be theirs.
const MOST_NEVER_BEGUN: f64 = 0.001;

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
    if repeat.gaps > 0 {
        doubt(format!("{} times a probe could not read; figures may have holes", repeat.gaps));
    }
    doubts
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
