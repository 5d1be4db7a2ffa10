//! Figures for Prometheus, as OpenMetrics text: every queue's level, limits, rates and time to its limit, and what is found.
//!
//! Names and units follow the conventions: base units in the name, seconds for every time, bytes for every size. What cannot be
//! known has no sample: nothing is ever told as zero that was not read as zero.

mod families;
mod pulse;
mod text;

pub use families::{FAMILIES, Subject, families};
pub use pulse::{FRESH_S, Pulse};
pub use text::{Family, Format, Sample, Type, write};
