//! Queues and stages of one system as a graph, and the rule that names the stage that binds.

use crate::{Queue, Stage};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Queues and the stages between them. Stages are in no particular order; queues are named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// The queues.
    pub queues: Vec<Queue>,
    /// The stages.
    pub stages: Vec<Stage>,
}

/// The stage that holds everything up, and whom it holds up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// The stage's name.
    pub stage: String,
    /// The backlogged queue before it.
    pub queue: String,
    /// Share of the window in which it was neither blocked nor starved.
    pub unhindered: f64,
    /// Queues upstream: their backlog is its doing.
    pub victims: Vec<String>,
}

/// A queue counts as backlogged when what stands in it needs this long to leave, in seconds, or fills this share of its limit.
const BACKLOGGED_S: f64 = 0.5;
const BACKLOGGED_FILL: f64 = 0.5;
/// The binding stage must lead the next one by this much of the window, or the shares do not tell.
const CLEAR_LEAD: f64 = 0.15;
/// A stage that was hindered for most of the window binds nothing.
const LEAST_UNHINDERED: f64 = 0.5;
/// A queue is full, however small it is, if whoever puts into it is blocked by it for this share of the window: a
/// socket's buffer holds a few megabytes, which a fast link carries away in a blink.
const FULL: f64 = 0.5;

impl Path {
    /// The queue of this name.
    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.name == name)
    }

    /// The binding stage: of those whose queue is backlogged (or full, since the stage before it is blocked), the one least
    /// blocked and least starved. None where nothing is backlogged, where a candidate's queue or shares are unknown (it might be the one), or where two are
    /// too close to call: "unknown" is better than a guess.
    pub fn binding(&self) -> Option<Binding> {
        let mut ranked = Vec::new();
        for stage in &self.stages {
            let Some(from) = stage.from.as_deref() else { continue };
            let queue = self.queue(from)?;
            if self.full(from) || backlogged(queue)? {
                ranked.push((unhindered(stage)?, stage, queue));
            }
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (best, stage, queue) = *ranked.first()?;
        let clear = ranked.get(1).is_none_or(|next| best - next.0 >= CLEAR_LEAD);
        (clear && best >= LEAST_UNHINDERED).then(|| Binding {
            stage: stage.name.clone(),
            queue: queue.name.clone(),
            unhindered: best,
            victims: self.upstream_of(&queue.name),
        })
    }

    /// Whether a stage that puts into this queue is blocked by it for most of the window.
    fn full(&self, queue: &str) -> bool {
        let into = |stage: &&Stage| stage.to.as_deref() == Some(queue);
        self.stages.iter().filter(into).any(|stage| stage.shares.blocked.is_some_and(|share| share >= FULL))
    }

    /// Names of all queues from which work flows into this one, nearest first.
    pub fn upstream_of(&self, queue: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut frontier = VecDeque::from([queue.to_owned()]);
        while let Some(name) = frontier.pop_front() {
            for stage in self.stages.iter().filter(|stage| stage.to.as_deref() == Some(name.as_str())) {
                if let Some(from) = &stage.from
                    && from != queue
                    && !found.contains(from)
                {
                    found.push(from.clone());
                    frontier.push_back(from.clone());
                }
            }
        }
        found
    }
}

/// Whether a queue is backlogged; none where too little is known to say.
fn backlogged(queue: &Queue) -> Option<bool> {
    if queue.level? <= 0.0 {
        return Some(false);
    }
    let by_fill = queue.fill().map(|fill| fill >= BACKLOGGED_FILL);
    // Something stands and nothing leaves: the longest residence there is.
    let by_time = queue.outflow_per_s.map(|_| queue.residence_s().is_none_or(|s| s >= BACKLOGGED_S));
    match (by_fill, by_time) {
        (None, None) => None,
        (fill, time) => Some(fill.unwrap_or(false) || time.unwrap_or(false)),
    }
}

/// Share of the window in which a stage was neither blocked nor starved. Both must be known.
fn unhindered(stage: &Stage) -> Option<f64> {
    Some((1.0 - stage.shares.blocked? - stage.shares.starved?).clamp(0.0, 1.0))
}
