//! The socket of another process, reached through `pidfd_getfd` (Linux 5.6). The process is known by its id and start
//! time, the socket by the kernel's cookie for it, so that neither a reused id nor a reused descriptor is ever touched.

use crate::table::Connection;
use crate::{Holders, SocketError, TcpInfo, call, find};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A TCP connection by which a process may send.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Socket {
    /// Whose.
    pub pid: i32,
    /// When that process started, in clock ticks since boot.
    pub start_time: u64,
    /// Its inode: how it is found among descriptors.
    pub inode: u64,
    /// The kernel's own number for it (`SO_COOKIE`), never given twice between two boots.
    pub cookie: u64,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
}

/// What is known of a socket at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// How fast it may send, in bytes a second; None: no limit.
    pub rate_bps: Option<u64>,
    /// Written and not acknowledged, sent or not.
    pub queued_bytes: u64,
    /// What the kernel counts.
    pub info: TcpInfo,
}

impl Socket {
    /// The connection with its process's start time and its cookie; None if it is gone meanwhile.
    pub(crate) fn new(pid: i32, connection: &Connection) -> Result<Option<Socket>, SocketError> {
        let Connection { local, peer, inode } = *connection;
        let Some(start_time) = start_time(pid) else { return Ok(None) };
        let mut socket = Socket { pid, start_time, inode, cookie: 0, local, peer };
        let duplicate = match socket.duplicate() {
            Err(SocketError::Gone { .. } | SocketError::NoProcess { .. }) => return Ok(None),
            duplicate => duplicate?,
        };
        socket.cookie = cookie(&duplicate).map_err(|source| socket.refused("know the socket", source))?;
        Ok(Some(socket))
    }

    /// Whether both ends are on this host, so that no link lies between them.
    pub fn is_within_host(&self) -> bool {
        let (local, peer) = (self.local.ip().to_canonical(), self.peer.ip().to_canonical());
        peer.is_loopback() || peer == local
    }

    /// The process in a word: `postgres: etl shop 10.0.0.7(51234) SELECT`.
    pub fn title(&self) -> String {
        find::title(self.pid)
    }

    /// What is known of it now.
    ///
    /// # Errors
    /// It is gone, or its process may not be reached.
    pub fn read(&self) -> Result<Reading, SocketError> {
        let fd = self.open()?;
        let read = || -> io::Result<Reading> {
            let info = TcpInfo::read(&fd)?;
            Ok(Reading { rate_bps: call::pacing_rate(&fd)?, queued_bytes: call::unsent_and_unacked(&fd)?, info })
        };
        read().map_err(|source| self.refused("read the socket", source))
    }

    /// Lets it send so many bytes a second; None: as many as it can.
    ///
    /// # Errors
    /// As [`read`](Socket::read).
    pub fn pace(&self, bytes_per_second: Option<u64>) -> Result<(), SocketError> {
        let fd = self.open()?;
        call::set_pacing_rate(&fd, bytes_per_second).map_err(|source| self.refused("pace the socket", source))
    }

    /// The same socket in the hands of another process, where its own ended and left it to one; None if nobody has it.
    pub fn elsewhere(&self, holders: &mut Holders) -> Result<Option<Socket>, SocketError> {
        let Some(pid) = holders.of(self.inode)? else { return Ok(None) };
        let Some(start_time) = start_time(pid) else { return Ok(None) };
        Ok(Some(Socket { pid, start_time, ..self.clone() }))
    }

    /// A duplicate that is surely this socket.
    fn open(&self) -> Result<OwnedFd, SocketError> {
        let duplicate = self.duplicate()?;
        match cookie(&duplicate) {
            Ok(cookie) if cookie == self.cookie => Ok(duplicate),
            _ => Err(self.gone()),
        }
    }

    /// A duplicate of the descriptor that had the inode a moment ago.
    fn duplicate(&self) -> Result<OwnedFd, SocketError> {
        let pid = Pid::from_raw(self.pid).ok_or(SocketError::NoProcess { pid: self.pid })?;
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Err(SocketError::NoProcess { pid: self.pid }),
            opened => opened.map_err(|error| self.refused("watch", error.into()))?,
        };
        // Checked after the process is held: from here on the id cannot become somebody else's.
        if start_time(self.pid) != Some(self.start_time) {
            return Err(self.gone());
        }
        let fd = *descriptors(self.pid)?.get(&self.inode).ok_or_else(|| self.gone())?;
        match pidfd_getfd(process, fd, PidfdGetfdFlags::empty()) {
            Err(Errno::SRCH | Errno::BADF) => Err(self.gone()),
            taken => taken.map_err(|error| self.refused("duplicate the socket", error.into())),
        }
    }

    fn gone(&self) -> SocketError {
        SocketError::Gone { pid: self.pid, peer: self.peer }
    }

    fn refused(&self, what: &'static str, source: io::Error) -> SocketError {
        SocketError::Process { what, pid: self.pid, source }
    }
}

/// Whether this kernel lets a process duplicate a descriptor of its own in this way.
///
/// # Errors
/// `Unsupported` (ENOSYS) from a kernel before 5.6, EPERM from a filter of system calls.
pub fn probe_duplicating(own: BorrowedFd<'_>) -> io::Result<()> {
    let process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    pidfd_getfd(process, own.as_raw_fd(), PidfdGetfdFlags::empty())?;
    Ok(())
}

fn cookie(fd: &OwnedFd) -> io::Result<u64> {
    Ok(rustix::net::sockopt::socket_cookie(fd)?)
}

/// Sockets that a process has open: inodes with descriptor numbers.
pub(crate) fn descriptors(pid: i32) -> Result<BTreeMap<u64, i32>, SocketError> {
    let directory = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => SocketError::NoProcess { pid },
        _ => SocketError::Process { what: "look at the descriptors", pid, source },
    })?;
    let socket = |entry: std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((inode, entry.file_name().to_str()?.parse().ok()?))
    };
    Ok(directory.flatten().filter_map(socket).collect())
}

/// Field 22 of `/proc/PID/stat`; the name before may hold spaces and parentheses, so fields are counted from its end.
fn start_time(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
