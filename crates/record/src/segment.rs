//! Closed segments: Parquet files, written once, read by the stretches of time they hold.

use crate::RecordError;
use crate::gather::Gather;
use crate::guard;
use crate::layout::{Range, publish, temp_of};
use crate::meta_file::FORMAT_VERSION;
use crate::table::{AT, TABLE_KEY, Table, VERSION_KEY};
use crate::tail::version_known;
use arrow_array::RecordBatch;
use arrow_schema::DataType;
use backwater_model::Moment;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{KeyValue, ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnPath;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Higher levels cost three times the processor time and save a few percent.
const ZSTD_LEVEL: i32 = 6;
/// A column is one page: what repeats in it, such as the times of each series, is found again across all of it.
const PAGE_BYTES: usize = 8 << 20;
const ROWS_AT_ONCE: usize = 8_192;

/// What is known of a segment without reading its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) range: Range,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// First and last moment; none where it has no rows or no statistics.
    pub(crate) span: Option<(Moment, Moment)>,
    /// The largest series number in it, for points.
    pub(crate) last_series: Option<u32>,
    /// Whether it has exactly the columns that are written today.
    pub(crate) current_columns: bool,
    /// Columns that are not known here.
    pub(crate) unknown_columns: Vec<String>,
}

fn properties(table: Table) -> Result<WriterProperties, parquet::errors::ParquetError> {
    let pair = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let metadata = vec![pair(VERSION_KEY, FORMAT_VERSION.to_string()), pair(TABLE_KEY, table.name().to_owned())];
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(usize::MAX)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_max_row_group_row_count(None)
        .set_key_value_metadata(Some(metadata));
    // What a column of texts has at least and at most, nobody asks, and to find it out every row's text is compared.
    for field in table.schema().fields().iter().filter(|field| matches!(field.data_type(), DataType::Dictionary(..))) {
        properties = properties.set_column_statistics_enabled(field.name().as_str().into(), EnabledStatistics::None);
    }
    for (column, encoding) in table.packing() {
        let column = ColumnPath::from(*column);
        properties = properties.set_column_dictionary_enabled(column.clone(), false);
        properties = properties.set_column_encoding(column, *encoding);
    }
    Ok(properties.build())
}

/// Writes a segment of these rows, complete or not at all.
pub(crate) fn write(
    dir: &Path,
    table: Table,
    range: Range,
    rows: Gather,
    durable: bool,
) -> Result<Segment, RecordError> {
    let path = dir.join(range.to_string());
    let bytes = pack(table, rows).map_err(|error| RecordError::encode(&path, error))?;
    let temp = temp_of(&path);
    let fill = || {
        let mut file = File::create(&temp)?;
        file.write_all(&bytes)?;
        if durable { file.sync_all() } else { Ok(()) }
    };
    let done = fill().map_err(RecordError::at("write", &temp)).and_then(|()| publish(&temp, &path, durable));
    if let Err(error) = done {
        // The error that matters is the one above; the next writer clears what cannot be removed now.
        let _ = std::fs::remove_file(&temp);
        return Err(error);
    }
    inspect(dir, table, range)
}

fn pack(table: Table, rows: Gather) -> Result<Vec<u8>, parquet::errors::ParquetError> {
    let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties(table)?))?;
    rows.in_order(|batch| Ok(writer.write(batch)?))?;
    writer.into_inner()
}

fn open(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, RecordError> {
    let file = File::open(path).map_err(RecordError::at("open", path))?;
    let reader = undamaged(path, || ParquetRecordBatchReaderBuilder::try_new(file))?;
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    let version = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == VERSION_KEY));
    version_known(path, version.and_then(|pair| pair.value.as_deref()))?;
    Ok(reader)
}

/// What a decoder gives; that it fails or panics says that the file is damaged.
fn undamaged<T, E: Display>(path: &Path, decoder: impl FnOnce() -> Result<T, E>) -> Result<T, RecordError> {
    let decoded = guard::decode(decoder).ok_or_else(|| RecordError::damaged(path, "its bytes make no sense"))?;
    decoded.map_err(|error| RecordError::damaged(path, error))
}

