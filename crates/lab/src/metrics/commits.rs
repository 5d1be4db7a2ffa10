//! What commits came to: who waited on them, by samples of the sessions; over the whole run the cost of a commit and of a
//! row, the knee, and each batch size as the others predict it.

use super::{Metrics, Seen};
use crate::arm::Repeat;
use crate::scenario::{Arm, LoadKind};
use crate::workloads::commit_batches::{BatchSpec, CommitRun, LOAD_NAME, Side, any_bench};
use backwater_diagnose::commit::{
    BatchRun, GroupBy, WITHIN, commit_queue_of, computed_share, contested_share, fit, knee, leave_one_out, looks,
    tally, wait_name,
};
use backwater_model::{ArmOutcome, BETWEEN_WORDS, CommitWait, Outcome, SESSION_SHARES, Sample};
use std::collections::{BTreeMap, BTreeSet};

/// Samples of commits from which a commit's time is estimated.
const LEAST_SAMPLES: usize = 10;

/// What the run itself measured, by fixed names.
pub(crate) fn figures(run: &CommitRun) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            figures.insert(name.to_owned(), value);
        }
    };
    let once = run.batch_run(0);
    put("elapsed_s", Some(once.elapsed_s));
    put("rows_per_s", Some(run.rows as f64 / run.elapsed_s));
    put("rows", Some(once.rows as f64));
    put("commits", Some(once.commits as f64));
    put("rounds", Some(run.rounds));
    put("commit_latency_ms", run.commit_latency_ms());
    // The server's own counts, of one round like the others.
    put("rows_proved", run.proof.rows.map(|rows| rows / run.rounds));
    put("commits_proved", run.proof.commits.map(|commits| commits / run.rounds));
    put("wal_per_commit_bytes", run.proof.wal_bytes.map(|bytes| bytes / run.commits as f64));
    figures
}

/// What samples of the load's own sessions tell, from the beginning of the load to its end.
pub(super) fn measure(seen: &Seen<'_>, into: &mut Metrics) {
    let window = seen.window.slice(seen.phases.load_start, seen.phases.load_end);
    let is_load =
        |sample: &&Sample| *sample.target == *seen.primary && sample.application.as_deref() == Some(LOAD_NAME);
    let samples: Vec<&Sample> = window.samples().iter().filter(is_load).collect();
    let Some(looks) = looks(&window, seen.primary).filter(|_| !samples.is_empty()) else { return };
    let clients = samples.iter().map(|sample| sample.pid).collect::<BTreeSet<_>>().len();
    let counted = tally(samples.iter().copied(), Some(looks), &[GroupBy::WaitEvent]);
    let all = counted.samples as f64;
    let functions_seen = samples.iter().any(|sample| sample.kernel_wait.is_some());
    let commits: Vec<&Sample> = samples.iter().copied().filter(|sample| CommitWait::of(sample).is_some()).collect();
    into.put("samples", Some(all));
    into.put("on_cpu_share", Some(counted.on_cpu as f64 / all));
    // The same by the kernel's accounts of the sessions' processes, which no look disturbs.
    let one_each: BTreeMap<i32, &Sample> = samples.iter().map(|sample| (sample.pid, *sample)).collect();
    let computed: Option<Vec<f64>> = one_each.values().map(|sample| computed_share(&window, sample)).collect();
    into.put("computed_share", computed.map(|shares| shares.iter().sum::<f64>() / shares.len() as f64));
    into.put("in_kernel_share", Some(counted.in_kernel as f64 / all));
    into.put("commit_wait_share", Some(commits.len() as f64 / all));
    into.put("contested_share", contested_share(commits.iter().copied(), functions_seen));
    // Between its statements a session is with its client: the network's and the client's part.
    into.put("with_client_share", Some((1.0 - all / (looks * clients) as f64).max(0.0)));
    // A handful of samples tells no time.
    if commits.len() >= LEAST_SAMPLES
        && let Some(queue) = commit_queue_of(&window, seen.primary, |sample| is_load(&sample))
    {
        into.put("predicted_commit_latency_ms", queue.residence_ms);
    }
    let shares = counted.groups.iter().map(|group| (group.names.concat(), group.session_time_ratio));
    into.shares.insert("wait_shares".to_owned(), shares.collect());
    into.put("session_samples", Some(samples.len() as f64));
    into.shares.insert(SESSION_SHARES.to_owned(), by_session(&samples));
}

