//! Everything that is to be watched, put together: the host, the servers, their devices; what they say of themselves;
//! one stream of batches.

mod awaited;
mod known;
mod told;
mod wanted;

use crate::host::{self, Roots};
use crate::mongodb::MongoServer;
use crate::postgres::Heartbeat;
use crate::{Observer, Probe, ProbeError, Sink, anchor, now};
use awaited::Awaited;
use backwater_model::{
    Batch, DeclaredVolume, Device, Epoch, HostFacts, Meta, Moment, Registry, Role, Target, catalogue,
};
pub use known::Known;
use known::{Arrivals, add_device, add_devices_of, not_twice};
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use told::{Declared, Postmasters};
use wanted::{Beats, BeatsAway, Met, Wanted, reach_all};

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
    /// Ask servers at every look, and do not read their shared memory.
    pub no_shared_memory: bool,
}

/// A failover manager's patience with one check.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// Sessions are looked at a hundred times a second at most.
const SHORTEST_SESSION_PERIOD: Duration = Duration::from_millis(10);

/// A running observation.
#[derive(Debug)]
pub struct Session {
    /// Names of all series.
    pub registry: Arc<Registry>,
    known: Known,
    observer: Observer,
    roots: Roots,
}

impl Session {
    /// Connects to the targets, finds their devices and starts one thread a probe. A target that is away is reached for
    /// until it is there as long as another one is met: whoever begins to record in the midst of trouble wants to see the rest of it.
    ///
    /// # Errors
    /// What kept a target from being watched at all, or the only ones from being met. What merely cannot be seen is said by events.
    pub fn start(setup: Setup) -> Result<(Session, Receiver<Batch>), ProbeError> {
        let mut begun = Begun::new(&setup);
        let hostname = begun.meta.host.hostname.clone();
        let mut wanted = Vec::new();
        for (place, text) in setup.targets.iter().enumerate().filter(|(_, text)| *text != "host") {
            let servers = wanted::servers(text, &setup, hostname.as_deref());
            wanted.push(servers.map_err(|error| of_which(error, place, setup.targets.len()))?);
        }
        begun.meet(wanted)?;
        begun.meet_members_of_shards()?;
        let Begun { mut meta, mut probes, arrivals, .. } = begun;
        let Arrivals { known, watch, roots } = arrivals;
        meta.devices = devices(&setup, &meta.targets);
        for device in &meta.devices {
            watch.add_device(&roots, &device.dev);
        }
        if meta.targets.is_empty() {
            watch.add_mounted_devices(&roots);
        }
        meta.declared_volumes = setup.volumes;
        known.change(|nothing| *nothing = meta);
        probes.extend(host::probes(&roots, &watch));
        probes.push(Box::new(Declared::new(&known)));
        probes.push(Box::new(Postmasters::new(&known, &watch)));
        let registry = Arc::new(Registry::new());
        let (observer, batches) = Observer::start(probes, &registry)?;
        Ok((Session { registry, known, observer, roots }, batches))
    }

    /// What is known now of host, servers and devices.
    pub fn meta(&self) -> Arc<Meta> {
        self.known.meta()
    }

