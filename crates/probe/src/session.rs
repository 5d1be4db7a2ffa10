//! Everything that is to be watched, put together: the host, the servers, their devices; what they say of themselves;
//! one stream of batches.

use crate::host::{self, Roots, Server, Watch};
use crate::mongodb::{self, MongoProbe, MongoServer};
use crate::postgres::{ConnInfo, PostgresOptions, PostgresProbe};
use crate::{Observer, Probe, ProbeError, Sink, anchor, now};
use backwater_model::{
    Batch, DeclaredVolume, Device, Epoch, HostFacts, Meta, Moment, Registry, Role, Target, catalogue,
};
use std::collections::{BTreeSet, HashSet};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// What to watch.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Connection strings; `host` stands for this host alone and adds nothing to it.
    pub targets: Vec<String>,
    /// Ratings told by the user.
    pub volumes: Vec<DeclaredVolume>,
    /// Keep literals in query texts.
    pub keep_query_text: bool,
    /// Directories whose devices are watched beside those of the servers.
    pub directories: Vec<PathBuf>,
    /// Where kernel files lie.
    pub roots: Roots,
    /// Beat once a second on each target as a failover manager would. Writes one row there.
    pub heartbeat: bool,
    /// How long a beat may take before it is missed; 1 s where not told.
    pub heartbeat_timeout: Option<Duration>,
    /// How often sessions are looked at; 100 ms where not told, and not more often than each 10 ms.
    pub session_period: Option<Duration>,
}

/// A failover manager's patience with one check.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// Sessions are looked at a hundred times a second at most.
const SHORTEST_SESSION_PERIOD: Duration = Duration::from_millis(10);

/// How many servers are reached for at the same time.
const CONNECTED_AT_ONCE: usize = 16;

/// A running observation.
#[derive(Debug)]
pub struct Session {
    /// Names of all series.
    pub registry: Arc<Registry>,
    /// What was found at the start.
    pub meta: Meta,
    observer: Observer,
    roots: Roots,
}

impl Session {
    /// Connects to the targets, finds their devices and starts one thread a probe. An error means that a target
    /// cannot be watched at all; what merely cannot be seen is said by events.
    pub fn start(setup: Setup) -> Result<(Session, Receiver<Batch>), ProbeError> {
        let roots = setup.roots.clone();
        let mut meta = Meta { host: host::facts(&roots), anchors: vec![anchor()], ..Meta::default() };
        meta.written_by = format!("backwater {}", env!("CARGO_PKG_VERSION"));
        let watch = Arc::new(Watch::default());
        let mut probes: Vec<Box<dyn Probe>> = Vec::new();
        let mut behind = Vec::new();
        for text in setup.targets.iter().filter(|text| *text != "host") {
            if mongodb::is_uri(text) {
                for (probe, target) in connect_mongodb(text, &setup)? {
                    not_twice(&meta, &target)?;
                    behind.extend(probe.behind());
                    probes.push(Box::new(probe));
                    meta.targets.push(target);
                }
                continue;
            }
            let (probe, mut target) = connect(text, &setup)?;
            not_twice(&meta, &target)?;
            if setup.heartbeat {
                let limit = setup.heartbeat_timeout.unwrap_or(HEARTBEAT_TIMEOUT);
                target.heartbeat_timeout_s = Some(limit.as_secs_f64());
                probes.push(Box::new(probe.heartbeat(limit, meta.host.hostname.as_deref())?));
            }
            if let Some(postmaster_pid) = target.postmaster_pid {
                watch.add_server(Server { target: target.name.clone(), postmaster_pid });
            }
            probes.push(Box::new(probe));
            meta.targets.push(target);
        }
        for (probe, target) in members_of_shards(behind, &meta, &roots) {
            probes.push(Box::new(probe));
            meta.targets.push(target);
        }
        locate_devices(&setup, &mut meta);
        for device in &meta.devices {
            watch.add_device(&roots, &device.dev);
        }
        if meta.targets.is_empty() {
            watch.add_mounted_devices(&roots);
        }
        probes.extend(host::probes(&roots, &watch));
        probes.push(Box::new(Declared::new(&setup.volumes, &meta)));
        probes.push(Box::new(Postmasters::new(&meta, &watch)));
        meta.declared_volumes = setup.volumes;
        let registry = Arc::new(Registry::new());
        let (observer, batches) = Observer::start(probes, &registry)?;
        Ok((Session { registry, meta, observer, roots }, batches))
    }