/// Shares of the samples of the sessions, taken of those that are active, by state, wait and statement.
fn by_session(samples: &[&Sample]) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for sample in samples {
        let state = sample.state.as_deref().unwrap_or("(not told)");
        let query = sample.query.as_deref().unwrap_or("(text not visible)");
        let words = [state, &wait_name(sample), &any_bench(query)].join(BETWEEN_WORDS);
        *counts.entry(words).or_default() += 1.0 / samples.len() as f64;
    }
    counts
}

/// One run as it was set, and what it came to.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) arm: String,
    pub(crate) spec: BatchSpec,
    /// Nothing was varied but the batch: no setting, no limit.
    pub(crate) plain: bool,
    pub(crate) run: BatchRun,
}

impl Measured {
    /// A repeat of an arm; none where it was of another load, or measured nothing.
    pub(crate) fn of(repeat: &Repeat, arm: &Arm) -> Option<Measured> {
        let part = repeat.part.batches;
        let spec = crate::load::batch_spec(&repeat.part);
        let number = |name: &str| repeat.metrics.numbers.get(name).copied();
        let rows = number("rows")? as u64;
        let run = BatchRun {
            // No transaction has more than there are.
            rows_per_commit: part.rows_per_commit.min(rows),
            rows,
            commits: number("commits")? as u64,
            elapsed_s: number("elapsed_s")?,
        };
        let batches = repeat.part.kind == LoadKind::CommitBatches;
        batches.then(|| Measured { arm: arm.name.clone(), spec, plain: arm.is_plain(), run })
    }
}

/// Puts what follows from all runs together into the outcome: costs, knee, predictions, and what each setting gained.
pub(crate) fn conclude(outcome: &mut Outcome, runs: &[Measured]) {
    let of = |side: Side| -> Vec<BatchRun> {
        let own = runs.iter().filter(|run| run.plain && run.spec.clients == 1 && run.spec.side == side);
        own.map(|run| run.run).collect()
    };
    let (server, client) = (of(Side::Server), of(Side::Client));
    // The server's own form is what the case is about; where a role may not make the procedure, the client's stands in.
    let main = if server.is_empty() { &client } else { &server };
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            outcome.outcome.insert(name.to_owned(), value);
        }
    };
    if let Some(knee) = knee(main) {
        put("knee_rows", Some(knee.rows_per_commit as f64));
        put("knee_confidence_ratio", knee.confidence);
        put("knee_least_rows", knee.range.map(|range| range[0] as f64));
        put("knee_most_rows", knee.range.map(|range| range[1] as f64));
    }
    let cost = fit(main);
    put("cost_per_commit_ms", cost.map(|cost| cost.per_commit_ms));
    put("cost_per_commit_error_ms", cost.and_then(|cost| cost.per_commit_error_ms));
    put("cost_per_row_us", cost.map(|cost| cost.per_row_us));
    put("cost_per_row_error_us", cost.and_then(|cost| cost.per_row_error_us));
    put("cost_error_ratio", cost.map(|cost| cost.error_ratio));
    put("cost_knee_rows", cost.and_then(|cost| cost.batch_within(WITHIN)).map(|rows| rows as f64));
    if let (Some(client), Some(server)) = (fit(&client), fit(&server)) {
        put("client_cost_per_row_us", Some(client.per_row_us));
        put("client_cost_per_commit_ms", Some(client.per_commit_ms));
        put("round_trip_us", Some(client.per_row_us - server.per_row_us));
    }
    let left = leave_one_out(main);
    let between = left.iter().filter(|left| left.between).map(|left| left.error_ratio);
    put("left_out_error_ratio", between.reduce(f64::max));
    for (name, ratio) in gains(&outcome.arms, runs) {
        outcome.outcome.insert(name, ratio);
    }
    let side = if server.is_empty() { Side::Client } else { Side::Server };
    for arm in &mut outcome.arms {
        let own =
            runs.iter().find(|run| run.arm == arm.name && run.plain && run.spec.side == side && run.spec.clients == 1);
        let Some(size) = own.map(|own| own.run.rows_per_commit) else { continue };
        if let Some(left) = left.iter().find(|left| left.rows_per_commit == size) {
            arm.metrics.insert("predicted_elapsed_s".to_owned(), left.predicted_s);
        }
    }
}

