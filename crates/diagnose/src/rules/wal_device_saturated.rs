//! wal-device-saturated: the device that takes the primary's WAL is busy all the time, requests wait in it, and WAL waits
//! for it. What makes a device full is told in device-saturated; this says what it does to WAL.

use super::device_saturated;
use super::draft::draft;
use super::wal_device::{self, WalDevice};
use super::wal_evidence::{Behind, rate};
use crate::figures::Figures;
use crate::grid::{both, episodes, longest};
use crate::remedy::replication as remedy;
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, Finding, RuledOut, Severity, Unit};

/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 5;
const BRIDGE_S: usize = 2;
/// Requests in the device, on average, from which they stand in line.
const DEEP: f64 = 32.0;
/// Share of the sessions that wait for WAL, from which it is critical.
const CRITICAL: f64 = 0.5;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>, behinds: &[Behind]) -> Vec<Finding> {
    wal_device::all(scene, behinds).iter().filter_map(|wal| of_server(scene, wal)).collect()
}

fn of_server(scene: &Scene<'_>, wal: &WalDevice<'_>) -> Option<Finding> {
    let device = wal.device;
    let flags = both(&device_saturated::full(scene, device), &wal.waiting(scene));
    let (range, seconds) = longest(&episodes(&flags, LEAST_S, BRIDGE_S))?;
    let deep = device.in_flight.mean(&range).is_some_and(|count| count >= DEEP);
    let cause = if deep { "deep-queue" } else { "slow-requests" };
    let mut finding = draft("wal-device-saturated", cause, "pg.wal.local_flush", scene.grid.span(&range));
    finding.server = Some(wal.target.clone());
    let lost = wal.lost(scene, &range);
    finding.foreground_lost = lost;
    finding.severity = if lost.is_some_and(|share| share >= CRITICAL) { Severity::Critical } else { Severity::Warning };
    finding.confidence = if lost.is_some() { Confidence::High } else { Confidence::Medium };
    let mut figures = Figures::default();
    figures.add("device_busy_ratio", device.busy.mean(&range), Unit::Ratio, "device busy");
    figures.add("await_ms", device.await_ms.mean(&range), Unit::Milliseconds, "time of a request in the device");
    figures.add("in_flight_count", device.in_flight.mean(&range), Unit::Count, "requests in the device, mean");
    figures.add("writes_per_s", device.writes.mean(&range), Unit::PerSecond, "writes completed");
    figures.add("written_bytes_per_s", device.written_bytes.mean(&range), Unit::BytesPerSecond, "bytes written");
    figures.add("generated_bytes_per_s", wal.generated.mean(&range), Unit::BytesPerSecond, "WAL made");
    figures.add("flushed_bytes_per_s", wal.flushed.mean(&range), Unit::BytesPerSecond, "WAL on disk");
    figures.add("unflushed_bytes", wal.level.max(&range), Unit::Bytes, "WAL not yet on disk, at most");
    figures.add("saturated_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.summary = format!(
        "WAL of {} goes to device {}, which is busy {} of the time and takes {} for a request: {} of WAL gets to disk, and \
         whoever makes more waits.",
        wal.target,
        device.name,
        Unit::Ratio.show(device.busy.mean(&range).unwrap_or(1.0)),
        Unit::Milliseconds.show(device.await_ms.mean(&range).unwrap_or_default()),
        rate(&wal.flushed, &range),
    );
    let because = "no known ceiling was reached meanwhile".to_owned();
    finding.ruled_out = vec![RuledOut { cause: "wal-device-capped".to_owned(), because }];
    let mut missing = Missing::default();
    missing.unless(scene.window, lost.is_some(), &unseen::SESSIONS);
    finding.unseen = missing.list();
    finding.victims = wal.victims();
    finding.remedies = remedy::of_full_wal_device(scene, &wal.target, device);
    Some(finding)
}
