//! What matters on this host: devices and servers, added while the probes run.

use super::device::family;
use super::mounts::mounts_of;
use super::{Roots, task, text};
use backwater_model::Moment;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A server that runs on this host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Server {
    /// Its name: the label `target` of its series.
    pub target: String,
    /// The postmaster's process id, as this host's `/proc` shows it.
    pub postmaster_pid: i32,
}

/// The devices and servers to read, shared by the probes and by whoever finds more of them.
#[derive(Debug, Default)]
pub struct Watch {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    devices: BTreeSet<String>,
    servers: BTreeSet<Server>,
    changes: u64,
    /// The children of postmasters as a look found them.
    children: HashMap<i32, (Moment, Arc<[i32]>)>,
}

impl Watch {
    /// Nothing is watched yet.
    pub fn new() -> Self {
        Watch::default()
    }

    /// Adds a device (`MAJ:MIN`), its whole device if it is a partition, and what lies behind a loop or
    /// device-mapper device.
    pub fn add_device(&self, roots: &Roots, dev: &str) {
        let found = family(roots, dev);
        let mut state = self.lock();
        for dev in found {
            let new = state.devices.insert(dev);
            state.changes += u64::from(new);
        }
    }

    /// Adds the device of every mounted file system: for a look at a host without servers.
    pub fn add_mounted_devices(&self, roots: &Roots) {
        let mounts = mounts_of(&roots.proc.join("self")).unwrap_or_default();
        for mount in mounts.iter().filter(|mount| !mount.dev.starts_with("0:") && text::is_device_number(&mount.dev)) {
            self.add_device(roots, &mount.dev);
        }
    }

    /// Adds a server, or gives a known one its new postmaster.
    pub fn add_server(&self, server: Server) {
        let mut state = self.lock();
        if !state.servers.contains(&server) {
            state.servers.retain(|known| known.target != server.target);
            state.servers.insert(server);
            state.changes += 1;
        }
    }

    /// Forgets a server.
    pub fn remove_server(&self, target: &str) {
        let mut state = self.lock();
        let before = state.servers.len();
        state.servers.retain(|known| known.target != target);
        state.changes += u64::from(state.servers.len() != before);
    }

    /// A server's surroundings (its control groups) are others than before: every probe is to look at them anew.
    pub(super) fn note_move(&self) {
        self.lock().changes += 1;
    }

    /// The watched devices as `MAJ:MIN`, in order.
    pub fn devices(&self) -> Vec<String> {
        self.lock().devices.iter().cloned().collect()
    }

    /// The watched servers in order of name.
    pub fn servers(&self) -> Vec<Server> {
        self.lock().servers.iter().cloned().collect()
    }

    /// How often something was added, removed or moved: a probe that has seen this number need not look again.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// The process ids of a server's children at this look, listed once for all who look then: of hundreds the kernel makes the
    /// list one by one.
    pub(super) fn children(&self, roots: &Roots, server: &Server, at: Moment) -> Arc<[i32]> {
        let known = self.lock().children.get(&server.postmaster_pid).filter(|(then, _)| *then == at).cloned();
        if let Some((_, children)) = known {
            return children;
        }
        let children: Arc<[i32]> = task::children(roots, server.postmaster_pid).into();
        let mut state = self.lock();
        state.children.retain(|_, (then, _)| *then == at);
        state.children.insert(server.postmaster_pid, (at, Arc::clone(&children)));
        children
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is let go, so a panic elsewhere leaves a usable state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_listed_once_a_look() {
        let (roots, watch) = crate::host::testing::fixture("capped");
        let server = Server { target: "main".into(), postmaster_pid: 10_911 };
        let children = |at| watch.children(&roots, &server, Moment(at));
        let first = children(1);
        assert_eq!(*first, [11_173]);
        assert!(Arc::ptr_eq(&first, &children(1)));
        assert!(!Arc::ptr_eq(&first, &children(2)), "another look");
    }

    #[test]
    fn a_server_has_one_postmaster_and_changes_are_counted() {
        let watch = Watch::new();
        let server = |pid| Server { target: "a".into(), postmaster_pid: pid };
        watch.add_server(server(1));
        watch.add_server(server(1));
        assert_eq!(watch.changes(), 1);
        watch.add_server(server(2));
        assert_eq!(watch.servers(), [server(2)]);
        watch.remove_server("b");
        watch.remove_server("a");
        assert_eq!((watch.changes(), watch.servers().len()), (3, 0));
    }

    #[test]
    fn an_unknown_device_is_watched_all_the_same() {
        let watch = Watch::new();
        watch.add_device(&Roots::under("/nonexistent".as_ref()), "8:0");
        assert_eq!(watch.devices(), ["8:0"]);
    }
}