    /// One more probe.
    pub fn add(&mut self, probe: Box<dyn Probe>) -> Result<(), ProbeError> {
        self.observer.add(probe, &self.registry)
    }

    /// Puts a batch into the stream.
    pub fn send(&self, batch: Batch) {
        self.observer.source().send(batch);
    }

    /// Puts a batch into the stream, waiting for room if need be: for what must not be lost, such as marks.
    pub fn insist(&self, batch: Batch) {
        self.observer.source().insist(batch);
    }

    /// Lets every probe finish its look, then ends.
    pub fn stop(self) {
        self.observer.stop();
    }

    /// Readings of this process itself, for the recorder to take each second.
    pub fn self_readings(&self) -> Box<dyn FnMut(Moment) -> Batch + Send> {
        let (registry, roots, source) = (Arc::clone(&self.registry), self.roots.clone(), self.observer.source());
        let epoch = Epoch::of(&["process", &std::process::id().to_string(), &now().0.to_string()]);
        Box::new(move |at| {
            let (mut batch, mut absences) = (Batch::default(), HashSet::new());
            let mut sink = Sink::new(at, &registry, &mut batch, &mut absences);
            sink.put::<&str>(&catalogue::SELF_DROPPED, &[], epoch, source.dropped() as f64);
            if let Some((cpu_s, memory_bytes)) = host::own_usage(&roots) {
                sink.put::<&str>(&catalogue::SELF_CPU, &[], epoch, cpu_s);
                sink.put::<&str>(&catalogue::SELF_MEMORY, &[], epoch, memory_bytes as f64);
            }
            batch
        })
    }
}

/// Two probes of one server would write the same series, and every session twice.
fn not_twice(meta: &Meta, target: &Target) -> Result<(), ProbeError> {
    if meta.targets.iter().any(|known| known.name == target.name) {
        let name = &target.name;
        let why = format!("{name} is given twice; one target a server is enough, it shows all of its databases");
        return Err(ProbeError::Connect(why));
    }
    Ok(())
}

/// Every server of a connection string that can be watched. One that cannot is said and left out as long as another can:
/// whoever looks at a replica set in trouble wants to see the rest of it.
fn connect_mongodb(text: &str, setup: &Setup) -> Result<Vec<(MongoProbe, Target)>, ProbeError> {
    if setup.heartbeat {
        let why = "heartbeats are for PostgreSQL: leave out --heartbeat, or the MongoDB target";
        return Err(ProbeError::Connect(why.to_owned()));
    }
    let (mut watched, mut failed) = (Vec::new(), Vec::new());
    for connected in connect_all(mongodb::servers(text, &|name| std::env::var(name).ok())?, &setup.roots) {
        match connected {
            Ok(connected) => watched.push(connected),
            Err(error) => {
                tracing::warn!("not watched: {error}");
                failed.push(error);
            }
        }
    }
    if watched.is_empty()
        && let Some(first) = failed.into_iter().next()
    {
        return Err(first);
    }
    Ok(watched)
}

/// Members of shards behind routers, but for those that are watched already. One that cannot be watched is said and left out:
/// the router's users are not the shards' own.
fn members_of_shards(servers: Vec<MongoServer>, meta: &Meta, roots: &Roots) -> Vec<(MongoProbe, Target)> {
    let mut names: BTreeSet<String> = meta.targets.iter().map(|target| target.name.clone()).collect();
    let new: Vec<MongoServer> = servers.into_iter().filter(|server| names.insert(server.name.clone())).collect();
    let connected = connect_all(new, roots).into_iter().filter_map(|connected| match connected {
        Ok(connected) => Some(connected),
        Err(error) => {
            tracing::warn!("a shard's member is not watched: {error}");
            None
        }
    });
    connected.collect()
}

/// Several servers, in their order. At once: one that is gone without a word takes seconds, and a cluster has dozens.
fn connect_all(servers: Vec<MongoServer>, roots: &Roots) -> Vec<Result<(MongoProbe, Target), ProbeError>> {
    let mut connected = Vec::new();
    let mut servers = servers.into_iter().peekable();
    while servers.peek().is_some() {
        std::thread::scope(|scope| {
            let some = servers.by_ref().take(CONNECTED_AT_ONCE);
            let begun: Vec<_> = some.map(|server| scope.spawn(|| MongoProbe::connect(server, roots))).collect();
            let ended = begun.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            connected.extend(ended);
        });
    }
    connected
}

