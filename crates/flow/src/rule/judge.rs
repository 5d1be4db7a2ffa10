//! The memory beside the rules: what was done to which session, so that each thing is done once and lifted once.

use super::{Action, Decision, Figures, Lifted, Over, Rule, Step, Why};
use crate::{MB, SessionId};
use backwater_model::{Moment, Span};
use std::collections::{BTreeMap, HashMap};

/// A cancelled statement that still runs is ended with its session when nothing more has gone to its client for this long.
pub(super) const ABORT_GRACE: Span = Span::from_millis(5_000);
/// What the server had said before goes to the client first, at the pace of its class: until then the statement's end is not
/// seen, and a server that waits for room has not even heard of the cancel. No more than the kernel's buffers hold is waited
/// for (by default 4 MB where it is sent and 32 MB where it is received): what comes after that is said in spite of the cancel.
const SAID_BEFORE_BYTES: u64 = 40 * MB;
/// However slowly it goes: a client that takes a byte now and then keeps no statement for ever.
const ABORT_WITHIN: Span = Span::from_millis(300_000);

/// The session that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Which.
    pub session: SessionId,
    /// Whose.
    pub user: &'a str,
    /// In which pool.
    pub pool: &'a str,
    /// Its client, for whoever reads what was done; None where the session's name tells enough.
    pub client: Option<&'a str>,
    /// The server's process that serves it, where that is known and is not the session's name already.
    pub server_pid: Option<i32>,
    /// The number of the statement that runs; None between statements.
    pub statement: Option<u64>,
    /// Bytes that have gone to its client in all; always the same where nobody can tell.
    pub sent_bytes: u64,
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
    client: Option<String>,
    server_pid: Option<i32>,
    /// By rule.
    by_rule: BTreeMap<String, Act>,
}

#[derive(Debug)]
struct Act {
    action: Action,
    began: Moment,
    statement: u64,
    sending: Sending,
    over: Vec<Over>,
    /// When the statement ended; the cool-down runs from here.
    ended: Option<Moment>,
    /// An abort that was escalated, or a penalty that was lifted before its time: nothing more to do.
    done: bool,
}

/// What a session sends while something is done to it.
#[derive(Debug)]
struct Sending {
    before_bytes: u64,
    bytes: u64,
    /// When it last became more.
    moved: Moment,
}

impl Judge {
    /// Nothing done yet.
    pub fn new() -> Self {
        Judge::default()
    }

    /// Whether the session is demoted now.
    pub fn is_penalised(&self, session: SessionId) -> bool {
        self.penalised_by(session).is_some()
    }

    /// The rule that demotes the session now.
    pub fn penalised_by(&self, session: SessionId) -> Option<&str> {
        self.sessions.get(&session)?.penalised_by()
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
        acts.client = subject.client.map(str::to_owned);
        acts.server_pid = subject.server_pid;
        let mut decisions = acts.end(now, subject, &rules, &matching);
        decisions.extend(acts.escalate(now, subject));
        if let Some(statement) = subject.statement {
            for name in acts.chosen(&rules, &matching) {
                let act = Act {
                    action: rules[name].action,
                    began: now,
                    statement,
                    sending: Sending::begin(now, subject.sent_bytes),
                    over: matching[name].clone(),
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

    /// A session is gone, or nobody tells of it any more: what was done to it is over.
    pub fn forget(&mut self, now: Moment, session: SessionId, why: Why) -> Vec<Decision> {
        let Some(acts) = self.sessions.remove(&session) else { return Vec::new() };
        let open = acts.by_rule.iter().filter(|(_, act)| !act.is_told_over());
        open.map(|(rule, act)| acts.decision(now, session, rule, act, act.lifted(why))).collect()
    }

    /// Nobody judges any more: whatever was done is over.
    pub fn end(&mut self, now: Moment) -> Vec<Decision> {
        let mut sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        sessions.sort_unstable();
        sessions.into_iter().flat_map(|session| self.forget(now, session, Why::Ended)).collect()
    }

    /// What was to be done to a session by this rule was not done, as its statement did not run: it may be decided again.
    pub fn take_back(&mut self, now: Moment, session: SessionId, rule: &str) -> Option<Decision> {
        let acts = self.sessions.get_mut(&session)?;
        let act = acts.by_rule.remove(rule)?;
        Some(acts.decision(now, session, rule, &act, act.lifted(Why::NotRun)))
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
    /// The rule whose penalty is in force: there is one at a time.
    fn penalised_by(&self) -> Option<&str> {
        self.by_rule.iter().find(|(_, act)| act.in_force()).map(|(rule, _)| rule.as_str())
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
            match rules.get(name.as_str()).filter(|rule| rule.action == act.action) {
                None => over.push((name.clone(), Why::RuleGone)),
                Some(rule) if act.has_cooled_down(now, rule) => over.push((name.clone(), Why::StatementEnded)),
                Some(_) => {}
            }
        }
        let mut decisions = Vec::new();
        for (name, why) in over {
            if let Some(act) = self.by_rule.remove(&name)
                && !act.is_told_over()
            {
                decisions.push(self.decision(now, subject.session, &name, &act, act.lifted(why)));
            }
        }
        decisions
    }

    /// Aborted statements that still run.
    fn escalate(&mut self, now: Moment, subject: Subject<'_>) -> Vec<Decision> {
        self.by_rule.values_mut().for_each(|act| act.sending.see(now, subject.sent_bytes));
        let stubborn = self.by_rule.iter().filter(|(_, act)| act.is_stubborn(now));
        let names: Vec<String> = stubborn.map(|(name, _)| name.clone()).collect();
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
        } else if !self.by_rule.values().any(|act| act.in_force() || act.is_let_go()) {
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
            client: self.client.clone(),
            server_pid: self.server_pid,
            statement: act.statement,
            over: act.over.clone(),
        }
    }
}

impl Act {
    fn in_force(&self) -> bool {
        self.action == Action::Penalty && !self.done
    }

    /// A penalty that was lifted while its statement ran: until that ends there is no other.
    fn is_let_go(&self) -> bool {
        self.is_told_over() && self.ended.is_none()
    }

    /// As the rule says now.
    fn has_cooled_down(&self, now: Moment, rule: &Rule) -> bool {
        self.ended.is_some_and(|ended| now - ended >= Span::from_seconds(rule.cooldown_s))
    }

    /// A penalty that was lifted before its time: its end is told once.
    fn is_told_over(&self) -> bool {
        self.action == Action::Penalty && self.done
    }

    /// An abort that has not ended its statement, and for which there is nothing more to wait.
    fn is_stubborn(&self, now: Moment) -> bool {
        let is_open = self.action == Action::Abort && !self.done && self.ended.is_none();
        let (since, still) = (now - self.began, now - self.sending.moved);
        let is_said_since = since >= ABORT_GRACE && self.sending.since_bytes() > SAID_BEFORE_BYTES;
        is_open && (still >= ABORT_GRACE || is_said_since || since >= ABORT_WITHIN)
    }

    fn lifted(&self, why: Why) -> Step {
        Step::Lifted(Lifted { began: self.began, cooldown_since: self.ended, why })
    }
}

impl Sending {
    fn begin(now: Moment, bytes: u64) -> Sending {
        Sending { before_bytes: bytes, bytes, moved: now }
    }

    fn see(&mut self, now: Moment, bytes: u64) {
        if bytes > self.bytes {
            (self.bytes, self.moved) = (bytes, now);
        }
    }

    fn since_bytes(&self) -> u64 {
        self.bytes - self.before_bytes
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
