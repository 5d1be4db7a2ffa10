//! The closed segments of one table: folding tails into them, joining small ones, letting go of the oldest.

use crate::gather::Gather;
use crate::layout::{self, Listing, Range, tail_name};
use crate::segment::{self, Segment};
use crate::table::Table;
use crate::tail::read_tail;
use crate::{Options, RecordError};
use backwater_model::Moment;
use std::path::{Path, PathBuf};

/// So many small neighbours are joined into one.
const JOINED_AT_ONCE: usize = 8;

/// One table's directory.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) table: Table,
    pub(crate) dir: PathBuf,
    /// Oldest first.
    pub(crate) segments: Vec<Segment>,
    next_sequence: u64,
    durable: bool,
}

impl Shelf {
    /// Opens or makes a table's directory, clears what a killed writer left over and folds its tails.
    pub(crate) fn open(recording: &Path, table: Table, durable: bool) -> Result<Self, RecordError> {
        let dir = recording.join(table.name());
        std::fs::create_dir_all(&dir).map_err(RecordError::at("create", &dir))?;
        let listing = Listing::read(&dir)?;
        for name in &listing.left_over {
            layout::remove(&dir.join(name))?;
        }
        let next_sequence = listing.next_sequence();
        let mut shelf = Shelf { table, dir, segments: Vec::new(), next_sequence, durable };
        for range in &listing.segments {
            match segment::inspect(&shelf.dir, table, *range) {
                Ok(segment) => shelf.segments.push(segment),
                Err(error @ RecordError::Damaged { .. }) => tracing::warn!("{error}"),
                Err(error) => return Err(error),
            }
        }
        shelf.fold_all()?;
        Ok(shelf)
    }

    /// The number for the next tail.
    pub(crate) fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Folds every tail on disk, of which none may be open for writing.
    pub(crate) fn fold_all(&mut self) -> Result<(), RecordError> {
        for sequence in Listing::read(&self.dir)?.tails {
            self.fold(sequence)?;
        }
        Ok(())
    }

    /// Makes a closed tail into a segment. Whoever dies between the steps leaves a tail whose segment exists, which
    /// every reader passes over.
    pub(crate) fn fold(&mut self, sequence: u64) -> Result<(), RecordError> {
        let path = self.dir.join(tail_name(sequence));
        let bytes = std::fs::read(&path).map_err(RecordError::at("read", &path))?;
        let mut rows = Gather::new(self.table);
        if let Some(warning) = read_tail(&path, bytes.into(), |batch| rows.add(&path, &batch))? {
            tracing::warn!("{warning}");
        }
        if rows.rows() > 0 {
            let range = Range { first: sequence, last: sequence };
            let segment = segment::write(&self.dir, self.table, range, rows, self.durable)?;
            self.segments.push(segment);
        }
        layout::remove(&path)
    }

    /// Joins a run of small segments, if there are enough of them. The whole stays within one segment's bounds, and
    /// so does the memory this takes.
    pub(crate) fn join_small(&mut self, options: &Options) -> Result<(), RecordError> {
        let most_rows = options.segment_bytes / self.table.row_bytes();
        let Some((start, count)) = small_run(&self.segments, most_rows) else { return Ok(()) };
        let run = start..start + count;
        let mut rows = Gather::new(self.table);
        for old in &self.segments[run.clone()] {
            segment::read(&self.dir, old.range, Moment(i64::MIN), Moment(i64::MAX), |path, batch| {
                rows.add(path, &batch)
            })?;
        }
        let range = Range { first: self.segments[start].range.first, last: self.segments[run.end - 1].range.last };
        let joined = segment::write(&self.dir, self.table, range, rows, self.durable)?;
        for old in self.segments.splice(run, [joined]) {
            layout::remove(&self.dir.join(old.range.to_string()))?;
        }
        Ok(())
    }

    /// When the newest row of the oldest segment was read.
    pub(crate) fn oldest_until(&self) -> Option<Moment> {
        let oldest = self.segments.first()?;
        Some(oldest.span.map_or(Moment(i64::MIN), |(_, last)| last))
    }

    /// Deletes the oldest segment.
    pub(crate) fn drop_oldest(&mut self) -> Result<(), RecordError> {
        if self.segments.is_empty() {
            return Ok(());
        }
        let oldest = self.segments.remove(0);
        layout::remove(&self.dir.join(oldest.range.to_string()))
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Rows of all segments.
    pub(crate) fn rows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }
}

/// Start and length of the oldest run of neighbours worth joining: at least [`JOINED_AT_ONCE`], each under a quarter
/// of a segment, together at most one. One with columns of a newer version is left as it is.
fn small_run(segments: &[Segment], most_rows: u64) -> Option<(usize, usize)> {
    let small = |segment: &Segment| segment.rows <= most_rows / 4 && segment.current_columns;
    let mut start = 0;
    while start < segments.len() {
        let mut rows = 0;
        let fits = |segment: &&Segment| {
            rows += segment.rows;
            small(segment) && rows <= most_rows
        };
        let count = segments[start..].iter().take_while(fits).count();
        if count >= JOINED_AT_ONCE {
            return Some((start, count));
        }
        start += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_rows(rows: &[u64]) -> Vec<Segment> {
        let segment = |(place, rows): (usize, &u64)| Segment {
            range: Range { first: place as u64, last: place as u64 },
            bytes: 1,
            rows: *rows,
            span: None,
            last_series: None,
            current_columns: true,
            unknown_columns: Vec::new(),
        };
        rows.iter().enumerate().map(segment).collect()
    }

    #[test]
    fn only_runs_of_small_neighbours_are_joined() {
        assert_eq!(small_run(&of_rows(&[1; 7]), 100), None);
        assert_eq!(small_run(&of_rows(&[1; 9]), 100), Some((0, 9)));
        assert_eq!(small_run(&of_rows(&[90, 1, 1, 1, 1, 1, 1, 1, 1, 26]), 100), Some((1, 8)));
        assert_eq!(small_run(&of_rows(&[25; 12]), 100), None, "four of them are a segment already");
        let mut newer = of_rows(&[1; 9]);
        newer[4].current_columns = false;
        assert_eq!(small_run(&newer, 100), None);
    }
}
