//! What stands in the send queues towards the clients, sent and not acknowledged or not sent at all, read from the
//! kernel's table in the server's network namespace: whoever sends there, the server itself or the proxy before it.

use std::net::Ipv4Addr;

/// Where the kernel tells of the sockets in the namespace of the thread that asks.
pub(crate) const TABLE: &str = "/proc/thread-self/net/tcp";
/// The state of a connection that stands, in that table.
const ESTABLISHED: &str = "01";

/// Readings of the sum over all connections with one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendQueues {
    sums: Vec<u64>,
}

impl SendQueues {
    /// Takes a reading from the table's text.
    pub(crate) fn add(&mut self, table: &str, peer: Ipv4Addr) {
        self.sums.push(standing_bytes(table, peer));
    }

    /// The mean of all readings; none without one.
    pub(crate) fn mean_bytes(&self) -> Option<f64> {
        let sum: u64 = self.sums.iter().sum();
        (!self.sums.is_empty()).then(|| sum as f64 / self.sums.len() as f64)
    }

    /// The largest reading.
    pub(crate) fn peak_bytes(&self) -> Option<f64> {
        self.sums.iter().max().map(|peak| *peak as f64)
    }
}

/// Bytes in the send queues of connections that stand with this host (`tx_queue`; proc(5)).
fn standing_bytes(table: &str, peer: Ipv4Addr) -> u64 {
    // The kernel prints the address as it lies in memory.
    let wanted = format!("{:08X}", u32::from_ne_bytes(peer.octets()));
    let queued = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let (remote, state, queues) = (fields.next()?, fields.next()?, fields.next()?);
        let is_ours = state == ESTABLISHED && remote.split(':').next() == Some(wanted.as_str());
        let (sending, _) = queues.split_once(':')?;
        u64::from_str_radix(sending, 16).ok().filter(|_| is_ours)
    };
    table.lines().filter_map(queued).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_a_client_has_not_taken_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = server.write(&[1; 65_536]) {
            sent += count as u64;
        }
        // Other tests' sockets are on loopback too, so only the least is known.
        let table = || std::fs::read_to_string(TABLE).unwrap();
        let standing = standing_bytes(&table(), Ipv4Addr::LOCALHOST);
        assert!(standing > 0, "{sent}");
        client.read_exact(&mut vec![0; sent as usize]).unwrap();
        assert_eq!(standing_bytes(&table(), Ipv4Addr::new(192, 0, 2, 1)), 0);
    }

    #[test]
    fn only_connections_that_stand_with_that_host_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n\
                     0: 0100C80A:1538 0200C80A:D204 01 00000010:00000000 01:00000014 00000000 0 0 1 2\n\
                     1: 0100C80A:1538 0200C80A:D205 01 00000005:00000000 01:00000014 00000000 0 0 1 2\n\
                     2: 0100C80A:1538 0200C80A:D206 06 00000100:00000000 01:00000014 00000000 0 0 1 2\n\
                     3: 0100C80A:1538 0300C80A:D207 01 00001000:00000000 01:00000014 00000000 0 0 1 2\n";
        let little_endian = cfg!(target_endian = "little");
        let peer = if little_endian { Ipv4Addr::new(10, 200, 0, 2) } else { Ipv4Addr::new(2, 0, 200, 10) };
        let mut queues = SendQueues::default();
        queues.add(table, peer);
        queues.add("", peer);
        assert_eq!((queues.mean_bytes(), queues.peak_bytes()), (Some(10.5), Some(21.0)));
        assert_eq!(SendQueues::default().mean_bytes(), None);
    }

    proptest! {
        #[test]
        fn any_table_is_survived(text in ".*") {
            standing_bytes(&text, Ipv4Addr::LOCALHOST);
        }
    }
}
