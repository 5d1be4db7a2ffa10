//! Control groups that the run made.

use super::Why;
use crate::{ours, wait};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// How long the kernel may take to see that a group is empty after its last process was moved or died.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

/// Moves what still runs in the group to its parent and removes it.
pub(super) fn remove(path: &Path) -> Result<(), Why> {
    if !ours::is_named_ours(path) {
        return Err(format!("{} is not named backwater-…", path.display()));
    }
    let mut last = String::new();
    let gone = wait::until(EMPTY_WITHIN, || match std::fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => {
            last = error.to_string();
            if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
                move_to_parent(path);
            }
            false
        }
    });
    if gone { Ok(()) } else { Err(format!("cannot remove {}: {last}", path.display())) }
}

/// Best effort: a process that cannot be moved keeps the group busy, which the removal then reports.
fn move_to_parent(path: &Path) {
    let Some(parent) = path.parent() else { return };
    let processes = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines() {
        if let Err(error) = std::fs::write(parent.join("cgroup.procs"), pid) {
            tracing::debug!(pid, group = %path.display(), %error, "cannot move a process out of the group");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_our_own_groups_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (mine, other) = (dir.path().join("backwater-1"), dir.path().join("system.slice"));
        std::fs::create_dir(&mine).unwrap();
        std::fs::create_dir(&other).unwrap();
        remove(&mine).unwrap();
        remove(&mine).unwrap();
        assert!(remove(&other).is_err());
        assert!(!mine.exists() && other.exists());
    }
}
