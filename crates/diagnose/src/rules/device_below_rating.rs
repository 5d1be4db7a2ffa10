//! device-below-rating: the device stands still with requests in it, though it has just shown that it can do far more. A limit
//! keeps a rate; a device at its end keeps its best; a fault of the device, its driver or its firmware does neither.

use super::draft::draft;
use super::wt_evidence::{Contrast, Engine, contrast, engines, flags_of, idle_processors};
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::grid::{Lane, both, episodes};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, RuledOut, Severity, Unit};
use std::ops::Range;

/// The device must be taken all the time, and do at most this share of what it does at its best, in bytes and in requests.
const BUSY: f64 = 0.95;
const STANDS: f64 = 0.1;
/// What it does at its best: this quantile of the window's seconds in which it does anything, and so many of them.
const BEST: f64 = 0.9;
const LEAST_SECONDS: usize = 20;
/// A device that never did this much a second has shown nothing.
const LEAST_BYTES: f64 = 4.0 * 1_048_576.0;
/// Seconds a standstill must last; one longer than the other is no standstill but another rate.
const LEAST_S: usize = 2;
const MOST_S: usize = 30;
/// Standstills that must be seen, unless one lasts so long.
const HABIT: usize = 2;
const LONG_S: usize = 4;
/// Where processors have less than this share of their time left, requests end late for want of them, and a device that stands is no
/// fault of its own.
const NO_TIME: f64 = 0.05;
/// After it the device must come back to this share of its best within so many seconds.
const BACK: f64 = 0.5;
const BACK_S: usize = 5;
/// What it was given when it stopped is looked at for so many seconds before; told as one rate where so many standstills, the
/// least and the most of them, are no farther apart than so.
const BEFORE_S: usize = 3;
const SAME_RATE_COUNT: usize = 3;
const SAME_RATE: f64 = 1.5;
/// That rate is well under what the device can do up to this share of it.
const WELL_UNDER: f64 = 0.8;
/// Latency of writes inside ÷ outside from which they suffer, or work at most.
const JUMP: f64 = 2.0;
const DIP: f64 = 0.5;

/// The findings of a window: at most one a device.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for engine in &engines(scene) {
        let found = engine.device.and_then(|device| of_device(scene, engine, device));
        findings.extend(found.filter(|found| findings.iter().all(|known| known.queue != found.queue)));
    }
    findings
}

/// The best of a lane, as a quantile of its seconds in which anything was done.
fn best(lane: &Lane, count: usize) -> Option<f64> {
    let mut values: Vec<f64> = lane.values(&(0..count)).into_iter().filter(|value| *value > 0.0).collect();
    values.sort_by(f64::total_cmp);
    (values.len() >= LEAST_SECONDS).then(|| values[((values.len() - 1) as f64 * BEST) as usize])
}

/// When a device stood still, and what it does at its best, in bytes and in requests a second.
pub(crate) struct Standstills {
    pub(crate) runs: Vec<Range<usize>>,
    best: (f64, f64),
}

/// Bytes read and written, a second.
fn moved(device: &DeviceView) -> Lane {
    device.read_bytes.with(&device.written_bytes, |read, written| read + written)
}

/// The standstills of a device; none where there are too few to speak of.
pub(crate) fn standstills(device: &DeviceView, count: usize) -> Option<Standstills> {
    let bytes = moved(device);
    let ops = device.reads.with(&device.writes, |reads, writes| reads + writes);
    let (best_bytes, best_ops) = (best(&bytes, count)?, best(&ops, count)?);
    if best_bytes < LEAST_BYTES {
        return None;
    }
    // Neither many bytes nor many requests: few large ones, or many small ones, are another load and no fault.
    let nothing = both(&bytes.flags(|rate| rate <= STANDS * best_bytes), &ops.flags(|rate| rate <= STANDS * best_ops));
    let stands = both(&nothing, &device.busy.flags(|busy| busy >= BUSY));
    let returns = |run: &Range<usize>| {
        let after = run.end..(run.end + BACK_S).min(count);
        bytes.max(&after).is_some_and(|rate| rate >= BACK * best_bytes)
            || ops.max(&after).is_some_and(|rate| rate >= BACK * best_ops)
    };
    let mut runs = episodes(&stands, LEAST_S, 1);
    runs.retain(|run| run.len() <= MOST_S && returns(run));
    enough(&runs).then_some(Standstills { runs, best: (best_bytes, best_ops) })
}

fn enough(runs: &[Range<usize>]) -> bool {
    runs.len() >= HABIT || runs.iter().any(|run| run.len() >= LONG_S)
}

fn of_device(scene: &Scene<'_>, engine: &Engine<'_>, device: &DeviceView) -> Option<Finding> {
    let count = scene.grid.count;
    let Standstills { mut runs, best } = standstills(device, count)?;
    let idle = idle_processors(scene, engine);
    runs.retain(|run| idle.mean(run).is_none_or(|share| share >= NO_TIME));
    if !enough(&runs) {
        return None;
    }
    let inside = flags_of(&runs, count);
    let jumped = engine.latency(&inside).filter(|latency| latency.times() >= JUMP);
    let fell = engine.work(&inside).filter(|work| work.times() <= DIP);
    Some(finding(scene, engine, device, &runs, best, (jumped, fell), &moved(device)))
}

