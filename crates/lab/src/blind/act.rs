//! One run: the same preparation as any arm of a scenario, a recording of its own that carries no name of what is done,
//! the injection, the load.

use super::engine;
use super::setup::{Happening, Setup};
use super::stage::{CALL, Servers, Staged};
use crate::LabError;
use crate::arm;
use crate::client::Client;
use crate::load;
use crate::progress::Progress;
use crate::rig::{Rig, RunOptions};
use crate::servers::Postgres;
use crate::standby::Standby;
use crate::watching::Watching;
use crate::workloads::{Driven, LoadResult};
use backwater_model::Moment;
use backwater_probe::now;
use backwater_undo::Journal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Readings before anything is done, in seconds: what an operator's window has too.
pub(super) const BEFORE: Duration = Duration::from_secs(4);
/// How often a thread looks whether its time has come.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// The slot that nobody reads from.
const SLOT: &str = "reports";

/// What came of a run, the recording apart.
pub(super) struct Acted {
    /// From here on the recording is looked at: readings have begun, and nothing is done yet.
    pub(super) from: Moment,
    /// The load began, with everything done.
    pub(super) load_start: Moment,
    /// The load ended, with everything still in force.
    pub(super) to: Moment,
    pub(super) driven: Driven,
    /// What the load before it came to, where there was one.
    pub(super) calm: Option<LoadResult>,
    /// The standby lacks WAL that its primary no longer has: found in the primary's directory.
    pub(super) standby_is_dead: bool,
    /// Names in the recording.
    pub(super) primary: String,
    pub(super) standby: Option<String>,
    pub(super) device: Option<String>,
    pub(super) standby_device: Option<String>,
}

/// Does what was prepared. The recording is in `dir` and complete when this returns; `aside` is a directory that does not exist.
pub(super) fn perform(
    staged: &mut Staged,
    setup: &Setup,
    (dir, aside): (&Path, &Path),
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Acted, LabError> {
    let Staged { scenario, servers, .. } = staged;
    let rig = match servers {
        Servers::Postgres(rig) => rig,
        Servers::Engine(rig) => return engine::perform(rig, setup, (dir, aside), options, progress),
    };
    watch(rig, dir, scenario.run.heartbeat)?;
    let acted = hindered(rig, setup, options, progress);
    let freed = free(rig, setup);
    // Between runs the host alone is watched, into a recording that nobody reads: so this one ends here, whole.
    let ended = Watching::start(aside, &[], false).and_then(|idle| std::mem::replace(&mut rig.watching, idle).stop());
    let acted = acted?;
    freed?;
    ended?;
    Ok(acted)
}

/// Begins to record into a directory; the recording before it ends. The load's own counters are left out: nobody has
/// them in production.
fn watch(rig: &mut Rig, dir: &Path, heartbeat: bool) -> Result<(), LabError> {
    let servers: Vec<&Postgres> =
        [&rig.server].into_iter().chain(rig.standby.iter().map(|standby| &standby.server)).collect();
    let fresh = Watching::start(dir, &servers, heartbeat)?;
    std::mem::replace(&mut rig.watching, fresh).stop()
}

fn hindered(rig: &mut Rig, setup: &Setup, options: &RunOptions, progress: &dyn Progress) -> Result<Acted, LabError> {
    let from = now();
    wait(BEFORE, &|| options.go_on())?;
    if setup.slot_left {
        let make = format!("SELECT pg_create_physical_replication_slot('{SLOT}', true)");
        Client::open(&rig.server.conninfo())?.run(&make)?;
    }
    arm::hold(rig, options, &setup.arm, setup.dirty_limit_bytes)?;
    let load_start = now();
    let driven = drive(rig, setup, options, progress)?;
    let to = now();
    rig.watching.check()?;
    let standby = rig.standby.as_ref();
    Ok(Acted {
        from,
        load_start,
        to,
        driven,
        calm: None,
        standby_is_dead: standby.is_some_and(Standby::is_dead),
        primary: rig.watching.primary().to_owned(),
        standby: rig.watching.standby().map(str::to_owned),
        device: rig.device().map(str::to_owned),
        standby_device: standby.and_then(|standby| Some(standby.disk.as_ref()?.dev().to_owned())),
    })
}

/// Lifts everything that was set.
fn free(rig: &mut Rig, setup: &Setup) -> Result<(), LabError> {
    arm::release(rig)?;
    if setup.slot_left {
        let drop =
            format!("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{SLOT}'");
        Client::open(&rig.server.conninfo())?.run(&drop)?;
    }
    Ok(())
}

/// Waits so long, or until `go_on` fails.
pub(super) fn wait(time: Duration, go_on: &dyn Fn() -> Result<(), LabError>) -> Result<(), LabError> {
    let until = std::time::Instant::now() + time;
    while std::time::Instant::now() < until {
        go_on()?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Drives the load, while the standby and whatever is to happen do theirs.
fn drive(rig: &mut Rig, setup: &Setup, options: &RunOptions, progress: &dyn Progress) -> Result<Driven, LabError> {
    let mut standby = rig.standby.take();
    let over = AtomicBool::new(false);
    let held = &*rig;
    let (driven, meanwhile) = std::thread::scope(|scope| {
        let (beside, over) = (&mut standby, &over);
        let meanwhile = scope.spawn(move || meanwhile(held, beside.as_mut(), setup, over));
        let driven = load::drive(&setup.load, setup.load.seconds, held, options, progress, "load");
        over.store(true, Ordering::SeqCst);
        (driven, meanwhile.join())
    });
    rig.standby = standby;
    match meanwhile {
        Err(panic) => std::panic::resume_unwind(panic),
        Ok(meanwhile) => driven.and_then(|driven| meanwhile.map(|()| driven)),
    }
}

fn meanwhile(rig: &Rig, standby: Option<&mut Standby>, setup: &Setup, over: &AtomicBool) -> Result<(), LabError> {
    let conninfo = rig.server.conninfo();
    match (setup.happening, standby) {
        (Some((happening, after_s)), standby) => {
            let until = std::time::Instant::now() + Duration::from_secs_f64(after_s);
            while std::time::Instant::now() < until && !over.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK);
            }
            happen(happening, &conninfo, standby, &rig.journal)
        }
        (None, Some(standby)) => standby.during(&conninfo, &setup.arm, &rig.journal, over),
        (None, None) => Ok(()),
    }
}

fn happen(
    happening: Happening,
    primary: &str,
    standby: Option<&mut Standby>,
    journal: &Journal,
) -> Result<(), LabError> {
    match (happening, standby) {
        (Happening::Checkpoint, _) => Client::open(primary)?.run("CHECKPOINT"),
        (Happening::Burst(calls), _) => {
            let mut client = Client::open(primary)?;
            client.run("SET synchronous_commit = off; SET client_min_messages = error")?;
            (0..calls).try_for_each(|_| client.run(CALL))
        }
        (Happening::StandbyRestart, Some(standby)) => {
            standby.server.stop()?;
            Ok(standby.server.start(journal)?)
        }
        (Happening::StandbyRestart, None) => Ok(()),
    }
}
