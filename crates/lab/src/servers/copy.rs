//! A standby's files: a copy of its primary's while that does not run, which needs no `pg_basebackup` (packages of the
//! server alone lack it).

use super::{PostgresSpec, ServerError, initdb};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, chown, symlink};
use std::path::Path;

/// Makes a server follow another from its next start on.
const SIGNAL: &str = "standby.signal";
/// What belongs to the primary alone: who runs it, and for whom it keeps WAL.
const NOT_COPIED: [&str; 4] = ["postmaster.pid", "postmaster.opts", "pg_replslot", "pg_wal"];

/// Makes the data of a standby from those of its primary, in place of what there is.
pub(super) fn standby(primary: &PostgresSpec, standby: &PostgresSpec) -> Result<(), ServerError> {
    let data = &standby.data_dir;
    empty(data)?;
    let entries = fs::read_dir(&primary.data_dir).map_err(ServerError::file("read", &primary.data_dir))?;
    for entry in entries {
        let entry = entry.map_err(ServerError::file("read", &primary.data_dir))?;
        if !NOT_COPIED.iter().any(|name| *name == entry.file_name()) {
            tree(&entry.path(), &data.join(entry.file_name()), standby.user)?;
        }
    }
    directory(&data.join("pg_replslot"), standby.user)?;
    let wal = data.join("pg_wal");
    match &standby.wal_dir {
        Some(elsewhere) => {
            empty(elsewhere)?;
            symlink(elsewhere, &wal).map_err(ServerError::file("make", &wal))?;
        }
        None => directory(&wal, standby.user)?,
    }
    directory(&wal.join("archive_status"), standby.user)?;
    segments(&primary.data_dir, &wal, standby.user)?;
    initdb::write_owned(&data.join(SIGNAL), "", standby.user)
}

/// The segment that recovery will begin with and those after it, among them old ones kept for reuse: a standby that has
/// run for a while has such too, and does not have to make each segment anew.
fn segments(primary: &Path, wal: &Path, user: Option<(u32, u32)>) -> Result<(), ServerError> {
    let from = primary.join("pg_wal");
    let oldest = redo_segment(&primary.join("global/pg_control"))?;
    let needed = |name: &str| match &oldest {
        Some(oldest) if is_segment(name) => &name[8..] >= oldest.as_str(),
        _ => is_segment(name) || Path::new(name).extension().is_some_and(|end| end == "history"),
    };
    for entry in fs::read_dir(&from).map_err(ServerError::file("read", &from))? {
        let entry = entry.map_err(ServerError::file("read", &from))?;
        if entry.file_name().to_str().is_some_and(needed) {
            file(&entry.path(), &wal.join(entry.file_name()), user)?;
        }
    }
    Ok(())
}

fn is_segment(name: &str) -> bool {
    name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The last 16 digits of the name of the segment that recovery begins in, for segments of the usual size: the redo
/// position of the last checkpoint lies 40 bytes into pg_control (`ControlFileData`, catalog/pg_control.h, 12 to 18).
fn redo_segment(control: &Path) -> Result<Option<String>, ServerError> {
    let bytes = fs::read(control).map_err(ServerError::file("read", control))?;
    let redo = bytes.get(40..48).and_then(|redo| redo.try_into().ok()).map(u64::from_ne_bytes);
    Ok(redo.filter(|redo| *redo > 0).map(|redo| {
        let segment = redo / (16 << 20);
        format!("{:08X}{:08X}", segment / 0x100, segment % 0x100)
    }))
}

/// Copies a file or a directory with all that is in it; links stay links.
fn tree(from: &Path, to: &Path, user: Option<(u32, u32)>) -> Result<(), ServerError> {
    let kind = fs::symlink_metadata(from).map_err(ServerError::file("look at", from))?.file_type();
    if kind.is_symlink() {
        let target = fs::read_link(from).map_err(ServerError::file("read", from))?;
        return symlink(target, to).map_err(ServerError::file("make", to));
    }
    if !kind.is_dir() {
        return file(from, to, user);
    }
    directory(to, user)?;
    for entry in fs::read_dir(from).map_err(ServerError::file("read", from))? {
        let entry = entry.map_err(ServerError::file("read", from))?;
        tree(&entry.path(), &to.join(entry.file_name()), user)?;
    }
    Ok(())
}

fn file(from: &Path, to: &Path, user: Option<(u32, u32)>) -> Result<(), ServerError> {
    fs::copy(from, to).map_err(ServerError::file("copy to", to))?;
    own(to, user)
}

fn directory(path: &Path, user: Option<(u32, u32)>) -> Result<(), ServerError> {
    DirBuilder::new().mode(0o700).create(path).map_err(ServerError::file("make", path))?;
    own(path, user)
}

fn own(path: &Path, user: Option<(u32, u32)>) -> Result<(), ServerError> {
    let Some((uid, gid)) = user else { return Ok(()) };
    chown(path, Some(uid), Some(gid)).map_err(ServerError::file("give to the server's user", path))
}

/// Removes all that is in a directory.
fn empty(directory: &Path) -> Result<(), ServerError> {
    for entry in fs::read_dir(directory).map_err(ServerError::file("read", directory))? {
        let entry = entry.map_err(ServerError::file("read", directory))?;
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(ServerError::file("remove", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn recovery_begins_in_the_segment_of_the_redo_position() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pg_control");
        let mut bytes = vec![0; 8_192];
        bytes[40..48].copy_from_slice(&0x0123_4567_89AB_u64.to_ne_bytes());
        fs::write(&path, &bytes).unwrap();
        assert_eq!(redo_segment(&path).unwrap().as_deref(), Some("0000012300000045"));
        fs::write(&path, [0; 20]).unwrap();
        assert_eq!(redo_segment(&path).unwrap(), None);
    }

    #[test]
    fn only_segments_are_segments() {
        assert!(is_segment("00000001000000000000000A"));
        assert!(!is_segment("00000002.history") && !is_segment("archive_status"));
    }
}
