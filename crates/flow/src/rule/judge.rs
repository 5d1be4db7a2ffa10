//! The memory beside the rules: what was done to which session, so that each thing is done once and lifted once.

use super::{Action, Decision, Figures, Lifted, Over, Rule, Step, Why};
use crate::SessionId;
use backwater_model::{Moment, Span};
use std::collections::{BTreeMap, HashMap};

/// A cancelled statement that still runs after this long is ended with its session.
pub(super) const ABORT_GRACE: Span = Span::from_millis(5_000);

/// The session that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Which.
    pub session: SessionId,
    /// Whose.
    pub user: &'a str,
    /// In which pool.
    pub pool: &'a str,
    /// The number of the statement that runs; None between statements.
    pub statement: Option<u64>,
}

/// What was done to whom, and is not over yet.
#[derive(Debug, Default)]
pub struct Judge {
    sessions: HashMap<SessionId, Acts>,
}

#[derive(Debug, Default)]
struct Acts {
    user: String,
    pool: String,
    /// By rule.
    by_rule: BTreeMap<String, Act>,
}

#[derive(Debug)]
struct Act {
    action: Action,
    began: Moment,
    statement: u64,
    over: Vec<Over>,
    cooldown: Span,
    /// When the statement ended; the cool-down runs from here.
    ended: Option<Moment>,
    /// An abort that was escalated, or a penalty that was lifted before its time: nothing more to do.
    done: bool,
}

impl Judge {
    /// Nothing done yet.
    pub fn new() -> Self {
        Judge::default()
    }

    /// Whether the session is demoted now.
    pub fn is_penalised(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(Acts::penalised)
    }

    /// Looks at a session with the rules of its pool. Returns what is to be done now, in order.
    ///
    /// Of several rules that match, an abort goes before a penalty, and one of each is enough; every dry run is told.
    pub fn look<'r>(
        &mut self,
        now: Moment,
        subject: Subject<'_>,
        rules: impl IntoIterator<Item = (&'r str, &'r Rule)>,
        figures: &Figures,
    ) -> Vec<Decision> {
        let rules: BTreeMap<&str, &Rule> = rules.into_iter().collect();
        let matching: BTreeMap<&str, Vec<Over>> = match subject.statement {
            Some(_) => rules.iter().filter_map(|(name, rule)| Some((*name, rule.matches(figures)?))).collect(),
            None => BTreeMap::new(),
        };
        if matching.is_empty() && !self.sessions.contains_key(&subject.session) {
            return Vec::new();
        }
        let acts = self.sessions.entry(subject.session).or_default();
        acts.user = subject.user.to_owned();
        acts.pool = subject.pool.to_owned();
        let mut decisions = acts.end(now, subject, &rules, &matching);
        decisions.extend(acts.escalate(now, subject));
        if let Some(statement) = subject.statement {
            for name in acts.chosen(&rules, &matching) {
                let act = Act {
                    action: rules[name].action,
                    began: now,
                    statement,
                    over: matching[name].clone(),
                    cooldown: Span::from_seconds(rules[name].cooldown_s),
                    ended: None,
                    done: false,
                };
                decisions.push(acts.decision(now, subject.session, name, &act, Step::Began));
                acts.by_rule.insert(name.to_owned(), act);
            }
        }
        if acts.by_rule.is_empty() {
            self.sessions.remove(&subject.session);
        }
        decisions
    }

    /// A session is gone: what was done to it is lifted.
    pub fn forget(&mut self, now: Moment, session: SessionId) -> Vec<Decision> {
        let decisions = self.lift(now, session, Why::SessionEnded);
        self.sessions.remove(&session);
        decisions
    }

    /// Lifts a session's penalties at once. They are not imposed again on the same statement.
    pub fn lift(&mut self, now: Moment, session: SessionId, why: Why) -> Vec<Decision> {
        let Some(acts) = self.sessions.get_mut(&session) else { return Vec::new() };
        let in_force: Vec<String> =
            acts.by_rule.iter().filter(|(_, act)| act.in_force()).map(|(rule, _)| rule.clone()).collect();
        let mut decisions = Vec::new();
        for rule in in_force {
            if let Some(mut act) = acts.by_rule.remove(&rule) {
                decisions.push(acts.decision(now, session, &rule, &act, act.lifted(why)));
                act.done = true;
                acts.by_rule.insert(rule, act);
            }
        }
        decisions
    }
}

