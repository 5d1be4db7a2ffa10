//! Arms that run with what `advise` says of another arm's recording in the same run: nothing of it is written down beforehand.
//! An arm may follow another that was advised itself: a second step, told by what the first one came to.

use crate::LabError;
use crate::arm::Repeat;
use crate::run::Stand;
use crate::scenario::{Aim, Arm, DirtyLimit, Scenario, ServerKind};
use backwater_diagnose::{AdviseOptions, EngineChange, EngineOptions, advise, advise_engines};
use backwater_model::{Advised, AimOutcome, ArmOutcome, Bytes, Figure, Remedy, Unit, Window};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Of fewer repeats chance alone may say whether an aim is met.
const LEAST_REPEATS: usize = 3;

/// What came of advice so far.
#[derive(Debug, Default)]
pub(crate) struct Advisers {
    /// By the arm's name: with what it runs, and why.
    chosen: BTreeMap<String, (Arm, Advised)>,
    /// Arms for which nothing could be advised, and why.
    pub(crate) without: BTreeMap<String, String>,
}

/// What one recording leads to. No remedy and no change where all is well as it is.
#[derive(Default)]
struct Choice {
    remedy: Option<Remedy>,
    change: EngineChange,
    observed: Vec<Figure>,
    notes: Vec<String>,
}

impl Advisers {
    /// The arm as it runs: what was advised from the worst of its source's repeats is set. Or why nothing was.
    pub(crate) fn resolve(
        &mut self,
        stand: &dyn Stand,
        scenario: &Scenario,
        arm: &Arm,
        done: &[Repeat],
    ) -> Result<Result<Arm, String>, LabError> {
        let Some(source) = &arm.advised_from else { return Ok(Ok(arm.clone())) };
        if let Some((chosen, _)) = self.chosen.get(&arm.name) {
            return Ok(Ok(chosen.clone()));
        }
        let Some((number, before)) = worst(done.iter().filter(|repeat| repeat.arm == *source)) else {
            if self.without.contains_key(source) {
                return Ok(Err(format!(
                    "arm '{source}', from whose recording it is advised, could not be advised itself"
                )));
            }
            return Err(LabError::Refused(format!("arm '{}' needs arm '{source}' to have run before it", arm.name)));
        };
        let window = stand.window(before.phases.load_start, before.phases.load_end)?;
        let choice = match scenario.server.kind {
            ServerKind::Postgres => of_device(&window, scenario, stand.device()),
            ServerKind::WiredTiger => of_engine(&window),
        };
        let choice = match choice {
            Ok(choice) => choice,
            Err(why) => return Ok(Err(format!("nothing could be advised from arm '{source}': {why}"))),
        };
        let base = self.as_run(scenario, source);
        let own = with(arm, base.as_ref(), &choice.change);
        let told = Advised {
            from: source.clone(),
            repeat: number,
            relieves: choice.change.relieves,
            remedy: choice.remedy,
            observed: choice.observed,
            notes: choice.notes,
        };
        self.chosen.insert(arm.name.clone(), (own.clone(), told));
        Ok(Ok(own))
    }

    /// An arm as it runs, where that is known.
    pub(crate) fn as_run(&self, scenario: &Scenario, name: &str) -> Option<Arm> {
        self.chosen.get(name).map(|(arm, _)| arm).or_else(|| scenario.arm(name)).cloned()
    }

    /// Adds to each arm's outcome what was advised for it, and whether it came to what it was to.
    pub(crate) fn tell(&self, scenario: &Scenario, outcomes: &mut [ArmOutcome]) {
        for place in 0..outcomes.len() {
            let name = outcomes[place].name.clone();
            let aim = scenario.arm(&name).and_then(|arm| arm.aim.as_ref());
            let against = aim.and_then(|aim| outcomes.iter().find(|arm| arm.name == aim.against));
            let repeats = against.map_or(0, |against| against.repeats.min(outcomes[place].repeats));
            let reached = aim.and_then(|aim| aimed(aim, &outcomes[place], against));
            let mut advised = self.chosen.get(&name).map(|(_, advised)| advised.clone());
            let reached = reached.and_then(|reached| claimed(reached, repeats, advised.as_mut()));
            outcomes[place].advised = advised;
            outcomes[place].aim = reached;
        }
    }
}

/// The repeat that its clients would remember, and its number: most seconds stalled, then the highest latency. Advice of a lucky
/// one would leave the others as they are.
fn worst<'a>(repeats: impl Iterator<Item = &'a Repeat>) -> Option<(usize, &'a Repeat)> {
    let badness = |repeat: &Repeat| {
        ["stall_s", "latency_p99_ms"].map(|name| repeat.metrics.numbers.get(name).copied().unwrap_or_default())
    };
    let worse = |one: &Repeat, other: &Repeat| badness(one).partial_cmp(&badness(other)).unwrap_or(Ordering::Equal);
    // Of equals the first.
    (1..).zip(repeats).reduce(|one, other| if worse(other.1, one.1) == Ordering::Greater { other } else { one })
}

