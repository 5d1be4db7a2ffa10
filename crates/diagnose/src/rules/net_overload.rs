//! net-overload: results for clients fill the link, and stand in line for it.
//!
//! A full link alone is a link well used. It is overloaded where server processes have written more than goes out: bytes
//! stand in the send queues of their sockets, and whoever asks for a little waits behind whoever asked for much. Which
//! sessions fill it decides what helps: one heavy query can be demoted, many ordinary ones can only be fewer at a time.

use super::client_streams::{Stream, seen, streams, total};
use super::draft;
use crate::figures::Figures;
use crate::grid::{both, episodes, longest};
use crate::replication::{CeilingKind, Link, links};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Activation, Confidence, Figure, Finding, Remedy, Track, Unit, Window, catalogue as cat};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

/// Share of the ceiling from which a link counts as full, as in network-narrow.
const FULL: f64 = 0.85;
/// For at least so many seconds, bridging so many in which it is not.
const LEAST_S: usize = 8;
const BRIDGE_S: usize = 2;
/// Bytes that must stand in the send queues of clients, together: several of the largest segments.
const STANDING: f64 = 256.0 * 1024.0;
/// Share of what the link sends that must be clients' results; else it is somebody else's trouble.
const OURS: f64 = 0.5;
/// Share of what all clients get from which one session is the heavy one.
const HEAVY: f64 = 0.5;

/// From so much on somebody stands in line for an interface; what is held back elsewhere (by a rate, or by who does not read) waits in send
/// queues too. In its queueing discipline: what it sends in this time, and no less than three packets. Paced flows meet there now and
/// then, which a mean would tell and a median does not.
const IN_LINE_S: f64 = 1e-3;
const IN_LINE: f64 = 3.0 * 1_514.0;
/// Packets dropped a second.
const DROPPED: f64 = 1.0;
/// Share of a second in which a client's own window holds what is queued for it.
const NOT_READ: f64 = 0.5;

/// The findings of a window: at most one an interface.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let streams: Vec<Stream> = streams(scene).into_iter().filter(|stream| !stream.is_within_host).collect();
    if streams.is_empty() {
        return Vec::new();
    }
    let mut owners: Vec<&str> = streams.iter().map(|stream| stream.target.as_str()).collect();
    owners.dedup();
    let links = links(scene, &owners);
    let addresses = addresses(scene.window);
    let mut found: Vec<Finding> = Vec::new();
    for link in links.iter().filter(|link| !is_hosts(link, &links)) {
        let queue = format!("host.net@{}", link.name);
        // An interface with a shaper has a speed, too: the lower one binds, and it is told once.
        if !found.iter().any(|finding| finding.queue == queue && finding.server == link.server) {
            let through = streams.iter().filter(|stream| goes_by(stream, link, &links, &addresses));
            found.extend(of_link(scene, link, &through.collect::<Vec<_>>(), queue));
        }
    }
    found
}

/// Whether it is an interface of the host's own, which is told under the host's name: a server there has them under its own too.
fn is_hosts(link: &Link, links: &[Link]) -> bool {
    let is_it = |other: &Link| other.server.is_none() && other.name == link.name && other.sent.is_same(&link.sent);
    link.server.is_some() && links.iter().any(is_it)
}

/// The interfaces of addresses: by whose they are, a server's or the host's.
type Addresses<'w> = HashMap<(&'w str, IpAddr), &'w str>;

fn addresses<'w>(window: &'w Window) -> Addresses<'w> {
    let of = |track: Track<'w>| {
        let label = |name| track.series.labels.get(name);
        Some(((label("target")?, label("address")?.parse().ok()?), label("if")?))
    };
    window.tracks(cat::NET_ADDRESS.name, &[]).filter_map(of).collect()
}

