//! A netlink socket to ask a network namespace for its TCP connections.

use super::wire::{AF_INET, AF_INET6, Socket, parse, request};
use crate::ProbeError;
use crate::host::Roots;
use crate::host::task::directory;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The kernel sends at most 32 KiB at once to a buffer of this size.
const BUFFER_BYTES: usize = 64 << 10;
/// The kernel answers at once; this only keeps a lost answer from stopping the probe.
const PATIENCE: Duration = Duration::from_secs(2);

/// A way to ask one network namespace.
#[derive(Debug)]
pub(super) struct Diag {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens a socket in the namespace of a process, which is this one's own or has to be entered. A socket stays in
    /// the namespace it was made in, so a thread that lives just long enough to make it is all that enters.
    pub(super) fn open(roots: &Roots, pid: i32, namespace: u64) -> Result<Self, ProbeError> {
        let own = std::fs::metadata("/proc/thread-self/ns/net").map(|metadata| metadata.ino()).ok();
        let socket = if own == Some(namespace) { connect()? } else { connect_inside(roots, pid)? };
        Ok(Diag { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// All TCP connections of the namespace.
    pub(super) fn connections(&mut self) -> Result<Vec<Socket>, ProbeError> {
        let mut all = self.ask(AF_INET)?;
        match self.ask(AF_INET6) {
            Ok(more) => all.extend(more),
            // A kernel without IPv6 has no connections over it.
            Err(ProbeError::System { source, .. }) if source.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        Ok(all)
    }

    fn ask(&mut self, family: u8) -> Result<Vec<Socket>, ProbeError> {
        self.sequence = self.sequence.wrapping_add(1);
        rustix::io::retry_on_intr(|| rustix::io::write(&self.socket, &request(family, self.sequence)))
            .map_err(system("write(sock_diag)"))?;
        let mut sockets = Vec::new();
        loop {
            let count = rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, self.buffer.as_mut_slice()))
                .map_err(system("read(sock_diag)"))?;
            let answer = parse(&self.buffer[..count], self.sequence);
            sockets.extend(answer.sockets);
            if let Some(code) = answer.error.filter(|code| *code != 0) {
                return Err(system("sock_diag")(Errno::from_raw_os_error(code)));
            }
            if answer.done || count == 0 {
                return Ok(sockets);
            }
        }
    }
}

/// Whether this host answers questions about TCP at all.
pub(in crate::host) fn can_ask() -> Result<(), ProbeError> {
    let mut diag = Diag { socket: connect()?, sequence: 0, buffer: vec![0; BUFFER_BYTES] };
    diag.connections().map(|_| ())
}

/// The inode of the network namespace of a process.
pub(super) fn namespace_of(roots: &Roots, pid: i32) -> Result<u64, ProbeError> {
    let path = directory(roots, pid).join("ns/net");
    let metadata = std::fs::metadata(&path).map_err(|source| ProbeError::Read { path, source })?;
    Ok(metadata.ino())
}

fn connect() -> Result<OwnedFd, ProbeError> {
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
        .map_err(system("socket(NETLINK_SOCK_DIAG)"))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE)).map_err(system("setsockopt"))?;
    Ok(socket)
}

fn connect_inside(roots: &Roots, pid: i32) -> Result<OwnedFd, ProbeError> {
    let path = directory(roots, pid).join("ns/net");
    let namespace = File::open(&path).map_err(|source| ProbeError::Read { path, source })?;
    let visit = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(system("setns"))?;
        connect()
    };
    let thread = std::thread::Builder::new().name("bw-setns".to_owned()).spawn(visit);
    let thread = thread.map_err(|source| ProbeError::System { call: "clone", source })?;
    thread.join().unwrap_or_else(|_| Err(system("setns")(Errno::CANCELED)))
}

fn system(call: &'static str) -> impl Fn(Errno) -> ProbeError {
    move |error| ProbeError::System { call, source: error.into() }
}
