//! network-narrow: the network carries WAL to a standby more slowly than it is made.
//!
//! The connection has data to send all the time, unsent bytes stand in its buffer, and the standby's window is open: what is
//! slow lies between the two. A slow disk behind it closes the window, which is how the two are told apart.

use super::wal_evidence::{Behind, most, of_lag, rate, tcp_figures};
use crate::figures::Figures;
use crate::remedy::replication as remedy;
use crate::replication::{CeilingKind, Doing, Lag, Link, Standby, activity, links, owners};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, Finding, RuledOut, Unit};
use std::ops::Range;

/// Share of time in which the own send buffer must hold the connection to be its limit.
const SNDBUF: f64 = 0.5;
/// Where the timers are unseen: share of time in which the standby's walreceiver has nothing to read.
const IDLE: f64 = 0.7;

/// The findings of a window: at most one a standby.
pub(super) fn find(scene: &Scene<'_>, all: &[Behind]) -> Vec<Finding> {
    all.iter().filter_map(|behind| of_standby(scene, behind)).collect()
}

fn of_standby(scene: &Scene<'_>, behind: &Behind) -> Option<Finding> {
    let standby = &behind.standby;
    let lag = behind.lags.stream.as_ref()?;
    let links = links(scene, &owners(standby));
    // One that is full of something else holds nobody else's WAL.
    let full = links.iter().find(|link| link.full(&lag.range) && link.carries(standby, &lag.range));
    let window = standby.tcp.window_bound(&lag.range) && full.is_none();
    let bound = lag.binding.as_ref().map(|binding| binding.stage.split('@').next().unwrap_or_default().to_owned());
    let confidence = match bound.as_deref() {
        Some("tcp") if full.is_some() => Confidence::High,
        Some("tcp") => Confidence::Medium,
        // The window is full because the way is long, not because nobody reads.
        Some("walreceiver") if window && !receiver_writes(scene, standby, lag) => Confidence::Medium,
        None if full.is_some() && receiver_idles(scene, standby, lag) => Confidence::Medium,
        _ => return None,
    };
    let sndbuf = standby.tcp.shares(&lag.range).is_some_and(|tcp| tcp.sndbuf >= SNDBUF);
    let cause = match full {
        Some(link) if link.kind == CeilingKind::Shaper => "shaper",
        Some(_) => "link-speed",
        None if window => "receive-window",
        None if sndbuf => "send-buffer",
        None => "path",
    };
    Some(finding(scene, behind, lag, cause, full, confidence))
}

fn receiver_writes(scene: &Scene<'_>, standby: &Standby, lag: &Lag) -> bool {
    receiver_share(scene, standby, lag, |doing| *doing == Doing::WalWrite).is_some_and(|share| share >= 1.0 - IDLE)
}

fn receiver_idles(scene: &Scene<'_>, standby: &Standby, lag: &Lag) -> bool {
    receiver_share(scene, standby, lag, |doing| *doing == Doing::Idle).is_some_and(|share| share >= IDLE)
}

fn receiver_share(scene: &Scene<'_>, standby: &Standby, lag: &Lag, test: impl Fn(&Doing) -> bool) -> Option<f64> {
    let peer = standby.peer.as_ref()?;
    activity(scene.window, &scene.grid, &peer.target, "walreceiver", None, &lag.range).share(test)
}

fn finding(
    scene: &Scene<'_>,
    behind: &Behind,
    lag: &Lag,
    cause: &str,
    link: Option<&Link>,
    confidence: Confidence,
) -> Finding {
    let (standby, range) = (&behind.standby, &lag.range);
    let mut finding = of_lag(scene, behind, "network-narrow", cause, "send", lag);
    finding.confidence = confidence;
    finding.evidence.extend(tcp_figures(standby, range));
    finding.evidence.extend(link_figures(link, range));
    finding.summary = summary(standby, cause, link, range);
    finding.ruled_out = ruled_out(standby, range);
    let mut missing = Missing::default();
    missing.unless(scene.window, standby.tcp.shares(range).is_some(), &unseen::TCP);
    missing.unless(scene.window, link.is_some(), &unseen::LINK);
    missing.unless(scene.window, standby.peer.is_some(), &unseen::STANDBY);
    finding.unseen = missing.list();
    finding.remedies = remedy::of_network(scene, standby, cause, link, range);
    finding
}

fn link_figures(link: Option<&Link>, range: &Range<usize>) -> Vec<backwater_model::Figure> {
    let mut figures = Figures::default();
    if let Some(link) = link {
        figures.add("link_limit_bytes_per_s", link.ceiling.median(range), Unit::BytesPerSecond, "the link's ceiling");
        figures.add("link_sent_bytes_per_s", link.sent.mean(range), Unit::BytesPerSecond, "sent through it");
        figures.add("link_backlog_bytes", link.backlog.mean(range), Unit::Bytes, "standing in its queueing discipline");
        figures.add("link_drops_per_s", link.drops.mean(range), Unit::PerSecond, "packets dropped on their way out");
    }
    figures.list()
}

fn summary(standby: &Standby, cause: &str, link: Option<&Link>, range: &Range<usize>) -> String {
    let hops = &standby.hops;
    let mut text = format!(
        "The network carries WAL to standby {} at {}, while {} is made: up to {} waited on the primary.",
        standby.name,
        rate(&hops.sent_rate, range),
        rate(&hops.flushed_rate, range),
        most(&hops.shown.stream, range),
    );
    let ceiling = link.and_then(|link| Some((link, link.ceiling.median(range)?)));
    text.push_str(&match (cause, ceiling) {
        ("shaper", Some((link, limit))) => {
            format!(" The shaper on {} lets {} pass.", link.name, Unit::BytesPerSecond.show(limit))
        }
        (_, Some((link, limit))) => {
            format!(" Interface {} is full at its {}.", link.name, Unit::BytesPerSecond.show(limit))
        }
        ("receive-window", None) => {
            " Each round trip carries the standby's whole receive window: the way is long, the window small.".to_owned()
        }
        ("send-buffer", None) => {
            " The primary's send buffer holds less than what is under way on a link this long.".to_owned()
        }
        _ => {
            " The connection always had more to send, and the standby's window was open: the way between is the limit."
                .to_owned()
        }
    });
    text
}

fn ruled_out(standby: &Standby, range: &Range<usize>) -> Vec<RuledOut> {
    let tcp = standby.tcp.shares(range).filter(|tcp| tcp.rwnd < 0.3);
    let because = |share: f64| {
        format!("the standby's receive window held the connection {} of the time", Unit::Ratio.show(share))
    };
    tcp.map(|tcp| RuledOut { cause: "standby-disk".to_owned(), because: because(tcp.rwnd) }).into_iter().collect()
}