/// Whether a connection may go by an interface: not by that of another server, and not where both this one and another whose ceiling is
/// known have addresses, and its own is the other's. An interface without any carries what others send (a bond's or a bridge's).
fn goes_by(stream: &Stream, link: &Link, links: &[Link], addresses: &Addresses<'_>) -> bool {
    if link.server.as_ref().is_some_and(|server| *server != stream.target) {
        return false;
    }
    let owner = link.server.as_deref().unwrap_or("host");
    let own = stream.local.and_then(|local| addresses.get(&(owner, local)));
    let has_address = addresses.iter().any(|((of, _), name)| *of == owner && *name == link.name);
    own.filter(|_| has_address).is_none_or(|own| {
        let is_another = |other: &Link| other.name == *own && other.name != link.name && other.server == link.server;
        !links.iter().any(is_another)
    })
}

/// Clients' connections over a stretch: what each was sent, a second of those in which any was counted.
struct Shares<'s> {
    /// The busy ones, the heaviest first, but for those that a rate holds back for most of the time: they are held already.
    busy: Vec<(&'s Stream, f64)>,
    /// Of those others together.
    held: f64,
    /// All together.
    clients: f64,
}

impl<'s> Shares<'s> {
    fn of(scene: &Scene<'_>, streams: &[&'s Stream], range: &Range<usize>, is_held: &IsHeld<'_>) -> Shares<'s> {
        let told = total(scene, streams, |stream, second| stream.sent.get(second)).values(range).len().max(1) as f64;
        // One that was there for a part of it had its rate for that part.
        let mut busy: Vec<(&Stream, f64)> =
            streams.iter().map(|stream| (*stream, stream.sent.sum(range) / told)).collect();
        busy.sort_by(|a, b| b.1.total_cmp(&a.1));
        let clients: f64 = busy.iter().map(|(_, rate)| rate).sum();
        let mostly = |stream: &Stream| {
            let there = |second: &usize| stream.sent.get(*second).is_some();
            let held = range.clone().filter(|second| there(second) && is_held(stream, *second)).count();
            2 * held > range.clone().filter(there).count()
        };
        let (held, mut busy): (Vec<_>, Vec<_>) = busy.into_iter().partition(|(stream, _)| mostly(stream));
        busy.retain(|(_, rate)| *rate > 0.0 && *rate >= 0.01 * clients);
        Shares { busy, held: held.iter().map(|(_, rate)| rate).sum(), clients }
    }

    fn most(&self) -> f64 {
        self.busy.first().map_or(0.0, |(_, rate)| *rate)
    }
}

/// Whether anybody stands in line for the interface; None where nothing tells. Round trips do not: those of sockets that are paced are
/// hundreds of times the shortest one.
fn is_in_line(link: &Link, range: &Range<usize>) -> Option<bool> {
    let backlog = link.backlog.median(range)?;
    let is_long = backlog >= (IN_LINE_S * link.ceiling.median(range)?).max(IN_LINE);
    Some(is_long || link.drops.mean(range).is_some_and(|dropped| dropped >= DROPPED))
}

/// Whether a rate holds a connection back, and not the link.
type IsHeld<'h> = dyn Fn(&Stream, usize) -> bool + 'h;

/// What of a connection stands in line for the link: not what its own client does not read, nor what a rate holds back.
fn for_link(stream: &Stream, second: usize, is_held: &IsHeld<'_>) -> Option<f64> {
    let is_read = stream.window_held.get(second).is_none_or(|share| share < NOT_READ);
    stream.queued.get(second).map(|queued| if is_read && !is_held(stream, second) { queued } else { 0.0 })
}

