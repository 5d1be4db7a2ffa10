//! The messages of sock_diag: linux/inet_diag.h and `struct tcp_info` of linux/tcp.h, read field by
//! field with checks. The structure grew with the kernel, so each field may be missing; a ready-made decoder that wants
//! all of it would fail on every kernel older than itself.

use crate::host::netlink::{attribute, u32_at, u64_at};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// SOCK_DIAG_BY_FAMILY.
pub(super) const SOCKET: u16 = 20;
const IPPROTO_TCP: u8 = 6;
pub(super) const AF_INET: u8 = 2;
pub(super) const AF_INET6: u8 = 10;
/// INET_DIAG_INFO, as an attribute; as a wish it is the bit before.
const INFO: u16 = 2;
/// Established, FIN_WAIT1 and CLOSE_WAIT: the states with data to send.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 8;
const REQUEST_BYTES: usize = 56;
const MESSAGE_BYTES: usize = 72;

/// One connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::host) struct Socket {
    pub(in crate::host) inode: u64,
    pub(in crate::host) local: SocketAddr,
    pub(in crate::host) peer: SocketAddr,
    /// Written and not yet acknowledged.
    pub(in crate::host) send_queue_bytes: u32,
    pub(in crate::host) info: Info,
}

/// What matters of `struct tcp_info`. Present from kernel: 3.15 the pacing rate, 4.1 acknowledged and received bytes, 4.2 segments, 4.6
/// notsent and min_rtt, 4.9 delivery rate, 4.10 the three times, 4.19 sent bytes, 5.4 the peer's window; the rest always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::host) struct Info {
    pub(in crate::host) send_segment_bytes: Option<u32>,
    pub(in crate::host) unacked_segments: Option<u32>,
    pub(in crate::host) rtt_us: Option<u32>,
    pub(in crate::host) retransmits: Option<u32>,
    pub(in crate::host) max_pacing_bytes_per_s: Option<u64>,
    pub(in crate::host) bytes_acked: Option<u64>,
    pub(in crate::host) bytes_received: Option<u64>,
    pub(in crate::host) segments_out: Option<u32>,
    pub(in crate::host) segments_in: Option<u32>,
    pub(in crate::host) notsent_bytes: Option<u32>,
    pub(in crate::host) min_rtt_us: Option<u32>,
    pub(in crate::host) delivery_bytes_per_s: Option<u64>,
    pub(in crate::host) busy_us: Option<u64>,
    pub(in crate::host) rwnd_limited_us: Option<u64>,
    pub(in crate::host) sndbuf_limited_us: Option<u64>,
    pub(in crate::host) bytes_sent: Option<u64>,
    pub(in crate::host) peer_window_bytes: Option<u32>,
}

impl Info {
    /// Sent and not yet acknowledged, as whole segments.
    pub(in crate::host) fn unacked_bytes(&self) -> Option<u64> {
        Some(u64::from(self.unacked_segments?) * u64::from(self.send_segment_bytes?))
    }

    fn parse(bytes: &[u8]) -> Self {
        Info {
            send_segment_bytes: u32_at(bytes, 16),
            unacked_segments: u32_at(bytes, 24),
            rtt_us: u32_at(bytes, 68),
            retransmits: u32_at(bytes, 100),
            // All bits set: it is held to none.
            max_pacing_bytes_per_s: u64_at(bytes, 112).filter(|rate| *rate != u64::MAX),
            bytes_acked: u64_at(bytes, 120),
            bytes_received: u64_at(bytes, 128),
            segments_out: u32_at(bytes, 136),
            segments_in: u32_at(bytes, 140),
            notsent_bytes: u32_at(bytes, 144),
            // All bits set: no round trip was measured yet.
            min_rtt_us: u32_at(bytes, 148).filter(|rtt| *rtt != u32::MAX),
            delivery_bytes_per_s: u64_at(bytes, 160),
            busy_us: u64_at(bytes, 168),
            rwnd_limited_us: u64_at(bytes, 176),
            sndbuf_limited_us: u64_at(bytes, 184),
            bytes_sent: u64_at(bytes, 200),
            peer_window_bytes: u32_at(bytes, 228),
        }
    }
}

/// The body of a request for all connections of an address family.
pub(super) fn request(family: u8) -> [u8; REQUEST_BYTES] {
    let mut out = [0; REQUEST_BYTES];
    out[0] = family;
    out[1] = IPPROTO_TCP;
    out[2] = 1 << (INFO - 1);
    out[4..8].copy_from_slice(&STATES.to_ne_bytes());
    out
}

