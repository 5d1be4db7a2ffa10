//! Values in kernel files: read, and changed with a note in the journal before.

use super::LimitError;
use backwater_undo::{Change, Journal};
use std::path::Path;
use std::time::{Duration, Instant};

/// The content without its line end.
pub(super) fn read(path: &Path) -> Result<String, LimitError> {
    let text = std::fs::read_to_string(path).map_err(LimitError::file("read", path))?;
    Ok(text.trim().to_owned())
}

/// The content as a number.
pub(super) fn read_number(path: &Path) -> Result<u64, LimitError> {
    let text = read(path)?;
    let bad = |_| std::io::Error::new(std::io::ErrorKind::InvalidData, format!("'{text}' is not a number"));
    text.parse().map_err(bad).map_err(LimitError::file("read", path))
}

/// One write, as kernel files want it; never makes a file.
pub(super) fn write(path: &Path, value: &str) -> Result<(), LimitError> {
    use std::io::Write;
    let opened = std::fs::OpenOptions::new().write(true).truncate(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(LimitError::file(format!("write '{value}' to"), path))
}

/// Notes the value that stands there, then writes another. Writes nothing where it is there already.
pub(super) fn change(journal: &Journal, path: &Path, value: &str) -> Result<(), LimitError> {
    let before = read(path)?;
    if before == value {
        return Ok(());
    }
    journal.note(Change::FileValue { path: path.to_owned(), before })?;
    write(path, value)
}

/// Looks until `done` says so or `limit` has passed; whether it came to be. For states that the kernel does not announce.
pub(super) fn wait_until(
    limit: Duration,
    mut done: impl FnMut() -> Result<bool, LimitError>,
) -> Result<bool, LimitError> {
    let deadline = Instant::now() + limit;
    while !done()? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_change_is_noted_once_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("strict_limit");
        std::fs::write(&path, "0\n").unwrap();
        let journal = Journal::begin(dir.path(), "test").unwrap();
        for value in ["1", "1", "2"] {
            change(&journal, &path, value).unwrap();
        }
        assert_eq!(read_number(&path).unwrap(), 2);
        assert_eq!(std::fs::read_to_string(journal.path()).unwrap().matches("file_value").count(), 1);
        journal.finish().unwrap();
        assert_eq!(read(&path).unwrap(), "0");
        assert!(write(&dir.path().join("missing"), "1").is_err());
        std::fs::write(&path, "x").unwrap();
        assert!(read_number(&path).unwrap_err().to_string().contains("not a number"));
    }
}
