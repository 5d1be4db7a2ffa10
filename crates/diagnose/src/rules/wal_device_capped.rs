//! wal-device-capped: the device that takes the primary's WAL stands at a limit on I/O, and WAL waits for it.
//!
//! The same ceiling as in io-capped, with what it does to WAL: commits wait for their flush, and nothing is sent to a standby
//! before it is flushed.

use super::draft::draft;
use super::io_capped::{LEAVES_IDLE, fits};
use super::standby_disk::mostly;
use super::wal_device::{self, WalDevice};
use super::wal_evidence::Behind;
use crate::caps::{self, Cap, CapOwner, CapUnit, Op};
use crate::figures::Figures;
use crate::grid::{both, episodes, longest};
use crate::remedy::replication as remedy;
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, Finding, RuledOut, Severity, Unit, catalogue as cat};
use std::ops::Range;

/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 4;
const BRIDGE_S: usize = 3;
/// A device busier than this could not do twice as much: then lumps near the limit prove nothing.
const NOT_BUSY: f64 = 0.5;
/// Share of the sessions that wait for WAL, from which it is critical.
const CRITICAL: f64 = 0.5;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>, behinds: &[Behind]) -> Vec<Finding> {
    wal_device::all(scene, behinds).iter().filter_map(|wal| of_server(scene, wal)).collect()
}

fn of_server(scene: &Scene<'_>, wal: &WalDevice<'_>) -> Option<Finding> {
    let waiting = wal.waiting(scene);
    let caps = caps::of(scene, wal.device);
    let reached = caps.iter().filter(|cap| cap.op != Op::Read).filter_map(|cap| {
        let waits = |idle| both(&waiting, &fits(wal.device, cap, idle));
        let at_limit = longest(&episodes(&both(&cap.reached(), &waits(LEAVES_IDLE)), LEAST_S, BRIDGE_S));
        let at_limit = at_limit.map(|(range, seconds)| (range.clone(), seconds, range));
        // What is written in lumps is at the limit over the whole stretch, not in each of its seconds.
        let standing = both(&waits(NOT_BUSY), &cap.limit.flags(|limit| limit > 0.0));
        let between = |range: &Range<usize>| cap.held_between_lumps(range).filter(|longer| mostly(&standing, longer));
        let lumps = longest(&episodes(&standing, LEAST_S, BRIDGE_S)).and_then(|(range, seconds)| {
            let over = if cap.held_over(&range) { range.clone() } else { between(&range)? };
            Some((range, seconds, over))
        });
        let held = [at_limit, lumps].into_iter().flatten().max_by_key(|(_, seconds, _)| *seconds)?;
        Some((cap, held))
    });
    let (cap, held) = reached.max_by_key(|(_, (_, seconds, _))| *seconds)?;
    Some(finding(scene, wal, cap, &held))
}

/// `held`: when, for how many seconds, and the stretch over which the limit was passed at its own rate.
fn finding(scene: &Scene<'_>, wal: &WalDevice<'_>, cap: &Cap, held: &(Range<usize>, usize, Range<usize>)) -> Finding {
    let (range, seconds, over) = held;
    let cause = if cap.owner == CapOwner::Declared { "declared-cap" } else { "cgroup-cap" };
    let unit = if cap.unit == CapUnit::Operations { Unit::PerSecond } else { Unit::BytesPerSecond };
    let mut finding = draft("wal-device-capped", cause, "pg.wal.local_flush", scene.grid.span(range));
    finding.server = Some(wal.target.clone());
    let lost = wal.lost(scene, range);
    finding.foreground_lost = lost;
    finding.severity = if lost.is_some_and(|share| share >= CRITICAL) { Severity::Critical } else { Severity::Warning };
    let limit = cap.limit.median(range);
    let mut figures = Figures::default();
    figures.add("limit_per_s", limit, unit, "the ceiling");
    figures.add("reached_per_s", cap.passing().mean(over), unit, "what passes it");
    figures.add("generated_bytes_per_s", wal.generated.mean(range), Unit::BytesPerSecond, "WAL made");
    figures.add("flushed_bytes_per_s", wal.flushed.mean(range), Unit::BytesPerSecond, "WAL on disk");
    figures.add("unflushed_bytes", wal.level.max(range), Unit::Bytes, "WAL not yet on disk, at most");
    figures.add("device_busy_ratio", wal.device.busy.mean(range), Unit::Ratio, "device busy");
    figures.add("write_size_bytes", wal.device.write_size(range), Unit::Bytes, "mean size of a write");
    figures.add("psi_io_some_ratio", scene.psi_io.mean(range), Unit::Ratio, "time in which some task waited on I/O");
    figures.add("capped_s", Some(*seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.confidence = match (&cap.owner, scene.psi_io.mean(range).is_some()) {
        (CapOwner::Cgroup(_), true) if cap.of_some && !cap.own_rate_seen() => Confidence::Low,
        (CapOwner::Cgroup(_), true) => Confidence::High,
        _ => Confidence::Medium,
    };
    finding.summary = summary(wal, cap, range, limit.map(|limit| unit.show(limit)));
    if let Some(busy) = wal.device.busy.mean(range).filter(|busy| *busy <= NOT_BUSY) {
        let because = format!("the device is busy {} of the time", Unit::Ratio.show(busy));
        finding.ruled_out = vec![RuledOut { cause: "wal-device-saturated".to_owned(), because }];
    }
    let mut missing = Missing::default();
    missing.unless(scene.window, unseen::seen(scene.window, &cat::PSI_IO_SOME), &unseen::PRESSURE);
    missing.unless(scene.window, lost.is_some(), &unseen::SESSIONS);
    finding.unseen = missing.list();
    finding.victims = wal.victims();
    finding.remedies = remedy::raise_wal_cap(scene, wal.device, cap, &wal.generated, range);
    finding
}

fn summary(wal: &WalDevice<'_>, cap: &Cap, range: &Range<usize>, limit: Option<String>) -> String {
    let rate = |lane: &crate::grid::Lane| super::wal_evidence::rate(lane, range);
    let whose = match &cap.owner {
        CapOwner::Cgroup(group) => format!("the limit of control group {group}"),
        CapOwner::Declared => "the rating declared for it".to_owned(),
    };
    let mut text = format!(
        "WAL of {} goes to device {}, which stands at {whose} of {}: {} of WAL gets to disk, and whoever makes more waits.",
        wal.target,
        wal.device.name,
        limit.unwrap_or_else(|| "an unknown rate".to_owned()),
        rate(&wal.flushed),
    );
    if !wal.standbys.is_empty() {
        text.push_str(" Nothing is sent to a standby before that.");
    }
    text
}
