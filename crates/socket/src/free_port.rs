//! A port for a server of a test or a benchmark.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const TRIED: usize = 100;

/// A port of the loopback for a server that shall be started: nothing listens at it now, and, unlike one that `bind`
/// chooses, the kernel gives it to nobody's outgoing connection until the server is there.
///
/// # Errors
/// The kernel's for the last port, when of a hundred none is free.
pub fn free_port() -> io::Result<u16> {
    let ports = never_outgoing(&std::fs::read_to_string(RANGE).unwrap_or_default());
    let first = RandomState::new().hash_one(()) as usize % ports.len();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for port in ports.iter().cycle().skip(first).take(TRIED) {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, *port)) {
            Ok(_) => return Ok(*port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Ports from 10,000 on that the kernel does not choose for connections, by the text of `ip_local_port_range`; all of
/// them where it may choose any.
fn never_outgoing(range: &str) -> Vec<u16> {
    let mut ends = range.split_whitespace().map_while(|end| end.parse().ok());
    let (low, high) = (ends.next().unwrap_or(32_768), ends.next().unwrap_or(60_999));
    let outside: Vec<u16> = (10_000..=u16::MAX).filter(|port| !(low..=high).contains(port)).collect();
    if outside.is_empty() { (10_000..=u16::MAX).collect() } else { outside }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_none_that_connections_are_given() {
        let ports = never_outgoing("32768\t60999\n");
        assert!(ports.contains(&10_000) && ports.contains(&32_767) && ports.contains(&61_000));
        assert!(!ports.contains(&32_768) && !ports.contains(&60_999) && !ports.contains(&9_999));
        assert_eq!(never_outgoing(""), ports);
        assert_eq!(never_outgoing("1024 65535").len(), 55_536);
        TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().unwrap())).unwrap();
    }
}
