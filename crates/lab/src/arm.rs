//! One repeat of one arm: settle, limit, load, drain, measure, diagnose.

use crate::limits::{AllowHostChanges, Cap, sysctl};
use crate::metrics::{self, Metrics, Phases, Seen};
use crate::progress::Progress;
use crate::rig::{Rig, RunOptions};
use crate::scenario::{Arm, LoadPart, Scenario};
use crate::watching::Watching;
use crate::workloads::{Driven, LoadResult};
use crate::{LabError, load};
use backwater_diagnose::{Options, diagnose, drain};
use backwater_model::{ArmTable, Bytes, Finding, Gaps, Moment, Span};
use backwater_probe::now;
use backwater_undo::{Entry, Journal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Readings before the load that rules may look at, in seconds.
pub(crate) const BEFORE_S: f64 = 2.0;
/// How often the drain is looked at, and how much of the time before its beginning is read for that: looking costs
/// processor time which the drain should have.
pub(crate) const DRAIN_LOOK: Duration = Duration::from_millis(500);
pub(crate) const DRAIN_BEFORE_S: f64 = 5.0;

/// How long the recorder may take to see servers that were started anew, and how often that is looked at.
const SEEN_WITHIN: Duration = Duration::from_secs(15);
const SEEN_LOOK: Duration = Duration::from_millis(200);

/// How long a standby may take to catch up where nothing limits it.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(30);

/// One repeat of one arm, done.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    pub(crate) arm: String,
    pub(crate) dirty_limit_bytes: Option<u64>,
    /// How the load was driven.
    pub(crate) part: LoadPart,
    pub(crate) metrics: Metrics,
    pub(crate) table: Option<ArmTable>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) phases: Phases,
    pub(crate) load: LoadResult,
    /// How often a probe could not read.
    pub(crate) gaps: usize,
    /// The engine's major version, where an engine was driven.
    pub(crate) engine_major: Option<u32>,
    /// Why a first try was given up for this one.
    pub(crate) given_up: Option<String>,
}

impl Repeat {
    /// One that is not judged yet.
    pub(crate) fn new(arm: &Arm, dirty_limit_bytes: Option<u64>, part: LoadPart, phases: Phases) -> Self {
        Repeat {
            arm: arm.name.clone(),
            dirty_limit_bytes,
            part,
            metrics: Metrics::default(),
            table: None,
            findings: Vec::new(),
            phases,
            load: LoadResult::default(),
            gaps: 0,
            engine_major: None,
            given_up: None,
        }
    }

    /// Whether it was diagnosed as expected: by its first finding, unless any will do.
    pub(crate) fn meets(&self, arm: &Arm, options: &RunOptions) -> bool {
        arm.expected_of(options.allow_host_changes, self.engine_major).met_by(&self.findings)
    }
}

/// Runs one repeat of one arm.
pub(crate) fn run(
    rig: &mut Rig,
    scenario: &Scenario,
    options: &RunOptions,
    arm: &Arm,
    number: usize,
    progress: &dyn Progress,
) -> Result<Repeat, LabError> {
    let dirty_limit_bytes = arm.dirty_limit.bytes();
    let part = load_part(scenario, options, arm);
    rig.watching.check()?;
    progress.say(&format!("arm {} #{number}: {}", arm.name, describe(arm, dirty_limit_bytes)));
    prepare(rig, scenario, options, arm, &part, progress)?;
    wait_until_seen(rig, options)?;
    let held = hold(rig, options, arm, dirty_limit_bytes)?;
    let load_start = rig.watching.mark(&arm.name, number, "load");
    let driven = drive(rig, arm, &part, options, progress)?;
    let load_end = rig.watching.mark(&arm.name, number, "drain");
    wait_for_drain(rig, options, load_end, part.drain_limit_s)?;
    let end = rig.watching.mark(&arm.name, number, "end");
    release(rig)?;
    let repeat = Repeat::new(arm, held, part, Phases { load_start, load_end, end });
    judge(rig, scenario, repeat, driven)
}

