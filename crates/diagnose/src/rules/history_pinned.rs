//! history-pinned: something keeps old versions alive in the primary's cache, which fills with them.
//!
//! With majority read concern the engine may not forget what a majority has not yet confirmed; a slow member therefore
//! fills the primary's cache though the disk is idle. So does a reader that keeps its snapshot open, whatever the disk does: what
//! it may still read cannot be evicted for good, and who tries keeps the disk busy. From 4.4 on, old versions go to the history
//! store on disk instead, and it grows.

use super::draft::draft;
use super::flow_control::majority_lag;
use super::held_snapshot::{age, beyond_checkpoints, pinned_ids};
use super::wt_evidence::{Engine, engines, flags_of, gauge, means, own_member, rate};
use crate::caps::Cap;
use crate::figures::Figures;
use crate::grid::{Lane, both, either, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Confidence, Figure, Finding, RuledOut, Severity, Unit, Unseen, catalogue as cat};
use std::ops::Range;

/// How far the majority must be behind, in seconds; or how much longer a reader than the server itself pins.
const BEHIND_S: f64 = 5.0;
const READER_S: f64 = 60.0;
/// Up to so many seconds nobody is behind.
const EASE_S: f64 = 2.0;
/// Seconds it must last, and seconds of another mind that do not end it.
const LEAST_S: usize = 10;
const BRIDGE_S: usize = 5;
/// The cache must suffer: its dirty share grows this many times, to so much of its trigger; or history is written, pages a second.
const GROWS: f64 = 1.5;
const OF_TRIGGER: f64 = 0.5;
const HISTORY_PER_S: f64 = 100.0;
/// A reader is to blame for what comes to so many times what it comes to without one.
const ABOVE: f64 = 1.2;
/// A disk busy for less than this share of the time is no reason for the cache to fill.
const IDLE: f64 = 0.5;
/// It was idle all the while if it was in so much of the time.
const MOSTLY: f64 = 0.9;
/// An age this many times what was seen of it is told apart from that.
const LONGER: f64 = 1.2;

/// What may hold history: the cause that it is, when it does, and for how long it has, in seconds.
struct Holder {
    cause: &'static str,
    when: Vec<bool>,
    by: Lane,
    /// What of that was not seen is told by the rate of new transactions.
    by_rate: bool,
}

impl Holder {
    fn is_reader(&self) -> bool {
        self.cause == "long-reader"
    }
}

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    engines(scene).iter().filter_map(|engine| of_engine(scene, engine)).collect()
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    holders(scene, engine).iter().find_map(|holder| {
        let (range, seconds) = longest(&episodes(&holder.when, LEAST_S, BRIDGE_S))?;
        suffers(scene, engine, holder, &range).then(|| finding(scene, engine, holder, (&range, seconds)))
    })
}

fn holders(scene: &Scene<'_>, engine: &Engine<'_>) -> [Holder; 3] {
    let pinned = gauge(scene, &cat::WT_PINNED, &engine.name, None);
    let by_oldest = gauge(scene, &cat::WT_PINNED_OLDEST, &engine.name, None);
    let lag = majority_lag(scene, engine);
    let behind = both(&lag.flags(|lag| lag >= BEHIND_S), &pinned.flags(|pinned| pinned >= BEHIND_S));
    // What the server keeps on purpose (since 4.4 five minutes) is pinned by the oldest timestamp; a reader pins more.
    let reader = pinned.with(&by_oldest, |pinned, oldest| (pinned - oldest).max(0.0));
    let held = beyond_checkpoints(&reader, &engine.checkpoint).flags(|s| s >= READER_S);
    let snapshot = age(scene, engine);
    [
        Holder { cause: "slow-member", when: both(&behind, &idle(scene, engine, &behind)), by: lag, by_rate: false },
        Holder { cause: "long-reader", when: held, by: reader, by_rate: false },
        Holder { cause: "long-reader", when: snapshot.flags(|_| true), by: snapshot, by_rate: true },
    ]
}