    /// The same for whoever goes on asking.
    pub fn known(&self) -> &Known {
        &self.known
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

/// An address that cannot be understood is not repeated, for the password in it: it is told by its place.
fn of_which(error: ProbeError, place: usize, count: usize) -> ProbeError {
    if count < 2 { error } else { ProbeError::Connect(format!("address {} of {count}: {error}", place + 1)) }
}

/// What was met so far.
struct Begun {
    meta: Meta,
    probes: Vec<Box<dyn Probe>>,
    arrivals: Arrivals,
    /// What is behind routers.
    behind: Vec<MongoServer>,
}

impl Begun {
    fn new(setup: &Setup) -> Self {
        let roots = setup.roots.clone();
        let mut meta = Meta { host: host::facts(&roots), anchors: vec![anchor()], ..Meta::default() };
        meta.written_by = format!("backwater {}", env!("CARGO_PKG_VERSION"));
        let arrivals = Arrivals { known: Known::default(), watch: Arc::default(), roots };
        Begun { meta, probes: Vec::new(), arrivals, behind: Vec::new() }
    }

    /// Meets the servers of each connection string. One of several in a string that lets nobody in is said and left out as long
    /// as another can be watched: whoever looks at a replica set in trouble wants to see the rest of it.
    fn meet(&mut self, strings: Vec<Vec<Wanted>>) -> Result<(), ProbeError> {
        let sizes: Vec<usize> = strings.iter().map(Vec::len).collect();
        let mut reached = reach_all(strings.into_iter().flatten().collect()).into_iter();
        let (mut away, mut refused) = (Vec::new(), Vec::new());
        for size in sizes {
            let mut refusals = Vec::new();
            for (wanted, met) in reached.by_ref().take(size) {
                match met {
                    Ok(met) => self.add(met)?,
                    Err(error) if error.is_away() => {
                        self.wait_for(wanted)?;
                        away.push(error);
                    }
                    Err(error) => refusals.push(error),
                }
            }
            if refusals.len() == size {
                return refusals.into_iter().next().map_or(Ok(()), Err);
            }
            refused.extend(refusals);
        }
        if !self.meta.targets.is_empty() && away.len() == self.meta.targets.len() {
            return refused.into_iter().chain(away).next().map_or(Ok(()), Err);
        }
        refused.iter().for_each(|why| tracing::warn!("not watched: {why}"));
        away.iter().for_each(|why| tracing::warn!("a server is away, and reached for until it is there: {why}"));
        Ok(())
    }

    /// Members of shards behind routers, but for those that are watched already. One that cannot be watched is said and left out:
    /// neither the router's users nor its names of hosts need be good here.
    fn meet_members_of_shards(&mut self) -> Result<(), ProbeError> {
        let mut names: BTreeSet<String> = self.meta.targets.iter().map(|target| target.name.clone()).collect();
        let behind = std::mem::take(&mut self.behind);
        let new = behind.into_iter().filter(|server| names.insert(server.name.clone()));
        let members = new.map(|server| wanted::mongodb(server, &self.arrivals.roots)).collect();
        for (_, met) in reach_all(members) {
            match met {
                Ok(met) => self.add(met)?,
                Err(error) => tracing::warn!("a shard's member is not watched: {error}"),
            }
        }
        Ok(())
    }

    fn add(&mut self, met: Met) -> Result<(), ProbeError> {
        let Met { probe, mut target, heartbeat, behind } = met;
        target.heartbeat_timeout_s = heartbeat.as_ref().map(Heartbeat::limit_s);
        not_twice(&self.meta.targets, &target)?;
        self.arrivals.watch_processes_of(&target);
        self.meta.targets.push(target);
        self.probes.push(probe);
        self.probes.extend(heartbeat.map(|heartbeat| Box::new(heartbeat) as Box<dyn Probe>));
        self.behind.extend(behind);
        Ok(())
    }

    fn wait_for(&mut self, mut wanted: Wanted) -> Result<(), ProbeError> {
        let name = &wanted.target.name;
        match &wanted.beats {
            BeatsAway::On(info, Beats { limit, hostname }) => {
                let heartbeat = Heartbeat::new(name, info, *limit, hostname.as_deref())?;
                wanted.target.heartbeat_timeout_s = Some(heartbeat.limit_s());
                self.probes.push(Box::new(heartbeat));
            }
            BeatsAway::Nowhere => {
                tracing::warn!(
                    "{name} is away, and which of these it will be is not known: no heartbeat until the next start"
                );
            }
            BeatsAway::Unwanted => {}
        }
        not_twice(&self.meta.targets, &wanted.target)?;
        self.meta.targets.push(wanted.target.clone());
        self.probes.push(Box::new(Awaited::new(wanted, self.arrivals.clone())));
        Ok(())
    }
}

/// The devices that matter: those that the targets' data and WAL lie on, and those of other directories.
fn devices(setup: &Setup, targets: &[Target]) -> Vec<Device> {
    let mut devices = Vec::new();
    targets.iter().for_each(|target| add_devices_of(&setup.roots, target, &mut devices));
    for directory in &setup.directories {
        match host::locate(&setup.roots, directory) {
            Ok(device) => add_device(device, (Role::Recording, String::new()), &mut devices),
            Err(error) => tracing::debug!(%error, "a directory lies on no device that can be found"),
        }
    }
    devices
}

/// Facts of this host alone, for outcomes.
pub fn this_host() -> HostFacts {
    host::facts(&Roots::default())
}
