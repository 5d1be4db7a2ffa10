//! What moves work from one queue to the next, and the devices, links and processors it needs for that.

use crate::Unit;
use serde::{Deserialize, Serialize};

/// How a stage spent a window, as shares of its length, each 0 to 1 or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// It was moving work.
    pub busy: Option<f64>,
    /// It could not go on because the next queue was full.
    pub blocked: Option<f64>,
    /// It had nothing to do.
    pub starved: Option<f64>,
}

/// Where a ceiling is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CeilingSource {
    /// A limit somebody set: a cgroup's, a shaper's.
    Configured,
    /// A rating somebody told: a cloud volume's.
    Declared,
    /// The best rate it was seen to reach.
    Measured,
}

/// The most a stage can move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Units a second.
    pub per_second: f64,
    /// In units of what.
    pub unit: Unit,
    /// How it is known.
    pub source: CeilingSource,
}

/// What moves work between two queues. An end that lies outside the system (a client, durable storage) has no queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// `flusher@7:0`, `walsender@s1`…
    pub name: String,
    /// The queue it takes from.
    pub from: Option<String>,
    /// The queue it puts into.
    pub to: Option<String>,
    /// How it spent the window.
    pub shares: Shares,
    /// What it moves now, units a second.
    pub rate_per_s: Option<f64>,
    /// The most it can move.
    pub ceiling: Option<Ceiling>,
    /// The device, link or processor it needs.
    pub resource: Option<String>,
}

impl Stage {
    /// Rate ÷ ceiling.
    pub fn utilisation(&self) -> Option<f64> {
        let ceiling = self.ceiling.filter(|ceiling| ceiling.per_second > 0.0)?;
        Some(self.rate_per_s? / ceiling.per_second)
    }
}

/// A device, a link or a processor, shared by stages of several systems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// `disk 7:0`, `link eth0`, `cpu`.
    pub name: String,
    /// Share of the window in which it worked.
    pub busy: Option<f64>,
    /// What caps it, if anything.
    pub ceiling: Option<Ceiling>,
}
