//! One network namespace: its interfaces' counters, queues and speeds.

use super::dev::{Counters, busiest};
use super::route::{Queue, Route};
use crate::host::Roots;
use crate::host::file::{self, KernelFile, tell_absent};
use crate::host::task::directory;
use crate::{ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::{self, Def};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Interfaces of one namespace that are read at once, the busiest first: a host of containers has hundreds.
const MOST_INTERFACES: usize = 32;
/// Interfaces of one namespace that are read in one run.
const MOST_INTERFACES_EVER: usize = 256;
/// Addresses of one interface that are told: a balancer has thousands, none of which is a server's.
const MOST_ADDRESSES: usize = 16;
/// A device says its speed in million bits a second.
const MEGABIT_BYTES: f64 = 1e6 / 8.0;

#[derive(Debug)]
pub(super) struct Space {
    /// Under which names its interfaces are given.
    pub(super) targets: Vec<String>,
    roots: Roots,
    boot: String,
    inode: Option<u64>,
    /// The process by which it is reached; none for this process' own.
    pid: Option<i32>,
    dev: KernelFile,
    route: Option<Route>,
    known: HashSet<String>,
    speeds: HashMap<String, f64>,
}

impl Space {
    pub(super) fn new(roots: &Roots, boot: &str, inode: Option<u64>, pid: Option<i32>) -> Self {
        let process = pid.map_or_else(|| roots.proc.join("self"), |pid| directory(roots, pid));
        Space {
            targets: Vec::new(),
            roots: roots.clone(),
            boot: boot.to_owned(),
            inode,
            pid,
            dev: KernelFile::new(process.join("net/dev")),
            route: None,
            known: HashSet::new(),
            speeds: HashMap::new(),
        }
    }

    /// Whether it is reached by this process.
    pub(super) fn is_of(&self, pid: Option<i32>) -> bool {
        self.pid == pid
    }

    /// Reads all interfaces; with `survey` also what changes rarely.
    pub(super) fn read(&mut self, sink: &mut Sink<'_>, survey: bool) {
        let list = match self.dev.read() {
            Ok(text) => busiest(&text, MOST_INTERFACES),
            Err(error) => return tell_absent(sink, &format!("network interfaces of {}", self.names()), &error, None),
        };
        let list: Vec<Counters> = list.into_iter().filter(|counters| self.admit(&counters.name)).collect();
        let new = self.route.as_ref().is_some_and(|route| list.iter().any(|counters| !route.knows(&counters.name)));
        if let Err(error) = self.ask(survey || new) {
            self.route = None;
            let what = format!("network queues and shapers of {}", self.names());
            tell_absent(sink, &what, &error, Some("run as root (CAP_SYS_ADMIN, to enter its network namespace)"));
        }
        if survey && self.pid.is_none() {
            self.speeds = list.iter().filter_map(|counters| self.speed(&counters.name)).collect();
        }
        for counters in &list {
            self.put(sink, counters);
        }
        if survey || new {
            list.iter().for_each(|counters| self.put_addresses(sink, &counters.name));
        }
    }

    /// By which interface connections go; told as often as it is asked for.
    fn put_addresses(&self, sink: &mut Sink<'_>, name: &str) {
        let addresses = self.route.as_ref().map_or(&[][..], |route| route.addresses(name));
        let inode = self.inode.unwrap_or_default().to_string();
        let epoch = Epoch::of(&["addresses", &self.boot, &inode]);
        for address in addresses.iter().take(MOST_ADDRESSES).map(ToString::to_string) {
            for target in &self.targets {
                let labels = [("target", target.as_str()), ("if", name), ("address", address.as_str())];
                sink.put(&catalogue::NET_ADDRESS, &labels, epoch, 1.0);
            }
        }
    }

    fn names(&self) -> String {
        self.targets.join(", ")
    }

    fn admit(&mut self, name: &str) -> bool {
        self.known.contains(name) || (self.known.len() < MOST_INTERFACES_EVER && self.known.insert(name.to_owned()))
    }

    fn ask(&mut self, survey: bool) -> Result<(), ProbeError> {
        let inside = self.pid.zip(self.inode);
        match &mut self.route {
            Some(route) => route.look(survey),
            none => none.insert(Route::open(&self.roots, inside)?).look(true),
        }
    }

    /// The speed of an interface with a device behind it (or several, bonded). A virtual one says 10 Gbit/s, or 10
    /// Mbit/s, and means nothing by it.
    fn speed(&self, name: &str) -> Option<(String, f64)> {
        let dir: PathBuf = self.roots.sys.join("class/net").join(name);
        if !dir.join("device").exists() && !dir.join("bonding").exists() {
            return None;
        }
        let megabits: f64 = file::word(&dir.join("speed"))?.parse().ok()?;
        (megabits > 0.0).then(|| (name.to_owned(), megabits * MEGABIT_BYTES))
    }

    fn put(&self, sink: &mut Sink<'_>, counters: &Counters) {
        let queue = self.route.as_ref().and_then(|route| route.queue(&counters.name));
        let identity = queue.map(|queue| queue.identity).unwrap_or_default();
        let inode = self.inode.unwrap_or_default().to_string();
        let parts = [&self.boot, &inode, &counters.name, &format!("{identity:?}")];
        let epoch = Epoch::of(&["interface", parts[0], parts[1], parts[2], parts[3]]);
        let speed = self.speeds.get(&counters.name).copied();
        for target in &self.targets {
            let labels = [("target", target.as_str()), ("if", counters.name.as_str())];
            for (def, value) in values(counters, queue, speed) {
                if let Some(value) = value {
                    sink.put(def, &labels, epoch, value);
                }
            }
        }
    }
}

/// Drops are those of the queueing discipline and of the device together, so nothing is said where only one is known.
fn values(counters: &Counters, queue: Option<Queue>, speed: Option<f64>) -> [(&'static Def, Option<f64>); 8] {
    let queue = queue.unwrap_or_default();
    [
        (&catalogue::NET_SENT_BYTES, Some(counters.sent_bytes as f64)),
        (&catalogue::NET_RECEIVED_BYTES, Some(counters.received_bytes as f64)),
        (&catalogue::NET_SENT_PACKETS, Some(counters.sent_packets as f64)),
        (&catalogue::NET_RECEIVED_PACKETS, Some(counters.received_packets as f64)),
        (&catalogue::NET_DROPS, queue.drops.map(|drops| f64::from(drops) + counters.send_drops as f64)),
        (&catalogue::NET_BACKLOG, queue.backlog_bytes.map(f64::from)),
        (&catalogue::NET_SHAPER, queue.shaper_bytes_per_s.map(|rate| rate as f64)),
        (&catalogue::NET_SPEED, speed),
    ]
}
