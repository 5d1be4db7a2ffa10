//! Connections that carry results to clients, as the kernel of the server's host counts them. Those of walsenders are
//! told by the rules of replication.

use crate::grid::Lane;
use crate::scene::Scene;
use backwater_model::{Sample, Window, catalogue as cat};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// One client's connection.
pub(crate) struct Stream {
    /// The server.
    pub(crate) target: String,
    /// The process that serves it.
    pub(crate) pid: String,
    /// The server's address, where it can be read, and the client's address and port.
    pub(crate) local: Option<IpAddr>,
    pub(crate) peer: String,
    /// Whether both ends are on the server's host: then it goes through no link.
    pub(crate) is_within_host: bool,
    /// Bytes a second that the client acknowledged.
    pub(crate) sent: Lane,
    /// Written by the server and not acknowledged, in bytes.
    pub(crate) queued: Lane,
    /// The rate in bytes a second that it is held to, in the seconds in which that is what holds it back.
    pub(crate) held_at: Lane,
    /// Share of the time in which there was something to send, and in which the client's window held it.
    pub(crate) busy: Lane,
    pub(crate) window_held: Lane,
    /// The window that the client offers, and the smallest round trip in seconds.
    pub(crate) window: Lane,
    pub(crate) min_rtt_s: Lane,
    /// Whose it is, where samples tell: user, application.
    who: Option<String>,
}

impl Stream {
    /// `process 4711 (user etl, nightly)`.
    pub(crate) fn title(&self) -> String {
        match &self.who {
            Some(who) => format!("process {} ({who})", self.pid),
            None => format!("process {} (client {})", self.pid, self.peer),
        }
    }
}

/// Every client's connection of which bytes were counted.
pub(crate) fn streams(scene: &Scene<'_>) -> Vec<Stream> {
    let senders = walsenders(scene.window);
    let mut list = Vec::new();
    for track in scene.window.tracks(cat::TCP_ACKED.name, &[]) {
        let label = |name| track.series.labels.get(name);
        let (Some(target), Some(pid), Some(local), Some(peer)) =
            (label("target"), label("pid"), label("local"), label("peer"))
        else {
            continue;
        };
        if senders.contains(&(target.to_owned(), pid.to_owned())) {
            continue;
        }
        let own = [("target", target), ("pid", pid), ("local", local), ("peer", peer)];
        let of = |name| scene.window.track(name, &own);
        let share = |name| scene.grid.rate(of(name)).map(|us| (us / 1e6).clamp(0.0, 1.0));
        let held_to = scene.grid.gauge(of(cat::TCP_MAX_PACING.name));
        let mut stream = Stream {
            target: target.to_owned(),
            pid: pid.to_owned(),
            local: ip(local),
            peer: peer.to_owned(),
            is_within_host: is_within_host(local, peer),
            sent: scene.grid.rate(Some(track)),
            queued: scene.grid.gauge(of(cat::TCP_SENDQ.name)),
            held_at: scene.grid.unknown(),
            busy: share(cat::TCP_BUSY.name),
            window_held: share(cat::TCP_RWND_LIMITED.name),
            window: scene.grid.gauge(of(cat::TCP_PEER_WINDOW.name)),
            min_rtt_s: scene.grid.gauge(of(cat::TCP_MIN_RTT.name)).map(|us| us / 1e6),
            who: samples(scene, target, pid).next().and_then(who),
        };
        stream.held_at = held_at(scene, &stream, &held_to);
        list.push(stream);
    }
    list
}

/// Where a connection comes to so much of the rate that it is held to, that rate holds it back: one that moves is read once a second, and
/// goes up and down within it.
const AT_ITS_RATE: f64 = 0.75;
/// What is acknowledged at once may be so much.
const PIECE: f64 = 65_536.0;

/// The rate in those seconds: while there was something to send, and also where it is not known yet what was sent.
fn held_at(scene: &Scene<'_>, stream: &Stream, held_to: &Lane) -> Lane {
    let (sent, busy, held_to) = (stream.sent.smooth(1), stream.busy.smooth(1), held_to.smooth(1));
    scene.grid.lane(|second| {
        let rate = held_to.get(second)?;
        let least = AT_ITS_RATE * rate * busy.get(second).unwrap_or(1.0);
        sent.get(second).is_none_or(|sent| sent + PIECE >= least).then_some(rate)
    })
}

/// What a session of this process was seen to do.
pub(crate) fn samples<'a>(scene: &Scene<'a>, target: &'a str, pid: &str) -> impl Iterator<Item = &'a Sample> + use<'a> {
    let pid: Option<i32> = pid.parse().ok();
    scene.window.samples().iter().filter(move |sample| Some(sample.pid) == pid && &*sample.target == target)
}

/// Whether samples tell whose it is.
pub(crate) fn seen(scene: &Scene<'_>, stream: &Stream) -> bool {
    samples(scene, &stream.target, &stream.pid).next().is_some()
}

/// A figure of all connections together, in each second in which any of them tells it.
pub(crate) fn total(scene: &Scene<'_>, streams: &[&Stream], of: impl Fn(&Stream, usize) -> Option<f64>) -> Lane {
    scene.grid.lane(|second| {
        let known: Vec<f64> = streams.iter().filter_map(|stream| of(stream, second)).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    })
}

/// The address of an end.
fn ip(end: &str) -> Option<IpAddr> {
    end.parse::<SocketAddr>().ok().map(|end| end.ip().to_canonical())
}

/// By the addresses of both ends: what a host sends to its own address stays within it.
fn is_within_host(local: &str, peer: &str) -> bool {
    ip(peer).is_some_and(|peer| peer.is_loopback() || ip(local) == Some(peer))
}

fn who(sample: &Sample) -> Option<String> {
    let user = sample.user.as_deref()?;
    Some(match sample.application.as_deref() {
        Some(application) => format!("user {user}, {application}"),
        None => format!("user {user}"),
    })
}

/// Processes that send WAL: by what the server says of them, and by what they were seen to be.
pub(crate) fn walsenders(window: &Window) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for track in window.tracks(cat::PG_REPL_PID.name, &[]) {
        if let Some(target) = track.series.labels.get("target") {
            found.extend(track.points.iter().map(|point| (target.to_owned(), (point.value as i64).to_string())));
        }
    }
    let is_other = |sample: &&Sample| sample.backend_type.as_deref().is_some_and(|kind| kind != "client backend");
    let others = window.samples().iter().filter(is_other);
    found.extend(others.map(|sample| (sample.target.to_string(), sample.pid.to_string())));
    found
}
