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
    pub fn change(&self, change: impl FnOnce(&mut Meta)) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Nothing is put back half changed: whoever panics here has changed a copy, or what nobody else holds.
        change(Arc::make_mut(&mut known));
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
    /// A server is met of which only a name was known, another one where its address names several servers.
    ///
    /// # Errors
    /// It is watched already.
    pub(super) fn meet(&self, name: &str, target: Target) -> Result<(), ProbeError> {
        if target.name != name {
            not_twice(&self.known.meta(), &target.name)?;
        }
        self.watch_processes_of(&target);
        self.known.change(|meta| {
            add_devices_of(&self.roots, &target, &mut meta.devices);
            if let Some(known) = meta.targets.iter_mut().find(|known| known.name == name) {
                *known = Target { heartbeat_timeout_s: known.heartbeat_timeout_s, ..target };
            }
        });
        let meta = self.known.meta();
        meta.devices.iter().for_each(|device| self.watch.add_device(&self.roots, &device.dev));
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

/// Two probes of one server would write the same series, and every session twice.
///
/// # Errors
/// A server of this name is watched.
pub(super) fn not_twice(meta: &Meta, name: &str) -> Result<(), ProbeError> {
    if meta.targets.iter().any(|known| known.name == name) {
        let why = format!("{name} is given twice; one target a server is enough, it shows all of its databases");
        return Err(ProbeError::Connect(why));
    }
    Ok(())
}
