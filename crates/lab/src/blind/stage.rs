//! The servers that runs have in common, and what they do with nothing in the way.

use super::deed::Stage;
use super::draw::Draw;
use super::engine;
use super::setup::{self, CLIENTS, Capacity, Setup};
use crate::LabError;
use crate::arm;
use crate::client::Client;
use crate::load;
use crate::progress::Progress;
use crate::rig::{Rig, RunOptions};
use crate::scenario::{Arm, BatchesPart, LoadKind, LoadPart, Scenario, ServerKind};
use crate::wiredtiger::EngineRig;
use backwater_model::{Window, catalogue};
use backwater_probe::now;
use std::time::Instant;

/// How long the load lasts that is measured with nothing in the way, in seconds. Caches of the page table are warm after
/// the first second, and the volume's dirty pages are far from any limit.
const MEASURED_S: f64 = 5.0;
/// Calls of the storm that are measured.
const CALLS: u32 = 4;
/// Rows of which the costs of rows and commits are measured, and how many of them a commit has. The first thousands of
/// commits on a new volume cost more than those after them.
const LARGE: (u64, u64) = (200_000, 5_000);
const SMALL: (u64, u64) = (12_000, 4);

/// What runs.
pub(super) enum Servers {
    Postgres(Box<Rig>),
    Engine(Box<EngineRig>),
}

impl Servers {
    pub(super) fn end(self) -> Result<(), LabError> {
        match self {
            Servers::Postgres(rig) => rig.end(),
            Servers::Engine(rig) => rig.end(),
        }
    }
}

/// Running servers of one stage.
pub(super) struct Staged {
    pub(super) stage: Stage,
    pub(super) scenario: Scenario,
    pub(super) servers: Servers,
    pub(super) capacity: Capacity,
}

impl Staged {
    /// Starts them and measures what they can do.
    pub(super) fn start(stage: Stage, options: &RunOptions, progress: &dyn Progress) -> Result<Staged, LabError> {
        let scenario = scenario(stage)?;
        let mut servers = match stage.server() {
            ServerKind::Postgres => Servers::Postgres(Box::new(Rig::start(&scenario, options, progress)?)),
            ServerKind::WiredTiger => Servers::Engine(Box::new(EngineRig::start(&scenario, options, progress)?)),
        };
        let measured = match &mut servers {
            Servers::Postgres(rig) => measure(stage, &scenario, rig, options, progress),
            Servers::Engine(rig) => engine::measure(rig, &scenario, options, progress),
        };
        match measured {
            Ok(capacity) => Ok(Staged { stage, scenario, servers, capacity }),
            Err(error) => {
                // Why it could not be measured says more than what fails after that; what is left on the host does not
                // end with this run, and the next one puts it right.
                if let Err(left) = servers.end() {
                    tracing::warn!(%left, "the servers did not end well");
                }
                Err(error)
            }
        }
    }
}

impl Staged {
    /// Makes the servers ready for a run, with no limit in force, and says what the run sets.
    pub(super) fn prepare(
        &mut self,
        draw: &Draw,
        seconds: f64,
        options: &RunOptions,
        progress: &dyn Progress,
    ) -> Result<Setup, LabError> {
        let Staged { scenario, capacity, .. } = self;
        let resolve = |capacity: &Capacity| setup::resolve(draw, capacity, &scenario.load, seconds);
        let setup = resolve(capacity);
        match &mut self.servers {
            Servers::Postgres(rig) => {
                arm::prepare(rig, scenario, options, &setup.arm, &setup.load, progress)?;
                Ok(setup)
            }
            // What its limits follow from is measured while it is warmed up.
            Servers::Engine(rig) => Ok(resolve(&engine::prepare(rig, scenario, &setup, capacity, options, progress)?)),
        }
    }
}

/// The servers of a stage: those of the scenario that has the same arms, with what every run needs. Settings are the same
/// in all runs, but for those that an injection is made of.
pub(super) fn scenario(stage: Stage) -> Result<Scenario, LabError> {
    let name = match stage {
        Stage::Streaming => "wal-lag",
        Stage::Volume => "stampede",
        Stage::Single => "commit-wait",
        Stage::Far => "commit-standby",
        Stage::Engine => "wt-stall",
    };
    let mut scenario = Scenario::load(name)?;
    scenario.name = "blind".to_owned();
    scenario.arms.clear();
    scenario.acceptance = None;
    match stage {
        Stage::Streaming => {
            scenario.load.scale = Some(2);
            if let Some(standby) = &mut scenario.standby {
                // So that a conflict lasts; a standby without queries does not feel it.
                standby.settings.insert("max_standby_streaming_delay".to_owned(), "-1".to_owned());
            }
        }
        Stage::Single => scenario.load.scale = Some(5),
        Stage::Volume | Stage::Far | Stage::Engine => {}
    }
    Ok(scenario)
}

