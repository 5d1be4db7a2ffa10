//! A search for settings with less latency than an arm has: one knob after another, each tried on the running stand. What it
//! finds is then measured again, in random order, beside the arm it began with and the one it is compared with.

mod descent;

use crate::LabError;
use crate::arm::Repeat;
use crate::progress::Progress;
use crate::rig::RunOptions;
use crate::run::{Stand, on_stand, rounds, summarise, write_outcome};
use crate::scenario::{Arm, BUILT_IN, ExpectedFinding, Scenario, SearchPart};
use crate::wiredtiger;
use backwater_model::Outcome;
use descent::{Descent, Point};
use rand::seq::SliceRandom;

/// What is searched for: less of this.
const COST: &str = "latency_p99_ms";
/// The arm that a search ends with.
const FOUND: &str = "found";

/// How to search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// The arm to begin with, where other than the scenario's.
    pub from: Option<String>,
    /// The arm to compare with, where other than the scenario's.
    pub against: Option<String>,
    /// Points to measure at most before what was found is measured again.
    pub most: usize,
}

/// What a search measured.
struct Searched {
    arms: Vec<Arm>,
    repeats: Vec<Repeat>,
}

/// Searches, and says what came of it: each point as an arm, and `found` beside the arms it is compared with.
pub fn search(
    scenario: &Scenario,
    options: &RunOptions,
    search: &SearchOptions,
    progress: &dyn Progress,
) -> Result<Outcome, LabError> {
    let part = part(scenario)?;
    let named = |own: &Option<String>, of_scenario: &str| arm(scenario, own.as_deref().unwrap_or(of_scenario));
    let (from, against) = (named(&search.from, &part.from)?, named(&search.against, &part.against)?);
    comparable(scenario, part, from, against)?;
    let measured = on_stand(scenario, options, progress, |stand| {
        let mut turning = Turning { scenario, options, progress, stand };
        let (found, mut tried) = turning.descend(part, from, search.most)?;
        turning.confirm(&found, from, against, &mut tried)?;
        Ok(tried)
    })?;
    let mut outcome = summarise(scenario, options, &measured.arms.iter().collect::<Vec<_>>(), &measured.repeats);
    wiredtiger::complete(scenario, &mut outcome);
    let others = if from.name == against.name { vec![&*from.name] } else { vec![&*from.name, &*against.name] };
    conclude(&mut outcome, &others);
    write_outcome(&outcome, options)?;
    Ok(outcome)
}

fn part(scenario: &Scenario) -> Result<&SearchPart, LabError> {
    let none = || {
        let others: Vec<&str> = searchable().collect();
        LabError::Refused(format!(
            "scenario '{}' has nothing to search for: it has no [search]; there is one in {}",
            scenario.name,
            others.join(", ")
        ))
    };
    scenario.search.as_ref().ok_or_else(none)
}

/// The scenarios of the program's own in which there is something to search for.
fn searchable() -> impl Iterator<Item = &'static str> {
    let has_search = |name: &&str| Scenario::load(name).is_ok_and(|scenario| scenario.search.is_some());
    BUILT_IN.iter().map(|(name, _)| *name).filter(has_search)
}

fn arm<'a>(scenario: &'a Scenario, name: &str) -> Result<&'a Arm, LabError> {
    let known = || scenario.arms.iter().filter(|arm| arm.advised_from.is_none()).map(|arm| arm.name.as_str());
    let unknown = || {
        let known = known().collect::<Vec<_>>().join(", ");
        LabError::Refused(format!("a search cannot begin with '{name}' or be compared with it; it can with: {known}"))
    };
    scenario.arm(name).filter(|arm| arm.advised_from.is_none()).ok_or_else(unknown)
}

/// An arm with another load or another disk would be compared with something else; one beside the knobs' values could not be
/// begun with.
fn comparable(scenario: &Scenario, part: &SearchPart, from: &Arm, against: &Arm) -> Result<(), LabError> {
    let refused = |why: String| Err(LabError::Refused(format!("a search cannot begin with '{}': {why}", from.name)));
    let runs = |arm: &Arm| (arm.write_bytes_per_s, arm.write_iops, arm.load_of(scenario, None));
    if runs(from) != runs(against) {
        return refused(format!("its load or its disk is not that of '{}', which it is compared with", against.name));
    }
    match part.knobs.iter().find(|knob| knob.place(scenario, from).is_none()) {
        Some(knob) => refused(format!("its {} is none of {}", knob.name, knob.values.join(", "))),
        None => Ok(()),
    }
}

