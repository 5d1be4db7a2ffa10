//! One table being written: rows in memory for a second, then in the tail, then in a segment.

use crate::shelf::Shelf;
use crate::table::Rows;
use crate::tail::Tail;
use crate::{Options, RecordError};
use backwater_model::Moment;
use std::path::Path;

/// The texts of a tail are kept in memory, and copied when there is a new one: a tail is closed when they reach this
/// share of a segment.
const TEXTS_SHARE: u64 = 4;

/// One table's way to disk.
pub(crate) struct Lane<R> {
    pub(crate) rows: R,
    pub(crate) shelf: Shelf,
    tail: Option<Tail>,
    tail_rows: u64,
}

impl<R: Rows + Default> Lane<R> {
    /// Opens or makes the table in a recording.
    pub(crate) fn open(recording: &Path, options: &Options) -> Result<Self, RecordError> {
        let shelf = Shelf::open(recording, R::TABLE, options.durable)?;
        Ok(Lane { rows: R::default(), shelf, tail: None, tail_rows: 0 })
    }

    /// Writes what waits to the tail.
    pub(crate) fn flush(&mut self, now: Moment, options: &Options) -> Result<(), RecordError> {
        let rows = self.rows.len();
        if rows == 0 {
            return Ok(());
        }
        let mut tail = match self.tail.take() {
            Some(tail) => tail,
            None => {
                let sequence = self.shelf.take_sequence();
                Tail::create(&self.shelf.dir, R::TABLE, sequence, now, options.durable)?
            }
        };
        let batch = self.rows.take().map_err(|error| RecordError::encode(tail.path(), error))?;
        let appended = tail.append(&batch);
        if appended.is_ok() {
            // After an error the tail is left as it is: further batches would refer to texts that it lacks.
            self.tail = Some(tail);
            self.tail_rows += rows as u64;
        }
        appended
    }

    /// Closes the tail if it is old or large enough and makes it into a segment. Returns whether it did.
    pub(crate) fn close_if_due(&mut self, now: Moment, options: &Options) -> Result<bool, RecordError> {
        let due = self.tail.as_ref().is_some_and(|tail| {
            now.seconds_since(tail.started) >= options.segment_seconds as f64
                || tail.bytes() >= options.segment_bytes
                || self.rows.text_bytes() as u64 >= options.segment_bytes / TEXTS_SHARE
        });
        if due {
            self.flush(now, options)?;
            self.close_tail()?;
            self.shelf.join_small(options)?;
        }
        Ok(due)
    }

    /// Makes the tail, and any left behind by an error, into segments. Nothing may wait.
    pub(crate) fn close_tail(&mut self) -> Result<(), RecordError> {
        self.tail = None;
        self.tail_rows = 0;
        self.rows.forget_texts();
        self.shelf.fold_all()
    }

    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.shelf.bytes() + self.tail.as_ref().map_or(0, Tail::bytes)
    }

    /// Rows on disk.
    pub(crate) fn rows_written(&self) -> u64 {
        self.shelf.rows() + self.tail_rows
    }
}
