//! Recordings on disk, in formats that any engine reads.
//!
//! A recording is a directory: `meta.json` (the host, the targets, the clock, the format's version), `series.jsonl`
//! (what is measured, by number), and the tables `points/`, `samples/` and `events/`. Each table is a row of Parquet
//! segments, named after the tails that went into them, and one live tail, an Arrow IPC stream that gets a batch a
//! second. A tail becomes a segment when it is ten minutes old or 4 MiB large; small segments are joined.
//!
//! At any moment the writer may be killed: what is lost is at most what it had not written in the last second.
//! Files are complete or have another name, a tail is read up to its last whole batch, and what is in two files for
//! a moment (a tail and its segment, segments and what they were joined into) counts once, by the numbers in the names.

mod append;
mod catalogue;
mod error;
mod export;
mod flow_file;
mod gather;
mod guard;
mod lane;
mod layout;
mod meta_file;
mod options;
mod outcome_file;
mod place;
mod pump;
mod recording;
mod retention;
mod ring;
mod segment;
mod shelf;
mod table;
mod tail;
mod view;
mod writer;

/// Readers of files that a crash may have left in any state, for the fuzzer alone: nothing else is built with this.
#[cfg(fuzzing)]
pub mod fuzzing;

pub use error::RecordError;
pub use export::export_window;
pub use flow_file::{read_flow, write_flow};
pub use options::Options;
pub use outcome_file::read_outcome;
pub use pump::{EachSecond, Pump};
pub use recording::{Recording, UNREAD};
pub use ring::Ring;
pub use writer::{Summary, Writer};
