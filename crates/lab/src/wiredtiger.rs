//! Experiments on the WiredTiger engine: a volume of its own, the engine's driver on it, and the same recorder, limits,
//! metrics and rules as for a server. Every repeat has a new database.

use crate::LabError;
use crate::arm::{self, Repeat};
use crate::limits::SlowDisk;
use crate::metrics::{self, Phases, Seen};
use crate::progress::Progress;
use crate::rig::{self, RunOptions};
use crate::run::Stand;
use crate::scenario::{Arm, LoadPart, Scenario};
use crate::servers::wiredtiger::{self, WiredTiger, WiredTigerSpec};
use crate::watching::Watching;
use crate::workloads::{Counters, Driven, LoadProbe, wt};
use backwater_diagnose::{Options, diagnose};
use backwater_model::{Gaps, Moment, Outcome, ParamValue, Span, Target, Window};
use backwater_undo::{Change, Entry, Journal};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The engine's name in a recording.
pub(crate) const TARGET: &str = "wiredtiger";
/// The setting that the driver's tables have and no database's configuration: what rules must know that reckon with pages.
const MEMORY_PAGE_MAX: &str = "memory_page_max";
/// Sessions beside those of the load: the driver's own, and the engine's.
const MORE_SESSIONS: usize = 200;
/// Steps of a progress bar in a second.
const STEPS_PER_S: f64 = 10.0;

/// Volume, engine and recorder of one run. Fields end in this order.
pub(crate) struct EngineRig {
    watching: Watching,
    driver: WiredTiger,
    readings: Arc<wt::Readings>,
    counters: Arc<Counters>,
    /// On the volume, or where it would be.
    base: PathBuf,
    disk: Option<SlowDisk>,
    journal: Journal,
    /// Host-wide limits of the present arm.
    host_limits: Vec<Entry>,
    /// Settings that were told last.
    settings: BTreeMap<String, String>,
}

impl EngineRig {
    /// Starts everything; there is no database yet.
    pub(crate) fn start(
        scenario: &Scenario,
        options: &RunOptions,
        progress: &dyn Progress,
    ) -> Result<EngineRig, LabError> {
        let program = wiredtiger::find_or_build(&|text| progress.say(text))?;
        wiredtiger::check_runs(&program)?;
        let journal = Journal::begin(&options.state_dir, &format!("lab run {}", scenario.name))?;
        let work = rig::work_dir(&journal);
        journal.note(Change::Directory { path: work.clone() })?;
        std::fs::create_dir_all(&work).map_err(LabError::file("create", &work))?;
        let part = scenario.disk.as_ref().filter(|_| !options.without_limits);
        let disk = part.map(|part| rig::make_disk("data", part, &work, &journal, progress)).transpose()?;
        options.go_on()?;
        let base = disk.as_ref().map_or(work.as_path(), SlowDisk::mount_point).to_path_buf();
        let counters = Arc::new(Counters::default());
        let readings = Arc::new(wt::Readings::new(Arc::clone(&counters)));
        let spec = WiredTigerSpec { program, home: base.join("data"), run_dir: work.join("driver") };
        let driver = WiredTiger::start(&journal, &spec, Arc::clone(&readings) as _)?;
        progress.say(&driver.engine);
        if let Some(disk) = &disk {
            disk.adopt(driver.pid())?;
        }
        let settings = scenario.server.settings.clone();
        let watching = watch(&options.out, &base, &driver, &settings, (&readings, &counters))?;
        Ok(EngineRig { watching, driver, readings, counters, base, disk, journal, host_limits: Vec::new(), settings })
    }

    /// Begins to record into a directory, which is told the present settings; the recording before it ends.
    pub(crate) fn watch_into(&mut self, dir: &Path) -> Result<(), LabError> {
        self.readings.forget();
        let fresh = watch(dir, &self.base, &self.driver, &self.settings, (&self.readings, &self.counters))?;
        std::mem::replace(&mut self.watching, fresh).stop()
    }

    /// Ends the recording; the host alone is watched from here on, into a directory that nobody reads.
    pub(crate) fn watch_nothing(&mut self, aside: &Path) -> Result<(), LabError> {
        let idle = Watching::start(aside, &[], false)?;
        std::mem::replace(&mut self.watching, idle).stop()
    }

