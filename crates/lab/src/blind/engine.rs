//! Runs of the WiredTiger engine: what it can do with nothing in the way, and one run of it.

use super::act::{self, Acted};
use super::setup::{Capacity, Setup};
use crate::LabError;
use crate::progress::Progress;
use crate::rig::RunOptions;
use crate::scenario::{Arm, LoadPart, Scenario};
use crate::wiredtiger::{EngineRig, TARGET};
use backwater_model::{Moment, Span, catalogue};
use backwater_probe::now;
use std::path::Path;

/// How long the load lasts that is measured with nothing in the way, in seconds, and operations a second that it asks for:
/// more than any machine of these does.
const MEASURED_S: f64 = 5.0;
const MORE_THAN_IT_DOES: f64 = 200_000.0;
/// How long each run is warmed up, in seconds.
const WARM_UP_S: f64 = 3.0;
/// How long a reading of the volume is waited for, in seconds.
const READ_WITHIN_S: f64 = 5.0;

/// Operations a second as fast as they are taken, and what the volume writes of each in the end.
pub(super) fn measure(
    rig: &mut EngineRig,
    scenario: &Scenario,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Capacity, LabError> {
    progress.say("measuring what the engine does with nothing in the way");
    let part = LoadPart { warmup_s: 0.0, rate_per_s: Some(MORE_THAN_IT_DOES), ..scenario.load.clone() };
    rig.prepare(scenario, options, &Arm::default(), &part, progress)?;
    let from = now();
    let driven = rig.drive(&part, MEASURED_S, options, progress, "measuring")?;
    rig.settle()?;
    let written = written(rig, from, now(), options)?;
    // What was begun at the end is written as well.
    let operations = (driven.result.completed + driven.result.cancelled).max(1) as f64;
    let capacity = Capacity {
        operations_per_s: driven.result.tps(),
        operation_bytes: written / operations,
        ..Capacity::default()
    };
    tracing::info!(?capacity, "measured");
    if capacity.operations_per_s > 0.0 && capacity.operation_bytes > 0.0 {
        Ok(capacity)
    } else {
        Err(LabError::Refused("the engine did nothing, or its volume is not seen".to_owned()))
    }
}

/// Bytes written to the volume between two moments that are past, once a reading tells of the second.
fn written(rig: &EngineRig, from: Moment, to: Moment, options: &RunOptions) -> Result<f64, LabError> {
    let labels = [("dev", rig.device().unwrap_or_default())];
    let until = now() + Span::from_seconds(READ_WITHIN_S);
    while now() < until {
        options.go_on()?;
        let window = rig.window(from, now())?;
        let track = window.track(catalogue::DISK_WRITTEN_BYTES.name, &labels);
        if let Some(track) = track.filter(|track| track.points.last().is_some_and(|last| last.at >= to)) {
            return Ok(track.rise(from, to).unwrap_or(0.0));
        }
        std::thread::sleep(act::LOOK);
    }
    Err(LabError::Refused("what the volume writes is not seen".to_owned()))
}

/// A new database for a run, warmed up at the run's own rate with nothing in the way; and what the volume writes at that rate,
/// added to what the engine can do. While it is driven that is the journal's; data wait for a checkpoint, which comes at the end.
pub(super) fn prepare(
    rig: &mut EngineRig,
    scenario: &Scenario,
    setup: &Setup,
    capacity: &Capacity,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Capacity, LabError> {
    let cold = LoadPart { warmup_s: 0.0, ..setup.load.clone() };
    rig.prepare(scenario, options, &setup.arm, &cold, progress)?;
    let from = now();
    rig.drive(&setup.load, WARM_UP_S, options, progress, "warm-up")?;
    let driven = now();
    rig.settle()?;
    options.go_on()?;
    let seconds = driven.seconds_since(from);
    let capacity = Capacity {
        journal_bytes_per_s: written(rig, from, driven, options)? / seconds,
        data_bytes_per_s: written(rig, driven, now(), options)? / seconds,
        ..*capacity
    };
    tracing::info!(?capacity, asked_per_s = setup.asked_per_s, "measured at the run's own rate");
    Ok(capacity)
}

/// Does a run. The recording is in `dir` and complete when this returns; `aside` is a directory that does not exist.
pub(super) fn perform(
    rig: &mut EngineRig,
    setup: &Setup,
    (dir, aside): (&Path, &Path),
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Acted, LabError> {
    rig.watch_into(dir)?;
    let acted = hindered(rig, setup, options, progress);
    let freed = rig.release();
    // Between runs the host alone is watched: so this recording ends here, whole.
    let ended = rig.watch_nothing(aside);
    let acted = acted?;
    freed?;
    ended?;
    Ok(acted)
}

fn hindered(
    rig: &mut EngineRig,
    setup: &Setup,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Acted, LabError> {
    let from = now();
    act::wait(act::BEFORE, &|| options.go_on())?;
    rig.hold(options, &setup.arm, setup.dirty_limit_bytes)?;
    let calm = setup.calm.as_ref().map(|calm| rig.drive(calm, calm.seconds, options, progress, "load")).transpose()?;
    let load_start = now();
    let driven = rig.drive(&setup.load, setup.load.seconds, options, progress, "load")?;
    let to = now();
    rig.check()?;
    Ok(Acted {
        from,
        load_start,
        to,
        driven,
        calm: calm.map(|calm| calm.result),
        standby_is_dead: false,
        primary: TARGET.to_owned(),
        standby: None,
        device: rig.device().map(str::to_owned),
        standby_device: None,
    })
}