fn of_link(scene: &Scene<'_>, link: &Link, streams: &[&Stream], queue: String) -> Option<Finding> {
    let filled = link.sent.with(&link.ceiling, |sent, ceiling| sent / ceiling).smooth(1);
    let rates = total(scene, streams, |stream, second| stream.held_at.get(second));
    // Rates that together are more than it carries hold nobody back.
    let is_held = |stream: &Stream, second| {
        let all = rates.get(second).zip(link.ceiling.get(second));
        stream.held_at.get(second).is_some() && all.is_some_and(|(rates, ceiling)| rates <= ceiling)
    };
    let standing = total(scene, streams, |stream, second| for_link(stream, second, &is_held));
    let flags = both(&filled.flags(|share| share >= FULL), &standing.flags(|bytes| bytes >= STANDING));
    let (range, _) = longest(&episodes(&flags, LEAST_S, BRIDGE_S))?;
    let sent = link.sent.mean(&range)?;
    let shares = Shares::of(scene, streams, &range, &is_held);
    let in_line = is_in_line(link, &range);
    if shares.clients < OURS * sent || in_line == Some(false) {
        return None;
    }
    let (heaviest, most) = *shares.busy.first()?;
    // Of some connections alone it is not known what all have.
    let some = unseen::some_connections(scene.window);
    let all = if some { shares.clients.max(sent) } else { shares.clients };
    let cause = if most >= HEAVY * all { "heavy-query" } else { "many-queries" };
    let mut finding = draft("net-overload", cause, queue, scene.grid.span(&range));
    // Servers in namespaces of their own may call their interfaces the same.
    finding.server.clone_from(&link.server);
    let is_sure = !some && in_line.is_some() && shares.busy.iter().all(|(stream, _)| seen(scene, stream));
    finding.confidence = if is_sure { Confidence::High } else { Confidence::Medium };
    finding.evidence = figures(link, &range, &shares, all, standing.mean(&range));
    finding.summary = summary(link, &range, &shares, all, standing.mean(&range).unwrap_or_default());
    finding.victims = vec![format!("host.tcp@{}", heaviest.target)];
    finding.remedies = remedies(cause, link, &range, &shares);
    let mut missing = Missing::default();
    missing.unless(scene.window, !scene.window.samples().is_empty(), &unseen::SESSIONS);
    missing.unless(scene.window, !some, &unseen::ALL_CONNECTIONS);
    missing.unless(scene.window, in_line.is_some(), &unseen::LINE);
    finding.unseen = missing.list();
    Some(finding)
}

fn figures(link: &Link, range: &Range<usize>, shares: &Shares<'_>, all: f64, standing: Option<f64>) -> Vec<Figure> {
    let mut figures = Figures::default();
    let heaviest = Some(shares.most() / all);
    figures.add("link_limit_bytes_per_s", link.ceiling.median(range), Unit::BytesPerSecond, "the link's ceiling");
    figures.add("link_sent_bytes_per_s", link.sent.mean(range), Unit::BytesPerSecond, "sent through it");
    figures.add("link_backlog_bytes", link.backlog.mean(range), Unit::Bytes, "standing in its queueing discipline");
    figures.add("link_drops_per_s", link.drops.mean(range), Unit::PerSecond, "packets dropped on their way out");
    figures.add("client_sent_bytes_per_s", Some(shares.clients), Unit::BytesPerSecond, "results sent to clients");
    let held = Some(shares.held).filter(|held| *held > 0.0);
    figures.add("held_bytes_per_s", held, Unit::BytesPerSecond, "of them by sessions that are held to rates");
    figures.add("client_queued_bytes", standing, Unit::Bytes, "standing in the send queues of clients");
    figures.add(
        "busy_connections",
        Some(shares.busy.len() as f64),
        Unit::Count,
        "connections that carry 1 % of it or more",
    );
    figures.add("heaviest_ratio", heaviest, Unit::Ratio, "share of the heaviest");
    figures.list()
}

/// So many of those who share a link are named, the heaviest first; of the rest it is said what they send together.
const NAMED: usize = 5;

