//! What each process sent and received over TCP between two looks.

use super::counters::Counters;
use super::unseen::Hidden;
use crate::host::net::Addresses;
use crate::host::netlink::namespace_of;
use crate::host::tcp::{Diag, Socket, sockets_of};
use crate::host::{Roots, file};
use backwater_model::ProcessUse;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Network namespaces that are asked: a host of containers has as many as containers.
const MOST_NAMESPACES: usize = 256;
/// A socket whose owner was not found is looked for so often: it may be in nobody's hands, or in a hidden process'.
const MOST_SEARCHES: u32 = 3;
/// At so many looks all owners are searched anew: a socket may be handed on.
const LOOKS_PER_SEARCH: u32 = 30;

/// Running totals of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    sent_bytes: u64,
    received_bytes: u64,
    sent_segments: u64,
    received_segments: u64,
}

impl Totals {
    fn of(socket: &Socket) -> Totals {
        let info = &socket.info;
        Totals {
            sent_bytes: info.bytes_sent.or(info.bytes_acked).unwrap_or_default(),
            received_bytes: info.bytes_received.unwrap_or_default(),
            sent_segments: info.segments_out.unwrap_or_default().into(),
            received_segments: info.segments_in.unwrap_or_default().into(),
        }
    }

    fn since(self, before: Totals) -> Totals {
        Totals {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            // These have 32 bits in the kernel and begin anew.
            sent_segments: u64::from((self.sent_segments as u32).wrapping_sub(before.sent_segments as u32)),
            received_segments: u64::from((self.received_segments as u32).wrapping_sub(before.received_segments as u32)),
        }
    }

    fn add(&mut self, more: Totals) {
        self.sent_bytes += more.sent_bytes;
        self.received_bytes += more.received_bytes;
        self.sent_segments += more.sent_segments;
        self.received_segments += more.received_segments;
    }
}

/// What one process moved between two looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flow {
    moved: Totals,
    connections: u32,
    /// The other end of the busiest connection, and what that moved.
    peer: Option<(u64, String)>,
    /// By which interfaces bytes went.
    interfaces: BTreeSet<String>,
}

impl Flow {
    fn add(&mut self, socket: &Socket, step: Totals, interface: Option<&str>) {
        self.moved.add(step);
        let moved = step != Totals::default();
        if let Some(name) = interface.filter(|name| moved && !self.interfaces.contains(*name)) {
            self.interfaces.insert(name.to_owned());
        }
        self.connections += 1;
        let bytes = step.sent_bytes.saturating_add(step.received_bytes);
        if self.peer.as_ref().is_none_or(|(most, _)| bytes > *most) {
            self.peer = Some((bytes, socket.peer.to_string()));
        }
    }

    /// Puts the rates into a process' line.
    pub(super) fn put(&self, process: &mut ProcessUse, seconds: f64) {
        let rate = |total: u64| Some(total as f64 / seconds);
        process.sent_bytes_per_s = rate(self.moved.sent_bytes);
        process.received_bytes_per_s = rate(self.moved.received_bytes);
        process.sent_segments_per_s = rate(self.moved.sent_segments);
        process.received_segments_per_s = rate(self.moved.received_segments);
        process.connections = Some(self.connections);
        process.interfaces = self.interfaces.iter().cloned().collect();
        process.peer = self.peer.as_ref().map(|(_, peer)| peer.clone());
    }
}

/// All connections, their owners, and their totals as of the look before.
#[derive(Debug)]
pub(super) struct Sockets {
    roots: Roots,
    namespaces: HashMap<u64, Diag>,
    /// Of the same namespaces; none of one that does not say.
    addresses: HashMap<u64, Addresses>,
    owners: HashMap<u64, i32>,
    searched: HashMap<u64, u32>,
    before: HashMap<u64, Totals>,
    looks: u32,
}

impl Sockets {
    pub(super) fn new(roots: &Roots) -> Self {
        Sockets {
            roots: roots.clone(),
            namespaces: HashMap::new(),
            addresses: HashMap::new(),
            owners: HashMap::new(),
            searched: HashMap::new(),
            before: HashMap::new(),
            looks: 0,
        }
    }

