//! The socket of another process, reached through `pidfd_getfd` (Linux 5.6). The process is known by its id and start
//! time, the socket by the kernel's cookie for it, so that neither a reused id nor a reused descriptor is ever touched.

use crate::table::Connection;
use crate::{Holders, Namespace, SocketError, TcpInfo, call, find};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// What is tried, for an error.
const LIST: &str = "look at the descriptors";
const START: &str = "read the start";
const KNOW: &str = "know the socket";

/// A TCP connection by which a process may send.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Socket {
    /// Whose.
    pub pid: i32,
    /// When that process started, in clock ticks since boot.
    pub start_time: u64,
    /// Its inode: how it is found among descriptors.
    pub inode: u64,
    /// The number that its descriptor had when it was found: it is looked at there first. None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<i32>,
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

/// How a connection that stays on this host may find its speed. There is no link whose speed were to be found, and one that paces
/// itself by timers (BBR, which some hosts have for all) costs it half of its throughput and more (docs/bench/pacing.md). Every
/// kernel has this one, and lets everybody choose it.
pub const WITHIN_HOST_CONGESTION: &str = "reno";

/// Whether a connection between these has both ends on this host, so that no link lies between them.
pub fn within_host(local: IpAddr, peer: IpAddr) -> bool {
    let (local, peer) = (local.to_canonical(), peer.to_canonical());
    peer.is_loopback() || peer == local
}

impl Socket {
    /// The connection with its process's start time and its cookie; None if it is gone meanwhile. `number` is its descriptor's.
    pub(crate) fn new(pid: i32, number: i32, connection: &Connection) -> Result<Option<Socket>, SocketError> {
        let Connection { local, peer, inode } = *connection;
        let Some(start_time) = started(pid)? else { return Ok(None) };
        let mut socket = Socket { pid, start_time, inode, descriptor: Some(number), cookie: 0, local, peer };
        let duplicate = match socket.duplicate(socket.known()) {
            Err(error) if error.is_gone() => return Ok(None),
            duplicate => duplicate?,
        };
        // The descriptor may be another connection's meanwhile.
        if fstat(&duplicate).map_err(|error| socket.refused(KNOW, error.into()))?.st_ino != inode {
            return Ok(None);
        }
        match cookie(&duplicate) {
            Ok(cookie) => socket.cookie = cookie,
            Err(Errno::NOTSOCK) => return Ok(None),
            Err(error) => return Err(socket.refused(KNOW, error.into())),
        }
        Ok(Some(socket))
    }

    /// Whether both ends are on this host, so that no link lies between them.
    pub fn is_within_host(&self) -> bool {
        within_host(self.local.ip(), self.peer.ip())
    }

    /// The process in a word: `postgres: etl shop 10.0.0.7(51234) SELECT`.
    pub fn title(&self) -> String {
        find::title(self.pid)
    }

    /// The number that its process has for itself: in a container another one than here. None where it is gone.
    pub fn inner_pid(&self) -> Option<i32> {
        find::inner_pid(self.pid)
    }

    /// What is known of it now.
    ///
    /// # Errors
    /// It is gone ([`SocketError::is_gone`]), or it cannot be reached now.
    pub fn read(&self) -> Result<Reading, SocketError> {
        let fd = self.open()?;
        let read = || -> io::Result<Reading> {
            let info = TcpInfo::read(&fd)?;
            Ok(Reading { rate_bps: call::pacing_rate(&fd)?, queued_bytes: call::unsent_and_unacked(&fd)?, info })
        };
        read().map_err(|source| self.refused("read the socket", source))
    }

