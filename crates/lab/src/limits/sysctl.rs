//! Limits of the whole host, set only where that was allowed in so many words.
//!
//! `vm.dirty_bytes` and `vm.dirty_ratio` are two spellings of one limit: setting one zeroes the other. The journal
//! holds the one that was in force, and writing it back zeroes the other again.

use super::{LimitError, values};
use backwater_undo::{Change, Entry, Journal};
use std::path::{Path, PathBuf};

/// That a person allowed changes which everything on this host feels.
#[derive(Debug)]
pub struct AllowHostChanges(());

impl AllowHostChanges {
    /// To be made only from what a person said: `--allow-host-changes`.
    pub fn as_the_user_said() -> AllowHostChanges {
        AllowHostChanges(())
    }
}

/// The name by which a run has the host's sysctls to itself.
const CLAIM: &str = "sysctl";
/// Names that set each other to 0.
const TWINS: [(&str, &str); 2] =
    [("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio")];

/// Sets `name` (`vm.dirty_bytes`) for the rest of the run, and checks that it is in force. Refused while another run
/// has changed the host's sysctls: each would take the other's value for the host's own.
///
/// Returns the note by which the value can be put back before the end of the run; none where it was in force already.
pub fn set(
    journal: &Journal,
    _allowed: &AllowHostChanges,
    name: &str,
    value: u64,
) -> Result<Option<Entry>, LimitError> {
    journal.claim(CLAIM)?;
    set_below(journal, Path::new("/proc/sys"), name, value)
}

fn set_below(journal: &Journal, root: &Path, name: &str, value: u64) -> Result<Option<Entry>, LimitError> {
    let path = path_of(root, name)?;
    let value = value.to_string();
    if values::read(&path)? == value {
        return Ok(None);
    }
    let entry = note(journal, root, name, &path)?;
    values::write(&path, &value)?;
    let found = values::read(&path)?;
    if found == value {
        Ok(Some(entry))
    } else {
        Err(LimitError::NotInForce { what: name.to_owned(), wanted: value, found })
    }
}

/// Notes what is in force: the value itself or its twin's.
fn note(journal: &Journal, root: &Path, name: &str, path: &Path) -> Result<Entry, LimitError> {
    let mut in_force = path.to_owned();
    if let Some(twin) = twin_of(name)
        && values::read(path)? == "0"
    {
        in_force = path_of(root, twin)?;
        if values::read(&in_force)? == "0" {
            return Err(LimitError::Unsupported {
                what: format!("changing {name}"),
                why: format!("{name} and {twin} are both 0 on this host, which cannot be restored exactly"),
                next: format!("Set one of them first: `sysctl -w {twin}=20`"),
            });
        }
    }
    let before = values::read(&in_force)?;
    Ok(journal.note(Change::FileValue { path: in_force, before })?)
}

fn twin_of(name: &str) -> Option<&'static str> {
    TWINS.iter().find_map(|(a, b)| if *a == name { Some(*b) } else { (*b == name).then_some(*a) })
}

fn path_of(root: &Path, name: &str) -> Result<PathBuf, LimitError> {
    let plain = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if name.split('.').all(plain) {
        return Ok(root.join(name.replace('.', "/")));
    }
    let why = "a sysctl is named as `sysctl -a` shows it: vm.dirty_bytes".to_owned();
    Err(LimitError::Value { what: "the name of a sysctl".to_owned(), value: format!("'{name}'"), why })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    /// A /proc/sys of plain files, in which the test plays the kernel's part of zeroing the twin.
    fn root(bytes: &str, ratio: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("vm")).unwrap();
        fs::write(dir.path().join("vm/dirty_bytes"), bytes).unwrap();
        fs::write(dir.path().join("vm/dirty_ratio"), ratio).unwrap();
        dir
    }

    #[test]
    fn the_spelling_that_was_in_force_comes_back() {
        for (bytes, ratio, restored) in
            [("0\n", "20\n", ("vm/dirty_ratio", "20")), ("4096000\n", "0\n", ("vm/dirty_bytes", "4096000"))]
        {
            let dir = root(bytes, ratio);
            let journal = Journal::begin(&dir.path().join("state"), "test").unwrap();
            set_below(&journal, dir.path(), "vm.dirty_bytes", 268_435_456).unwrap();
            fs::write(dir.path().join("vm/dirty_ratio"), "0\n").unwrap();
            set_below(&journal, dir.path(), "vm.dirty_bytes", 1_000_000).unwrap();
            journal.finish().unwrap();
            assert_eq!(fs::read_to_string(dir.path().join(restored.0)).unwrap(), restored.1);
        }
    }

    #[test]
    fn what_cannot_be_restored_is_not_changed() {
        let dir = root("0\n", "0\n");
        let journal = Journal::begin(&dir.path().join("state"), "test").unwrap();
        let error = set_below(&journal, dir.path(), "vm.dirty_bytes", 1).unwrap_err().to_string();
        assert!(error.contains("both 0"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join("vm/dirty_bytes")).unwrap(), "0\n");
        for name in ["", "vm..x", "../etc/passwd", "vm/dirty_bytes"] {
            assert!(set_below(&journal, dir.path(), name, 1).is_err(), "{name}");
        }
    }
}