/// Diagnoses the recording of a repeat and reads its metrics from it.
fn judge(rig: &Rig, scenario: &Scenario, mut repeat: Repeat, driven: Driven) -> Result<Repeat, LabError> {
    let phases = repeat.phases;
    let window = rig.watching.window(phases.load_start - Span::from_seconds(BEFORE_S), phases.end)?;
    let rules = Options { drain_target_s: scenario.run.drain_target_s, ..Options::default() };
    repeat.findings = diagnose(&window.slice(phases.load_start, phases.load_end), &rules);
    repeat.metrics = metrics::of_arm(&Seen {
        window: &window,
        phases,
        load: &driven.result,
        table: driven.table.as_ref(),
        primary: rig.watching.primary(),
        standby: rig.watching.standby(),
        device: rig.device(),
        findings: &repeat.findings,
    });
    repeat.metrics.numbers.extend(driven.figures);
    repeat.metrics.shares.extend(driven.shares);
    repeat.table = driven.table;
    repeat.load = driven.result;
    // Servers that are started anew before the load are not read for a moment; that takes nothing from the figures.
    repeat.gaps = Gaps::count(window.events().iter().filter(|event| event.at >= phases.load_start));
    Ok(repeat)
}

/// The load of this run: the arm's, shortened when it is to be quick.
fn load_part(scenario: &Scenario, options: &RunOptions, arm: &Arm) -> LoadPart {
    arm.load_of(scenario, options.quick.then_some(&scenario.quick))
}

pub(crate) fn describe(arm: &Arm, dirty_limit_bytes: Option<u64>) -> String {
    let limit = dirty_limit_bytes.map(|bytes| format!("dirty limit {}", backwater_model::Bytes(bytes)));
    let all: Vec<String> = limit.into_iter().chain(arm.words()).collect();
    if all.is_empty() { "no limit".to_owned() } else { all.join(", ") }
}

/// Brings servers and volumes to the same state before every repeat: settings of the arm, tables in the page cache, the
/// standby caught up, a warm-up with no limit in force, a checkpoint, nothing dirty.
pub(crate) fn prepare(
    rig: &mut Rig,
    scenario: &Scenario,
    options: &RunOptions,
    arm: &Arm,
    part: &LoadPart,
    progress: &dyn Progress,
) -> Result<(), LabError> {
    release(rig)?;
    let mut settings = scenario.server.settings.clone();
    settings.extend(arm.settings.clone());
    if !rig.server.runs_with(&settings) {
        progress.say("the server restarts with the arm's settings; its probe loses its connection and makes another");
    }
    rig.server.configure(&rig.journal, &settings)?;
    if let Some(standby) = &mut rig.standby {
        standby.ready(&mut rig.server, scenario, arm, &rig.journal, options)?;
    }
    rig.adopt_server()?;
    rig.server.read_into_page_cache()?;
    if part.warmup_s > 0.0 {
        load::drive(part, part.warmup_s, rig, options, progress, "warm-up")?;
    }
    options.go_on()?;
    load::checkpoint(&rig.server)?;
    if let Some(standby) = &rig.standby {
        if !standby.catches_up(&rig.server, CATCH_UP_WITHIN, options)? {
            return Err(LabError::Refused(
                "the standby did not catch up after the warm-up, with no limit in force".into(),
            ));
        }
        load::checkpoint(&standby.server)?;
    }
    for disk in rig.disks() {
        disk.settle()?;
    }
    options.go_on()
}

/// Waits until the recorder sees all servers: the beginning of a short load would be missing.
fn wait_until_seen(rig: &Rig, options: &RunOptions) -> Result<(), LabError> {
    let since = now();
    while !rig.watching.sees_all_since(since)? {
        options.go_on()?;
        if now().seconds_since(since) > SEEN_WITHIN.as_secs_f64() {
            return Err(LabError::Refused(
                "the recorder does not see a server that was started anew; what it could not read stands in the log"
                    .to_owned(),
            ));
        }
        std::thread::sleep(SEEN_LOOK);
    }
    Ok(())
}

/// Puts the arm's limits in force, and what hinders its standby; the dirty limit that is returned was read back.
pub(crate) fn hold(
    rig: &mut Rig,
    options: &RunOptions,
    arm: &Arm,
    dirty_limit_bytes: Option<u64>,
) -> Result<Option<u64>, LabError> {
    let held = hold_volume(rig, options, arm, dirty_limit_bytes)?;
    if let (Some(network), Some(rate)) = (&rig.network, arm.network.bytes_per_s) {
        network.narrow(rate.0, arm.network.at)?;
    }
    if let Some(standby) = &mut rig.standby {
        standby.hinder(&rig.server, arm, &rig.journal, options)?;
        if let Some(disk) = &standby.disk {
            disk.cap(&rig.journal, &cap(arm.standby.write_iops, arm.standby.write_bytes_per_s))?;
        }
    }
    Ok(held)
}

