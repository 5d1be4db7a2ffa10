//! What makes a figure doubtful, and what to do about it.

use crate::arm::Repeat;
use crate::metrics::overload;

/// An arm that leaves less than this share of the processors idle may be limited by them and not by what it is about.
const LEAST_IDLE: f64 = 0.20;
/// A load that reached less than this share of its rate before anything was full was limited by the driver or the server.
const LEAST_RATE: f64 = 0.90;

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
    if let Some(text) = overload::doubt(&repeat.part.overload, &repeat.metrics.numbers) {
        doubt(text);
    }
    if repeat.gaps > 0 {
        doubt(format!("{} times a probe could not read; figures may have holes", repeat.gaps));
    }
    doubts
}
