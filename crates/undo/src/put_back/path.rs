//! Files and directories that the run made.

use super::{Why, mount};
use crate::ours;
use std::io::{Error, ErrorKind};
use std::path::Path;

/// Removes a directory with all that is in it. Never what is mounted below it: an unmount that failed must not turn
/// into a deletion of what is mounted.
pub(super) fn remove_directory(path: &Path, state_dir: &Path) -> Result<(), Why> {
    check(path, state_dir)?;
    if let Some(target) = mount::any_below(path) {
        return Err(format!("{} is still mounted", target.display()));
    }
    gone(path, std::fs::remove_dir_all(path))
}

/// Removes a file, or a symbolic link itself.
pub(super) fn remove_file(path: &Path, state_dir: &Path) -> Result<(), Why> {
    check(path, state_dir)?;
    gone(path, std::fs::remove_file(path))
}

/// The rule again, at the time of removal: the journal is a file that may have been edited.
fn check(path: &Path, state_dir: &Path) -> Result<(), Why> {
    if ours::is_ours(path, state_dir) { Ok(()) } else { Err(format!("{} is not Backwater's own", path.display())) }
}

fn gone(path: &Path, removed: Result<(), Error>) -> Result<(), Why> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("cannot remove {}: {error}", path.display())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn links_are_removed_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (inside, outside) = (state.join("lab"), dir.path().join("precious"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("data"), "1").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        remove_directory(&inside, &state).unwrap();
        remove_directory(&inside, &state).unwrap();
        assert!(!inside.exists() && outside.join("data").exists());
        assert!(remove_directory(&outside, &state).is_err());
        assert!(remove_file(&outside.join("data"), &state).is_err());
    }
}
