//! shard-unlike: one shard of a cluster answers far more slowly than its siblings, or is given far more of the work.
//!
//! Shards are told by their servers' own configuration (`sharding.clusterRole`, the replica set's name), and only primaries are
//! compared, each second with the median of the others of that second: a cluster that slows down as a whole is not unlike itself.

use super::draft::draft;
use super::wt_evidence::{Engine, engines, gauge, rate};
use crate::figures::Figures;
use crate::grid::{Lane, episodes, longest, median};
use crate::remedy::mongod::replica_set;
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, RuledOut, Severity, Target, Unit, catalogue as cat};
use std::ops::Range;

/// Siblings that there must be: of two shards that differ, neither is the usual one.
const SIBLINGS: usize = 2;
/// A shard is slower from so many times the siblings' median on, if also by so many milliseconds.
const SLOWER: f64 = 3.0;
const SLOWER_MS: f64 = 5.0;
/// It has more to do from so many times the siblings' operations on, and by so many a second.
const BUSIER: f64 = 2.0;
const BUSIER_PER_S: f64 = 100.0;
/// Operations a second below which their mean latency is an anecdote.
const FEW: f64 = 5.0;
/// Seconds it must last (more where nobody feels it), and seconds of another mind that do not end it.
const LEAST_S: usize = 30;
const UNFELT_S: usize = 60;
const BRIDGE_S: usize = 10;

/// A shard, by the member of it that is primary.
struct Shard<'a> {
    set: &'a str,
    engine: &'a Engine<'a>,
    /// Reads and writes a second, and their mean latency, while it is primary.
    operations: Lane,
    ms: Lane,
}

/// The findings of a window: at most one a shard.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let engines = engines(scene);
    let shards = shards(scene, &engines);
    if shards.len() <= SIBLINGS {
        return Vec::new();
    }
    (0..shards.len()).filter_map(|own| of_shard(scene, &shards, own)).collect()
}

/// A shard's replica set, where a server is configured as a shard's.
fn set_of(target: &Target) -> Option<&str> {
    let setting = |name: &str| target.settings.get(name).map(String::as_str);
    setting("sharding.clusterRole").filter(|role| *role == "shardsvr")?;
    replica_set(target)?.split('/').next()
}

