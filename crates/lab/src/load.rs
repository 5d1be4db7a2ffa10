//! A scenario's load on a scenario's server: data made, driven, settled.

use crate::LabError;
use crate::progress::Progress;
use crate::rig::{Rig, RunOptions};
use crate::scenario::{LoadKind, LoadPart};
use crate::servers::Postgres;
use crate::workloads::{
    self, Arrivals, LoadResult, LoadSpec, Pgbench, Protocol, Script, Tpcb, TpcbSpec, Workload, WorkloadError,
};
use backwater_probe::ProbeError;
use backwater_probe::postgres::{ConnInfo, connect_client};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a progress bar moves.
const SHOW: Duration = Duration::from_millis(200);
/// Steps of a progress bar in a second.
const STEPS_PER_S: f64 = 10.0;

/// Makes the data.
pub(crate) fn initialise(
    part: &LoadPart,
    server: &Postgres,
    cancel: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), LabError> {
    let spec = TpcbSpec { scale: part.scale, fillfactor: part.fillfactor };
    workloads::initialise(&server.conninfo(), &spec, cancel, progress).map_err(ended)
}

/// Drives the load for so many seconds.
pub(crate) fn drive(
    part: &LoadPart,
    seconds: f64,
    rig: &Rig,
    options: &RunOptions,
    progress: &dyn Progress,
    what: &str,
) -> Result<LoadResult, LabError> {
    progress.begin(what, (seconds * STEPS_PER_S) as u64);
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| show(progress, &done));
        let result = run(part, seconds, rig, options);
        done.store(true, Ordering::SeqCst);
        result
    });
    progress.end();
    result.map_err(ended)
}

fn show(progress: &dyn Progress, done: &AtomicBool) {
    let began = Instant::now();
    while !done.load(Ordering::SeqCst) {
        progress.at((began.elapsed().as_secs_f64() * STEPS_PER_S) as u64);
        std::thread::sleep(SHOW);
    }
}

fn run(part: &LoadPart, seconds: f64, rig: &Rig, options: &RunOptions) -> Result<LoadResult, WorkloadError> {
    let spec = LoadSpec {
        clients: part.clients,
        rate_per_s: part.rate_per_s,
        arrivals: Arrivals::default(),
        warmup: Duration::ZERO,
        duration: Duration::from_secs_f64(seconds),
        seed: rand::random(),
    };
    let conninfo = rig.server.conninfo();
    let workload: Box<dyn Workload> = match part.kind {
        LoadKind::Tpcb => Box::new(Tpcb::new(part.scale)?),
        LoadKind::Script => {
            let path = part.script.as_deref().unwrap_or_default();
            Box::new(Script::load(Path::new(path), Protocol::Prepared, part.scale)?)
        }
        LoadKind::Pgbench => return pgbench(part, &spec, rig, options),
    };
    workloads::run(&conninfo, workload.as_ref(), &spec, &rig.counters, &options.cancel)
}

fn pgbench(part: &LoadPart, spec: &LoadSpec, rig: &Rig, options: &RunOptions) -> Result<LoadResult, WorkloadError> {
    let script = part.script.as_deref().map(Path::new);
    Pgbench::find(rig.server.installed())?.run(
        &rig.server.conninfo(),
        script,
        part.scale,
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

/// Writes everything that is dirty in the server's own buffers.
pub(crate) fn checkpoint(server: &Postgres) -> Result<(), LabError> {
    let info = ConnInfo::parse(&server.conninfo(), &|_| None)?;
    let system = |source| ProbeError::System { call: "epoll_create", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    runtime.block_on(async {
        let (client, task) = connect_client(&info).await?;
        let task = tokio::spawn(task);
        let result = client.batch_execute("CHECKPOINT").await;
        drop(client);
        // The task ends with its client; how it ended matters to nobody once the command was answered.
        let _ended = task.await;
        let refused = |error: tokio_postgres::Error| ProbeError::Server {
            server: info.label(),
            what: "CHECKPOINT",
            message: error.to_string(),
        };
        Ok(result.map_err(refused)?)
    })
}
