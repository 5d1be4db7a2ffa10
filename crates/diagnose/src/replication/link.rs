//! Network interfaces and what bounds them: a shaper, else the speed that the device says it has.

use super::Standby;
use crate::grid::Lane;
use crate::scene::Scene;
use backwater_model::catalogue as cat;
use std::ops::Range;

/// A ceiling counts as reached from this share on: shapers count frames a little larger than the counters do.
const REACHED: f64 = 0.85;
/// Share of a stream's rate that an interface must send to be one that may carry it.
const CARRIES: f64 = 0.8;

/// What a link's ceiling is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CeilingKind {
    Shaper,
    Speed,
}

/// One interface.
pub(crate) struct Link {
    pub(crate) name: String,
    /// The server in whose network namespace it is; none for the host's own.
    pub(crate) server: Option<String>,
    pub(crate) kind: CeilingKind,
    /// Bytes a second at most.
    pub(crate) ceiling: Lane,
    /// Bytes sent a second.
    pub(crate) sent: Lane,
    /// Packets dropped on their way out, a second.
    pub(crate) drops: Lane,
    /// Bytes standing in its queueing discipline.
    pub(crate) backlog: Lane,
}

impl Link {
    /// Whether it was full over a stretch.
    pub(crate) fn full(&self, range: &Range<usize>) -> bool {
        self.use_ratio(range).is_some_and(|share| share >= REACHED)
    }

    /// Sent ÷ ceiling over a stretch.
    pub(crate) fn use_ratio(&self, range: &Range<usize>) -> Option<f64> {
        let ceiling = self.ceiling.median(range).filter(|ceiling| *ceiling > 0.0)?;
        Some(self.sent.mean(range)? / ceiling)
    }

    /// Whether it sends enough, while the stream is seen, to be the one that carries it.
    pub(crate) fn carries(&self, standby: &Standby, range: &Range<usize>) -> bool {
        let meanwhile = self.sent.with(&standby.hops.sent_rate, |sent, _| sent).mean(range);
        meanwhile.or_else(|| self.sent.mean(range)) >= standby.carried(range).map(|rate| CARRIES * rate)
    }
}

/// The interfaces with a known ceiling in the namespaces of these owners (and the host's own), shapers first.
pub(crate) fn links(scene: &Scene<'_>, owners: &[&str]) -> Vec<Link> {
    let ceilings = [(cat::NET_SHAPER.name, CeilingKind::Shaper), (cat::NET_SPEED.name, CeilingKind::Speed)];
    let mut list = Vec::new();
    for (name, kind) in ceilings {
        for track in scene.window.tracks(name, &[]).filter(|track| !track.points.is_empty()) {
            let labels = &track.series.labels;
            let Some((owner, interface)) = labels.get("target").zip(labels.get("if")) else { continue };
            if owner != "host" && !owners.contains(&owner) {
                continue;
            }
            let own = [("target", owner), ("if", interface)];
            let of = |name| scene.window.track(name, &own);
            list.push(Link {
                name: interface.to_owned(),
                server: (owner != "host").then(|| owner.to_owned()),
                kind,
                ceiling: scene.grid.gauge(Some(track)).at_least(1.0),
                sent: scene.grid.rate(of(cat::NET_SENT_BYTES.name)),
                drops: scene.grid.rate(of(cat::NET_DROPS.name)),
                backlog: scene.grid.gauge(of(cat::NET_BACKLOG.name)),
            });
        }
    }
    list
}
