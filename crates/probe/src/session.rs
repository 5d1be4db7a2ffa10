//! Everything that is to be watched, put together: the host, the servers, their devices; what they say of themselves;
//! one stream of batches.

mod awaited;
mod known;
mod told;

use crate::host::{self, Roots};
use crate::mongodb::{self, MongoProbe, MongoServer};
use crate::postgres::{ConnInfo, Heartbeat, PostgresOptions, PostgresProbe};
use crate::{Observer, Probe, ProbeError, Sink, anchor, now};
use awaited::Awaited;
use backwater_model::{
    Batch, DeclaredVolume, Device, Epoch, HostFacts, Meta, Moment, Registry, Role, Target, catalogue,
};
pub use known::Known;
use known::{Arrivals, add_device, add_devices_of, not_twice};
use std::collections::{BTreeSet, HashSet};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use told::{Declared, Postmasters};

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
        for text in setup.targets.iter().filter(|text| *text != "host") {
            if mongodb::is_uri(text) {
                begun.mongodb(text)?;
            } else {
                begun.postgres(text)?;
            }
        }
        begun.members_of_shards()?;
        begun.unless_all_are_away()?;
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

/// What was met so far.
struct Begun<'a> {
    setup: &'a Setup,
    meta: Meta,
    probes: Vec<Box<dyn Probe>>,
    arrivals: Arrivals,
    /// What is behind routers.
    behind: Vec<MongoServer>,
    /// Why servers are away.
    away: Vec<ProbeError>,
}

impl<'a> Begun<'a> {
    fn new(setup: &'a Setup) -> Self {
        let roots = setup.roots.clone();
        let mut meta = Meta { host: host::facts(&roots), anchors: vec![anchor()], ..Meta::default() };
        meta.written_by = format!("backwater {}", env!("CARGO_PKG_VERSION"));
        let arrivals = Arrivals { known: Known::default(), watch: Arc::default(), roots };
        Begun { setup, meta, probes: Vec::new(), arrivals, behind: Vec::new(), away: Vec::new() }
    }

    fn postgres(&mut self, text: &str) -> Result<(), ProbeError> {
        let info = ConnInfo::parse(text, &|name| std::env::var(name).ok())?;
        for warning in info.warnings() {
            tracing::warn!("{warning}");
        }
        let options = options(self.setup);
        let limit = self.setup.heartbeat.then(|| self.setup.heartbeat_timeout.unwrap_or(HEARTBEAT_TIMEOUT));
        let host = self.meta.host.hostname.clone();
        let (mut target, heartbeat) = match PostgresProbe::connect(info.clone(), options.clone()) {
            Ok((probe, target)) => {
                let heartbeat = limit.map(|limit| probe.heartbeat(limit, host.as_deref()));
                self.probes.push(Box::new(probe));
                (target, heartbeat)
            }
            Err(error) if error.is_away() => {
                let heartbeat = limit.map(|limit| Heartbeat::of_first(&info, limit, host.as_deref()));
                let target = away("postgres", info.label());
                self.await_server(&target, options.session_period, error, move || {
                    let (probe, target) = PostgresProbe::connect(info.clone(), options.clone())?;
                    Ok((Box::new(probe) as Box<dyn Probe>, target))
                });
                (target, heartbeat)
            }
            Err(error) => return Err(error),
        };
        if let Some(heartbeat) = heartbeat.transpose()? {
            self.probes.push(Box::new(heartbeat));
            target.heartbeat_timeout_s = limit.map(|limit| limit.as_secs_f64());
        }
        self.add(target)
    }

    /// Every server of a connection string. One that may not be watched is said and left out as long as another may: whoever
    /// looks at a replica set in trouble wants to see the rest of it.
    fn mongodb(&mut self, text: &str) -> Result<(), ProbeError> {
        if self.setup.heartbeat {
            let why = "heartbeats are for PostgreSQL: leave out --heartbeat, or the MongoDB target";
            return Err(ProbeError::Connect(why.to_owned()));
        }
        let servers = mongodb::servers(text, &|name| std::env::var(name).ok())?;
        let (before, mut refused) = (self.meta.targets.len(), None);
        for (server, connected) in connect_all(servers, &self.arrivals.roots) {
            match connected {
                Ok((probe, target)) => {
                    self.behind.extend(probe.behind());
                    self.probes.push(Box::new(probe));
                    self.add(target)?;
                }
                Err(error) if error.is_away() => self.await_member(server, error)?,
                Err(error) => {
                    tracing::warn!("not watched: {error}");
                    refused = refused.or(Some(error));
                }
            }
        }
        refused.filter(|_| self.meta.targets.len() == before).map_or(Ok(()), Err)
    }

