//! TCP connections of a watched server's processes: sock_diag's TCP_INFO, the sockets tied to processes by the links
//! in `/proc/PID/fd`, in the server's own network namespace.
//!
//! Needs no privilege beyond reading the links: all of a server's sockets are seen by root and by the server's user.

mod admission;
mod diag;
mod owners;
mod wire;

use super::allowance::Allowance;
use super::netlink::namespace_of;
use super::numbered::Numbered;
use super::pace::Pace;
use super::{Roots, SOURCE, Server, Watch, file};
use crate::{Probe, ProbeError, Sink, rights};
use admission::{Admission, MOST_AT_ONCE};
use backwater_model::catalogue::{self, Def};
use backwater_model::{Epoch, SOME_CONNECTIONS};
use owners::{Owner, Owners};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub(super) use diag::{Diag, can_ask};
pub(super) use owners::sockets_of;
pub(super) use wire::Socket;

/// A host with very many sockets is asked more rarely, so that asking takes at most this share of one processor.
const LARGEST_SHARE: f64 = 0.005;
/// For so many looks connections of a server that cannot be looked at count as still there.
const FORGIVEN_LOOKS: u32 = 5;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reads the connections of watched servers.
#[derive(Debug)]
pub(super) struct Sockets {
    roots: Roots,
    watch: Arc<Watch>,
    boot: String,
    owners: Owners,
    namespaces: HashMap<u64, Diag>,
    /// Sockets of server processes that are no TCP connection: while there are only such, nobody is asked.
    not_tcp: HashSet<u64>,
    admission: Admission,
    /// By server.
    found: HashMap<String, Found>,
    /// Of the connections that are read, by inode and process.
    numbered: HashMap<(u64, i32), Numbered>,
    pace: Pace,
}

/// The sockets of a server's processes as they were found last.
#[derive(Debug, Default)]
struct Found {
    inodes: HashSet<u64>,
    /// Looks since then.
    missed_looks: u32,
}

impl Sockets {
    pub(super) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        Sockets {
            roots: roots.clone(),
            watch: Arc::clone(watch),
            boot: file::boot_id(roots),
            owners: Owners::default(),
            namespaces: HashMap::new(),
            not_tcp: HashSet::new(),
            admission: Admission::default(),
            found: HashMap::new(),
            numbered: HashMap::new(),
            pace: Pace::new(LARGEST_SHARE, LONGEST_PAUSE),
        }
    }

    fn look(&mut self, sink: &mut Sink<'_>, servers: &[Server]) -> Result<(), ProbeError> {
        let owners = self.find_owners(sink, servers);
        self.namespaces.retain(|namespace, _| owners.contains_key(namespace));
        self.forget_ended(sink, servers);
        for (namespace, owners) in &owners {
            let sought: HashSet<u64> = owners.keys().filter(|inode| !self.not_tcp.contains(inode)).copied().collect();
            if sought.is_empty() {
                continue;
            }
            let Some(diag) = self.namespaces.get_mut(namespace) else { continue };
            let sockets = diag.connections_until(|found| are_all_in(&sought, found))?;
            let tcp: HashSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
            self.not_tcp.extend(owners.keys().filter(|inode| !tcp.contains(inode)));
            self.take(sink, &sockets, owners);
        }
        Ok(())
    }

    fn forget_ended(&mut self, sink: &Sink<'_>, servers: &[Server]) {
        self.found.retain(|target, found| {
            found.missed_looks <= FORGIVEN_LOOKS && servers.iter().any(|server| server.target == *target)
        });
        let present: HashSet<u64> = self.found.values().flat_map(|found| &found.inodes).copied().collect();
        self.admission.retain(&present);
        self.not_tcp.retain(|inode| present.contains(inode));
        let ended = self.numbered.extract_if(|(inode, _), _| !present.contains(inode));
        ended.for_each(|(_, numbered)| numbered.leave(sink));
    }

    /// The sockets of all servers' processes, by network namespace.
    fn find_owners(&mut self, sink: &mut Sink<'_>, servers: &[Server]) -> HashMap<u64, HashMap<u64, Owner>> {
        let mut all: HashMap<u64, HashMap<u64, Owner>> = HashMap::new();
        for server in servers {
            let found = self.enter(sink, server).and_then(|namespace| {
                let children = self.watch.children(&self.roots, server, sink.at);
                let owners = self.owners.of_server(&self.roots, server, &children).map_err(|error| {
                    file::tell_absent(sink, &format!("TCP connections of {}", server.target), &error, None);
                });
                Some((namespace, owners.ok()?))
            });
            if let Some((namespace, owners)) = found {
                let inodes = owners.keys().copied().collect();
                self.found.insert(server.target.clone(), Found { inodes, missed_looks: 0 });
                all.entry(namespace).or_default().extend(owners);
            } else if let Some(found) = self.found.get_mut(&server.target) {
                found.missed_looks += 1;
            }
        }
        all
    }

    /// The server's network namespace, with a way to ask it.
    fn enter(&mut self, sink: &mut Sink<'_>, server: &Server) -> Option<u64> {
        let opened = namespace_of(&self.roots, server.postmaster_pid).and_then(|inode| {
            if !self.namespaces.contains_key(&inode) {
                self.namespaces.insert(inode, Diag::open(&self.roots, server.postmaster_pid, inode)?);
            }
            Ok(inode)
        });
        let what = format!("TCP connections of {}", server.target);
        opened.map_err(|error| file::tell_absent(sink, &what, &error, Some(rights::remedy("run as root")))).ok()
    }

    fn take(&mut self, sink: &mut Sink<'_>, sockets: &[Socket], owners: &HashMap<u64, Owner>) {
        let owned = sockets.iter().filter_map(|socket| Some((socket, owners.get(&socket.inode)?)));
        let owned: Vec<(&Socket, &Owner)> = owned.collect();
        let (chosen, left_out) = self.admission.choose(sink.at, &owned);
        for (socket, owner) in owned.iter().filter(|(socket, _)| chosen.contains(&socket.inode)) {
            let series = || series_of(&self.boot, owner, socket);
            let numbered = self.numbered.entry((socket.inode, owner.pid)).or_insert_with(series);
            for (def, value) in values(socket) {
                if let Some(value) = value {
                    numbered.put(sink, def, value as f64);
                }
            }
        }
        if left_out {
            let why = format!("{MOST_AT_ONCE} are read at once, {}; those that move most come first", Allowance::why());
            sink.absent(SOURCE, SOME_CONNECTIONS, &why, None);
        }
    }
}

