//! Parquet. Rows are gathered into groups by what they take in memory, so that a long recording needs no more than a
//! short one.

use super::{Columns, Export};
use crate::{Batch, FtdcError, Metric, MetricKind};
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, TimestampMillisecondArray, new_null_array};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::io::Write;
use std::sync::Arc;

/// A group of rows ends when its columns take this much.
const GROUP_BYTES: usize = 4 << 20;
const ZSTD_LEVEL: i32 = 3;

impl From<ParquetError> for FtdcError {
    fn from(error: ParquetError) -> Self {
        FtdcError::Parquet(error.to_string())
    }
}

pub(super) fn write(
    export: &Export<'_>,
    out: impl Write + Send,
    damaged: &mut dyn FnMut(FtdcError),
) -> Result<u64, FtdcError> {
    let columns = export.columns()?;
    let mut fields = vec![Field::new("time", time_type(), false)];
    fields.extend(columns.metrics().iter().map(|metric| Field::new(name(metric), data_type(metric.kind), true)));
    let schema = Arc::new(Schema::new(fields));
    let mut writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties(&columns)?))?;
    let mut rows = 0;
    for batch in export.source.select(&export.selection, export.stretch.clone()) {
        match batch {
            Ok(batch) => {
                writer.write(&record(&batch, &columns, &schema)?)?;
                rows += batch.times_ms().len() as u64;
                if writer.memory_size() > GROUP_BYTES {
                    writer.flush()?;
                }
            }
            Err(error) => damaged(error),
        }
    }
    writer.close()?;
    Ok(rows)
}

/// A metric of the name `time` would be a second column of that name.
fn name(metric: &Metric) -> String {
    if metric.path == "time" { "time#2".to_owned() } else { metric.path.clone() }
}

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

fn data_type(kind: MetricKind) -> DataType {
    match kind {
        MetricKind::Bool => DataType::Boolean,
        MetricKind::Date => time_type(),
        _ => DataType::Int64,
    }
}

/// Counters that grow a little each second pack best as differences; most metrics do not change at all.
fn properties(columns: &Columns) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(None);
    let numbers = columns.metrics().iter().filter(|metric| metric.kind != MetricKind::Bool).map(name);
    for name in numbers.chain(["time".to_owned()]) {
        properties = properties.set_column_encoding(ColumnPath::new(vec![name]), Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}

fn record(batch: &Batch, columns: &Columns, schema: &Arc<Schema>) -> Result<RecordBatch, FtdcError> {
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; columns.metrics().len()];
    for (metric, values) in batch.columns() {
        let Some(place) = columns.position(&metric.path) else { continue };
        arrays[place] = Some(match columns.metrics()[place].kind {
            MetricKind::Bool => Arc::new(BooleanArray::from_iter(values.iter().map(|value| Some(*value != 0)))),
            MetricKind::Date => Arc::new(TimestampMillisecondArray::from(values.to_vec()).with_timezone("UTC")),
            _ => Arc::new(Int64Array::from(values.to_vec())),
        });
    }
    let times = TimestampMillisecondArray::from(batch.times_ms().to_vec()).with_timezone("UTC");
    let mut all: Vec<ArrayRef> = vec![Arc::new(times)];
    for (array, metric) in arrays.into_iter().zip(columns.metrics()) {
        all.push(array.unwrap_or_else(|| new_null_array(&data_type(metric.kind), batch.times_ms().len())));
    }
    RecordBatch::try_new(Arc::clone(schema), all).map_err(|error| FtdcError::Parquet(error.to_string()))
}
