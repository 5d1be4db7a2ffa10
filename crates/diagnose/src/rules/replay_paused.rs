//! replay-paused: a standby receives WAL and does not replay it, because replay was paused.
//!
//! Seen from the primary alone a standstill of replay may as well be a conflict, or a delay that was asked for: then it is told
//! with low confidence.

use super::wal_evidence::{Behind, most, of_lag};
use crate::remedy::replication as remedy;
use crate::replication::{Doing, Lag, activity};
use crate::scene::Scene;
use crate::unseen::{self, Missing};
use backwater_model::{Confidence, Finding, RuledOut};

/// Share of the stretch in which replay must be paused.
const PAUSED: f64 = 0.5;
/// Below this many bytes a second replay stands still.
const STILL: f64 = 1.0;

/// The findings of a window: at most one a standby.
pub(super) fn find(scene: &Scene<'_>, all: &[Behind]) -> Vec<Finding> {
    all.iter().filter_map(|behind| of_standby(scene, behind)).collect()
}

fn of_standby(scene: &Scene<'_>, behind: &Behind) -> Option<Finding> {
    let standby = &behind.standby;
    let lag = behind.lags.replay.as_ref()?;
    let (cause, confidence) = match &standby.peer {
        Some(own) => {
            let flag = own.paused.mean(&lag.range);
            let seen = activity(scene.window, &scene.grid, &own.target, "startup", None, &lag.range);
            let share = flag.or_else(|| seen.share(|doing| *doing == Doing::Paused))?;
            if share < PAUSED {
                return None;
            }
            ("paused", if flag.is_some() { Confidence::High } else { Confidence::Medium })
        }
        None => {
            stands_still(behind, lag).then_some(())?;
            ("standstill", Confidence::Low)
        }
    };
    let mut finding = of_lag(scene, behind, "replay-paused", cause, "standby_replay", lag);
    finding.confidence = confidence;
    let waits = most(&standby.hops.shown.replay, &lag.range);
    finding.summary = if cause == "paused" {
        format!(
            "Replay on standby {} is paused: up to {waits} of WAL waited there, received and not replayed.",
            standby.name
        )
    } else {
        format!(
            "Replay on standby {} stands still while WAL arrives: up to {waits} waited there. It is paused, or a query of the \
             standby holds it up, or it is delayed on purpose (recovery_min_apply_delay); from the primary the three look \
             alike.",
            standby.name
        )
    };
    if cause == "paused" {
        let because = "the standby says that replay is paused".to_owned();
        finding.ruled_out = vec![RuledOut { cause: "replay-conflict".to_owned(), because }];
    }
    let mut missing = Missing::default();
    missing.unless(scene.window, standby.peer.is_some(), &unseen::STANDBY);
    finding.unseen = missing.list();
    finding.remedies = remedy::of_pause(cause);
    Some(finding)
}

/// Whether the replayed position did not move at all while WAL was received, for most of the stretch.
fn stands_still(behind: &Behind, lag: &Lag) -> bool {
    let hops = &behind.standby.hops;
    let moving = hops
        .replayed_rate
        .with(&hops.received_rate, |replayed, received| if received > STILL && replayed <= STILL { 1.0 } else { 0.0 });
    moving.mean(&lag.range).is_some_and(|share| share >= 0.8)
}