    /// An error once the recorder has ended by itself.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        self.watching.check()
    }

    /// What was recorded between two moments.
    pub(crate) fn window(&self, from: Moment, to: Moment) -> Result<Window, LabError> {
        self.watching.window(from, to)
    }

    /// Number of the volume.
    pub(crate) fn device(&self) -> Option<&str> {
        self.disk.as_ref().map(SlowDisk::dev)
    }

    /// Brings everything that is dirty, in the engine and in the page cache, onto the volume.
    pub(crate) fn settle(&mut self) -> Result<(), LabError> {
        self.driver.ask(&json!({"cmd": "checkpoint"}), None)?;
        self.disk.as_ref().map_or(Ok(()), |disk| Ok(disk.settle()?))
    }

    /// Stops the engine and the recorder and puts the host back.
    pub(crate) fn end(mut self) -> Result<(), LabError> {
        // Uncapped: a last checkpoint need not wait.
        let released = self.release();
        let EngineRig { watching, mut driver, disk, journal, .. } = self;
        let watched = watching.stop();
        let stopped = driver.stop(&journal);
        drop(disk);
        journal.finish()?;
        released?;
        watched?;
        Ok(stopped?)
    }

    /// A new database with the arm's settings, filled and warmed up with no limit in force, and nothing dirty.
    pub(crate) fn prepare(
        &mut self,
        scenario: &Scenario,
        options: &RunOptions,
        arm: &Arm,
        part: &LoadPart,
        progress: &dyn Progress,
    ) -> Result<(), LabError> {
        self.release()?;
        let mut settings = scenario.server.settings.clone();
        settings.extend(arm.settings.clone());
        let config: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let sessions = (part.clients + MORE_SESSIONS) as u32;
        let opened = self.driver.renew(&self.journal, &config.join(","), sessions, part.engine.replicated)?;
        tracing::debug!(config = %opened["config"], cache_bytes = %opened["cache_bytes"], "opened");
        self.readings.renew();
        self.tell(settings);
        if let Some(fill) = wt::fill(&part.engine) {
            progress.say(&format!("putting {} documents into it", part.engine.documents));
            self.driver.ask(&fill, Some(&*options.cancel))?;
            options.go_on()?;
        }
        if part.warmup_s > 0.0 {
            self.drive(part, part.warmup_s, options, progress, "warm-up")?;
        }
        self.settle()?;
        options.go_on()
    }

    /// Puts what changed of the settings into the recording.
    fn tell(&mut self, settings: BTreeMap<String, String>) {
        for name in self.settings.keys().filter(|name| !settings.contains_key(*name)) {
            self.watching.setting(name, "");
        }
        for (name, value) in settings.iter().filter(|(name, value)| self.settings.get(*name) != Some(value)) {
            self.watching.setting(name, value);
        }
        self.settings = settings;
    }

    /// Puts the arm's limits in force; the dirty limit that is returned was read back.
    pub(crate) fn hold(
        &mut self,
        options: &RunOptions,
        arm: &Arm,
        limit: Option<u64>,
    ) -> Result<Option<u64>, LabError> {
        let Some(disk) = &self.disk else { return Ok(None) };
        let held = match limit {
            Some(bytes) if options.allow_host_changes => {
                self.host_limits.extend(arm::limit_host(&self.journal, bytes)?);
                Some(bytes)
            }
            Some(bytes) => Some(disk.limit_dirty(&self.journal, bytes)?),
            None => None,
        };
        disk.cap(&self.journal, &arm::cap(arm.write_iops, arm.write_bytes_per_s))?;
        Ok(held)
    }

    /// Lifts all limits.
    pub(crate) fn release(&mut self) -> Result<(), LabError> {
        for entry in self.host_limits.drain(..).rev() {
            self.journal.undo(entry)?;
        }
        if let Some(disk) = &self.disk {
            disk.lift_cap(&self.journal)?;
            disk.unlimit_dirty(&self.journal)?;
        }
        Ok(())
    }

    /// Drives a load for so many seconds.
    pub(crate) fn drive(
        &mut self,
        part: &LoadPart,
        seconds: f64,
        options: &RunOptions,
        progress: &dyn Progress,
        what: &str,
    ) -> Result<Driven, LabError> {
        self.readings.begin();
        progress.begin(what, (seconds * STEPS_PER_S) as u64);
        let told = self.driver.ask(&wt::run(part, seconds), Some(&*options.cancel));
        progress.end();
        options.go_on()?;
        Ok(wt::driven(&told?, part))
    }

    /// Diagnoses the recording of a repeat and reads its metrics from it.
    fn judge(&self, scenario: &Scenario, mut repeat: Repeat, driven: Driven) -> Result<Repeat, LabError> {
        let phases = repeat.phases;
        let window = self.watching.window(phases.load_start - Span::from_seconds(arm::BEFORE_S), phases.end)?;
        let rules = Options { drain_target_s: scenario.run.drain_target_s, ..Options::default() };
        repeat.findings = diagnose(&window.slice(phases.load_start, phases.load_end), &rules);
        repeat.metrics = metrics::of_arm(&Seen {
            window: &window,
            phases,
            load: &driven.result,
            table: None,
            primary: TARGET,
            standby: None,
            device: self.device(),
            findings: &repeat.findings,
        });
        repeat.metrics.numbers.extend(driven.figures);
        repeat.metrics.label("engine", self.driver.engine.clone());
        repeat.engine_major = Some(self.driver.major());
        repeat.load = driven.result;
        repeat.gaps = Gaps::count(window.events());
        Ok(repeat)
    }
}

