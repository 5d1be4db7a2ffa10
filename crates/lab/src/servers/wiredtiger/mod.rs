//! The WiredTiger engine, driven by a program of its own: the engine's licence keeps it out of this one, so it is built
//! where the headers are installed, started as a process, and spoken with in lines of JSON (wt-driver/README.md).

mod process;
mod program;
#[cfg(test)]
mod real_tests;

pub use process::{EngineEvents, WiredTiger, WiredTigerSpec};
pub use program::{check_runs, find_or_build, installed};
