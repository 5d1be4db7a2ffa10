//! The kernel's tables of TCP sockets, `/proc/PID/net/tcp` and `tcp6`: those of the network namespace that the process
//! is in. Lines that cannot be read are left out.

use crate::SocketError;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// `TCP_ESTABLISHED` and `TCP_CLOSE_WAIT`, as the table spells them: whoever has sent all that they wanted may read on.
const MAY_SEND: [&str; 2] = ["01", "08"];

/// A connection by which its process may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) inode: u64,
}

/// Such connections of a process's network namespace.
pub(crate) fn connections(pid: i32) -> Result<Vec<Connection>, SocketError> {
    Ok(read(pid)?.lines().filter_map(parse).collect())
}

/// The inodes of all sockets there that somebody has open, whatever became of their connections.
pub(crate) fn inodes(pid: i32) -> Result<Vec<u64>, SocketError> {
    Ok(read(pid)?.lines().filter_map(inode).collect())
}

fn read(pid: i32) -> Result<String, SocketError> {
    let path = |table: &str| format!("/proc/{pid}/net/{table}");
    let unread = |table: &str, error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => SocketError::NoProcess { pid },
        _ => SocketError::Table { what: path(table), why: error.to_string() },
    };
    let mut text = std::fs::read_to_string(path("tcp")).map_err(|error| unread("tcp", &error))?;
    match std::fs::read_to_string(path("tcp6")) {
        Ok(more) => text.push_str(&more),
        // A kernel without IPv6 has no second table. A process that ended meanwhile has none of both.
        Err(error) if error.kind() == ErrorKind::NotFound && Path::new(&path("tcp")).exists() => {}
        Err(error) => return Err(unread("tcp6", &error)),
    }
    Ok(text)
}

/// `  0: 0100007F:1538 0100007F:A0CC 01 00000000:00000000 00:00000000 00000000     0        0 12345 …`
fn parse(line: &str) -> Option<Connection> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, peer) = (address(fields.next()?)?, address(fields.next()?)?);
    if !MAY_SEND.contains(&fields.next()?) {
        return None;
    }
    Some(Connection { local, peer, inode: inode(line)? })
}

/// None for one that nobody has open any more.
fn inode(line: &str) -> Option<u64> {
    line.split_ascii_whitespace().nth(9)?.parse::<u64>().ok().filter(|inode| *inode != 0)
}

/// Words of the address in the host's byte order, the port as a number; an IPv4 address in IPv6 clothes becomes one.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = [0u8; 16];
    for (at, word) in address.as_bytes().chunks(8).enumerate() {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.get_mut(at * 4..at * 4 + 4)?.copy_from_slice(&word.to_ne_bytes());
    }
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        32 => IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Reads a text as a table. For the fuzzer.
#[cfg(fuzzing)]
pub(crate) fn exercise(text: &str) {
    assert!(text.lines().filter_map(parse).all(|connection| connection.inode != 0));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn lines_are_read() {
        let line =
            "   1: 0100007F:1538 0200000A:A0CC 01 00000000:00000000 02:000A 00000000  109  0 4711 2 0 20 4 30 10 -1";
        let found = parse(line).unwrap();
        let wanted = ("127.0.0.1:5432".parse().unwrap(), "10.0.0.2:41164".parse().unwrap(), 4711);
        assert_eq!((found.local, found.peer, found.inode), wanted);
        assert_eq!(parse(&line.replace(" 01 ", " 08 ")), Some(found), "its client reads on");
        for state in [" 04 ", " 05 ", " 06 ", " 07 ", " 09 ", " 0A ", " 0B "] {
            assert_eq!(parse(&line.replace(" 01 ", state)), None, "{state}");
            assert_eq!(inode(&line.replace(" 01 ", state)), Some(4711), "{state}");
        }
        let left = line.replace(" 4711 ", " 0 ");
        assert_eq!((parse(&left), inode(&left)), (None, None));
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!((parse(head), inode(head)), (None, None));
        let mapped = "0000000000000000FFFF00000100007F:1538";
        assert_eq!(address(mapped).unwrap(), "127.0.0.1:5432".parse().unwrap());
        assert_eq!(address("B80D01200000000000000000000000FF:0001").unwrap().to_string(), "[2001:db8::ff00:0]:1");
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in ".{0,200}", words in prop::collection::vec("[0-9A-F:]{0,40}", 0..12)) {
            for line in [line, words.join(" ")] {
                let _ = (parse(&line), inode(&line));
            }
        }
    }
}
