//! What advice foretold, beside what came of it: where one arm of a run is set as was advised for another, the prediction that
//! was made from the other's recording stands beside what was measured.

use super::median;
use backwater_diagnose::commit::{Turns, turns};
use backwater_model::{ArmOutcome, Finding, Foretold, ParamValue, Remedy};
use std::collections::BTreeMap;

const ROWS: &str = "rows_per_commit";

/// What one finding's remedy promised of the time that the same rows take.
struct Promise {
    turns: Turns,
    remedy: String,
    /// Rows a commit that were advised; 0 where others are turned.
    rows: f64,
    /// Of the time they took.
    elapsed_ratio: f64,
    at_most: bool,
}

/// Tells each arm what was foretold of it by the findings in others (each repeat's arm and findings).
pub(crate) fn tell<'a>(arms: &mut [ArmOutcome], found: &[(&'a str, &'a [Finding])]) {
    let mut told: Vec<(usize, Foretold)> = Vec::new();
    for (place, source) in arms.iter().enumerate() {
        // What was run again would say the same again.
        if arms[..place].iter().any(|arm| arm.params == source.params) {
            continue;
        }
        let own = found.iter().filter(|(arm, _)| *arm == source.name).flat_map(|(_, findings)| *findings);
        let mut promises: BTreeMap<Turns, Vec<Promise>> = BTreeMap::new();
        for promise in own.flat_map(promises_of) {
            promises.entry(promise.turns.clone()).or_default().push(promise);
        }
        told.extend(promises.into_values().filter_map(|repeats| foretold(source, repeats, arms)));
    }
    for (place, foretold) in told {
        arms[place].foretold.push(foretold);
    }
}

fn promises_of(finding: &Finding) -> Vec<Promise> {
    let promise = |remedy: &Remedy| {
        let turns = turns(remedy)?;
        let ratio = remedy.predicted.iter().find(|figure| figure.name == "elapsed_ratio")?;
        let rows = if turns == Turns::Rows { finding.figure("knee_rows")? } else { 0.0 };
        let (remedy, at_most) = (remedy.title.clone(), ratio.label.ends_with("at most"));
        Some(Promise { turns, remedy, rows, elapsed_ratio: ratio.value, at_most })
    };
    finding.remedies.iter().filter_map(promise).collect()
}

/// What the repeats of an arm promised of one remedy, held beside the arm that is set so; none where none is.
fn foretold(source: &ArmOutcome, mut repeats: Vec<Promise>, arms: &[ArmOutcome]) -> Option<(usize, Foretold)> {
    let ratios: Vec<f64> = repeats.iter().map(|promise| promise.elapsed_ratio).collect();
    // The largest batch that was advised: all of them promise as much of it.
    repeats.sort_by(|a, b| a.rows.total_cmp(&b.rows));
    let promise = repeats.pop()?;
    let set = |(_, arm): &(usize, &ArmOutcome)| is_set(arm, source, &promise);
    let (place, arm) =
        arms.iter().enumerate().filter(set).min_by(|(_, a), (_, b)| rows_a_commit(a).total_cmp(&rows_a_commit(b)))?;
    let of = |arm: &ArmOutcome, name: &str| arm.metrics.get(name).copied().filter(|value| *value > 0.0);
    // Arms may insert more rows or fewer: time goes with them.
    let before_s = of(source, "elapsed_s")? / of(source, "rows")? * of(arm, "rows")?;
    let told = Foretold {
        from: source.name.clone(),
        remedy: promise.remedy,
        metric: "elapsed_s".to_owned(),
        predicted: before_s * median(&ratios)?,
        at_most: promise.at_most,
        measured: of(arm, "elapsed_s")?,
    };
    Some((place, told))
}

fn rows_a_commit(arm: &ArmOutcome) -> f64 {
    match arm.params.get(ROWS) {
        Some(ParamValue::Number(rows)) => *rows,
        _ => 0.0,
    }
}

