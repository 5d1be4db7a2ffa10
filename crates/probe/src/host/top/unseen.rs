//! What of the processes could not be seen, and exactly which privilege would show it.

use crate::ProbeError;
use crate::host::{Roots, capabilities};
use backwater_model::Unseen;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;

/// `/proc/PID/io` and the links in `/proc/PID/fd` of other users are hidden twice: by the permissions of the files, and by
/// the check that a debugger has to pass (fs/proc/base.c, `ptrace_may_access`).
const OF_OTHERS: &str = "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";

/// Collects what one look could not see.
#[derive(Debug)]
pub(super) struct Hidden {
    /// Whether processes of all users can be seen.
    all: bool,
    own: u32,
    processes_of_others: usize,
    without_io: BTreeSet<u32>,
    io_missing: usize,
    sockets_missing: usize,
    namespaces: Option<(usize, String)>,
}

impl Hidden {
    pub(super) fn new(roots: &Roots) -> Self {
        Hidden {
            all: capabilities::sees_all_processes(roots),
            own: rustix::process::geteuid().as_raw(),
            processes_of_others: 0,
            without_io: BTreeSet::new(),
            io_missing: 0,
            sockets_missing: 0,
            namespaces: None,
        }
    }

    /// Whether a process of the host is shown: without the privilege, only those of this user.
    pub(super) fn shows(&mut self, roots: &Roots, pid: i32) -> bool {
        let shown = self.all
            || std::fs::metadata(roots.proc.join(pid.to_string())).is_ok_and(|metadata| metadata.uid() == self.own);
        self.processes_of_others += usize::from(!shown);
        shown
    }

    /// A process of this user whose I/O may not be read.
    pub(super) fn io_of(&mut self, uid: Option<u32>) {
        self.io_missing += 1;
        self.without_io.extend(uid);
    }

    /// A process whose sockets may not be seen.
    pub(super) fn sockets_of_one(&mut self) {
        self.sockets_missing += 1;
    }

    /// A network namespace that could not be asked.
    pub(super) fn namespace(&mut self, error: &ProbeError) {
        let count = self.namespaces.take().map_or(0, |(count, _)| count);
        self.namespaces = Some((count + 1, error.to_string()));
    }

    /// All of it, for people.
    pub(super) fn told(self, users: &HashMap<u32, String>) -> Vec<Unseen> {
        let mut list = Vec::new();
        let missing = OF_OTHERS;
        if self.processes_of_others > 0 {
            let what = format!("{} of other users", processes(self.processes_of_others));
            let why = format!("{missing} are not held, so only this user's own are shown");
            list.push(Unseen { what, why, remedy: Some(format!("run as root (or with {missing})")) });
        }
        if self.io_missing > 0 || self.sockets_missing > 0 {
            let names: Vec<String> =
                self.without_io.iter().map(|uid| users.get(uid).cloned().unwrap_or_else(|| uid.to_string())).collect();
            let missed = [("I/O", self.io_missing), ("TCP", self.sockets_missing)].into_iter();
            let parts =
                missed.filter(|(_, count)| *count > 0).map(|(of, count)| format!("{of} of {}", processes(count)));
            let what = parts.collect::<Vec<_>>().join(" and ");
            let other = if names.is_empty() { String::new() } else { format!(", or as {}", names.join(" or ")) };
            let (why, remedy) = if self.all {
                // As of a process that the kernel protects from everybody.
                (format!("the kernel refuses it, though {missing} are held"), None)
            } else {
                (format!("{missing} are not held"), Some(format!("run as root (or with {missing}){other}")))
            };
            list.push(Unseen { what, why, remedy });
        }
        if let Some((count, why)) = self.namespaces {
            let what = format!("TCP in {count} other network namespace{}", if count == 1 { "" } else { "s" });
            list.push(Unseen { what, why, remedy: Some("run as root (or with CAP_SYS_ADMIN)".to_owned()) });
        }
        list
    }
}

fn processes(count: usize) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}
