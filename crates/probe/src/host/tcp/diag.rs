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
        self.connections_until(|_| false)
    }

    /// Its connections over IPv4, and over IPv6 too unless those were `enough`: for each question the kernel goes through its
    /// whole table, which has a quarter of a million places on a host of some 20 GiB, however few of them are taken.
    pub(super) fn connections_until(&mut self, enough: impl Fn(&[Socket]) -> bool) -> Result<Vec<Socket>, ProbeError> {
        let mut all = self.ask(AF_INET)?;
        if enough(&all) {
            return Ok(all);
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_second_question_is_asked_unless_the_first_was_enough() {
        let Ok(listener) = TcpListener::bind("[::1]:0") else {
            eprintln!("skipped: the_second_question_is_asked_unless_the_first_was_enough: there is no IPv6 here");
            return;
        };
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = connection.local_addr().unwrap();
        let mut diag = Diag { netlink: Netlink::here(SOCK_DIAG).unwrap() };
        let has = |found: &[Socket]| found.iter().any(|socket| socket.local == local);
        assert!(has(&diag.connections().unwrap()) && has(&diag.connections_until(has).unwrap()));
        assert!(!has(&diag.connections_until(|_| true).unwrap()));
    }
}
