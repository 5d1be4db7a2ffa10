//! The low class's own sockets towards its clients: what of the class is on its way, and how long the way is. Whatever
//! stands there stands in front of everybody else's packets, here or at a narrower link beyond this host, where no
//! priority of the proxy reaches.

use crate::silence::{self, Silence};
use backwater_flow::SessionId;
use backwater_flow::auto::SocketReading;
use backwater_flow::limiter::{InFlight, in_flight_bytes};
use backwater_model::{Moment, Span};
use backwater_socket::{TcpInfo, set_pacing_rate, unsent_and_unacked, within_host};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// What goes at once to a client elsewhere: the rest of a piece that its socket does not take goes later, and asks no bound.
const MOST_ELSEWHERE_BYTES: u64 = 32 * 1024;
/// Less than this is always on its way: the least quantum, or nothing would move.
const LEAST_BYTES: u64 = backwater_flow::LEAST_QUANTUM_BYTES;
/// A receiver may keep back its word on so many segments for 40 ms: that is no queue.
const SEGMENTS_NOT_ACKNOWLEDGED_YET: u64 = 2;
/// A segment's size where the kernel has not told it yet.
const USUAL_SEGMENT: u64 = 1460;
/// What was sent to a peer that acknowledges nothing for so long is lost, or it is gone: the kernel's shortest wait before it sends
/// again.
const SILENT_AT_LEAST: Span = Span::from_millis(200);
/// Above this no socket is paced by the kernel: a segment of 64 KiB takes less than 61 µs there, and a timer for each takes more of
/// a processor than what it bounds is worth (docs/bench/pacing.md).
const MOST_PACED_BPS: u64 = 1 << 30;
/// How old a measurement may be before it is made anew.
const FRESH: Span = Span(200);

/// The sockets of the class.
#[derive(Debug)]
pub(super) struct Sockets {
    known: HashMap<SessionId, Known>,
    /// Those that were granted something since their queue was last seen empty.
    busy: BTreeSet<SessionId>,
    in_flight: InFlight,
    /// What the kernel holds each socket to, in bytes a second.
    peak_bps: Option<u64>,
    measured_at: Option<Moment>,
}

/// A duplicate of a session's socket, to ask the kernel about. It goes before the session's own does.
#[derive(Debug)]
struct Known {
    fd: OwnedFd,
    /// Its client's host.
    peer: Option<IpAddr>,
    /// That is this one: what stands on the way there stands in front of nobody's packets, and is not counted.
    within_host: bool,
    acked_bytes: Option<u64>,
    segment_bytes: u64,
    silence: Silence,
}

impl Known {
    /// Has the kernel send it no faster than this. One that cannot be paced is about to go; the class's bucket holds it all the
    /// same.
    fn pace(&self, peak_bps: Option<u64>) {
        if self.within_host {
            return;
        }
        if let Err(error) = set_pacing_rate(&self.fd, peak_bps) {
            tracing::debug!(%error, "a session's socket is not paced");
        }
    }

    /// What of it stands on its way; None where nothing is queued at all.
    fn standing_bytes(&mut self, now: Moment) -> Option<u64> {
        let delayed = SEGMENTS_NOT_ACKNOWLEDGED_YET * self.segment_bytes;
        // A socket that cannot be asked is about to go.
        let queued = unsent_and_unacked(&self.fd).unwrap_or(0);
        if queued <= delayed {
            self.silence.ends();
            return None;
        }
        // One that is closed by its peer keeps its last count for ever.
        let info = TcpInfo::read(&self.fd).ok().filter(|info| info.may_send())?;
        let long = silence::long(info.rtt_us, SILENT_AT_LEAST);
        if self.silence.hear(now, info.acked_bytes.unwrap_or(0), long) {
            return Some(0);
        }
        Some(on_its_way(queued, &info).saturating_sub(delayed))
    }
}

/// What of a socket's queue is on its way, or will be as soon as it can: that is what stands in front of others' packets.
/// What a peer has no room for stays here until it reads, and must not hold the whole class while it sleeps.
fn on_its_way(queued: u64, info: &TcpInfo) -> u64 {
    // A kernel that does not tell the peer's window is believed to have all of it.
    let window = info.peer_window_bytes.map_or(u64::MAX, u64::from);
    let sent = queued.saturating_sub(info.notsent_bytes.map_or(0, u64::from));
    queued.min(window.max(sent))
}

