//! standby-disk: the standby writes or syncs WAL more slowly than it arrives, or its replay waits for its own disk.
//!
//! Seen from the primary alone: the standby's receive window holds the connection most of the time, for its walreceiver
//! does not read while it syncs. Seen from the standby: its walreceiver waits for WAL to be written or synced, and its device is
//! at a cap, or full. What reads from a logical slot writes no WAL: that it does not read its socket says nothing of a disk.

use super::wal_evidence::{Behind, most, of_lag, rate, tcp_figures};
use crate::caps::{self, Cap, CapOwner, CapUnit, Op};
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::remedy::replication as remedy;
use crate::replication::{Doing, Lag, Standby, activity, is_logical};
use crate::rules::device_saturated;
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, Finding, RuledOut, Unit};
use std::ops::Range;

/// Share of its time that the walreceiver must spend writing and syncing, where the connection's timers are unseen.
const WRITES: f64 = 0.5;
/// Share of its time that replay must wait for data files to be its limit.
const STORES: f64 = 0.5;
/// Share of a stretch in which a cap must be reached, or the device be full, to be the reason.
const MOSTLY: f64 = 0.5;

/// A device busier than this could not do twice as much.
const NOT_BUSY: f64 = 0.5;

/// What the standby's device was held by.
pub(super) enum Held<'a> {
    /// A cap, and the stretch over which it was held to it: the lag's own, or from one lump to another.
    Cap(Box<Cap>, &'a DeviceView, Range<usize>),
    Full(&'a DeviceView),
    Neither(&'a DeviceView),
    Unseen,
}

impl Held<'_> {
    fn cause(&self) -> &'static str {
        match self {
            Held::Cap(cap, ..) if cap.owner == CapOwner::Declared => "declared-cap",
            Held::Cap(..) => "cgroup-cap",
            Held::Full(_) => "saturated",
            Held::Neither(_) => "slow",
            Held::Unseen => "seen-from-primary",
        }
    }
}

/// The findings of a window: at most one a standby, of the stream before replay.
pub(super) fn find(scene: &Scene<'_>, all: &[Behind]) -> Vec<Finding> {
    all.iter().filter_map(|behind| in_stream(scene, behind).or_else(|| in_replay(scene, behind))).collect()
}

fn in_stream(scene: &Scene<'_>, behind: &Behind) -> Option<Finding> {
    let standby = &behind.standby;
    let lag = behind.lags.stream.as_ref().or(behind.lags.sync.as_ref())?;
    let waits = |range: &Range<usize>| share(scene, standby, "walreceiver", range, |doing| *doing == Doing::WalWrite);
    let writes = waits(&lag.range);
    let bound = lag.binding.as_ref().map(|binding| binding.stage.starts_with("walreceiver@"));
    let held = device(scene, standby, true, &lag.range, Op::Write, &|range| waits(range) >= Some(WRITES));
    // A window that is full because the way is long is the network's.
    let long_way = standby.tcp.window_bound(&lag.range) && writes.is_none_or(|share| share < 1.0 - WRITES);
    let stands = match (bound, writes) {
        (Some(true), _) => !long_way,
        (None, Some(writes)) => writes >= WRITES,
        _ => false,
    };
    // Commits that wait often, each for a moment, are what a synchronous standby is for: nothing is slow unless its device is held.
    let often_only = behind.lags.stream.is_none() && !behind.lags.sync_is_long;
    if !stands || (often_only && matches!(held, Held::Neither(_) | Held::Unseen)) {
        return None;
    }
    let primary = standby.primary.as_deref().unwrap_or_default();
    if matches!(held, Held::Unseen) && is_logical(scene.window, primary, &standby.name) {
        return None;
    }
    let standing_behind = standby.hops.standby_flush.mean(&lag.range) > standby.hops.in_flight.mean(&lag.range);
    let hop = if standing_behind { "standby_flush" } else { "standby_write" };
    let agree = bound == Some(true) && writes.is_none_or(|share| share >= WRITES);
    let confidence = match (&held, agree) {
        (Held::Cap(..) | Held::Full(_), true) => Confidence::High,
        (Held::Cap(..) | Held::Full(_) | Held::Unseen, _) => Confidence::Medium,
        (Held::Neither(_), _) => {
            if writes.is_some_and(|share| share >= WRITES) {
                Confidence::Medium
            } else {
                Confidence::Low
            }
        }
    };
    let mut finding = of_lag(scene, behind, "standby-disk", held.cause(), hop, lag);
    finding.confidence = confidence;
    finding.evidence.extend(tcp_figures(standby, &lag.range));
    finding.summary = stream_summary(standby, &held, &lag.range);
    if finding.victims.iter().any(|victim| victim == "pg.commit") {
        finding.summary.push_str(" Commits need its answer.");
    }
    finish(scene, &mut finding, standby, &held, lag, writes);
    finding.ruled_out.extend(not_the_network(standby, &lag.range));
    Some(finding)
}

