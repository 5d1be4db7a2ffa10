//! history-pinned: something keeps old versions alive in the primary's cache, which fills though the disk is idle.
//!
//! With majority read concern the engine may not forget what a majority has not yet confirmed; a slow member therefore
//! fills the primary's cache. From 4.4 on, old versions go to the history store on disk instead, and it grows.

use super::draft::draft;
use super::flow_control::majority_lag;
use super::wt_evidence::{Engine, engines, gauge, own_member, rate};
use crate::figures::Figures;
use crate::grid::{Lane, both, episodes, longest};
use crate::scene::Scene;
use backwater_model::{Confidence, Finding, RuledOut, Severity, Unit, Unseen, catalogue as cat};
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
/// A disk busy for less than this share of the time is no reason for the cache to fill.
const IDLE: f64 = 0.5;

/// The findings of a window: at most one a server.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    engines(scene).iter().filter_map(|engine| of_engine(scene, engine)).collect()
}

fn of_engine(scene: &Scene<'_>, engine: &Engine<'_>) -> Option<Finding> {
    let pinned = gauge(scene, &cat::WT_PINNED, &engine.name, None);
    let by_oldest = gauge(scene, &cat::WT_PINNED_OLDEST, &engine.name, None);
    let lag = majority_lag(scene, engine);
    let idle = match engine.device {
        Some(device) if device.busy.known() => device.busy.smooth(2).flags(|busy| busy < IDLE),
        _ => vec![true; scene.grid.count],
    };
    // What the server keeps on purpose (since 4.4 five minutes) is pinned by the oldest timestamp; a reader pins more.
    let reader = pinned.with(&by_oldest, |pinned, oldest| (pinned - oldest).max(0.0));
    let slow = both(&lag.flags(|lag| lag >= BEHIND_S), &pinned.flags(|pinned| pinned >= BEHIND_S));
    let causes = [("slow-member", slow, &lag), ("long-reader", reader.flags(|s| s >= READER_S), &reader)];
    causes.into_iter().find_map(|(cause, flags, by)| {
        let (range, seconds) = longest(&episodes(&both(&flags, &idle), LEAST_S, BRIDGE_S))?;
        suffers(scene, engine, by, &range).then(|| finding(scene, engine, cause, (&range, seconds), (by, &pinned)))
    })
}

/// Whether the cache fills, or history is written out, in this stretch.
fn suffers(scene: &Scene<'_>, engine: &Engine<'_>, by: &Lane, range: &Range<usize>) -> bool {
    let grows = Climb::of(engine, by, range)
        .is_some_and(|climb| climb.to >= GROWS * climb.from && climb.to >= OF_TRIGGER * engine.limits.dirty_trigger);
    let history = rate(scene, &cat::WT_HISTORY_INSERTS, &engine.name, None).mean(range);
    grows || history.is_some_and(|per_s| per_s >= HISTORY_PER_S)
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

/// The member with the oldest optime that is not the one that says so, where members are seen.
fn slowest(scene: &Scene<'_>, engine: &Engine<'_>, range: &Range<usize>) -> Option<String> {
    let label = [("target", engine.name.as_str())];
    let own = own_member(scene, engine);
    let tracks = scene.window.tracks(cat::MONGO_MEMBER_OPTIME.name, &label);
    let others = tracks.filter(|track| track.series.labels.get("member") != own.as_deref());
    let (from, to) = scene.grid.span(range);
    let last = others
        .filter_map(|track| Some((track.series.labels.get("member")?.to_owned(), track.between(from, to).last()?)));
    // An optime of 0 is told of one that does not answer, and of one that has none, such as an arbiter.
    last.filter(|(_, optime)| *optime > 0.0).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(member, _)| member)
}

fn finding(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    cause: &str,
    (range, seconds): (&Range<usize>, usize),
    (by, pinned): (&Lane, &Lane),
) -> Finding {
    let mut finding = draft("history-pinned", cause, format!("wt.history@{}", engine.name), scene.grid.span(range));
    let dirty = engine.dirty_share().max(range);
    let busy = engine.device.and_then(|device| device.busy.mean(range));
    let at_trigger = dirty.is_some_and(|dirty| dirty >= engine.limits.dirty_trigger * 0.95);
    finding.severity = if at_trigger { Severity::Critical } else { Severity::Warning };
    finding.confidence = if busy.is_some() { Confidence::High } else { Confidence::Medium };
    let longest_s = Unit::Seconds.show(by.max(range).unwrap_or_default());
    let member = (cause == "slow-member").then(|| slowest(scene, engine, range)).flatten();
    let who = match (cause, &member) {
        ("slow-member", Some(member)) => format!("A majority is {longest_s} behind (slowest: member {member})"),
        ("slow-member", None) => format!("A majority is {longest_s} behind"),
        _ => format!("A reader has held its snapshot for {longest_s}"),
    };
    finding.summary = format!(
        "{who}, so old versions stay in the cache: dirty pages came to {} of it{}.",
        dirty.map_or("an unknown share".to_owned(), |dirty| Unit::Ratio.show(dirty)),
        busy.map_or(String::new(), |busy| format!(
            " while the disk was busy only {} of the time",
            Unit::Ratio.show(busy)
        )),
    );
    let mut figures = Figures::default();
    figures.add("pinned_peak_s", pinned.max(range), Unit::Seconds, "timestamps pinned, at most");
    let label = if cause == "slow-member" { "majority behind, at most" } else { "age of the oldest reader, at most" };
    figures.add("behind_peak_s", by.max(range), Unit::Seconds, label);
    figures.add("dirty_peak_ratio", dirty, Unit::Ratio, "dirty share of the cache, at most");
    figures.add(
        "dirty_trigger_ratio",
        Some(engine.limits.dirty_trigger),
        Unit::Ratio,
        "where application threads must evict",
    );
    if let Some(climb) = Climb::of(engine, by, range).filter(|climb| climb.from_is_before) {
        let label = "dirty share of the cache before, on average";
        figures.add("dirty_before_ratio", Some(climb.from), Unit::Ratio, label);
        let label = "until application threads must evict, if it goes on like this";
        figures.add("trigger_in_s", climb.trigger_in_s(engine.limits.dirty_trigger), Unit::Seconds, label);
    }
    let history = rate(scene, &cat::WT_HISTORY_INSERTS, &engine.name, None).mean(range);
    figures.add("history_inserts_per_s", history, Unit::PerSecond, "old versions written to the history store");
    figures.add("device_busy_ratio", busy, Unit::Ratio, "the data's device busy");
    figures.add("pinned_s", Some(seconds as f64), Unit::Seconds, "seconds of it in this window");
    finding.evidence = figures.list();
    finding.victims = vec![format!("wt.dirty@{}", engine.name)];
    if busy.is_none() {
        let (what, why) = ("how busy the data's device was", "its figures are not seen from here");
        finding.unseen.push(Unseen { what: what.to_owned(), why: why.to_owned(), remedy: None });
    }
    if let Some(busy) = busy {
        let because = format!("the primary's device was busy only {} of the time", Unit::Ratio.show(busy));
        finding.ruled_out.push(RuledOut { cause: "device-saturated".to_owned(), because });
    }
    finding
}
