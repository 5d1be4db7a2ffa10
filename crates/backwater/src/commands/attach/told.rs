//! What attach mode does, for a recording: decisions as they are made, and after each look who is held and how fast.

use super::super::flow_record::Recorder;
use super::{Arguments, now};
use backwater_flow::rule::{Acted, Action, Decision, Step};
use backwater_flow::{LowPriorityBandwidth, State};
use backwater_gate::attach::{ClassRate, Hold, Paced};
use backwater_gate::proxy::Tell;
use backwater_model::{Bytes, BytesPerSecond, Event, EventKind, FlowHeld, FlowRule, FlowState, Moment};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Remembers what is told of each held socket, and tells it to a recording where there is one.
pub(super) struct Told {
    recorder: Option<Recorder>,
    /// What was seen at the last look.
    newest: Arc<Mutex<FlowState>>,
    /// What governs, and how often each rule acted.
    governs: State,
    acted: HashMap<String, Acted>,
    class: Option<ClassRate>,
    /// Whether rules and rate are a file's.
    by_file: bool,
    /// Whose socket it is, and the rule that holds it, by the socket's cookie.
    by_rule: HashMap<u64, (String, String)>,
    /// Whose it is, and the pool that holds it.
    by_pool: HashMap<u64, (String, String)>,
}

impl Told {
    /// Begins the recording, where one is wanted.
    pub(super) fn start(
        arguments: &Arguments,
        state: Option<&State>,
        class: Option<ClassRate>,
    ) -> anyhow::Result<Told> {
        let recorder = arguments.record.as_deref().map(Recorder::start).transpose()?;
        let newest = Arc::new(Mutex::new(FlowState { at: now(), by: by(arguments), ..FlowState::default() }));
        if let Some(recorder) = &recorder {
            let (newest, mut before) = (Arc::clone(&newest), HashMap::new());
            recorder.watch(Box::new(move || {
                let mut state = newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
                before = rated(&mut state, &before);
                state
            }));
        }
        let by_file = arguments.config.is_some();
        Ok(Told {
            recorder,
            newest,
            governs: state.cloned().unwrap_or_default(),
            acted: HashMap::new(),
            class,
            by_file,
            by_rule: HashMap::new(),
            by_pool: HashMap::new(),
        })
    }

    /// Other rules and another rate from here on.
    pub(super) fn govern(&mut self, state: &State) {
        self.class = Some(super::class_of(state));
        self.governs = state.clone();
    }

    fn rules(&self) -> Vec<FlowRule> {
        self.governs.described(|name| self.acted.get(name).copied().unwrap_or_default())
    }

    /// A session is held for its pool.
    pub(super) fn pooled(&mut self, cookie: u64, user: &str, pool: &str) {
        self.by_pool.insert(cookie, (user.to_owned(), format!("pool {pool}")));
    }

    /// What the class's rate is called, by who said it.
    fn class_words(&self) -> Option<&'static str> {
        Some(match (self.class?, self.by_file) {
            (_, true) => LowPriorityBandwidth::NAME,
            (ClassRate::Auto, false) => "--class-rate auto",
            (ClassRate::Fixed(_), false) => "--class-rate",
        })
    }

    /// A session is held by a rule.
    pub(super) fn ruled(&mut self, cookie: u64, user: &str, rule: &str) {
        self.by_rule.insert(cookie, (user.to_owned(), rule.to_owned()));
    }

    /// A rule decided, of the session with this socket where that was found.
    pub(super) fn decided(&mut self, decision: &Decision, cookie: Option<u64>) {
        // Only a penalty holds. One that is aborted, or only told of, may be held for its pool.
        if let Some(cookie) = cookie.filter(|_| decision.action == Action::Penalty) {
            match decision.step {
                Step::Lifted(_) => drop(self.by_rule.remove(&cookie)),
                _ => self.ruled(cookie, &decision.user, &decision.rule),
            }
        }
        let Some(recorder) = &self.recorder else { return };
        (recorder.tell)(decision.event("attach"));
        self.acted.entry(decision.rule.clone()).or_default().count(decision.step);
    }

    /// A connection that was named is held.
    pub(super) fn holding(&self, paced: &Paced) {
        let rate = BytesPerSecond(paced.granted_bps as f64);
        self.named(paced, "held", &format!("held at {rate}"), "it was named", &[]);
    }

    /// One that was named is held no longer.
    pub(super) fn let_go(&self, paced: &Paced, why: &str) {
        let (seconds, sent) = (now().seconds_since(paced.since), Bytes(paced.sent_bytes));
        let figures = [("began", paced.since.0.to_string()), ("sent_bytes", paced.sent_bytes.to_string())];
        self.named(paced, "freed", &format!("let go after {seconds:.1} s and {sent}"), why, &figures);
    }

    fn named(&self, paced: &Paced, step: &str, what: &str, why: &str, figures: &[(&str, String)]) {
        let Some(recorder) = &self.recorder else { return };
        let socket = &paced.named.socket;
        let (session, client) = (socket.pid.to_string(), socket.peer.to_string());
        let message = format!("session {session} (client {client}) is {what}: {why}");
        let mut fields = vec![("session", session.as_str()), ("client", &client), ("step", step), ("why", why)];
        fields.extend(figures.iter().map(|(name, value)| (*name, value.as_str())));
        (recorder.tell)(Event::new(now(), "attach", EventKind::Decision, message, &fields));
    }

    /// What holds the session with this socket: a rule, or its pool.
    pub(super) fn holder(&self, cookie: u64) -> String {
        self.known(cookie).map(|(_, holder)| holder.clone()).unwrap_or_default()
    }

    /// Whose socket it is, and what holds it: a rule before its pool.
    fn known(&self, cookie: u64) -> Option<&(String, String)> {
        self.by_rule.get(&cookie).or_else(|| self.by_pool.get(&cookie))
    }

    /// Who writes events down, where there is a recording.
    pub(super) fn recorder(&self) -> Option<Tell> {
        self.recorder.as_ref().map(|recorder| Arc::clone(&recorder.tell))
    }

    /// What is held now.
    pub(super) fn see(&mut self, hold: &Hold) {
        let held: HashSet<u64> = hold.paced().iter().map(|paced| paced.named.socket.cookie).collect();
        self.by_rule.retain(|cookie, _| held.contains(cookie));
        self.by_pool.retain(|cookie, _| held.contains(cookie));
        if self.recorder.is_none() {
            return;
        }
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let class = self.class_words();
        let state = FlowState {
            at: now(),
            by: newest.by.clone(),
            rate_bps: hold.class_bps().map(|bps| bps as f64),
            rate_by: class.unwrap_or_default().to_owned(),
            rules: self.rules(),
            held: hold.paced().iter().map(|paced| self.held(paced, class)).collect(),
            held_in_all: hold.paced().len() as u64,
            ..FlowState::default()
        };
        *newest = state;
    }

    /// Ends the recording: nobody is held any more.
    pub(super) fn stop(self) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        (newest.at, newest.held_in_all, newest.rules) = (now(), 0, self.rules());
        newest.held.clear();
        drop(newest);
        if let Some(Err(error)) = self.recorder.map(Recorder::stop) {
            tracing::warn!(%error, "the recording is not whole");
        }
    }

    fn held(&self, paced: &Paced, class: Option<&str>) -> FlowHeld {
        let socket = &paced.named.socket;
        let (user, rule) = self.known(socket.cookie).cloned().unzip();
        let share = |class: &str| format!("its share of {class}");
        FlowHeld {
            session: u64::try_from(socket.pid).unwrap_or_default(),
            user: user.unwrap_or_default(),
            client: socket.peer.to_string(),
            rule,
            state: paced.named.title.clone(),
            for_s: now().seconds_since(paced.since),
            sent_bytes: paced.sent_bytes,
            allowed_bps: Some(paced.granted_bps as f64),
            bound_by: class.map_or_else(|| "--rate".to_owned(), share),
            ..FlowHeld::default()
        }
    }
}

