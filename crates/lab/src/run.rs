//! A whole run: arms in random order, repeated (advised ones after those that they follow), each diagnosed; medians and
//! spread; what was expected and whether it was met.

use crate::LabError;
use crate::acceptance;
use crate::advised::Advisers;
use crate::arm::{self, Repeat};
use crate::doubts;
use crate::limits::{self, ProcessorShare, network};
use crate::metrics::commits::{self, Measured};
use crate::metrics::{foretold, median, overload};
use crate::progress::Progress;
use crate::rig::{Rig, RunOptions};
use crate::scenario::{Arm, LoadKind, Need, Scenario, ServerKind};
use crate::wiredtiger::{self, EngineRig};
use backwater_model::{ArmOutcome, Expected, ExpectedAll, Finding, Moment, Outcome, Window};
use backwater_probe::session::this_host;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;

/// Runs a scenario and says what came of it. The host is put back before this returns, whatever happens.
pub fn run(scenario: &Scenario, options: &RunOptions, progress: &dyn Progress) -> Result<Outcome, LabError> {
    // Where no arm can run as it stands, the load alone still shows something.
    if options.without_limits && !scenario.runs_without_limits() {
        return run_limited(&scenario.without_limits(), options, progress);
    }
    run_limited(scenario, options, progress)
}

fn run_limited(scenario: &Scenario, options: &RunOptions, progress: &dyn Progress) -> Result<Outcome, LabError> {
    let (mut arms, skipped) = able(chosen_arms(scenario, options)?, options);
    for (arm, why) in &skipped {
        progress.say(&format!("arm {arm} is skipped: {why}"));
    }
    if arms.is_empty() {
        return Err(LabError::Refused(format!("none of the arms asked for can run here: {}", listed(&skipped))));
    }
    let mut advisers = Advisers::default();
    let repeats = on_stand(scenario, options, progress, |stand| {
        run_arms(stand, scenario, options, &arms, &mut advisers, progress)
    })?;
    arms.retain(|arm| !advisers.without.contains_key(&arm.name));
    let as_run: Vec<Arm> = arms.iter().filter_map(|arm| advisers.as_run(scenario, &arm.name)).collect();
    let mut outcome = summarise(scenario, options, &as_run.iter().collect::<Vec<_>>(), &repeats);
    advisers.tell(scenario, &mut outcome.arms);
    for (arm, why) in advisers.without {
        outcome.expected.met = false;
        outcome.doubts.push(format!("{arm}: not run, for {why}"));
    }
    if scenario.server.kind == ServerKind::WiredTiger {
        wiredtiger::complete(scenario, &mut outcome);
    }
    outcome.skipped = skipped;
    if let Some(why) = acceptance::refused(scenario, &arms, &repeats) {
        outcome.expected.met = false;
        outcome.doubts.insert(0, why);
    }
    write_outcome(&outcome, options)?;
    Ok(outcome)
}

/// Starts what the scenario needs, does something on it, and takes it down; the host is put back whatever came of it.
pub(crate) fn on_stand<T>(
    scenario: &Scenario,
    options: &RunOptions,
    progress: &dyn Progress,
    act: impl FnOnce(&mut dyn Stand) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let (done, ended) = match scenario.server.kind {
        ServerKind::Postgres => {
            let mut rig = Rig::start(scenario, options, progress)?;
            (act(&mut rig), rig.end())
        }
        ServerKind::WiredTiger => {
            let mut rig = EngineRig::start(scenario, options, progress)?;
            (act(&mut rig), rig.end())
        }
    };
    match (done, ended) {
        // What is left on the host matters more than that somebody wanted the run to end.
        (Err(LabError::Cancelled), Err(left)) | (Ok(_), Err(left)) => Err(left),
        // Otherwise why it failed says more than what failed after that.
        (done, _) => done,
    }
}

/// Keeps the outcome beside the recording.
pub(crate) fn write_outcome(outcome: &Outcome, options: &RunOptions) -> Result<(), LabError> {
    let path = options.out.join("outcome.json");
    let text = serde_json::to_string_pretty(outcome).unwrap_or_default();
    std::fs::write(&path, text).map_err(LabError::file("write", &path))
}

