//! Advice for standbys: what must be set so that one may be away, or cut off, for a stated time and go on afterwards; and what
//! lets it keep up. Every size comes from the rates that were measured.
//!
//! An outage of so many seconds takes rate × seconds of WAL to be kept, and a fifth more; afterwards the standby catches up at
//! what its path carries over what is made meanwhile, so a path with no room to spare never catches up.

use crate::caps::{self, Cap, CapOwner};
use crate::device::DeviceView;
use crate::figures::Figures;
use crate::grid::Lane;
use crate::remedy::{replication as remedy, retention};
use crate::replication::{
    Standby, free_bytes, is_logical, keep_bytes, known, links, owners, setting_bytes, standbys, target,
};
use crate::scene::Scene;
use backwater_model::{Figure, Finding, Remedy, Target, Unit, Window, catalogue as cat};
use serde::Serialize;
use std::ops::Range;

/// Room over what was seen.
const ROOM: f64 = 1.2;
/// Seconds over which a rate counts as sustained, to each side.
const SUSTAINED: usize = 5;
/// PostgreSQL's page; a full-page image is one at most.
const PAGE_BYTES: f64 = 8_192.0;
/// What compression leaves of a full-page image, about: between a third and two thirds for lz4 and pglz on usual rows.
const COMPRESSED: f64 = 0.5;
/// A saving below this share of WAL is not worth its processor time.
const LEAST_SAVING: f64 = 0.1;
/// Share of the free disk that kept WAL may take.
const OF_FREE: f64 = 0.8;

/// What to aim for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurviveOptions {
    /// A standby shall be able to be away for so many seconds and go on afterwards.
    pub survive_s: f64,
}

impl Default for SurviveOptions {
    /// An hour.
    fn default() -> Self {
        SurviveOptions { survive_s: 3_600.0 }
    }
}

/// Advice for one standby.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StandbyAdvice {
    /// The primary's name as a target.
    pub primary: String,
    /// The standby, as the primary knows it.
    pub standby: String,
    /// The outage it is for, in seconds.
    pub survive_s: f64,
    /// Rates and levels that were seen.
    pub observed: Vec<Figure>,
    /// What to set, each with what it predicts and risks.
    pub remedies: Vec<Remedy>,
    /// Why something is not advised, and what to keep in mind.
    pub notes: Vec<String>,
}

/// What was measured of one standby's stream.
struct Measured<'a> {
    standby: &'a Standby,
    primary: &'a str,
    settings: Option<Target>,
    range: Range<usize>,
    /// WAL made, bytes a second: over the time in which any was, and at most for ten seconds.
    mean: f64,
    peak: f64,
    /// The best rate at which the standby took WAL for ten seconds.
    taken: Option<f64>,
    /// The same while more than a second's worth stood before it: what it takes at most. One that takes all that is made may take more.
    taken_at_most: Option<f64>,
    /// A ceiling of an interface here.
    link: Option<f64>,
    /// Caps that stood on the devices of both sides and were reached.
    capped: bool,
}

/// What to set for the standbys of a window's primaries. Empty where none is seen.
pub fn advise_standbys(window: &Window, options: &SurviveOptions) -> Vec<StandbyAdvice> {
    let scene = Scene::of(window);
    let list = standbys(&scene);
    if list.is_empty() {
        return Vec::new();
    }
    let findings = crate::rules::diagnose(window, &crate::Options::default());
    list.iter().filter_map(|standby| of_standby(&scene, standby, &findings, options)).collect()
}