#[cfg(test)]
impl Told {
    /// Without a recording.
    pub(super) fn unrecorded() -> Told {
        let (by_rule, by_pool) = (HashMap::new(), HashMap::new());
        let (newest, governs, acted) = (Arc::default(), State::default(), HashMap::new());
        Told { recorder: None, newest, governs, acted, class: None, by_file: true, by_rule, by_pool }
    }
}

fn by(arguments: &Arguments) -> String {
    // A connection string may hold a password: what is watched is told without it.
    let by_rule = !arguments.rule.is_empty() || arguments.config.is_some();
    let what = if by_rule { "sessions by rule" } else { "sessions by name" };
    format!("attach mode, {what}")
}

/// When, how much until then, and at what rate, by the client's address.
type Sent = HashMap<String, (Moment, u64, Option<f64>)>;

/// Puts to each what it was sent a second since the state before; returns what the next one is compared with.
fn rated(state: &mut FlowState, before: &Sent) -> Sent {
    for held in &mut state.held {
        held.rate_bps = before.get(&held.client).and_then(|(then, had, rate)| {
            let seconds = state.at.seconds_since(*then);
            // The same look again, as at the end, tells the same.
            if seconds > 0.0 { Some(held.sent_bytes.saturating_sub(*had) as f64 / seconds) } else { *rate }
        });
    }
    state.held.iter().map(|held| (held.client.clone(), (state.at, held.sent_bytes, held.rate_bps))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use backwater_flow::SessionId;
    use backwater_flow::rule::{Lifted, Why};

    #[test]
    fn a_rule_that_only_tells_or_aborts_holds_nobody() {
        let mut told = Told::unrecorded();
        let decision = |action: Action, step: Step| Decision {
            at: Moment(0),
            step,
            rule: action.word().to_owned(),
            action,
            session: SessionId(7),
            user: "etl".to_owned(),
            pool: "batch".to_owned(),
            client: None,
            server_pid: None,
            statement: 1,
            over: Vec::new(),
        };
        let lifted = Step::Lifted(Lifted { began: Moment(0), cooldown_since: None, why: Why::StatementEnded });
        told.pooled(9, "etl", "batch");
        for (action, step, holder) in [
            (Action::DryRun, Step::Began, "pool batch"),
            (Action::Penalty, Step::Began, "penalty"),
            (Action::Abort, Step::Began, "penalty"),
            (Action::Penalty, lifted, "pool batch"),
        ] {
            told.decided(&decision(action, step), Some(9));
            assert_eq!(told.holder(9), holder, "{action} {}", step.word());
        }
    }

    #[test]
    fn a_rate_is_what_was_sent_between_two_looks() {
        let state = |second: i64, sent_bytes| FlowState {
            at: Moment(second * 1_000_000),
            held: vec![FlowHeld { session: 7, sent_bytes, ..FlowHeld::default() }],
            ..FlowState::default()
        };
        let (mut first, mut second, mut same) = (state(1, 100), state(3, 700), state(3, 700));
        let before = rated(&mut first, &HashMap::new());
        let between = rated(&mut second, &before);
        rated(&mut same, &between);
        assert_eq!([&first, &second, &same].map(|state| state.held[0].rate_bps), [None, Some(300.0), Some(300.0)]);
    }
}
