//! Where journals are kept unless told otherwise.

use crate::UndoError;
use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// `/var/lib/backwater` for root, else `$XDG_STATE_HOME/backwater` or `~/.local/state/backwater`; made where it is
/// missing, for its owner only. Root's can be passed through, not listed, by others: the lab keeps its volumes below
/// it, and the servers on them run as an ordinary user.
pub fn default_state_dir() -> Result<PathBuf, UndoError> {
    let root = rustix::process::geteuid().is_root();
    let path = choose(root, std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?;
    make(&path)?;
    if root {
        open_for_passing(&path).map_err(|source| UndoError::StateDir { path: path.clone(), source })?;
    }
    Ok(path)
}

/// Adds the right to enter, and takes none away.
fn open_for_passing(path: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o011 == 0o011 { Ok(()) } else { std::fs::set_permissions(path, Permissions::from_mode(mode | 0o011)) }
}

fn choose(root: bool, state_home: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, UndoError> {
    if root {
        return Ok(PathBuf::from("/var/lib/backwater"));
    }
    // The XDG specification: a relative path is invalid and to be ignored.
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(state_home)
        .or_else(|| absolute(home).map(|home| home.join(".local/state")))
        .map(|base| base.join("backwater"))
        .ok_or(UndoError::NoHome)
}

/// Makes the directory and its parents, for the owner only, and checks that it is one.
pub(crate) fn make(path: &Path) -> Result<(), UndoError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| UndoError::StateDir { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_user_has_a_place() {
        let some = |text: &str| Some(OsString::from(text));
        assert_eq!(choose(true, some("/x"), some("/h")).unwrap(), Path::new("/var/lib/backwater"));
        assert_eq!(choose(false, some("/x"), some("/h")).unwrap(), Path::new("/x/backwater"));
        assert_eq!(choose(false, some("rel"), some("/h")).unwrap(), Path::new("/h/.local/state/backwater"));
        assert!(matches!(choose(false, None, None), Err(UndoError::NoHome)));
    }

    #[test]
    fn the_directory_is_the_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        make(&path).unwrap();
        make(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        open_for_passing(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o711);
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(matches!(make(&dir.path().join("file")), Err(UndoError::StateDir { .. })));
    }
}