/// What the device did just before its standstills: the least, the median and the most, in bytes a second.
struct Before {
    least: f64,
    median: f64,
    most: f64,
    count: usize,
}

impl Before {
    fn of(bytes: &Lane, runs: &[Range<usize>]) -> Option<Before> {
        let rates = runs.iter().filter_map(|run| bytes.mean(&(run.start.saturating_sub(BEFORE_S)..run.start)));
        let mut rates: Vec<f64> = rates.collect();
        rates.sort_by(f64::total_cmp);
        let (least, most) = (*rates.first()?, *rates.last()?);
        Some(Before { least, median: crate::grid::median(rates.clone())?, most, count: rates.len() })
    }

    /// Where it is always about the same rate, well under what the device can do: at what rate it stops.
    fn says(&self, best: f64, declared: Option<f64>) -> Option<String> {
        let (name, can) = declared.map_or(("of its best", best), |rate| ("of what it is rated for", rate));
        let always = self.count >= SAME_RATE_COUNT && self.least > 0.0 && self.most <= SAME_RATE * self.least;
        (always && self.median <= WELL_UNDER * can).then(|| {
            let [least, most] = [self.least, self.most].map(|rate| Unit::BytesPerSecond.show(rate));
            let rates = if least == most { least } else { format!("{least} to {most}") };
            format!(" It stops at {rates}, {} {name}.", Unit::Ratio.show(self.median / can))
        })
    }
}

fn finding(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    device: &DeviceView,
    runs: &[Range<usize>],
    (best_bytes, best_ops): (f64, f64),
    (jumped, fell): (Option<Contrast>, Option<Contrast>),
    bytes: &Lane,
) -> Finding {
    let whole = runs[0].start..runs[runs.len() - 1].end;
    let mut finding =
        draft("device-below-rating", "standstill", format!("host.disk@{}", device.dev), scene.grid.span(&whole));
    let felt = jumped.is_some() || fell.is_some();
    finding.severity = if felt { Severity::Critical } else { Severity::Warning };
    finding.confidence = if felt && runs.len() >= HABIT { Confidence::High } else { Confidence::Medium };
    let inside = flags_of(runs, scene.grid.count);
    let stood_s = inside.iter().filter(|flag| **flag).count() as f64;
    let meanwhile = contrast(bytes, &inside).map(|rate| rate.inside);
    finding.summary = format!(
        "{} stood still {} with requests in it ({} in all, {} meanwhile), though it does {} at its best: neither a limit nor \
         its own rating explains that.",
        device.name,
        if runs.len() == 1 { "once".to_owned() } else { format!("{} times", runs.len()) },
        Unit::Seconds.show(stood_s),
        meanwhile.map_or("nearly nothing".to_owned(), |rate| Unit::BytesPerSecond.show(rate)),
        Unit::BytesPerSecond.show(best_bytes),
    );
    let [_, declared, _] = crate::caps::ratings(scene.window, device);
    let before = Before::of(bytes, runs);
    finding.summary.push_str(&before.as_ref().and_then(|rate| rate.says(best_bytes, declared)).unwrap_or_default());
    if let Some(jumped) = jumped {
        let (slow, usual) = (Unit::Milliseconds.show(jumped.inside), Unit::Milliseconds.show(jumped.outside));
        finding.summary.push_str(&format!(" A write took {slow} instead of {usual}."));
    }
    let mut figures = Figures::default();
    figures.add("standstills_count", Some(runs.len() as f64), Unit::Count, "times it stood still");
    figures.add("stood_s", Some(stood_s), Unit::Seconds, "seconds of it in this window");
    figures.add("meanwhile_bytes_per_s", meanwhile, Unit::BytesPerSecond, "read and written meanwhile");
    figures.add("best_bytes_per_s", Some(best_bytes), Unit::BytesPerSecond, "read and written at its best");
    figures.add("best_ops_per_s", Some(best_ops), Unit::PerSecond, "requests at its best");
    figures.add("declared_bytes_per_s", declared, Unit::BytesPerSecond, "what it is rated for");
    let mut just_before = |name: &str, value: fn(&Before) -> f64, label: &str| {
        figures.add(name, before.as_ref().map(value), Unit::BytesPerSecond, label);
    };
    just_before("before_bytes_per_s", |rate| rate.median, "read and written just before it stood still");
    just_before("before_least_bytes_per_s", |rate| rate.least, "the same, at least");
    just_before("before_most_bytes_per_s", |rate| rate.most, "the same, at most");
    let depth = contrast(&device.in_flight, &inside).map(|depth| depth.inside);
    figures.add("in_flight_count", depth, Unit::Count, "requests in it meanwhile");
    figures.add("write_ms", jumped.map(|l| l.inside), Unit::Milliseconds, "latency of a write meanwhile");
    figures.add("write_otherwise_ms", jumped.map(|l| l.outside), Unit::Milliseconds, "latency of a write otherwise");
    finding.evidence = figures.list();
    let limit = "a ceiling keeps a steady rate; here the rate fell to nearly nothing and came back".to_owned();
    finding.ruled_out.push(RuledOut { cause: "io-capped".to_owned(), because: limit });
    finding.victims = vec![format!("wt.journal@{}", engine.name), format!("mongo.writes@{}", engine.name)];
    finding
}
