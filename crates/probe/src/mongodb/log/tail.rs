//! Follows a growing log: only whole lines added after the first look, a bounded piece each time, across rotation.

use super::lines::Lines;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most that one look reads. A log that grows faster than this a second is skipped through.
const PIECE: u64 = 1 << 20;

/// A log file being followed.
#[derive(Debug)]
pub(in crate::mongodb) struct Tail {
    path: PathBuf,
    file: File,
    offset: u64,
    lines: Lines,
    skipped_bytes: u64,
}

impl Tail {
    /// Follows a file from its present end.
    pub(in crate::mongodb) fn at_end(path: &Path) -> io::Result<Self> {
        let mut tail = Tail::at_start(path)?;
        tail.offset = tail.file.metadata()?.len();
        Ok(tail)
    }

    fn at_start(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Tail { path: path.to_owned(), file, offset: 0, lines: Lines::default(), skipped_bytes: 0 })
    }

    /// How much was skipped because the log grew faster than it is read, in bytes.
    pub(in crate::mongodb) fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// Hands on each whole line that was added since the last look.
    pub(in crate::mongodb) fn read(&mut self, mut line: impl FnMut(&str)) -> io::Result<()> {
        self.pass(&mut line)?;
        // Once the old file is read to its end, look whether another stands in its place.
        if self.was_replaced() {
            let skipped_bytes = self.skipped_bytes;
            *self = Tail { skipped_bytes, ..Tail::at_start(&self.path)? };
            self.pass(&mut line)?;
        }
        Ok(())
    }

    fn was_replaced(&self) -> bool {
        let (Ok(here), Ok(open)) = (std::fs::metadata(&self.path), self.file.metadata()) else { return false };
        here.ino() != open.ino() || here.dev() != open.dev()
    }

    fn pass(&mut self, line: &mut impl FnMut(&str)) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length < self.offset {
            // Truncated in place.
            self.go_to(0, false);
        } else if length - self.offset > PIECE {
            self.skipped_bytes += length - PIECE - self.offset;
            // The first line is likely cut.
            self.go_to(length - PIECE, true);
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut piece = Vec::new();
        (&mut self.file).take(PIECE).read_to_end(&mut piece)?;
        self.offset += piece.len() as u64;
        self.lines.take(&piece, line);
        Ok(())
    }

    fn go_to(&mut self, offset: u64, amid_a_line: bool) {
        self.offset = offset;
        self.lines.restart(amid_a_line);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::lines::LONGEST_LINE;
    use super::*;
    use std::io::Write;

    fn texts(tail: &mut Tail) -> Vec<String> {
        let mut lines = Vec::new();
        tail.read(|line| lines.push(line.to_owned())).unwrap();
        lines
    }

    fn append(path: &Path, text: &str) {
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn only_new_whole_lines_across_rotation_and_truncation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mongod.log");
        append(&path, "old\ncu");
        let mut tail = Tail::at_end(&path).unwrap();
        assert!(texts(&mut tail).is_empty());
        append(&path, "t\none\r\ntw");
        assert_eq!(texts(&mut tail), ["t", "one"]);
        append(&path, "o\n");
        std::fs::rename(&path, directory.path().join("mongod.log.1")).unwrap();
        append(&path, "three\n");
        assert_eq!(texts(&mut tail), ["two", "three"]);
        File::create(&path).unwrap();
        append(&path, "4\n");
        assert_eq!(texts(&mut tail), ["4"]);
    }

    #[test]
    fn a_flood_is_skipped_through_and_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mongod.log");
        append(&path, "");
        let mut tail = Tail::at_end(&path).unwrap();
        append(&path, &"x".repeat(3 * LONGEST_LINE));
        append(&path, &format!("\n{}last\n", "0123456\n".repeat(400_000)));
        let lines = texts(&mut tail);
        assert_eq!(lines.last().unwrap(), "last");
        assert!(lines.len() < 140_000 && tail.skipped_bytes() > 2_000_000);
        append(&path, &format!("{}\nnext\n", "y".repeat(2 * LONGEST_LINE)));
        assert_eq!(texts(&mut tail), ["next"]);
    }
}
