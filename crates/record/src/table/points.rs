//! `points`: one value of one series at one moment.

use super::{AT, Columns, Misfit, Rows, Table, built, taken};
use arrow_array::builder::Int64Builder;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field};
use backwater_model::{Epoch, Moment, Point, SeriesId};
use std::sync::Arc;

pub(super) fn fields() -> Vec<Field> {
    vec![
        Field::new(AT, DataType::Int64, false),
        // The number of a line in series.jsonl.
        Field::new("series", DataType::UInt32, false),
        Field::new("epoch", DataType::UInt64, false),
        Field::new("value", DataType::Float64, false),
        Field::new("as_of_us", DataType::Int64, true),
    ]
}

/// Points on their way to the tail.
#[derive(Debug, Default)]
pub(crate) struct PointRows {
    at: Vec<i64>,
    series: Vec<u32>,
    epoch: Vec<u64>,
    value: Vec<f64>,
    as_of: Int64Builder,
}

impl PointRows {
    /// Adds a point whose series has this number in the recording.
    pub(crate) fn push(&mut self, point: &Point, series: u32) {
        self.at.push(point.at.0);
        self.series.push(series);
        self.epoch.push(point.epoch.0);
        self.value.push(point.value);
        self.as_of.append_option(point.as_of.map(|at| at.0));
    }
}

impl Rows for PointRows {
    const TABLE: Table = Table::Points;

    fn len(&self) -> usize {
        self.at.len()
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(taken(&mut self.at))),
            Arc::new(UInt32Array::from(taken(&mut self.series))),
            Arc::new(UInt64Array::from(taken(&mut self.epoch))),
            Arc::new(Float64Array::from(taken(&mut self.value))),
            Arc::new(built(&mut self.as_of)),
        ];
        RecordBatch::try_new(Self::TABLE.schema(), columns)
    }

    fn forget_texts(&mut self) {}

    fn text_bytes(&self) -> usize {
        0
    }
}

/// Gives each point of a batch to `visit`.
pub(crate) fn each_point(batch: &RecordBatch, mut visit: impl FnMut(Point)) -> Result<(), Misfit> {
    let columns = Columns(batch);
    let at = columns.all_numbers::<Int64Type>(AT)?;
    let series = columns.all_numbers::<UInt32Type>("series")?;
    let epoch = columns.numbers::<UInt64Type>("epoch")?;
    let value = columns.all_numbers::<Float64Type>("value")?;
    let as_of = columns.numbers::<Int64Type>("as_of_us")?;
    for row in 0..batch.num_rows() {
        visit(Point {
            at: Moment(at[row]),
            series: SeriesId(series[row]),
            epoch: Epoch(epoch.get(row).unwrap_or_default()),
            value: value[row],
            as_of: as_of.get(row).map(Moment),
        });
    }
    Ok(())
}
