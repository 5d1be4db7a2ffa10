//! Room for updates that are not yet written, and how long they take to fill it.

use super::measured::{Measured, Outlook};
use super::{Changed, EngineChange, WORTH};
use crate::grid::Lane;
use crate::remedy::engine as remedy;
use crate::rules::wt_evidence::{Engine, configured};
use crate::scene::Scene;
use backwater_model::{Figure, Target, Unit};

/// The figure that says when threads must evict.
const TO_TRIGGER: &str = "to_trigger_s";

/// Room for updates, where threads stall at their limit, which holds them there: as much as all that is dirty may have. Unless set,
/// their limit is half of that one.
pub(super) fn room(
    scene: &Scene<'_>,
    engine: &Engine<'_>,
    target: Option<&Target>,
    seen: &Measured,
) -> Option<Changed> {
    let now = engine.limits.updates_trigger * seen.cache;
    let (text, level) = remedy::level(target, seen.trigger, seen.cache);
    // Where more comes than the disk writes, room is only filled.
    if now > WORTH * level || seen.inflow? > seen.drain? {
        return None;
    }
    let mut predicted = vec![
        Figure::new("updates_trigger_bytes", level, Unit::Bytes, "updates from which on application threads evict"),
        Figure::new("updates_trigger_now_bytes", now, Unit::Bytes, "the same as it is"),
    ];
    let after = Outlook { burst: seen.at_most(level, seen.target), ..seen.now() };
    // Its time to the trigger is that of all that is dirty alone.
    let outlook = seen.predict(seen.now(), after).into_iter();
    predicted.extend(outlook.filter(|figure| !figure.name.starts_with("to_trigger")));
    if let Some(rise) = Rise::of(scene, engine, seen) {
        let to_trigger_s = |limit: f64, of: Outlook| {
            let of_dirty = seen.to_trigger_s(of.target.min(of.burst), of.trigger);
            of_dirty.unwrap_or(f64::INFINITY).min(rise.seconds_to(limit))
        };
        let words = "until application threads evict, for updates or all that is dirty";
        predicted.push(Figure::new(TO_TRIGGER, to_trigger_s(level, after), Unit::Seconds, words));
        let as_is = to_trigger_s(now, seen.now());
        predicted.push(Figure::new("to_trigger_now_s", as_is, Unit::Seconds, "the same as it is"));
    }
    // Unset it follows the other.
    let name = "eviction_updates_trigger";
    let back = configured(target, name).unwrap_or_else(|| "0".to_owned());
    let title = "Let application threads help with updates later (relieves the cache's updates, up to the limit of all that is dirty)";
    let risk = "A checkpoint finds more to write at once, and more is lost from the cache when the power fails: recovery takes longer.";
    let change = EngineChange {
        relieves: engine.queue(),
        settings: [(name.to_owned(), text.clone())].into(),
        ..EngineChange::default()
    };
    Some((remedy::engine(target, title.to_owned(), &[(name, text, back)], predicted, risk), change))
}

/// That nobody saw updates come to their limit, so that no time to it is told.
pub(super) fn never_rose((remedy, _): &Changed) -> Option<String> {
    let told = remedy.predicted.iter().any(|figure| figure.name == TO_TRIGGER);
    (!told).then(|| {
        "The time until application threads must evict for updates is not told: updates stood at their limit, and were not seen to \
         come to it."
            .to_owned()
    })
}

/// How updates come to their limit.
struct Rise {
    /// The level that eviction holds them at, or that they usually have where that is lower.
    from_bytes: f64,
    bytes_per_s: f64,
}

impl Rise {
    /// The fastest that they rose above what eviction begins at, so that what it wrote meanwhile is taken off; none where they did
    /// not rise there.
    fn of(scene: &Scene<'_>, engine: &Engine<'_>, seen: &Measured) -> Option<Rise> {
        let all = 0..scene.grid.count;
        let begins = engine.limits.updates_target * seen.cache;
        let next = Lane(all.clone().map(|second| engine.updates.get(second + 1)).collect());
        let rise = next.with(&engine.updates, |next, now| next - now).smooth(2);
        let above = next.at_least(begins);
        let bytes_per_s = rise.with(&above, |rise, _| rise).max(&all).filter(|rise| *rise > 0.0)?;
        Some(Rise { from_bytes: begins.min(engine.updates.median(&all)?), bytes_per_s })
    }

    fn seconds_to(&self, limit_bytes: f64) -> f64 {
        (limit_bytes - self.from_bytes).max(0.0) / self.bytes_per_s
    }
}
