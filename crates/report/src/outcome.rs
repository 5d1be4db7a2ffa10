//! A lab run for people: the published rows beside ours, every arm's metrics, predictions beside measurements, what was
//! expected, the noise floor, the machine, the doubts.

use crate::Style;
use crate::advised;
use crate::commits;
use crate::lag;
use crate::metric::{self, PREDICTED};
use crate::overload;
use crate::page::Page;
use crate::published::{Published, PublishedRow, published};
use crate::relief;
use crate::style::Tone;
use crate::table::{Cell, cells};
use crate::text::{clean, width};
use backwater_model::{ArmOutcome, Bytes, Foretold, HostFacts, Outcome, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// The whole report of a run, beside the scenario's published table where there is one.
pub fn outcome(outcome: &Outcome, style: &Style) -> String {
    // A sweep of other sizes has no arm of the published table.
    let has_arm = |table: &&Published| table.rows.iter().any(|row| outcome.arms.iter().any(|arm| arm.name == row.arm));
    outcome_beside(outcome, published(&outcome.scenario).filter(has_arm), style)
}

/// The whole report of a run beside this table.
pub fn outcome_beside(outcome: &Outcome, published: Option<&Published>, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&format!("Scenario {}", outcome.scenario), 0);
    page.paragraph(Tone::Faint, &format!("Machine: {}", machine(&outcome.machine)), 0);
    let engines = outcome.arms.iter().filter_map(|arm| arm.labels.get("engine")).map(String::as_str);
    let engines: Vec<&str> = engines.collect::<BTreeSet<_>>().into_iter().collect();
    if !engines.is_empty() {
        page.paragraph(Tone::Faint, &format!("Engine: {}", engines.join("; ")), 0);
    }
    if let Some(published) = published {
        page.gap();
        page.ready(&beside(outcome, published, style), 0);
    }
    if commits::is_of_commits(outcome) {
        page.gap();
        page.ready(&commits::commits(outcome, style), 0);
    }
    // Where commits are what is varied, a standby is one of the things that they wait for.
    if lag::is_of_lag(outcome) && !commits::is_of_commits(outcome) {
        page.gap();
        page.ready(&lag::lag(outcome, style), 0);
    }
    if overload::is_of_overload(outcome) {
        page.gap();
        page.ready(&overload::overload(outcome, style), 0);
    }
    metrics(&mut page, outcome, style);
    predictions(&mut page, outcome, style);
    figures(&mut page, outcome, style);
    relief::told(&mut page, outcome, style);
    advised::told(&mut page, outcome, style);
    expectations(&mut page, outcome, style);
    skipped(&mut page, outcome);
    doubts(&mut page, outcome);
    page.finish()
}

/// The rows of the published stampede table, each with ours beneath it.
pub fn stampede_table(outcome: &Outcome, style: &Style) -> String {
    published("stampede").map(|table| beside(outcome, table, style)).unwrap_or_default()
}

