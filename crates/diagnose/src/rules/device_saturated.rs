//! device-saturated: the device is busy all the time, requests wait in it, and nothing above it holds them back.
//!
//! Busy alone says little: a device that serves many requests at once is "busy" long before it is full
//! (Linux `Documentation/admin-guide/iostats.rst`). So requests must also take long; or stand in line, and take several
//! times as long as the same device needs when it has little to do.

use super::io_capped;
use super::wal_evidence::held_by_device;
use super::wt_evidence::{engines, rate};
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::grid::{Lane, both, episodes, longest};
use crate::remedy::checkpoint;
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use crate::waits::{Wait, classify};
use backwater_model::{Confidence, Figure, Finding, RuledOut, Severity, Unit, catalogue as cat};
use std::ops::Range;

/// Share of time with a request in the device.
const BUSY: f64 = 0.9;
/// Mean time of a request from which it is long, in milliseconds, whatever the device.
const LONG_MS: f64 = 10.0;
/// Mean number of requests in the device from which they stand in line, and share of the queue's depth.
const DEEP: f64 = 32.0;
const DEEP_SHARE: f64 = 0.5;
/// Many requests in a device are its strength as long as each is served as fast as ever: they stand in line once a
/// request takes this many times its quiet time, and at least so many milliseconds.
const SLOWED: f64 = 3.0;
const SLOWED_MS: f64 = 1.0;
/// A second is quiet with at most so many requests in the device, on average; and how many quiet seconds must be seen.
const QUIET: f64 = 4.0;
const QUIET_SECONDS: usize = 3;
/// What it completes at other times is more from so many times on. Of what it writes less than this share is hardly anything.
const MORE: f64 = 1.2;
const HARDLY: f64 = 0.1;
/// For how long that may have stood in the page cache, in seconds: until it is 30 s old (vm.dirty_expire_centisecs), and is found by the
/// flusher, or until a checkpoint syncs it.
const STANDS_S: usize = 60;
/// Share of time in which tasks must wait on I/O.
const WAITING: f64 = 0.2;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 5;
const BRIDGE_S: usize = 2;

/// The findings of a window: at most one a device.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    scene.devices.iter().filter_map(|device| of_device(scene, device)).collect()
}

fn of_device(scene: &Scene<'_>, device: &DeviceView) -> Option<Finding> {
    let deep_from = deep_from(scene, device);
    let waiting = scene.waiting(&scene.waits(device), WAITING);
    let flags = both(&full(scene, device), &waiting);
    let (range, seconds) = longest(&episodes(&flags, LEAST_S, BRIDGE_S))?;
    let in_flight = device.in_flight.mean(&range);
    let cause = if in_flight.is_some_and(|count| count >= deep_from) { "deep-queue" } else { "slow-requests" };
    Some(finding(scene, device, &Saturated { cause, range, seconds, quiet_ms: quiet_ms(device) }))
}

/// Second by second, whether a device is busy all the time, requests wait in it, and no known ceiling holds it.
pub(super) fn full(scene: &Scene<'_>, device: &DeviceView) -> Vec<bool> {
    let busy = device.busy.smooth(1).flags(|busy| busy >= BUSY);
    let deep_from = deep_from(scene, device);
    let slow = device.await_ms.smooth(1).flags(|ms| ms >= LONG_MS);
    let deep = device.in_flight.smooth(1).flags(|count| count >= deep_from);
    let slowed_from = quiet_ms(device).map_or(f64::INFINITY, |quiet| (quiet * SLOWED).max(SLOWED_MS));
    let slowed = device.await_ms.smooth(1).flags(|ms| ms >= slowed_from);
    let in_line = both(&deep, &slowed);
    let queueing: Vec<bool> = slow.iter().zip(&in_line).map(|(slow, in_line)| *slow || *in_line).collect();
    let free: Vec<bool> = io_capped::capped(scene, device).into_iter().map(|capped| !capped).collect();
    both(&both(&busy, &queueing), &free)
}