/// Seconds of these in which the disk of the data has room, as far as is seen: it is hardly busy, and for no ceiling on what it
/// writes, which keeps requests from reaching it.
fn idle(scene: &Scene<'_>, engine: &Engine<'_>, when: &[bool]) -> Vec<bool> {
    let stretches = episodes(when, LEAST_S, BRIDGE_S);
    let quiet = match engine.device {
        Some(device) if device.busy.known() => device.busy.smooth(2).flags(|busy| busy < IDLE),
        _ => vec![true; when.len()],
    };
    let held = |cap: &Cap| {
        let lumps: Vec<_> = stretches.iter().flat_map(|stretch| cap.held_in_lumps(stretch)).collect();
        either(&cap.reached(), &flags_of(&lumps, when.len()))
    };
    let without =
        |quiet: Vec<bool>, cap: &Cap| quiet.iter().zip(held(cap)).map(|(quiet, held)| *quiet && !held).collect();
    engine.write_caps(scene).iter().fold(quiet, without)
}

/// Whether the cache fills, or history is written out, in this stretch.
fn suffers(scene: &Scene<'_>, engine: &Engine<'_>, holder: &Holder, range: &Range<usize>) -> bool {
    let grows = Climb::of(engine, &holder.by, range)
        .is_some_and(|climb| climb.to >= GROWS * climb.from && climb.to >= OF_TRIGGER * engine.limits.dirty_trigger);
    let history = rate(scene, &cat::WT_HISTORY_INSERTS, &engine.name, None);
    let written = history.mean(range).is_some_and(|per_s| per_s >= HISTORY_PER_S);
    let more = more_history(engine, &history, &holder.when);
    if !holder.is_reader() {
        return grows || (written && more == Some(true));
    }
    // Under a busy disk these may have other reasons, which then show without a reader as well.
    let dirtier = most_without(&engine.dirty_share(), &holder.when)
        .zip(engine.dirty_share().max(range))
        .is_none_or(|(without, with)| with >= ABOVE * without);
    (grows && dirtier) || (written && more != Some(false))
}

/// Whether more history is written in these seconds than in others like them: since 4.4 it is written whoever is behind, and most
/// of it by checkpoints. None where too little is seen of other seconds.
fn more_history(engine: &Engine<'_>, history: &Lane, when: &[bool]) -> Option<bool> {
    means(history, when)?;
    let more = |in_checkpoints: bool| {
        let of = |second: usize| engine.checkpoint.get(second).is_some_and(|running| running > 0.0) == in_checkpoints;
        let like = Lane((0..when.len()).map(|second| history.get(second).filter(|_| of(second))).collect());
        means(&like, when).is_some_and(|of| of.inside >= HISTORY_PER_S && of.inside >= GROWS * of.outside)
    };
    Some(more(true) || more(false))
}

/// What a lane comes to while nobody holds history, and has not for some seconds; none where there is too little of that.
fn most_without(lane: &Lane, when: &[bool]) -> Option<f64> {
    let free = |second: usize| !when[second.saturating_sub(LEAST_S)..=second].contains(&true);
    let values: Vec<f64> =
        (0..when.len()).filter(|second| free(*second)).filter_map(|second| lane.get(second)).collect();
    if values.len() < LEAST_S { None } else { values.into_iter().reduce(f64::max) }
}

/// How the dirty share of a cache grows.
struct Climb {
    /// On average before anybody was behind, where that is seen, else when it is seen first; and at its highest.
    from: f64,
    from_is_before: bool,
    to: f64,
    /// A second.
    by: f64,
}

