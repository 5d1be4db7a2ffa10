//! The recorder of a run: the same probes and the same recording as `backwater record`, in this process.

use crate::LabError;
use crate::servers::Postgres;
use backwater_model::{Batch, Event, EventKind, Meta, Moment, Role, Target, Window, catalogue};
use backwater_probe::session::{Session, Setup};
use backwater_probe::{Probe, now};
use backwater_record::{Options, Pump, Recording, Writer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// A running recorder.
pub(crate) struct Watching {
    dir: PathBuf,
    /// What was known at the start.
    meta: Arc<Meta>,
    session: Session,
    pump: Pump,
}

impl Watching {
    /// Begins to record the servers, the loaded one first, and their devices into `dir`.
    pub(crate) fn start(dir: &Path, servers: &[&Postgres], heartbeat: bool) -> Result<Watching, LabError> {
        let targets = servers.iter().map(|server| server.conninfo()).collect();
        Self::of(dir, Setup { targets, heartbeat, ..Setup::default() })
    }

    /// Begins to record a server that is not the lab's own, by its connection string.
    pub(crate) fn attach(dir: &Path, dsn: &str) -> Result<Watching, LabError> {
        Self::of(dir, Setup { targets: vec![dsn.to_owned()], ..Setup::default() })
    }

    /// Begins to record this host and a server that is watched by other means: what is known of it is told, and `directory`
    /// lies on its device.
    pub(crate) fn told(dir: &Path, directory: &Path, mut target: Target) -> Result<Watching, LabError> {
        let setup = Setup { directories: vec![directory.to_path_buf()], ..Setup::default() };
        let (session, batches) = Session::start(setup)?;
        session.known().change(|meta| {
            for device in &mut meta.devices {
                // The only directory is the server's; there is no recording's beside it.
                device.roles = vec![(Role::Data, target.name.clone()), (Role::Wal, target.name.clone())];
                (target.data_device, target.wal_device) = (Some(device.dev.clone()), Some(device.dev.clone()));
            }
            meta.targets.push(target);
        });
        Self::begin(dir, session, batches)
    }

    /// Says that a setting of the loaded server is another from now on; an empty value is no longer set.
    pub(crate) fn setting(&self, name: &str, after: &str) {
        let (target, message) = (self.primary(), format!("{name} = {after}"));
        let fields = [("name", name), ("after", after)];
        let event = Event::new(now(), target, EventKind::Setting, message, &fields);
        self.session.insist(Batch { events: vec![event], ..Batch::default() });
    }

    fn of(dir: &Path, setup: Setup) -> Result<Watching, LabError> {
        let (session, batches) = Session::start(setup)?;
        if let Some(away) = session.meta().targets.iter().find(|target| target.is_unmet()) {
            return Err(LabError::Refused(format!("{} cannot be reached: its log says more", away.name)));
        }
        Self::begin(dir, session, batches)
    }

    fn begin(dir: &Path, session: Session, batches: Receiver<Batch>) -> Result<Watching, LabError> {
        let writer =
            Writer::create(dir, Meta::clone(&session.meta()), Arc::clone(&session.registry), Options::default())?;
        let pump = Pump::start(writer, batches, now, session.self_readings())
            .map_err(LabError::file("start the recorder for", dir))?;
        Ok(Watching { dir: dir.to_path_buf(), meta: session.meta(), session, pump })
    }

    /// Adds a probe: the load's own counters.
    pub(crate) fn add(&mut self, probe: Box<dyn Probe>) -> Result<(), LabError> {
        Ok(self.session.add(probe)?)
    }

    /// Marks a moment of an arm in the recording and returns it.
    pub(crate) fn mark(&self, arm: &str, repeat: usize, phase: &str) -> Moment {
        let at = now();
        let repeat = repeat.to_string();
        let fields = [("arm", arm), ("repeat", repeat.as_str()), ("phase", phase)];
        let event = Event::new(at, "lab", EventKind::Mark, format!("{arm} #{repeat}: {phase}"), &fields);
        self.session.insist(Batch { events: vec![event], ..Batch::default() });
        at
    }

    /// Whether every server has answered the recorder since then: one that was started anew is not seen at once.
    pub(crate) fn sees_all_since(&self, since: Moment) -> Result<bool, LabError> {
        let window = self.window(since, now())?;
        let answered = |target: &Target| {
            let track = window.track(catalogue::PG_PROBE_RESPONSE.name, &[("target", &target.name)]);
            track.is_some_and(|track| track.points.iter().any(|point| point.at > since))
        };
        Ok(self.meta.targets.iter().all(answered))
    }

    /// Name of the loaded server in the recording.
    pub(crate) fn primary(&self) -> &str {
        self.meta.targets.first().map_or("", |target| target.name.as_str())
    }

    /// Name of its standby in the recording.
    pub(crate) fn standby(&self) -> Option<&str> {
        self.meta.targets.get(1).map(|target| target.name.as_str())
    }

    /// An error once the recorder has ended by itself: a run without its recording proves nothing.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if self.pump.has_ended() {
            let dir = self.dir.display();
            let why = format!("the recorder has ended early; is there space for {dir}? What it wrote stays readable");
            return Err(LabError::Refused(why));
        }
        Ok(())
    }

    /// Everything recorded between two moments, read back from disk.
    pub(crate) fn window(&self, from: Moment, to: Moment) -> Result<Window, LabError> {
        self.pump.flush();
        Ok(Recording::open(&self.dir)?.window(Some(from), Some(to))?)
    }

    /// Ends the recording.
    pub(crate) fn stop(self) -> Result<(), LabError> {
        self.session.stop();
        self.pump.stop()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::servers::postgres_tests::Lab;
    use std::time::{Duration, Instant};

    #[test]
    fn a_server_is_seen_again_once_it_runs_and_not_while_it_does_not() {
        let lab = Lab::new();
        let Some(mut server) = lab.started("watching::seen_again") else { return };
        let recording = tempfile::tempdir().unwrap();
        let watching = Watching::start(recording.path(), &[&server], false).unwrap();
        let seen_within_10_s = |since| {
            let began = Instant::now();
            while !watching.sees_all_since(since).unwrap() {
                if began.elapsed() > Duration::from_secs(10) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            true
        };
        assert!(seen_within_10_s(now()));
        server.stop().unwrap();
        let stopped = now();
        // A second is ten looks; what was asked before the stop may still be answered as it begins.
        std::thread::sleep(Duration::from_secs(1));
        assert!(!watching.sees_all_since(stopped).unwrap());
        server.start(&lab.journal).unwrap();
        assert!(seen_within_10_s(now()));
        watching.stop().unwrap();
        server.stop().unwrap();
    }
}