impl Stand for EngineRig {
    fn repeat(
        &mut self,
        scenario: &Scenario,
        options: &RunOptions,
        arm: &Arm,
        number: usize,
        progress: &dyn Progress,
    ) -> Result<Repeat, LabError> {
        let part = arm.load_of(scenario, options.quick.then_some(&scenario.quick));
        let limit = arm.dirty_limit.bytes();
        self.watching.check()?;
        progress.say(&format!("arm {} #{number}: {}", arm.name, arm::describe(arm, limit)));
        self.prepare(scenario, options, arm, &part, progress)?;
        let held = self.hold(options, arm, limit)?;
        let load_start = self.watching.mark(&arm.name, number, "load");
        let driven = self.drive(&part, part.seconds, options, progress, "load")?;
        let load_end = self.watching.mark(&arm.name, number, "drain");
        arm::device_drains(&self.watching, self.device(), options, load_end, part.drain_limit_s)?;
        let end = self.watching.mark(&arm.name, number, "end");
        self.release()?;
        let repeat = Repeat::new(arm, held, part, Phases { load_start, load_end, end });
        self.judge(scenario, repeat, driven)
    }

    fn window(&self, from: Moment, to: Moment) -> Result<Window, LabError> {
        EngineRig::window(self, from, to)
    }

    fn device(&self) -> Option<&str> {
        EngineRig::device(self)
    }
}

/// Adds the scenario's own settings to what was set for each arm: the engine's behaviour is not told by a difference.
pub(crate) fn complete(scenario: &Scenario, outcome: &mut Outcome) {
    for arm in &mut outcome.arms {
        for (name, value) in &scenario.server.settings {
            arm.params.entry(name.clone()).or_insert_with(|| ParamValue::Text(value.clone()));
        }
    }
}

/// Begins to record the engine and the load.
fn watch(
    dir: &Path,
    base: &Path,
    driver: &WiredTiger,
    settings: &BTreeMap<String, String>,
    (readings, counters): (&Arc<wt::Readings>, &Arc<Counters>),
) -> Result<Watching, LabError> {
    let mut watching = Watching::told(dir, base, target(driver, base, settings))?;
    watching.add(Box::new(LoadProbe::new(Arc::clone(counters))))?;
    watching.add(Box::new(wt::EngineProbe::new(Arc::clone(readings), TARGET, driver.pid())))?;
    Ok(watching)
}

fn target(driver: &WiredTiger, base: &Path, settings: &BTreeMap<String, String>) -> Target {
    Target {
        name: TARGET.to_owned(),
        kind: TARGET.to_owned(),
        version_num: Some(driver.version_num),
        local: true,
        data_directory: Some(base.join("data").display().to_string()),
        settings: with_page_size(settings, &driver.memory_page_max),
        ..Target::default()
    }
}

/// What the database is opened with, and what its tables are made with.
fn with_page_size(settings: &BTreeMap<String, String>, memory_page_max: &str) -> BTreeMap<String, String> {
    let mut all = settings.clone();
    all.insert(MEMORY_PAGE_MAX.to_owned(), memory_page_max.to_owned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_tells_the_page_size_of_the_tables_beside_what_was_set() {
        let set = BTreeMap::from([("cache_size".to_owned(), "1GB".to_owned())]);
        let told = with_page_size(&set, "10m");
        assert_eq!((told["memory_page_max"].as_str(), told["cache_size"].as_str(), told.len()), ("10m", "1GB", 2));
    }
}