    /// Members of shards behind routers, but for those that are watched already. One that may not be watched is said and left out:
    /// the router's users are not the shards' own.
    fn members_of_shards(&mut self) -> Result<(), ProbeError> {
        let mut names: BTreeSet<String> = self.meta.targets.iter().map(|target| target.name.clone()).collect();
        let new = std::mem::take(&mut self.behind).into_iter().filter(|server| names.insert(server.name.clone()));
        for (server, connected) in connect_all(new.collect(), &self.arrivals.roots) {
            match connected {
                Ok((probe, target)) => {
                    self.probes.push(Box::new(probe));
                    self.add(target)?;
                }
                Err(error) if error.is_away() => self.await_member(server, error)?,
                Err(error) => tracing::warn!("a shard's member is not watched: {error}"),
            }
        }
        Ok(())
    }

    fn await_member(&mut self, server: MongoServer, why: ProbeError) -> Result<(), ProbeError> {
        let (target, roots) = (away("mongodb", server.name.clone()), self.arrivals.roots.clone());
        self.await_server(&target, MongoProbe::PERIOD, why, move || {
            let (probe, target) = MongoProbe::connect(server.clone(), &roots)?;
            if !probe.behind().is_empty() {
                tracing::warn!("{} is a router: what is behind it is watched from the next start on", target.name);
            }
            Ok((Box::new(probe) as Box<dyn Probe>, target))
        });
        self.add(target)
    }

    fn await_server(
        &mut self,
        target: &Target,
        period: Duration,
        why: ProbeError,
        reach: impl FnMut() -> Result<(Box<dyn Probe>, Target), ProbeError> + Send + 'static,
    ) {
        let (name, arrivals) = (target.name.clone(), self.arrivals.clone());
        self.probes.push(Box::new(Awaited::new(&target.kind, name, period, Box::new(reach), arrivals)));
        self.away.push(why);
    }

    /// Two probes of one server would write the same series, and every session twice.
    fn add(&mut self, target: Target) -> Result<(), ProbeError> {
        not_twice(&self.meta, &target.name)?;
        self.arrivals.watch_processes_of(&target);
        self.meta.targets.push(target);
        Ok(())
    }

    /// Says which servers are away; an error where no other is watched.
    fn unless_all_are_away(&mut self) -> Result<(), ProbeError> {
        let all = !self.away.is_empty() && self.away.len() == self.meta.targets.len();
        for why in self.away.drain(..) {
            if all {
                return Err(why);
            }
            tracing::warn!("{why}. It is tried again until it is there");
        }
        Ok(())
    }
}

/// What is known of a server that is away.
fn away(kind: &str, name: String) -> Target {
    Target { name, kind: kind.to_owned(), ..Target::default() }
}

/// A server with what connecting to it came to.
type Tried = (MongoServer, Result<(MongoProbe, Target), ProbeError>);

/// Several servers, in their order. At once: one that is gone without a word takes seconds, and a cluster has dozens.
fn connect_all(servers: Vec<MongoServer>, roots: &Roots) -> Vec<Tried> {
    let mut connected = Vec::new();
    let mut servers = servers.into_iter().peekable();
    while servers.peek().is_some() {
        std::thread::scope(|scope| {
            let some = servers.by_ref().take(CONNECTED_AT_ONCE);
            let connect = |server: MongoServer| (server.clone(), MongoProbe::connect(server, roots));
            let begun: Vec<_> = some.map(|server| scope.spawn(move || connect(server))).collect();
            let ended = begun.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            connected.extend(ended);
        });
    }
    connected
}

fn options(setup: &Setup) -> PostgresOptions {
    let mut options = PostgresOptions {
        keep_query_text: setup.keep_query_text,
        roots: setup.roots.clone(),
        ..PostgresOptions::default()
    };
    if let Some(period) = setup.session_period {
        options.session_period = period.max(SHORTEST_SESSION_PERIOD);
    }
    options
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