fn measure(
    stage: Stage,
    scenario: &Scenario,
    rig: &mut Rig,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Capacity, LabError> {
    progress.say("measuring what the servers do with nothing in the way");
    let tpcb = LoadPart { kind: LoadKind::Tpcb, rate_per_s: None, clients: CLIENTS, ..scenario.load.clone() };
    arm::prepare(rig, scenario, options, &Arm::default(), &LoadPart { warmup_s: 0.0, ..tpcb.clone() }, progress)?;
    let mut capacity = Capacity::default();
    if stage == Stage::Streaming {
        storm(rig, &mut capacity)?;
    }
    if stage != Stage::Far {
        transactions(rig, &tpcb, options, progress, &mut capacity)?;
    }
    if matches!(stage, Stage::Single | Stage::Far) {
        batches(rig, scenario, options, progress, &mut capacity)?;
    }
    tracing::info!(?capacity, ?stage, "measured");
    Ok(capacity)
}

fn storm(rig: &Rig, capacity: &mut Capacity) -> Result<(), LabError> {
    let mut client = Client::open(&rig.server.conninfo())?;
    client.run("SET synchronous_commit = off; SET client_min_messages = error")?;
    let position = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn";
    let before = number(client.ask(position)?);
    let began = Instant::now();
    for _ in 0..CALLS {
        client.run(CALL)?;
    }
    capacity.call_s = began.elapsed().as_secs_f64() / f64::from(CALLS);
    capacity.call_bytes = (number(client.ask(position)?) - before) / f64::from(CALLS);
    if capacity.call_bytes > 0.0 { Ok(()) } else { Err(LabError::Refused("the storm made no WAL".to_owned())) }
}

/// One call of the storm.
pub(super) const CALL: &str = "SELECT count(*) FROM backwater_storm('backwater_storm_0')";

fn number(text: Option<String>) -> f64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn transactions(
    rig: &Rig,
    part: &LoadPart,
    options: &RunOptions,
    progress: &dyn Progress,
    capacity: &mut Capacity,
) -> Result<(), LabError> {
    let from = now();
    let driven = load::drive(part, MEASURED_S, rig, options, progress, "measuring")?;
    let window = rig.watching.window(from, now())?;
    capacity.tps = driven.result.tps();
    let dev = rig.device().unwrap_or_default();
    capacity.dirtied_bytes_per_s = rate(&window, &catalogue::BDI_DIRTIED, dev);
    capacity.writes_per_s = rate(&window, &catalogue::DISK_WRITES, dev);
    if capacity.tps > 0.0 { Ok(()) } else { Err(LabError::Refused("no transaction was completed".to_owned())) }
}

fn rate(window: &Window, def: &catalogue::Def, dev: &str) -> f64 {
    window.track(def.name, &[("dev", dev)]).and_then(|track| track.rate()).unwrap_or(0.0)
}

/// The costs of a row and of a commit, from a few large batches and many small ones. Nobody waits for a standby here.
fn batches(
    rig: &Rig,
    scenario: &Scenario,
    options: &RunOptions,
    progress: &dyn Progress,
    capacity: &mut Capacity,
) -> Result<(), LabError> {
    let seconds_of = |(rows, rows_per_commit): (u64, u64)| -> Result<f64, LabError> {
        let batches = BatchesPart { rows, rows_per_commit, ..scenario.load.batches };
        let part = LoadPart { kind: LoadKind::CommitBatches, clients: 1, batches, ..scenario.load.clone() };
        let driven = load::drive(&part, 0.0, rig, options, progress, "measuring")?;
        driven.figures.get("elapsed_s").copied().ok_or_else(|| LabError::Refused("no rows were inserted".to_owned()))
    };
    seconds_of(SMALL)?;
    let (large, small) = (seconds_of(LARGE)?, seconds_of(SMALL)?);
    capacity.row_s = large / LARGE.0 as f64;
    let commits = (SMALL.0 / SMALL.1) as f64;
    capacity.commit_s = ((small - capacity.row_s * SMALL.0 as f64) / commits).max(0.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_stage_has_what_its_runs_set() {
        let of = |stage| scenario(stage).unwrap();
        let streaming = of(Stage::Streaming);
        assert!(streaming.network.is_some() && streaming.disk.is_some_and(|disk| disk.with_wal && disk.beneath));
        assert!(streaming.standby.unwrap().disk.unwrap().with_wal);
        let volume = of(Stage::Volume);
        assert!(!volume.disk.unwrap().with_wal && volume.load.scale.is_some() && volume.standby.is_none());
        let single = of(Stage::Single);
        assert!(single.disk.unwrap().with_wal && single.standby.is_none() && single.load.scale.is_some());
        // A standby is put at a distance by a relay, which a network of their own excludes.
        let far = of(Stage::Far);
        assert!(far.standby.is_some() && far.network.is_none());
    }
}
