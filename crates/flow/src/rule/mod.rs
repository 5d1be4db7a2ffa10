//! Exception rules: when a running session is demoted, ended, or only named.
//!
//! [`Rule::matches`] is pure: thresholds against [`Figures`]. [`Judge`] remembers what it has done to whom, so that each
//! thing is done once, lifted when its statement ends, and not done again while the rule cools down. Everything it does
//! is a [`Decision`], a value that says rule, figures, session and when it was lifted.

mod attribute;
mod decision;
mod figures;
mod judge;

pub use attribute::Attribute;
pub use decision::{Acted, Decision, Lifted, Step, Why};
pub use figures::{Figures, LONGEST_GO, MEAN_OVER, MeanRate, RESTED_AFTER, SessionWal};
pub use judge::{Judge, Subject};

use crate::literal::{Literal, ValueError};
use crate::word::words;
use std::collections::BTreeMap;

words! {
    /// What a rule does to a session that it matches.
    #[derive(Default)]
    pub enum Action: "an action" {
        /// Nothing: what would have been done is told.
        DryRun = "dryrun",
        /// The session is demoted to the low level until its statement ends.
        Penalty = "penalty",
        /// The statement is cancelled, and the session ended if that does not help.
        #[default]
        Abort = "abort",
    }
}

impl Action {
    /// What it does, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Action::DryRun => "nothing; what would have been done is told",
            Action::Penalty => "the session is in the low class until its statement ends",
            Action::Abort => {
                "the statement is cancelled, and the session ended if it still runs five seconds later; what the server had said \
                 before reaches the client first: five seconds after the last of it, or after 40 MB or five minutes of it"
            }
        }
    }
}

/// The longest cool-down, in seconds: a day.
pub const MOST_COOLDOWN_S: f64 = 86_400.0;

/// One rule: thresholds that must all be passed, and what then happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Thresholds; None is one that is switched off (-1). A rule without any in force never matches.
    pub thresholds: BTreeMap<Attribute, Option<f64>>,
    /// What happens to a session that is over all of them.
    pub action: Action,
    /// Seconds after its statement's end for which a penalty stays in force, and during which this rule does not act on
    /// the same session again. Other rules do.
    pub cooldown_s: f64,
}

/// One attribute of a rule as written in a statement or in TOML.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleOption {
    /// A threshold, or -1.
    Threshold(Attribute, Option<f64>),
    /// What to do.
    Action(Action),
    /// How long it stays so, in seconds.
    Cooldown(f64),
}

/// One attribute that is over its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Over {
    /// Which.
    pub attribute: Attribute,
    /// What was measured, in its unit.
    pub value: f64,
    /// What the rule allows.
    pub threshold: f64,
}

impl RuleOption {
    /// Reads one attribute of a rule. The name in any case.
    pub fn read(name: &str, literal: &Literal) -> Result<RuleOption, ValueError> {
        if let Ok(attribute) = name.parse::<Attribute>() {
            return Ok(RuleOption::Threshold(attribute, attribute.threshold(literal)?));
        }
        match name.to_ascii_lowercase().as_str() {
            "action" => {
                let words: Vec<_> = Action::ALL.iter().map(|action| format!("'{action}'")).collect();
                let action = literal.word().ok_or_else(|| literal.refuse("action", words.join(" or ")))?;
                Ok(RuleOption::Action(action))
            }
            "cooldown" => match literal.number() {
                Some(seconds) if (0.0..=MOST_COOLDOWN_S).contains(&seconds) => Ok(RuleOption::Cooldown(seconds + 0.0)),
                _ => Err(literal.refuse("cooldown", format!("seconds from 0 to {MOST_COOLDOWN_S}"))),
            },
            _ => Err(ValueError::Unknown { name: name.to_owned(), known: Self::names().join(", ") }),
        }
    }

    /// The names of all attributes of a rule.
    pub fn names() -> Vec<&'static str> {
        Attribute::ALL.iter().map(|attribute| attribute.word()).chain(["action", "cooldown"]).collect()
    }

    /// The attribute's name.
    pub fn name(&self) -> &'static str {
        match self {
            RuleOption::Threshold(attribute, _) => attribute.word(),
            RuleOption::Action(_) => "action",
            RuleOption::Cooldown(_) => "cooldown",
        }
    }

    /// Its value as it is written.
    pub fn literal(&self) -> Literal {
        match self {
            RuleOption::Threshold(_, threshold) => number(threshold.unwrap_or(-1.0)),
            RuleOption::Action(action) => Literal::Text(action.word().to_owned()),
            RuleOption::Cooldown(seconds) => number(*seconds),
        }
    }
}

/// A number as it is written: whole where it is.
fn number(value: f64) -> Literal {
    let whole = value as i64;
    if whole as f64 == value { Literal::Whole(whole) } else { Literal::Number(value) }
}

impl Rule {
    /// Sets one attribute.
    pub fn set(&mut self, option: &RuleOption) {
        match option {
            RuleOption::Threshold(attribute, threshold) => {
                self.thresholds.insert(*attribute, *threshold);
            }
            RuleOption::Action(action) => self.action = *action,
            RuleOption::Cooldown(seconds) => self.cooldown_s = *seconds,
        }
    }

