//! replay-conflict: replay on a standby waits for queries that read what it is about to change or remove.
//!
//! It may wait for max_standby_streaming_delay and then cancels them (PostgreSQL manual, "Handling Query Conflicts").

use super::wal_evidence::{Behind, most, of_lag, rate};
use crate::figures::Figures;
use crate::remedy::replication as remedy;
use crate::replication::{Activity, Lag, Standby, activity};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, EventKind, Finding, Unit, catalogue as cat};

/// Share of the startup process's samples that must be held by a conflict.
const HELD: f64 = 0.5;
/// The kinds of PG_REPLAY_CONFLICTS that have a cause of their own.
const KINDS: [&str; 3] = ["snapshot", "lock", "bufferpin"];

/// The findings of a window: at most one a standby.
pub(super) fn find(scene: &Scene<'_>, all: &[Behind]) -> Vec<Finding> {
    all.iter().filter_map(|behind| of_standby(scene, behind)).collect()
}

fn of_standby(scene: &Scene<'_>, behind: &Behind) -> Option<Finding> {
    let standby = &behind.standby;
    let lag = behind.lags.replay.as_ref()?;
    let own = standby.peer.as_ref()?;
    // Paused replay sleeps like one in conflict on releases that do not say which; the flag does.
    if own.paused.mean(&lag.range).is_some_and(|share| share >= 0.5) {
        return None;
    }
    let seen = activity(scene.window, &scene.grid, &own.target, "startup", None, &lag.range);
    let share = seen.share(|doing| matches!(doing, crate::replication::Doing::Conflict(_)));
    let told = log_lines(scene, standby, lag);
    let cancelled = cancelled(scene, standby, lag);
    if share.is_none_or(|share| share < HELD) && !(told > 0 && share.is_none()) {
        return None;
    }
    let cause = cause(&seen, &cancelled);
    let mut finding = of_lag(scene, behind, "replay-conflict", cause, "standby_replay", lag);
    let sure = share.is_some() && (told > 0 || cancelled.iter().any(|(_, count)| *count > 0.0) || cause != "conflict");
    finding.confidence = if sure { Confidence::High } else { Confidence::Medium };
    let mut figures = Figures::default();
    figures.add("conflict_ratio", share, Unit::Ratio, "time in which replay waited for a query of the standby");
    let count: f64 = cancelled.iter().map(|(_, count)| count).sum();
    figures.add("cancelled_count", Some(count), Unit::Count, "queries cancelled so that replay could go on");
    finding.evidence.extend(figures.list());
    finding.summary = format!(
        "Replay on standby {} waits for its queries{}: {} arrives, {} is replayed, and up to {} waited.",
        standby.name,
        match cause {
            "snapshot" => ", which still see rows that the primary has removed",
            "lock" => ", which hold locks on what the primary has changed",
            "bufferpin" => ", which hold a page that it must clean",
            _ => "",
        },
        rate(&standby.hops.received_rate, &lag.range),
        rate(&standby.hops.replayed_rate, &lag.range),
        most(&standby.hops.shown.replay, &lag.range),
    );
    let mut missing = Missing::default();
    missing.unless(scene.window, told > 0, &unseen::CONFLICT_LOG);
    finding.unseen = missing.list();
    finding.remedies = remedy::of_conflict(scene, standby, cause);
    Some(finding)
}

fn cause(seen: &Activity, cancelled: &[(String, f64)]) -> &'static str {
    let told = seen.conflict().filter(|kind| *kind != "conflict");
    let counted = || {
        let most = cancelled.iter().filter(|(_, count)| *count > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))?;
        KINDS.into_iter().find(|kind| *kind == most.0)
    };
    told.or_else(counted).unwrap_or("conflict")
}

/// Queries cancelled, by kind.
fn cancelled(scene: &Scene<'_>, standby: &Standby, lag: &Lag) -> Vec<(String, f64)> {
    let Some(own) = &standby.peer else { return Vec::new() };
    let (from, to) = scene.grid.span(&lag.range);
    let labels = [("target", own.target.as_str())];
    let tracks = scene.window.tracks(cat::PG_REPLAY_CONFLICTS.name, &labels);
    let of = |track: backwater_model::Track<'_>| {
        let kind = track.series.labels.get("kind")?.to_owned();
        Some((kind, track.between(from, to).increase()?))
    };
    tracks.filter_map(of).collect()
}

/// Lines in which the standby itself says that replay waits (14+, log_recovery_conflict_waits).
fn log_lines(scene: &Scene<'_>, standby: &Standby, lag: &Lag) -> usize {
    let Some(own) = &standby.peer else { return 0 };
    let (from, to) = scene.grid.span(&lag.range);
    let lines = scene.window.events_of(EventKind::Log).filter(|event| event.source == own.target);
    lines
        .filter(|event| from <= event.at && event.at <= to && event.message.contains("recovery still waiting after"))
        .count()
}
