//! The lab: starts real servers, slows their disks, loads them, records and diagnoses them, and puts the host back.

mod acceptance;
mod advised;
mod arm;
mod attached;
pub mod blind;
mod client;
mod describe;
mod doubts;
mod error;
mod held;
pub mod limits;
mod load;
pub mod metrics;
mod overload;
pub mod progress;
mod rig;
mod run;
pub mod scenario;
mod search;
pub mod servers;
mod standby;
mod watching;
mod wiredtiger;
pub mod workloads;

pub use attached::run_attached;
pub use describe::describe;
pub use error::LabError;
pub use rig::RunOptions;
pub use run::run;
pub use search::{SearchOptions, search};
