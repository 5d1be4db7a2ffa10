//! Samples for other programs: JSON Lines, CSV, Parquet. One row a sample, one column a metric, a chunk in memory at a
//! time.
//!
//! Rows and names are as the recorder has them: doubles were truncated by it, timestamps are two columns, a path that
//! is there again has `#2` at its end. A metric that a sample does not have is missing there, never zero.

mod csv;
mod jsonl;
#[cfg(feature = "parquet")]
mod parquet;

use crate::{Decoder, DocumentKind, FtdcError, Metric, MetricKind, Selection, Source};
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

/// What is exported. Damage is told to the writers' `damaged` in its place; what lies behind it is still exported.
#[derive(Clone, Debug)]
pub struct Export<'s> {
    source: &'s Source,
    selection: Selection,
    stretch: Range<i64>,
}

impl<'s> Export<'s> {
    /// The chosen metrics of a stretch of time (milliseconds since 1970).
    pub fn new(source: &'s Source, selection: Selection, stretch: Range<i64>) -> Self {
        Export { source, selection, stretch }
    }

    /// One object a line: `{"time":"2021-03-15T02:21:47.000Z","metrics":{"serverStatus.uptime":12,...}}`. Times within
    /// metrics are milliseconds since 1970. Returns how many lines were written.
    pub fn json_lines(&self, out: &mut dyn Write, damaged: &mut dyn FnMut(FtdcError)) -> Result<u64, FtdcError> {
        jsonl::write(self, out, damaged)
    }

    /// Comma-separated values with a header (RFC 4180): `time`, then every metric that any sample has. Reads the
    /// recording twice. Returns how many rows were written.
    pub fn csv(&self, out: &mut dyn Write, damaged: &mut dyn FnMut(FtdcError)) -> Result<u64, FtdcError> {
        csv::write(self, out, damaged)
    }

    /// A Parquet file: `time`, then every metric that any sample has, as integers, truth values or times. Reads the
    /// recording twice. Returns how many rows were written.
    #[cfg(feature = "parquet")]
    pub fn parquet(&self, out: impl Write + Send, damaged: &mut dyn FnMut(FtdcError)) -> Result<u64, FtdcError> {
        parquet::write(self, out, damaged)
    }

    /// Every metric that any sample has, in the order in which they appear. Nothing but first samples is decoded.
    pub fn columns(&self) -> Result<Columns, FtdcError> {
        // Damage is told when the values are read.
        self.columns_telling(|_| ())
    }

    /// The same for whoever reads no values: `damaged` is given every damage that was met.
    ///
    /// # Errors
    /// Only what the system refuses.
    pub fn columns_telling(&self, mut damaged: impl FnMut(&FtdcError)) -> Result<Columns, FtdcError> {
        let mut columns = Columns::default();
        let mut decoder = Decoder::new(self.source.limits());
        let mut last = None;
        for document in self.source.documents_between(self.stretch.clone()) {
            let chunk = match &document {
                Ok(document) if document.kind() == DocumentKind::Chunk => decoder.open(document),
                Ok(_) => continue,
                Err(error @ FtdcError::Damaged(_)) => {
                    damaged(error);
                    continue;
                }
                Err(_) => return document.map(|_| columns),
            };
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    damaged(&error);
                    continue;
                }
            };
            if last.replace(chunk.schema().clone()).is_some_and(|last| last == *chunk.schema()) {
                continue;
            }
            for place in self.selection.places(chunk.schema()) {
                columns.add(&chunk.schema().metrics()[place]);
            }
        }
        Ok(columns)
    }
}

/// The columns of a table: metrics, each once.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    metrics: Vec<Metric>,
    by_path: HashMap<String, usize>,
}

impl Columns {
    /// The metrics, in the columns' order. One that was of several types is an integer.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The column of a metric.
    pub fn position(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    fn add(&mut self, metric: &Metric) {
        match self.position(&metric.path).and_then(|place| self.metrics.get_mut(place)) {
            Some(known) if known.kind != metric.kind => known.kind = MetricKind::Int64,
            Some(_) => {}
            None => {
                self.by_path.insert(metric.path.clone(), self.metrics.len());
                self.metrics.push(metric.clone());
            }
        }
    }
}
