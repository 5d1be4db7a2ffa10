//! What is told or looked up every few seconds, of whatever is known by then.

use super::known::Known;
use crate::host::{Server, Watch};
use crate::{Probe, ProbeError, Sink};
use backwater_model::{DeclaredVolume, Device, Epoch, Meta, catalogue};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Says what the user told of the volumes, so that rules read it like any other ceiling.
pub(super) struct Declared {
    known: Known,
    /// The volumes of which it was said that nothing on them is watched.
    nowhere: HashSet<Option<String>>,
}

impl Declared {
    pub(super) fn new(known: &Known) -> Self {
        Declared { known: known.clone(), nowhere: HashSet::new() }
    }
}

/// The devices that a rating is of. One without a device is that of every data directory's.
fn rated<'a>(volume: &DeclaredVolume, meta: &'a Meta) -> Vec<&'a str> {
    match &volume.device {
        None => meta.targets.iter().filter_map(|target| target.data_device.as_deref()).collect(),
        Some(name) => {
            meta.devices.iter().filter(|device| is_called(device, name)).map(|device| device.dev.as_str()).collect()
        }
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
        let meta = self.known.meta();
        for volume in &meta.declared_volumes {
            let devices = rated(volume, &meta);
            if devices.is_empty() && self.nowhere.insert(volume.device.clone()) {
                let device = volume.device.as_deref().unwrap_or("the data directory's");
                tracing::warn!(device, "a volume was declared that holds nothing that is watched");
            }
            let values = [
                (&catalogue::VOLUME_IOPS, volume.iops),
                (&catalogue::VOLUME_BPS, volume.bytes_per_s),
                (&catalogue::VOLUME_BURST_IOPS, volume.burst_iops),
            ];
            for (def, value) in values {
                let Some(value) = value else { continue };
                devices.iter().for_each(|dev| sink.put(def, &[("dev", *dev)], Epoch::default(), value));
            }
        }
        Ok(())
    }
}

/// Notices that a server was started anew, so that its processes are looked for below its new postmaster.
pub(super) struct Postmasters {
    known: Known,
    watch: Arc<Watch>,
}

impl Postmasters {
    pub(super) fn new(known: &Known, watch: &Arc<Watch>) -> Self {
        Postmasters { known: known.clone(), watch: Arc::clone(watch) }
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
        for target in self.known.meta().targets.iter().filter(|target| target.local) {
            let Some(directory) = &target.data_directory else { continue };
            // Not readable, or not there while the server is down: what was known before stays.
            let Ok(text) = std::fs::read_to_string(Path::new(directory).join("postmaster.pid")) else { continue };
            if let Some(postmaster_pid) = text.lines().next().and_then(|line| line.trim().parse().ok()) {
                self.watch.add_server(Server { target: target.name.clone(), postmaster_pid });
            }
        }
        Ok(())
    }
}