/// Whether an arm differs from another in nothing but what was advised.
fn is_set(arm: &ArmOutcome, source: &ArmOutcome, promise: &Promise) -> bool {
    let mut params = source.params.clone();
    match &promise.turns {
        Turns::Rows if rows_a_commit(arm) >= promise.rows => {
            params.insert(ROWS.to_owned(), ParamValue::Number(rows_a_commit(arm)));
        }
        Turns::Rows => return false,
        Turns::SynchronousCommit(value) => {
            params.insert("synchronous_commit".to_owned(), ParamValue::Text(value.clone()));
        }
    }
    params != source.params && params == arm.params
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Activation, Confidence, Figure, Moment, Severity, Unit};

    /// An arm of a million rows with so many of them a commit.
    fn arm(name: &str, rows_per_commit: f64, elapsed_s: f64, set: &[(&str, &str)]) -> ArmOutcome {
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), ParamValue::Text((*value).to_owned())));
        ArmOutcome {
            name: name.to_owned(),
            params: set.chain([(ROWS.to_owned(), ParamValue::Number(rows_per_commit))]).collect(),
            metrics: [("elapsed_s".to_owned(), elapsed_s), ("rows".to_owned(), 1e6)].into(),
            ..ArmOutcome::default()
        }
    }

    fn remedy(title: &str, runtime: &str, persistent: &str, elapsed_ratio: f64) -> Remedy {
        let lines = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
        let label = "time the same rows take, of today's, at most";
        Remedy {
            title: title.to_owned(),
            runtime: lines(runtime),
            persistent: lines(persistent),
            activation: Activation::Immediate,
            undo: Vec::new(),
            predicted: vec![Figure::new("elapsed_ratio", elapsed_ratio, Unit::Ratio, label)],
            risk: String::new(),
        }
    }

    /// What is found with 20 rows a commit: commits take so large a share of the time.
    fn finding(share: f64, knee_rows: f64) -> Finding {
        let set = "SET synchronous_commit = off;  -- first in the job's own session";
        Finding {
            rule: "commit-too-small".to_owned(),
            cause: "local-sync".to_owned(),
            severity: Severity::Warning,
            queue: "pg.commit".to_owned(),
            server: None,
            from: Moment(0),
            to: Moment(0),
            foreground_lost: None,
            summary: String::new(),
            evidence: vec![Figure::new("knee_rows", knee_rows, Unit::Count, "")],
            ruled_out: Vec::new(),
            unseen: Vec::new(),
            confidence: Confidence::High,
            victims: Vec::new(),
            remedies: vec![
                remedy("Commit less often", "", "in the program: COMMIT once every many rows", 1.05 * (1.0 - share)),
                remedy("Let this job not wait for its commits", set, "", 1.0 - share),
            ],
        }
    }

    #[test]
    fn an_arm_that_is_set_as_was_advised_is_held_to_what_was_foretold() {
        let off = [("synchronous_commit", "off")];
        let mut small = arm("rows-200000", 200_000.0, 0.6, &[]);
        small.metrics.insert("rows".to_owned(), 2e6);
        let mut arms = [
            arm("rows-20", 20.0, 2.0, &[]),
            arm("rows-20-again", 20.0, 2.0, &[]),
            arm("rows-200", 200.0, 1.2, &[]),
            arm("rows-2000", 2_000.0, 0.9, &[]),
            small,
            arm("rows-20-async", 20.0, 1.3, &off),
            arm("rows-200-async", 200.0, 1.0, &off),
            arm("client-2000", 2_000.0, 9.0, &[("side", "client")]),
        ];
        let findings = [0.5, 0.6, 0.4].map(|share| [finding(share, 1_000.0 * share)]);
        let mut found: Vec<(&str, &[Finding])> = findings.iter().map(|list| ("rows-20", &list[..])).collect();
        found.push(("rows-20-again", &findings[0]));
        tell(&mut arms, &found);
        let told: Vec<(&str, &Foretold)> =
            arms.iter().flat_map(|arm| arm.foretold.iter().map(|told| (arm.name.as_str(), told))).collect();
        // 200 rows are fewer than the 600 advised, and of larger batches than 2000 no more was said.
        assert_eq!(told.iter().map(|(arm, _)| *arm).collect::<Vec<_>>(), ["rows-2000", "rows-20-async"]);
        let [(_, larger), (_, unwaited)] = told[..] else { panic!("{told:?}") };
        assert!((larger.predicted - 2.0 * 1.05 * 0.5).abs() < 1e-9 && larger.measured == 0.9 && larger.at_most);
        assert!((unwaited.predicted - 1.0).abs() < 1e-9 && unwaited.measured == 1.3, "{unwaited:?}");
        assert_eq!((unwaited.from.as_str(), unwaited.metric.as_str()), ("rows-20", "elapsed_s"));
    }

    #[test]
    fn time_goes_with_the_rows() {
        let mut more = arm("rows-2000", 2_000.0, 1.9, &[]);
        more.metrics.insert("rows".to_owned(), 2e6);
        let mut arms = [arm("rows-20", 20.0, 2.0, &[]), more];
        tell(&mut arms, &[("rows-20", &[finding(0.5, 500.0)])]);
        assert!((arms[1].foretold[0].predicted - 2.0 * 2.0 * 1.05 * 0.5).abs() < 1e-9);
        assert!(arms[0].foretold.is_empty());
    }
}