/// Each shard once: by the member that is primary for most of the window.
fn shards<'a>(scene: &'a Scene<'_>, engines: &'a [Engine<'a>]) -> Vec<Shard<'a>> {
    let mut found: Vec<(Shard<'a>, usize)> = Vec::new();
    for engine in engines {
        let target = scene.window.meta.targets.iter().find(|target| target.name == engine.name);
        let Some(set) = target.and_then(set_of) else { continue };
        let primary = gauge(scene, &cat::MONGO_STATE, &engine.name, None);
        let seconds = primary.flags(|state| state == 1.0).iter().filter(|flag| **flag).count();
        if seconds < LEAST_S {
            continue;
        }
        let shard = shard(scene, set, engine, &primary);
        match found.iter_mut().find(|(other, _)| other.set == set) {
            Some(known) if known.1 < seconds => *known = (shard, seconds),
            Some(_) => {}
            None => found.push((shard, seconds)),
        }
    }
    found.into_iter().map(|(shard, _)| shard).collect()
}

fn shard<'a>(scene: &Scene<'_>, set: &'a str, engine: &'a Engine<'a>, state: &Lane) -> Shard<'a> {
    // Seconds in which another member was primary are no reading of the shard.
    let summed = |def| {
        let of = |op| rate(scene, def, &engine.name, Some(op));
        let all = of("reads").with(&of("writes"), |reads, writes| reads + writes);
        Lane(all.0.iter().zip(&state.0).map(|(value, state)| value.filter(|_| *state == Some(1.0))).collect())
    };
    let operations = summed(&cat::MONGO_OPS).smooth(2);
    let latency_us = summed(&cat::MONGO_LATENCY).smooth(2);
    let ms = latency_us.with(&operations.at_least(FEW), |us, operations| us / operations / 1e3);
    Shard { set, engine, operations, ms }
}

/// The median of the others, second by second, where enough of them are known.
fn siblings(shards: &[Shard<'_>], own: usize, lane: impl for<'s> Fn(&'s Shard<'_>) -> &'s Lane) -> Lane {
    let count = shards.first().map_or(0, |shard| lane(shard).0.len());
    let others = || shards.iter().enumerate().filter(|(place, _)| *place != own).map(|(_, shard)| shard);
    let at = |second| {
        let values: Vec<f64> = others().filter_map(|shard| lane(shard).get(second)).collect();
        if values.len() < SIBLINGS { None } else { median(values) }
    };
    Lane((0..count).map(at).collect())
}

/// Seconds in which one lane stands so many times, and by so much, over another.
fn above(own: &Lane, others: &Lane, times: f64, by: f64) -> Vec<bool> {
    let over = own.with(others, |own, others| if own >= times * others && own >= others + by { 1.0 } else { 0.0 });
    over.flags(|over| over > 0.0)
}

fn of_shard(scene: &Scene<'_>, shards: &[Shard<'_>], own: usize) -> Option<Finding> {
    let shard = &shards[own];
    let (others_ms, others_per_s) = (siblings(shards, own, |s| &s.ms), siblings(shards, own, |s| &s.operations));
    let slower = above(&shard.ms, &others_ms, SLOWER, SLOWER_MS);
    let busier = above(&shard.operations, &others_per_s, BUSIER, BUSIER_PER_S);
    let felt = longest(&episodes(&slower, LEAST_S, BRIDGE_S));
    let (range, seconds) = match &felt {
        Some(found) => found.clone(),
        None => longest(&episodes(&busier, UNFELT_S, BRIDGE_S))?,
    };
    let more = busier[range.clone()].iter().filter(|flag| **flag).count() * 2 >= range.len();
    let cause = match (felt.is_some(), more) {
        (true, true) => "busier-and-slower",
        (true, false) => "slower",
        (false, _) => "busier",
    };
    let queue = format!("mongo.clients@{}", shard.engine.name);
    let mut finding = draft("shard-unlike", cause, queue, scene.grid.span(&range));
    finding.severity = if felt.is_some() { Severity::Warning } else { Severity::Info };
    finding.confidence = Confidence::High;
    let rows = rows(scene, shards, own, &range);
    finding.summary = sentence(shards, own, cause, &rows);
    let mut figures = Figures::default();
    for row in &rows {
        figures.add(&format!("own_{}", row.name), row.own, row.unit, &format!("{} of this shard", row.label));
        figures.add(
            &format!("siblings_{}", row.name),
            row.siblings,
            row.unit,
            &format!("{} of its siblings", row.label),
        );
    }
    figures.add("unlike_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.writes@{}", shard.engine.name)];
    if cause == "slower" {
        let because = "it was given no more operations than its siblings".to_owned();
        finding.ruled_out.push(RuledOut { cause: "busier-and-slower".to_owned(), because });
    }
    Some(finding)
}

/// One figure of the shard beside that of its siblings, over the stretch.
struct Row {
    name: &'static str,
    label: &'static str,
    unit: Unit,
    own: Option<f64>,
    /// The median of theirs.
    siblings: Option<f64>,
}

/// Each shard's own queues side by side.
fn rows(scene: &Scene<'_>, shards: &[Shard<'_>], own: usize, range: &Range<usize>) -> Vec<Row> {
    let row = |name, label, unit, lane: &dyn Fn(&Shard<'_>) -> Lane| {
        let mean = |shard: &Shard<'_>| lane(shard).mean(range);
        let others = shards.iter().enumerate().filter(|(place, _)| *place != own);
        let siblings = median(others.filter_map(|(_, shard)| mean(shard)).collect());
        Row { name, label, unit, own: mean(&shards[own]), siblings }
    };
    let line = |shard: &Shard<'_>| {
        let read = |def| gauge(scene, def, &shard.engine.name, Some("write"));
        read(&cat::MONGO_TICKETS_QUEUED).or(&read(&cat::MONGO_LOCK_QUEUE))
    };
    let busy =
        |shard: &Shard<'_>| shard.engine.device.map_or_else(|| scene.grid.unknown(), |device| device.busy.clone());
    vec![
        row("ms", "mean time of an operation", Unit::Milliseconds, &|shard| shard.ms.clone()),
        row("operations_per_s", "operations", Unit::PerSecond, &|shard| shard.operations.clone()),
        row("dirty_ratio", "dirty share of the cache", Unit::Ratio, &|shard| shard.engine.dirty_share()),
        row("cache_waiting_count", "threads waiting for the cache", Unit::Count, &|shard| shard.engine.waiting.clone()),
        row("in_line_count", "writes in line for a ticket", Unit::Count, &line),
        row("disk_busy_ratio", "share of time the disk was busy", Unit::Ratio, &busy),
    ]
}

fn sentence(shards: &[Shard<'_>], own: usize, cause: &str, rows: &[Row]) -> String {
    let shown = |name: &str| {
        let row = rows.iter().find(|row| row.name == name);
        let show = |value: Option<f64>| {
            value.zip(row).map_or_else(|| "an unknown number".to_owned(), |(value, row)| row.unit.show(value))
        };
        (show(row.and_then(|row| row.own)), show(row.and_then(|row| row.siblings)))
    };
    let (ms, operations) = (shown("ms"), shown("operations_per_s"));
    let names: Vec<&str> = shards.iter().enumerate().filter(|(place, _)| *place != own).map(|(_, s)| s.set).collect();
    let (set, server, siblings) = (shards[own].set, &shards[own].engine.name, names.join(", "));
    match cause {
        "slower" => format!(
            "Shard {set} ({server}) took {} for an operation where its siblings ({siblings}) took {}, though it was given no more \
             of them ({} against {}). What holds it is its own: look at the findings and figures of this server.",
            ms.0, ms.1, operations.0, operations.1
        ),
        "busier-and-slower" => format!(
            "Shard {set} ({server}) was given {} operations where its siblings ({siblings}) were given {}, and took {} for one \
             instead of {}: the load is not spread.",
            operations.0, operations.1, ms.0, ms.1
        ),
        _ => format!(
            "Shard {set} ({server}) was given {} operations where its siblings ({siblings}) were given {}. It still took them \
             as fast ({} for one; siblings {}).",
            operations.0, operations.1, ms.0, ms.1
        ),
    }
}
