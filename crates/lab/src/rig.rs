//! What an experiment stands on: volumes and a network of its own, real servers on them, and a recorder that watches it
//! all. Every change to the host is in the journal before it is made.

use crate::LabError;
use crate::limits::{self, DiskSpec, Network, SlowDisk};
use crate::progress::Progress;
use crate::scenario::{Arm, DiskPart, Scenario};
use crate::servers::{self, Installed, Postgres, PostgresSpec};
use crate::standby::Standby;
use crate::watching::Watching;
use crate::workloads::{Counters, LoadProbe};
use backwater_model::Bytes;
use backwater_undo::{Change, Entry, Journal};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a run is to be done.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Where the recording and the outcome go. Must be empty or absent.
    pub out: PathBuf,
    /// Only the arms that matter, shortened.
    pub quick: bool,
    /// Repeats of every arm, where other than the scenario's.
    pub repeats: Option<usize>,
    /// Only these arms.
    pub arms: Vec<String>,
    /// Major version of the server, where other than what is found.
    pub version: Option<u32>,
    /// Directory of the server's programs, where another than what is found.
    pub server_bin: Option<PathBuf>,
    /// Set host-wide dirty limits (vm.dirty_bytes) instead of the device's own.
    pub allow_host_changes: bool,
    /// Go on without root: no volume of its own and no limits, only the load, the recording and the diagnosis.
    pub without_limits: bool,
    /// Where journals of changes lie.
    pub state_dir: PathBuf,
    /// Raised when somebody wants the run to end.
    pub cancel: Arc<AtomicBool>,
}

impl RunOptions {
    /// An error once somebody wants the run to end.
    pub(crate) fn go_on(&self) -> Result<(), LabError> {
        if self.cancel.load(Ordering::SeqCst) { Err(LabError::Cancelled) } else { Ok(()) }
    }
}

/// Volumes, servers and recorder of one run. Fields end in this order: first who writes, then what is written to.
pub(crate) struct Rig {
    pub(crate) watching: Watching,
    /// Away only while a thread of its own brings it back.
    pub(crate) standby: Option<Standby>,
    pub(crate) server: Postgres,
    pub(crate) counters: Arc<Counters>,
    pub(crate) disk: Option<SlowDisk>,
    /// What the volume's file lies on, where an arm is to make the volume itself slow.
    pub(crate) beneath: Option<SlowDisk>,
    pub(crate) network: Option<Network>,
    pub(crate) journal: Journal,
    /// Host-wide limits of the present arm.
    pub(crate) host_limits: Vec<Entry>,
}

/// What a file system needs for itself, however small it is.
const BENEATH_BYTES: u64 = 256 << 20;

/// Where a run keeps its volume and its server until it is over. The server's ordinary user must be able to enter it,
/// and the volume's file shall lie on a disk: /var/tmp is both.
pub(crate) fn work_dir(journal: &Journal) -> PathBuf {
    let temporary = Path::new("/var/tmp");
    let parent = if temporary.is_dir() { temporary.to_path_buf() } else { std::env::temp_dir() };
    parent.join(format!("backwater-{}", journal.run()))
}

