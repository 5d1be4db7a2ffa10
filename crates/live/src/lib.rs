//! What is seen now, for those who look: the page served live, figures for Prometheus, the terminal view, and a command that is
//! run when a finding begins.
//!
//! Readings come to all of them one way: probes → [`Feed`] (the last minutes in memory) → a window → `diagnose`. A recording is
//! looked at by the same functions, also while it is being written. Nothing here changes anything it watches.

mod alerts;
mod error;
mod feed;
mod flown;
mod hook;
pub mod http;
pub mod metrics;
mod names;
mod running;
pub mod screen;
mod sources;

pub use alerts::{Alerts, Turn};
pub use error::LiveError;
pub use feed::{Feed, ahead_of, found_now};
pub use hook::Hook;
pub use names::tell_apart;
pub use sources::{Kind, Seen, Source};
