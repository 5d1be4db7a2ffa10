//! replay-cpu: replay takes all of one processor and still falls behind. It is a single process: more of them do not help.

use super::wal_evidence::{Behind, most, of_lag, rate};
use crate::figures::Figures;
use crate::remedy::replication as remedy;
use crate::replication::{Doing, Peer, activity, known};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, Finding, Sample, Unit};
use std::ops::Range;

/// Share of one processor that the startup process must use.
const BUSY: f64 = 0.8;
/// The same by its samples, of which those without a wait count.
const RUNS: f64 = 0.8;
/// A process that wants to run and gets no more than this of a processor is kept from it.
const KEPT: f64 = 0.6;
/// Share of the stretch from which on replay was paused, and did not work.
const PAUSED: f64 = 0.5;
/// The first release whose startup process says that it waits for a query, or is paused.
const SAYS_WHY: i32 = 130_000;
/// Fewer samples say nothing.
const LEAST_SAMPLES: usize = 3;

/// The findings of a window: at most one a standby.
pub(super) fn find(scene: &Scene<'_>, all: &[Behind]) -> Vec<Finding> {
    all.iter().filter_map(|behind| of_standby(scene, behind)).collect()
}

fn of_standby(scene: &Scene<'_>, behind: &Behind) -> Option<Finding> {
    let standby = &behind.standby;
    let lag = behind.lags.replay.as_ref()?;
    let own = standby.peer.as_ref().filter(|own| own.paused.mean(&lag.range).is_none_or(|share| share < PAUSED))?;
    let cpu = own.startup_cpu.mean(&lag.range);
    let runs = runs(scene, own, &lag.range);
    let full = cpu.is_some_and(|cpu| cpu >= BUSY);
    let wants = runs.is_some_and(|share| share >= RUNS);
    let cause = match (full, wants, cpu) {
        (true, ..) => "single-process",
        // Without its processor time, that it never waits is all that is known.
        (false, true, None) => "single-process",
        (false, true, Some(cpu)) if cpu < KEPT => "host-cpu",
        (false, true, Some(_)) => "single-process",
        _ => return None,
    };
    let mut finding = of_lag(scene, behind, "replay-cpu", cause, "standby_replay", lag);
    finding.confidence = match (full, wants) {
        (true, true) => Confidence::High,
        (true, false) if runs.is_some() => Confidence::Medium,
        (true, false) => Confidence::High,
        _ => Confidence::Medium,
    };
    let mut figures = Figures::default();
    figures.add("startup_cpu_ratio", cpu, Unit::Ratio, "of one processor, used by the startup process");
    figures.add("startup_runs_ratio", runs, Unit::Ratio, "samples of the startup process in which it runs or wants to");
    finding.evidence.extend(figures.list());
    let replayed = rate(&standby.hops.replayed_rate, &lag.range);
    let received = rate(&standby.hops.received_rate, &lag.range);
    let waits = most(&standby.hops.shown.replay, &lag.range);
    finding.summary = if cause == "host-cpu" {
        format!(
            "Replay on standby {} wants to run and is given only {} of a processor: {replayed} is replayed, {received} \
             arrives, and up to {waits} waited.",
            standby.name,
            Unit::Ratio.show(cpu.unwrap_or_default()),
        )
    } else {
        format!(
            "Replay on standby {} is one process, and it works all the time: {replayed} is replayed, {received} arrives, and up \
             to {waits} waited.",
            standby.name,
        )
    };
    let mut missing = Missing::default();
    missing.unless(scene.window, cpu.is_some(), &unseen::STANDBY_PROCESSES);
    finding.unseen = missing.list();
    finding.remedies = remedy::of_replay_cpu(scene, standby, cause);
    Some(finding)
}

/// Share of the samples in which the startup process works. One of a release that does not say what it sleeps for works only
/// where the kernel says so: a pause, or a conflict, looks the same otherwise.
fn runs(scene: &Scene<'_>, own: &Peer, range: &Range<usize>) -> Option<f64> {
    let version = known(scene.window, &own.target).and_then(|target| target.version_num);
    if version.is_none_or(|version| version >= SAYS_WHY) {
        let seen = activity(scene.window, &scene.grid, &own.target, "startup", None, range);
        return seen.share(|doing| *doing == Doing::Running);
    }
    let (from, to) = scene.grid.span(range);
    let ours = |sample: &&Sample| {
        let process = *sample.target == *own.target && sample.backend_type.as_deref() == Some("startup");
        process && from <= sample.at && sample.at < to && sample.kernel_state.is_some()
    };
    let seen: Vec<&Sample> = scene.window.samples().iter().filter(ours).collect();
    let works = |sample: &&&Sample| sample.kernel_state == Some('R');
    let count = seen.iter().filter(works).count();
    (seen.len() >= LEAST_SAMPLES).then(|| count as f64 / seen.len() as f64)
}