/// A stand and how it is turned.
struct Turning<'a> {
    scenario: &'a Scenario,
    options: &'a RunOptions,
    progress: &'a dyn Progress,
    stand: &'a mut dyn Stand,
}

impl Turning<'_> {
    /// Turns one knob after another until none helps; the best point as an arm, and every point with its repeat.
    fn descend(&mut self, part: &SearchPart, from: &Arm, most: usize) -> Result<(Arm, Searched), LabError> {
        let values = part.knobs.iter().map(|knob| knob.values.len()).collect();
        let start = part.knobs.iter().map(|knob| knob.place(self.scenario, from).unwrap_or(0)).collect();
        let mut descent = Descent::new(values, start, most);
        let mut tried = Searched { arms: Vec::new(), repeats: Vec::new() };
        while let Some(point) = descent.next() {
            let number = tried.arms.len() + 1;
            let own = Arm { name: format!("try-{number:02}"), ..turned(part, from, &point) };
            let repeat = self.stand.repeat(self.scenario, self.options, &own, 1, self.progress)?;
            let cost = repeat.metrics.numbers.get(COST).copied();
            // What was not measured is no reason to go there.
            let better = descent.tell(point, cost.unwrap_or(f64::INFINITY));
            self.tell(&own, cost, better);
            tried.arms.push(own);
            tried.repeats.push(repeat);
        }
        Ok((Arm { name: FOUND.to_owned(), ..turned(part, from, descent.best()) }, tried))
    }

    fn tell(&self, arm: &Arm, cost: Option<f64>, better: bool) {
        let verdict = if better { "the best so far" } else { "not clearly better" };
        let cost = cost.map_or("latency was not measured".to_owned(), |ms| format!("latency p99 {ms:.0} ms"));
        self.progress.say(&format!("{}: {cost}, {verdict}", arm.name));
    }

    /// Measures what was found again, beside the two that it is compared with.
    fn confirm(&mut self, found: &Arm, from: &Arm, against: &Arm, into: &mut Searched) -> Result<(), LabError> {
        let mut arms: Vec<Arm> = [from, against].map(plain).into();
        arms.dedup_by(|a, b| a.name == b.name);
        arms.push(found.clone());
        for round in 1..=rounds(self.scenario, self.options) {
            let mut order: Vec<&Arm> = arms.iter().collect();
            order.shuffle(&mut rand::rng());
            for arm in order {
                into.repeats.push(self.stand.repeat(self.scenario, self.options, arm, round, self.progress)?);
            }
        }
        // First what was measured more than once.
        into.arms.splice(0..0, arms);
        Ok(())
    }
}

/// An arm that stands where it is compared, and is not judged by what it is diagnosed with: that is for a run.
fn plain(arm: &Arm) -> Arm {
    Arm { expected: ExpectedFinding::default(), aim: None, same_as: None, beside: None, ..arm.clone() }
}

/// The arm with each knob at its place.
fn turned(part: &SearchPart, from: &Arm, point: &Point) -> Arm {
    let mut own = Arm { published: None, ..plain(from) };
    part.knobs.iter().zip(point).for_each(|(knob, place)| knob.set(&mut own, *place));
    own
}