fn of_standby(
    scene: &Scene<'_>,
    standby: &Standby,
    findings: &[Finding],
    options: &SurviveOptions,
) -> Option<StandbyAdvice> {
    let primary = standby.primary.as_deref()?;
    let mut advice = StandbyAdvice {
        primary: primary.to_owned(),
        standby: standby.name.clone(),
        survive_s: options.survive_s,
        observed: Vec::new(),
        remedies: Vec::new(),
        notes: Vec::new(),
    };
    let mut caps = Vec::new();
    for (device, cap) in reached(scene, standby, findings) {
        caps.extend(remedies_of_cap(scene, standby, device, &cap));
    }
    let Some(seen) = measure(scene, standby, primary, !caps.is_empty()) else {
        let why = if standby.hops.generated.known() {
            "No WAL was made in this window, so no size can be told: record under load."
        } else {
            "How much WAL is made was not read in this window, so no size can be told."
        };
        advice.notes.push(why.to_owned());
        return Some(advice);
    };
    advice.observed = observed(scene, &seen);
    advice.remedies = caps;
    if seen.capped {
        advice.notes.push(
            "WAL is made as fast as the cap allows; without it more is made, and the sizes below no longer hold. Lift the cap \
             only where the network carries what is then made: else WAL is removed before the standby has it."
                .to_owned(),
        );
    }
    advice.remedies.extend(link(&seen, way(scene, standby, primary, findings)));
    retention(scene, &seen, options, &mut advice);
    // Who decodes WAL has it from its slot alone.
    if !is_logical(scene.window, primary, &standby.name) {
        advice.remedies.extend(archive(&seen));
    }
    advice.remedies.extend(compression(scene, &seen, &mut advice.notes));
    Some(advice)
}

/// Caps on writes that were reached, on the device of WAL of either side.
fn reached<'a>(scene: &'a Scene<'_>, standby: &Standby, findings: &[Finding]) -> Vec<(&'a DeviceView, Cap)> {
    let of_primary = standby.primary.as_deref().and_then(|name| known(scene.window, name));
    let own = of_primary.and_then(|known| known.wal_device.clone().or_else(|| known.data_device.clone()));
    let theirs = standby.peer.as_ref().and_then(|peer| peer.wal_device.clone());
    let stretches = capped(scene, findings);
    let mut list: Vec<(&DeviceView, Cap)> = Vec::new();
    for device in scene.devices.iter().filter(|device| [&own, &theirs].contains(&&Some(device.dev.clone()))) {
        let writes = caps::of(scene, device).into_iter().filter(|cap| cap.op != caps::Op::Read);
        let held = |cap: &Cap| {
            let seconds = cap.reached().iter().filter(|flag| **flag).count();
            seconds >= SUSTAINED
                || stretches.iter().any(|range| cap.held_over(range) || cap.held_between_lumps(range).is_some())
        };
        list.extend(writes.filter(held).map(|cap| (device, cap)));
    }
    list
}

/// When a rule found that a cap held WAL up, on either side.
fn capped(scene: &Scene<'_>, findings: &[Finding]) -> Vec<Range<usize>> {
    let rules = ["wal-device-capped", "standby-disk"];
    let is_cap = |finding: &&Finding| rules.contains(&finding.rule.as_str()) && finding.cause.ends_with("-cap");
    findings.iter().filter(is_cap).map(|finding| stretch(scene, finding)).collect()
}

/// The seconds of a finding.
fn stretch(scene: &Scene<'_>, finding: &Finding) -> Range<usize> {
    let second = |at| scene.grid.second(at).unwrap_or(scene.grid.count);
    second(finding.from)..second(finding.to)
}

/// What the way to a standby carried, where a rule found that it is the limit and nothing here says what it is.
fn way(scene: &Scene<'_>, standby: &Standby, primary: &str, findings: &[Finding]) -> Option<f64> {
    let queue = standby.queue("send");
    let ours = |finding: &&Finding| {
        let narrow = finding.rule == "network-narrow" && finding.cause == "path";
        narrow && finding.queue == queue && finding.concerns(Some(primary))
    };
    let found = findings.iter().find(ours)?;
    standby.hops.sent_rate.mean(&stretch(scene, found))
}

fn remedies_of_cap(scene: &Scene<'_>, standby: &Standby, device: &DeviceView, cap: &Cap) -> Vec<Remedy> {
    let all = 0..scene.grid.count;
    let mut list = remedy::raise_wal_cap(scene, device, cap, &standby.hops.generated, &all);
    if matches!(cap.owner, CapOwner::Cgroup(_)) {
        list.extend(remedy::lift(scene, device, cap, &all));
    }
    list
}

