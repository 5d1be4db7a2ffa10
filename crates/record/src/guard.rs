//! Damaged files make the decoders of foreign crates panic now and then (arrow-ipc 60 does, on a flipped bit in a
//! buffer's offset). A recording with one such file must still be read, so those panics become errors here.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a decoder; none if it panicked. What it was working on must not be used afterwards.
pub(crate) fn decode<T>(decoder: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(decoder)).ok()
}