fn hold_volume(
    rig: &mut Rig,
    options: &RunOptions,
    arm: &Arm,
    dirty_limit_bytes: Option<u64>,
) -> Result<Option<u64>, LabError> {
    let Some(disk) = &rig.disk else { return Ok(None) };
    let held = match dirty_limit_bytes {
        Some(bytes) if options.allow_host_changes => {
            rig.host_limits.extend(limit_host(&rig.journal, bytes)?);
            Some(bytes)
        }
        Some(bytes) => Some(disk.limit_dirty(&rig.journal, bytes)?),
        None => None,
    };
    let read_bytes_per_s = arm.read_bytes_per_s.map(|bytes| bytes.0);
    disk.cap(&rig.journal, &Cap { read_bytes_per_s, ..cap(arm.write_iops, arm.write_bytes_per_s) })?;
    if let Some(beneath) = &rig.beneath {
        disk.cap_beneath(&rig.journal, beneath, &cap(None, arm.device_bytes_per_s))?;
    }
    Ok(held)
}

pub(crate) fn cap(write_iops: Option<u64>, write_bytes_per_s: Option<Bytes>) -> Cap {
    Cap { write_iops, write_bytes_per_s: write_bytes_per_s.map(|bytes| bytes.0), ..Cap::default() }
}

/// Drives the arm's load, while its standby does what it is to do meanwhile.
fn drive(
    rig: &mut Rig,
    arm: &Arm,
    part: &LoadPart,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Driven, LabError> {
    let mut standby = rig.standby.take();
    let over = AtomicBool::new(false);
    let held = &*rig;
    let (driven, came_back) = std::thread::scope(|scope| {
        let conninfo = held.server.conninfo();
        let meanwhile = standby.as_mut().map(|standby| {
            let over = &over;
            scope.spawn(move || standby.during(&conninfo, arm, &held.journal, over))
        });
        let driven = load::drive(part, part.seconds, held, options, progress, "load");
        over.store(true, Ordering::SeqCst);
        (driven, meanwhile.map(std::thread::ScopedJoinHandle::join))
    });
    rig.standby = standby;
    match came_back {
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        Some(Ok(came_back)) => driven.and_then(|driven| came_back.map(|()| driven)),
        None => driven,
    }
}

/// The host's own dirty limit, with background writeback from a quarter of it, as the published table had it.
pub(crate) fn limit_host(journal: &Journal, bytes: u64) -> Result<Vec<Entry>, LabError> {
    let allowed = AllowHostChanges::as_the_user_said();
    // Background first: the kernel halves it by itself where it would lie over the limit.
    let background = sysctl::set(journal, &allowed, "vm.dirty_background_bytes", bytes / 4)?;
    let limit = sysctl::set(journal, &allowed, "vm.dirty_bytes", bytes)?;
    Ok(background.into_iter().chain(limit).collect())
}

/// Lifts all limits.
pub(crate) fn release(rig: &mut Rig) -> Result<(), LabError> {
    for entry in rig.host_limits.drain(..).rev() {
        rig.journal.undo(entry)?;
    }
    if let Some(disk) = &rig.disk {
        disk.lift_cap(&rig.journal)?;
        disk.unlimit_dirty(&rig.journal)?;
        if let Some(beneath) = &rig.beneath {
            disk.cap_beneath(&rig.journal, beneath, &Cap::default())?;
        }
    }
    if let Some(network) = &rig.network {
        network.widen()?;
    }
    rig.standby.as_mut().map_or(Ok(()), |standby| standby.free(&rig.journal))
}

/// Waits until the recording shows that the drain has ended, or the time for it is over.
fn wait_for_drain(rig: &Rig, options: &RunOptions, load_end: Moment, limit_s: f64) -> Result<(), LabError> {
    if let Some(standby) = &rig.standby {
        // What a standby still has to take is its drain; where that does not end in time, it is left to be.
        standby.catches_up(&rig.server, Duration::from_secs_f64(limit_s), options)?;
        return Ok(());
    }
    device_drains(&rig.watching, rig.device(), options, load_end, limit_s)
}

/// Waits until a device has written what the load left, where there is one, for at most so many seconds.
pub(crate) fn device_drains(
    watching: &Watching,
    device: Option<&str>,
    options: &RunOptions,
    load_end: Moment,
    limit_s: f64,
) -> Result<(), LabError> {
    let Some(device) = device else { return Ok(()) };
    let from = load_end - Span::from_seconds(DRAIN_BEFORE_S);
    while now().seconds_since(load_end) < limit_s {
        std::thread::sleep(DRAIN_LOOK);
        options.go_on()?;
        if drain::measure(&watching.window(from, now())?, device, load_end).is_some() {
            break;
        }
    }
    Ok(())
}
