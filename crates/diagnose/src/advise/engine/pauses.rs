//! How long a server shall wait from one checkpoint to the next.

use super::measured::{Measured, Outlook};
use super::{Changed, EngineChange, ROOM, WORTH};
use crate::figures::Figures;
use crate::remedy::engine as remedy;
use crate::rules::wt_evidence::Engine;
use backwater_model::{Finding, Target, Unit};

/// Checkpoints no closer than this: each costs its own metadata and syncs.
const SHORTEST_S: f64 = 5.0;

/// Checkpoints so often that each brings what the disk takes in time. What is set is the pause between them; what a checkpoint
/// brings came in during the last one, too.
pub(super) fn shorter(engine: &Engine<'_>, target: Option<&Target>, seen: &Measured, wanted: f64) -> Option<Changed> {
    let (inflow, interval_s) = (seen.inflow.filter(|inflow| *inflow > 0.0)?, seen.interval_s?);
    let length_s = seen.checkpoint_s.unwrap_or(0.0).min(interval_s);
    let now_s = interval_s - length_s;
    // Above the target, eviction decides how much is left for a checkpoint, and not how long ago the last one was.
    let by_time = seen.burst <= seen.target * ROOM;
    let seconds = (wanted / inflow - length_s).clamp(SHORTEST_S, now_s.max(SHORTEST_S)).floor();
    if !by_time || seconds > WORTH * now_s {
        return None;
    }
    let burst = seen.burst.min(inflow * (seconds + length_s));
    let predicted = seen.predict(seen.now(), Outlook { burst, ..seen.now() });
    let settings = [("checkpoint".to_owned(), remedy::checkpoint_setting(target, seconds))].into();
    let change = EngineChange { relieves: engine.queue(), settings, ..EngineChange::default() };
    Some((remedy::sync_period(target, seconds, now_s, predicted), change))
}

/// As long a pause after each checkpoint as one takes. It begins at the end of the last, in mongod as in the engine by itself. What
/// comes in during a longer pause is more to write, up to where eviction holds it, and takes as much longer.
pub(super) fn longer(
    engine: &Engine<'_>,
    target: Option<&Target>,
    seen: &Measured,
    train: &Finding,
) -> Option<Changed> {
    let (length_s, interval_s) = (train.figure("checkpoint_s")?, train.figure("checkpoint_interval_s")?);
    let (now_s, seconds) = (interval_s - length_s, length_s.ceil());
    let more = seen.inflow? * (seconds - now_s).max(0.0);
    let burst = (seen.burst + more).min(seen.burst.max(seen.target));
    let length_then_s = length_s * burst / seen.burst.max(1.0);
    let (now, then) = (length_s / interval_s, length_then_s / (length_then_s + seconds));
    // Where checkpoints grow with their pause, another disk is the only way.
    if then > WORTH * now {
        return None;
    }
    let mut predicted = Figures::default();
    predicted.add("checkpoint_ratio", Some(then), Unit::Ratio, "share of the time in checkpoints");
    predicted.add("checkpoint_now_ratio", Some(now), Unit::Ratio, "the same as it is");
    let outlook = seen.predict(seen.now(), Outlook { burst, ..seen.now() });
    let predicted = predicted.list().into_iter().chain(outlook).collect();
    let settings = [("checkpoint".to_owned(), remedy::checkpoint_setting(target, seconds))].into();
    let change = EngineChange { relieves: engine.queue(), settings, ..EngineChange::default() };
    Some((remedy::sync_period(target, seconds, now_s, predicted), change))
}
