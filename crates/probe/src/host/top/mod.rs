//! Who reads, writes, sends and computes, process by process: what `backwater top` shows live. Nothing but `/proc` and
//! sock_diag: no debug symbols, no kernel module, no extension of the server.
//!
//! Unlike the probes, which write series for a recording and therefore leave out what is short-lived, this looks at
//! every process there is and keeps nothing but the look before.

mod counters;
mod devices;
mod sockets;
mod unseen;

use super::task::{children, effective_user};
use super::{Roots, title};
use crate::ProbeError;
use backwater_model::{Moment, ProcessUse, Unseen};
use counters::{Counters, rates};
use devices::WrittenTo;
use sockets::{Flow, Sockets};
use std::collections::HashMap;
use unseen::Hidden;

/// Processes whose devices are looked up at one look: those that write most.
const MOST_WITH_DEVICES: usize = 40;

/// Whose processes are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A process and its children: a server, by its postmaster.
    Server {
        /// Its name.
        target: String,
        /// The postmaster.
        pid: i32,
    },
    /// Every process of this host; without the privilege to see them all, those of this user.
    Host,
}

/// What happened between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Length of the time between, in seconds.
    pub seconds: f64,
    /// Every process looked at, in order of process id.
    pub processes: Vec<ProcessUse>,
    /// What could not be seen, and what would change that.
    pub unseen: Vec<Unseen>,
}

/// Looks at processes again and again.
#[derive(Debug)]
pub struct Top {
    roots: Roots,
    scope: Scope,
    users: HashMap<u32, String>,
    /// As of the look before, with its time.
    before: Option<(Moment, HashMap<i32, Counters>)>,
    sockets: Sockets,
    devices: WrittenTo,
    user_ids: HashMap<(i32, u64), Option<u32>>,
}

impl Top {
    /// Nothing was looked at yet.
    pub fn new(roots: &Roots, scope: Scope) -> Self {
        Top {
            roots: roots.clone(),
            scope,
            users: users(roots),
            before: None,
            sockets: Sockets::new(roots),
            devices: WrittenTo::new(roots),
            user_ids: HashMap::new(),
        }
    }

    /// Looks at `at`, and says what happened since the look before; none at the first. An error means that the server is
    /// gone, or that there is no `/proc`.
    pub fn look(&mut self, at: Moment) -> Result<Option<Usage>, ProbeError> {
        let mut hidden = Hidden::new(&self.roots);
        let pids = self.pids(&mut hidden)?;
        let read = |pid: &i32| Some((*pid, Counters::read(&self.roots, *pid)?));
        let now: HashMap<i32, Counters> = pids.iter().filter_map(read).collect();
        self.user_ids.retain(|(pid, start), _| now.get(pid).is_some_and(|counters| counters.start_ticks == *start));
        let flows = self.sockets.look(&now, &mut hidden);
        let usage = match self.before.take() {
            Some((then, before)) if at > then => {
                let seconds = at.seconds_since(then);
                let mut processes = self.processes(&before, &now, &flows, seconds);
                self.name_devices(&mut processes, &now);
                let denied = processes.iter().filter(|process| now.get(&process.pid).is_some_and(|now| now.io_denied));
                denied.for_each(|process| hidden.io_of(process.uid));
                Some(Usage { seconds, processes, unseen: hidden.told(&self.users) })
            }
            _ => None,
        };
        self.before = Some((at, now));
        Ok(usage)
    }

    fn pids(&self, hidden: &mut Hidden) -> Result<Vec<i32>, ProbeError> {
        match &self.scope {
            Scope::Server { pid, .. } => {
                let path = super::task::directory(&self.roots, *pid);
                std::fs::metadata(&path).map_err(|source| ProbeError::Read { path, source })?;
                let mut all = children(&self.roots, *pid);
                all.push(*pid);
                Ok(all)
            }
            Scope::Host => {
                let path = self.roots.proc.clone();
                let entries = std::fs::read_dir(&path).map_err(|source| ProbeError::Read { path, source })?;
                let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
                Ok(pids.filter(|pid| hidden.shows(&self.roots, *pid)).collect())
            }
        }
    }

    fn processes(
        &mut self,
        before: &HashMap<i32, Counters>,
        now: &HashMap<i32, Counters>,
        flows: &HashMap<i32, Flow>,
        seconds: f64,
    ) -> Vec<ProcessUse> {
        let mut list: Vec<ProcessUse> = Vec::with_capacity(now.len());
        for (pid, counters) in now {
            let earlier = before.get(pid).filter(|earlier| earlier.start_ticks == counters.start_ticks);
            let mut process = rates(earlier, counters, seconds);
            process.pid = *pid;
            process.uid = self.user_id(*pid, counters.start_ticks);
            process.user = process.uid.and_then(|uid| self.users.get(&uid).cloned());
            self.name(&mut process, counters);
            if let Some(flow) = flows.get(pid) {
                flow.put(&mut process, seconds);
            }
            list.push(process);
        }
        list.sort_by_key(|process| process.pid);
        list
    }

    /// A server's process is called what the server calls it, any other what the kernel does.
    fn name(&self, process: &mut ProcessUse, counters: &Counters) {
        let cmdline = counters.title.as_deref().unwrap_or_default();
        process.what = title::backend_type(cmdline).unwrap_or_else(|| counters.name.clone());
        if process.what == title::CLIENT {
            process.session = title::session(cmdline);
        }
        if let Scope::Server { target, pid } = &self.scope {
            process.target = Some(target.clone());
            if process.pid == *pid && title::backend_type(cmdline).is_none() {
                process.what =
                    if counters.name.starts_with("postg") { "postmaster".to_owned() } else { counters.name.clone() };
            }
        }
    }

    fn user_id(&mut self, pid: i32, start_ticks: u64) -> Option<u32> {
        *self.user_ids.entry((pid, start_ticks)).or_insert_with(|| effective_user(&self.roots, pid))
    }

    fn name_devices(&mut self, processes: &mut [ProcessUse], now: &HashMap<i32, Counters>) {
        let mut writers: Vec<&mut ProcessUse> =
            processes.iter_mut().filter(|process| process.write_bytes_per_s.is_some_and(|rate| rate > 0.0)).collect();
        writers.sort_by(|a, b| b.write_bytes_per_s.unwrap_or(0.0).total_cmp(&a.write_bytes_per_s.unwrap_or(0.0)));
        for process in writers.into_iter().take(MOST_WITH_DEVICES) {
            let start = now.get(&process.pid).map(|counters| counters.start_ticks).unwrap_or_default();
            process.devices = self.devices.of(process.pid, start);
        }
        self.devices.forget_others(now);
    }
}

/// Names of users by number, from `/etc/passwd`. Those of a directory service stay numbers.
pub fn users(roots: &Roots) -> HashMap<u32, String> {
    let etc = roots.proc.parent().unwrap_or(&roots.proc).join("etc/passwd");
    names(&super::file::read(&etc).unwrap_or_default())
}

fn names(passwd: &str) -> HashMap<u32, String> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    // Of several names for one number, the first.
    let mut all = HashMap::new();
    for (uid, name) in passwd.lines().filter_map(entry) {
        all.entry(uid).or_insert(name);
    }
    all
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