impl Default for Sockets {
    /// None, and no bound before their way is known.
    fn default() -> Self {
        let in_flight = InFlight::new(u64::MAX);
        Sockets { known: HashMap::new(), busy: BTreeSet::new(), in_flight, peak_bps: None, measured_at: None }
    }
}

impl Sockets {
    /// A session's socket towards its client.
    pub(super) fn add(&mut self, session: SessionId, fd: OwnedFd) {
        let ends = rustix::net::getsockname(&fd).ok().and_then(host_of).zip(peer(&fd));
        self.add_on_its_way(session, fd, ends.is_some_and(|(local, peer)| within_host(local, peer)));
    }

    pub(super) fn add_on_its_way(&mut self, session: SessionId, fd: OwnedFd, within_host: bool) {
        let known = Known {
            peer: peer(&fd),
            fd,
            within_host,
            acked_bytes: None,
            segment_bytes: USUAL_SEGMENT,
            silence: Silence::default(),
        };
        known.pace(self.peak_bps);
        if !within_host {
            // What it was sent before it came to the class is on its way, too.
            self.busy.insert(session);
        }
        self.known.insert(session, known);
        self.measured_at = None;
    }

    /// It is gone, or urgent.
    pub(super) fn remove(&mut self, session: SessionId) {
        if let Some(known) = self.known.remove(&session) {
            known.pace(None);
        }
        self.busy.remove(&session);
    }

