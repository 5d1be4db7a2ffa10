//! shard-unlike: one shard of a cluster answers far more slowly than its siblings, or is given far more of the work.
//!
//! Each second of a shard is compared with the median of the others of that second: a cluster that slows down as a whole is not
//! unlike itself. What is a shard, and which figures it has, is in [`shards`](super::shards).

use super::draft::draft;
use super::shards::{COLUMNS, Column, Shard, shards};
use super::wt_evidence::engines;
use crate::figures::Figures;
use crate::grid::{Lane, episodes, longest, median};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, RuledOut, Severity, Unit};
use std::ops::Range;

/// Siblings that there must be: of two shards that differ, neither is the usual one.
const SIBLINGS: usize = 2;
/// A shard is slower from so many times the siblings' median on, if also by so many milliseconds.
const SLOWER: f64 = 3.0;
const SLOWER_MS: f64 = 5.0;
/// It has more to do from so many times the siblings' operations on, and by so many a second.
const BUSIER: f64 = 2.0;
const BUSIER_PER_S: f64 = 100.0;
/// Up to so many times the siblings' operations are no more than theirs.
const NO_MORE: f64 = 1.2;
/// Seconds it must last (more where nobody feels it), and seconds of another mind that do not end it.
const LEAST_S: usize = 30;
const UNFELT_S: usize = 60;
const BRIDGE_S: usize = 10;

/// The findings of a window: at most one a shard.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let engines = engines(scene);
    let shards = shards(scene, &engines);
    if shards.len() <= SIBLINGS {
        return Vec::new();
    }
    (0..shards.len()).filter_map(|own| of_shard(scene, &shards, own)).collect()
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
        let Column { name, label, unit, .. } = row.column;
        figures.add(&format!("own_{name}"), row.own, *unit, &format!("{label} of this shard"));
        figures.add(&format!("siblings_{name}"), row.siblings, *unit, &format!("{label} of its siblings"));
    }
    figures.add("unlike_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.victims = vec![format!("mongo.writes@{}", shard.engine.name)];
    if cause == "slower" && !given_more(&rows) {
        let because = "it was given no more operations than its siblings".to_owned();
        finding.ruled_out.push(RuledOut { cause: "busier-and-slower".to_owned(), because });
    }
    Some(finding)
}

/// Whether it had more to do than its siblings, though not by much.
fn given_more(rows: &[Row]) -> bool {
    let row = rows.iter().find(|row| row.column.name == "operations_per_s");
    row.and_then(|row| row.own.zip(row.siblings)).is_none_or(|(own, siblings)| own > NO_MORE * siblings)
}

/// One figure of the shard beside that of its siblings, over the stretch.
struct Row {
    column: &'static Column,
    own: Option<f64>,
    /// The median of theirs.
    siblings: Option<f64>,
}

/// Each shard's own queues side by side.
fn rows(scene: &Scene<'_>, shards: &[Shard<'_>], own: usize, range: &Range<usize>) -> Vec<Row> {
    let row = |column: &'static Column| {
        let mean = |shard: &Shard<'_>| column.of(scene, shard).mean(range);
        let others = shards.iter().enumerate().filter(|(place, _)| *place != own);
        let siblings = median(others.filter_map(|(_, shard)| mean(shard)).collect());
        Row { column, own: mean(&shards[own]), siblings }
    };
    COLUMNS.iter().map(row).collect()
}

fn sentence(shards: &[Shard<'_>], own: usize, cause: &str, rows: &[Row]) -> String {
    let shown = |name: &str| {
        let row = rows.iter().find(|row| row.column.name == name);
        let show = |value: Option<f64>| {
            value.zip(row).map_or_else(|| "an unknown number".to_owned(), |(value, row)| row.column.unit.show(value))
        };
        (show(row.and_then(|row| row.own)), show(row.and_then(|row| row.siblings)))
    };
    let (ms, operations) = (shown("ms"), shown("operations_per_s"));
    let names: Vec<&str> = shards.iter().enumerate().filter(|(place, _)| *place != own).map(|(_, s)| s.set).collect();
    let (set, server, siblings) = (shards[own].set, &shards[own].engine.name, names.join(", "));
    match cause {
        "slower" => format!(
            "Shard {set} ({server}) took {} for an operation where its siblings ({siblings}) took {}, {} of them ({} against {}). \
             What holds it is its own: look at the findings and figures of this server.",
            ms.0,
            ms.1,
            if given_more(rows) { "and was given somewhat more" } else { "though it was given no more" },
            operations.0,
            operations.1
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
