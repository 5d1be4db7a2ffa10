//! What stood up together: in the seconds in which a server's writes were slow, which of its other figures (dirty pages, threads
//! that wait for the cache, checkpoints, disk, lag, slow operations of the log) rose with them, and which did not. All lie on one
//! axis; this says in words what a reader would see there.
//!
//! It is told with the finding that speaks of those seconds. Where there is none it is slow-writes: a note of its own that claims no
//! reason, of one stretch of slow writes beside enough that were not, and only where something rose with them.

use super::draft::draft;
use super::flow_control::{majority_lag, slowest_lag};
use super::wt_evidence::{Contrast, Engine, contrast, engines, means, rate};
use crate::grid::{Lane, episodes, longest, median};
use crate::scene::Scene;
use backwater_model::{Confidence, Figure, Finding, Severity, Unit, catalogue as cat};

/// A write is slow from so many times the median of the window on, and so many milliseconds above it.
const SLOW: f64 = 3.0;
const SLOW_MS: f64 = 5.0;
/// Seconds of slow writes, at least; for a note of its own in one stretch, which so many others do not end, beside so many others.
const LEAST_S: usize = 5;
const BRIDGE_S: usize = 3;
const CALM_S: usize = 60;
/// What is known of less than this share of the slow seconds is not compared with the others.
const KNOWN: f64 = 0.5;
/// Writes a second below which their mean latency is an anecdote.
const FEW_WRITES: f64 = 5.0;
/// A figure rises with them from so many times what it is otherwise on, if it also rises by its own least.
const RISES: f64 = 1.5;

/// It is high in so many times the share of the slow seconds that it is high in of the others.
const SHARE_TIMES: f64 = 2.0;

/// Something that may rise.
struct Other {
    name: &'static str,
    label: &'static str,
    unit: Unit,
    lane: Lane,
    /// The least difference that is one.
    least: f64,
    /// Whether it is there or not, so that how often it is is compared, and not what is usual.
    now_and_then: bool,
}

/// What rose with slow writes, and what did not.
struct Together {
    rose: bool,
    words: String,
    figures: Vec<Figure>,
}

/// Adds it to the worst finding about each server, or the device of its data, that speaks of such seconds. Where none does, it is a
/// note of its own.
pub(super) fn tell(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let engines = engines(scene);
    for engine in &engines {
        let Some(slow) = slow_seconds(engine) else { continue };
        let Some(writes) = engine.latency(&slow) else { continue };
        let Some(seen) = together(writes, &slow, &others(scene, engine)) else { continue };
        let dev = engine.device.map(|device| device.dev.as_str());
        let of_it = |place: &str| place == engine.name || Some(place) == dev;
        let of_another = |place: &str| engines.iter().any(|other| other.name == place && place != engine.name);
        let place = |finding: &Finding| finding.queue.split_once('@').map(|(_, place)| place.to_owned());
        let covering = findings.iter_mut().filter(|finding| covers(scene, finding, &slow));
        let mut covering: Vec<_> =
            covering.filter(|finding| !place(finding).is_some_and(|at| of_another(&at))).collect();
        // A finding of the host or of who else writes may be about them as well: no reason is claimed beside it, and none is missing.
        let alone = covering.is_empty();
        covering.retain(|finding| place(finding).is_some_and(|at| of_it(&at)));
        if let Some(worst) = covering.into_iter().reduce(|a, b| if b.severity > a.severity { b } else { a }) {
            worst.summary.push_str(&seen.words);
            worst.evidence.extend(seen.figures);
        } else if alone && seen.rose {
            findings.extend(note(scene, engine, writes, &slow, seen));
        }
    }
}

/// A note of its own about one stretch of slow writes.
fn note(scene: &Scene<'_>, engine: &Engine<'_>, writes: Contrast, slow: &[bool], seen: Together) -> Option<Finding> {
    let (range, _) = longest(&episodes(slow, LEAST_S, BRIDGE_S))?;
    let enough = engine.writes.at_least(FEW_WRITES).flags(|_| true);
    let calm = slow.iter().zip(enough).filter(|(slow, enough)| !**slow && *enough).count();
    if calm < CALM_S {
        return None;
    }
    let mut finding =
        draft("slow-writes", "coincidence", format!("mongo.writes@{}", engine.name), scene.grid.span(&range));
    finding.severity = Severity::Info;
    finding.confidence = Confidence::Low;
    finding.summary = format!(
        "Writes of {} were slow, and no rule says why; what rose with them need not be the reason.{}",
        engine.name, seen.words
    );
    let figure = |name, value, unit, label| Figure::new(name, value, unit, label);
    finding.evidence = vec![
        figure("write_inside_ms", writes.inside, Unit::Milliseconds, "mean time of a write, while they were slow"),
        figure("write_outside_ms", writes.outside, Unit::Milliseconds, "mean time of a write, otherwise"),
        figure("slow_s", count(slow) as f64, Unit::Seconds, "seconds of slow writes in this window"),
        figure("calm_s", calm as f64, Unit::Seconds, "seconds that they are compared with"),
    ];
    finding.evidence.extend(seen.figures);
    Some(finding)
}

