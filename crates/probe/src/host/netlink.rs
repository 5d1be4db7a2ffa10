//! What the protocols of netlink share: a socket in a network namespace, asking it for all there is of something (a
//! dump), and taking messages and attributes apart (linux/netlink.h).

use super::Roots;
use super::task::directory;
use crate::ProbeError;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The kernel sends at most 32 KiB at once to a buffer of this size.
const BUFFER_BYTES: usize = 64 << 10;
/// The kernel answers at once; this only keeps a lost answer from stopping the probe.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) const HEADER_BYTES: usize = 16;
/// NLM_F_REQUEST, and NLM_F_DUMP for all that fit.
const DUMP: u16 = 0x1 | 0x300;
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The two highest bits of an attribute's kind say how it is encoded.
const KIND_BITS: u16 = 0x3fff;

/// Of interfaces and routes (NETLINK_ROUTE is 0, which is how a protocol is left to the family to choose).
pub(super) const ROUTE: Option<Protocol> = None;
/// Of sockets.
pub(super) const SOCK_DIAG: Option<Protocol> = Some(rustix::net::netlink::SOCK_DIAG);

/// A socket of one protocol in one network namespace.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the namespace of this process.
    pub(super) fn here(protocol: Option<Protocol>) -> Result<Self, ProbeError> {
        Ok(Netlink { socket: connect(protocol)?, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Opens a socket in the namespace of a process, which is this one's own or has to be entered. A socket stays in
    /// the namespace it was made in, so a thread that lives just long enough to make it is all that enters.
    pub(super) fn open(
        roots: &Roots,
        pid: i32,
        namespace: u64,
        protocol: Option<Protocol>,
    ) -> Result<Self, ProbeError> {
        if own_namespace() == Some(namespace) {
            return Netlink::here(protocol);
        }
        let socket = connect_inside(roots, pid, protocol)?;
        Ok(Netlink { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Asks for all of something, and hands on the kind and the body of every message of the answer.
    pub(super) fn dump(&mut self, kind: u16, body: &[u8], take: &mut dyn FnMut(u16, &[u8])) -> Result<(), ProbeError> {
        self.sequence = self.sequence.wrapping_add(1);
        rustix::io::retry_on_intr(|| rustix::io::write(&self.socket, &request(kind, self.sequence, body)))
            .map_err(system("write(netlink)"))?;
        loop {
            let count = rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, self.buffer.as_mut_slice()))
                .map_err(system("read(netlink)"))?;
            for message in messages(&self.buffer[..count], self.sequence) {
                match message {
                    Message::Body(kind, body) => take(kind, body),
                    Message::Done => return Ok(()),
                    Message::Refused(code) => return Err(system("netlink")(Errno::from_raw_os_error(code))),
                }
            }
            if count == 0 {
                return Ok(());
            }
        }
    }
}

/// The inode of the network namespace of a process.
pub(super) fn namespace_of(roots: &Roots, pid: i32) -> Result<u64, ProbeError> {
    let path = directory(roots, pid).join("ns/net");
    let metadata = std::fs::metadata(&path).map_err(|source| ProbeError::Read { path, source })?;
    Ok(metadata.ino())
}

/// The inode of the namespace this thread is in.
pub(super) fn own_namespace() -> Option<u64> {
    std::fs::metadata("/proc/thread-self/ns/net").map(|metadata| metadata.ino()).ok()
}

fn connect(protocol: Option<Protocol>) -> Result<OwnedFd, ProbeError> {
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
        .map_err(system("socket(netlink)"))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE)).map_err(system("setsockopt"))?;
    Ok(socket)
}

fn connect_inside(roots: &Roots, pid: i32, protocol: Option<Protocol>) -> Result<OwnedFd, ProbeError> {
    let path = directory(roots, pid).join("ns/net");
    let namespace = File::open(&path).map_err(|source| ProbeError::Read { path, source })?;
    let visit = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(system("setns"))?;
        connect(protocol)
    };
    let thread = std::thread::Builder::new().name("bw-setns".to_owned()).spawn(visit);
    let thread = thread.map_err(|source| ProbeError::System { call: "clone", source })?;
    thread.join().unwrap_or_else(|_| Err(system("setns")(Errno::CANCELED)))
}

fn system(call: &'static str) -> impl Fn(Errno) -> ProbeError {
    move |error| ProbeError::System { call, source: error.into() }
}

/// A request for all of something.
pub(super) fn request(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(DUMP.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
    out.extend(body);
    out
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// Its kind and what it holds.
    Body(u16, &'a [u8]),
    /// The answer is complete.
    Done,
    /// The kernel refused, with this error number.
    Refused(i32),
}

/// The messages of one datagram, those of other requests left out.
pub(super) fn messages(datagram: &[u8], sequence: u32) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        loop {
            let length = u32_at(rest, 0)? as usize;
            let body = rest.get(HEADER_BYTES..length)?;
            let (kind, number) = (u16_at(rest, 4)?, u32_at(rest, 8)?);
            rest = rest.get(aligned(length)..).unwrap_or_default();
            if number != sequence {
                continue;
            }
            match kind {
                NLMSG_DONE => return Some(Message::Done),
                NLMSG_ERROR => match u32_at(body, 0).map(|code| (code as i32).saturating_neg()) {
                    Some(code) if code != 0 => return Some(Message::Refused(code)),
                    // An error of zero is an acknowledgement.
                    _ => {}
                },
                NLMSG_NOOP => {}
                kind => return Some(Message::Body(kind, body)),
            }
        }
    })
}

/// The attributes in a run of them, by kind.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..length)?;
        let kind = u16_at(bytes, 2)? & KIND_BITS;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of a kind.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(have, _)| *have == kind).map(|(_, value)| value)
}

/// A name as the kernel writes it, with a zero behind it.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// A message as the kernel writes it.
    pub(in crate::host) fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut out = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend([0; 2]);
        out.extend(sequence.to_ne_bytes());
        out.extend([0; 4]);
        out.extend(body);
        out.resize(aligned(out.len()), 0);
        out
    }

    #[test]
    fn answers_to_another_request_are_passed_over_and_refusals_seen() {
        let mut datagram = message(20, 1, &[1, 2, 3]);
        datagram.extend(message(20, 2, &[4]));
        datagram.extend(message(NLMSG_ERROR, 2, &0i32.to_ne_bytes()));
        datagram.extend(message(NLMSG_ERROR, 2, &(-2i32).to_ne_bytes()));
        datagram.extend(message(NLMSG_DONE, 2, &[0; 4]));
        let list: Vec<_> = messages(&datagram, 2).collect();
        assert_eq!(list, [Message::Body(20, &[4]), Message::Refused(2), Message::Done]);
    }

    #[test]
    fn a_request_says_its_length_and_wants_all() {
        let request = request(20, 7, &[9; 8]);
        assert_eq!((u32_at(&request, 0), u16_at(&request, 4), u16_at(&request, 6)), (Some(24), Some(20), Some(0x301)));
    }

    #[test]
    fn how_an_attribute_is_encoded_is_no_part_of_its_kind() {
        let bytes = [6, 0, 2, 0x80, 7, 7, 0, 0, 5, 0, 3, 0, b'x', 0, 0, 0];
        assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [(2, &[7, 7][..]), (3, &b"x"[..])]);
        assert_eq!(text(attribute(&bytes, 3).unwrap()), "x");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_go_on_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(messages(&bytes, 0).count() <= bytes.len());
            prop_assert!(attributes(&bytes).count() <= bytes.len());
            text(&bytes);
        }
    }
}
