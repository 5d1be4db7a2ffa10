//! standby-gone: a standby was connected, and is no longer, or no longer says anything.
//!
//! That a row is missing says so only while it would be read: a hole in the readings is no absence, nor is a view that fails.

use super::draft::draft;
use super::wal_evidence::{Behind, away, kept_figures};
use crate::figures::Figures;
use crate::remedy::retention as remedy;
use crate::replication::{
    HOLE_S, Holder, Standby, View, has_ended, head_series, is_logical, maybe_renamed, missed_s, retention, seconds,
    standby_row, synchronous, target, unread, whose,
};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{
    Confidence, Epoch, EventKind, Finding, Moment, Severity, Unit, Unseen, Window, catalogue as cat,
};

/// Seconds without a row, at the end of the window, from which a standby counts as gone.
const AWAY_S: f64 = 5.0;
/// Seconds for which one that was there has been read at least: three readings, which do not come on the dot.
const THERE_S: f64 = 1.5;
/// Seconds without a word from which one that is connected counts as silent: twice the default of wal_receiver_status_interval.
const SILENT_S: f64 = 20.0;
/// Seconds that a server is read after it was started anew, in which a standby that has no slot should have come back: it tries every
/// wal_retrieve_retry_interval, which is 5 s unless set otherwise.
const BACK_S: f64 = 60.0;
/// WAL that will be gone within so many seconds makes it critical.
const SOON_S: f64 = 600.0;

/// How a standby was lost.
struct Lost {
    cause: &'static str,
    since: Moment,
    confidence: Confidence,
    /// Why its row is not read, where something else tells that it is away.
    unread: Option<Unseen>,
}

impl Lost {
    /// What it has been, or done, since then.
    fn how(&self) -> &'static str {
        match self.cause {
            "silent" => "is connected and has said nothing",
            "timeout" => "was cut off because it did not answer, and has been away",
            "not-back" => "streamed until its primary was started anew, has not come back, and has been away",
            _ => "has been away",
        }
    }
}

/// The findings of a window: at most one a standby.
pub(super) fn find(scene: &Scene<'_>, behinds: &[Behind]) -> Vec<Finding> {
    behinds.iter().filter_map(|behind| of_standby(scene, &behind.standby)).collect()
}

fn of_standby(scene: &Scene<'_>, standby: &Standby) -> Option<Finding> {
    let primary = standby.primary.as_deref()?;
    let name = &standby.name;
    let lost = disconnected(scene, standby).or_else(|| not_back(scene, primary, name));
    let lost = lost.or_else(|| silent(scene, primary, standby))?;
    let mut finding = draft("standby-gone", lost.cause, standby.queue("retained"), (lost.since, scene.window.to));
    finding.server = Some(primary.to_owned());
    finding.confidence = lost.confidence;
    // What was kept for it in another life of the server says nothing of what is, nor what it had when its row was last read.
    let is_told = lost.cause != "not-back" && (lost.unread.is_none() || slot_of(scene.window, primary, name).is_some());
    let kept = retention(scene.window, primary, name, scene.window.to).filter(|_| is_told);
    let left = kept.as_ref().and_then(|kept| kept.end_s().or(kept.earliest_s));
    let away = scene.window.to.seconds_since(lost.since);
    finding.severity = if left.is_some_and(|left| left <= SOON_S) { Severity::Critical } else { Severity::Warning };
    let mut figures = Figures::default();
    figures.add("away_s", Some(away), Unit::Seconds, "since it was last seen");
    if let Some(kept) = &kept {
        kept_figures(kept, &mut figures);
    }
    finding.evidence = figures.list();
    let who = whose(scene.window, primary, name);
    finding.summary = format!("{who} {} for {}.", lost.how(), Unit::Seconds.show(away));
    if synchronous::needed(scene, primary, name) {
        finding.summary.push_str(" Commits need its answer (synchronous_standby_names).");
    }
    if let Some((left, kept)) = left.zip(kept.as_ref()) {
        let left = Unit::Seconds.show(left);
        finding.summary.push_str(&match kept.holder {
            Holder::Disk => format!(" In {left} at this rate the volume of WAL is full, and the primary stops."),
            _ if kept.end_s().is_none() => format!(" WAL that it needs may be removed in {left} at this rate."),
            _ => format!(" WAL that it needs will be removed in {left} at this rate."),
        });
    }
    let mut missing = Missing::default();
    let is_seen = standby.peer.is_some() || is_logical(scene.window, primary, name);
    missing.unless(scene.window, is_seen, &unseen::STANDBY);
    finding.unseen = missing.list();
    finding.unseen.extend(maybe_renamed(scene.window, primary, name).filter(|_| lost.cause != "silent"));
    finding.unseen.extend(lost.unread);
    finding.unseen.extend(slot_unread(scene.window, primary, name));
    finding.remedies = remedy::of_gone(scene, primary, name, kept.as_ref());
    Some(finding)
}

/// Whether its slot is active, where that is read now.
fn slot_of(window: &Window, primary: &str, name: &str) -> Option<bool> {
    let slot = window.track(cat::PG_SLOT_ACTIVE.name, &[("target", primary), ("slot", name)])?;
    slot.at(window.to, HOLE_S).map(|flag| flag.value > 0.0)
}

/// Why its slot, which was read, is not read any more.
fn slot_unread(window: &Window, primary: &str, name: &str) -> Option<Unseen> {
    let slot = window.track(cat::PG_SLOT_ACTIVE.name, &[("target", primary), ("slot", name)])?;
    unread(window, primary, View::Slots, slot.points.last()?.at)
}

