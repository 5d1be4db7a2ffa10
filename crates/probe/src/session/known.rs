//! What is known of what is watched, which grows as servers are met that were away at the start.

use crate::ProbeError;
use crate::host::{self, Roots, Server, Watch};
use backwater_model::{Device, Meta, Role, Target};
use std::sync::{Arc, PoisonError, RwLock};

/// What is known of host, servers and devices now. Cheap to clone: all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<RwLock<Arc<Meta>>>);

impl Known {
    /// What is known now. Another value than before where something was learned.
    pub fn meta(&self) -> Arc<Meta> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds to it.
    pub fn change<T>(&self, change: impl FnOnce(&mut Meta) -> T) -> T {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A copy, so that a panic puts back nothing that is half changed.
        let mut changed = Meta::clone(&known);
        let result = change(&mut changed);
        *known = Arc::new(changed);
        result
    }
}

/// Where what is learned of a server that is met goes.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    pub(super) known: Known,
    pub(super) watch: Arc<Watch>,
    pub(super) roots: Roots,
}

impl Arrivals {
    /// A server is met of which only the name was known.
    ///
    /// # Errors
    /// It is watched already.
    pub(super) fn meet(&self, target: &Target) -> Result<(), ProbeError> {
        let mut devices = Vec::new();
        add_devices_of(&self.roots, target, &mut devices);
        self.known.change(|meta| {
            not_twice(meta.targets.iter().filter(|known| known.name != target.name), target)?;
            for device in &devices {
                device.roles.iter().for_each(|role| add_device(device.clone(), role.clone(), &mut meta.devices));
            }
            if let Some(known) = meta.targets.iter_mut().find(|known| known.name == target.name) {
                *known = Target { heartbeat_timeout_s: known.heartbeat_timeout_s, ..target.clone() };
            }
            Ok::<(), ProbeError>(())
        })?;
        self.watch_processes_of(target);
        devices.iter().for_each(|device| self.watch.add_device(&self.roots, &device.dev));
        Ok(())
    }

    /// Has a server's processes looked for where they are this host's.
    pub(super) fn watch_processes_of(&self, target: &Target) {
        if let Some(postmaster_pid) = target.postmaster_pid {
            self.watch.add_server(Server { target: target.name.clone(), postmaster_pid });
        }
    }
}

/// Adds the devices that a server's data and WAL lie on, or what they are for to those that are known.
pub(super) fn add_devices_of(roots: &Roots, target: &Target, devices: &mut Vec<Device>) {
    for (dev, role) in [(&target.data_device, Role::Data), (&target.wal_device, Role::Wal)] {
        if let Some(dev) = dev {
            add_device(host::device(roots, dev), (role, target.name.clone()), devices);
        }
    }
}

pub(super) fn add_device(device: Device, role: (Role, String), devices: &mut Vec<Device>) {
    match devices.iter_mut().find(|known| known.dev == device.dev) {
        Some(known) => known.roles.push(role),
        None => devices.push(Device { roles: vec![role], ..device }),
    }
}

/// Two probes of one server would write the same series, or under two names every session twice.
///
/// # Errors
/// A server of this name is among the known ones, or one with the same processes.
pub(super) fn not_twice<'a>(known: impl IntoIterator<Item = &'a Target>, target: &Target) -> Result<(), ProbeError> {
    let same = |known: &&Target| {
        let processes = known.postmaster_pid.is_some() && known.postmaster_pid == target.postmaster_pid;
        known.name == target.name || processes
    };
    let Some(known) = known.into_iter().find(same) else { return Ok(()) };
    let also = if known.name == target.name { String::new() } else { format!(", the second time as {}", target.name) };
    let name = &known.name;
    let why = format!("{name} is given twice{also}; one target a server is enough, it shows all of its databases");
    Err(ProbeError::Connect(why))
}