fn count(flags: &[bool]) -> usize {
    flags.iter().filter(|flag| **flag).count()
}

/// The seconds in which writes were slow; none where there were hardly any.
fn slow_seconds(engine: &Engine<'_>) -> Option<Vec<bool>> {
    let enough = engine.writes.at_least(FEW_WRITES);
    let ms = engine.write_ms.with(&enough, |ms, _| ms);
    let usual = median(ms.values(&(0..ms.0.len())))?;
    let slow = ms.flags(|ms| ms >= SLOW * usual && ms >= usual + SLOW_MS);
    (count(&slow) >= LEAST_S).then_some(slow)
}

fn covers(scene: &Scene<'_>, finding: &Finding, slow: &[bool]) -> bool {
    let within = |second: usize| finding.from <= scene.grid.start(second) && scene.grid.start(second) < finding.to;
    slow.iter().enumerate().filter(|(second, flag)| **flag && within(*second)).count() >= LEAST_S
}

fn others(scene: &Scene<'_>, engine: &Engine<'_>) -> Vec<Other> {
    let device = |lane: fn(&crate::device::DeviceView) -> &Lane| {
        engine.device.map_or_else(|| scene.grid.unknown(), |device| lane(device).clone())
    };
    let other = |name, label, unit, lane, least| Other { name, label, unit, lane, least, now_and_then: false };
    let now_and_then = |other: Other| Other { now_and_then: true, ..other };
    vec![
        other("dirty", "dirty share of the cache", Unit::Ratio, engine.dirty_share(), 0.01),
        other("cache_waiting", "threads waiting for the cache", Unit::Count, engine.waiting.clone(), 0.5),
        now_and_then(other("checkpoint", "share of time in checkpoints", Unit::Ratio, engine.checkpoint.clone(), 0.3)),
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
        now_and_then(other(
            "slow_ops",
            "slow operations in the log",
            Unit::PerSecond,
            rate(scene, &cat::MONGO_SLOW_OPS, &engine.name, None),
            0.5,
        )),
    ]
}

fn rose(contrast: Contrast, least: f64) -> bool {
    contrast.inside >= RISES * contrast.outside && contrast.inside - contrast.outside >= least
}

/// Whether what rose on average is high in a larger share of the slow seconds than of the others: what is high now and then in both
/// rises with nothing.
fn stands_out(other: &Other, slow: &[bool], seen: Contrast) -> bool {
    let high = (RISES * seen.outside).max(seen.outside + other.least);
    let share = means(&other.lane.map(|value| f64::from(u8::from(value >= high))), slow);
    other.now_and_then || share.is_some_and(|share| share.inside >= SHARE_TIMES * share.outside)
}

/// Whether enough of the slow seconds is known of something.
fn known(lane: &Lane, slow: &[bool]) -> bool {
    let seen = lane.0.iter().zip(slow).filter(|(value, flag)| **flag && value.is_some()).count();
    seen as f64 >= KNOWN * count(slow) as f64
}

/// What is told of these seconds.
fn together(writes: Contrast, slow: &[bool], others: &[Other]) -> Option<Together> {
    let (mut up, mut not, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    for other in others.iter().filter(|other| known(&other.lane, slow)) {
        let compared = if other.now_and_then { means } else { contrast };
        let Some(seen) = compared(&other.lane, slow) else { continue };
        if !rose(seen, other.least) || !stands_out(other, slow, seen) {
            not.push(other.label.to_owned());
            continue;
        }
        let shown = [seen.inside, seen.outside].map(|value| other.unit.show(value));
        up.push(format!("{} ({} instead of {})", other.label, shown[0], shown[1]));
        let figure = |when: &str, value, label: &str| {
            Figure::new(&format!("{}_{when}_{}", other.name, suffix(other.unit)), value, other.unit, label)
        };
        figures.push(figure("while_slow", seen.inside, &format!("{}, while writes were slow", other.label)));
        figures.push(figure("otherwise", seen.outside, &format!("{}, otherwise", other.label)));
    }
    // Of what is not known nothing is told.
    if up.is_empty() && not.is_empty() {
        return None;
    }
    let rose = !up.is_empty();
    let list =
        |words: Vec<String>| if words.is_empty() { "nothing that is seen here".to_owned() } else { words.join(", ") };
    let mut words = format!(
        " In the {} s in which writes were slow ({} instead of {}) rose with them: {}.",
        count(slow),
        Unit::Milliseconds.show(writes.inside),
        Unit::Milliseconds.show(writes.outside),
        list(up)
    );
    if !not.is_empty() {
        words.push_str(&format!(" Not with them: {}.", list(not)));
    }
    Some(Together { rose, words, figures })
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