/// The arms to run, in the scenario's order. An advised arm brings those that its advice is made from, and the one it is measured by.
pub(crate) fn chosen_arms<'a>(scenario: &'a Scenario, options: &RunOptions) -> Result<Vec<&'a Arm>, LabError> {
    let names = match (&options.arms[..], options.quick) {
        ([], false) => return Ok(scenario.arms.iter().collect()),
        ([], true) => &scenario.quick.arms,
        _ => &options.arms,
    };
    if let Some(unknown) = names.iter().find(|name| scenario.arm(name).is_none()) {
        let known: Vec<_> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
        return Err(LabError::Refused(format!("there is no arm '{unknown}'; there are: {}", known.join(", "))));
    }
    let own = || names.iter().filter_map(|name| scenario.arm(name));
    // What it is to be compared with, too.
    let against = own().filter_map(|arm| Some(&arm.aim.as_ref()?.against));
    let sources = own().flat_map(|arm| scenario.sources(arm)).map(|arm| &arm.name);
    let wanted: Vec<&String> = names.iter().chain(sources).chain(against).collect();
    Ok(scenario.arms.iter().filter(|arm| wanted.contains(&&arm.name)).collect())
}

/// Arms that this host can run, and why not the others.
fn able<'a>(arms: Vec<&'a Arm>, options: &RunOptions) -> (Vec<&'a Arm>, BTreeMap<String, String>) {
    let volumes = if options.without_limits { missing(options) } else { None };
    let network = network::possible().err().map(|error| error.to_string());
    let processor = ProcessorShare::possible().err().map(|error| error.to_string());
    let why = |need: &Need| match need {
        Need::Volume => volumes.clone(),
        Need::Processor => volumes.clone().or(processor.clone()),
        Need::Network => volumes.clone().or(network.clone()),
    };
    let mut skipped = BTreeMap::new();
    let mut able = Vec::new();
    for arm in arms {
        match arm.needs().iter().find_map(why) {
            Some(why) => drop(skipped.insert(arm.name.clone(), why)),
            None => able.push(arm),
        }
    }
    (able, skipped)
}

/// Why no limits can be set here, in one line.
fn missing(options: &RunOptions) -> Option<String> {
    let rows = limits::what_is_missing(options.allow_host_changes)
        .into_iter()
        .map(|(what, why, next)| format!("{what}: {why}. {next}"));
    let text = rows.collect::<Vec<_>>().join("; ");
    Some(if text.is_empty() { "the run was to set no limits".to_owned() } else { text })
}

fn listed(skipped: &BTreeMap<String, String>) -> String {
    skipped.iter().map(|(arm, why)| format!("{arm}: {why}")).collect::<Vec<_>>().join("; ")
}

/// What repeats of arms are run on.
pub(crate) trait Stand {
    /// One repeat of one arm.
    fn repeat(
        &mut self,
        scenario: &Scenario,
        options: &RunOptions,
        arm: &Arm,
        number: usize,
        progress: &dyn Progress,
    ) -> Result<Repeat, LabError>;
    /// What was recorded between two moments.
    fn window(&self, from: Moment, to: Moment) -> Result<Window, LabError>;
    /// Number of the volume.
    fn device(&self) -> Option<&str>;
}

impl Stand for Rig {
    fn repeat(
        &mut self,
        scenario: &Scenario,
        options: &RunOptions,
        arm: &Arm,
        number: usize,
        progress: &dyn Progress,
    ) -> Result<Repeat, LabError> {
        arm::run(self, scenario, options, arm, number, progress)
    }

    fn window(&self, from: Moment, to: Moment) -> Result<Window, LabError> {
        self.watching.window(from, to)
    }

    fn device(&self) -> Option<&str> {
        Rig::device(self)
    }
}

/// Runs every arm in each round, in random order; arms that are advised when all repeats that they are advised from are done,
/// since the worst of these is what counts. An arm whose source showed nothing to be advised from is left out, with the reason:
/// what the others showed is told all the same.
fn run_arms(
    stand: &mut dyn Stand,
    scenario: &Scenario,
    options: &RunOptions,
    arms: &[&Arm],
    advisers: &mut Advisers,
    progress: &dyn Progress,
) -> Result<Vec<Repeat>, LabError> {
    let mut done: Vec<Repeat> = Vec::new();
    for stage in stages(scenario, arms) {
        for round in 1..=rounds(scenario, options) {
            let mut order: Vec<&Arm> = stage.clone();
            order.shuffle(&mut rand::rng());
            order.retain(|arm| !advisers.without.contains_key(&arm.name));
            for arm in order {
                match advisers.resolve(stand, scenario, arm, &done)? {
                    Ok(arm) => done.push(acceptance::repeat(stand, scenario, options, &arm, round, progress)?),
                    Err(why) => {
                        progress.say(&format!("arm {} is left out: {why}", arm.name));
                        advisers.without.insert(arm.name.clone(), why);
                    }
                }
            }
        }
    }
    Ok(done)
}