    /// Bounds how fast a class that was served late catches up: the kernel sends no socket's bytes faster than twice the
    /// rate, or up to four times, in powers of two, so that a rate that moves by little moves nothing here. The rate itself
    /// cannot be left to the kernel: it does not make up for what it sends late.
    pub(super) fn pace(&mut self, rate_bps: u64) {
        let peak_bps = rate_bps.saturating_mul(2).checked_next_power_of_two().filter(|peak| *peak <= MOST_PACED_BPS);
        if self.peak_bps != peak_bps {
            self.peak_bps = peak_bps;
            self.known.values().for_each(|known| known.pace(peak_bps));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Bounds what may be on its way, for a rate and the shortest way of any of them.
    pub(super) fn bound(&mut self, rate_bps: u64, min_rtt: Option<Span>) {
        // Before the way is known its length is not bounded.
        let cap = min_rtt.map_or(u64::MAX, |min_rtt| in_flight_bytes(rate_bps, min_rtt, LEAST_BYTES));
        self.in_flight.set_cap(cap);
    }

    /// Whether more may be sent now. Asks the kernel if what is known is old.
    pub(super) fn has_room(&mut self, now: Moment) -> bool {
        if self.known.is_empty() {
            return true;
        }
        if self.measured_at.is_none_or(|at| now - at >= FRESH) {
            self.measured_at = Some(now);
            let level = self.measure(now);
            self.in_flight.measured(level);
        }
        self.in_flight.room_bytes() > 0
    }

    /// What a session may be granted at once, in bytes.
    pub(super) fn most_at_once(&self, session: SessionId) -> u64 {
        if self.counts(session) { MOST_ELSEWHERE_BYTES } else { u64::MAX }
    }

    /// A session was granted bytes.
    pub(super) fn granted(&mut self, session: SessionId, bytes: u64) {
        if self.counts(session) {
            self.busy.insert(session);
            self.in_flight.sent(bytes);
        }
    }

    /// And had no use for so many of them.
    pub(super) fn unused(&mut self, session: SessionId, bytes: u64) {
        if self.counts(session) {
            self.in_flight.arrived(bytes);
        }
    }

    /// Whether what it is sent is on a way where others' packets are.
    fn counts(&self, session: SessionId) -> bool {
        self.known.get(&session).is_some_and(|known| !known.within_host)
    }

    fn measure(&mut self, now: Moment) -> u64 {
        let mut level = 0;
        let known = &mut self.known;
        self.busy.retain(|session| {
            let standing = known.get_mut(session).and_then(|known| known.standing_bytes(now));
            level += standing.unwrap_or(0);
            standing.is_some()
        });
        level
    }

    /// What each showed since it was last read, and the shortest round trip that the kernel saw of any whose client is elsewhere:
    /// zero where nobody's is, so that who comes from there has the least bound until its way is known.
    pub(super) fn read(&mut self) -> (Vec<SocketReading>, Option<Span>) {
        let is_elsewhere = self.known.values().any(|known| !known.within_host);
        let (mut readings, mut shortest) = (Vec::with_capacity(self.known.len()), (!is_elsewhere).then_some(Span(0)));
        for (session, known) in &mut self.known {
            let Ok(info) = TcpInfo::read(&known.fd) else { continue };
            known.segment_bytes = info.segment_bytes.map_or(known.segment_bytes, u64::from);
            let span = |us: u32| Span(i64::from(us));
            if let Some(least) = info.min_rtt_us.map(span).filter(|_| !known.within_host) {
                shortest = Some(shortest.map_or(least, |other: Span| other.min(least)));
            }
            if let (Some(rtt), Some(acked)) = (info.rtt_us.map(span), info.acked_bytes) {
                let before = known.acked_bytes.replace(acked).unwrap_or(acked);
                let delivered_bytes = acked.saturating_sub(before);
                readings.push(SocketReading {
                    session: *session,
                    peer: known.peer,
                    rtt,
                    least: info.min_rtt_us.map(span),
                    delivered_bytes,
                    segment_bytes: known.segment_bytes,
                    segments_in: info.segments_in,
                    usual_bps: info.busy_bytes_per_s(),
                });
            }
        }
        (readings, shortest)
    }
}

/// Whose host is at the other end; none where that is gone already.
fn peer(fd: &OwnedFd) -> Option<IpAddr> {
    host_of(rustix::net::getpeername(fd).ok()??)
}

fn host_of(address: rustix::net::SocketAddrAny) -> Option<IpAddr> {
    std::net::SocketAddr::try_from(address).ok().map(|address| address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn what_stands_in_a_queue_leaves_no_room_until_it_is_taken() {
        let (mut server, mut client) = pair();
        let mut sockets = Sockets::default();
        sockets.add_on_its_way(SessionId(1), server.as_fd().try_clone_to_owned().unwrap(), false);
        sockets.bound(10_000_000, Some(Span(100)));
        assert!(sockets.has_room(Moment(0)));
        // Paced to a crawl, what is written stands.
        backwater_socket::set_pacing_rate(&server, Some(1_000)).unwrap();
        server.write_all(&[1; 500_000]).unwrap();
        sockets.granted(SessionId(1), 500_000);
        assert!(!sockets.has_room(Moment(10_000)));
        backwater_socket::set_pacing_rate(&server, None).unwrap();
        client.read_exact(&mut [0; 500_000]).unwrap();
        let mut now = Moment(20_000);
        while !sockets.has_room(now) {
            now = now + Span(1_000);
            std::thread::yield_now();
        }
        assert!(sockets.busy.is_empty());
        let (readings, shortest) = sockets.read();
        assert!(readings.len() == 1 && shortest.is_some(), "{readings:?}");
        sockets.remove(SessionId(1));
        assert!(sockets.is_empty() && sockets.has_room(now));
    }

    #[test]
    fn only_what_the_peer_has_room_for_is_on_its_way() {
        let info = |notsent, window| TcpInfo {
            notsent_bytes: Some(notsent),
            peer_window_bytes: Some(window),
            rtt_us: Some(1_000),
            ..TcpInfo::default()
        };
        let way = |queued, info| on_its_way(queued, &info);
        assert_eq!(way(50_000, info(20_000, 1 << 20)), 50_000, "a wide window: all of it");
        assert_eq!(way(50_000, info(50_000, 0)), 0, "a closed window: the peer sleeps");
        assert_eq!(way(50_000, info(45_000, 8_000)), 8_000, "what it has room for may go at any time");
        assert_eq!(way(50_000, info(20_000, 8_000)), 30_000, "what was sent is on its way whatever it says later");
        let old = TcpInfo { peer_window_bytes: None, ..info(20_000, 0) };
        assert_eq!(way(50_000, old), 50_000, "an older kernel does not tell");
    }

    #[test]
    fn a_peer_that_does_not_read_leaves_room_and_is_counted_again_when_it_does() {
        let (mut server, mut client) = pair();
        let mut sockets = Sockets::default();
        sockets.add_on_its_way(SessionId(1), server.as_fd().try_clone_to_owned().unwrap(), false);
        sockets.bound(10_000_000, Some(Span(100)));
        sockets.read();
        server.set_nonblocking(true).unwrap();
        let mut written = 0;
        // As much as it takes, until what is left of the queue waits for the peer's window.
        let sleeps = |info: TcpInfo| info.unacked_segments == Some(0) && info.notsent_bytes > Some(1 << 18);
        while !sleeps(TcpInfo::read(&server).unwrap()) {
            written += server.write(&[1; 65_536]).unwrap_or(0);
        }
        assert!(sockets.has_room(Moment(0)) && sockets.has_room(Moment(10_000)));
        assert!(!sockets.busy.is_empty(), "it is looked at again");
        let mut now = Moment(20_000);
        let reader = std::thread::spawn(move || client.read_exact(&mut vec![0; written]).unwrap());
        while !sockets.busy.is_empty() {
            sockets.has_room(now);
            now = now + Span(1_000);
        }
        reader.join().unwrap();
        assert_eq!(unsent_and_unacked(&server).unwrap(), 0);
    }

    #[test]
    fn a_peer_that_is_gone_leaves_room() {
        let (mut server, client) = pair();
        let mut sockets = Sockets::default();
        sockets.add_on_its_way(SessionId(1), server.as_fd().try_clone_to_owned().unwrap(), false);
        sockets.bound(10_000_000, Some(Span(100)));
        server.write_all(&[1; 600_000]).unwrap();
        // Closed with bytes that it has not read: it answers with a reset, and nothing more is acknowledged.
        drop(client);
        let mut now = Moment(0);
        while !sockets.has_room(now) {
            now = now + Span(1_000);
            std::thread::yield_now();
        }
        assert!(unsent_and_unacked(&server).unwrap() > 0 || sockets.busy.is_empty());
    }

    #[test]
    fn what_stays_on_this_host_is_neither_counted_nor_paced() {
        let (mut server, _client) = pair();
        let mut sockets = Sockets::default();
        sockets.pace(1_000_000);
        sockets.bound(1_000_000, Some(Span(100)));
        sockets.add(SessionId(1), server.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(backwater_socket::pacing_rate(&server).unwrap(), None);
        server.write_all(&[1; 200_000]).unwrap();
        sockets.granted(SessionId(1), 200_000);
        assert!(sockets.has_room(Moment(0)) && sockets.busy.is_empty());
        let (readings, shortest) = sockets.read();
        assert_eq!((readings.len(), shortest), (1, Some(Span(0))), "it is looked at all the same");
    }

    #[test]
    fn a_socket_is_paced_above_the_rate_while_it_is_of_the_class() {
        let (first, second) = (pair(), pair());
        let mut sockets = Sockets::default();
        let add = |sockets: &mut Sockets, id, server: &TcpStream| {
            sockets.add_on_its_way(SessionId(id), server.as_fd().try_clone_to_owned().unwrap(), false);
        };
        add(&mut sockets, 1, &first.0);
        assert_eq!(backwater_socket::pacing_rate(&first.0).unwrap(), None);
        sockets.pace(10_000_000);
        add(&mut sockets, 2, &second.0);
        for server in [&first.0, &second.0] {
            assert_eq!(backwater_socket::pacing_rate(server).unwrap(), Some(1 << 25));
        }
        for rate_bps in [1_000_000_000, u64::MAX] {
            sockets.pace(1 << 20);
            sockets.pace(rate_bps);
            assert_eq!(backwater_socket::pacing_rate(&first.0).unwrap(), None, "{rate_bps}");
        }
        sockets.pace(1 << 20);
        sockets.remove(SessionId(1));
        assert_eq!(backwater_socket::pacing_rate(&first.0).unwrap(), None);
        assert_eq!(backwater_socket::pacing_rate(&second.0).unwrap(), Some(1 << 21));
    }

    #[test]
    fn delivered_bytes_are_those_since_the_last_reading() {
        let (mut server, mut client) = pair();
        let mut sockets = Sockets::default();
        sockets.add_on_its_way(SessionId(7), server.as_fd().try_clone_to_owned().unwrap(), false);
        sockets.read();
        server.write_all(&[1; 50_000]).unwrap();
        client.read_exact(&mut [0; 50_000]).unwrap();
        let mut delivered = 0;
        while delivered < 50_000 {
            delivered += sockets.read().0[0].delivered_bytes;
            std::thread::yield_now();
        }
        assert_eq!(delivered, 50_000);
        let again = sockets.read().0[0];
        assert_eq!((again.delivered_bytes, again.peer), (0, Some(IpAddr::from([127, 0, 0, 1]))));
        assert!(again.segments_in.unwrap() > 0, "{again:?}");
    }
}
