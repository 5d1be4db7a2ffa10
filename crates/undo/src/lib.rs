//! The journal of changes to the host: each change is written down and synced *before* it is made, so that whatever
//! ends a run (its own end, an error, a panic, SIGKILL) the host can be put back as it was.
//!
//! A run [`begin`](Journal::begin)s a [`Journal`], [`note`](Journal::note)s each [`Change`] and then makes it.
//! [`Journal::finish`], or dropping the journal, puts everything back. What a killed run left is put back by
//! [`recover`], which every later run calls first. Putting back is idempotent: a change that was noted but never
//! made, or that is already undone, is harmless to undo again. What cannot be put back is named with the command
//! for a person ([`Left`]), and stays in the journal for the next attempt.

mod change;
mod claim;
#[cfg(test)]
mod connected_for_tests;
mod error;
mod journal;
mod lines;
mod ours;
mod put_back;
mod recover;
mod state;
mod wait;

/// Readers of foreign bytes, for the fuzzer alone: nothing else is built with this.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::lines::exercise as journal;
}

pub use change::{Change, Stop};
pub use error::{Left, UndoError};
pub use journal::{Entry, Journal, MARKER_VARIABLE};
pub use put_back::mount::{Mounted, mounted_at};
pub use put_back::process::start_time;
pub use recover::{Recovered, recover};
pub use state::default_state_dir;