/// Arms by how many recordings must be there before they can run.
fn stages<'a>(scenario: &Scenario, arms: &[&'a Arm]) -> impl Iterator<Item = Vec<&'a Arm>> {
    let mut stages: BTreeMap<usize, Vec<&Arm>> = BTreeMap::new();
    for arm in arms {
        stages.entry(scenario.sources(arm).count()).or_default().push(arm);
    }
    stages.into_values()
}

/// How often every arm runs.
pub(crate) fn rounds(scenario: &Scenario, options: &RunOptions) -> usize {
    options.repeats.unwrap_or(if options.quick { scenario.quick.repeats } else { scenario.run.repeats })
}

pub(crate) fn summarise(scenario: &Scenario, options: &RunOptions, arms: &[&Arm], repeats: &[Repeat]) -> Outcome {
    let outcomes: Vec<ArmOutcome> = arms.iter().map(|arm| arm_outcome(arm, options, repeats)).collect();
    let met = outcomes.iter().all(|arm| arm.expected.met);
    let mut doubts: Vec<String> = repeats.iter().flat_map(doubts::of_repeat).collect();
    if options.without_limits && scenario.is_stand_in() {
        doubts.push("run without root: no limit was set, so the cliff could not be shown".to_owned());
    }
    doubts.sort();
    doubts.dedup();
    let mut outcome = Outcome {
        scenario: scenario.name.clone(),
        machine: this_host(),
        outcome: comparisons(arms, &outcomes),
        arms: outcomes,
        findings: all_findings(arms, repeats),
        skipped: BTreeMap::new(),
        expected: ExpectedAll { met },
        doubts,
    };
    let batches =
        repeats.iter().filter_map(|repeat| Measured::of(repeat, scenario.arm(&repeat.arm)?)).collect::<Vec<_>>();
    if !batches.is_empty() {
        commits::conclude(&mut outcome, &batches);
        let found: Vec<_> = repeats.iter().map(|repeat| (repeat.arm.as_str(), &repeat.findings[..])).collect();
        foretold::tell(&mut outcome.arms, &found);
    }
    if scenario.load.kind == LoadKind::NetOverload {
        overload::conclude(&mut outcome);
    }
    outcome
}

fn arm_outcome(arm: &Arm, options: &RunOptions, repeats: &[Repeat]) -> ArmOutcome {
    let own: Vec<&Repeat> = repeats.iter().filter(|repeat| repeat.arm == arm.name).collect();
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in own.iter().flat_map(|repeat| &repeat.metrics.numbers) {
        values.entry(name.clone()).or_default().push(*value);
    }
    let spread = values.iter().map(|(name, list)| {
        let edge = |pick: fn(f64, f64) -> f64| list.iter().copied().reduce(pick).unwrap_or(f64::NAN);
        (name.clone(), [edge(f64::min), edge(f64::max)])
    });
    let in_some = values.iter().filter(|(_, list)| list.len() < own.len());
    let engine_major = own.first().and_then(|repeat| repeat.engine_major);
    let expected = arm.expected_of(options.allow_host_changes, engine_major);
    ArmOutcome {
        name: arm.name.clone(),
        params: arm.params(own.first().and_then(|repeat| repeat.dirty_limit_bytes)),
        spread: spread.collect(),
        measured_in: in_some.map(|(name, list)| (name.clone(), list.len())).collect(),
        metrics: values.iter().filter_map(|(name, list)| Some((name.clone(), median(list)?))).collect(),
        labels: own.first().map(|repeat| repeat.metrics.labels.clone()).unwrap_or_default(),
        shares: median_shares(&own),
        table: own.first().and_then(|repeat| repeat.table.clone()),
        repeats: own.len(),
        expected: Expected {
            rule: Some(expected.rule).filter(|rule| rule != "none"),
            cause: expected.cause,
            met: own.iter().all(|repeat| repeat.meets(arm, options)),
        },
        advised: None,
        foretold: Vec::new(),
        beside: arm.beside.clone().or_else(|| arm.advised_from.clone()),
        aim: None,
    }
}

