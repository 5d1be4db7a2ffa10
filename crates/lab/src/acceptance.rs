//! Whether the fault that a scenario is about happened: without it nothing is concluded, and a quick run tries once more.

use crate::LabError;
use crate::arm::Repeat;
use crate::metrics::median;
use crate::progress::Progress;
use crate::rig::RunOptions;
use crate::run::{Stand, rounds};
use crate::scenario::{Arm, Scenario};

/// One repeat of an arm. In a quick run that has no others to make up for it, the fault that it is all about has a second try
/// where it did not happen: the machine may have been busy with something else.
pub(crate) fn repeat(
    stand: &mut dyn Stand,
    scenario: &Scenario,
    options: &RunOptions,
    arm: &Arm,
    round: usize,
    progress: &dyn Progress,
) -> Result<Repeat, LabError> {
    let first = stand.repeat(scenario, options, arm, round, progress)?;
    let is_alone = options.quick && rounds(scenario, options) == 1;
    let Some(why) = missing_fault(scenario, &[arm], std::slice::from_ref(&first)).filter(|_| is_alone) else {
        return Ok(first);
    };
    progress.say(&format!("arm {}: the fault did not fully happen ({why}); once more", arm.name));
    let second = stand.repeat(scenario, options, arm, round, progress)?;
    Ok(Repeat { given_up: Some(why), ..second })
}

/// Why nothing can be concluded, since the fault that the scenario is about cannot be said to have happened; none where it did.
pub(crate) fn refused(scenario: &Scenario, arms: &[&Arm], repeats: &[Repeat]) -> Option<String> {
    let arm = &scenario.acceptance.as_ref()?.arm;
    let why = missing_fault(scenario, arms, repeats)?;
    Some(format!(
        "{arm}: the fault did not fully happen ({why}), so nothing can be concluded from this run; try again on a quieter machine"
    ))
}

/// What there was too little of for the fault to have happened.
fn missing_fault(scenario: &Scenario, arms: &[&Arm], repeats: &[Repeat]) -> Option<String> {
    let acceptance = scenario.acceptance.as_ref()?;
    arms.iter().find(|arm| arm.name == acceptance.arm)?;
    let of_arm = || repeats.iter().filter(|repeat| repeat.arm == acceptance.arm);
    let drains: Vec<f64> = of_arm().filter_map(|repeat| repeat.metrics.numbers.get("drain_s").copied()).collect();
    let too_small = acceptance.at_least.iter().find_map(|(name, least)| {
        let values: Vec<f64> = of_arm().filter_map(|repeat| repeat.metrics.numbers.get(name).copied()).collect();
        match median(&values) {
            Some(value) if value >= *least => None,
            Some(value) => Some(format!("{name} came to {value:.0} of at least {least:.0}")),
            None => Some(format!("{name} could not be measured")),
        }
    });
    if too_small.is_some() {
        return too_small;
    }
    if acceptance.cliff && of_arm().all(|repeat| !repeat.metrics.numbers.contains_key("time_to_cliff_s")) {
        return Some("throughput never fell off a cliff".to_owned());
    }
    match median(&drains) {
        Some(drain_s) if drain_s >= acceptance.least_drain_s => None,
        None if acceptance.least_drain_s == 0.0 => None,
        None => Some("the drain did not end in the time allowed".to_owned()),
        Some(drain_s) => Some(format!("the drain took {drain_s:.1} s, less than {:.1} s", acceptance.least_drain_s)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::doubts;
    use crate::metrics::Phases;
    use crate::progress::Silent;
    use backwater_model::{Moment, Window};

    /// A stand whose next drains take so long.
    struct Drains(Vec<f64>);

    impl Stand for Drains {
        fn repeat(
            &mut self,
            scenario: &Scenario,
            _: &RunOptions,
            arm: &Arm,
            _: usize,
            _: &dyn Progress,
        ) -> Result<Repeat, LabError> {
            let moment = Moment::from_seconds(1.0);
            let phases = Phases { load_start: moment, load_end: moment, end: moment };
            let mut repeat = Repeat::new(arm, None, scenario.load.clone(), phases);
            let drain_s = self.0.pop().unwrap();
            repeat.metrics.numbers =
                [("drain_s", drain_s), ("time_to_cliff_s", 9.0)].map(|(n, v)| (n.to_owned(), v)).into();
            Ok(repeat)
        }

        fn window(&self, _: Moment, _: Moment) -> Result<Window, LabError> {
            Err(LabError::Cancelled)
        }

        fn device(&self) -> Option<&str> {
            None
        }
    }

    #[test]
    fn a_quick_run_tries_once_more_where_its_fault_did_not_happen() {
        let scenario = Scenario::load("stampede").unwrap();
        let told_of = |repeats: Option<usize>, quick: bool, arm: &str, drains: &[f64]| {
            let mut stand = Drains(drains.to_vec());
            let options = RunOptions { quick, repeats, ..RunOptions::default() };
            let repeat = repeat(&mut stand, &scenario, &options, scenario.arm(arm).unwrap(), 1, &Silent).unwrap();
            (repeat.metrics.numbers["drain_s"], doubts::of_repeat(&repeat).len(), stand.0.len())
        };
        let told = |quick, arm, drains| told_of(None, quick, arm, drains);
        assert_eq!(told(true, "default", &[7.0, 2.0]), (7.0, 1, 0), "and says that it did");
        assert_eq!(told_of(Some(3), true, "default", &[7.0, 2.0]), (2.0, 0, 1), "two others make up for it");
        assert_eq!(told(true, "default", &[2.0, 7.0]), (7.0, 0, 1));
        assert_eq!(told(false, "default", &[7.0, 2.0]), (2.0, 0, 1), "others make up for it");
        assert_eq!(told(true, "advised", &[7.0, 2.0]), (2.0, 0, 1), "the fault is not its");
        assert_eq!(told(true, "default", &[7.0, 2.0, 1.0]), (2.0, 1, 1), "once");
    }
}