/// An arm with its source's settings, its own, and what was advised.
fn with(arm: &Arm, source: Option<&Arm>, change: &EngineChange) -> Arm {
    let mut settings = source.map(|source| source.settings.clone()).unwrap_or_default();
    settings.extend(arm.settings.clone());
    settings.extend(change.settings.clone());
    let limit = change.dirty_limit_bytes.map(|bytes| DirtyLimit::Bytes(Bytes(bytes)));
    let limit = limit.or(source.map(|source| source.dirty_limit)).unwrap_or_default();
    Arm { settings, dirty_limit: limit, ..arm.clone() }
}

/// The limit of the volume for the scenario's drain-time target.
fn of_device(window: &Window, scenario: &Scenario, device: Option<&str>) -> Result<Choice, String> {
    let options = AdviseOptions { drain_target_s: scenario.run.drain_target_s, ..AdviseOptions::default() };
    let advice = advise(window, &options);
    let own = advice.devices.into_iter().find(|own| device == Some(own.dev.as_str()));
    let notes = || advice.notes.join("; ");
    let Some(own) = own else { return Err(notes()) };
    match own.limit.and_then(|limit| Some((limit.bytes, limit.remedy?))) {
        Some((bytes, remedy)) => Ok(Choice {
            remedy: Some(remedy),
            change: EngineChange {
                relieves: format!("host.dirty@{}", own.dev),
                dirty_limit_bytes: Some(bytes),
                ..EngineChange::default()
            },
            observed: own.observed,
            notes: Vec::new(),
        }),
        None => Err([notes(), own.notes.join("; ")].join(" ").trim().to_owned()),
    }
}

/// What is ranked first for the engine; where nobody was seen to wait for it, to leave it as it is.
fn of_engine(window: &Window) -> Result<Choice, String> {
    let advice = advise_engines(window, &EngineOptions::default()).into_iter().next();
    let Some(advice) = advice else { return Err("no readings of the engine were seen".to_owned()) };
    let first = advice.remedies.into_iter().zip(advice.changes).next();
    let (observed, notes) = (advice.observed, advice.notes);
    match first {
        Some((remedy, change)) => Ok(Choice { remedy: Some(remedy), change, observed, notes: Vec::new() }),
        None if advice.at_ease => Ok(Choice { observed, notes, ..Choice::default() }),
        None => Err(notes.join(" ")),
    }
}

/// Whether an arm came to what it was to; none where one of the two was not measured.
fn aimed(aim: &Aim, arm: &ArmOutcome, against: Option<&ArmOutcome>) -> Option<AimOutcome> {
    let p99 = |arm: &ArmOutcome| arm.metrics.get("latency_p99_ms").copied().filter(|ms| *ms > 0.0);
    let ratio = p99(arm)? / p99(against?)?;
    // No repeat may stall, whatever the others did.
    let stalled = arm.spread.get("stall_s").map(|[_, most]| *most)?;
    Some(AimOutcome {
        against: aim.against.clone(),
        p99_ratio: ratio,
        p99_ratio_most: aim.latency_p99_ratio,
        stall_s: stalled,
        stall_s_most: aim.stall_s,
        met: ratio <= aim.latency_p99_ratio && stalled <= aim.stall_s,
    })
}

