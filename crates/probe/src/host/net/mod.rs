//! Network interfaces: what each sent and received, what stands in its queueing discipline, and how fast its shaper
//! and its device are. Of the host, and of every network namespace that a watched server runs in.
//!
//! The counters are shown to everybody (`/proc/PID/net/dev`); queues and shapers have to be asked for inside the
//! namespace, which only root may enter where it is not this process' own.

mod addresses;
mod dev;
mod route;
mod shaper;
mod space;
mod wire;

use super::netlink::{namespace_of, own_namespace};
use super::{Roots, Watch, file};
use crate::{Probe, ProbeError, Sink};
pub(in crate::host) use addresses::Addresses;
use space::Space;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The label `target` of the host's own interfaces.
const HOST: &str = "host";
/// What changes rarely (numbers of interfaces, classes, speeds) is read at every so many looks.
const LOOKS_PER_SURVEY: u32 = 10;

/// Reads the interfaces of the host and of the watched servers' network namespaces.
#[derive(Debug)]
pub(super) struct Interfaces {
    roots: Roots,
    watch: Arc<Watch>,
    boot: String,
    /// By inode of the namespace; none is where it cannot be told.
    spaces: BTreeMap<Option<u64>, Space>,
    looks: u32,
}

impl Interfaces {
    pub(super) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        let (roots, watch, boot) = (roots.clone(), Arc::clone(watch), file::boot_id(roots));
        Interfaces { roots, watch, boot, spaces: BTreeMap::new(), looks: 0 }
    }

    /// The namespaces of now, each with the names under which its interfaces are given. A server in the host's own has
    /// its name beside the host's, so that a reader finds a server's interfaces under its name wherever it runs.
    fn refresh(&mut self, sink: &mut Sink<'_>) {
        let mut before = std::mem::take(&mut self.spaces);
        let own = own_namespace();
        let mut enter = |inode: Option<u64>, pid: Option<i32>, name: &str| {
            let kept = before.remove(&inode).filter(|space| space.is_of(pid));
            let fresh = || Space::new(&self.roots, &self.boot, inode, pid);
            let space = self.spaces.entry(inode).or_insert_with(|| {
                let mut space = kept.unwrap_or_else(fresh);
                space.targets.clear();
                space
            });
            space.targets.push(name.to_owned());
        };
        enter(own, None, HOST);
        for server in self.watch.servers() {
            match namespace_of(&self.roots, server.postmaster_pid) {
                Ok(inode) if Some(inode) == own => enter(own, None, &server.target),
                Ok(inode) => enter(Some(inode), Some(server.postmaster_pid), &server.target),
                Err(error) => {
                    file::tell_absent(sink, &format!("network interfaces of {}", server.target), &error, None);
                }
            }
        }
    }
}

impl Probe for Interfaces {
    fn name(&self) -> &str {
        "host.net"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.refresh(sink);
        let survey = self.looks.is_multiple_of(LOOKS_PER_SURVEY);
        self.looks = self.looks.wrapping_add(1);
        for space in self.spaces.values_mut() {
            space.read(sink, survey);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

/// Reads bytes as what the kernel tells of interfaces. For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn exercise(bytes: &[u8]) {
    assert!(dev::busiest(&String::from_utf8_lossy(bytes), 3).len() <= 3);
    let _ = (wire::link(bytes), wire::discipline(bytes), wire::class(bytes));
}