/// The connection that a message is about.
pub(super) fn socket(message: &[u8]) -> Option<Socket> {
    let family = *message.first()?;
    let inode = u64::from(u32_at(message, 68)?);
    Some(Socket {
        inode,
        local: address(family, message.get(4..6)?, message.get(8..24)?)?,
        peer: address(family, message.get(6..8)?, message.get(24..40)?)?,
        send_queue_bytes: u32_at(message, 60)?,
        info: Info::parse(attribute(message.get(MESSAGE_BYTES..)?, INFO)?),
    })
}

/// An IPv4 address in IPv6 clothes is shown as what it is: a server listening on `::` has such.
fn address(family: u8, port: &[u8], bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(port.try_into().ok()?);
    let ip = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?)),
        AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::netlink::tests::message;
    use crate::host::netlink::{Message, messages};
    use proptest::prelude::*;

    /// The connections in a datagram that answers request 7.
    fn parse(datagram: &[u8]) -> Vec<Socket> {
        let body = |message| match message {
            Message::Body(SOCKET, body) => socket(body),
            _ => None,
        };
        messages(datagram, 7).filter_map(body).collect()
    }

    /// A connection 10.0.0.1:5432 ↔ 10.0.0.2:40000 with so many bytes of tcp_info.
    fn connection(info_bytes: usize) -> Vec<u8> {
        let mut body = vec![0; MESSAGE_BYTES];
        body[0] = AF_INET;
        body[4..8].copy_from_slice(&[0x15, 0x38, 0x9c, 0x40]);
        body[8..12].copy_from_slice(&[10, 0, 0, 1]);
        body[24..28].copy_from_slice(&[10, 0, 0, 2]);
        body[60..64].copy_from_slice(&777u32.to_ne_bytes());
        body[68..72].copy_from_slice(&4242u32.to_ne_bytes());
        let mut info = vec![0; 232];
        info[16..20].copy_from_slice(&1448u32.to_ne_bytes());
        info[24..28].copy_from_slice(&3u32.to_ne_bytes());
        info[112..120].copy_from_slice(&2_000_000u64.to_ne_bytes());
        info[144..148].copy_from_slice(&99u32.to_ne_bytes());
        info[136..140].copy_from_slice(&11u32.to_ne_bytes());
        info[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        info[176..184].copy_from_slice(&55u64.to_ne_bytes());
        info[200..208].copy_from_slice(&66u64.to_ne_bytes());
        info[228..232].copy_from_slice(&65_535u32.to_ne_bytes());
        body.extend(((4 + info_bytes) as u16).to_ne_bytes());
        body.extend(INFO.to_ne_bytes());
        body.extend(&info[..info_bytes]);
        body
    }

    #[test]
    fn a_connection_of_a_present_kernel_is_read_whole() {
        let sockets = parse(&message(SOCKET, 7, &connection(232)));
        let socket = &sockets[0];
        assert_eq!((socket.inode, socket.send_queue_bytes), (4_242, 777));
        assert_eq!(
            (socket.local.to_string(), socket.peer.to_string()),
            ("10.0.0.1:5432".into(), "10.0.0.2:40000".into())
        );
        assert_eq!(socket.info.unacked_bytes(), Some(4_344));
        assert_eq!((socket.info.notsent_bytes, socket.info.rwnd_limited_us), (Some(99), Some(55)));
        assert_eq!((socket.info.segments_out, socket.info.bytes_sent), (Some(11), Some(66)));
        assert_eq!((socket.info.min_rtt_us, socket.info.peer_window_bytes), (None, Some(65_535)));
        assert_eq!(socket.info.max_pacing_bytes_per_s, Some(2_000_000));
        let mut free = connection(232);
        let paced = free.windows(8).position(|bytes| bytes == 2_000_000u64.to_ne_bytes()).unwrap();
        free[paced..paced + 8].fill(0xff);
        assert_eq!(parse(&message(SOCKET, 7, &free))[0].info.max_pacing_bytes_per_s, None);
    }

    #[test]
    fn an_old_kernels_shorter_info_leaves_fields_out() {
        let info = parse(&message(SOCKET, 7, &connection(104)))[0].info;
        assert_eq!((info.retransmits, info.bytes_acked, info.rwnd_limited_us), (Some(0), None, None));
        let info = parse(&message(SOCKET, 7, &connection(192)))[0].info;
        assert_eq!((info.sndbuf_limited_us, info.bytes_sent, info.peer_window_bytes), (Some(0), None, None));
    }

    #[test]
    fn answers_to_another_request_are_passed_over() {
        assert_eq!(parse(&message(SOCKET, 8, &connection(232))), []);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse(&bytes);
            socket(&bytes);
            parse(&message(SOCKET, 7, &bytes));
            let whole = message(SOCKET, 7, &connection(232));
            parse(&whole[..bytes.len().min(whole.len())]);
        }
    }
}
