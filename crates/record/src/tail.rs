//! The live end of a table: an Arrow IPC stream that gets one batch a second, so that a killed recorder loses no more.

use crate::RecordError;
use crate::append::AppendFile;
use crate::guard;
use crate::layout::tail_name;
use crate::meta_file::FORMAT_VERSION;
use crate::table::{Table, VERSION_KEY};
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamWriter};
use arrow_schema::Schema;
use backwater_model::Moment;
use bytes::Bytes;
use std::path::Path;

/// A tail being written.
pub(crate) struct Tail {
    /// When its first batch was written.
    pub(crate) started: Moment,
    file: AppendFile,
    stream: StreamWriter<Vec<u8>>,
}

impl Tail {
    /// Begins a tail in a table's directory.
    pub(crate) fn create(
        dir: &Path,
        table: Table,
        sequence: u64,
        started: Moment,
        durable: bool,
    ) -> Result<Self, RecordError> {
        let path = dir.join(tail_name(sequence));
        // Texts that were written before are not repeated.
        let options = IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
        let stream = StreamWriter::try_new_with_options(Vec::new(), &table.schema(), options)
            .map_err(|error| RecordError::encode(&path, error))?;
        let file = AppendFile::open(&path, 0, durable)?;
        Ok(Tail { started, file, stream })
    }

    /// Adds a batch with a single write. After an error the tail must not be written to again.
    pub(crate) fn append(&mut self, batch: &RecordBatch) -> Result<(), RecordError> {
        self.stream.write(batch).map_err(|error| RecordError::encode(self.file.path(), error))?;
        self.file.append(self.stream.get_ref())?;
        self.stream.get_mut().clear();
        Ok(())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

/// Gives every complete batch of a tail to `visit`, and returns what is wrong with its end, if anything.
pub(crate) fn read_tail(
    path: &Path,
    bytes: Bytes,
    mut visit: impl FnMut(RecordBatch) -> Result<(), RecordError>,
) -> Result<Option<String>, RecordError> {
    let mut buffer = bytes.into();
    let mut decoder = StreamDecoder::new();
    let mut checked = false;
    let mut complete = 0_usize;
    loop {
        let Some(decoded) = guard::decode(|| decoder.decode(&mut buffer)) else {
            return Ok(Some(told(path, complete, "is damaged")));
        };
        if let Some(schema) = decoder.schema().filter(|_| !checked) {
            check_version(path, &schema)?;
            checked = true;
        }
        let end = match decoded {
            Ok(Some(batch)) => {
                complete += 1;
                visit(batch)?;
                continue;
            }
            Ok(None) => decoder.finish().err().map(|_| "is incomplete".to_owned()),
            Err(error) => Some(format!("cannot be read ({error})")),
        };
        return Ok(end.map(|end| told(path, complete, &end)));
    }
}

fn told(path: &Path, complete: usize, what: &str) -> String {
    format!("{}: what follows batch {complete} {what}; it is left out", path.display())
}

fn check_version(path: &Path, schema: &Schema) -> Result<(), RecordError> {
    version_known(path, schema.metadata().get(VERSION_KEY).map(String::as_str))
}

/// Refuses a file in a format that is not known here.
pub(crate) fn version_known(path: &Path, found: Option<&str>) -> Result<(), RecordError> {
    match found {
        Some(found) if found == FORMAT_VERSION.to_string() => Ok(()),
        found => Err(RecordError::UnknownVersion {
            path: path.to_owned(),
            found: found.unwrap_or("none").to_owned(),
            known: FORMAT_VERSION,
            written_by: "see meta.json".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::table::{Rows, SampleRows, TextPool, each_sample};
    use backwater_model::Sample;

    fn sample(number: i32) -> Sample {
        Sample {
            at: Moment(i64::from(number)),
            target: "primary".into(),
            pid: number,
            query: Some(format!("select {}", number / 2).into()),
            ..Sample::default()
        }
    }

    fn tail_bytes(dir: &Path, batches: i32) -> (Vec<u8>, Vec<u64>) {
        let mut tail = Tail::create(dir, Table::Samples, 3, Moment(0), false).unwrap();
        let mut rows = SampleRows::default();
        let mut ends = vec![];
        for number in 0..batches {
            rows.push(&sample(number));
            tail.append(&rows.take().unwrap()).unwrap();
            ends.push(tail.bytes());
        }
        (std::fs::read(tail.path()).unwrap(), ends)
    }

    fn read(bytes: &[u8]) -> (Vec<Sample>, Option<String>) {
        let mut found = Vec::new();
        let mut pool = TextPool::default();
        let end = read_tail(Path::new("tail"), bytes.to_vec().into(), |batch| {
            each_sample(&batch, &mut pool, |sample| found.push(sample)).unwrap();
            Ok(())
        });
        (found, end.unwrap())
    }

    #[test]
    fn a_tail_cut_at_any_byte_yields_all_batches_before_the_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, ends) = tail_bytes(dir.path(), 5);
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut as u64).count() as i32;
            let (found, end) = read(&bytes[..cut]);
            assert_eq!(found, (0..whole).map(sample).collect::<Vec<_>>(), "cut at {cut}");
            assert!(cut < bytes.len() || end.is_none(), "{end:?}");
        }
    }

    #[test]
    fn a_tail_that_ends_in_zeros_yields_what_comes_before() {
        // What some file systems leave after a power cut: the new length, without the new contents.
        let dir = tempfile::tempdir().unwrap();
        let (mut bytes, ends) = tail_bytes(dir.path(), 5);
        bytes[ends[2] as usize..].fill(0);
        assert_eq!(read(&bytes).0.len(), 3);
    }

    #[test]
    fn a_tail_of_another_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, _) = tail_bytes(dir.path(), 1);
        let key = VERSION_KEY.as_bytes();
        let place = bytes.windows(key.len()).position(|part| part == key).unwrap();
        let near = place - 64..place + 64;
        let mut other = bytes.clone();
        let value = [1, 0, 0, 0, b'1', 0];
        let found = bytes[near.clone()].windows(value.len()).position(|part| part == value).unwrap();
        other[near.start + found + 4] = b'8';
        let error = read_tail(Path::new("tail-1"), other.into(), |_| Ok(())).unwrap_err();
        assert!(matches!(error, RecordError::UnknownVersion { ref found, .. } if found == "8"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn a_damaged_tail_never_panics(at in 0..4_000_usize, bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..9)) {
            let dir = tempfile::tempdir().unwrap();
            let (mut tail, _) = tail_bytes(dir.path(), 3);
            for (place, byte) in bytes.into_iter().enumerate() {
                let place = (at + place) % tail.len();
                tail[place] ^= byte;
            }
            let mut rows = crate::gather::Gather::new(Table::Samples);
            let path = Path::new("tail");
            let _ = read_tail(path, tail.into(), |batch| {
                let _ = each_sample(&batch, &mut TextPool::default(), |_| {});
                rows.add(path, &batch)
            });
            let _ = rows.in_order(|_| Ok(()));
        }
    }
}