/// Whether its row has ended while the server's own position is still read, in the same life of the server. Not where it goes on under
/// another name, or where its slot was dropped: whoever does that has no more use for it.
fn disconnected(scene: &Scene<'_>, standby: &Standby) -> Option<Lost> {
    let window = scene.window;
    let (primary, name) = (standby.primary.as_deref()?, standby.name.as_str());
    let row = standby_row(window, &cat::PG_REPL_SENT, primary, name)
        .or_else(|| standby_row(window, &cat::PG_REPL_STREAMING, primary, name))?;
    let (first, last) = (row.points.first()?, row.points.last()?);
    let head = window.track(head_series(window, primary), &[("target", primary)])?;
    let after = head.points.iter().filter(|point| point.at > last.at);
    // Every few seconds a reading of the server: what is missing in them is missing.
    let known = after.clone().take_while(|point| point.epoch == last.epoch).count();
    let newest = head.points.last()?;
    let was_there = last.at.seconds_since(first.at) >= THERE_S;
    let read = after.count() == known && known >= 4 && window.to.seconds_since(newest.at) <= 5.0;
    let away = away(window, standby, last.at)?;
    if !was_there || !read || away.seconds < AWAY_S || has_ended(window, primary, name) {
        return None;
    }
    let log = |text: &str| {
        let lines = window.events_of(EventKind::Log).filter(|event| event.source == primary);
        lines.filter(|event| event.at.seconds_since(away.since).abs() <= 10.0).any(|event| event.message.contains(text))
    };
    let timeout = log("terminating walsender process due to replication timeout");
    let active = slot_of(window, primary, name);
    let confidence = match (&away.unread, timeout || active == Some(false)) {
        (None, true) => Confidence::High,
        (Some(_), false) => Confidence::Low,
        _ => Confidence::Medium,
    };
    let cause = if timeout { "timeout" } else { "disconnected" };
    let lost = Lost { cause, since: away.since, confidence, unread: away.unread };
    (active != Some(true)).then_some(lost)
}

/// Whether it streamed until the server was started anew, and has not come back although the server has been read for long since. One
/// with a slot is told by that (slot-inactive).
fn not_back(scene: &Scene<'_>, primary: &str, name: &str) -> Option<Lost> {
    let window = scene.window;
    let row = standby_row(window, &cat::PG_REPL_STREAMING, primary, name)?;
    let (first, last) = (row.points.first()?, row.points.last().filter(|point| point.value > 0.0)?);
    let own = [("target", primary)];
    let head = window.track(cat::PG_WAL_FLUSH.name, &own)?;
    let before = head.points.iter().rfind(|point| point.epoch == last.epoch)?;
    let after = &head.points[head.points.partition_point(|point| point.at <= before.at)..];
    let (begun, newest) = (after.first()?, after.last()?);
    let once = after.iter().all(|point| point.epoch == begun.epoch);
    // On another timeline it is another server's: that standby's own, if it was promoted.
    let timeline = |of: Epoch| {
        let told = window.track(cat::PG_TIMELINE.name, &own)?;
        told.points.iter().find(|point| point.epoch == of).map(|point| point.value)
    };
    let failed_over = timeline(last.epoch).zip(timeline(begun.epoch)).is_some_and(|(before, now)| before != now);
    // It streamed to the end: one that had gone before was not lost by that.
    let streamed = last.at.seconds_since(first.at) >= 2.0 && before.at.seconds_since(last.at).abs() < AWAY_S;
    // Since its row: what may not be read is told at a connection's first look, before the first reading.
    let missed = missed_s(window, primary, View::Standbys, last.at).is_some_and(|missed| missed >= BACK_S);
    let read = missed && window.to.seconds_since(newest.at) <= 5.0;
    let has_slot = window.track(cat::PG_SLOT_ACTIVE.name, &[("target", primary), ("slot", name)]).is_some();
    let is_lost = once && streamed && read && !failed_over && !has_slot && !has_ended(window, primary, name);
    is_lost.then_some(Lost { cause: "not-back", since: last.at, confidence: Confidence::Medium, unread: None })
}

/// Whether a connected standby has not answered for long, although it was sent something or asked to.
fn silent(scene: &Scene<'_>, primary: &str, standby: &Standby) -> Option<Lost> {
    let row = |def| standby_row(scene.window, def, primary, &standby.name);
    let ages = row(&cat::PG_REPL_REPLY_AGE)?;
    let last = ages.points.last().filter(|point| scene.window.to.seconds_since(point.at) <= 3.0)?;
    let longest = seconds(target(scene.window, primary).as_ref(), "wal_sender_timeout").filter(|limit| *limit > 0.0);
    let least = longest.map_or(SILENT_S, |limit| SILENT_S.min(limit * 0.5).max(5.0));
    // The age is by the standby's clock: that it grew as time went by says that no word came.
    let first =
        ages.points.iter().rev().take_while(|point| point.at > last.at - backwater_model::Span::from_seconds(least));
    let grown = first.last().map(|point| (last.value - point.value, last.at.seconds_since(point.at)))?;
    let still = grown.1 >= 0.8 * least && grown.0 >= 0.9 * grown.1;
    let owed = row(&cat::PG_REPL_SENT)?.last()? > row(&cat::PG_REPL_FLUSH)?.last()?;
    let since = Moment::from_seconds(last.at.seconds() - last.value.min(last.at.seconds()));
    let lost = Lost { cause: "silent", since, confidence: Confidence::Medium, unread: None };
    (still && owed && last.value >= least).then_some(lost)
}