/// What each setting gained: its arm's rows a second ÷ those of the arm that differs from it in nothing but the setting.
fn gains(arms: &[ArmOutcome], runs: &[Measured]) -> BTreeMap<String, f64> {
    let rate = |name: &str| arms.iter().find(|arm| arm.name == name)?.metrics.get("rows_per_s").copied();
    let set = |name: &str| runs.iter().find(|run| run.arm == name);
    let mut gains = BTreeMap::new();
    for arm in arms {
        let Some(own) = set(&arm.name).filter(|run| !run.plain) else { continue };
        let same = |other: &&Measured| {
            other.plain
                && (other.spec.side, other.spec.clients, other.spec.rows_per_commit)
                    == (own.spec.side, own.spec.clients, own.spec.rows_per_commit)
        };
        let Some(beside) = runs.iter().find(same) else { continue };
        if let (Some(after), Some(before)) = (rate(&arm.name), rate(&beside.arm)) {
            gains.insert(format!("{}_rows_per_s_ratio", arm.name), after / before);
        }
    }
    gains
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn measured(arm: &str, size: u64, plain: bool, elapsed_s: f64) -> Measured {
        let spec =
            BatchSpec { rows: 10_000, rows_per_commit: size, clients: 1, side: Side::Server, least: Duration::ZERO };
        let run = BatchRun { rows_per_commit: size, rows: 10_000, commits: 10_000_u64.div_ceil(size), elapsed_s };
        Measured { arm: arm.to_owned(), spec, plain, run }
    }

    #[test]
    fn no_transaction_has_more_rows_than_there_are() {
        let arm = Arm { name: "rows-200000".to_owned(), ..Arm::default() };
        let mut part = crate::scenario::Scenario::load("commit-wait").unwrap().load;
        part.batches.rows_per_commit = 200_000;
        let moment = backwater_model::Moment::from_seconds(1.0);
        let phases = super::super::Phases { load_start: moment, load_end: moment, end: moment };
        let mut repeat = Repeat::new(&arm, None, part, phases);
        let numbers = [("rows", 5_000.0), ("commits", 1.0), ("elapsed_s", 2.0)];
        repeat.metrics.numbers.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(Measured::of(&repeat, &arm).unwrap().run.rows_per_commit, 5_000);
    }

    #[test]
    fn a_run_ends_with_costs_knee_predictions_and_gains() {
        // 10 µs a row, 1 ms a commit; without waiting for it 0.1 ms.
        let runs = [
            measured("rows-1", 1, true, 10.1),
            measured("rows-10", 10, true, 1.1),
            measured("rows-1000", 1_000, true, 0.11),
            measured("rows-10000", 10_000, true, 0.101),
            measured("rows-10-off", 10, false, 0.2),
        ];
        let arms = runs.iter().map(|run| ArmOutcome {
            name: run.arm.clone(),
            metrics: [("rows_per_s".to_owned(), 10_000.0 / run.run.elapsed_s)].into(),
            ..ArmOutcome::default()
        });
        let mut outcome = Outcome { arms: arms.collect(), ..Outcome::default() };
        conclude(&mut outcome, &runs);
        let figure = |name: &str| outcome.outcome[name];
        assert!((figure("cost_per_row_us") - 10.0).abs() < 0.01 && (figure("cost_per_commit_ms") - 1.0).abs() < 0.001);
        assert_eq!(figure("knee_rows"), 10_000.0);
        assert_eq!(figure("cost_knee_rows"), 2_000.0);
        assert!((figure("rows-10-off_rows_per_s_ratio") - 5.5).abs() < 1e-9);
        assert!((outcome.arms[1].metrics["predicted_elapsed_s"] - 1.1).abs() < 0.01);
        assert!(!outcome.arms[4].metrics.contains_key("predicted_elapsed_s"));
        assert!(figure("left_out_error_ratio") < 0.01);
    }
}