impl Rig {
    /// Starts everything and fills the server with data.
    pub(crate) fn start(scenario: &Scenario, options: &RunOptions, progress: &dyn Progress) -> Result<Rig, LabError> {
        let journal = Journal::begin(&options.state_dir, &format!("lab run {}", scenario.name))?;
        let installed = server_to_use(scenario, options, progress)?;
        options.go_on()?;
        let work = work_dir(&journal);
        journal.note(Change::Directory { path: work.clone() })?;
        std::fs::create_dir_all(&work).map_err(LabError::file("create", &work))?;
        let part = scenario.disk.as_ref().filter(|_| !options.without_limits);
        let beneath = part.filter(|part| part.beneath);
        let beneath = beneath.map(|part| make_beneath(part, &work, &journal, progress)).transpose()?;
        let backing_dir = beneath.as_ref().map_or(work.as_path(), SlowDisk::mount_point);
        let disk = part.map(|part| make_disk("data", part, backing_dir, &journal, progress)).transpose()?;
        options.go_on()?;
        let wanted = scenario.network.is_some() && !options.without_limits && limits::network::possible().is_ok();
        let switched = scenario.network.as_ref().is_some_and(|part| part.switch);
        let make = || if switched { Network::create_switched(&journal) } else { Network::create(&journal) };
        let mut network = wanted.then(make).transpose()?;
        let queue_ms = scenario.network.as_ref().and_then(|part| part.queue_ms);
        if let (Some(network), Some(queue_ms)) = (&mut network, queue_ms) {
            network.queue_for(queue_ms);
        }
        let place = Place { work: &work, journal: &journal, network: network.as_ref(), progress };
        let mut server = make_server(scenario, &installed, disk.as_ref(), &place)?;
        load_data(scenario, &server, options, progress)?;
        options.go_on()?;
        let mut standby = make_standby(scenario, options, &mut server, &place)?;
        server.restart(&journal, &scenario.server.settings)?;
        if let Some(standby) = &mut standby {
            standby.ready(&mut server, scenario, &Arm::default(), &journal, options)?;
        }
        let servers: Vec<&Postgres> =
            [&server].into_iter().chain(standby.iter().map(|standby| &standby.server)).collect();
        let mut watching = Watching::start(&options.out, &servers, scenario.run.heartbeat)?;
        let counters = Arc::new(Counters::default());
        watching.add(Box::new(LoadProbe::new(Arc::clone(&counters))))?;
        let host_limits = Vec::new();
        Ok(Rig { watching, standby, server, counters, disk, beneath, network, journal, host_limits })
    }

    /// Stops the servers and the recorder and puts the host back.
    pub(crate) fn end(self) -> Result<(), LabError> {
        let Rig { watching, standby, mut server, disk, beneath, network, journal, .. } = self;
        // Everything is ended whatever fails on the way; the first failure is told. The standby first: a primary that
        // stops waits until its standby has all of the WAL.
        let watched = watching.stop();
        let followed = standby.map_or(Ok(()), Standby::end);
        let stopped = server.stop();
        drop((disk, beneath, network));
        journal.finish()?;
        watched?;
        followed?;
        Ok(stopped?)
    }

    /// Where caps reach only what runs in a control group, puts each server and all its processes there. To be called
    /// after every start of the server.
    pub(crate) fn adopt_server(&self) -> Result<(), LabError> {
        adopt(self.disk.as_ref(), &self.server)?;
        self.standby.as_ref().map_or(Ok(()), |standby| adopt(standby.disk.as_ref(), &standby.server))
    }

    /// Every volume of its own.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &SlowDisk> {
        let own = self.disk.iter().chain(&self.beneath);
        own.chain(self.standby.iter().filter_map(|standby| standby.disk.as_ref()))
    }

    /// `MAJ:MIN` of the volume.
    pub(crate) fn device(&self) -> Option<&str> {
        self.disk.as_ref().map(SlowDisk::dev)
    }
}

/// Where caps reach only what runs in a control group, puts a server and all its processes there.
pub(crate) fn adopt(disk: Option<&SlowDisk>, server: &Postgres) -> Result<(), LabError> {
    let (Some(disk), Some(postmaster)) = (disk, server.pid()) else { return Ok(()) };
    // The postmaster first: what it starts from now on is born in the group.
    disk.adopt(postmaster)?;
    for child in children_of(postmaster) {
        disk.adopt(child)?;
    }
    Ok(())
}

