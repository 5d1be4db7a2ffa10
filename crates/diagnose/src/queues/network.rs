//! The queues of results on their way to clients: what stands in the server's send queues, and in the interfaces that carry it.
//! Nothing counts what the server writes into a socket; what its clients acknowledge is what leaves.

use crate::rules::client_streams::walsenders;
use crate::unseen;
use backwater_model::{QueueSpec, Source, Track, Unit, Window, catalogue as cat};
use std::collections::{BTreeMap, BTreeSet};

/// The send queues of every server's clients together, then every interface whose ceiling is known.
pub(super) fn network(window: &Window) -> Vec<QueueSpec> {
    let mut list = clients(window);
    list.extend(interfaces(window));
    list
}

fn clients(window: &Window) -> Vec<QueueSpec> {
    let senders = walsenders(window);
    let at_least = unseen::some_connections(window);
    let mut servers: BTreeMap<&str, Vec<Vec<(&'static str, &str)>>> = BTreeMap::new();
    for track in window.tracks(cat::TCP_ACKED.name, &[]).filter(|track| !track.points.is_empty()) {
        let labels = &track.series.labels;
        let own = cat::TCP_ACKED.labels.iter().map(|name| Some((*name, labels.get(name)?)));
        let Some(own) = own.collect::<Option<Vec<_>>>() else { continue };
        let of = |name: &str| labels.get(name).unwrap_or_default();
        if !senders.contains(&(of("target").to_owned(), of("pid").to_owned())) {
            servers.entry(labels.get("target").unwrap_or_default()).or_default().push(own);
        }
    }
    let total = |name: &'static str, sockets: &[Vec<(&'static str, &str)>]| {
        Source::Total(sockets.iter().map(|labels| Source::series(name, labels)).collect())
    };
    let queue = |(server, sockets): (&str, Vec<_>)| QueueSpec {
        outflow: total(cat::TCP_ACKED.name, &sockets),
        level: total(cat::TCP_SENDQ.name, &sockets),
        at_least,
        ..QueueSpec::new(format!("host.tcp@{server}"), Unit::Bytes)
    };
    servers.into_iter().map(queue).collect()
}

/// As rules see them: those of watched servers' network namespaces, and the host's own. An interface with a shaper has a speed,
/// too.
fn interfaces(window: &Window) -> Vec<QueueSpec> {
    let ceilings = [cat::NET_SHAPER.name, cat::NET_SPEED.name];
    let tracks = ceilings.iter().flat_map(|name| window.tracks(name, &[]));
    let place = |track: Track<'_>| {
        let label = |name: &str| track.series.labels.get(name).map(str::to_owned);
        (!track.points.is_empty()).then(|| Some((label("target")?, label("if")?))).flatten()
    };
    let found: BTreeSet<(String, String)> = tracks.filter_map(place).collect();
    let queue = |(owner, interface): (String, String)| {
        let own = [("target", owner.as_str()), ("if", interface.as_str())];
        QueueSpec {
            outflow: Source::series(cat::NET_SENT_BYTES.name, &own),
            level: Source::series(cat::NET_BACKLOG.name, &own),
            ..QueueSpec::new(format!("host.net@{interface}"), Unit::Bytes)
        }
    };
    found.into_iter().map(queue).collect()
}
