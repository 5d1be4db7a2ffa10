//! What stood up together: in the seconds in which a server's writes were slow, which of its other figures (dirty pages, threads
//! that wait for the cache, checkpoints, disk, lag, slow operations of the log) rose with them, and which did not. All lie on one
//! axis; this says in words what a reader would see there.

use super::flow_control::{majority_lag, slowest_lag};
use super::wt_evidence::{Contrast, Engine, contrast, engines, rate};
use crate::grid::{Lane, median};
use crate::scene::Scene;
use backwater_model::{Figure, Finding, Unit, catalogue as cat};

/// A write is slow from so many times the median of the window on, and so many milliseconds above it.
const SLOW: f64 = 3.0;
const SLOW_MS: f64 = 5.0;
/// Seconds of slow writes, at least.
const LEAST_S: usize = 5;
/// Writes a second below which their mean latency is an anecdote.
const FEW_WRITES: f64 = 5.0;
/// A figure rises with them from so many times what it is otherwise on, if it also rises by its own least.
const RISES: f64 = 1.5;

/// Something that may rise.
struct Other {
    name: &'static str,
    label: &'static str,
    unit: Unit,
    lane: Lane,
    /// The least difference that is one.
    least: f64,
}

/// Adds it to the worst finding about each server, or the device of its data, that speaks of such seconds.
pub(super) fn tell(scene: &Scene<'_>, findings: &mut [Finding]) {
    for engine in engines(scene) {
        let Some(slow) = slow_seconds(&engine) else { continue };
        let Some(writes) = engine.latency(&slow) else { continue };
        let dev = engine.device.map(|device| device.dev.as_str());
        let of_it = |place: &str| place == engine.name || Some(place) == dev;
        let speaks = |finding: &&mut Finding| {
            finding.queue.split_once('@').is_some_and(|(_, place)| of_it(place)) && covers(scene, finding, &slow)
        };
        let worst = findings.iter_mut().filter(speaks).reduce(|a, b| if b.severity > a.severity { b } else { a });
        if let Some(finding) = worst {
            add(finding, writes, &slow, &others(scene, &engine));
        }
    }
}

/// The seconds in which writes were slow; none where there were hardly any.
fn slow_seconds(engine: &Engine<'_>) -> Option<Vec<bool>> {
    let enough = engine.writes.at_least(FEW_WRITES);
    let ms = engine.write_ms.with(&enough, |ms, _| ms);
    let usual = median(ms.values(&(0..ms.0.len())))?;
    let slow = ms.flags(|ms| ms >= SLOW * usual && ms >= usual + SLOW_MS);
    (slow.iter().filter(|flag| **flag).count() >= LEAST_S).then_some(slow)
}

fn covers(scene: &Scene<'_>, finding: &Finding, slow: &[bool]) -> bool {
    let within = |second: usize| finding.from <= scene.grid.start(second) && scene.grid.start(second) < finding.to;
    slow.iter().enumerate().filter(|(second, flag)| **flag && within(*second)).count() >= LEAST_S
}

fn others(scene: &Scene<'_>, engine: &Engine<'_>) -> Vec<Other> {
    let device = |lane: fn(&crate::device::DeviceView) -> &Lane| {
        engine.device.map_or_else(|| scene.grid.unknown(), |device| lane(device).clone())
    };
    let other = |name, label, unit, lane, least| Other { name, label, unit, lane, least };
    vec![
        other("dirty", "dirty share of the cache", Unit::Ratio, engine.dirty_share(), 0.01),
        other("cache_waiting", "threads waiting for the cache", Unit::Count, engine.waiting.clone(), 0.5),
        other("checkpoint", "share of time in checkpoints", Unit::Ratio, engine.checkpoint.clone(), 0.3),
        other("disk_busy", "share of time the disk was busy", Unit::Ratio, device(|device| &device.busy), 0.15),
        other(
            "disk_await",
            "time of a request in the disk",
            Unit::Milliseconds,
            device(|device| &device.await_ms),
            2.0,
        ),
        other("majority_lag", "lag of the majority", Unit::Seconds, majority_lag(scene, engine), 2.0),
        other("slowest_lag", "lag of the slowest member", Unit::Seconds, slowest_lag(scene, engine), 2.0),
        other(
            "slow_ops",
            "slow operations in the log",
            Unit::PerSecond,
            rate(scene, &cat::MONGO_SLOW_OPS, &engine.name, None),
            0.5,
        ),
    ]
}

fn rose(contrast: Contrast, least: f64) -> bool {
    contrast.inside >= RISES * contrast.outside && contrast.inside - contrast.outside >= least
}

fn add(finding: &mut Finding, writes: Contrast, slow: &[bool], others: &[Other]) {
    let (mut up, mut not) = (Vec::new(), Vec::new());
    for other in others {
        let Some(seen) = contrast(&other.lane, slow) else { continue };
        if !rose(seen, other.least) {
            not.push(other.label.to_owned());
            continue;
        }
        up.push(format!(
            "{} ({} instead of {})",
            other.label,
            other.unit.show(seen.inside),
            other.unit.show(seen.outside)
        ));
        let figure = |when: &str, value, label: &str| {
            Figure::new(&format!("{}_{when}_{}", other.name, suffix(other.unit)), value, other.unit, label)
        };
        finding.evidence.push(figure("while_slow", seen.inside, &format!("{}, while writes were slow", other.label)));
        finding.evidence.push(figure("otherwise", seen.outside, &format!("{}, otherwise", other.label)));
    }
    if up.is_empty() && not.is_empty() {
        return;
    }
    let seconds = slow.iter().filter(|flag| **flag).count();
    let list =
        |words: Vec<String>| if words.is_empty() { "nothing that is seen here".to_owned() } else { words.join(", ") };
    finding.summary.push_str(&format!(
        " In the {seconds} s in which writes were slow ({} instead of {}) rose with them: {}.",
        Unit::Milliseconds.show(writes.inside),
        Unit::Milliseconds.show(writes.outside),
        list(up)
    ));
    if !not.is_empty() {
        finding.summary.push_str(&format!(" Not with them: {}.", list(not)));
    }
}

/// What the name of a figure ends in.
fn suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::Ratio => "ratio",
        Unit::Milliseconds => "ms",
        Unit::Seconds => "s",
        Unit::PerSecond => "per_s",
        _ => "count",
    }
}
