//! A run of commits in batches on a server that is not the lab's own: nothing is started, set or limited there. All it does
//! is make a schema of its own, work in it and drop it; arms that would change more are left out, and said so.

use crate::LabError;
use crate::arm::Repeat;
use crate::metrics::commits::figures;
use crate::metrics::{self, Metrics, Phases, Seen};
use crate::progress::Progress;
use crate::rig::RunOptions;
use crate::run;
use crate::scenario::{Arm, ExpectedFinding, LoadKind, Scenario};
use crate::watching::Watching;
use crate::workloads::commit_batches::{Bench, CommitRun, Side};
use crate::workloads::{Counters, LoadProbe, WorkloadError};
use backwater_diagnose::{Options, diagnose};
use backwater_model::{Gaps, Outcome, Span};
use backwater_probe::postgres::ConnInfo;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Readings before the load that rules may look at, in seconds.
const BEFORE_S: f64 = 2.0;

/// Runs the arms of a scenario that vary nothing but the batch, on the server of this connection string. Its schema is gone
/// before this returns, whatever happens; if the server cannot be reached any more, a warning names what is left.
///
/// # Errors
/// [`LabError::Refused`] for a scenario whose load is none of commits in batches; whatever keeps it from connecting, from
/// making a schema or from recording.
pub fn run_attached(
    scenario: &Scenario,
    options: &RunOptions,
    dsn: &str,
    progress: &dyn Progress,
) -> Result<Outcome, LabError> {
    if scenario.load.kind != LoadKind::CommitBatches {
        let why = format!("{} starts servers of its own; only commit-wait runs on one that is given", scenario.name);
        return Err(LabError::Refused(why));
    }
    let info = ConnInfo::parse(dsn, &|name| std::env::var(name).ok())?;
    let (arms, mut skipped) = plain_arms(scenario, options)?;
    let mut bench = Bench::create(info).map_err(ended)?;
    progress.say(&format!("made the schema {} on {}; it is dropped in the end", bench.schema(), bench.server()));
    let refused = bench.refused().map(str::to_owned);
    let (arms, without): (Vec<Arm>, Vec<Arm>) =
        arms.into_iter().partition(|arm| refused.is_none() || arm.load_of(scenario, None).batches.side == Side::Client);
    for arm in without {
        skipped.insert(arm.name, refused.clone().unwrap_or_default());
    }
    if arms.is_empty() {
        let why = refused.unwrap_or_else(|| "no arm is left to run".to_owned());
        return Err(LabError::Refused(format!("{why}; with --batches every size also runs from the client")));
    }
    let scenario = Scenario { arms, acceptance: None, ..scenario.clone() };
    let repeats = run_arms(&scenario, options, &mut bench, dsn, progress);
    bench.end().map_err(ended)?;
    let arms: Vec<&Arm> = scenario.arms.iter().collect();
    let mut outcome = run::summarise(&scenario, options, &arms, &repeats?);
    outcome.skipped = skipped;
    run::write_outcome(&outcome, options)?;
    Ok(outcome)
}

/// The arms that vary nothing but the batch, with nothing expected of them on an unknown server; and why not the others.
fn plain_arms(scenario: &Scenario, options: &RunOptions) -> Result<(Vec<Arm>, BTreeMap<String, String>), LabError> {
    let mut skipped = BTreeMap::new();
    let mut arms = Vec::new();
    for arm in run::chosen_arms(scenario, options)? {
        if arm.is_plain() {
            let expected = ExpectedFinding::default();
            arms.push(Arm { expected, ..arm.clone() });
        } else {
            let why = "it changes the server's settings or its disk, which is done on servers of the lab's own alone";
            skipped.insert(arm.name.clone(), why.to_owned());
        }
    }
    Ok((arms, skipped))
}

fn run_arms(
    scenario: &Scenario,
    options: &RunOptions,
    bench: &mut Bench,
    dsn: &str,
    progress: &dyn Progress,
) -> Result<Vec<Repeat>, LabError> {
    let mut watching = Watching::attach(&options.out, dsn)?;
    let counters = Arc::new(Counters::default());
    watching.add(Box::new(LoadProbe::new(Arc::clone(&counters))))?;
    let own = if options.quick { scenario.quick.repeats } else { scenario.run.repeats };
    let mut done = Vec::new();
    for round in 1..=options.repeats.unwrap_or(own) {
        let mut order: Vec<&Arm> = scenario.arms.iter().collect();
        order.shuffle(&mut rand::rng());
        for arm in order {
            options.go_on()?;
            watching.check()?;
            done.push(one(scenario, options, bench, &watching, &counters, (arm, round), progress)?);
        }
    }
    watching.stop()?;
    Ok(done)
}

/// One repeat of one arm.
fn one(
    scenario: &Scenario,
    options: &RunOptions,
    bench: &mut Bench,
    watching: &Watching,
    counters: &Counters,
    (arm, number): (&Arm, usize),
    progress: &dyn Progress,
) -> Result<Repeat, LabError> {
    let part = arm.load_of(scenario, options.quick.then_some(&scenario.quick));
    let spec = crate::load::batch_spec(&part);
    progress.say(&format!("arm {} #{number}: {} rows a commit", arm.name, spec.rows_per_commit));
    let load_start = watching.mark(&arm.name, number, "load");
    progress.begin("rows", spec.rows);
    let run = bench.run(&spec, counters, &options.cancel, &|rows| progress.at(crate::load::of_round(rows, spec.rows)));
    progress.end();
    let run: CommitRun = run.map_err(ended)?;
    let load_end = watching.mark(&arm.name, number, "drain");
    let end = watching.mark(&arm.name, number, "end");
    let phases = Phases { load_start, load_end, end };
    let window = watching.window(load_start - Span::from_seconds(BEFORE_S), end)?;
    let findings = diagnose(&window.slice(load_start, load_end), &Options::default());
    let mut metrics: Metrics = metrics::of_arm(&Seen {
        window: &window,
        phases,
        load: &run.load,
        table: None,
        primary: watching.primary(),
        standby: None,
        device: None,
        findings: &findings,
    });
    metrics.numbers.extend(figures(&run));
    let gaps = Gaps::count(window.events());
    let arm = arm.name.clone();
    Ok(Repeat {
        arm,
        dirty_limit_bytes: None,
        part,
        metrics,
        table: None,
        findings,
        phases,
        load: run.load,
        gaps,
        engine_major: None,
        given_up: None,
    })
}

/// Somebody's wish to end is no failure of the load.
fn ended(error: WorkloadError) -> LabError {
    match error {
        WorkloadError::Cancelled => LabError::Cancelled,
        other => LabError::Workload(other),
    }
}