impl Climb {
    /// `by` is what holds history, in seconds.
    fn of(engine: &Engine<'_>, by: &Lane, range: &Range<usize>) -> Option<Climb> {
        let dirty = engine.dirty_share();
        let held = |second: &usize| by.get(*second).is_some_and(|s| s >= EASE_S);
        let onset = (0..range.start).rev().take_while(held).last().unwrap_or(range.start);
        let before = dirty.mean(&(onset.saturating_sub(LEAST_S)..onset));
        let from = before.or_else(|| dirty.mean(&(range.start..range.start + 2)))?;
        let all = range.clone().filter_map(|second| Some((second, dirty.get(second)?)));
        let (top, to) = all.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Climb {
            from,
            from_is_before: before.is_some(),
            to,
            by: (to - from).max(0.0) / (top - onset).max(1) as f64,
        })
    }

    /// Seconds until application threads must evict, if it goes on from its highest as it came there; none where they must already,
    /// or never will.
    fn trigger_in_s(&self, trigger: f64) -> Option<f64> {
        (self.by > 0.0 && self.to < trigger).then(|| (trigger - self.to) / self.by)
    }
}

/// The member for which a majority waits, where members are seen: of those that have not come past its point the nearest to it. Who
/// is further behind still, on purpose or not, holds nobody up.
pub(crate) fn holds_majority(scene: &Scene<'_>, engine: &Engine<'_>, range: &Range<usize>) -> Option<String> {
    let label = [("target", engine.name.as_str())];
    let own = own_member(scene, engine);
    let tracks = scene.window.tracks(cat::MONGO_MEMBER_OPTIME.name, &label);
    let others = tracks.filter(|track| track.series.labels.get("member") != own.as_deref());
    let (from, to) = scene.grid.span(range);
    let last = others
        .filter_map(|track| Some((track.series.labels.get("member")?.to_owned(), track.between(from, to).last()?)));
    // An optime of 0 is told of one that does not answer, and of one that has none, such as an arbiter.
    let there: Vec<(String, f64)> = last.filter(|(_, optime)| *optime > 0.0).collect();
    let committed =
        scene.window.track(cat::MONGO_COMMITTED.name, &label).and_then(|track| track.between(from, to).last());
    let behind = there.iter().filter(|(_, optime)| committed.is_some_and(|committed| *optime <= committed + EASE_S));
    let nearest = behind.max_by(|a, b| a.1.total_cmp(&b.1));
    nearest.or_else(|| there.iter().min_by(|a, b| a.1.total_cmp(&b.1))).map(|(member, _)| member.clone())
}

fn finding(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    holder: &Holder,
    (range, seconds): (&Range<usize>, usize),
) -> Finding {
    let span = scene.grid.span(range);
    let mut finding = draft("history-pinned", holder.cause, format!("wt.history@{}", engine.name), span);
    let dirty = engine.dirty_share().max(range);
    let at_trigger = dirty.is_some_and(|dirty| dirty >= engine.limits.dirty_trigger * 0.95);
    finding.severity = if at_trigger { Severity::Critical } else { Severity::Warning };
    let disk = Disk::of(scene, engine, holder, range);
    finding.confidence = if matches!(disk, Disk::Idle(_)) { Confidence::High } else { Confidence::Medium };
    finding.summary = format!(
        "{}, so old versions stay in the cache: dirty pages came to {} of it{}.",
        who(scene, engine, holder, range),
        dirty.map_or("an unknown share".to_owned(), |dirty| Unit::Ratio.show(dirty)),
        disk.words(),
    );
    finding.evidence = evidence(scene, engine, holder, (range, seconds));
    finding.victims = vec![format!("wt.dirty@{}", engine.name)];
    match disk {
        Disk::Idle(busy) => {
            let because = format!("the primary's device was busy only {} of the time", Unit::Ratio.show(busy));
            finding.ruled_out.push(RuledOut { cause: "device-saturated".to_owned(), because });
        }
        Disk::Unseen => {
            let (what, why) = ("how busy the data's device was", "its figures are not seen from here");
            finding.unseen.push(Unseen { what: what.to_owned(), why: why.to_owned(), remedy: None });
        }
        Disk::AtWork => {}
    }
    finding
}

/// What the disk of the data did meanwhile.
enum Disk {
    /// It had room all the while; busy for this share of the time.
    Idle(f64),
    /// It was busy, or a ceiling on it was reached: that may be the reader's doing, whose pages are written again and again, or not.
    AtWork,
    Unseen,
}

