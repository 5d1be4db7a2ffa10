//! Backing files and the loop devices on them.

use super::{LimitError, tool, values};
use backwater_model::Bytes;
use backwater_undo::{Change, Journal};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How often another free device is asked for when somebody else was faster.
const ATTEMPTS: usize = 8;
/// statfs's magic number of tmpfs, where the file's blocks are memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Makes a backing file whose blocks are reserved, so that a full host disk cannot turn into I/O errors in the middle
/// of an experiment. On tmpfs they are memory: there the file stays sparse, and its size is only checked.
pub(super) fn make_file(path: &Path, size_bytes: u64) -> Result<(), LimitError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    check_space(dir, size_bytes)?;
    let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = opened.map_err(LimitError::file("create", path))?;
    if !is_memory(dir) {
        match fallocate(&file, FallocateFlags::empty(), 0, size_bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(LimitError::file("reserve the blocks of", path)(error.into())),
        }
    }
    file.set_len(size_bytes).map_err(LimitError::file("set the size of", path))
}

/// A twentieth or 64 MiB more than the volume must stay free for the others on that disk.
fn check_space(dir: &Path, size_bytes: u64) -> Result<(), LimitError> {
    let space = statvfs(dir).map_err(|error| LimitError::file("look at", dir)(error.into()))?;
    let mut free = space.f_bavail.saturating_mul(space.f_frsize);
    if is_memory(dir) {
        free = free.min(available_memory().unwrap_or(free));
    }
    let needed = size_bytes.saturating_add((size_bytes / 20).max(64 << 20));
    if free >= needed {
        Ok(())
    } else {
        Err(LimitError::NoSpace { dir: dir.to_owned(), free: Bytes(free), needed: Bytes(needed) })
    }
}

fn is_memory(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC)
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Attaches a free loop device to the file. It is noted before, by name: should somebody else take that device in
/// between, the undo sees that another file is behind it, and the next free one is tried.
pub(super) fn attach(journal: &Journal, file: &Path, direct_io: bool) -> Result<PathBuf, LimitError> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let device = PathBuf::from(tool::run("losetup", &["--find"])?);
        let entry = journal.note(Change::Loop { dev_path: device.clone(), backing: file.to_owned() })?;
        let direct: &OsStr = if direct_io { "--direct-io=on" } else { "--direct-io=off" }.as_ref();
        match tool::run_journalled(journal, "losetup", &[direct, device.as_os_str(), file.as_os_str()]) {
            Ok(_) => return check_direct_io(&device, file, direct_io).map(|()| device),
            Err(error) => {
                journal.undo(entry)?;
                last = Some(error);
            }
        }
    }
    let message = last.map_or_else(String::new, |error| error.to_string());
    Err(LimitError::Tool { command: format!("losetup --find {}", file.display()), message })
}

/// Without direct I/O the host's page cache would stand behind the volume's and take what the cap lets through at once.
fn check_direct_io(device: &Path, file: &Path, wanted: bool) -> Result<(), LimitError> {
    let attribute = attributes(device).join("loop/dio");
    if !wanted || values::read(&attribute)? == "1" {
        return Ok(());
    }
    Err(LimitError::Unsupported {
        what: "direct I/O of the loop device".to_owned(),
        why: format!("the file system of {} does not take it", file.display()),
        next: "Put the volume's file on ext4 or XFS, or ask for a volume without direct I/O".to_owned(),
    })
}

/// The device's directory in sysfs.
pub(super) fn attributes(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// `MAJ:MIN`.
pub(super) fn number(device: &Path) -> Result<String, LimitError> {
    values::read(&attributes(device).join("dev"))
}

/// Writes out what the device's file system still holds in memory.
pub(super) fn sync(mount_point: &Path) -> Result<(), LimitError> {
    let directory = File::open(mount_point).map_err(LimitError::file("open", mount_point))?;
    rustix::fs::syncfs(directory).map_err(|error| LimitError::file("sync", mount_point)(error.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_has_its_size_and_nothing_too_large_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        make_file(&path, 1 << 20).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (1 << 20, 0o600));
        let error = make_file(&dir.path().join("large"), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("free, the volume needs"), "{error}");
        assert!(!dir.path().join("large").exists());
        assert!(make_file(&path, 1).is_err(), "a file that is there is not taken");
    }
}