/// Requests in the device, on average, from which they stand in line.
fn deep_from(scene: &Scene<'_>, device: &DeviceView) -> f64 {
    let depth =
        crate::device::track(scene.window, &cat::DISK_NR_REQUESTS, &device.dev).and_then(backwater_model::Track::last);
    depth.map_or(DEEP, |depth| DEEP.min(depth * DEEP_SHARE))
}

/// A stretch in which a device was full.
struct Saturated {
    cause: &'static str,
    range: Range<usize>,
    seconds: usize,
    /// Time of a request while the device has little to do, where that was seen.
    quiet_ms: Option<f64>,
}

/// Time of a request while little is in the device: the lowest tenth of such seconds in the window, in milliseconds.
fn quiet_ms(device: &DeviceView) -> Option<f64> {
    let quiet = device.await_ms.with(&device.in_flight, |ms, count| if count <= QUIET { ms } else { 0.0 });
    let mut times: Vec<f64> = quiet.0.into_iter().flatten().filter(|ms| *ms > 0.0).collect();
    times.sort_by(f64::total_cmp);
    (times.len() >= QUIET_SECONDS).then(|| times[times.len() / 10])
}

fn finding(scene: &Scene<'_>, device: &DeviceView, saturated: &Saturated) -> Finding {
    let range = &saturated.range;
    let (from, to) = scene.grid.span(range);
    let lost = scene.lost(device, range, |sample| classify(sample) != Wait::Other);
    let pressure_seen = scene.psi_io.mean(range).is_some();
    // Slower than when quiet, and yet fast: a load that merely keeps more in the device can look so too.
    let long = device.request_ms(range).is_some_and(|ms| ms >= LONG_MS);
    let mut missing = Missing::default();
    missing.unless(scene.window, pressure_seen, &unseen::PRESSURE);
    missing.unless(scene.window, unseen::seen(scene.window, &cat::CGROUP_IOS), &unseen::CGROUPS);
    Finding {
        rule: "device-saturated".to_owned(),
        cause: saturated.cause.to_owned(),
        severity: if lost.is_some_and(|share| share >= 0.5) { Severity::Critical } else { Severity::Warning },
        queue: format!("host.disk@{}", device.dev),
        server: None,
        from,
        to,
        foreground_lost: lost,
        summary: summary(device, saturated, long) + &others(scene, device, range),
        evidence: evidence(scene, device, saturated),
        ruled_out: ruled_out(scene, device, range),
        unseen: missing.list(),
        confidence: if long && pressure_seen && lost.is_some() { Confidence::High } else { Confidence::Medium },
        victims: held_by_device(scene, device),
        remedies: vec![checkpoint::flush_after(scene.target(Some(device)))],
    }
}

fn summary(device: &DeviceView, saturated: &Saturated, long: bool) -> String {
    let range = &saturated.range;
    let show = |lane: &Lane, unit: Unit| lane.mean(range).map_or("an unknown".to_owned(), |value| unit.show(value));
    let completes = show(&device.completes(), Unit::PerSecond);
    let request = device.request_ms(range).map_or("an unknown time".to_owned(), |ms| Unit::Milliseconds.show(ms));
    let mut text = format!(
        "Device {} is busy {} of the time; a request takes {request} and {} are in it. It completes {completes}",
        device.name,
        show(&device.busy, Unit::Ratio),
        show(&device.in_flight, Unit::Count),
    );
    let ios = device.completes();
    let others = [0..range.start, range.end..ios.0.len()];
    let most = others.iter().filter_map(|other| ios.smooth(1).max(other)).reduce(f64::max);
    let more = most.zip(ios.mean(range)).filter(|(most, here)| *most > MORE * here);
    text.push_str(&match (saturated.quiet_ms.filter(|_| !long), more) {
        (None, Some((most, _))) => {
            format!(", which is all it can do of these requests; of others it did {}.", Unit::PerSecond.show(most))
        }
        (None, None) => " and that is all it can do.".to_owned(),
        (Some(quiet), _) => format!(
            ", and that may be all it can do: a request takes {} when little is in it.",
            Unit::Milliseconds.show(quiet)
        ),
    });
    text
}