impl Disk {
    fn of(scene: &Scene<'_>, engine: &Engine<'_>, holder: &Holder, range: &Range<usize>) -> Disk {
        // A slow member holds only while the disk has room; seconds of another mind do not end it, however many there are.
        let idle = idle(scene, engine, &holder.when)[range.clone()].iter().filter(|idle| **idle).count() as f64;
        let at_work = holder.is_reader() && idle < MOSTLY * range.len() as f64;
        match engine.device.and_then(|device| device.busy.mean(range)) {
            _ if at_work => Disk::AtWork,
            Some(busy) => Disk::Idle(busy),
            None => Disk::Unseen,
        }
    }

    fn words(&self) -> String {
        match self {
            Disk::Idle(busy) => format!(" while the disk was busy only {} of the time", Unit::Ratio.show(*busy)),
            Disk::AtWork => "; how much of the disk's work meanwhile is of it is not told".to_owned(),
            Disk::Unseen => String::new(),
        }
    }
}

/// Who holds history, and for how long.
fn who(scene: &Scene<'_>, engine: &Engine<'_>, holder: &Holder, range: &Range<usize>) -> String {
    let most_s = holder.by.max(range).unwrap_or_default();
    let longest_s = Unit::Seconds.show(most_s);
    if !holder.is_reader() {
        let member =
            holds_majority(scene, engine, range).map_or(String::new(), |name| format!(" (held up by member {name})"));
        return format!("A majority is {longest_s} behind{member}");
    }
    let seen_s = range.len() as f64;
    let seen = match holder.by_rate && most_s > LONGER * seen_s {
        true => format!(" by the rate of new transactions ({} of it seen)", Unit::Seconds.show(seen_s)),
        false => String::new(),
    };
    format!("A reader has held its snapshot for {longest_s}{seen}")
}

fn evidence(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    holder: &Holder,
    (range, seconds): (&Range<usize>, usize),
) -> Vec<Figure> {
    let mut figures = Figures::default();
    let pinned = gauge(scene, &cat::WT_PINNED, &engine.name, None).max(range);
    figures.add("pinned_peak_s", pinned, Unit::Seconds, "timestamps pinned, at most");
    let ids = pinned_ids(scene, engine).max(range).filter(|_| holder.is_reader());
    figures.add("pinned_ids_peak_count", ids, Unit::Count, "transaction IDs pinned, at most");
    let label = if holder.is_reader() { "age of the oldest reader, at most" } else { "majority behind, at most" };
    figures.add("behind_peak_s", holder.by.max(range), Unit::Seconds, label);
    figures.add("dirty_peak_ratio", engine.dirty_share().max(range), Unit::Ratio, "dirty share of the cache, at most");
    let trigger = engine.limits.dirty_trigger;
    figures.add("dirty_trigger_ratio", Some(trigger), Unit::Ratio, "where application threads must evict");
    if let Some(climb) = Climb::of(engine, &holder.by, range).filter(|climb| climb.from_is_before) {
        let label = "dirty share of the cache before, on average";
        figures.add("dirty_before_ratio", Some(climb.from), Unit::Ratio, label);
        let label = "until application threads must evict, if it goes on like this";
        figures.add("trigger_in_s", climb.trigger_in_s(trigger), Unit::Seconds, label);
    }
    let history = rate(scene, &cat::WT_HISTORY_INSERTS, &engine.name, None).mean(range);
    figures.add("history_inserts_per_s", history, Unit::PerSecond, "old versions written to the history store");
    let busy = engine.device.and_then(|device| device.busy.mean(range));
    figures.add("device_busy_ratio", busy, Unit::Ratio, "the data's device busy");
    figures.add("pinned_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    let seen_s = Some(range.len() as f64).filter(|_| holder.by_rate);
    figures.add("seen_s", seen_s, Unit::Seconds, "of its age seen, the rest told by the rate of new transactions");
    figures.list()
}
