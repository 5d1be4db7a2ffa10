//! What a lab run says: one JSON document with fixed names that scripts may rely on.

use crate::{Finding, HostFacts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an arm was expected to be diagnosed with, and whether it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The rule; none where no finding is expected.
    pub rule: Option<String>,
    /// The rule's cause; none where any will do.
    pub cause: Option<String>,
    /// Whether every repeat was diagnosed so.
    pub met: bool,
}

/// Whether all arms met their expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedAll {
    /// All of them did.
    pub met: bool,
}

/// One arm of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmOutcome {
    /// Its name.
    pub name: String,
    /// What was set for it.
    pub params: BTreeMap<String, ParamValue>,
    /// Medians over its repeats; a metric that no repeat could measure is left out.
    pub metrics: BTreeMap<String, f64>,
    /// Smallest and largest value over its repeats.
    pub spread: BTreeMap<String, [f64; 2]>,
    /// How often it ran.
    pub repeats: usize,
    /// What was expected and seen.
    pub expected: Expected,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
