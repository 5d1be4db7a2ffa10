//! Reads any bytes as files of a recording.

use crate::layout::Range;
use crate::table::{Table, TextPool, each_event, each_point, each_sample};
use crate::{segment, tail};
use arrow_array::RecordBatch;
use backwater_model::Moment;
use std::path::Path;

/// Reads them as the tail of any table.
pub fn tail(bytes: &[u8]) {
    let mut pool = TextPool::default();
    let _ = tail::read_tail(Path::new("tail"), bytes.to_vec().into(), |batch| {
        rows(&batch, &mut pool);
        Ok(())
    });
}

/// Reads them as a segment, which they become in this directory.
///
/// # Panics
/// The directory cannot be written to.
pub fn segment(dir: &Path, bytes: &[u8]) {
    let range = Range { first: 0, last: 0 };
    if let Err(error) = std::fs::write(dir.join(range.to_string()), bytes) {
        panic!("cannot write a segment: {error}");
    }
    for table in Table::ALL {
        let _ = segment::inspect(dir, table, range);
    }
    let mut pool = TextPool::default();
    let _ = segment::read(dir, range, Moment(i64::MIN), Moment(i64::MAX), |_, batch| {
        rows(&batch, &mut pool);
        Ok(())
    });
}

/// A batch as the rows of any table: its columns say which it is.
fn rows(batch: &RecordBatch, pool: &mut TextPool) {
    let _ = each_point(batch, |_| {});
    let _ = each_sample(batch, pool, |_| {});
    let _ = each_event(batch, pool, |_| {});
}