/// Processes started by this one. One that has ended meanwhile is none.
fn children_of(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn server_to_use(scenario: &Scenario, options: &RunOptions, progress: &dyn Progress) -> Result<Installed, LabError> {
    if let Some(dir) = &options.server_bin {
        return Installed::at(dir).ok_or_else(|| {
            LabError::Refused(format!(
                "{} holds no PostgreSQL server: give the directory of postgres and initdb",
                dir.display()
            ))
        });
    }
    let wanted = options.version.or(scenario.server.version);
    if let Some(found) = servers::find(wanted).into_iter().next() {
        progress.say(&format!("PostgreSQL {} found in {}", found.version, found.bin_dir.display()));
        return Ok(found);
    }
    let version = wanted.unwrap_or(servers::DEFAULT_MAJOR);
    if let Some(kept) = servers::cached(&servers::cache_dir(), Some(version)) {
        progress.say(&format!("PostgreSQL {version} was downloaded before, into {}", kept.bin_dir.display()));
        return Ok(kept);
    }
    progress.say(&format!("no PostgreSQL {version} is installed: downloading it once"));
    downloaded(version, options, progress)
}

/// Downloads a server, with a bar for each of its two steps.
fn downloaded(version: u32, options: &RunOptions, progress: &dyn Progress) -> Result<Installed, LabError> {
    let under_way = Cell::new("");
    let told = |step: servers::Progress| {
        let (what, done, total) = match step {
            servers::Progress::Downloading { done_bytes, total_bytes } => ("downloading", done_bytes, total_bytes),
            servers::Progress::Unpacking { done_bytes, total_bytes } => ("unpacking", done_bytes, Some(total_bytes)),
        };
        if under_way.replace(what) != what {
            progress.end();
            progress.begin(what, total.unwrap_or(0));
        }
        progress.at(done);
        options.go_on().is_ok()
    };
    let server = servers::download(version, &servers::cache_dir(), &told);
    progress.end();
    // Why it was given up is that somebody wanted so.
    options.go_on()?;
    Ok(server?)
}

pub(crate) fn make_disk(
    name: &str,
    part: &DiskPart,
    work: &Path,
    journal: &Journal,
    progress: &dyn Progress,
) -> Result<SlowDisk, LabError> {
    progress.say(&format!("making a volume of {} ({}) for the data directory", part.size, part.fs));
    limits::debugfs::ensure(journal)?;
    let spec = DiskSpec {
        name: name.to_owned(),
        size_bytes: part.size.0,
        fs: part.fs.clone(),
        backing_dir: work.to_path_buf(),
        direct_io: true,
    };
    Ok(SlowDisk::create(journal, &spec)?)
}

/// A volume for the file of another.
fn make_beneath(
    part: &DiskPart,
    work: &Path,
    journal: &Journal,
    progress: &dyn Progress,
) -> Result<SlowDisk, LabError> {
    // A twentieth is reserved by its file system, which needs as much for itself, and as much is asked to stay free.
    let part = DiskPart { size: Bytes(part.size.0 + part.size.0 * 3 / 20 + BENEATH_BYTES), ..part.clone() };
    make_disk("beneath", &part, work, journal, progress)
}

/// Where servers are made.
struct Place<'a> {
    work: &'a Path,
    journal: &'a Journal,
    network: Option<&'a Network>,
    progress: &'a dyn Progress,
}

fn make_server(
    scenario: &Scenario,
    installed: &Installed,
    disk: Option<&SlowDisk>,
    place: &Place<'_>,
) -> Result<Postgres, LabError> {
    place.progress.say("starting a PostgreSQL server of its own");
    let base = disk.map_or(place.work, SlowDisk::mount_point);
    let with_wal = scenario.disk.as_ref().is_some_and(|part| part.with_wal);
    let mut settings = scenario.server.settings.clone();
    settings.extend(scenario.server.init_settings.clone());
    let spec = PostgresSpec {
        installed: installed.clone(),
        data_dir: base.join("data"),
        wal_dir: (disk.is_some() && !with_wal).then(|| wal_dir(place.work)),
        user: None,
        settings,
        port: None,
        socket_port: None,
        network: place.network.map(|network| network.primary().clone()),
    };
    let mut server = Postgres::create(place.journal, spec)?;
    server.start(place.journal)?;
    Ok(server)
}

/// The standby that the scenario has, made of the server, which stops for that.
fn make_standby(
    scenario: &Scenario,
    options: &RunOptions,
    server: &mut Postgres,
    place: &Place<'_>,
) -> Result<Option<Standby>, LabError> {
    let Some(part) = &scenario.standby else { return Ok(None) };
    place.progress.say("making its standby");
    let disk = part.disk.as_ref().filter(|_| !options.without_limits);
    let disk = disk.map(|disk| make_disk("standby", disk, place.work, place.journal, place.progress)).transpose()?;
    server.stop()?;
    let network = place.network.map(|network| network.standby().clone());
    Standby::make(part, server, (place.work, disk), network, place.journal).map(Some)
}

/// pg_wal lies elsewhere than the data, so that only data I/O is measured: beside the volume's backing file.
fn wal_dir(work: &Path) -> PathBuf {
    work.join("wal")
}

fn load_data(
    scenario: &Scenario,
    server: &Postgres,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<(), LabError> {
    let rows = u64::from(scenario.load.scale.unwrap_or(0)) * 100_000;
    progress.begin("making the data", rows);
    let result = crate::load::initialise(&scenario.load, server, &options.cancel, &|done| progress.at(done));
    progress.end();
    result
}
