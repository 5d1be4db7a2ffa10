//! Locks between runs: what only one run of this host at a time may change, and what several share.

use crate::{UndoError, state};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What root changes is the host's, whatever directory its journals are in; what others do is their own.
fn directory(state_dir: &Path) -> PathBuf {
    if rustix::process::geteuid().is_root() { PathBuf::from("/run/backwater") } else { state_dir.to_owned() }
}

/// Opens the lock file of `name`.
fn open(state_dir: &Path, name: &str) -> Result<(File, PathBuf), UndoError> {
    let directory = directory(state_dir);
    state::make(&directory)?;
    let path = directory.join(format!("{name}.lock"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(UndoError::file("open", &path))?;
    Ok((file, path))
}

/// A name that is held, alone or with others, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Claim(File);

impl Drop for Claim {
    /// Unlocked, not only closed: a child that is being started holds a copy of the file until it executes its program.
    fn drop(&mut self) {
        // Closing it, which comes next, unlocks it too; there is nothing else to be done about an error.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes `name` for this run alone.
pub(crate) fn take(state_dir: &Path, name: &str) -> Result<Claim, UndoError> {
    let (mut file, path) = open(state_dir, name)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut by = String::new();
            // Who it is only makes the message better: an unreadable name is an empty one.
            let _ = file.read_to_string(&mut by);
            return Err(UndoError::Claimed { what: name.to_owned(), by: by.trim().to_owned() });
        }
        Err(error) => return Err(UndoError::file("lock", &path)(error.into())),
    }
    let named = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    named.map_err(UndoError::file("write", &path))?;
    Ok(Claim(file))
}

/// Holds `name` together with other runs. Waits while one of them is taking it down.
pub(crate) fn share(state_dir: &Path, name: &str) -> Result<Claim, UndoError> {
    let (file, path) = open(state_dir, name)?;
    flock(&file, FlockOperation::LockShared).map_err(|error| UndoError::file("lock", &path)(error.into()))?;
    Ok(Claim(file))
}

/// For the last who shared `name`: the lock under which it may be taken down; `None` while others hold it.
pub(crate) fn last(state_dir: &Path, name: &str) -> Result<Option<Claim>, UndoError> {
    let (file, path) = open(state_dir, name)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Claim(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(UndoError::file("lock", &path)(error.into())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_takes_many_share() {
        let dir = tempfile::tempdir().unwrap();
        // Names of its own: as root the locks are the host's.
        let (alone, together) = (format!("alone-{}", std::process::id()), format!("shared-{}", std::process::id()));
        let held = take(dir.path(), &alone).unwrap();
        let refused = take(dir.path(), &alone).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        // A child that is being started has a copy of it for a moment.
        let _copy = held.0.try_clone().unwrap();
        drop(held);
        drop(take(dir.path(), &alone).unwrap());

        let one = share(dir.path(), &together).unwrap();
        let two = share(dir.path(), &together).unwrap();
        drop(one);
        assert!(last(dir.path(), &together).unwrap().is_none());
        drop(two);
        assert!(last(dir.path(), &together).unwrap().is_some());
        for name in [alone, together] {
            std::fs::remove_file(directory(dir.path()).join(format!("{name}.lock"))).unwrap();
        }
    }
}
