//! What a lab run says: one JSON document with fixed names that scripts may rely on.

use crate::{Figure, Finding, HostFacts, Remedy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an arm was expected to be diagnosed with, and whether it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The rule; none where no finding is expected.
    pub rule: Option<String>,
    /// The rule's cause; none where any will do.
    pub cause: Option<String>,
    /// Whether every repeat was diagnosed so.
    pub met: bool,
}

/// Whether all arms met their expectation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedAll {
    /// All of them did.
    pub met: bool,
}

/// Of an arm's `shares`: samples of the load's sessions by state, wait and statement, in this order, with
/// [`BETWEEN_WORDS`] between them.
pub const SESSION_SHARES: &str = "session_shares";
/// Between the words of a share that is told of several things together.
pub const BETWEEN_WORDS: &str = " · ";

/// Readings of one repeat of an arm in the order of time, as the published tables have them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmTable {
    /// Names of the columns, each ending with its unit; the first is `at_s`, seconds since the load began.
    pub columns: Vec<String>,
    /// Rows with one value a column; none where it could not be read.
    pub rows: Vec<Vec<Option<f64>>>,
}

/// What an arm was set to by the advice that was made from another arm's recording in the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advised {
    /// The arm that was recorded.
    pub from: String,
    /// Which of its repeats it was, from 1: the worst.
    #[serde(default = "first")]
    pub repeat: usize,
    /// The queue that it relieves; empty where nothing was to be changed.
    pub relieves: String,
    /// What was set; none where it ran as the recorded arm did, since nobody was seen to wait there.
    pub remedy: Option<Remedy>,
    /// What was said instead of a remedy, or beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The figures of that recording from which it follows.
    pub observed: Vec<Figure>,
}

/// What the advice for one arm foretold of another, which is set as was advised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Foretold {
    /// The arm that it was advised for.
    pub from: String,
    /// What was advised: the remedy's title.
    pub remedy: String,
    /// The metric of which something was foretold: `elapsed_s`.
    pub metric: String,
    /// What it was to be, in the metric's unit: by the median over the repeats in which it was advised.
    pub predicted: f64,
    /// Whether that is what it was to be at most.
    pub at_most: bool,
    /// What it was: the median over the repeats.
    pub measured: f64,
}

/// Outcomes that were kept before repeats were told apart were advised from the first.
fn first() -> usize {
    1
}

/// What an arm came to of what it was to reach beside another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AimOutcome {
    /// The other arm.
    pub against: String,
    /// Latency p99 ÷ the other arm's, of medians.
    pub p99_ratio: f64,
    /// What it was to be at most.
    pub p99_ratio_most: f64,
    /// Seconds in stalls, of the repeat with the most.
    pub stall_s: f64,
    /// What they were to be at most.
    pub stall_s_most: f64,
    /// Whether both are.
    pub met: bool,
}

/// One arm of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmOutcome {
    /// Its name.
    pub name: String,
    /// What was set for it.
    pub params: BTreeMap<String, ParamValue>,
    /// Medians over its repeats; a metric that no repeat could measure is left out. What is no single number is not here:
    /// `binding_queue` and `cause` are in `labels`, `wait_shares` is in `shares`.
    pub metrics: BTreeMap<String, f64>,
    /// Smallest and largest value over its repeats.
    pub spread: BTreeMap<String, [f64; 2]>,
    /// How many of its repeats measured a metric, where not all did: its median is over those alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured_in: BTreeMap<String, usize>,
    /// What is no number, of its first repeat: where there is a standby, `rule`, `cause` and `binding_queue` of the first finding
    /// that is a warning or worse, `none` without one; of a storage engine its version, as `engine`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Shares that together make a whole, 0 to 1 each, by what they are of: `wait_shares` of the load's samples by wait event
    /// (`on CPU` among them), [`SESSION_SHARES`] by state, wait and statement. Medians over the repeats.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<String, BTreeMap<String, f64>>,
    /// Readings over time of its first repeat, where its load noted some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<ArmTable>,
    /// How often it ran.
    pub repeats: usize,
    /// What was expected and seen.
    pub expected: Expected,
    /// What was advised for it, where it runs with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advised: Option<Advised>,
    /// What was foretold of it by what was advised for other arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foretold: Vec<Foretold>,
    /// The arm with which its queues are compared: as it, without its setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// What it came to beside another arm, where it was to reach something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<AimOutcome>,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// Where it ran.
    pub machine: HostFacts,
    /// Its arms, in the scenario's order.
    pub arms: Vec<ArmOutcome>,
    /// Figures of the whole run: improvements between arms, noise floor.
    pub outcome: BTreeMap<String, f64>,
    /// What was found, over all arms.
    pub findings: Vec<Finding>,
    /// Arms that this host or user cannot run, and why not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, String>,
    /// Whether all expectations were met.
    pub expected: ExpectedAll,
    /// What makes the figures doubtful, each with what to do about it.
    pub doubts: Vec<String>,
}

/// A parameter's value as it stands in the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// true or false.
    Flag(bool),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
}
