//! The lab: starts real servers, slows their disks, loads them, records and diagnoses them, and puts the host back.

mod arm;
mod client;
mod describe;
mod doubts;
mod error;
pub mod limits;
mod load;
pub mod metrics;
pub mod progress;
mod rig;
mod run;
pub mod scenario;
pub mod servers;
mod watching;
pub mod workloads;

pub use describe::describe;
pub use error::LabError;
pub use rig::RunOptions;
pub use run::run;