    /// The rule as the attributes that make it.
    pub fn options(&self) -> Vec<RuleOption> {
        let thresholds = self.thresholds.iter().map(|(attribute, value)| RuleOption::Threshold(*attribute, *value));
        let cooldown = (self.cooldown_s > 0.0).then_some(RuleOption::Cooldown(self.cooldown_s));
        thresholds.chain([RuleOption::Action(self.action)]).chain(cooldown).collect()
    }

    /// The figures that are over, if *all* thresholds in force are passed. A figure that could not be measured is not
    /// over: nobody is punished for a gap.
    pub fn matches(&self, figures: &Figures) -> Option<Vec<Over>> {
        let in_force = self.thresholds.iter().filter_map(|(attribute, threshold)| Some((*attribute, (*threshold)?)));
        let over = |(attribute, threshold)| {
            let value = figures.get(attribute)?;
            (value > threshold).then_some(Over { attribute, value, threshold })
        };
        let all: Vec<Over> = in_force.map(over).collect::<Option<_>>()?;
        (!all.is_empty()).then_some(all)
    }

    /// What must be over, in words: `elapsedtime > 60 s and bandwidth > 128 MB/s`.
    pub fn conditions(&self) -> String {
        let in_force = self.thresholds.iter().filter_map(|(attribute, threshold)| Some((attribute, (*threshold)?)));
        let all: Vec<String> =
            in_force.map(|(attribute, over)| format!("{attribute} > {over} {}", attribute.unit())).collect();
        all.join(" and ")
    }

    /// Attributes in force that cannot be judged by these figures.
    pub fn unseen(&self, figures: &Figures) -> Vec<Attribute> {
        let in_force = self.thresholds.iter().filter(|(_, threshold)| threshold.is_some());
        in_force.map(|(attribute, _)| *attribute).filter(|attribute| figures.get(*attribute).is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rule(options: &[(&str, f64)]) -> Rule {
        let mut rule = Rule::default();
        for (name, value) in options {
            rule.set(&RuleOption::read(name, &Literal::Number(*value)).unwrap());
        }
        rule
    }

    #[test]
    fn attributes_of_a_rule_must_all_be_over() {
        let rule = rule(&[("bandwidth", 128.0), ("ELAPSEDTIME", 60.0)]);
        let mut figures = Figures { elapsed_s: Some(61.0), bandwidth_mb_per_s: Some(128.0), ..Figures::default() };
        assert_eq!(rule.matches(&figures), None);
        figures.bandwidth_mb_per_s = Some(128.1);
        let over = rule.matches(&figures).unwrap();
        assert_eq!(over[0], Over { attribute: Attribute::ElapsedTime, value: 61.0, threshold: 60.0 });
        assert_eq!(over[1], Over { attribute: Attribute::Bandwidth, value: 128.1, threshold: 128.0 });
    }

    #[test]
    fn what_cannot_be_seen_is_not_punished_but_said() {
        let rule = rule(&[("walrate", 1.0), ("elapsedtime", 1.0)]);
        let figures = Figures { elapsed_s: Some(100.0), ..Figures::default() };
        assert_eq!(rule.matches(&figures), None);
        assert_eq!(rule.unseen(&figures), [Attribute::WalRate]);
    }

    #[test]
    fn minus_one_switches_an_attribute_off_and_a_rule_of_none_never_matches() {
        let figures = Figures { elapsed_s: Some(1e6), rows: Some(1e12), ..Figures::default() };
        assert_eq!(rule(&[("elapsedtime", -1.0)]).matches(&figures), None);
        assert_eq!(rule(&[]).matches(&figures), None);
        assert_eq!(rule(&[("elapsedtime", -1.0), ("rows", 5.0)]).matches(&figures).unwrap().len(), 1);
    }

    #[test]
    fn wrong_values_are_refused_with_the_range() {
        let refused = |name: &str, literal: Literal| RuleOption::read(name, &literal).unwrap_err().to_string();
        let text = |text: &str| Literal::Text(text.to_owned());
        assert_eq!(
            refused("cpuavgpercent", Literal::Whole(101)),
            "cpuavgpercent cannot be 101: it must be % from 1 to 100, or -1 for off"
        );
        assert!(refused("broadcastsize", Literal::Whole(1)).contains("there are elapsedtime, blocktime"));
        assert!(refused("action", text("kill")).contains("'dryrun' or 'penalty' or 'abort'"));
        assert!(refused("elapsedtime", Literal::Whole(0)).contains("from 0.001"));
        assert!(refused("elapsedtime", Literal::Number(f64::NAN)).contains("cannot be NaN"));
        assert!(refused("cooldown", Literal::Whole(-1)).contains("from 0 to 86400"));
        assert_eq!(
            RuleOption::read("Bandwidth", &text("128")).unwrap(),
            RuleOption::Threshold(Attribute::Bandwidth, Some(128.0))
        );
    }
}
