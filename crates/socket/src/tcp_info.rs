//! What the kernel knows of a TCP connection (`TCP_INFO`; the layout of `struct tcp_info` in linux/tcp.h, which only
//! ever grows at its end). A field that an older kernel lacks is None.

use crate::call;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;

/// `TCP_ESTABLISHED` and `TCP_CLOSE_WAIT` of linux/tcp_states.h.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;
/// More than any kernel fills today.
const LONGEST: usize = 512;

/// Figures of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpInfo {
    /// Whether it is established.
    pub established: bool,
    /// Whether its peer alone has said that it sends no more: it may read on, for as long as it likes.
    pub half_closed: bool,
    /// Payload of one segment, in bytes.
    pub segment_bytes: Option<u32>,
    /// Segments sent and not acknowledged.
    pub unacked_segments: Option<u32>,
    /// Smoothed round trip, in microseconds.
    pub rtt_us: Option<u32>,
    /// Smallest round trip of the last minutes, in microseconds (4.6).
    pub min_rtt_us: Option<u32>,
    /// Bytes that the peer acknowledged (4.1).
    pub acked_bytes: Option<u64>,
    /// Bytes that were written and not sent yet (4.6).
    pub notsent_bytes: Option<u32>,
    /// Latest delivery rate, in bytes a second (4.9).
    pub delivery_bytes_per_s: Option<u64>,
    /// Microseconds with something to send (4.10).
    pub busy_us: Option<u64>,
    /// Microseconds held by the peer's receive window (4.10).
    pub rwnd_limited_us: Option<u64>,
    /// Microseconds held by the own send buffer (4.10).
    pub sndbuf_limited_us: Option<u64>,
    /// Segments that came in (4.2); acknowledgements, where the peer says little.
    pub segments_in: Option<u32>,
    /// Bytes sent, what was sent again included (4.19).
    pub sent_bytes: Option<u64>,
    /// The receive window that the peer offers (5.4).
    pub peer_window_bytes: Option<u32>,
}

impl TcpInfo {
    /// Asks the kernel.
    ///
    /// # Errors
    /// The descriptor is no TCP socket.
    pub fn read(fd: impl AsFd) -> io::Result<TcpInfo> {
        let mut bytes = [0; LONGEST];
        let length = call::tcp_info(fd, &mut bytes)?;
        Ok(TcpInfo::parse(&bytes[..length]))
    }

    /// Whether its process may still send.
    pub fn may_send(&self) -> bool {
        self.established || self.half_closed
    }

    /// Bytes a second that arrived while there was something to send, over all of its life; None before there was.
    pub fn busy_bytes_per_s(&self) -> Option<u64> {
        let busy_us = self.busy_us.filter(|us| *us > 0)?;
        u64::try_from(u128::from(self.acked_bytes?) * 1_000_000 / u128::from(busy_us)).ok()
    }

    fn parse(bytes: &[u8]) -> TcpInfo {
        TcpInfo {
            established: bytes.first() == Some(&ESTABLISHED),
            half_closed: bytes.first() == Some(&CLOSE_WAIT),
            segment_bytes: u32_at(bytes, 16),
            unacked_segments: u32_at(bytes, 24),
            rtt_us: u32_at(bytes, 68),
            // Where there was no round trip yet, the kernel says all ones.
            min_rtt_us: u32_at(bytes, 148).filter(|rtt| *rtt != u32::MAX),
            acked_bytes: u64_at(bytes, 120),
            notsent_bytes: u32_at(bytes, 144),
            delivery_bytes_per_s: u64_at(bytes, 160),
            busy_us: u64_at(bytes, 168),
            rwnd_limited_us: u64_at(bytes, 176),
            sndbuf_limited_us: u64_at(bytes, 184),
            segments_in: u32_at(bytes, 140),
            sent_bytes: u64_at(bytes, 200),
            peer_window_bytes: u32_at(bytes, 228),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Reads bytes as the kernel's answer. For the fuzzer.
#[cfg(fuzzing)]
pub(crate) fn exercise(bytes: &[u8]) {
    let info = TcpInfo::parse(bytes);
    assert!(info.busy_bytes_per_s().is_none() || bytes.len() >= 176);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    #[test]
    fn a_real_connection_counts_what_went() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(&[7; 100_000]).unwrap();
        client.read_exact(&mut vec![0; 100_000]).unwrap();
        // The last acknowledgement may still be on its way.
        while TcpInfo::read(&server).unwrap().acked_bytes.unwrap() < 100_000 {
            std::thread::yield_now();
        }
        let info = TcpInfo::read(&server).unwrap();
        assert!(info.established && info.sent_bytes.unwrap() >= 100_000, "{info:?}");
        assert!(info.segment_bytes.unwrap() > 500 && info.rtt_us.unwrap() < 10_000_000, "{info:?}");
        assert_eq!(info.notsent_bytes, Some(0));
        assert!(info.segments_in.unwrap() > 0, "{info:?}");
        assert!(!TcpInfo::read(&listener).unwrap().established);
    }

    #[test]
    fn a_client_that_shut_its_sending_half_alone_may_be_sent_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let info = || TcpInfo::read(&server).unwrap();
        assert!(info().may_send() && !info().half_closed);
        client.shutdown(Shutdown::Write).unwrap();
        // Its last word may still be on its way.
        while info().established {
            std::thread::yield_now();
        }
        assert!(info().half_closed && info().may_send(), "{:?}", info());
        (&server).write_all(&[7; 1000]).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        assert!(info().half_closed && info().may_send(), "{:?}", info());
        server.shutdown(Shutdown::Write).unwrap();
        assert!(!info().may_send(), "{:?}", info());
    }

    #[test]
    fn a_rate_is_of_the_time_with_something_to_send() {
        let info = TcpInfo { acked_bytes: Some(3_000), busy_us: Some(1_500), ..TcpInfo::default() };
        assert_eq!(info.busy_bytes_per_s(), Some(2_000_000));
        assert_eq!(TcpInfo { busy_us: Some(0), ..info }.busy_bytes_per_s(), None);
    }

    #[test]
    fn an_older_kernels_answer_leaves_fields_out() {
        let mut bytes = [0; 104];
        bytes[0] = ESTABLISHED;
        bytes[68..72].copy_from_slice(&55u32.to_ne_bytes());
        let info = TcpInfo::parse(&bytes);
        let known = TcpInfo { segment_bytes: Some(0), unacked_segments: Some(0), ..TcpInfo::default() };
        assert_eq!(info, TcpInfo { established: true, rtt_us: Some(55), ..known });
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..LONGEST)) {
            let info = TcpInfo::parse(&bytes);
            prop_assert_eq!(info.peer_window_bytes.is_some(), bytes.len() >= 232);
        }
    }
}