pub(crate) fn machine(machine: &HostFacts) -> String {
    let known = |value: &Option<String>, before: &str| value.as_ref().map(|value| format!("{before}{value}"));
    let parts = [
        known(&machine.kernel, "kernel "),
        machine.cpus.map(|cpus| format!("{cpus} CPUs")),
        machine.memory_bytes.map(|bytes| format!("{} of memory", Bytes(bytes))),
        known(&machine.congestion_control, "congestion control "),
        known(&machine.cgroup_version, "cgroups "),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn beside(outcome: &Outcome, table: &Published, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading("Published, and here", 0);
    page.paragraph(Tone::Faint, &format!("Published: {}", table.source), 0);
    let below = "Beneath each published row stands the arm that reproduces it here.";
    page.paragraph(Tone::Faint, &format!("{below} {}", table.caution), 0);
    page.gap();
    let mut headers = vec!["row"];
    headers.extend(table.columns.iter().map(|(name, _)| *name));
    headers.push("seen");
    let mut rows = Vec::new();
    for (place, row) in table.rows.iter().enumerate() {
        rows.push(published_row(place + 1, row));
        rows.push(our_row(outcome, table, row));
    }
    page.ready(&cells(&headers, &rows, style), 0);
    page.finish()
}

fn published_row(number: usize, row: &PublishedRow) -> Vec<Cell> {
    let faint = |text: &str| Cell::new(text, Tone::Faint);
    let first = faint(&format!("{number}. published"));
    [first].into_iter().chain(row.set.iter().map(|text| faint(text))).chain([faint(row.seen)]).collect()
}

fn our_row(outcome: &Outcome, table: &Published, row: &PublishedRow) -> Vec<Cell> {
    let first = Cell::new(row.arm, Tone::Strong);
    let Some(arm) = outcome.arms.iter().find(|arm| arm.name == row.arm) else {
        let nothing = table.columns.iter().map(|_| Cell::from("–"));
        return [first].into_iter().chain(nothing).chain([Cell::new("not run this time", Tone::Faint)]).collect();
    };
    let set = table.columns.iter().map(|(_, name)| match arm.params.get(*name) {
        Some(value) => Cell::from(metric::param(name, value)),
        None => Cell::from("as the host has it"),
    });
    [first].into_iter().chain(set).chain([Cell::from(seen(arm))]).collect()
}

/// An arm's metrics in the words of the published table.
pub(crate) fn seen(arm: &ArmOutcome) -> String {
    if let Some(seen) = lag::seen(arm) {
        return seen;
    }
    if let Some(text) = overload::seen(arm) {
        return text;
    }
    if let Some(text) = commits::seen(arm) {
        return text;
    }
    if let Some(text) = engine_seen(arm) {
        return text;
    }
    let value = |name: &str| arm.metrics.get(name).map(|value| metric::unit(name).show(*value));
    let say = |before: &str, name: &str, after: &str| value(name).map(|value| format!("{before}{value}{after}"));
    let peak = say(", peak ", "tps_peak", "").unwrap_or_default();
    let cliff = match (value("time_to_cliff_s"), value("tps_after")) {
        (Some(at), Some(after)) => Some(format!("falls after {at} to {after}")),
        (Some(at), None) => Some(format!("falls after {at}")),
        // Only an arm whose throughput was watched can be said to have no cliff.
        (None, _) => arm.metrics.contains_key("tps_peak").then(|| "no cliff".to_owned()),
    };
    let synced = arm.metrics.get("checkpoint_sync_max_s").is_some_and(|seconds| *seconds > 0.0);
    let parts = [
        say("mean ", "tps_mean", &format!(" TPS{peak}")),
        cliff,
        say("dirty up to ", "dirty_peak_bytes", ""),
        say("drain ", "drain_s", ""),
        say("checkpoint syncs up to ", "checkpoint_sync_max_s", "").filter(|_| synced),
        say("a checkpoint still running after ", "checkpoint_unfinished_s", ""),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What an arm on the WiredTiger engine came to; none for another.
fn engine_seen(arm: &ArmOutcome) -> Option<String> {
    let value = |name: &str| arm.metrics.get(name).map(|value| metric::unit(name).show(*value));
    let varied =
        arm.metrics.get("disk_cv").map(|cv| format!("; disk varies by {:.0} %", cv * 100.0)).unwrap_or_default();
    Some(format!(
        "mean latency {}, p99 {}, longest {}; stalled for {}{varied}",
        value("latency_mean_ms")?,
        value("latency_p99_ms")?,
        value("latency_max_ms")?,
        value("stall_s")?
    ))
}

/// Every metric of every arm, in as many tables as the width asks for.
fn metrics(page: &mut Page<'_>, outcome: &Outcome, style: &Style) {
    let names = outcome.arms.iter().flat_map(|arm| arm.metrics.keys()).map(String::as_str);
    // What stands in a table of its own is not told twice.
    let told = |name: &str| {
        name.starts_with(PREDICTED)
            || name == commits::SESSION_SAMPLES
            || (lag::is_of_lag(outcome) && lag::tells(name))
            || (overload::is_of_overload(outcome) && overload::tells(name))
    };
    let names: Vec<&str> = metric::sorted(names).into_iter().filter(|name| !told(name)).collect();
    if names.is_empty() {
        return;
    }
    page.gap();
    page.heading(&format!("Arms: medians (least – most) of {}", repeats(outcome)), 0);
    for names in fitting(outcome, &names, style) {
        let labels: Vec<String> = names.iter().map(|name| metric::label(name)).collect();
        let headers: Vec<&str> = ["arm"].into_iter().chain(labels.iter().map(String::as_str)).collect();
        let rows: Vec<Vec<Cell>> = outcome.arms.iter().map(|arm| metric_row(arm, &names)).collect();
        page.gap();
        page.ready(&cells(&headers, &rows, style), 0);
    }
}

/// `3 repeats each`, or how often each arm ran.
fn repeats(outcome: &Outcome) -> String {
    let first = outcome.arms.first().map_or(0, |arm| arm.repeats);
    if outcome.arms.iter().all(|arm| arm.repeats == first) {
        return if first == 1 { "1 repeat: no spread is known".to_owned() } else { format!("{first} repeats each") };
    }
    let list: Vec<String> = outcome.arms.iter().map(|arm| format!("{} {}", arm.name, arm.repeats)).collect();
    format!("these repeats: {}", list.join(", "))
}

fn metric_row(arm: &ArmOutcome, names: &[&str]) -> Vec<Cell> {
    let first = [Cell::new(arm.name.as_str(), Tone::Strong)];
    let rest = names.iter().map(|name| Cell::from(metric::shown(arm, name).unwrap_or_else(|| "–".to_owned())));
    first.into_iter().chain(rest).collect()
}

/// Metrics in groups that each make a table of the style's width (or have only one metric).
fn fitting<'a>(outcome: &Outcome, names: &[&'a str], style: &Style) -> Vec<Vec<&'a str>> {
    let arm_columns = outcome.arms.iter().map(|arm| width(&clean(&arm.name, style))).max().unwrap_or(0).max(3);
    let available = style.columns().saturating_sub(arm_columns);
    let mut groups: Vec<(usize, Vec<&str>)> = Vec::new();
    for name in names {
        let values = outcome.arms.iter().filter_map(|arm| metric::shown(arm, name));
        let needed = values.map(|text| width(&clean(&text, style))).chain([12]).max().unwrap_or(0) + 2;
        match groups.last_mut() {
            Some((used, group)) if *used + needed <= available => {
                *used += needed;
                group.push(name);
            }
            _ => groups.push((needed, vec![name])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// What was predicted from the first seconds, beside what then came.
fn predictions(page: &mut Page<'_>, outcome: &Outcome, style: &Style) {
    let mut rows = Vec::new();
    for arm in &outcome.arms {
        for name in metric::sorted(arm.metrics.keys().filter_map(|name| name.strip_prefix(PREDICTED))) {
            let predicted_name = format!("{PREDICTED}{name}");
            let predicted = metric::shown(arm, &predicted_name).unwrap_or_default();
            let (measured, off) = match (arm.metrics.get(name), arm.metrics.get(&predicted_name)) {
                (Some(came), Some(said)) => (metric::shown(arm, name), off_by(name, *came, *said)),
                _ => (None, None),
            };
            rows.push(vec![
                Cell::new(arm.name.as_str(), Tone::Strong),
                Cell::from(metric::label(if name == COMMIT { predicted_name.as_str() } else { name })),
                Cell::from(predicted),
                Cell::from(measured.unwrap_or_else(|| "did not come".to_owned())),
                Cell::from(off.unwrap_or_else(|| "–".to_owned())),
            ]);
        }
    }
    rows.extend(outcome.arms.iter().flat_map(foretold));
    if rows.is_empty() {
        return;
    }
    page.gap();
    page.heading("Predicted beside measured", 0);
    if outcome.arms.iter().any(|arm| arm.metrics.contains_key(&format!("{PREDICTED}{COMMIT}"))) {
        page.paragraph(Tone::Faint, PART_OF_COMMIT, 0);
    }
    page.ready(&cells(&["arm", "what", "predicted", "measured", "off by"], &rows, style), 0);
}

/// The time of a commit by the clients' clocks, and what is predicted of it.
const COMMIT: &str = "commit_latency_ms";
const PART_OF_COMMIT: &str = "Little's law tells how long a commit waits, as far as the processor time of its session leaves room for \
    waiting. Measured is all of a commit: what it computes too, and from a client the way there and back. So a part of it is \
    predicted, told as such; only where that is more than the whole is it off.";

/// How far a prediction was off, or what part of the whole it is of.
fn off_by(name: &str, came: f64, said: f64) -> Option<String> {
    if name == COMMIT && came > 0.0 && said <= came {
        return Some(format!("{} of it", Unit::Ratio.show(said / came)));
    }
    metric::change(came, said)
}

/// What was foretold of an arm by advice for others.
fn foretold(arm: &ArmOutcome) -> Vec<Vec<Cell>> {
    let row = |told: &Foretold| {
        let Foretold { from, remedy, metric, predicted, at_most, measured } = told;
        let kept = *at_most && measured <= predicted;
        let off = if kept { "kept".to_owned() } else { metric::change(*measured, *predicted).unwrap_or_default() };
        let shown = metric::show(metric, *predicted);
        vec![
            Cell::new(arm.name.as_str(), Tone::Strong),
            Cell::from(format!("{}, by the advice for {from}: {remedy}", metric::label(metric))),
            Cell::from(if *at_most { format!("at most {shown}") } else { shown }),
            Cell::from(metric::show(metric, *measured)),
            Cell::from(off),
        ]
    };
    arm.foretold.iter().map(row).collect()
}

/// Figures of the whole run. A ratio of a metric between two arms is `KIND_METRIC_ratio`; the noise floor comes first.
fn figures(page: &mut Page<'_>, outcome: &Outcome, style: &Style) {
    if outcome.outcome.is_empty() {
        return;
    }
    let (floor, others): (Vec<_>, Vec<_>) =
        outcome.outcome.iter().partition(|(name, _)| name.starts_with("noise_floor"));
    page.gap();
    page.heading("Between arms", 0);
    if floor.is_empty() {
        page.paragraph(
            Tone::Faint,
            "No arm was run twice as A and A, so how much the figures vary by themselves is not known.",
            0,
        );
    } else {
        page.paragraph(Tone::Faint, "The noise floor is one arm against itself: smaller differences mean nothing.", 0);
    }
    // What the table of commits has told in sentences is not told again.
    let told = |name: &str| commits::is_of_commits(outcome) && commits::tells(name);
    let all = || floor.iter().chain(&others).copied().filter(|(name, _)| !told(name));
    let rows: Vec<Vec<Cell>> = all().filter_map(|(name, value)| ratio_row(name, *value)).collect();
    page.ready(&cells(&["", "metric", "ratio", "change"], &rows, style), 0);
    for (name, value) in all().filter(|(name, value)| ratio_row(name, **value).is_none()) {
        page.bullet(&format!("{}: {}", metric::label(name), metric::unit(name).show(*value)), 0);
    }
}

/// A ratio of a known metric between two arms; none for other figures.
fn ratio_row(name: &str, value: f64) -> Option<Vec<Cell>> {
    let (kind, metric) = metric::known().find_map(|metric| {
        let kind = name.strip_suffix("_ratio")?.strip_suffix(metric)?.strip_suffix('_')?;
        // `predicted_drain_s` also ends with `drain_s`.
        (!kind.ends_with(PREDICTED.trim_end_matches('_'))).then_some((kind, metric))
    })?;
    let kind = if kind == "noise_floor" { "A/A noise floor" } else { kind };
    let change = metric::change(1.0, value).unwrap_or_default();
    Some(vec![
        Cell::new(kind, Tone::Strong),
        Cell::from(metric::label(metric)),
        Cell::from(format!("{value:.2}")),
        Cell::from(change),
    ])
}

fn expectations(page: &mut Page<'_>, outcome: &Outcome, style: &Style) {
    page.gap();
    page.heading("Expected diagnosis", 0);
    let rows: Vec<Vec<Cell>> = outcome.arms.iter().map(|arm| expectation(arm, style)).collect();
    page.ready(&cells(&["arm", "set", "expected", "met"], &rows, style), 0);
    page.gap();
    let missed: Vec<&str> = outcome.arms.iter().filter(|arm| !arm.expected.met).map(|arm| arm.name.as_str()).collect();
    if outcome.expected.met {
        page.hanging(Tone::Good, style.sign("✓ ", "OK "), "Every expectation was met.", 0);
    } else {
        page.hanging(
            Tone::Bad,
            style.sign("✗ ", "NOT MET "),
            &format!("Not diagnosed as expected: {}", missed.join(", ")),
            0,
        );
    }
}

/// What an arm was expected to be diagnosed with.
pub(crate) fn expected(arm: &ArmOutcome) -> String {
    match (arm.expected.rule.as_deref(), arm.expected.cause.as_deref()) {
        (None, _) => "no finding".to_owned(),
        (Some("any"), _) => "any finding or none".to_owned(),
        (Some(rule), None) => rule.to_owned(),
        (Some(rule), Some(cause)) => format!("{rule} ({cause})"),
    }
}

fn expectation(arm: &ArmOutcome, style: &Style) -> Vec<Cell> {
    let (met, tone) = if arm.expected.met {
        (style.sign("✓ yes", "yes"), Tone::Good)
    } else {
        (style.sign("✗ no", "NO"), Tone::Bad)
    };
    vec![
        Cell::new(arm.name.as_str(), Tone::Strong),
        Cell::from(set(&arm.params)),
        Cell::from(expected(arm)),
        Cell::new(met, tone),
    ]
}

/// An arm's parameters in one line.
pub(crate) fn set(params: &BTreeMap<String, backwater_model::ParamValue>) -> String {
    let word = |(name, value): (&String, &_)| format!("{} {}", metric::label(name), metric::param(name, value));
    params.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn skipped(page: &mut Page<'_>, outcome: &Outcome) {
    if outcome.skipped.is_empty() {
        return;
    }
    page.gap();
    page.heading("Arms that were skipped here", 0);
    for (arm, why) in &outcome.skipped {
        page.bullet(&format!("{arm}: {why}"), 2);
    }
}

fn doubts(page: &mut Page<'_>, outcome: &Outcome) {
    if outcome.doubts.is_empty() {
        return;
    }
    page.gap();
    page.heading("Doubts about these figures", 0);
    for doubt in &outcome.doubts {
        page.bullet(doubt, 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples_for_tests::{STYLES, stampede_outcome};

    #[test]
    fn a_run_is_shown_beside_what_was_published() {
        for (name, style) in STYLES {
            insta::assert_snapshot!(format!("outcome_{name}"), outcome(&stampede_outcome(), &style));
        }
    }

    #[test]
    fn arms_that_did_not_run_are_said_so() {
        let text = stampede_table(&stampede_outcome(), &Style::plain(120));
        assert_eq!(text.matches("not run this time").count(), 3, "{text}");
        assert_eq!(text.matches(". published ").count(), 5, "{text}");
    }

    #[test]
    fn what_was_foretold_stands_beside_what_came() {
        let told = |at_most: bool, measured: f64| Foretold {
            from: "rows-20".to_owned(),
            remedy: "Commit every 200 rows (now 20)".to_owned(),
            metric: "elapsed_s".to_owned(),
            predicted: 1.0,
            at_most,
            measured,
        };
        let shown = |told: Foretold| {
            let arm = ArmOutcome { name: "rows-2000".to_owned(), foretold: vec![told], ..ArmOutcome::default() };
            outcome(&Outcome { arms: vec![arm], ..Outcome::default() }, &Style::plain(160))
        };
        let kept = shown(told(true, 0.8));
        for part in
            ["Predicted beside measured", "by the advice for rows-20: Commit every 200 rows", "at most 1.00 s", "kept"]
        {
            assert!(kept.contains(part), "{part}: {kept}");
        }
        let broken = shown(told(true, 1.25));
        assert!(broken.contains("-20.0 %") && !broken.contains("kept"), "{broken}");
        assert!(!shown(told(false, 0.8)).contains("at most"));
    }

    #[test]
    fn a_commits_wait_is_told_as_a_part_of_its_time() {
        let shown = |predicted: f64| {
            let metrics = [(COMMIT, 0.376), ("predicted_commit_latency_ms", predicted)];
            let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
            let arm = ArmOutcome { name: "client-20".to_owned(), metrics, ..ArmOutcome::default() };
            outcome(&Outcome { arms: vec![arm], ..Outcome::default() }, &Style::plain(160))
        };
        let part = shown(0.11);
        assert!(part.contains("29.3 % of it") && part.contains("wait of a commit, by Little's law"), "{part}");
        assert!(part.contains("the way there and back") && !part.contains("-70"), "{part}");
        let more = shown(0.47);
        assert!(more.contains("+25") && !more.contains("% of it"), "{more}");
    }

    #[test]
    fn a_scenario_without_a_published_table_is_shown_alone() {
        let mut run = stampede_outcome();
        run.scenario = "something-new".to_owned();
        run.outcome.clear();
        run.expected.met = false;
        run.arms[1].expected.met = false;
        let text = outcome(&run, &Style::plain(80));
        assert!(!text.contains("ublished"), "{text}");
        assert!(text.contains("NOT MET Not diagnosed as expected: small-limit"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_style() {
        for columns in [20, 33, 40, 61, 80, 97, 120, 200] {
            let style = Style::plain(columns);
            let text = outcome(&stampede_outcome(), &style);
            let widest = text.lines().max_by_key(|line| width(line)).unwrap_or_default();
            assert!(width(widest) <= columns, "{columns}: {widest}");
        }
    }
}
