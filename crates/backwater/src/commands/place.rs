//! A file that is written whole or not at all: under another name until then.

use anyhow::bail;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where a file is written to.
pub(super) struct Place {
    pub(super) written: PathBuf,
    /// The name that it gets once it is whole: one that was broken off is not taken for one. None where it is written to what is no file,
    /// such as /dev/null or a pipe: to put another in its place would take it from everybody.
    whole: Option<PathBuf>,
}

impl Place {
    pub(super) fn of(path: &Path) -> anyhow::Result<Place> {
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => bail!("{} is a directory: give -o the name of a file", path.display()),
            Ok(meta) if !meta.is_file() || is_open_elsewhere(path) => {
                Ok(Place { written: path.to_owned(), whole: None })
            }
            _ => {
                // What a link points to is written, and the link stays.
                let there = || Some(path.parent()?.join(std::fs::read_link(path).ok()?));
                let whole = std::fs::canonicalize(path).ok().or_else(there).unwrap_or_else(|| path.to_owned());
                Ok(Place { written: whole.with_added_extension("part"), whole: Some(whole) })
            }
        }
    }

    /// What is no file of its own is not begun anew: others may write there as well.
    pub(super) fn open(&self) -> std::io::Result<std::fs::File> {
        let mut options = std::fs::OpenOptions::new();
        match self.whole {
            Some(_) => options.write(true).create(true).truncate(true).open(&self.written),
            None => options.append(true).open(&self.written),
        }
    }

    pub(super) fn take(&self) -> std::io::Result<()> {
        self.whole.as_ref().map_or(Ok(()), |whole| std::fs::rename(&self.written, whole))
    }

    /// Writes a text there, whole or not at all.
    pub(super) fn write(&self, text: &str) -> std::io::Result<()> {
        let written = self.open().and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| self.take()).inspect_err(|_| self.give_up())
    }

    pub(super) fn give_up(&self) {
        if self.whole.is_some() {
            drop(std::fs::remove_file(&self.written));
        }
    }
}

/// Whether a path names what somebody holds open, such as /dev/stdout, which may stand for a file.
fn is_open_elsewhere(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}
