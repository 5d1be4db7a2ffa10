//! What a rule did to a session, as a value: for the log, the recording, and whoever was slowed and asks why.

use super::{Action, Over};
use crate::SessionId;
use crate::word::words;
use backwater_model::{Event, EventKind, Moment};
use std::fmt;

words! {
    /// Why something was lifted.
    pub enum Why: "a reason" {
        /// The statement ended, and the rule's cool-down passed.
        StatementEnded = "the statement ended",
        /// The session ended.
        SessionEnded = "the session ended",
        /// The rule was dropped, or is no longer a rule of the session's pool, or has another action now.
        RuleGone = "the rule no longer applies",
        /// The session held a lock that urgent work waited for.
        BlockedUrgent = "it blocked urgent work",
        /// It was to be stopped and did not run, so that nothing was done.
        NotRun = "the statement did not run",
        /// The server tells no more of it, and nobody else sees it (encrypted through to it, or held from outside).
        Unseen = "the server tells no more of it",
        /// Whoever holds has ended, and lets everybody go.
        Ended = "Backwater ended",
    }
}

/// The end of something that a rule did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifted {
    /// When it had begun.
    pub began: Moment,
    /// When its last statement was seen to have ended: from then on it cooled down. None where it had not.
    pub cooldown_since: Option<Moment>,
    /// Why it ended.
    pub why: Why,
}

/// Which step this is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// The rule matched: its action is to be taken now (or would be, for a dry run).
    Began,
    /// The statement was to be aborted and still runs: the session is to be ended now.
    Escalated,
    /// It is over: the penalty ends now, and what was aborted or only told of, with the rule's cool-down, has ended.
    Lifted(Lifted),
}

/// How often a rule did what it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acted {
    /// How often it matched.
    pub began: u64,
    /// How often a session had to be ended.
    pub escalated: u64,
    /// How often what it did was over.
    pub lifted: u64,
}

impl Acted {
    /// Counts a step more.
    pub fn count(&mut self, step: Step) {
        match step {
            Step::Began => self.began += 1,
            Step::Escalated => self.escalated += 1,
            Step::Lifted(_) => self.lifted += 1,
        }
    }
}

/// One thing that a rule did.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Moment,
    /// Which step.
    pub step: Step,
    /// By which rule.
    pub rule: String,
    /// Its action.
    pub action: Action,
    /// To whom.
    pub session: SessionId,
    /// Whose session it is.
    pub user: String,
    /// In which pool.
    pub pool: String,
    /// Its client, as an address where it has one; None where that is not told.
    pub client: Option<String>,
    /// The server's process that serves it, where that is told.
    pub server_pid: Option<i32>,
    /// The number of the statement in its session.
    pub statement: u64,
    /// The figures that were over when it began, with what the rule allows.
    pub over: Vec<Over>,
}

impl Decision {
    /// As an event of a recording.
    pub fn event(&self, source: &str) -> Event {
        let session = self.session.to_string();
        let statement = self.statement.to_string();
        let mut fields = vec![
            ("rule", self.rule.as_str()),
            ("action", self.action.word()),
            ("step", self.step.word()),
            ("session", &session),
            ("user", &self.user),
            ("pool", &self.pool),
            ("statement", &statement),
        ];
        let server_pid = self.server_pid.map(|pid| pid.to_string());
        fields.extend(self.client.as_deref().map(|client| ("client", client)));
        fields.extend(server_pid.as_deref().map(|pid| ("server_pid", pid)));
        let began;
        if let Step::Lifted(lifted) = self.step {
            began = lifted.began.0.to_string();
            fields.extend([("began", began.as_str()), ("why", lifted.why.word())]);
        }
        let figures: Vec<_> = self.over.iter().map(|over| (over.attribute.word(), shown(over.value))).collect();
        fields.extend(figures.iter().map(|(name, value)| (*name, value.as_str())));
        Event::new(self.at, source, EventKind::Decision, self.to_string(), &fields)
    }

    /// The session, for people: with its client and the server's process it is found also where it has ended.
    fn whose(&self) -> String {
        let Decision { session, user, pool, .. } = self;
        let client = self.client.as_ref().map(|client| format!(", client {client}")).unwrap_or_default();
        let process = self.server_pid.map(|pid| format!(", server process {pid}")).unwrap_or_default();
        format!("session {session} (user {user}, pool {pool}{client}{process})")
    }

    /// What was over, for people.
    fn figures(&self) -> String {
        let figure = |over: &Over| {
            let unit = over.attribute.unit();
            format!("{} {} over {} {unit}", over.attribute, shown(over.value), shown(over.threshold))
        };
        self.over.iter().map(figure).collect::<Vec<_>>().join(", ")
    }
}

impl Lifted {
    /// The cool-down that ended with it, for people; nothing where there was none. One that another statement cut short is not counted.
    fn cooldown(&self, at: Moment) -> String {
        let seconds = self.cooldown_since.map_or(0.0, |since| at.seconds_since(since));
        if seconds > 0.0 { format!(", the last {seconds:.1} s of it cool-down") } else { String::new() }
    }
}

impl Step {
    /// The step in one word.
    pub fn word(self) -> &'static str {
        match self {
            Step::Began => "began",
            Step::Escalated => "escalated",
            Step::Lifted(_) => "lifted",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, whose) = (&self.rule, self.whose());
        match (self.step, self.action) {
            (Step::Lifted(lifted), action) => {
                let (does, began) = match action {
                    Action::DryRun => ("would leave", "seen"),
                    Action::Penalty => ("lifts its penalty of", "imposed"),
                    Action::Abort => ("has done with", "cancelled"),
                };
                let seconds = self.at.seconds_since(lifted.began);
                write!(f, "rule {rule} {does} {whose} after {seconds:.1} s{}: ", lifted.cooldown(self.at))?;
                write!(f, "{} ({began} at {})", lifted.why, self.figures())
            }
            (Step::Escalated, _) => {
                write!(
                    f,
                    "rule {rule} ends {whose}: its statement was cancelled and still runs (cancelled at {})",
                    self.figures()
                )
            }
            (Step::Began, action) => {
                let does = match action {
                    Action::DryRun => "would act on",
                    Action::Penalty => "demotes",
                    Action::Abort => "cancels the statement of",
                };
                write!(f, "rule {rule} {does} {whose}: {}", self.figures())
            }
        }
    }
}

/// A figure with at most three decimals, none where it is whole.
fn shown(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
