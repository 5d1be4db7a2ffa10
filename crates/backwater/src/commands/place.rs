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
    /// Whether what is there goes first.
    begins_anew: bool,
}

impl Place {
    pub(super) fn of(path: &Path) -> anyhow::Result<Place> {
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => bail!("{} is a directory: give -o the name of a file", path.display()),
            Ok(meta) if !meta.is_file() || is_open_elsewhere(path) => {
                Ok(Place { written: path.to_owned(), whole: None, begins_anew: false })
            }
            found => {
                // What a link points to is written, and the link stays.
                let there = || Some(path.parent()?.join(std::fs::read_link(path).ok()?));
                let whole = std::fs::canonicalize(path).ok().or_else(there).unwrap_or_else(|| path.to_owned());
                // A file that may be written in a directory that may not: no other one can be put in its place.
                if found.is_ok() && !may_be_replaced(&whole) {
                    return Ok(Place { written: whole, whole: None, begins_anew: true });
                }
                Ok(Place { written: whole.with_added_extension("part"), whole: Some(whole), begins_anew: true })
            }
        }
    }

    /// What is no file of its own is not begun anew: others may write there as well.
    pub(super) fn open(&self) -> std::io::Result<std::fs::File> {
        let mut options = std::fs::OpenOptions::new();
        match (self.begins_anew, &self.whole) {
            (true, Some(whole)) => {
                let part = options.write(true).create(true).truncate(true).open(&self.written)?;
                // Who may read the one that is there may read the next one, and nobody else.
                std::fs::metadata(whole).map_or(Ok(()), |there| part.set_permissions(there.permissions()))?;
                Ok(part)
            }
            (true, None) => options.write(true).truncate(true).open(&self.written),
            (false, _) => options.append(true).open(&self.written),
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
    let of_a_process = path.starts_with("/proc") && path.iter().any(|part| part == "fd");
    of_a_process
        || path.starts_with("/dev/fd")
        || ["/dev/stdout", "/dev/stderr"].iter().any(|one| path == Path::new(one))
}

fn may_be_replaced(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_there_stays_until_the_next_one_is_whole_and_whoever_may_read_it_may_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.md");
        Place::of(&path).unwrap().write("one").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
        let place = Place::of(&path).unwrap();
        place.open().unwrap().write_all(b"half").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        place.give_up();
        Place::of(&path).unwrap().write("two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o604);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        assert!(Place::of(dir.path()).is_err());
    }

    #[test]
    fn one_that_nothing_can_replace_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.md");
        std::fs::write(&path, "a long one").unwrap();
        let place = Place { written: path.clone(), whole: None, begins_anew: true };
        place.write("one").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    }

    #[test]
    fn a_file_in_memory_is_no_open_one() {
        let elsewhere = ["/dev/stdout", "/dev/fd/3", "/proc/self/fd/1", "/proc/7/fd/2"];
        assert!(elsewhere.iter().all(|path| is_open_elsewhere(Path::new(path))));
        assert!(!is_open_elsewhere(Path::new("/dev/shm/report.html")) && !is_open_elsewhere(Path::new("proc/fd")));
    }
}
