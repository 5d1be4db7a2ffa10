//! slot-inactive: nobody reads from a replication slot, and it keeps WAL for whoever does not come.
//!
//! A slot that keeps without a limit fills the disk, which stops the primary; one with a limit is lost when it is reached.

use super::draft::draft;
use super::wal_evidence::kept_figures;
use crate::figures::Figures;
use crate::remedy::retention as remedy;
use crate::replication::{Holder, Retention, down_since, is_logical, retention, seconds, target};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, Finding, Severity, Track, Unit, catalogue as cat};

/// Seconds, at the end of the window, through which nobody must have read from it.
const AWAY_S: f64 = 10.0;
/// WAL that it must keep: less is what every restart of a standby leaves behind.
const LEAST: f64 = 16.0 * 1_048_576.0;
/// Time left at which it is a warning, and critical, in seconds.
const DAY_S: f64 = 86_400.0;
const SOON_S: f64 = 600.0;

/// The findings of a window: at most one a slot.
pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let tracks = scene.window.tracks(cat::PG_SLOT_ACTIVE.name, &[]);
    tracks.filter_map(|track| of_slot(scene, track)).collect()
}

fn of_slot(scene: &Scene<'_>, active: Track<'_>) -> Option<Finding> {
    let (server, slot) = (active.series.labels.get("target")?, active.series.labels.get("slot")?);
    let window = scene.window;
    let since = down_since(window, active)?;
    if active.points.last()?.at.seconds_since(since) < AWAY_S {
        return None;
    }
    let lost = window.track(cat::PG_SLOT_LOST.name, &[("target", server), ("slot", slot)]);
    if lost.and_then(Track::last) == Some(1.0) {
        // What it kept is gone: wal-removed says so.
        return None;
    }
    let kept = retention(window, server, slot, window.to)?;
    if kept.level_bytes < LEAST || kept.inflow_bytes_per_s <= 0.0 {
        return None;
    }
    let full = kept.end_s().or(kept.earliest_s);
    let away_s = window.to.seconds_since(since);
    // 18 gives a slot up by time: how long nobody had read from it before this window is not known.
    let patience =
        seconds(target(window, server).as_ref(), "idle_replication_slot_timeout").filter(|limit| *limit > 0.0);
    let given_up = patience.map(|limit| (limit - away_s).max(0.0)).filter(|left| full.is_none_or(|full| *left < full));
    let left = given_up.or(full);
    let cause = if kept.holder == Holder::Slot || given_up.is_some() { "approaching-limit" } else { "retaining" };
    let mut finding = draft("slot-inactive", cause, format!("pg.wal.retained@{slot}"), (since, window.to));
    finding.server = Some(server.to_owned());
    finding.severity = match left {
        // What a time-out takes away was set to be taken away.
        Some(left) if left <= SOON_S && given_up.is_none() => Severity::Critical,
        Some(left) if left <= DAY_S => Severity::Warning,
        _ => Severity::Info,
    };
    finding.confidence = Confidence::High;
    finding.evidence = figures(&kept, away_s);
    let then = if is_logical(window, server, slot) {
        "what reads from it must begin anew, with a new slot and a copy of its tables"
    } else {
        "its standby must be built anew"
    };
    finding.summary = summary(slot, &kept, left, given_up.is_some(), then);
    let mut missing = Missing::default();
    missing.unless(window, kept.limit_bytes.is_some(), &unseen::FREE_SPACE);
    finding.unseen = missing.list();
    finding.remedies = remedy::of_slot(scene, server, slot, &kept);
    Some(finding)
}

fn figures(kept: &Retention, away_s: f64) -> Vec<backwater_model::Figure> {
    let mut figures = Figures::default();
    figures.add("away_s", Some(away_s), Unit::Seconds, "nobody has read from it for, at least");
    figures.add("generated_bytes_per_s", Some(kept.inflow_bytes_per_s), Unit::BytesPerSecond, "WAL made");
    kept_figures(kept, &mut figures);
    figures.list()
}

fn summary(slot: &str, kept: &Retention, left: Option<f64>, by_time: bool, then: &str) -> String {
    let mut text = format!(
        "Nobody reads from slot {slot}: it keeps {} of WAL, and {} more is made.",
        Unit::Bytes.show(kept.level_bytes),
        Unit::BytesPerSecond.show(kept.inflow_bytes_per_s),
    );
    if let Some(left) = left {
        let left = Unit::Seconds.show(left);
        text.push_str(&match kept.holder {
            _ if by_time => format!(
                " In {left} at most it has idled for idle_replication_slot_timeout: the checkpoint after that gives it up."
            ),
            Holder::Slot => format!(" In {left} the slot is lost, and {then}."),
            _ => format!(" In {left} the volume of WAL is full, and the primary stops."),
        });
    }
    text
}
