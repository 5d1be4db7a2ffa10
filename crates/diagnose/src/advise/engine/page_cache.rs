//! Remedies for what stands in the page cache between a checkpoint and the journal.

use super::measured::{Measured, journal_sync_s};
use super::{Changed, EngineChange, WORTH};
use crate::device::DeviceView;
use crate::remedy::{dirty, engine as remedy};
use crate::rules::wt_evidence::{Engine, gauge};
use crate::scene::Scene;
use backwater_model::{Figure, Finding, Target, Unit, catalogue as cat};

/// A page as the engine writes it (leaf_page_max), and MongoDB's eviction threads where nobody counted them.
const PAGE_BYTES: f64 = 32.0 * 1_024.0;
const MOST_WORKERS: f64 = 4.0;
/// The least that a device's pages are limited to, and the pieces in which it is told.
const LEAST_CAP_BYTES: f64 = 16.0 * MIB;
const MIB: f64 = 1_048_576.0;
/// Why a remedy is not there.
const NOT_SEEN: &str = "How much of the device's pages is dirty is not seen here, so nothing is said of the page cache, which a checkpoint's \
     sync empties before the journal is written: record on the server's host, as root.";
const GONE: &str = "Data files that pass by the page cache (direct_io) are not available in this release (MongoDB 8.0, WiredTiger 11.3 and newer): a limit on the \
     device's dirty pages keeps what stands before the journal as small.";

/// Where data files go through the page cache and their syncs stand before the journal: past it, where hardly anything is read
/// back; and a limit on the device's dirty pages, which needs no restart. With a note where one of them cannot be had.
pub(super) fn past_or_less(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    target: Option<&Target>,
    seen: &Measured,
    wanted: f64,
    own: &[&Finding],
) -> (Vec<Changed>, Option<String>) {
    let all = 0..scene.grid.count;
    let level = engine.device.and_then(|device| Some((device, device.level.max(&all)?)));
    let felt = own.iter().any(|finding| ["checkpoint-burst", "wt-cache-oversized"].contains(&finding.rule.as_str()));
    // Where checkpoints run most of the time no finding compares with them; that the journal waits for as long is seen all the same.
    // Not where threads stall in the cache: then the journal waits for a disk that is busy with what they evict.
    let stalls = own.iter().any(|finding| finding.rule == "wt-dirty-stall");
    let Some(((device, peak), drain)) = level.zip(seen.disk()) else {
        return (Vec::new(), (felt && level.is_none()).then(|| NOT_SEEN.to_owned()));
    };
    let felt = felt || (!stalls && journal_sync_s(scene, engine).is_some_and(|longest| longest >= wanted / drain));
    let bytes = ((wanted / MIB).floor() * MIB).max(LEAST_CAP_BYTES);
    if !felt || peak <= bytes / WORTH {
        return (Vec::new(), None);
    }
    let past = past_page_cache(scene, engine, target, (seen, drain), peak);
    let gone = (past.is_none() && remedy::direct_io_is_gone(target)).then(|| GONE.to_owned());
    (past.into_iter().chain([device_limit(scene, device, (seen, drain), bytes, peak)]).collect(), gone)
}

/// Data files with direct I/O: before the journal stands then what eviction and a checkpoint have under way, a page each.
fn past_page_cache(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    target: Option<&Target>,
    (seen, drain): (&Measured, f64),
    peak: f64,
) -> Option<Changed> {
    let all = 0..scene.grid.count;
    let read = seen.few_reads()?;
    let workers = gauge(scene, &cat::WT_EVICT_WORKERS, &engine.name, None).max(&all).unwrap_or(MOST_WORKERS);
    let left = (workers + 1.0) * PAGE_BYTES;
    let mut predicted = vec![
        Figure::new("read_back_bytes_per_s", read, Unit::BytesPerSecond, "read into the cache, on average"),
        Figure::new(
            "before_journal_bytes",
            left,
            Unit::Bytes,
            "under way: a page of each thread that evicts or checkpoints",
        ),
        Figure::new("whole_drain_s", left / drain, Unit::Seconds, "time to write that before the journal"),
        Figure::new("whole_drain_now_s", peak / drain, Unit::Seconds, "the same of all that stood in the page cache"),
    ];
    // The cache gathers as much as before.
    predicted.extend(seen.predict(seen.now(), seen.now()));
    let remedy = remedy::direct_io(target, predicted)?;
    let settings = [("direct_io".to_owned(), "[data]".to_owned())].into();
    let relieves = engine.device.map(|device| format!("host.dirty@{}", device.dev)).unwrap_or_default();
    Some((remedy, EngineChange { relieves, settings, ..EngineChange::default() }))
}

fn device_limit(
    scene: &Scene<'_>,
    device: &DeviceView,
    (seen, drain): (&Measured, f64),
    bytes: f64,
    peak: f64,
) -> Changed {
    let mut predicted = vec![
        Figure::new("dirty_limit_bytes", bytes, Unit::Bytes, "the new limit"),
        Figure::new(
            "whole_drain_s",
            bytes / drain,
            Unit::Seconds,
            "time to write all that can stand before the journal",
        ),
        Figure::new("whole_drain_now_s", peak / drain, Unit::Seconds, "the same at the highest level seen"),
    ];
    predicted.extend(seen.predict(seen.now(), seen.now()));
    let mut remedy = dirty::set_limit(scene.window, &device.dev, bytes, predicted);
    remedy
        .title
        .push_str(" (relieves the page cache, which a checkpoint's sync empties before the journal is written)");
    remedy.risk.push_str(
        " The journal's own writes are held at this limit as well, while a checkpoint fills it: a commit may wait for several \
         such drains, one after another.",
    );
    let relieves = format!("host.dirty@{}", device.dev);
    (remedy, EngineChange { relieves, dirty_limit_bytes: Some(bytes as u64), ..EngineChange::default() })
}
