//! standby-gone: a standby was connected, and is no longer, or no longer says anything.
//!
//! That a row is missing says so only while the same server's other rows are read: a hole in the readings is no absence.

use super::draft::draft;
use super::wal_evidence::{Behind, kept_figures};
use crate::figures::Figures;
use crate::remedy::retention as remedy;
use crate::replication::{Holder, Standby, has_ended, retention, seconds, standby_row, synchronous, target};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, EventKind, Finding, Moment, Severity, Unit, catalogue as cat};

/// Seconds without a row, at the end of the window, from which a standby counts as gone.
const AWAY_S: f64 = 5.0;
/// Seconds without a word from which one that is connected counts as silent: twice the default of wal_receiver_status_interval.
const SILENT_S: f64 = 20.0;
/// WAL that will be gone within so many seconds makes it critical.
const SOON_S: f64 = 600.0;

/// How a standby was lost.
struct Lost {
    cause: &'static str,
    since: Moment,
    confidence: Confidence,
}

/// The findings of a window: at most one a standby.
pub(super) fn find(scene: &Scene<'_>, behinds: &[Behind]) -> Vec<Finding> {
    behinds.iter().filter_map(|behind| of_standby(scene, &behind.standby)).collect()
}

fn of_standby(scene: &Scene<'_>, standby: &Standby) -> Option<Finding> {
    let primary = standby.primary.as_deref()?;
    let lost = disconnected(scene, primary, &standby.name).or_else(|| silent(scene, primary, standby))?;
    let mut finding = draft("standby-gone", lost.cause, standby.queue("retained"), (lost.since, scene.window.to));
    finding.server = Some(primary.to_owned());
    finding.confidence = lost.confidence;
    let kept = retention(scene.window, primary, &standby.name, scene.window.to);
    let left = kept.as_ref().and_then(|kept| kept.end_s().or(kept.earliest_s));
    let away = scene.window.to.seconds_since(lost.since);
    finding.severity = if left.is_some_and(|left| left <= SOON_S) { Severity::Critical } else { Severity::Warning };
    let mut figures = Figures::default();
    figures.add("away_s", Some(away), Unit::Seconds, "since it was last seen");
    if let Some(kept) = &kept {
        kept_figures(kept, &mut figures);
    }
    finding.evidence = figures.list();
    let how = match lost.cause {
        "silent" => "is connected and has said nothing",
        "timeout" => "was cut off because it did not answer, and has been away",
        _ => "has been away",
    };
    let name = &standby.name;
    finding.summary = format!("Standby {name} {how} for {}.", Unit::Seconds.show(away));
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
    missing.unless(scene.window, standby.peer.is_some(), &unseen::STANDBY);
    finding.unseen = missing.list();
    finding.remedies = remedy::of_gone(scene, primary, name, kept.as_ref());
    Some(finding)
}

/// Whether its row has ended while the server's own position is still read, in the same life of the server. Not where it goes on under
/// another name, or where its slot was dropped: whoever does that has no more use for it.
fn disconnected(scene: &Scene<'_>, primary: &str, name: &str) -> Option<Lost> {
    let window = scene.window;
    let row = standby_row(window, &cat::PG_REPL_SENT, primary, name)
        .or_else(|| standby_row(window, &cat::PG_REPL_STREAMING, primary, name))?;
    let (first, last) = (row.points.first()?, row.points.last()?);
    let own = [("target", primary)];
    // A cascading standby makes no WAL: what it has received is read in the same breath.
    let head = window.track(cat::PG_WAL_FLUSH.name, &own).or_else(|| window.track(cat::PG_WAL_RECEIVE.name, &own))?;
    let after = head.points.iter().filter(|point| point.at > last.at);
    // Every few seconds a reading of the server: what is missing in them is missing.
    let known = after.clone().take_while(|point| point.epoch == last.epoch).count();
    let newest = head.points.last()?;
    let away = newest.at.seconds_since(last.at);
    let was_there = last.at.seconds_since(first.at) >= 2.0;
    let read = after.count() == known && known >= 4 && window.to.seconds_since(newest.at) <= 5.0;
    if !was_there || !read || away < AWAY_S || hole(scene, primary, last.at) || has_ended(window, primary, name) {
        return None;
    }
    let log = |text: &str| {
        let lines = window.events_of(EventKind::Log).filter(|event| event.source == primary);
        lines.filter(|event| event.at.seconds_since(last.at).abs() <= 10.0).any(|event| event.message.contains(text))
    };
    let timeout = log("terminating walsender process due to replication timeout");
    let slot = window.track(cat::PG_SLOT_ACTIVE.name, &[("target", primary), ("slot", name)]);
    let inactive = slot.and_then(backwater_model::Track::last).map(|flag| flag == 0.0);
    let confidence = if timeout || inactive == Some(true) { Confidence::High } else { Confidence::Medium };
    let cause = if timeout { "timeout" } else { "disconnected" };
    (inactive != Some(false)).then_some(Lost { cause, since: last.at, confidence })
}

/// Whether the readings of the server have a hole after a moment.
fn hole(scene: &Scene<'_>, primary: &str, since: Moment) -> bool {
    let told = scene.window.events_of(EventKind::Gap).filter(|event| event.source == primary);
    told.into_iter().any(|event| event.at >= since && !event.fields.contains_key("skipped_bytes"))
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
    (still && owed && last.value >= least).then_some(Lost { cause: "silent", since, confidence: Confidence::Medium })
}