/// How what was found compares with the others, of the repeats that were measured together.
fn conclude(outcome: &mut Outcome, others: &[&str]) {
    let cost = |name: &str| {
        let arm = outcome.arms.iter().find(|arm| arm.name == name);
        arm.and_then(|arm| Some((*arm.metrics.get(COST)?, *arm.spread.get(COST)?, arm.repeats)))
    };
    let Some((found, [_, most], repeats)) = cost(FOUND) else { return };
    let mut doubts = Vec::new();
    if repeats < 2 {
        doubts.push(format!("{FOUND}: measured once, so that it is better is not shown; --repeats 3 would tell"));
    }
    let compared: Vec<_> = others.iter().filter_map(|name| Some((*name, cost(name)?))).collect();
    for (name, (other, [least, _], _)) in compared {
        outcome.outcome.insert(format!("{FOUND}-beside-{name}_{COST}_ratio"), found / other);
        if most >= least {
            doubts.push(format!("{FOUND}: repeats of it and of {name} overlap, so that it is better is not shown"));
        }
    }
    outcome.doubts.extend(doubts);
    let tried = outcome.arms.iter().filter(|arm| arm.name.starts_with("try-")).count();
    outcome.outcome.insert("tried".to_owned(), tried as f64);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::ArmOutcome;

    #[test]
    fn a_scenario_without_a_search_names_those_that_have_one() {
        let error = part(&Scenario::load("stampede").unwrap()).unwrap_err().to_string();
        assert!(error.ends_with("it has no [search]; there is one in wt-stall"), "{error}");
    }

    #[test]
    fn a_point_is_the_arm_with_its_knobs_turned() {
        let scenario = Scenario::load("wt-stall").unwrap();
        let part = part(&scenario).unwrap();
        let from = arm(&scenario, "defaults").unwrap();
        let mut point: Point = part.knobs.iter().map(|knob| knob.place(&scenario, from).unwrap()).collect();
        let start = turned(part, from, &point);
        assert_eq!((start.dirty_limit, start.write_bytes_per_s), (from.dirty_limit, from.write_bytes_per_s));
        for (name, value) in &scenario.server.settings {
            assert_eq!(start.settings.get(name).unwrap_or(value), value, "the start is the arm itself");
        }
        let cache = part.knobs.iter().position(|knob| knob.name == "cache_size").unwrap();
        point[cache] = 0;
        assert_eq!(turned(part, from, &point).settings["cache_size"], "512MB");
        let error = arm(&scenario, "advised").unwrap_err().to_string();
        assert!(
            error.contains("cannot begin with 'advised' or be compared with it; it can with: defaults, "),
            "{error}"
        );
        assert!(super::part(&Scenario::load("stampede").unwrap()).is_err());
        let against = arm(&scenario, &part.against).unwrap();
        for name in ["defaults", "last-round", "dirty-cap", "direct-io"] {
            comparable(&scenario, part, arm(&scenario, name).unwrap(), against).unwrap();
        }
        let other = arm(&scenario, "direct-defaults").unwrap();
        let error = comparable(&scenario, part, other, against).unwrap_err().to_string();
        assert!(error.contains("its load or its disk is not that of 'last-round'"), "{error}");
        // Data files past the page cache have a rig of their own.
        comparable(&scenario, part, other, arm(&scenario, "direct-last-round").unwrap()).unwrap();
        let odd = Arm { settings: [("cache_size".to_owned(), "3GB".to_owned())].into(), ..from.clone() };
        let error = comparable(&scenario, part, &odd, against).unwrap_err().to_string();
        assert!(error.contains("its cache_size is none of 512MB, "), "{error}");
    }

    #[test]
    fn what_overlaps_is_not_called_better() {
        let outcome = |name: &str, ms: [f64; 3]| ArmOutcome {
            name: name.to_owned(),
            metrics: [(COST.to_owned(), ms[1])].into(),
            spread: [(COST.to_owned(), [ms[0], ms[2]])].into(),
            repeats: 3,
            ..ArmOutcome::default()
        };
        let arms = [
            outcome("defaults", [7_000.0, 7_400.0, 7_800.0]),
            outcome("last-round", [900.0, 3_300.0, 3_500.0]),
            outcome(FOUND, [600.0, 740.0, 950.0]),
            outcome("try-01", [7_500.0; 3]),
        ];
        let mut told = Outcome { arms: arms.into(), ..Outcome::default() };
        let mut once = told.clone();
        conclude(&mut told, &["defaults", "last-round"]);
        assert_eq!(told.outcome["found-beside-defaults_latency_p99_ms_ratio"], 0.1);
        assert_eq!(told.outcome["tried"], 1.0);
        assert_eq!(told.doubts, ["found: repeats of it and of last-round overlap, so that it is better is not shown"]);
        once.arms[2].repeats = 1;
        conclude(&mut once, &["defaults"]);
        assert!(once.doubts[0].contains("measured once"), "{:?}", once.doubts);
    }
}