    /// The network namespace that it is in, sought where its process is; None where the kernel is older than 5.14.
    ///
    /// # Errors
    /// As [`read`](Socket::read).
    pub fn namespace(&self) -> Result<Option<Namespace>, SocketError> {
        let fd = self.open()?;
        match call::namespace_cookie(&fd).and_then(|cookie| Namespace::new(self.pid, cookie)) {
            Ok(namespace) => Ok(Some(namespace)),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SocketError::NoProcess { pid: self.pid }),
            Err(source) => Err(self.refused("find the network namespace", source)),
        }
    }

    /// Lets it send so many bytes a second; None: as many as it can.
    ///
    /// # Errors
    /// As [`read`](Socket::read).
    pub fn pace(&self, bytes_per_second: Option<u64>) -> Result<(), SocketError> {
        let fd = self.open()?;
        call::set_pacing_rate(&fd, bytes_per_second).map_err(|source| self.refused("pace the socket", source))
    }

    /// How it finds its speed (`TCP_CONGESTION`): `cubic`, `bbr`.
    ///
    /// # Errors
    /// As [`read`](Socket::read).
    pub fn congestion(&self) -> Result<String, SocketError> {
        let fd = self.open()?;
        tcp_congestion(&fd).map_err(|error| self.refused("read the congestion control", error.into()))
    }

    /// Lets it find its speed in another way from here on.
    ///
    /// # Errors
    /// As [`read`](Socket::read); the kernel does not have that one (ENOENT), or does not let everybody choose it (EPERM).
    pub fn set_congestion(&self, name: &str) -> Result<(), SocketError> {
        let fd = self.open()?;
        set_tcp_congestion(&fd, name).map_err(|error| self.refused("set the congestion control", error.into()))
    }

    /// The same socket in the hands of another process, where its own ended and left it to one; None if surely nobody has it.
    ///
    /// # Errors
    /// Whoever had it has ended since the holders were read ([`SocketError::is_gone`]), or who has it cannot be known.
    pub fn elsewhere(&self, holders: &mut Holders) -> Result<Option<Socket>, SocketError> {
        let Some(pid) = holders.of(self.inode)? else { return Ok(None) };
        let start_time = started(pid)?.ok_or(SocketError::NoProcess { pid })?;
        Ok(Some(Socket { pid, start_time, descriptor: None, ..self.clone() }))
    }

    /// A duplicate that is surely this socket.
    fn open(&self) -> Result<OwnedFd, SocketError> {
        // A server may have thousands of descriptors, and is looked at many times a second.
        let Some(number) = self.known() else { return self.open_at(None) };
        match self.open_at(Some(number)) {
            // Between the look at this number and the duplicate its process may have moved it to another.
            Err(error) if error.is_gone() => self.open_at(None),
            opened => opened,
        }
    }

    /// The same, of the descriptor with this number; None: it is searched for.
    fn open_at(&self, number: Option<i32>) -> Result<OwnedFd, SocketError> {
        let duplicate = self.duplicate(number)?;
        match cookie(&duplicate) {
            Ok(cookie) if cookie == self.cookie => Ok(duplicate),
            // Its process has given the descriptor to another socket meanwhile, or to a file.
            Ok(_) | Err(Errno::NOTSOCK) => Err(self.gone()),
            Err(error) => Err(self.refused(KNOW, error.into())),
        }
    }

    /// A duplicate of the descriptor with this number, or of the one that had the inode a moment ago.
    fn duplicate(&self, number: Option<i32>) -> Result<OwnedFd, SocketError> {
        let pid = Pid::from_raw(self.pid).ok_or(SocketError::NoProcess { pid: self.pid })?;
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            // The last two, by the kernel's age, where the id is a thread's by now, or its process is just being buried.
            Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => return Err(SocketError::NoProcess { pid: self.pid }),
            opened => opened.map_err(|error| self.refused("take hold", error.into()))?,
        };
        match self.take(&process, number) {
            // Of one that has ended nothing can be read. What cannot be read of one that lives may well be there.
            Err(SocketError::Process { .. }) if has_ended(&process) => Err(self.gone()),
            taken => taken,
        }
    }

    /// The duplicate, out of a process that is held.
    fn take(&self, process: &OwnedFd, number: Option<i32>) -> Result<OwnedFd, SocketError> {
        // Checked after the process is held: from here on the id cannot become somebody else's.
        if start_time(self.pid).map_err(|source| self.refused(START, source))? != self.start_time {
            return Err(self.gone());
        }
        let number = match number {
            Some(number) => number,
            None => self.search()?,
        };
        match pidfd_getfd(process, number, PidfdGetfdFlags::empty()) {
            Err(Errno::SRCH | Errno::BADF) => Err(self.gone()),
            taken => taken.map_err(|error| self.refused("duplicate the socket", error.into())),
        }
    }

    /// The number that it was found under, where it still has that.
    fn known(&self) -> Option<i32> {
        self.descriptor.filter(|number| self.is_at(*number))
    }

    /// Whether its process has it under this number. Where that cannot be told, a search says why.
    fn is_at(&self, number: i32) -> bool {
        let path = format!("/proc/{}/fd/{number}", self.pid);
        inode_at(Path::new(&path)).is_ok_and(|inode| inode == Some(self.inode))
    }

    /// The number of its descriptor now, by reading those of its process.
    fn search(&self) -> Result<i32, SocketError> {
        let mut unread = None;
        for socket in sockets(self.pid)? {
            match socket {
                Ok((inode, number)) if inode == self.inode => return Ok(number),
                Ok(_) => {}
                Err(error) => unread = Some(error),
            }
        }
        // One that could not be read may be it.
        Err(unread.map_or_else(|| self.gone(), |source| self.refused(LIST, source)))
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

fn cookie(fd: &OwnedFd) -> Result<u64, Errno> {
    rustix::net::sockopt::socket_cookie(fd)
}

/// Sockets that a process has open: inodes with descriptor numbers.
pub(crate) fn descriptors(pid: i32) -> Result<BTreeMap<u64, i32>, SocketError> {
    let (mut found, mut unread) = (BTreeMap::new(), None);
    for socket in sockets(pid)? {
        match socket {
            Ok((inode, number)) => {
                found.insert(inode, number);
            }
            Err(error) => unread = Some(error),
        }
    }
    match unread {
        Some(source) if found.is_empty() => Err(SocketError::Process { what: LIST, pid, source }),
        _ => Ok(found),
    }
}

/// The same one after the other. A descriptor that was closed meanwhile is left out.
fn sockets(pid: i32) -> Result<impl Iterator<Item = io::Result<(u64, i32)>>, SocketError> {
    let directory = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(|source| match is_absent(&source) {
        true => SocketError::NoProcess { pid },
        false => SocketError::Process { what: LIST, pid, source },
    })?;
    Ok(directory.filter_map(|entry| match entry {
        Ok(entry) => {
            let number = entry.file_name().to_str()?.parse::<i32>().ok()?;
            inode_at(&entry.path()).map(|inode| Some((inode?, number))).transpose()
        }
        Err(error) if is_absent(&error) => None,
        Err(error) => Some(Err(error)),
    }))
}

/// The inode of the socket behind a descriptor; None where there is none.
fn inode_at(path: &Path) -> io::Result<Option<u64>> {
    let link = match std::fs::read_link(path) {
        // The name of a file may be too long to be told; a socket's is not.
        Err(error) if is_absent(&error) || Errno::from_io_error(&error) == Some(Errno::NAMETOOLONG) => return Ok(None),
        link => link?,
    };
    let inode = |text: &str| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok();
    Ok(link.to_str().and_then(inode))
}

/// When a process started, in clock ticks since boot; None if there is none.
fn started(pid: i32) -> Result<Option<u64>, SocketError> {
    match start_time(pid) {
        Err(error) if is_absent(&error) => Ok(None),
        started => started.map(Some).map_err(|source| SocketError::Process { what: START, pid, source }),
    }
}

/// Field 22 of `/proc/PID/stat`; the name before may hold spaces and parentheses, so fields are counted from its end.
fn start_time(pid: i32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let field = |text: &str| text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse::<u64>().ok();
    field(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether what proc was asked for is not there, or not any more.
fn is_absent(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

/// Whether a process that is held has ended: from then on its descriptor can be read.
fn has_ended(process: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{pacing_rate, table};
    use std::net::{TcpListener, TcpStream};

    /// The server's end of a connection of this process, the client's, and the former as a stranger finds it.
    fn connection() -> (TcpStream, TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let known = table::connections(own).unwrap().into_iter().find(|connection| connection.peer == peer).unwrap();
        // This one alone is duplicated: what other tests close is closed.
        let socket = Socket::new(own, server.as_raw_fd(), &known).unwrap().unwrap();
        (server, client, socket)
    }

    #[test]
    fn a_socket_is_looked_at_where_it_was_found_and_found_where_it_is_now() {
        let ((server, _one, socket), (_server, _two, other)) = (connection(), connection());
        assert_eq!(socket.descriptor, Some(server.as_raw_fd()));
        assert!(socket.is_at(server.as_raw_fd()), "no other is looked at");
        // Its process keeps it under another number, and may have anything under the first.
        let moved = server.try_clone().unwrap();
        drop(server);
        assert!(!socket.descriptor.is_some_and(|number| socket.is_at(number)));
        socket.pace(Some(5_000)).unwrap();
        assert_eq!(pacing_rate(&moved).unwrap(), Some(5_000));
        // As it stands in journals of before, or under somebody else's number.
        for descriptor in [None, other.descriptor, Some(i32::MAX)] {
            let told = Socket { descriptor, ..socket.clone() };
            assert_eq!(told.read().unwrap().rate_bps, Some(5_000), "{descriptor:?}");
        }
        assert_eq!(other.read().unwrap().rate_bps, None);
        // As where it moves after the look at its number: there it is gone, and a search finds it.
        assert!(socket.open_at(other.descriptor).unwrap_err().is_gone());
        assert!(socket.open_at(None).is_ok());
        // The number says where to look, and not what it is.
        let stranger = Socket { cookie: socket.cookie, ..other };
        assert!(stranger.is_at(stranger.descriptor.unwrap()));
        assert!(stranger.pace(Some(1)).unwrap_err().is_gone());
        let reused = Socket { start_time: other.start_time + 1, ..other };
        assert!(reused.pace(Some(1)).unwrap_err().is_gone());
        drop(moved);
        assert!(socket.read().unwrap_err().is_gone());
    }

    #[test]
    fn a_socket_of_a_journal_of_before_is_read() {
        let text =
            r#"{"pid":7,"start_time":8,"inode":9,"cookie":10,"local":"127.0.0.1:5432","peer":"127.0.0.1:40000"}"#;
        let socket: Socket = serde_json::from_str(text).unwrap();
        assert_eq!((socket.descriptor, serde_json::to_string(&socket).unwrap().as_str()), (None, text));
        let found = Socket { descriptor: Some(11), ..socket };
        let again: Socket = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
        assert_eq!(again, found);
    }

    #[test]
    fn a_process_has_ended_when_its_descriptor_says_so_whether_it_is_buried_or_not() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!has_ended(&process) && started(pid).unwrap().is_some());
        child.kill().unwrap();
        while !has_ended(&process) {
            std::thread::yield_now();
        }
        assert!(started(pid).unwrap().is_some(), "its parent has not asked for it yet");
        child.wait().unwrap();
        assert!(has_ended(&process));
        assert_eq!(started(pid).unwrap(), None);
    }

    #[test]
    fn what_is_not_there_is_told_from_what_cannot_be_read() {
        let error = |errno: Errno| io::Error::from(errno);
        assert!([Errno::NOENT, Errno::SRCH].map(error).iter().all(is_absent));
        assert!(
            ![Errno::MFILE, Errno::NFILE, Errno::PERM, Errno::ACCESS, Errno::NOMEM].map(error).iter().any(is_absent)
        );
        let link = |name: &str| inode_at(Path::new(name));
        assert!(matches!(link("/proc/self/exe"), Ok(None)), "a file");
        assert!(matches!(link("/proc/self/fd/none"), Ok(None)), "nothing");
        assert!(link("/proc/self/stat").is_err(), "no link");
    }
}
