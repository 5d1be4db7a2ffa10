//! The limits that the lab sets, on volumes of its own: a disk on a loop device whose requests are capped and whose
//! dirty pages are bounded, and, where it is allowed, sysctls of the whole host.
//!
//! Every change is in the undo journal before it is made, and read back after: what is not in force is an error, since
//! an experiment without its limit would prove the wrong thing.

mod bdi;
mod cap;
pub mod debugfs;
mod disk;
mod error;
mod loop_device;
mod missing;
pub mod network;
mod processor;
pub mod sysctl;
mod tool;
mod values;

pub use bdi::DirtyLimit;
pub use cap::{Cap, CapMethod};
pub use disk::{DiskSpec, SlowDisk};
pub use error::LimitError;
pub use missing::what_is_missing;
pub use network::{Narrow, Network, NetworkEnd};
pub use processor::ProcessorShare;
pub use sysctl::AllowHostChanges;

#[cfg(test)]
mod root_tests;
