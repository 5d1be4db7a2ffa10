//! A claim about somebody's system, with what it rests on.

use crate::{Moment, Unit};
use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// It costs, or will soon.
    Warning,
    /// The important work is suffering now.
    Critical,
}

/// How sure the finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The evidence would also fit something else that could not be seen.
    Low,
    /// One usual piece of evidence is missing.
    Medium,
    /// Independent readings agree and the alternatives were ruled out.
    High,
}

/// A number with its name and unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Snake-case name that ends in its unit, for scripts: `dirty_peak_bytes`.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// What it is, in a few words, for people.
    pub label: String,
}

impl Figure {
    /// A figure.
    pub fn new(name: &str, value: f64, unit: Unit, label: &str) -> Self {
        Figure { name: name.to_owned(), value, unit, label: label.to_owned() }
    }

    /// The value as a person reads it.
    pub fn show(&self) -> String {
        self.unit.show(self.value)
    }
}

/// A cause that was considered and found not to fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuledOut {
    /// The cause.
    pub cause: String,
    /// The reading that speaks against it.
    pub because: String,
}

/// Something that could not be read and would have made the finding surer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
    /// What would make it visible: a GRANT, a mount, a privilege.
    pub remedy: Option<String>,
}

/// What it takes for a remedy to take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// At once.
    Immediate,
    /// After a reload of the server.
    Reload,
    /// After a restart of the server.
    Restart,
}

/// Something to do about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    /// One line.
    pub title: String,
    /// Commands that change it now.
    pub runtime: Vec<String>,
    /// Commands or file contents that keep it so.
    pub persistent: Vec<String>,
    /// When it takes effect.
    pub activation: Activation,
    /// Commands that take it back.
    pub undo: Vec<String>,
    /// What will change, by how much.
    pub predicted: Vec<Figure>,
    /// What may go wrong.
    pub risk: String,
}

/// What a rule says about a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule: `dirty-throttle`.
    pub rule: String,
    /// Which of the rule's causes: `device-limit`.
    pub cause: String,
    /// How bad.
    pub severity: Severity,
    /// The queue that binds: `host.dirty@7:0`.
    pub queue: String,
    /// The server (name of its target) whose queue that is, where the queue's own name does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// From when.
    pub from: Moment,
    /// Until when.
    pub to: Moment,
    /// Share of the foreground sessions' time lost to it, 0 to 1, where samples tell.
    pub foreground_lost: Option<f64>,
    /// One or two sentences in plain words, with the figures that matter.
    pub summary: String,
    /// What it rests on.
    pub evidence: Vec<Figure>,
    /// What it is not.
    pub ruled_out: Vec<RuledOut>,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
    /// How sure.
    pub confidence: Confidence,
    /// Queues that suffer from it.
    pub victims: Vec<String>,
    /// What to do.
    pub remedies: Vec<Remedy>,
}

impl Finding {
    /// The value of one piece of evidence.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.evidence.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// What it says, whenever it holds: rule, cause, queue, and of which server. Servers have queues of the same name.
    pub fn claim(&self) -> (&str, &str, &str, Option<&str>) {
        (&self.rule, &self.cause, &self.queue, self.server.as_deref())
    }

    /// Whether it can be of a queue of this server; either may be of no server.
    pub fn concerns(&self, server: Option<&str>) -> bool {
        self.server.as_deref().zip(server).is_none_or(|(own, server)| own == server)
    }
}
