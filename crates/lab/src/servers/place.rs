//! Directories of a server: made private to the user that it runs as, noted in the journal before, and checked to be
//! reachable by that user.

use super::ServerError;
use backwater_undo::{Change, Journal};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The longest path of a Unix socket (`sun_path` without its end).
const SOCKET_PATH_BYTES: usize = 107;

/// Makes a directory that only this user may look into. An empty one that is there already is taken.
pub(crate) fn private(journal: &Journal, path: &Path, user: Option<(u32, u32)>) -> Result<(), ServerError> {
    if !path.exists() {
        journal.note(Change::Directory { path: path.to_path_buf() })?;
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(ServerError::file("make", path))?;
    }
    let Some((uid, gid)) = user else { return Ok(()) };
    chown(path, Some(uid), Some(gid)).map_err(ServerError::file("give to the server's user", path))
}

/// Makes a directory that this process's user alone writes into and everybody may look into: what lies there can be run and read by
/// the server's user, but not replaced. What is there already, a link above all, is refused.
pub(crate) fn readable(journal: &Journal, path: &Path) -> Result<(), ServerError> {
    journal.note(Change::Directory { path: path.to_path_buf() })?;
    DirBuilder::new().mode(0o755).create(path).map_err(ServerError::file("make", path))?;
    // Whatever mask this process has for what it makes.
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(ServerError::file("open up", path))
}

/// Where temporary files go, as an absolute path: `TMPDIR`, or `/tmp` where that is unset or empty.
pub fn temporary_dir() -> PathBuf {
    absolute_or_tmp(std::env::temp_dir())
}

/// The server's programs run in a directory of their own, so that a relative path would be another one there.
fn absolute_or_tmp(told: PathBuf) -> PathBuf {
    // An empty path cannot be made absolute.
    std::path::absolute(told).unwrap_or_else(|_| PathBuf::from("/tmp"))
}

/// Makes the directory of a server's socket and log, named so that no other run has it.
pub(crate) fn run_dir(journal: &Journal, port: u16, user: Option<(u32, u32)>) -> Result<PathBuf, ServerError> {
    let name = format!("backwater-{}-{:08x}", journal.run(), rand::random::<u32>());
    let path = temporary_dir().join(name);
    let socket = path.join(format!(".s.PGSQL.{port}"));
    if socket.as_os_str().len() > SOCKET_PATH_BYTES {
        return Err(ServerError::SocketPath { path: socket, limit: SOCKET_PATH_BYTES });
    }
    private(journal, &path, user)?;
    Ok(path)
}

/// Checks that the user may enter every directory above `path`: PostgreSQL's own message would not say which is shut.
pub(crate) fn reachable(path: &Path, user: Option<(u32, u32)>) -> Result<(), ServerError> {
    let Some((uid, gid)) = user else { return Ok(()) };
    for dir in path.ancestors().skip(1).filter(|dir| dir.exists()) {
        let metadata = std::fs::metadata(dir).map_err(ServerError::file("look at", dir))?;
        let bit = match () {
            () if metadata.uid() == uid => 0o100,
            () if metadata.gid() == gid => 0o010,
            () => 0o001,
        };
        if metadata.mode() & bit == 0 {
            return Err(ServerError::Unreachable { path: path.to_path_buf(), shut: dir.to_path_buf(), uid });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn directories_are_noted_private_and_gone_in_the_end() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::begin(state.path(), "test").unwrap();
        let dir = run_dir(&journal, 5432, None).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        let other = run_dir(&journal, 5432, None).unwrap();
        assert_ne!(dir, other);
        private(&journal, &dir, None).unwrap();
        journal.finish().unwrap();
        assert!(!dir.exists() && !other.exists());
    }

    #[test]
    fn what_is_to_be_read_alone_is_made_anew_and_gone_in_the_end() {
        let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let journal = Journal::begin(state.path(), "test").unwrap();
        let (path, link) = (dir.path().join("backwater-driver"), dir.path().join("backwater-link"));
        readable(&journal, &path).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.uid()), (0o755, rustix::process::geteuid().as_raw()));
        std::os::unix::fs::symlink(state.path(), &link).unwrap();
        assert!(readable(&journal, &link).is_err(), "a link is not followed");
        journal.finish().unwrap();
        assert!(!path.exists() && link.is_symlink());
    }

    #[test]
    fn an_empty_or_relative_tmpdir_does_no_harm() {
        assert_eq!(absolute_or_tmp(PathBuf::new()), Path::new("/tmp"));
        assert!(absolute_or_tmp(PathBuf::from("here")).is_absolute());
        assert_eq!(absolute_or_tmp(PathBuf::from("/there")), Path::new("/there"));
    }

    #[test]
    fn the_shut_directory_is_named_with_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let shut = dir.path().join("shut");
        std::fs::create_dir(&shut).unwrap();
        for (path, mode) in [(dir.path(), 0o755), (shut.as_path(), 0o700)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let stranger = Some((u32::MAX - 7, u32::MAX - 7));
        let error = reachable(&shut.join("data"), stranger).unwrap_err().to_string();
        assert!(error.contains(&format!("chmod o+x {}", shut.display())), "{error}");
        reachable(&shut.join("data"), None).unwrap();
    }
}