/// Reads what a segment says of itself.
pub(crate) fn inspect(dir: &Path, table: Table, range: Range) -> Result<Segment, RecordError> {
    let path = dir.join(range.to_string());
    let reader = open(&path)?;
    let bytes = std::fs::metadata(&path).map_err(RecordError::at("look at", &path))?.len();
    let metadata = reader.metadata();
    let ours = table.schema();
    let unknown = reader.schema().fields().iter().filter(|field| ours.field_with_name(field.name()).is_err());
    Ok(Segment {
        range,
        bytes,
        rows: metadata.file_metadata().num_rows().max(0) as u64,
        span: span_of(metadata),
        last_series: largest_series(metadata),
        current_columns: reader.schema().fields() == ours.fields(),
        unknown_columns: unknown.map(|field| field.name().clone()).collect(),
    })
}

fn statistics<'a>(group: &'a RowGroupMetaData, column: &str) -> Option<&'a Statistics> {
    group.columns().iter().find(|chunk| chunk.column_path().string() == column)?.statistics()
}

fn times(group: &RowGroupMetaData) -> Option<(Moment, Moment)> {
    match statistics(group, AT)? {
        Statistics::Int64(times) => Some((Moment(*times.min_opt()?), Moment(*times.max_opt()?))),
        _ => None,
    }
}

fn span_of(metadata: &ParquetMetaData) -> Option<(Moment, Moment)> {
    let spans = metadata.row_groups().iter().map(times).collect::<Option<Vec<_>>>()?;
    spans.into_iter().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

fn largest_series(metadata: &ParquetMetaData) -> Option<u32> {
    let largest = |group| match statistics(group, "series")? {
        // Parquet keeps unsigned 32-bit numbers in its signed ones.
        Statistics::Int32(numbers) => numbers.max_opt().map(|number| *number as u32),
        _ => None,
    };
    metadata.row_groups().iter().filter_map(largest).max()
}

/// Gives the batches of a segment that may hold rows between two moments to `visit`.
pub(crate) fn read(
    dir: &Path,
    range: Range,
    from: Moment,
    to: Moment,
    mut visit: impl FnMut(&Path, RecordBatch) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let path = dir.join(range.to_string());
    let reader = open(&path)?;
    let overlaps = |group| times(group).is_none_or(|(first, last)| first <= to && from <= last);
    let groups = reader.metadata().row_groups().iter().enumerate();
    let wanted = groups.filter(|(_, group)| overlaps(group)).map(|(place, _)| place).collect();
    let mut batches = undamaged(&path, || reader.with_row_groups(wanted).with_batch_size(ROWS_AT_ONCE).build())?;
    while let Some(batch) = undamaged(&path, || batches.next().transpose())? {
        visit(&path, batch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::table::{Rows, SampleRows, TextPool, each_sample};
    use backwater_model::Sample;
    use proptest::prelude::*;

    fn segment_bytes(dir: &Path, range: Range) -> Vec<u8> {
        let mut rows = SampleRows::default();
        for number in 0..500 {
            let query = Some(format!("select {}", number % 9).into());
            let sample = Sample { at: Moment(number), target: "primary".into(), pid: 7, query, ..Sample::default() };
            rows.push(&sample);
        }
        let mut gather = Gather::new(Table::Samples);
        gather.add(dir, &rows.take().unwrap()).unwrap();
        let segment = write(dir, Table::Samples, range, gather, false).unwrap();
        assert_eq!((segment.rows, segment.span), (500, Some((Moment(0), Moment(499)))));
        std::fs::read(dir.join(range.to_string())).unwrap()
    }

    proptest! {
        #[test]
        fn a_damaged_segment_never_panics(at in 0..9_000_usize, bytes in proptest::collection::vec(any::<u8>(), 1..9)) {
            let dir = tempfile::tempdir().unwrap();
            let range = Range { first: 0, last: 0 };
            let mut segment = segment_bytes(dir.path(), range);
            for (place, byte) in bytes.into_iter().enumerate() {
                let place = (at + place) % segment.len();
                segment[place] ^= byte;
            }
            std::fs::write(dir.path().join(range.to_string()), segment).unwrap();
            let _ = inspect(dir.path(), Table::Samples, range);
            let mut pool = TextPool::default();
            let _ = read(dir.path(), range, Moment(0), Moment(999), |path, batch| {
                each_sample(&batch, &mut pool, |_| {}).map_err(|error| RecordError::damaged(path, error))
            });
        }
    }
}