/// Whether all of the sockets that are sought are among those that were found.
fn are_all_in(sought: &HashSet<u64>, found: &[Socket]) -> bool {
    // One may be told twice, where the kernel's table changes meanwhile.
    let found: HashSet<u64> = found.iter().map(|socket| socket.inode).collect();
    sought.is_subset(&found)
}

/// The series of a connection.
fn series_of(boot: &str, owner: &Owner, socket: &Socket) -> Numbered {
    let (pid, local, peer) = (owner.pid.to_string(), socket.local.to_string(), socket.peer.to_string());
    let epoch = Epoch::of(&["socket", boot, &socket.inode.to_string()]);
    Numbered::new(epoch, vec![("target", owner.target.to_string()), ("pid", pid), ("local", local), ("peer", peer)])
}

fn values(socket: &Socket) -> [(&'static Def, Option<u64>); 17] {
    let info = &socket.info;
    [
        (&catalogue::TCP_SENDQ, Some(u64::from(socket.send_queue_bytes))),
        (&catalogue::TCP_NOTSENT, info.notsent_bytes.map(u64::from)),
        (&catalogue::TCP_UNACKED, info.unacked_bytes()),
        (&catalogue::TCP_ACKED, info.bytes_acked),
        (&catalogue::TCP_RECEIVED, info.bytes_received),
        (&catalogue::TCP_BUSY, info.busy_us),
        (&catalogue::TCP_RWND_LIMITED, info.rwnd_limited_us),
        (&catalogue::TCP_SNDBUF_LIMITED, info.sndbuf_limited_us),
        (&catalogue::TCP_MIN_RTT, info.min_rtt_us.map(u64::from)),
        (&catalogue::TCP_RTT, info.rtt_us.map(u64::from)),
        (&catalogue::TCP_MAX_PACING, info.max_pacing_bytes_per_s),
        (&catalogue::TCP_RETRANSMITS, info.retransmits.map(u64::from)),
        (&catalogue::TCP_DELIVERY_RATE, info.delivery_bytes_per_s),
        (&catalogue::TCP_SENT, info.bytes_sent),
        (&catalogue::TCP_SEGMENTS_OUT, info.segments_out.map(u64::from)),
        (&catalogue::TCP_SEGMENTS_IN, info.segments_in.map(u64::from)),
        (&catalogue::TCP_PEER_WINDOW, info.peer_window_bytes.map(u64::from)),
    ]
}

impl Probe for Sockets {
    fn name(&self) -> &str {
        "host.tcp"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        let servers = self.watch.servers();
        let mut pace = self.pace;
        if servers.is_empty() || !pace.is_due(sink.at) {
            return Ok(());
        }
        let result = pace.timed(sink.at, || self.look(sink, &servers));
        self.pace = pace;
        result
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

/// Reads bytes as what the kernel tells of a connection. For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn exercise(bytes: &[u8]) {
    let _ = wire::socket(bytes);
}
