//! A scenario's load on a scenario's server: data made, driven, settled.

use crate::LabError;
use crate::client::Client;
use crate::metrics::commits::figures;
use crate::overload;
use crate::progress::Progress;
use crate::rig::{Rig, RunOptions};
use crate::scenario::{BatchesPart, LoadKind, LoadPart};
use crate::servers::Postgres;
use crate::workloads::commit_batches::{BatchSpec, Bench};
use crate::workloads::{
    self, Arrivals, Driven, LoadResult, LoadSpec, Pgbench, Protocol, Script, Storm, StormSpec, Tpcb, TpcbSpec,
    Workload, WorkloadError,
};
use backwater_probe::postgres::ConnInfo;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a progress bar moves.
const SHOW: Duration = Duration::from_millis(200);
/// Steps of a progress bar in a second.
const STEPS_PER_S: f64 = 10.0;

/// Makes the data that the load works on.
pub(crate) fn initialise(
    part: &LoadPart,
    server: &Postgres,
    cancel: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), LabError> {
    let conninfo = server.conninfo();
    if let Some(scale) = part.scale {
        let spec = TpcbSpec { scale, fillfactor: part.fillfactor };
        workloads::initialise(&conninfo, &spec, cancel, progress).map_err(ended)?;
    }
    if part.kind == LoadKind::WalStorm {
        Storm::prepare(&conninfo, &storm(part))?;
    }
    if part.kind == LoadKind::NetOverload {
        workloads::overload::prepare(&conninfo, part.overload.urgent_ms)?;
    }
    Ok(())
}

fn storm(part: &LoadPart) -> StormSpec {
    StormSpec { columns: part.storm.columns, rows: part.storm.rows, pause_ms: part.storm.pause_ms }
}

/// Drives the load for so many seconds.
pub(crate) fn drive(
    part: &LoadPart,
    seconds: f64,
    rig: &Rig,
    options: &RunOptions,
    progress: &dyn Progress,
    what: &str,
) -> Result<Driven, LabError> {
    if part.kind == LoadKind::CommitBatches {
        return batches(part, rig, options, progress);
    }
    progress.begin(what, (seconds * STEPS_PER_S) as u64);
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| show(progress, &done));
        let result = match part.kind {
            LoadKind::NetOverload => overload::drive(part, seconds, rig, options),
            _ => run(part, seconds, rig, options).map_err(ended),
        };
        done.store(true, Ordering::SeqCst);
        result
    });
    progress.end();
    result
}

/// Rows in batches, in a schema of their own that is gone afterwards; it ends when they are in.
fn batches(part: &LoadPart, rig: &Rig, options: &RunOptions, progress: &dyn Progress) -> Result<Driven, LabError> {
    let info = ConnInfo::parse(&rig.server.conninfo(), &|_| None)?;
    let spec = batch_spec(part);
    let mut bench = Bench::create(info).map_err(ended)?;
    progress.begin("rows", spec.rows);
    let run = bench.run(&spec, &rig.counters, &options.cancel, &|rows| progress.at(of_round(rows, spec.rows)));
    progress.end();
    let run = run.map_err(ended)?;
    bench.end().map_err(ended)?;
    Ok(Driven { figures: figures(&run), result: run.load, ..Driven::default() })
}

/// How far a round is, of so many rows each: the bar begins again with each.
pub(crate) fn of_round(rows: u64, each: u64) -> u64 {
    if rows == 0 { 0 } else { (rows - 1) % each + 1 }
}

/// What a load of commits in batches does in one arm.
pub(crate) fn batch_spec(part: &LoadPart) -> BatchSpec {
    let BatchesPart { rows, rows_per_commit, side, least_s, .. } = part.batches;
    BatchSpec { rows, rows_per_commit, clients: part.clients, side, least: Duration::from_secs_f64(least_s) }
}

fn show(progress: &dyn Progress, done: &AtomicBool) {
    let began = Instant::now();
    while !done.load(Ordering::SeqCst) {
        progress.at((began.elapsed().as_secs_f64() * STEPS_PER_S) as u64);
        std::thread::sleep(SHOW);
    }
}

fn run(part: &LoadPart, seconds: f64, rig: &Rig, options: &RunOptions) -> Result<Driven, WorkloadError> {
    let spec = LoadSpec {
        clients: part.clients,
        rate_per_s: part.rate_per_s,
        arrivals: Arrivals::default(),
        warmup: Duration::ZERO,
        duration: Duration::from_secs_f64(seconds),
        seed: rand::random(),
    };
    let drive = |workload: &dyn Workload| {
        workloads::run(&rig.server.conninfo(), workload, &spec, &rig.counters, &options.cancel)
    };
    let scale = part.scale.unwrap_or(1);
    match part.kind {
        LoadKind::Tpcb => drive(&Tpcb::new(scale)?).map(Driven::from),
        LoadKind::Script => {
            let path = part.script.as_deref().unwrap_or_default();
            drive(&Script::load(Path::new(path), Protocol::Prepared, scale)?).map(Driven::from)
        }
        LoadKind::Pgbench => pgbench(part, &spec, rig, options).map(Driven::from),
        // It ends with its rows, not with its time: see `drive`.
        LoadKind::CommitBatches => Ok(Driven::default()),
        // The engine's own rig drives it: see `wiredtiger.rs`; and what needs more than a server: see `overload.rs`.
        LoadKind::WiredTiger | LoadKind::NetOverload => Ok(Driven::default()),
        LoadKind::WalStorm => {
            let (storm, began) = (Storm::default(), Instant::now());
            let result = drive(&storm)?;
            Ok(Driven { result, table: Some(storm.table(began)), ..Driven::default() })
        }
    }
}

fn pgbench(part: &LoadPart, spec: &LoadSpec, rig: &Rig, options: &RunOptions) -> Result<LoadResult, WorkloadError> {
    let script = part.script.as_deref().map(Path::new);
    Pgbench::find(rig.server.installed())?.run(
        &rig.server.conninfo(),
        script,
        part.scale.unwrap_or(1),
        spec,
        &rig.counters,
        &options.cancel,
    )
}

/// Somebody's wish to end is no failure of the load.
fn ended(error: WorkloadError) -> LabError {
    match error {
        WorkloadError::Cancelled => LabError::Cancelled,
        other => LabError::Workload(other),
    }
}

/// Writes everything that is dirty in the server's own buffers; on a standby, as far as it has replayed.
pub(crate) fn checkpoint(server: &Postgres) -> Result<(), LabError> {
    Client::open(&server.conninfo())?.run("CHECKPOINT")
}
