//! The directory of a recording: whether it may be used, by whom, and how much room is left.

use crate::RecordError;
use crate::layout::META;
use crate::meta_file;
use backwater_model::Meta;
use rustix::fs::{FlockOperation, flock, statvfs};
use std::fs::File;
use std::path::Path;

/// Makes the directory unless it is there. Returns whether it was made.
pub(crate) fn make_dir(dir: &Path) -> Result<bool, RecordError> {
    if dir.is_dir() {
        return Ok(false);
    }
    std::fs::create_dir_all(dir).map_err(RecordError::at("create", dir))?;
    Ok(true)
}

/// Keeps other writers out for as long as it is held, also when this process is killed.
pub(crate) struct Lock(File);

impl Drop for Lock {
    /// Unlocked, not only closed: a child that is being started holds a copy of the file until it executes its program.
    fn drop(&mut self) {
        // A file system that locks no directories unlocks none either.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Locks the directory for one writer.
pub(crate) fn lock(dir: &Path) -> Result<Lock, RecordError> {
    let file = File::open(dir).map_err(RecordError::at("open", dir))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(RecordError::Busy { dir: dir.to_owned() }),
        Err(error) => {
            // Some network file systems lock no directories; they are no worse off than before.
            tracing::debug!(dir = %dir.display(), %error, "the recording cannot be locked");
        }
        Ok(()) => {}
    }
    Ok(Lock(file))
}

/// What an existing recording says of itself; none for an empty directory.
pub(crate) fn existing(dir: &Path) -> Result<Option<Meta>, RecordError> {
    if dir.join(META).exists() {
        return meta_file::read(dir).map(Some);
    }
    // A writer killed in its first moment leaves a meta.json that is not in place yet.
    let unfinished = format!("{META}.tmp");
    for entry in std::fs::read_dir(dir).map_err(RecordError::at("list", dir))? {
        let name = entry.map_err(RecordError::at("list", dir))?.file_name();
        // A file system's own directory is no content of ours or of anybody's.
        if name != *unfinished && name != *"lost+found" {
            return Err(RecordError::NotEmpty { dir: dir.to_owned(), found: name.to_string_lossy().into_owned() });
        }
    }
    Ok(None)
}

/// Refuses to continue across a restart of the host: CLOCK_BOOTTIME began anew, so that times would run backwards.
pub(crate) fn same_boot(dir: &Path, before: &Meta, now: &Meta) -> Result<(), RecordError> {
    match (&before.host.boot_id, &now.host.boot_id) {
        (Some(then), Some(now)) if then != now => {
            Err(RecordError::OtherBoot { dir: dir.to_owned(), why: format!("boot id {then} then, {now} now") })
        }
        _ => Ok(()),
    }
}

/// Refuses to use the last of the space. What the kernel keeps for root does not count as free.
pub(crate) fn room(dir: &Path, floor_bytes: u64) -> Result<(), RecordError> {
    let stat = statvfs(dir).map_err(|error| RecordError::io("look at", dir, error.into()))?;
    let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free_bytes < floor_bytes {
        return Err(RecordError::FreeFloor { dir: dir.to_owned(), free_bytes, floor_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As a child has one for the moment in which it is started.
    #[test]
    fn a_copy_of_the_lock_keeps_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let _copy = held.0.try_clone().unwrap();
        assert!(matches!(lock(dir.path()), Err(RecordError::Busy { .. })));
        drop(held);
        lock(dir.path()).unwrap();
    }
}