fn measure<'a>(scene: &'a Scene<'_>, standby: &'a Standby, primary: &'a str, capped: bool) -> Option<Measured<'a>> {
    let all = 0..scene.grid.count;
    let made = &standby.hops.generated;
    let peak = made.smooth(SUSTAINED).max(&all).filter(|peak| *peak > 1_024.0)?;
    let busy = made.smooth(1).flags(|rate| rate >= 0.05 * peak);
    let working: Vec<f64> = all.clone().filter(|second| busy[*second]).filter_map(|second| made.get(second)).collect();
    let mean = working.iter().sum::<f64>() / working.len().max(1) as f64;
    let taken: &Lane = &standby.hops.received_rate;
    let links = links(scene, &owners(standby));
    let carries = links.iter().filter(|link| link.carries(standby, &all));
    let link = carries.filter_map(|link| link.ceiling.median(&all)).reduce(f64::min);
    Some(Measured {
        standby,
        primary,
        settings: target(scene.window, primary),
        mean,
        peak,
        taken: taken.smooth(SUSTAINED).max(&all),
        taken_at_most: backlogged(&standby.hops.stream, taken, scene.grid.count),
        link,
        capped,
        range: all,
    })
}

/// The highest mean of an outflow over seconds before each of which more than a second's worth of it stood.
fn backlogged(level: &Lane, outflow: &Lane, seconds: usize) -> Option<f64> {
    let stood = level.with(outflow, |level, rate| f64::from(level > rate && rate > 0.0));
    let stretches = (SUSTAINED..=seconds).map(|end| end - SUSTAINED..end);
    let full = stretches.filter(|range| range.clone().all(|second| stood.get(second) == Some(1.0)));
    full.filter_map(|range| outflow.mean(&range)).reduce(f64::max)
}

fn observed(scene: &Scene<'_>, seen: &Measured<'_>) -> Vec<Figure> {
    let hops = &seen.standby.hops;
    let mut figures = Figures::default();
    figures.add("generated_bytes_per_s", Some(seen.mean), Unit::BytesPerSecond, "WAL made, while any was");
    figures.add("generated_peak_bytes_per_s", Some(seen.peak), Unit::BytesPerSecond, "WAL made, the best ten seconds");
    figures.add(
        "taken_peak_bytes_per_s",
        seen.taken,
        Unit::BytesPerSecond,
        "WAL taken by the standby, the best ten seconds",
    );
    figures.add("link_limit_bytes_per_s", seen.link, Unit::BytesPerSecond, "ceiling of the link");
    let shown = &hops.shown;
    shown.add_most(&mut figures, "stream_lag_bytes", &shown.stream, "flushed here and not there", &seen.range);
    shown.add_most(&mut figures, "replay_lag_bytes", &shown.replay, "received and not replayed", &seen.range);
    figures.add("kept_bytes", keep_bytes(seen.settings.as_ref()), Unit::Bytes, "WAL kept for standbys (wal_keep_size)");
    let free = free_bytes(scene.window, seen.settings.as_ref(), scene.window.to);
    figures.add("free_bytes", free, Unit::Bytes, "free where WAL lies");
    figures.list()
}

/// The speed that the link must have: what is made at most, and a fifth for catching up.
fn link(seen: &Measured<'_>, way: Option<f64>) -> Option<Remedy> {
    let needed = seen.peak * ROOM;
    let limit = seen.link.into_iter().chain(way).reduce(f64::min).filter(|limit| *limit < needed)?;
    Some(remedy::faster_link(&seen.standby.name, needed, limit))
}

