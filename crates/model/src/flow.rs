//! What holds work back at one moment: pools, rules, and whose sessions are held at what rate. A proxy tells it, pages show it.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// The newest state of whoever holds work back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowState {
    /// When.
    pub at: Moment,
    /// Who holds it: `proxy 127.0.0.1:6432`.
    pub by: String,
    /// What all low-priority sessions together may send, in bytes a second.
    pub rate_bps: Option<f64>,
    /// What set that rate.
    pub rate_by: String,
    /// Low-priority sessions that wait for some of it now.
    pub waiting: u64,
    /// The queueing delay on the way to clients that the rate was last found from, in microseconds; none where it is fixed.
    pub queueing_us: Option<f64>,
    /// Every pool, by name.
    pub pools: Vec<FlowPool>,
    /// Every rule, by name.
    pub rules: Vec<FlowRule>,
    /// Held sessions, those that send most first; not all where there are very many.
    pub held: Vec<FlowHeld>,
    /// Held sessions in all.
    pub held_in_all: u64,
}

/// A pool with what it is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowPool {
    /// Its name.
    pub name: String,
    /// `high`, `low`.
    pub priority: String,
    /// Share among pools of its level.
    pub weight: u32,
    /// Names of its exception rules.
    pub rules: Vec<String>,
    /// Connections at most.
    pub max_connections: Option<u32>,
    /// Statements at once at most.
    pub max_active: Option<u32>,
    /// What its low-priority sessions may send, in bytes a second.
    pub bandwidth_bps: Option<f64>,
    /// Sessions that there are.
    pub sessions: u64,
    /// Statements that run.
    pub running: u64,
    /// Statements that wait for their turn.
    pub waiting: u64,
    /// Sessions that are held to the low class's rate.
    pub held: u64,
    /// Bytes that were sent to its clients so far.
    pub sent_bytes: u64,
}

/// A rule with what it has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowRule {
    /// Its name.
    pub name: String,
    /// `penalty`, `abort`, `dryrun`.
    pub action: String,
    /// What must be over, in words.
    pub conditions: String,
    /// Pools that it is a rule of.
    pub pools: Vec<String>,
    /// How often it acted.
    pub began: u64,
    /// How often a session had to be ended.
    pub escalated: u64,
    /// How often what it did was over: a penalty lifted, a statement ended that it had aborted or told of.
    pub lifted: u64,
    /// Attributes that cannot be measured here, in words; empty where all can.
    pub unseen: String,
}

/// A session that is held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowHeld {
    /// Its number.
    pub session: u64,
    /// Whose it is.
    pub user: String,
    /// Its database.
    pub database: String,
    /// Its application's name.
    pub application: String,
    /// Its client's address.
    pub client: String,
    /// Its pool.
    pub pool: String,
    /// The rule that demoted it; none where its pool is low.
    pub rule: Option<String>,
    /// What it does.
    pub state: String,
    /// For how long it has done that, in seconds.
    pub for_s: f64,
    /// Bytes it was sent so far.
    pub sent_bytes: u64,
    /// What it is sent now, in bytes a second; none until it was looked at twice.
    pub rate_bps: Option<f64>,
    /// What it may be sent, in bytes a second; where others are bound by the same, together with them.
    pub allowed_bps: Option<f64>,
    /// Who grants that: a setting, a pool's bandwidth, or a queue.
    pub bound_by: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_another_version_does_not_tell_is_not_known() {
        let state: FlowState =
            serde_json::from_str(r#"{"by": "proxy", "pools": [{"name": "a"}], "later": 1}"#).unwrap();
        assert_eq!((state.pools[0].name.as_str(), state.rate_bps, state.held.len()), ("a", None, 0));
    }
}
