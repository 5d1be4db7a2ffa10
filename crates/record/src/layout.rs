//! Names of files: which segment covers which tails, and what a killed writer left over.

use crate::RecordError;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file that says what the recording is.
pub(crate) const META: &str = "meta.json";
/// The file that names the series.
pub(crate) const SERIES: &str = "series.jsonl";
/// The end of the name of a file that is not complete yet.
pub(crate) const TEMP: &str = "tmp";

/// The sequence numbers of the tails that went into a segment, both included. Displayed as its file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Range {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Range {
    fn covers(self, other: Range) -> bool {
        self != other && self.first <= other.first && other.last <= self.last
    }

    fn parse(name: &str) -> Option<Range> {
        let (first, last) = name.strip_suffix(".parquet")?.split_once('-')?;
        let range = Range { first: number(first)?, last: number(last)? };
        (range.first <= range.last).then_some(range)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}-{:08}.parquet", self.first, self.last)
    }
}

fn number(digits: &str) -> Option<u64> {
    (digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// The name of the tail with this sequence number.
pub(crate) fn tail_name(sequence: u64) -> String {
    format!("tail-{sequence:08}.arrow")
}

fn parse_tail(name: &str) -> Option<u64> {
    number(name.strip_prefix("tail-")?.strip_suffix(".arrow")?)
}

/// What a table's directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Segments that count, oldest first.
    pub(crate) segments: Vec<Range>,
    /// Tails that are in no segment yet, oldest first.
    pub(crate) tails: Vec<u64>,
    /// Files whose contents are also in a segment that counts, and files that were never completed.
    pub(crate) left_over: Vec<String>,
}

impl Listing {
    /// Reads a directory; one that does not exist is empty.
    pub(crate) fn read(dir: &Path) -> Result<Listing, RecordError> {
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Listing::default()),
            entries => entries.map_err(RecordError::at("list", dir))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(RecordError::at("list", dir))?;
            names.extend(entry.file_name().into_string());
        }
        Ok(Listing::of(names))
    }

    fn of(names: Vec<String>) -> Listing {
        let mut listing = Listing::default();
        let all: Vec<Range> = names.iter().filter_map(|name| Range::parse(name)).collect();
        for name in names {
            if let Some(range) = Range::parse(&name) {
                let covered = all.iter().any(|other| other.covers(range));
                if covered { listing.left_over.push(name) } else { listing.segments.push(range) }
            } else if let Some(tail) = parse_tail(&name) {
                let folded = all.iter().any(|range| (range.first..=range.last).contains(&tail));
                if folded { listing.left_over.push(name) } else { listing.tails.push(tail) }
            } else if name.strip_suffix(TEMP).and_then(|name| Range::parse(name.strip_suffix('.')?)).is_some() {
                listing.left_over.push(name);
            }
        }
        listing.segments.sort_unstable();
        listing.tails.sort_unstable();
        listing.left_over.sort_unstable();
        listing
    }

    /// The sequence number after every one in use.
    pub(crate) fn next_sequence(&self) -> u64 {
        let segments = self.segments.iter().map(|range| range.last + 1);
        segments.chain(self.tails.iter().map(|tail| tail + 1)).max().unwrap_or(0)
    }
}

/// Removes a file; that it is gone already is no error.
pub(crate) fn remove(path: &Path) -> Result<(), RecordError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(RecordError::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// The name under which a file is written before it is complete.
pub(crate) fn temp_of(path: &Path) -> PathBuf {
    path.with_added_extension(TEMP)
}

/// Puts a complete file in its place, at once for every reader.
pub(crate) fn publish(temp: &Path, path: &Path, durable: bool) -> Result<(), RecordError> {
    std::fs::rename(temp, path).map_err(RecordError::at("rename", temp))?;
    match path.parent() {
        Some(dir) if durable => sync_dir(dir),
        _ => Ok(()),
    }
}

/// Makes names in a directory survive a power cut.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), RecordError> {
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(RecordError::at("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&str]) -> Listing {
        Listing::of(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn what_a_wider_segment_or_a_segment_covers_is_left_over() {
        let found = listing(&[
            "00000000-00000003.parquet",
            "00000001-00000001.parquet",
            "00000004-00000004.parquet",
            "tail-00000004.arrow",
            "tail-00000005.arrow",
            "00000005-00000005.parquet.tmp",
            "notes.txt",
        ]);
        assert_eq!(found.segments, [Range { first: 0, last: 3 }, Range { first: 4, last: 4 }]);
        assert_eq!(found.tails, [5]);
        let left = ["00000001-00000001.parquet", "00000005-00000005.parquet.tmp", "tail-00000004.arrow"];
        assert_eq!(found.left_over, left);
        assert_eq!(found.next_sequence(), 6);
    }

    #[test]
    fn names_read_back_what_they_say() {
        let range = Range { first: 12, last: 123_456_789 };
        assert_eq!(Range::parse(&range.to_string()), Some(range));
        assert_eq!(parse_tail(&tail_name(13)), Some(13));
        assert_eq!(Range::parse("00000002-00000001.parquet"), None);
        assert_eq!(Range::parse("1-2.parquet"), None);
    }
}