/// What may be claimed of an aim: nothing where advice changed nothing, since the arm then ran as the one it follows. What is to be
/// known beside it stands in the notes of the advice.
fn claimed(reached: AimOutcome, repeats: usize, advised: Option<&mut Advised>) -> Option<AimOutcome> {
    let Some(advised) = advised else { return Some(reached) };
    if advised.remedy.is_none() {
        advised.notes.push(format!(
            "No aim was met or missed by this advice, since nothing was changed: latency p99 is {:.2} of that of {}, and it stalled for \
             {} in the worst repeat, as an arm that runs as {} does.",
            reached.p99_ratio,
            reached.against,
            Unit::Seconds.show(reached.stall_s),
            advised.from
        ));
        return None;
    }
    if repeats < LEAST_REPEATS {
        let count = if repeats == 1 { "a single repeat".to_owned() } else { format!("{repeats} repeats") };
        advised
            .notes
            .push(format!("Its aim is told of {count}: of fewer than {LEAST_REPEATS} chance alone may decide it."));
    }
    Some(reached)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::Phases;
    use backwater_model::{Activation, Moment};

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_advised_is_set_over_what_the_source_had() {
        let source = Arm {
            settings: settings(&[("cache_size", "512MB"), ("eviction_dirty_target", "3")]),
            dirty_limit: DirtyLimit::Bytes(Bytes(64 << 20)),
            ..Arm::default()
        };
        let change = EngineChange { settings: settings(&[("cache_size", "1471MB")]), ..EngineChange::default() };
        let own = with(&Arm { name: "advised".to_owned(), ..Arm::default() }, Some(&source), &change);
        assert_eq!(own.settings, settings(&[("cache_size", "1471MB"), ("eviction_dirty_target", "3")]));
        assert_eq!((own.name.as_str(), own.dirty_limit), ("advised", source.dirty_limit));
        let capped = EngineChange { dirty_limit_bytes: Some(20 << 20), ..EngineChange::default() };
        assert_eq!(with(&own, Some(&source), &capped).dirty_limit, DirtyLimit::Bytes(Bytes(20 << 20)));
    }

    #[test]
    fn an_aim_is_met_by_latency_and_by_every_repeat_without_a_stall() {
        let arm = |p99: f64, stalls: f64| ArmOutcome {
            metrics: [("latency_p99_ms".to_owned(), p99), ("stall_s".to_owned(), 0.0)].into(),
            spread: [("stall_s".to_owned(), [0.0, stalls])].into(),
            ..ArmOutcome::default()
        };
        let aim = Aim { against: "article".to_owned(), latency_p99_ratio: 0.33, stall_s: 0.0 };
        let met = |p99, stalls| aimed(&aim, &arm(p99, stalls), Some(&arm(3_000.0, 8.0))).unwrap().met;
        assert!(met(900.0, 0.0) && !met(900.0, 1.0) && !met(1_500.0, 0.0));
        assert!(aimed(&aim, &arm(900.0, 0.0), None).is_none(), "not run beside it");
    }

    /// The outcomes of an arm that was advised and of the one that it is to be measured by, as they are told.
    fn told(remedy: Option<Remedy>, repeats: usize) -> ArmOutcome {
        let scenario = Scenario::load("wt-stall").unwrap();
        let arm = |name: &str, p99: f64| ArmOutcome {
            name: name.to_owned(),
            metrics: [("latency_p99_ms".to_owned(), p99)].into(),
            spread: [("stall_s".to_owned(), [0.0, 0.0])].into(),
            repeats,
            ..ArmOutcome::default()
        };
        let advised = Advised {
            from: "defaults".to_owned(),
            repeat: 1,
            relieves: String::new(),
            remedy,
            observed: Vec::new(),
            notes: Vec::new(),
        };
        let chosen = BTreeMap::from([("advised".to_owned(), (Arm::default(), advised))]);
        let mut outcomes = [arm("last-round", 3_000.0), arm("advised", 90.0)];
        Advisers { chosen, ..Advisers::default() }.tell(&scenario, &mut outcomes);
        outcomes[1].clone()
    }

    #[test]
    fn an_aim_is_advices_own_where_something_was_changed_and_says_how_few_repeats_tell_it() {
        let remedy = || {
            Some(Remedy {
                title: "Let data files pass by the page cache".to_owned(),
                runtime: Vec::new(),
                persistent: Vec::new(),
                activation: Activation::Restart,
                undo: Vec::new(),
                predicted: Vec::new(),
                risk: String::new(),
            })
        };
        let notes = |arm: &ArmOutcome| arm.advised.as_ref().unwrap().notes.join(" ");
        let (often, once) = (told(remedy(), 3), told(remedy(), 1));
        assert!(often.aim.as_ref().is_some_and(|aim| aim.met) && notes(&often).is_empty(), "{often:?}");
        assert!(once.aim.is_some() && notes(&once).contains("a single repeat"), "{once:?}");
        let unchanged = told(None, 3);
        assert!(unchanged.aim.is_none(), "{unchanged:?}");
        assert!(
            notes(&unchanged).contains("nothing was changed: latency p99 is 0.03 of that of last-round"),
            "{unchanged:?}"
        );
    }

    #[test]
    fn advice_is_made_of_the_worst_repeat() {
        let scenario = Scenario::load("wt-stall").unwrap();
        let repeat = |stall_s: f64, p99_ms: f64| {
            let moment = Moment::from_seconds(1.0);
            let phases = Phases { load_start: moment, load_end: moment, end: moment };
            let mut repeat = Repeat::new(&Arm::default(), None, scenario.load.clone(), phases);
            let numbers = [("stall_s", stall_s), ("latency_p99_ms", p99_ms)];
            repeat.metrics.numbers.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
            repeat
        };
        let p99 = |repeats: &[Repeat]| {
            let (number, worst) = worst(repeats.iter()).unwrap();
            (number, worst.metrics.numbers["latency_p99_ms"])
        };
        let stalled = [repeat(0.0, 84.0), repeat(0.0, 1_952.0), repeat(3.0, 1_661.0), repeat(1.0, 9.0)];
        assert_eq!(p99(&stalled), (3, 1_661.0));
        assert_eq!(p99(&[repeat(0.0, 84.0), repeat(0.0, 1_952.0), repeat(0.0, 1_661.0)]), (2, 1_952.0));
        assert_eq!(p99(&[repeat(0.0, 84.0), repeat(0.0, 84.0)]).0, 1, "of equals the first");
        assert!(worst([].iter()).is_none());
    }

    #[test]
    fn a_recording_that_shows_no_engine_advises_nothing_and_says_so() {
        let why = of_engine(&Window::default()).err().unwrap();
        assert!(why.contains("no readings of the engine"), "{why}");
    }
}
