//! Everything that is to be watched, put together: the host, the servers, their devices; what they say of themselves;
//! one stream of batches.

use crate::host::{self, Roots, Watch};
use crate::postgres::{ConnInfo, PostgresOptions, PostgresProbe};
use crate::{Observer, Probe, ProbeError, Sink, anchor, now};
use backwater_model::{
    Batch, DeclaredVolume, Device, Epoch, HostFacts, Meta, Moment, Registry, Role, Target, catalogue,
};
use std::collections::HashSet;
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
}

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
        for text in setup.targets.iter().filter(|text| *text != "host") {
            let (probe, target) = connect(text, &setup, &watch)?;
            probes.push(Box::new(probe));
            meta.targets.push(target);
        }
        locate_devices(&setup, &mut meta);
        for device in &meta.devices {
            watch.add_device(device);
        }
        probes.extend(host::probes(&roots, &watch));
        probes.push(Box::new(Declared::new(&setup.volumes, &meta)));
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
            let (cpu_s, memory_bytes) = host::own_usage(&roots);
            sink.put::<&str>(&catalogue::SELF_DROPPED, &[], epoch, source.dropped() as f64);
            if let Some(cpu_s) = cpu_s {
                sink.put::<&str>(&catalogue::SELF_CPU, &[], epoch, cpu_s);
            }
            if let Some(memory_bytes) = memory_bytes {
                sink.put::<&str>(&catalogue::SELF_MEMORY, &[], epoch, memory_bytes as f64);
            }
            batch
        })
    }
}

fn connect(text: &str, setup: &Setup, watch: &Arc<Watch>) -> Result<(PostgresProbe, Target), ProbeError> {
    let conninfo = ConnInfo::parse(text, &|name| std::env::var(name).ok())?;
    let options = PostgresOptions {
        keep_query_text: setup.keep_query_text,
        roots: setup.roots.clone(),
        watch: Some(Arc::clone(watch)),
        ..PostgresOptions::default()
    };
    PostgresProbe::connect(conninfo, options)
}

/// Ties data directories and pg_wal to their devices.
fn locate_devices(setup: &Setup, meta: &mut Meta) {
    let mut found: Vec<Device> = Vec::new();
    for target in &mut meta.targets {
        let Some(data) = target.data_directory.clone().filter(|_| target.local) else { continue };
        let data = PathBuf::from(data);
        target.data_device = place(&setup.roots, &data, Role::Data, &target.name, &mut found);
        target.wal_device = place(&setup.roots, &data.join("pg_wal"), Role::Wal, &target.name, &mut found);
    }
    for directory in &setup.directories {
        place(&setup.roots, directory, Role::Recording, "", &mut found);
    }
    meta.devices = found;
}

fn place(roots: &Roots, path: &Path, role: Role, target: &str, found: &mut Vec<Device>) -> Option<String> {
    let device = host::locate(roots, path).inspect_err(|error| tracing::warn!(%error, "device not found")).ok()?;
    let dev = device.dev.clone();
    let entry = match found.iter_mut().position(|known| known.dev == dev) {
        Some(index) => &mut found[index],
        None => {
            found.push(device);
            found.last_mut()?
        }
    };
    entry.roles.push((role, target.to_owned()));
    Some(dev)
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
                Some(name) => meta.devices.iter().filter(|device| is_called(device, name)).map(|d| d.dev.clone()).collect(),
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

/// Facts of this host alone, for outcomes.
pub fn this_host() -> HostFacts {
    host::facts(&Roots::default())
}
