//! Follows a growing file: only what is added after the first look, a bounded piece each time, across rotation.

use super::line::{Format, Reader};
use super::messages::{self, Message};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most that one look reads. A log that grows faster than this a second is skipped through.
const PIECE: u64 = 256 * 1024;
/// The most messages that one look brings.
const MOST_MESSAGES: usize = 100;
/// A longer line is dropped: none of the server's own messages is that long.
const LONGEST_LINE: usize = 16 * 1024;

/// A log file being followed.
#[derive(Debug)]
pub(in crate::postgres) struct Tail {
    path: PathBuf,
    file: File,
    offset: u64,
    partial: Vec<u8>,
    /// Whether the line now being read is too long to keep.
    overlong: bool,
    reader: Reader,
    skipped_bytes: u64,
}

impl Tail {
    /// Follows a file from its present end.
    pub(in crate::postgres) fn at_end(path: &Path) -> io::Result<Self> {
        let mut tail = Tail::at_start(path)?;
        tail.offset = tail.file.metadata()?.len();
        Ok(tail)
    }

    /// Follows a file from its beginning: one that the server began while its predecessor was followed.
    pub(in crate::postgres) fn at_start(path: &Path) -> io::Result<Self> {
        Ok(Tail {
            path: path.to_owned(),
            file: File::open(path)?,
            offset: 0,
            partial: Vec::new(),
            overlong: false,
            reader: Reader::new(Format::of(path)),
            skipped_bytes: 0,
        })
    }

    /// Which file.
    pub(in crate::postgres) fn path(&self) -> &Path {
        &self.path
    }

    /// How much was skipped because the log grew faster than it is read, in bytes.
    pub(in crate::postgres) fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// The messages worth keeping among the lines that were added since the last look. `prefix` is log_line_prefix.
    pub(in crate::postgres) fn read(&mut self, prefix: &str) -> io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        self.pass(prefix, &mut messages)?;
        // Once the old file is read to its end, look whether another stands in its place.
        if self.was_replaced() {
            let skipped = self.skipped_bytes;
            *self = Tail::at_start(&self.path)?;
            self.skipped_bytes = skipped;
            self.pass(prefix, &mut messages)?;
        }
        messages.truncate(MOST_MESSAGES);
        Ok(messages)
    }

    fn was_replaced(&self) -> bool {
        let (Ok(here), Ok(open)) = (std::fs::metadata(&self.path), self.file.metadata()) else { return false };
        here.ino() != open.ino() || here.dev() != open.dev()
    }

    fn pass(&mut self, prefix: &str, messages: &mut Vec<Message>) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length < self.offset {
            // Truncated in place.
            self.restart_at(0);
        } else if length - self.offset > PIECE {
            self.skipped_bytes += length - PIECE - self.offset;
            self.restart_at(length - PIECE);
            // The first line is likely cut.
            self.overlong = true;
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut piece = Vec::new();
        (&mut self.file).take(PIECE).read_to_end(&mut piece)?;
        self.offset += piece.len() as u64;
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.take(part, prefix, messages);
        }
        Ok(())
    }

    fn restart_at(&mut self, offset: u64) {
        self.offset = offset;
        self.partial.clear();
        self.overlong = false;
        self.reader = Reader::new(Format::of(&self.path));
    }

    /// Takes a part of a line, whole where it ends in a newline.
    fn take(&mut self, part: &[u8], prefix: &str, messages: &mut Vec<Message>) {
        if self.partial.len() + part.len() > LONGEST_LINE {
            self.overlong = true;
        }
        if !self.overlong {
            self.partial.extend_from_slice(part);
        }
        if part.last() != Some(&b'\n') {
            return;
        }
        if !self.overlong {
            let line = String::from_utf8_lossy(&self.partial);
            let line = self.reader.read(line.trim_end_matches(['\n', '\r']), prefix);
            messages.extend(line.and_then(messages::keep));
        }
        self.partial.clear();
        self.overlong = false;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    fn texts(tail: &mut Tail) -> Vec<String> {
        tail.read("").unwrap().into_iter().map(|message| message.text).collect()
    }

    fn append(path: &Path, text: &str) {
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn only_new_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        append(&path, "LOG:  checkpoint starting: old\nLOG:  checkpoint sta");
        let mut tail = Tail::at_end(&path).unwrap();
        assert!(texts(&mut tail).is_empty());
        append(&path, "rting: cut\nLOG:  checkpoint starting: ti");
        assert!(texts(&mut tail).is_empty());
        append(&path, "me\nLOG:  statement: SELECT 1\n");
        assert_eq!(texts(&mut tail), ["checkpoint starting: time"]);
    }

    #[test]
    fn rotation_and_truncation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        append(&path, "LOG:  redo starts at 0/1\n");
        let mut tail = Tail::at_start(&path).unwrap();
        assert_eq!(texts(&mut tail), ["redo starts at 0/1"]);
        append(&path, "LOG:  redo starts at 0/2\n");
        std::fs::rename(&path, directory.path().join("log.1")).unwrap();
        append(&path, "LOG:  redo starts at 0/3\n");
        assert_eq!(texts(&mut tail), ["redo starts at 0/2", "redo starts at 0/3"]);
        File::create(&path).unwrap();
        append(&path, "LOG:  redo done at 4\n");
        assert_eq!(texts(&mut tail).last().unwrap(), "redo done at 4");
    }

    #[test]
    fn a_flood_is_skipped_through_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        append(&path, "");
        let mut tail = Tail::at_end(&path).unwrap();
        append(&path, &"LOG:  checkpoint starting: time\n".repeat(20_000));
        append(&path, &format!("LOG:  redo starts at {}\n", "x".repeat(2 * LONGEST_LINE)));
        assert_eq!(texts(&mut tail).len(), MOST_MESSAGES);
        assert!(tail.skipped_bytes() > 300_000);
        append(&path, "LOG:  checkpoint starting: wal\n");
        assert_eq!(texts(&mut tail), ["checkpoint starting: wal"]);
    }
}
