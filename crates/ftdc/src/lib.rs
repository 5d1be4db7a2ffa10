//! MongoDB's flight recorder (full-time diagnostic data capture: `diagnostic.data/metrics.*`), read and written.
//!
//! Every mongod and mongos writes, once a second, all that `serverStatus`, `replSetGetStatus` and the host say, into
//! files that nobody looks at until something broke. This crate reads them: fast, with bounded memory, whatever is
//! wrong with them. It depends on nothing else of Backwater.
//!
//! ```
//! use ftdc::{Selection, Source};
//!
//! # fn main() -> Result<(), ftdc::FtdcError> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let sample = ftdc::Builder::new().date("start", 1_000).int32("connections", 7).finish();
//! # let mut encoder = ftdc::encode::Encoder::default();
//! # encoder.add(1_000, &sample).unwrap();
//! # let path = dir.path().join("metrics.2026-01-01T00-00-00Z-00000");
//! # std::fs::write(&path, encoder.finish().unwrap()).unwrap();
//! let source = Source::open(&path)?;
//! for batch in source.select(&Selection::of(["*connections*"]), i64::MIN..i64::MAX) {
//!     let batch = batch?; // damage has a file and an offset; the next batch is what lies behind it
//!     for (metric, values) in batch.columns() {
//!         println!("{}: {values:?} at {:?}", metric.path, batch.times_ms());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! From below to above: [`Documents`] are the documents of anything that can be read; [`Source`] is a file or a
//! directory in its order; [`Decoder`] opens a chunk, whose values come as a [`Matrix`], column by column, or for some
//! metrics only; [`parallel::decode`] uses several processors; [`Source::select`] gives named metrics of a stretch of
//! time; [`Source::summarise`] and [`export`] are what the command line shows.
//!
//! The format (there is no specification; `src/mongo/db/ftdc/` in MongoDB's source is what it is): BSON documents
//! `{_id: date, type, ...}` one after the other. Type 0 is metadata, 2 a change of it (since 8.0), 1 a chunk: in its
//! `data` four bytes of length and a zlib stream of a reference document (the first sample), two counts, and for each
//! number in the reference document the differences from sample to sample as varints, runs of zeros counted.

mod bson;
mod build;
mod chunk;
mod decimal;
mod deltas;
mod document;
pub mod encode;
mod error;
pub mod export;
mod frames;
mod json;
mod limits;
mod metadata;
pub mod parallel;
mod rebuild;
mod schema;
mod select;
mod source;
mod summary;
mod timeline;

pub use bson::{Element, Elements, elements, find, find_path};
pub use build::Builder;
pub use chunk::{Chunk, Decoder, Matrix};
pub use document::{Document, DocumentKind};
pub use error::{Damage, Fault, FtdcError};
pub use frames::Documents;
pub use json::{time_text, to_json};
pub use limits::Limits;
pub use metadata::{Metadata, ROLES};
pub use schema::{Metric, MetricKind, Schema};
pub use select::{Batch, Selection};
pub use source::{Source, SourceDocuments, SourceFile};
pub use summary::{GAP_MS, MetricSummary, Summary};
pub use timeline::{Misplaced, Timeline, Times};