/// What must be kept for an outage, by a size, and by a slot with a limit.
fn retention(scene: &Scene<'_>, seen: &Measured<'_>, options: &SurviveOptions, advice: &mut StandbyAdvice) {
    let bytes = seen.mean * options.survive_s * ROOM;
    let predicted = |bytes: f64| {
        let mut figures = Figures::default();
        figures.add("survive_s", Some(bytes / seen.mean), Unit::Seconds, "outage that it covers at the mean rate");
        figures.add("survive_peak_s", Some(bytes / seen.peak), Unit::Seconds, "… at the best ten seconds' rate");
        figures.add("kept_bytes", Some(bytes), Unit::Bytes, "WAL that is then kept");
        let spare = seen.link.or(seen.taken_at_most).map(|most| most - seen.mean).filter(|spare| *spare > 0.0);
        figures.add("catch_up_s", spare.map(|spare| bytes / spare), Unit::Seconds, "to catch up afterwards");
        figures.list()
    };
    if seen.link.is_none() && seen.taken_at_most.is_none() {
        advice.notes.push(
            "How long the standby would take to catch up cannot be told: it took all that was made, so that what it takes at most was \
             not seen."
                .to_owned(),
        );
    }
    let free = free_bytes(scene.window, seen.settings.as_ref(), scene.window.to);
    let fits = free.is_none_or(|free| bytes <= OF_FREE * free);
    if !fits {
        advice.notes.push(format!(
            "{} of WAL must be kept for {}, and {} is free where WAL lies: enlarge that volume first, or rely on an archive.",
            Unit::Bytes.show(bytes),
            Unit::Seconds.show(options.survive_s),
            Unit::Bytes.show(free.unwrap_or(0.0)),
        ));
    }
    let labels = [("target", seen.primary), ("slot", seen.standby.name.as_str())];
    let has_slot = scene.window.track(cat::PG_SLOT_RESTART.name, &labels).is_some();
    let old = seen.settings.as_ref().and_then(|known| known.version_num).is_some_and(|version| version < 130_000);
    if fits && !has_slot && keep_bytes(seen.settings.as_ref()).is_none_or(|kept| kept < bytes) {
        advice.remedies.push(retention::keep(seen.settings.as_ref(), bytes, predicted(bytes)));
    }
    if !has_slot {
        advice.remedies.push(retention::new_slot(&seen.standby.name));
    }
    // 12 has no limit for slots: a size alone is safe there.
    if !old && setting_bytes(seen.settings.as_ref(), "max_slot_wal_keep_size").is_none_or(|most| most < bytes) {
        let most = free.map_or(bytes, |free| bytes.min(OF_FREE * free));
        advice.remedies.push(retention::slot_cap(seen.settings.as_ref(), most, predicted(most)));
    }
}

/// An archive, and a standby that reads it.
fn archive(seen: &Measured<'_>) -> Vec<Remedy> {
    let off =
        seen.settings.as_ref().and_then(|known| known.settings.get("archive_mode")).is_none_or(|mode| mode == "off");
    let mut list = Vec::new();
    if off {
        list.push(retention::archive(seen.settings.as_ref(), seen.mean));
    }
    list.push(retention::restore(&seen.standby.name));
    list
}

/// wal_compression, where full-page images are a good part of WAL.
fn compression(scene: &Scene<'_>, seen: &Measured<'_>, notes: &mut Vec<String>) -> Option<Remedy> {
    let own = [("target", seen.primary)];
    let images = scene.grid.rate(scene.window.track(cat::PG_WAL_FPI.name, &own)).mean(&seen.range);
    let made = seen.standby.hops.generated.mean(&seen.range).filter(|rate| *rate > 0.0)?;
    let Some(images) = images else {
        notes.push("How much of WAL is full-page images is not told by this server (14 and newer): whether wal_compression pays is unknown.".to_owned());
        return None;
    };
    let share = (images * PAGE_BYTES / made).min(1.0);
    let saved = share * (1.0 - COMPRESSED);
    if saved < LEAST_SAVING {
        notes.push(format!(
            "Full-page images are at most {} of WAL: compressing them saves little.",
            Unit::Ratio.show(share)
        ));
        return None;
    }
    remedy::compression(seen.settings.as_ref(), Some(saved))
}
