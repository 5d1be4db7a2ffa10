//! Finding the socket of a running process: by the process, or by who is at the other end.

use crate::table::{self, Connection};
use crate::{Socket, SocketError, foreign};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What a process holds.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The TCP connections by which it may send.
    pub tcp: Vec<Socket>,
    /// How many other sockets it has open: Unix, UDP, or TCP by which nothing is sent (any more).
    pub others: usize,
}

/// The sockets of a process.
///
/// # Errors
/// There is no such process, or its descriptors may not be looked at.
pub fn by_pid(pid: i32) -> Result<Found, SocketError> {
    let descriptors = foreign::descriptors(pid)?;
    let table: BTreeMap<u64, Connection> =
        table::connections(pid)?.into_iter().map(|connection| (connection.inode, connection)).collect();
    let mut found = Found::default();
    for inode in descriptors.into_keys() {
        match table.get(&inode) {
            Some(connection) => found.tcp.extend(Socket::new(pid, connection)?),
            None => found.others += 1,
        }
    }
    Ok(found)
}

/// The sockets that are connected with a client at this address, in all network namespaces of this host: each once,
/// also where several processes share it. The client's own end is not among them.
///
/// # Errors
/// The host's processes cannot be looked at, or (if nothing else was found) the owner's may not be.
pub fn by_peer(peer: SocketAddr) -> Result<Vec<Socket>, SocketError> {
    let mut wanted = BTreeMap::new();
    let pids = processes()?;
    let mut namespaces = BTreeSet::new();
    for pid in &pids {
        // A process that ended meanwhile, or may not be looked at, has its namespace's other processes to answer.
        if let Ok(namespace) = std::fs::read_link(format!("/proc/{pid}/ns/net"))
            && !namespaces.contains(&namespace)
            && let Ok(connections) = table::connections(*pid)
        {
            namespaces.insert(namespace);
            let theirs = connections.into_iter().filter(|connection| same(connection.peer, peer));
            wanted.extend(theirs.map(|connection| (connection.inode, connection)));
        }
    }
    let (mut found, mut refused) = (Vec::new(), None);
    for pid in pids {
        if wanted.is_empty() {
            break;
        }
        match foreign::descriptors(pid) {
            Ok(descriptors) => {
                for inode in descriptors.into_keys() {
                    if let Some(connection) = wanted.remove(&inode) {
                        found.extend(Socket::new(pid, &connection)?);
                    }
                }
            }
            Err(error @ SocketError::Process { .. }) => refused = Some(error),
            Err(_) => {}
        }
    }
    match refused {
        Some(error) if found.is_empty() && !wanted.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Whoever has a socket with this inode open.
pub(crate) fn by_inode(inode: u64) -> Result<Option<i32>, SocketError> {
    let has = |pid: &i32| foreign::descriptors(*pid).is_ok_and(|descriptors| descriptors.contains_key(&inode));
    Ok(processes()?.into_iter().find(has))
}

/// Without regard to the scope of a link-local address, which the table does not say.
fn same(a: SocketAddr, b: SocketAddr) -> bool {
    (a.ip().to_canonical(), a.port()) == (b.ip().to_canonical(), b.port())
}

fn processes() -> Result<Vec<i32>, SocketError> {
    let unreadable = |error: std::io::Error| SocketError::Table { what: "/proc".to_owned(), why: error.to_string() };
    let entries = std::fs::read_dir("/proc").map_err(unreadable)?;
    let mut pids: Vec<i32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// A process in a word: the name its command line begins with, or that the kernel gives it.
pub(crate) fn title(pid: i32) -> String {
    let read = |name: &str| std::fs::read(PathBuf::from(format!("/proc/{pid}/{name}"))).unwrap_or_default();
    let line = read("cmdline");
    let line = if line.iter().all(|byte| *byte == 0) { read("comm") } else { line };
    let text = String::from_utf8_lossy(&line).replace('\0', " ");
    text.trim().chars().take(TITLE_CHARS).collect()
}

/// A command line may hold megabytes.
const TITLE_CHARS: usize = 120;