/// Replay that waits for data files: read one block at a time by a single process.
fn in_replay(scene: &Scene<'_>, behind: &Behind) -> Option<Finding> {
    let standby = &behind.standby;
    let lag = behind.lags.replay.as_ref()?;
    let waits = |range: &Range<usize>| {
        share(scene, standby, "startup", range, |doing| matches!(doing, Doing::Data | Doing::WalRead))
    };
    let stores = waits(&lag.range).filter(|share| *share >= STORES)?;
    let long = |range: &Range<usize>| waits(range) >= Some(STORES);
    let read = device(scene, standby, false, &lag.range, Op::Read, &long);
    let held = if let Held::Neither(_) | Held::Unseen = read {
        device(scene, standby, false, &lag.range, Op::Write, &long)
    } else {
        read
    };
    let mut finding = of_lag(scene, behind, "standby-disk", held.cause(), "standby_replay", lag);
    finding.confidence =
        if matches!(held, Held::Cap(..) | Held::Full(_)) { Confidence::High } else { Confidence::Medium };
    finding.summary = format!(
        "Replay on standby {} waits for its disk {} of the time: {} is replayed while {} arrives, and up to {} waited.",
        standby.name,
        Unit::Ratio.show(stores),
        rate(&standby.hops.replayed_rate, &lag.range),
        rate(&standby.hops.received_rate, &lag.range),
        most(&standby.hops.shown.replay, &lag.range),
    );
    finish(scene, &mut finding, standby, &held, lag, Some(stores));
    Some(finding)
}

fn share(
    scene: &Scene<'_>,
    standby: &Standby,
    what: &str,
    range: &Range<usize>,
    test: impl Fn(&Doing) -> bool,
) -> Option<f64> {
    let peer = standby.peer.as_ref()?;
    activity(scene.window, &scene.grid, &peer.target, what, None, range).share(test)
}

/// What held the standby's device over a stretch; `waits` says whether its process waited for storage most of another one.
fn device<'a>(
    scene: &'a Scene<'_>,
    standby: &Standby,
    wal: bool,
    range: &Range<usize>,
    op: Op,
    waits: &dyn Fn(&Range<usize>) -> bool,
) -> Held<'a> {
    let peer = standby.peer.as_ref();
    let dev = peer.and_then(|peer| if wal { peer.wal_device.as_ref() } else { peer.data_device.as_ref() });
    let Some(device) = dev.and_then(|dev| scene.devices.iter().find(|device| device.dev == *dev)) else {
        return Held::Unseen;
    };
    let idle = |range: &Range<usize>| device.busy.mean(range).is_some_and(|busy| busy <= NOT_BUSY);
    let over = |cap: &Cap| {
        let whole = mostly(&cap.reached(), range) || (cap.held_over(range) && idle(range));
        let between = || cap.held_between_lumps(range).filter(|longer| idle(longer) && waits(longer));
        if whole { Some(range.clone()) } else { between() }
    };
    let counts = |cap: &Cap| cap.op == Op::Any || cap.op == op;
    let reached = caps::of(scene, device).into_iter().filter(counts).find_map(|cap| Some((over(&cap)?, cap)));
    match reached {
        Some((over, cap)) => Held::Cap(Box::new(cap), device, over),
        None if mostly(&device_saturated::full(scene, device), range) => Held::Full(device),
        None => Held::Neither(device),
    }
}

