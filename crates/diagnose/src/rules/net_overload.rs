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
use backwater_model::{Activation, Confidence, Figure, Finding, Remedy, Unit};
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

/// The findings of a window: at most one an interface.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let streams: Vec<Stream> = streams(scene).into_iter().filter(|stream| !stream.is_within_host).collect();
    if streams.is_empty() {
        return Vec::new();
    }
    let mut owners: Vec<&str> = streams.iter().map(|stream| stream.target.as_str()).collect();
    owners.dedup();
    let mut found: Vec<Finding> = Vec::new();
    for link in links(scene, &owners) {
        let queue = format!("host.net@{}", link.name);
        // An interface with a shaper has a speed, too: the lower one binds, and it is told once.
        if !found.iter().any(|finding| finding.queue == queue && finding.server == link.server) {
            found.extend(of_link(scene, &link, &streams, queue));
        }
    }
    found
}

fn of_link(scene: &Scene<'_>, link: &Link, streams: &[Stream], queue: String) -> Option<Finding> {
    let filled = link.sent.with(&link.ceiling, |sent, ceiling| sent / ceiling).smooth(1);
    let standing = total(scene, streams, |stream| &stream.queued);
    let flags = both(&filled.flags(|share| share >= FULL), &standing.flags(|bytes| bytes >= STANDING));
    let (range, _) = longest(&episodes(&flags, LEAST_S, BRIDGE_S))?;
    let sent = link.sent.mean(&range)?;
    let mut shares: Vec<(&Stream, f64)> =
        streams.iter().filter_map(|stream| Some((stream, stream.sent.mean(&range)?))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let clients: f64 = shares.iter().map(|(_, rate)| rate).sum();
    if clients < OURS * sent {
        return None;
    }
    let busy: Vec<_> = shares.iter().copied().filter(|(_, rate)| *rate >= 0.01 * clients).collect();
    let (heaviest, most) = *busy.first()?;
    let cause = if most >= HEAVY * clients { "heavy-query" } else { "many-queries" };
    let mut finding = draft("net-overload", cause, queue, scene.grid.span(&range));
    // Servers in namespaces of their own may call their interfaces the same.
    finding.server.clone_from(&link.server);
    finding.confidence =
        if busy.iter().all(|(stream, _)| seen(scene, stream)) { Confidence::High } else { Confidence::Medium };
    finding.evidence = figures(link, &range, clients, &busy, standing.mean(&range));
    finding.summary = summary(link, &range, &busy, clients, standing.mean(&range).unwrap_or_default());
    finding.victims = vec![format!("host.tcp@{}", heaviest.target)];
    finding.remedies = remedies(cause, link, &range, &busy);
    let mut missing = Missing::default();
    missing.unless(scene.window, !scene.window.samples().is_empty(), &unseen::SESSIONS);
    finding.unseen = missing.list();
    Some(finding)
}

fn figures(
    link: &Link,
    range: &Range<usize>,
    clients: f64,
    busy: &[(&Stream, f64)],
    standing: Option<f64>,
) -> Vec<Figure> {
    let mut figures = Figures::default();
    let heaviest = busy.first().map(|(_, rate)| rate / clients);
    figures.add("link_limit_bytes_per_s", link.ceiling.median(range), Unit::BytesPerSecond, "the link's ceiling");
    figures.add("link_sent_bytes_per_s", link.sent.mean(range), Unit::BytesPerSecond, "sent through it");
    figures.add("link_backlog_bytes", link.backlog.mean(range), Unit::Bytes, "standing in its queueing discipline");
    figures.add("link_drops_per_s", link.drops.mean(range), Unit::PerSecond, "packets dropped on their way out");
    figures.add("client_sent_bytes_per_s", Some(clients), Unit::BytesPerSecond, "results sent to clients");
    figures.add("client_queued_bytes", standing, Unit::Bytes, "standing in the send queues of clients");
    figures.add("busy_connections", Some(busy.len() as f64), Unit::Count, "connections that carry 1 % of it or more");
    figures.add("heaviest_ratio", heaviest, Unit::Ratio, "share of the heaviest");
    figures.list()
}

/// So many of those who share a link are named, the heaviest first; of the rest it is said what they send together.
const NAMED: usize = 5;

fn summary(link: &Link, range: &Range<usize>, busy: &[(&Stream, f64)], clients: f64, standing: f64) -> String {
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
    match busy {
        [(_, most), ..] if *most >= HEAVY * clients => {
            text.push_str(&format!(" One session takes {} of it: {}.", Unit::Ratio.show(most / clients), told[0]));
        }
        _ => text.push_str(&format!(
            " {} sessions share it, none with half of it: {}{others}.",
            busy.len(),
            told.join(", ")
        )),
    }
    text
}

/// Half of the link leaves the other half to everybody else.
const DEMOTED: f64 = 0.5;

fn remedies(cause: &str, link: &Link, range: &Range<usize>, busy: &[(&Stream, f64)]) -> Vec<Remedy> {
    let limit = link.ceiling.median(range).unwrap_or_default();
    let kb = |bps: f64| format!("{:.0}KB", bps / 1024.0);
    let held = limit * DEMOTED;
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
                "a rule of attach mode or of the proxy: bandwidth={:.0}, action='penalty'",
                held / 1_048_576.0
            )],
            predicted("demoted_bytes_per_s", "what the heavy query may still send"),
            "The query takes longer, and its snapshot holds back vacuum for as long.",
        )];
    }
    let each = (limit / busy.len() as f64 / 1_048_576.0 / 2.0).max(0.001);
    vec![remedy(
        "Let fewer of them send at a time, or hold the less important ones together to a part of the link",
        vec![format!(
            "backwater attach TARGET --user LESS_IMPORTANT --rule \"bandwidth={each:.3}, action='penalty'\" --class-rate {}",
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