/// That hardly anything of what the device writes is of the engine whose data it holds, where that is told.
fn others(scene: &Scene<'_>, device: &DeviceView, range: &Range<usize>) -> String {
    let Some((engine, own, all)) = engine_wrote(scene, device, range) else { return String::new() };
    // What it wrote before may have stood in the page cache until now.
    let with_before = range.start.saturating_sub(STANDS_S)..range.end;
    let Some((_, before, _)) = engine_wrote(scene, device, &with_before) else { return String::new() };
    let at_most = own.max(before * with_before.len() as f64 / range.len().max(1) as f64);
    // What it reads nobody tells by server.
    let reads = device.read_bytes.mean(range).unwrap_or_default();
    if at_most >= HARDLY * all || reads >= all {
        return String::new();
    }
    let [own, all] = [own, all].map(|rate| Unit::BytesPerSecond.show(rate));
    format!(" Of the {all} that it writes {own} are of {engine}: something else keeps it at work.")
}

/// What the engine whose data it holds wrote into its files and its journal, and what the device wrote, bytes a second.
fn engine_wrote(scene: &Scene<'_>, device: &DeviceView, range: &Range<usize>) -> Option<(String, f64, f64)> {
    let all = engines(scene);
    let mut own = all.iter().filter(|engine| engine.device.is_some_and(|own| own.dev == device.dev));
    let (engine, None) = (own.next()?, own.next()) else { return None };
    let of = |def| rate(scene, def, &engine.name, None).mean(range);
    let written = of(&cat::WT_BLOCK_WRITTEN)? + of(&cat::WT_LOG_BYTES).unwrap_or(0.0);
    Some((engine.name.clone(), written, device.written_bytes.mean(range)?))
}

fn evidence(scene: &Scene<'_>, device: &DeviceView, saturated: &Saturated) -> Vec<Figure> {
    let range = &saturated.range;
    let mut figures = Figures::default();
    figures.add("device_busy_ratio", device.busy.mean(range), Unit::Ratio, "device busy");
    figures.add("await_ms", device.request_ms(range), Unit::Milliseconds, "time of a request in the device");
    figures.add("await_quiet_ms", saturated.quiet_ms, Unit::Milliseconds, "the same while little is in the device");
    figures.add("in_flight_count", device.in_flight.mean(range), Unit::Count, "requests in the device, mean");
    figures.add("reads_per_s", device.reads.mean(range), Unit::PerSecond, "reads completed");
    figures.add("writes_per_s", device.writes.mean(range), Unit::PerSecond, "writes completed");
    figures.add("read_bytes_per_s", device.read_bytes.mean(range), Unit::BytesPerSecond, "bytes read");
    figures.add("written_bytes_per_s", device.written_bytes.mean(range), Unit::BytesPerSecond, "bytes written");
    let own = engine_wrote(scene, device, range).map(|(_, own, _)| own);
    figures.add("engine_written_bytes_per_s", own, Unit::BytesPerSecond, "of which the server's own");
    figures.add("psi_io_some_ratio", scene.psi_io.mean(range), Unit::Ratio, "time in which some task waited on I/O");
    figures.add("saturated_s", Some(saturated.seconds as f64), Unit::Seconds, "seconds of it in this window");
    figures.list()
}

fn ruled_out(scene: &Scene<'_>, device: &DeviceView, range: &Range<usize>) -> Vec<RuledOut> {
    let caps = crate::caps::of(scene, device);
    let highest =
        caps.iter().filter_map(|cap| Some(cap.passing().max(range)? / cap.limit.median(range)?)).reduce(f64::max);
    let because = match highest {
        Some(share) => format!("no ceiling was reached: at most {} of one", Unit::Ratio.show(share)),
        None => "no control group limits it and no rating was declared".to_owned(),
    };
    vec![RuledOut { cause: "io-capped".to_owned(), because }]
}
