//! Asks a network namespace for its TCP connections.

use super::wire::{AF_INET, AF_INET6, SOCKET, Socket, request, socket};
use crate::ProbeError;
use crate::host::Roots;
use crate::host::netlink::{Netlink, SOCK_DIAG};
use rustix::io::Errno;

/// A way to ask one network namespace.
#[derive(Debug)]
pub(in crate::host) struct Diag {
    netlink: Netlink,
}

impl Diag {
    /// A way to ask the namespace of a process.
    pub(in crate::host) fn open(roots: &Roots, pid: i32, namespace: u64) -> Result<Self, ProbeError> {
        Ok(Diag { netlink: Netlink::open(roots, pid, namespace, SOCK_DIAG)? })
    }

    /// All TCP connections of the namespace.
    pub(in crate::host) fn connections(&mut self) -> Result<Vec<Socket>, ProbeError> {
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
        let mut sockets = Vec::new();
        let mut take = |kind: u16, body: &[u8]| sockets.extend((kind == SOCKET).then(|| socket(body)).flatten());
        self.netlink.dump(SOCKET, &request(family), &mut take)?;
        Ok(sockets)
    }
}

/// Whether this host answers questions about TCP at all.
pub(in crate::host) fn can_ask() -> Result<(), ProbeError> {
    Diag { netlink: Netlink::here(SOCK_DIAG)? }.connections().map(|_| ())
}