/// Whether a flag holds in most seconds of a stretch.
pub(super) fn mostly(flags: &[bool], range: &Range<usize>) -> bool {
    let part = flags.get(range.clone()).unwrap_or_default();
    let count = part.iter().filter(|flag| **flag).count();
    !part.is_empty() && count as f64 >= MOSTLY * part.len() as f64
}

fn stream_summary(standby: &Standby, held: &Held<'_>, range: &Range<usize>) -> String {
    let hops = &standby.hops;
    let mut text = format!(
        "Standby {} takes {} of WAL while {} is made: up to {} waited for it.",
        standby.name,
        rate(&hops.received_rate.or(&hops.sent_rate), range),
        rate(&hops.flushed_rate, range),
        most(&hops.shown.stream, range),
    );
    let limit = |cap: &Cap| cap.limit.median(range).map(|limit| unit(cap).show(limit)).unwrap_or_default();
    text.push_str(&match held {
        Held::Cap(cap, device, _) => format!(" Its device {} stands at its limit of {}.", device.name, limit(cap)),
        Held::Full(device) => format!(" Its device {} is busy all the time and requests wait in it.", device.name),
        Held::Neither(device) => format!(" Its walreceiver waits for device {}, which no known limit holds.", device.name),
        Held::Unseen => " Its receive window is closed most of the time: it does not read, which is how a slow disk looks from here.".to_owned(),
    });
    text
}

fn unit(cap: &Cap) -> Unit {
    if cap.unit == CapUnit::Operations { Unit::PerSecond } else { Unit::BytesPerSecond }
}

fn finish(scene: &Scene<'_>, finding: &mut Finding, standby: &Standby, held: &Held<'_>, lag: &Lag, waits: Option<f64>) {
    let range = &lag.range;
    let mut figures = Figures::default();
    figures.add("storage_wait_ratio", waits, Unit::Ratio, "time in which the standby's process waited for storage");
    if let Held::Cap(_, device, _) | Held::Full(device) | Held::Neither(device) = held {
        figures.add("device_busy_ratio", device.busy.mean(range), Unit::Ratio, "the standby's device busy");
        figures.add("await_ms", device.await_ms.mean(range), Unit::Milliseconds, "time of a request in it");
        figures.add("writes_per_s", device.writes.mean(range), Unit::PerSecond, "writes completed by it");
        figures.add(
            "written_bytes_per_s",
            device.written_bytes.mean(range),
            Unit::BytesPerSecond,
            "bytes written by it",
        );
    }
    if let Held::Cap(cap, _, over) = held {
        figures.add("limit_per_s", cap.limit.median(over), unit(cap), "the ceiling");
        figures.add("reached_per_s", cap.passing().mean(over), unit(cap), "what passes it");
    }
    finding.evidence.extend(figures.list());
    let mut missing = Missing::default();
    missing.unless(scene.window, standby.peer.is_some(), &unseen::STANDBY);
    missing.unless(scene.window, standby.primary.is_none() || standby.tcp.shares(range).is_some(), &unseen::TCP);
    finding.unseen = missing.list();
    let cap = if let Held::Cap(cap, device, _) = held { Some((cap.as_ref(), *device)) } else { None };
    finding.remedies = remedy::of_standby_disk(scene, standby, cap, range);
}

fn not_the_network(standby: &Standby, range: &Range<usize>) -> Vec<RuledOut> {
    let tcp = standby.tcp.shares(range).filter(|tcp| tcp.rwnd >= 0.5);
    let because = |share: f64| {
        format!(
            "the connection waited for the standby's window {} of the time, not for the network",
            Unit::Ratio.show(share)
        )
    };
    tcp.map(|tcp| RuledOut { cause: "network-narrow".to_owned(), because: because(tcp.rwnd) }).into_iter().collect()
}