    /// What each of these processes moved since the look before. A process whose sockets may be seen and that has none
    /// has moved nothing; one whose sockets may not be seen is left out.
    pub(super) fn look(&mut self, processes: &HashMap<i32, Counters>, hidden: &mut Hidden) -> HashMap<i32, Flow> {
        let (sockets, baseline) = self.connections(processes, hidden);
        self.survey_addresses();
        let seen = self.find_owners(&sockets, processes, hidden);
        let mut flows: HashMap<i32, Flow> = seen.into_iter().map(|pid| (pid, Flow::default())).collect();
        let mut now = HashMap::with_capacity(sockets.len());
        for (socket, namespace) in &sockets {
            let totals = Totals::of(socket);
            now.insert(socket.inode, totals);
            // A connection of a namespace that is met for the first time may be old.
            let fresh = if baseline.contains(namespace) { totals } else { Totals::default() };
            let step = totals.since(self.before.get(&socket.inode).copied().unwrap_or(fresh));
            if let Some(flow) = self.owners.get(&socket.inode).and_then(|pid| flows.get_mut(pid)) {
                let addresses = self.addresses.get(namespace);
                flow.add(socket, step, addresses.and_then(|all| all.of(socket.local, socket.peer)));
            }
        }
        self.owners.retain(|inode, _| now.contains_key(inode));
        self.searched.retain(|inode, _| now.contains_key(inode));
        self.before = now;
        self.looks = self.looks.wrapping_add(1);
        flows
    }

    /// Every connection with its namespace, and which namespaces are asked for the first time.
    fn connections(
        &mut self,
        processes: &HashMap<i32, Counters>,
        hidden: &mut Hidden,
    ) -> (Vec<(Socket, u64)>, HashSet<u64>) {
        let mut wanted: HashMap<u64, i32> = HashMap::new();
        for pid in processes.keys() {
            if let Ok(inode) = namespace_of(&self.roots, *pid) {
                wanted.entry(inode).or_insert(*pid);
            }
        }
        self.namespaces.retain(|inode, _| wanted.contains_key(inode));
        self.addresses.retain(|inode, _| wanted.contains_key(inode));
        let (mut all, mut baseline) = (Vec::new(), HashSet::new());
        for (inode, pid) in wanted.into_iter().take(MOST_NAMESPACES) {
            if !self.namespaces.contains_key(&inode) {
                match Diag::open(&self.roots, pid, inode) {
                    Ok(diag) => {
                        self.namespaces.insert(inode, diag);
                        // Who may ask for sockets there may ask for this.
                        self.addresses.extend(Addresses::open(&self.roots, pid, inode).ok().map(|all| (inode, all)));
                    }
                    Err(error) => {
                        hidden.namespace(&error);
                        continue;
                    }
                }
                baseline.insert(inode);
            }
            let Some(diag) = self.namespaces.get_mut(&inode) else { continue };
            match diag.connections() {
                Ok(sockets) => all.extend(sockets.into_iter().map(|socket| (socket, inode))),
                Err(error) => hidden.namespace(&error),
            }
        }
        (all, baseline)
    }

    /// Asks all namespaces for their addresses again: one may have moved to another host.
    fn survey_addresses(&mut self) {
        for all in self.addresses.values_mut() {
            if let Err(error) = all.survey() {
                tracing::debug!(%error, "the addresses of a network namespace cannot be asked for");
            }
        }
    }

    /// Ties new connections to processes, and names the processes whose sockets may be seen.
    fn find_owners(
        &mut self,
        sockets: &[(Socket, u64)],
        processes: &HashMap<i32, Counters>,
        hidden: &mut Hidden,
    ) -> Vec<i32> {
        if self.looks.is_multiple_of(LOOKS_PER_SEARCH) {
            self.owners.clear();
            self.searched.clear();
        }
        let mut unknown = false;
        for (socket, _) in sockets.iter().filter(|(socket, _)| !self.owners.contains_key(&socket.inode)) {
            let searches = self.searched.entry(socket.inode).or_default();
            unknown |= *searches < MOST_SEARCHES;
            *searches = searches.saturating_add(1);
        }
        // The youngest last: of a parent and a child that both hold a socket, the child was begun to serve it.
        let by_age: BTreeSet<(u64, i32)> =
            processes.iter().map(|(pid, counters)| (counters.start_ticks, *pid)).collect();
        let mut seen = Vec::with_capacity(by_age.len());
        for (_, pid) in by_age {
            let found = if unknown { sockets_of(&self.roots, pid) } else { may_see(&self.roots, pid) };
            match found {
                Ok(inodes) => {
                    seen.push(pid);
                    self.owners.extend(inodes.into_iter().map(|inode| (inode, pid)));
                }
                Err(error) if file::denied(&error) => hidden.sockets_of_one(),
                Err(_) => seen.push(pid),
            }
        }
        seen
    }
}

/// Whether a process' sockets could be seen, without looking.
fn may_see(roots: &Roots, pid: i32) -> Result<Vec<u64>, crate::ProbeError> {
    let path = crate::host::task::directory(roots, pid).join("fd");
    match std::fs::read_dir(&path) {
        Err(source) => Err(crate::ProbeError::Read { path, source }),
        Ok(_) => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_wrapped_are_counted_on() {
        let at = |segments: u32| Totals { sent_segments: segments.into(), ..Totals::default() };
        assert_eq!(at(4).since(at(u32::MAX - 5)).sent_segments, 10);
    }
}
