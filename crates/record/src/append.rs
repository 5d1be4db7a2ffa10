//! A file that only grows, by whole pieces: a piece that did not fit is taken back.

use crate::RecordError;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file open for appending.
#[derive(Debug)]
pub(crate) struct AppendFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    durable: bool,
}

impl AppendFile {
    /// Opens or creates a file and cuts it to its first `keep_bytes`.
    pub(crate) fn open(path: &Path, keep_bytes: u64, durable: bool) -> Result<Self, RecordError> {
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(RecordError::at("open", path))?;
        file.set_len(keep_bytes).map_err(RecordError::at("truncate", path))?;
        Ok(AppendFile { file, path: path.to_owned(), bytes: keep_bytes, durable })
    }

    /// Adds one piece with one call. If it fails, the file is cut back to where it was.
    pub(crate) fn append(&mut self, piece: &[u8]) -> Result<(), RecordError> {
        let written =
            self.file.write_all(piece).and_then(|()| if self.durable { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // If even this fails the piece stays cut, which every reader tolerates.
            let _ = self.file.set_len(self.bytes);
            return Err(RecordError::io("write", &self.path, error));
        }
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