fn connect(text: &str, setup: &Setup) -> Result<(PostgresProbe, Target), ProbeError> {
    let conninfo = ConnInfo::parse(text, &|name| std::env::var(name).ok())?;
    let mut options = PostgresOptions {
        keep_query_text: setup.keep_query_text,
        roots: setup.roots.clone(),
        ..PostgresOptions::default()
    };
    if let Some(period) = setup.session_period {
        options.session_period = period.max(SHORTEST_SESSION_PERIOD);
    }
    PostgresProbe::connect(conninfo, options)
}

/// Collects the devices that matter: those that the targets' data and WAL lie on, and those of other directories.
fn locate_devices(setup: &Setup, meta: &mut Meta) {
    let mut found = Found { roots: &setup.roots, devices: Vec::new() };
    for target in &meta.targets {
        for (dev, role) in [(&target.data_device, Role::Data), (&target.wal_device, Role::Wal)] {
            if let Some(dev) = dev {
                found.add(host::device(found.roots, dev), role, &target.name);
            }
        }
    }
    for directory in &setup.directories {
        match host::locate(&setup.roots, directory) {
            Ok(device) => found.add(device, Role::Recording, ""),
            Err(error) => tracing::debug!(%error, "a directory lies on no device that can be found"),
        }
    }
    meta.devices = found.devices;
}

struct Found<'a> {
    roots: &'a Roots,
    devices: Vec<Device>,
}

impl Found<'_> {
    fn add(&mut self, device: Device, role: Role, target: &str) {
        let role = (role, target.to_owned());
        match self.devices.iter_mut().find(|known| known.dev == device.dev) {
            Some(known) => known.roles.push(role),
            None => self.devices.push(Device { roles: vec![role], ..device }),
        }
    }
}

/// Says what the user told of the volumes, so that rules read it like any other ceiling.
struct Declared {
    ratings: Vec<(String, DeclaredVolume)>,
}

impl Declared {
    /// A rating without a device is that of every data directory's device.
    fn new(volumes: &[DeclaredVolume], meta: &Meta) -> Self {
        let data = || meta.targets.iter().filter_map(|target| target.data_device.clone());
        let mut ratings = Vec::new();
        for volume in volumes {
            let matching: Vec<String> = match &volume.device {
                None => data().collect(),
                Some(name) => {
                    meta.devices.iter().filter(|device| is_called(device, name)).map(|d| d.dev.clone()).collect()
                }
            };
            if matching.is_empty() {
                let device = volume.device.as_deref().unwrap_or("the data directory's");
                tracing::warn!(device, "a volume was declared that holds nothing that is watched");
            }
            ratings.extend(matching.into_iter().map(|dev| (dev, volume.clone())));
        }
        Declared { ratings }
    }
}

fn is_called(device: &Device, name: &str) -> bool {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    device.dev == name || device.name == short || device.mount_points.iter().any(|point| point == name)
}

impl Probe for Declared {
    fn name(&self) -> &str {
        "host.volume"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        for (dev, rating) in &self.ratings {
            let values = [
                (&catalogue::VOLUME_IOPS, rating.iops),
                (&catalogue::VOLUME_BPS, rating.bytes_per_s),
                (&catalogue::VOLUME_BURST_IOPS, rating.burst_iops),
            ];
            for (def, value) in values {
                if let Some(value) = value {
                    sink.put(def, &[("dev", dev)], Epoch::default(), value);
                }
            }
        }
        Ok(())
    }
}

/// Notices that a server was started anew, so that its processes are looked for below its new postmaster.
struct Postmasters {
    /// Targets and their postmaster.pid.
    files: Vec<(String, PathBuf)>,
    watch: Arc<Watch>,
}

impl Postmasters {
    fn new(meta: &Meta, watch: &Arc<Watch>) -> Self {
        let local = meta.targets.iter().filter(|target| target.local);
        let file = |target: &Target| {
            Some((target.name.clone(), Path::new(target.data_directory.as_ref()?).join("postmaster.pid")))
        };
        Postmasters { files: local.filter_map(file).collect(), watch: Arc::clone(watch) }
    }
}

impl Probe for Postmasters {
    fn name(&self) -> &str {
        "postmaster"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn read(&mut self, _sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        for (target, path) in &self.files {
            // Not readable, or not there while the server is down: what was known before stays.
            let Ok(text) = std::fs::read_to_string(path) else { continue };
            if let Some(postmaster_pid) = text.lines().next().and_then(|line| line.trim().parse().ok()) {
                self.watch.add_server(Server { target: target.clone(), postmaster_pid });
            }
        }
        Ok(())
    }
}

/// Facts of this host alone, for outcomes.
pub fn this_host() -> HostFacts {
    host::facts(&Roots::default())
}
