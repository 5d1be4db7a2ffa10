//! Loads for servers: what clients do, how hard they are driven, and what came of it.

pub mod commit_batches;
mod counters;
mod data;
mod driver;
#[cfg(test)]
mod driver_tests;
mod error;
mod halt;
mod member;
pub(crate) mod overload;
mod pgbench;
mod result;
mod schedule;
mod script;
mod storm;
mod tpcb;
pub(crate) mod wt;

pub use counters::{Counters, LoadProbe};
pub use data::{TpcbSpec, initialise};
pub use driver::{Failure, LoadSpec, Local, Session, Workload, run, run_telling};
pub use error::WorkloadError;
pub use member::connect;
pub use pgbench::Pgbench;
pub use result::{Driven, Latencies, LatencySummary, LoadResult};
pub use schedule::Arrivals;
pub use script::{Protocol, Script};
pub use storm::{Storm, StormSpec};
pub use tpcb::Tpcb;

pub(crate) use data::check_scale;
pub(crate) use driver::config;
pub(crate) use schedule::Schedule;

/// As in pgbench.
pub(crate) const ACCOUNTS_PER_BRANCH: u32 = 100_000;
/// As in pgbench.
pub(crate) const TELLERS_PER_BRANCH: u32 = 10;
