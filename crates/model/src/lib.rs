//! The words of Backwater and their arithmetic: what is measured ([`Series`], [`Point`]), the queues
//! seen in it ([`Queue`]), the stages between them ([`Stage`]), the graph they form ([`Path`]), and the
//! claims made about it ([`Finding`]).
//!
//! Nothing here does I/O, reads a clock or is async: every other crate can depend on it, and all of it
//! can be tested with made-up numbers.

pub mod catalogue;
mod event;
mod finding;
mod flow;
mod holes;
mod meta;
mod open_gaps;
mod outcome;
mod path;
mod point;
mod process_use;
mod queue;
mod registry;
mod sample;
mod series;
mod stage;
mod time;
mod units;
mod wait;
mod window;

pub use event::{Event, EventKind, Gaps, SOME_CONNECTIONS};
pub use finding::{Activation, Confidence, Figure, Finding, Remedy, RuledOut, Severity, Unseen};
pub use flow::{FlowHeld, FlowPool, FlowRule, FlowState};
pub use holes::Holes;
pub use meta::{ClockAnchor, DeclaredVolume, Device, HostFacts, Meta, Role, Target};
pub use open_gaps::OpenGaps;
pub use outcome::{
    Advised, AimOutcome, ArmOutcome, ArmTable, BETWEEN_WORDS, Expected, ExpectedAll, Foretold, Outcome, ParamValue,
    SESSION_SHARES,
};
pub use path::{Binding, Path};
pub use point::{Batch, Epoch, Point, Rate, RateError, Track, rate_between};
pub use process_use::{ProcessUse, SessionUse};
pub use queue::{Queue, QueueSpec, Source, Term};
pub use registry::Registry;
pub use sample::{Sample, Text};
pub use series::{Kind, Labels, Provenance, Series, SeriesId};
pub use stage::{Ceiling, CeilingSource, Resource, Shares, Stage};
pub use time::{Moment, Span};
pub use units::{Bytes, BytesPerSecond, Lsn, ParseUnitError, PerSecond, Unit};
pub use wait::{CARRIERS, CommitWait, Doing, canonical_wait, is_nap};
pub use window::{Window, settings_at};