/// The median of each share over the repeats; one that a repeat did not see was nothing there.
fn median_shares(own: &[&Repeat]) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut values: BTreeMap<&str, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    for (whole, parts) in own.iter().flat_map(|repeat| &repeat.metrics.shares) {
        for (part, share) in parts {
            values.entry(whole).or_default().entry(part).or_default().push(*share);
        }
    }
    let median_of = |mut list: Vec<f64>| {
        list.resize(own.len(), 0.0);
        median(&list)
    };
    let parts = |parts: BTreeMap<&str, Vec<f64>>| {
        parts.into_iter().filter_map(|(part, list)| Some((part.to_owned(), median_of(list)?))).collect()
    };
    values.into_iter().map(|(whole, list)| (whole.to_owned(), parts(list))).collect()
}

/// Every finding once for each arm, rule, cause and queue, the surest of its repeats; in the order of arms, then as
/// they were found.
fn all_findings(arms: &[&Arm], repeats: &[Repeat]) -> Vec<Finding> {
    let mut list: Vec<Finding> = Vec::new();
    for arm in arms {
        let first_of_arm = list.len();
        for finding in repeats.iter().filter(|repeat| repeat.arm == arm.name).flat_map(|repeat| &repeat.findings) {
            let same = |known: &&mut Finding| known.claim() == finding.claim();
            match list[first_of_arm..].iter_mut().find(same) {
                None => list.push(finding.clone()),
                Some(known) if (finding.severity, finding.confidence) > (known.severity, known.confidence) => {
                    *known = finding.clone();
                }
                Some(_) => {}
            }
        }
    }
    list
}

/// Metrics that are compared between arms.
const COMPARED: [&str; 12] = [
    "tps_mean",
    "tps_peak",
    "tps_least",
    "drain_s",
    "dirty_peak_bytes",
    "latency_p99_ms",
    "elapsed_s",
    "commit_latency_ms",
    "wal_generated_kb_per_s",
    "sent_delay_kb",
    "replay_delay_kb",
    "urgent_mean_ms",
];

/// Figures of the whole run: the noise floor from the A/A arm, and what each advised arm changed.
fn comparisons(arms: &[&Arm], outcomes: &[ArmOutcome]) -> BTreeMap<String, f64> {
    let of = |name: &str| outcomes.iter().find(|arm| arm.name == name);
    let mut figures = BTreeMap::new();
    for arm in arms {
        let (kind, other) = match (&arm.same_as, &arm.advised_from) {
            (Some(same), _) => ("noise_floor", same),
            (None, Some(source)) => (arm.name.as_str(), source),
            (None, None) => continue,
        };
        let (Some(own), Some(other)) = (of(&arm.name), of(other)) else { continue };
        for name in COMPARED {
            if let (Some(after), Some(before)) = (own.metrics.get(name), other.metrics.get(name))
                && *before > 0.0
            {
                figures.insert(format!("{kind}_{name}_ratio"), after / before);
            }
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_runs_after_all_that_its_advice_is_made_from() {
        let arm = |name: &str, from: Option<&str>| Arm {
            name: name.to_owned(),
            advised_from: from.map(str::to_owned),
            ..Arm::default()
        };
        let arms =
            vec![arm("again", Some("advised")), arm("plain", None), arm("advised", Some("plain")), arm("other", None)];
        let scenario = Scenario { arms, ..Scenario::load("stampede").expect("it is built in") };
        let all: Vec<&Arm> = scenario.arms.iter().collect();
        let names = |arms: &[&Arm]| -> Vec<Vec<String>> {
            let stages = stages(&scenario, arms);
            stages.map(|stage| stage.iter().map(|arm| arm.name.clone()).collect()).collect()
        };
        assert_eq!(names(&all), [vec!["plain", "other"], vec!["advised"], vec!["again"]]);
        // What was not asked for leaves no stage empty.
        assert_eq!(names(&[all[0], all[1]]), [vec!["plain"], vec!["again"]]);
        assert!(names(&[]).is_empty());
    }
}
