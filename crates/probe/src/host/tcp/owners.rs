//! Which process a socket belongs to: the links `socket:[INODE]` in `/proc/PID/fd`.
//!
//! A PostgreSQL process may have a thousand files open, so its links are read when it is first seen and from then on
//! rarely: a session keeps its client's socket for life.

use crate::ProbeError;
use crate::host::task::directory;
use crate::host::title::backend_type;
use crate::host::{Roots, Server, file};
use backwater_model::Text;
use std::collections::{HashMap, HashSet};
use std::fs::read_dir;
use std::io::ErrorKind;

/// Processes of one server whose links are read.
const MOST_PROCESSES: usize = 1_000;
/// A process without a socket may still be opening one: its links are read again at these first looks, and then at
/// every so many.
const EARLY_LOOKS: u32 = 3;
const LOOKS_BETWEEN: u32 = 120;

/// Whose socket it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) target: Text,
    pub(super) pid: i32,
    /// Whether the process sends or receives WAL.
    pub(super) replicates: bool,
}

/// What is known of the processes of all servers.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// By server and process id.
    known: HashMap<String, HashMap<i32, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    looks: u32,
    inodes: Vec<u64>,
    replicates: bool,
}

impl Owners {
    /// The sockets of a server's child processes. An error if none of their links may be read.
    pub(super) fn of_server(
        &mut self,
        roots: &Roots,
        server: &Server,
        children: &[i32],
    ) -> Result<HashMap<u64, Owner>, ProbeError> {
        let pids: HashSet<i32> = children.iter().copied().take(MOST_PROCESSES).collect();
        let processes = self.known.entry(server.target.clone()).or_default();
        processes.retain(|pid, _| pids.contains(pid));
        let target = Text::from(server.target.as_str());
        let mut found = HashMap::with_capacity(pids.len());
        for pid in pids {
            let known = processes.entry(pid).or_default();
            let due =
                known.looks.is_multiple_of(LOOKS_BETWEEN) || (known.inodes.is_empty() && known.looks < EARLY_LOOKS);
            known.looks = known.looks.wrapping_add(1);
            if due {
                known.inodes = sockets_of(roots, pid)?;
                known.replicates = replicates(roots, pid);
            }
            let owner = || Owner { target: Text::clone(&target), pid, replicates: known.replicates };
            found.extend(known.inodes.iter().map(|inode| (*inode, owner())));
        }
        Ok(found)
    }
}

fn replicates(roots: &Roots, pid: i32) -> bool {
    let title = file::read(&directory(roots, pid).join("cmdline")).unwrap_or_default();
    matches!(backend_type(&title).as_deref(), Some("walsender" | "walreceiver"))
}

/// The inodes of a process' sockets; none for a process that has ended.
pub(in crate::host) fn sockets_of(roots: &Roots, pid: i32) -> Result<Vec<u64>, ProbeError> {
    let path = directory(roots, pid).join("fd");
    let entries = match read_dir(&path) {
        Ok(entries) => entries.flatten(),
        Err(source) if source.kind() == ErrorKind::PermissionDenied => return Err(ProbeError::Read { path, source }),
        Err(_) => return Ok(Vec::new()),
    };
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Ok(links.filter_map(|link| inode(link.to_str()?)).collect())
}

fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_links_of_sockets_have_an_inode_that_matters() {
        assert_eq!(inode("socket:[4242]"), Some(4_242));
        for other in ["pipe:[1]", "/data/base/1/2", "socket:[]", "socket:[x]", "anon_inode:[eventpoll]"] {
            assert_eq!(inode(other), None, "{other}");
        }
    }

    #[test]
    fn the_sockets_of_this_process_are_found() {
        let before = sockets_of(&Roots::default(), std::process::id() as i32).unwrap().len();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let after = sockets_of(&Roots::default(), std::process::id() as i32).unwrap().len();
        drop(listener);
        // Other tests of this process may open and close sockets at the same time.
        assert!(after + 8 > before && after >= 1);
    }
}
