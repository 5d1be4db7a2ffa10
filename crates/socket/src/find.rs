//! Finding the socket of a running process: by the process, or by who is at the other end; and whoever has one that its process left.

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
    for (inode, number) in descriptors {
        match table.get(&inode) {
            Some(connection) => found.tcp.extend(Socket::new(pid, number, connection)?),
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
    let pids = processes()?;
    let (all, unread) = everywhere(&pids, table::connections);
    let theirs = all.into_iter().filter(|connection| same(connection.peer, peer));
    let mut wanted: BTreeMap<u64, Connection> = theirs.map(|connection| (connection.inode, connection)).collect();
    let (mut found, mut refused) = (Vec::new(), None);
    for pid in pids {
        if wanted.is_empty() {
            break;
        }
        match foreign::descriptors(pid) {
            Ok(descriptors) => {
                for (inode, number) in descriptors {
                    if let Some(connection) = wanted.remove(&inode) {
                        found.extend(Socket::new(pid, number, &connection)?);
                    }
                }
            }
            Err(error @ SocketError::Process { .. }) => refused = Some(error),
            Err(_) => {}
        }
    }
    match (refused, unread) {
        (Some(error), _) if found.is_empty() && !wanted.is_empty() => Err(error),
        // It may be one of those that were not read.
        (_, Some(error)) if found.is_empty() && !error.is_gone() => Err(error),
        _ => Ok(found),
    }
}

/// Who has sockets open, for several that are asked about in one go: what the kernel lists of all sockets is read once, and the
/// descriptors of all processes, which are many more, once and only where it still lists one that is asked about. Where nobody is found
/// to have one, the list is read once more.
#[derive(Debug, Default)]
pub struct Holders {
    /// The inodes of the TCP sockets that somebody has open.
    listed: Option<BTreeSet<u64>>,
    /// A process for each of them.
    by_inode: Option<BTreeMap<u64, i32>>,
    /// The inodes that are still listed after the descriptors were read.
    listed_after: Option<BTreeSet<u64>>,
}

impl Holders {
    /// Whoever has a socket with this inode open; None if surely nobody has.
    pub(crate) fn of(&mut self, inode: u64) -> Result<Option<i32>, SocketError> {
        if self.listed.is_none() {
            self.listed = Some(listed()?);
        }
        if !self.listed.as_ref().is_some_and(|listed| listed.contains(&inode)) {
            return Ok(None);
        }
        if self.by_inode.is_none() {
            let mut by_inode = BTreeMap::new();
            for pid in processes()? {
                // One whose descriptors cannot be read may have whatever nobody else has.
                for (inode, _) in foreign::descriptors(pid).into_iter().flatten() {
                    by_inode.entry(inode).or_insert(pid);
                }
            }
            self.by_inode = Some(by_inode);
        }
        if let Some(pid) = self.by_inode.as_ref().and_then(|holders| holders.get(&inode)) {
            return Ok(Some(*pid));
        }
        if self.listed_after.is_none() {
            self.listed_after = Some(listed()?);
        }
        // Closed in between, nobody has it. Otherwise somebody has.
        match self.listed_after.as_ref().is_some_and(|listed| listed.contains(&inode)) {
            true => Err(SocketError::Table {
                what: format!("the descriptors of whoever has the socket with inode {inode}"),
                why: "the kernel lists it, and no process that can be looked at has it".to_owned(),
            }),
            false => Ok(None),
        }
    }
}

/// The inodes of the TCP sockets that somebody has open, in all network namespaces of this host.
fn listed() -> Result<BTreeSet<u64>, SocketError> {
    let (mut inodes, mut unread) = everywhere(&processes()?, table::inodes);
    if unread.as_ref().is_some_and(SocketError::is_gone) {
        // One that ended may have left its namespace to others that began meanwhile.
        (inodes, unread) = everywhere(&processes()?, table::inodes);
    }
    match unread {
        Some(error) => Err(error),
        None => Ok(inodes.into_iter().collect()),
    }
}

/// What a table of each network namespace of this host holds, and why one of them could not be read.
fn everywhere<T>(pids: &[i32], read: impl Fn(i32) -> Result<Vec<T>, SocketError>) -> (Vec<T>, Option<SocketError>) {
    let (mut known, mut unread, mut all) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
    for pid in pids {
        // A process that ended meanwhile, or may not be looked at, has its namespace's other processes to answer.
        let Ok(namespace) = std::fs::read_link(format!("/proc/{pid}/ns/net")) else { continue };
        if known.contains(&namespace) {
            continue;
        }
        match read(*pid) {
            Ok(theirs) => {
                unread.remove(&namespace);
                known.insert(namespace);
                all.extend(theirs);
            }
            Err(error) => drop(unread.insert(namespace, error)),
        }
    }
    // That one process of a namespace has ended says less than that another's table cannot be read.
    let (gone, failed): (Vec<_>, Vec<_>) = unread.into_values().partition(SocketError::is_gone);
    (all, failed.into_iter().chain(gone).next())
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

/// The number of a process in the innermost namespace that it is in; None where it is gone.
pub(crate) fn inner_pid(pid: i32) -> Option<i32> {
    innermost(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The last number of the line `NSpid` of a process's status: from ours to its own.
fn innermost(status: &str) -> Option<i32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().last()?.parse().ok()
}

/// A command line may hold megabytes.
const TITLE_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_process_in_a_container_has_another_number_for_itself() {
        assert_eq!(innermost("Name:\tpostgres\nPid:\t4711\nNSpid:\t4711\t90\t12\nNSsid:\t1\t1\t1\n"), Some(12));
        assert_eq!(innermost("Name:\tpostgres\nPid:\t4711\n"), None);
        let own = std::fs::read_link("/proc/self").unwrap().display().to_string().parse().unwrap();
        assert_eq!((inner_pid(own), inner_pid(-1)), (i32::try_from(std::process::id()).ok(), None));
    }

    /// A connection of this process, and its inode.
    fn connection(listener: &TcpListener) -> (TcpStream, u64) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = table::connections(i32::try_from(std::process::id()).unwrap()).unwrap();
        let local = client.local_addr().unwrap();
        (client, own.into_iter().find(|connection| connection.local == local).unwrap().inode)
    }

    /// Closes a connection, and waits until nobody has it: a program that another test starts has what this process had open, until
    /// it is that program.
    fn closed(client: TcpStream, inode: u64) {
        drop(client);
        let begun = std::time::Instant::now();
        // A process that ends meanwhile may have made the list fail.
        while listed().map_or(true, |inodes| inodes.contains(&inode)) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "somebody keeps inode {inode} open");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn descriptors_are_read_only_for_a_socket_that_the_kernel_lists_and_once_for_all_of_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ((_one, first), (_two, second), (three, gone)) =
            (connection(&listener), connection(&listener), connection(&listener));
        closed(three, gone);
        let mut holders = Holders::default();
        assert_eq!(holders.of(gone).unwrap(), None);
        assert!(holders.listed.is_some() && holders.by_inode.is_none(), "nobody has to be asked");
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!([first, second].map(|inode| holders.of(inode).unwrap()), [Some(own); 2]);
        // What came later is not among what was read: nothing is read again.
        let (_later, later) = connection(&listener);
        assert_eq!((holders.of(later).unwrap(), holders.of(first).unwrap()), (None, Some(own)));
        assert_eq!(Holders::default().of(later).unwrap(), Some(own));
    }

    #[test]
    fn a_socket_that_is_listed_and_that_nobody_is_found_to_have_is_not_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (client, inode) = connection(&listener);
        let unfound = || {
            let listed = Some(BTreeSet::from([inode]));
            Holders { listed, by_inode: Some(BTreeMap::new()), listed_after: None }.of(inode)
        };
        assert!(matches!(unfound(), Err(SocketError::Table { .. })), "{:?}", unfound());
        closed(client, inode);
        assert_eq!(unfound().unwrap(), None, "it was closed meanwhile");
    }

    #[test]
    fn a_namespace_that_one_process_answers_for_is_read_and_one_that_none_does_is_told() {
        let own = i32::try_from(std::process::id()).unwrap();
        let unreadable = || SocketError::Table { what: "a table".to_owned(), why: "no descriptor is left".to_owned() };
        let first_fails = std::cell::Cell::new(true);
        let (all, unread) = everywhere(&[own, own, own], |pid| match first_fails.replace(false) {
            true => Err(unreadable()),
            false => Ok(vec![pid]),
        });
        assert_eq!((all, unread.is_none()), (vec![own], true));
        let (all, unread) = everywhere(&[own, own], |_| Err::<Vec<i32>, _>(unreadable()));
        assert!(all.is_empty() && matches!(unread, Some(SocketError::Table { .. })), "{unread:?}");
    }
}