fn summary(link: &Link, range: &Range<usize>, shares: &Shares<'_>, all: f64, standing: f64) -> String {
    let busy = &shares.busy;
    let rate = |bps: f64| Unit::BytesPerSecond.show(bps);
    let what = if link.kind == CeilingKind::Shaper { "The shaper on" } else { "Interface" };
    let limit = link.ceiling.median(range).unwrap_or_default();
    let mut text = format!(
        "{what} {} is full: {} of {} go out, and {} of results stand in the server's send queues, so that every client \
         waits in line.",
        link.name,
        rate(link.sent.mean(range).unwrap_or_default()),
        rate(limit),
        Unit::Bytes.show(standing),
    );
    let told: Vec<String> =
        busy.iter().take(NAMED).map(|(stream, bps)| format!("{} {}", stream.title(), rate(*bps))).collect();
    let others = match busy.get(NAMED..).unwrap_or_default() {
        [] => String::new(),
        rest => format!(", and {} more {} together", rest.len(), rate(rest.iter().map(|(_, bps)| bps).sum())),
    };
    match &busy[..] {
        [(_, most), ..] if *most >= HEAVY * all => {
            text.push_str(&format!(" One session takes {} of it: {}.", Unit::Ratio.show(most / all), told[0]));
        }
        [_] => text.push_str(&format!(" One session has less than half of it: {}.", told[0])),
        _ => text.push_str(&format!(
            " {} sessions share it, none with half of it: {}{others}.",
            busy.len(),
            told.join(", ")
        )),
    }
    if shares.held > 0.0 {
        text.push_str(&format!(" Sessions that are held to rates already take {} beside them.", rate(shares.held)));
    }
    text
}

/// Half of the link, or of what the heavy one takes of it, leaves the other half to everybody else.
const DEMOTED: f64 = 0.5;

fn remedies(cause: &str, link: &Link, range: &Range<usize>, shares: &Shares<'_>) -> Vec<Remedy> {
    let limit = link.ceiling.median(range).unwrap_or_default();
    let kb = |bps: f64| format!("{:.0}KB", (bps / 1024.0).max(1.0));
    let busy = &shares.busy;
    // A rate that it does not reach would change nothing.
    let held = DEMOTED * if cause == "heavy-query" { shares.most().min(limit) } else { limit };
    let mb = |bps: f64| format!("{:.3}", (bps / 1_048_576.0).max(0.001));
    let predicted = |name: &str, label: &str| vec![Figure::new(name, held, Unit::BytesPerSecond, label)];
    let remedy = |title: &str, runtime: Vec<String>, persistent: Vec<String>, predicted, risk: &str| Remedy {
        title: title.to_owned(),
        runtime,
        persistent,
        activation: Activation::Immediate,
        undo: vec!["end that command (Ctrl-C): it puts every rate back".to_owned()],
        predicted,
        risk: risk.to_owned(),
    };
    let Some((heaviest, _)) = busy.first() else { return Vec::new() };
    if cause == "heavy-query" {
        let peer = &heaviest.peer;
        return vec![remedy(
            "Slow the heavy query on its way out, and nobody else",
            vec![format!("backwater attach --socket {peer} --rate {}", kb(held))],
            vec![format!(
                "a rule of attach mode or of the proxy: bandwidth={}, action='penalty', and for all that it holds \
                 low_priority_bandwidth='{}'",
                mb(held),
                kb(held).replace("KB", "kB")
            )],
            predicted("demoted_bytes_per_s", "what the heavy query may still send"),
            "The query takes longer, and its snapshot holds back vacuum for as long.",
        )];
    }
    let each = mb((shares.clients - shares.held) / busy.len() as f64 / 2.0);
    vec![remedy(
        "Let fewer of them send at a time, or hold the less important ones together to a part of the link",
        vec![format!(
            "backwater attach TARGET --user LESS_IMPORTANT --rule \"bandwidth={each}, action='penalty'\" --class-rate {}",
            kb(held)
        )],
        vec![
            "in the proxy: max_active for their pool, so that the next waits for its turn instead of for the link"
                .to_owned(),
        ],
        predicted("demoted_bytes_per_s", "what those may still send together"),
        "Those that are held take longer. Where all of them matter alike, only a faster link or smaller results help.",
    )]
}
