//! Rules and advice: pure functions of a [`Window`](backwater_model::Window). No I/O, no clock: everything here is
//! tested on recorded and simulated data.
//!
//! [`diagnose`] says what is wrong now, [`warn`] what soon will be, [`advise`] what to set, [`compare`] what a change did.
//! A window that is healthy, idle, full of holes or short of readings yields nothing: silence is better than a wrong claim; whether it
//! was full of holes [`blind`] says.

mod advise;
mod blind;
mod caps;
pub mod cliff;
pub mod commit;
mod compare;
mod device;
pub mod drain;
mod figures;
mod gather;
mod grid;
mod heartbeats;
mod iops;
mod limits;
mod predict;
mod queues;
mod remedy;
mod replication;
mod rules;
mod scene;
mod throughput;
mod unseen;
mod waits;
mod warn;

pub use advise::{
    Advice, AdviseOptions, DeviceAdvice, EngineAdvice, EngineChange, EngineOptions, LimitAdvice, Mechanism,
    StandbyAdvice, SurviveOptions, advise, advise_engines, advise_standbys,
};
pub use blind::{Blind, Sight, blind, lock_waits};
pub use compare::{Change, Comparison, Measure, compare};
pub use gather::gather;
pub use heartbeats::Heartbeats;
pub use iops::IopsRow;
pub use limits::LimitOwner;
pub use predict::{Basis, CliffPrediction, DrainPrediction, drain_time, time_to_cliff};
pub use queues::{all_queues, queues};
pub use replication::{
    Holder, Retention, replication_path, replication_queues, retained_queue, retention, standby_names, standby_queues,
};
pub use rules::{RULES, RuleInfo, ShardFigure, ShardRow, Shards, diagnose, rule};
pub use throughput::{Counted, throughput};
pub use warn::warn;

/// What rules need to know beside the readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Remedies shall let everything dirty be written within so many seconds.
    pub drain_target_s: f64,
    /// Price of one provisioned I/O operation a second, a month, in whatever currency.
    pub price_per_iops: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Options { drain_target_s: 30.0, price_per_iops: None }
    }
}
