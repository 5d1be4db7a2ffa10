//! Reads the host and the servers: points, samples and events out of kernel files, netlink and SQL.
//!
//! A [`Probe`] is looked at by one thread of its own at absolute deadlines ([`Observer`]), or taken along by one that is
//! awake anyway where its looks are brief; whatever it reads goes into a [`Batch`](backwater_model::Batch) and through one bounded channel. A probe that fails leaves a gap event
//! and is tried again with backoff; the others run on.

mod clock;
mod error;
mod failing;
pub mod host;
pub mod mongodb;
mod observer;
pub mod postgres;
mod rights;
pub mod session;
mod sink;

/// Readers of foreign bytes, for the fuzzer alone: nothing else is built with this.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::host::exercise as kernel;
    pub use crate::mongodb::exercise_log as mongodb_log;
    pub use crate::postgres::{
        exercise_conninfo as conninfo, exercise_log as postgres_log, exercise_memory as memory, exercise_rows as rows,
    };
}

pub use clock::{Ticker, anchor, now};
pub use error::ProbeError;
pub use observer::{Observer, Source};
pub use sink::Sink;

/// Something that can be read again and again. Reading is synchronous: a probe that needs async I/O has a
/// current-thread runtime of its own.
pub trait Probe: Send {
    /// A short name for gaps and missed ticks: `host.disk`, `postgres.sessions`.
    fn name(&self) -> &str;

    /// How often it should be read.
    fn period(&self) -> std::time::Duration;

    /// Whether a look takes some tens of microseconds and waits for nobody, so that a thread that is awake for another probe
    /// may take it along.
    fn is_brief(&self) -> bool {
        false
    }

    /// One look. What cannot be read on this host or with this role is left out and reported once ([`Sink::absent`]) as an
    /// [`Absent`](backwater_model::EventKind::Absent) event; an error means that this look failed as a whole.
    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError>;
}