impl Acts {
    fn penalised(&self) -> bool {
        self.by_rule.values().any(Act::in_force)
    }

    /// Acts that are over: their statement ended and their cool-down passed, or their rule is gone.
    fn end(
        &mut self,
        now: Moment,
        subject: Subject<'_>,
        rules: &BTreeMap<&str, &Rule>,
        matching: &BTreeMap<&str, Vec<Over>>,
    ) -> Vec<Decision> {
        let mut over = Vec::new();
        for (name, act) in &mut self.by_rule {
            let same = subject.statement == Some(act.statement);
            if !same && act.ended.is_none() {
                act.ended = Some(now);
            }
            // A penalty that cools down and matches again just goes on, with the statement that runs now.
            if let (Some(statement), true, true) =
                (subject.statement, act.in_force(), matching.contains_key(name.as_str()))
            {
                (act.statement, act.ended) = (statement, None);
            }
            let applies = rules.get(name.as_str()).is_some_and(|rule| rule.action == act.action);
            if !applies {
                over.push((name.clone(), Why::RuleGone));
            } else if act.ended.is_some_and(|ended| now - ended >= act.cooldown) {
                over.push((name.clone(), Why::StatementEnded));
            }
        }
        let mut decisions = Vec::new();
        for (name, why) in over {
            if let Some(act) = self.by_rule.remove(&name)
                && act.in_force()
            {
                decisions.push(self.decision(now, subject.session, &name, &act, act.lifted(why)));
            }
        }
        decisions
    }

    /// Aborted statements that still run.
    fn escalate(&mut self, now: Moment, subject: Subject<'_>) -> Vec<Decision> {
        let stubborn = |act: &Act| {
            act.action == Action::Abort && !act.done && act.ended.is_none() && now - act.began >= ABORT_GRACE
        };
        let names: Vec<String> =
            self.by_rule.iter().filter(|(_, act)| stubborn(act)).map(|(name, _)| name.clone()).collect();
        let mut decisions = Vec::new();
        for name in names {
            if let Some(act) = self.by_rule.get_mut(&name) {
                act.done = true;
            }
            decisions.push(self.decision(now, subject.session, &name, &self.by_rule[&name], Step::Escalated));
        }
        decisions
    }

    /// Which of the matching rules act now.
    fn chosen<'n>(&self, rules: &BTreeMap<&'n str, &Rule>, matching: &BTreeMap<&'n str, Vec<Over>>) -> Vec<&'n str> {
        let fresh: Vec<&str> = matching.keys().copied().filter(|name| !self.by_rule.contains_key(*name)).collect();
        let of = |action: Action| fresh.iter().copied().filter(move |name| rules[name].action == action);
        let mut chosen: Vec<&str> = of(Action::DryRun).collect();
        let aborting = self.by_rule.values().any(|act| act.action == Action::Abort && act.ended.is_none());
        if aborting {
            return chosen;
        }
        if let Some(abort) = of(Action::Abort).next() {
            chosen.push(abort);
        } else if !self.penalised() {
            chosen.extend(of(Action::Penalty).next());
        }
        chosen
    }

    fn decision(&self, at: Moment, session: SessionId, rule: &str, act: &Act, step: Step) -> Decision {
        Decision {
            at,
            step,
            rule: rule.to_owned(),
            action: act.action,
            session,
            user: self.user.clone(),
            pool: self.pool.clone(),
            statement: act.statement,
            over: act.over.clone(),
        }
    }
}

impl Act {
    fn in_force(&self) -> bool {
        self.action == Action::Penalty && !self.done
    }

    fn lifted(&self, why: Why) -> Step {
        Step::Lifted(Lifted { began: self.began, why })
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
