//! A lab run for the page: its arms' metrics, the published rows beside ours, its doubts.

use super::document::{ArmView, Lab, Measured, Metric, PublishedPair, PublishedView};
use crate::outcome;
use crate::published::{Published, PublishedRow, published};
use crate::{lag, metric};
use backwater_model::{ArmOutcome, Outcome};

pub(super) fn lab(run: &Outcome) -> Lab {
    let names = run.arms.iter().flat_map(|arm| arm.metrics.keys()).map(String::as_str);
    let metrics = metric::sorted(names).into_iter();
    // A sweep of other sizes has no arm of the published table.
    let has_arm = |table: &&Published| table.rows.iter().any(|row| run.arms.iter().any(|arm| arm.name == row.arm));
    Lab {
        scenario: run.scenario.clone(),
        machine: outcome::machine(&run.machine),
        met: run.expected.met,
        metrics: metrics.map(|name| Metric { name: name.to_owned(), label: metric::label(name) }).collect(),
        arms: run.arms.iter().map(arm).collect(),
        published: published(&run.scenario).filter(has_arm).map(|table| beside(run, table)),
        figures: run.outcome.iter().map(|(name, value)| figure(name, *value)).collect(),
        skipped: run.skipped.clone(),
        doubts: run.doubts.clone(),
    }
}

fn arm(arm: &ArmOutcome) -> ArmView {
    let measured = |(name, value): (&String, &f64)| {
        let text = metric::shown(arm, name)?;
        let spread = arm.spread.get(name).copied().filter(|_| arm.repeats > 1);
        Some((name.clone(), Measured { value: *value, spread, text }))
    };
    let found = match (arm.labels.get("rule").map(String::as_str), arm.labels.get("cause")) {
        // Where the run did not say, what was met is what was expected.
        (None, _) if arm.expected.met => match arm.expected.rule.as_deref() {
            None => "nothing".to_owned(),
            Some("any") => String::new(),
            Some(_) => outcome::expected(arm),
        },
        (None, _) => String::new(),
        (Some("none"), _) => "nothing".to_owned(),
        (Some(rule), None) => rule.to_owned(),
        (Some(rule), Some(cause)) => format!("{rule} ({cause})"),
    };
    ArmView {
        name: arm.name.clone(),
        set: outcome::set(&arm.params),
        repeats: arm.repeats,
        values: arm.metrics.iter().filter_map(measured).collect(),
        expected: outcome::expected(arm),
        found,
        met: arm.expected.met,
    }
}

fn beside(run: &Outcome, table: &'static Published) -> PublishedView {
    let pair = |row: &'static PublishedRow| {
        let ours = run.arms.iter().find(|arm| arm.name == row.arm);
        let set = |arm: &ArmOutcome| {
            let value = |(_, name): &(&str, &str)| match arm.params.get(*name) {
                Some(value) => metric::param(name, value),
                None => "as the host has it".to_owned(),
            };
            table.columns.iter().map(value).collect()
        };
        PublishedPair {
            set: row.set.to_vec(),
            seen: row.seen,
            arm: row.arm,
            our_set: ours.map(set),
            our_seen: ours.map(|arm| lag::seen(arm).unwrap_or_else(|| outcome::seen(arm))),
        }
    };
    PublishedView {
        source: table.source,
        caution: table.caution,
        columns: table.columns.iter().map(|(name, _)| *name).collect(),
        rows: table.rows.iter().map(pair).collect(),
    }
}

/// A figure of the whole run in words: ratios as they are.
fn figure(name: &str, value: f64) -> (String, String) {
    let shown = if name.ends_with("_ratio") { format!("× {value:.2}") } else { metric::show(name, value) };
    (metric::label(name.strip_suffix("_ratio").unwrap_or(name)), shown)
}
