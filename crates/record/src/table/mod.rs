//! The three tables of a recording: their columns, the order of their rows, and how each column is packed.
//!
//! Columns may be added at the end, never retyped or given another meaning: a reader gives null for a column that
//! is missing and leaves out one that it does not know.

mod columns;
mod events;
mod points;
mod samples;
mod text;

pub(crate) use columns::{Columns, Misfit, TextPool};
pub(crate) use events::{EventRows, each_event};
pub(crate) use points::{PointRows, each_point};
pub(crate) use samples::{SampleRows, each_sample};
pub(crate) use text::Interner;

use crate::meta_file::FORMAT_VERSION;
use arrow_array::builder::{ArrayBuilder, PrimitiveBuilder};
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{PrimitiveArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::basic::Encoding;
use std::collections::HashMap;
use std::sync::Arc;

/// The key of the format version in the metadata of tails and segments.
pub(crate) const VERSION_KEY: &str = "backwater.format_version";
/// The key of the table's name in the metadata of tails and segments.
pub(crate) const TABLE_KEY: &str = "backwater.table";
/// The column of time in every table: microseconds of CLOCK_BOOTTIME.
pub(crate) const AT: &str = "at_us";

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Points,
    Samples,
    Events,
}

impl Table {
    pub(crate) const ALL: [Table; 3] = [Table::Points, Table::Samples, Table::Events];

    /// Name of the table and of its directory.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Table::Points => "points",
            Table::Samples => "samples",
            Table::Events => "events",
        }
    }

    /// Columns, in tails and in segments.
    pub(crate) fn schema(self) -> SchemaRef {
        let fields: Vec<Field> = match self {
            Table::Points => points::fields(),
            Table::Samples => samples::fields(),
            Table::Events => events::fields(),
        };
        let version = (VERSION_KEY.to_owned(), FORMAT_VERSION.to_string());
        let table = (TABLE_KEY.to_owned(), self.name().to_owned());
        Arc::new(Schema::new(fields).with_metadata(HashMap::from([version, table])))
    }

    /// The columns by which rows are put in order before time, so that what belongs together lies together: a
    /// series' values; and the sessions that do the same thing, since what they do takes many columns and when they
    /// do it only one.
    pub(crate) fn order(self) -> &'static [&'static str] {
        match self {
            Table::Points => &["series"],
            Table::Samples => &["wait_event", "kernel_wait", "queue", "state", "query_id", "query", "pid"],
            Table::Events => &[],
        }
    }

    /// Roughly what a row takes in a tail or in memory.
    pub(crate) fn row_bytes(self) -> u64 {
        match self {
            Table::Points => 37,
            Table::Samples => 96,
            Table::Events => 256,
        }
    }

    /// Columns that pack better than by dictionary (measured by `examples/day_size.rs`). Times are the same for
    /// all rows of a look, so zstd finds each series' times again in the next one's; whole numbers as f64 and
    /// small ages have most of their bytes in common.
    pub(crate) fn packing(self) -> &'static [(&'static str, Encoding)] {
        match self {
            Table::Points => &[(AT, Encoding::PLAIN), ("value", Encoding::BYTE_STREAM_SPLIT)],
            Table::Samples => {
                &[("query_age_ms", Encoding::BYTE_STREAM_SPLIT), ("xact_age_ms", Encoding::BYTE_STREAM_SPLIT)]
            }
            Table::Events => &[(AT, Encoding::DELTA_BINARY_PACKED)],
        }
    }
}

/// Rows on their way to a tail: kept in columns, given out once a second.
pub(crate) trait Rows {
    /// Of which table.
    const TABLE: Table;
    /// How many rows wait.
    fn len(&self) -> usize;
    /// The rows as columns; afterwards none waits. Texts are numbered on from one batch to the next.
    fn take(&mut self) -> Result<RecordBatch, ArrowError>;
    /// Begins a new tail: texts are numbered from the start.
    fn forget_texts(&mut self);
    /// Bytes of the texts numbered so far.
    fn text_bytes(&self) -> usize;
}

/// What a column holds. As much will likely come again, so room for it is left: one that grew anew each second was copied ten
/// times.
fn taken<T>(column: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(column.len());
    std::mem::replace(column, room)
}

/// The same of a column whose rows may have nothing.
fn built<T: ArrowPrimitiveType>(column: &mut PrimitiveBuilder<T>) -> PrimitiveArray<T> {
    let room = PrimitiveBuilder::with_capacity(column.len());
    std::mem::replace(column, room).finish()
}

/// A column of text as numbers into a dictionary.
fn text_field(name: &str, nullable: bool) -> Field {
    let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    Field::new(name, kind, nullable)
}
