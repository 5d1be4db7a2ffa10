//! Values of kernel files, throttle rules of cgroups.

use super::Why;
use crate::change::NO_IO_MAX;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Writes `before` back, unless it is what stands there or the file is gone.
pub(super) fn file(path: &Path, before: &str) -> Result<(), Why> {
    match std::fs::read_to_string(path) {
        Ok(now) if now.trim() == before.trim() => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Ok(_) | Err(_) => write(path, before.trim()),
    }
}

/// Restores or clears the rule of one device in a cgroup v1 throttle file.
pub(super) fn blkio_rule(path: &Path, dev: &str, before: Option<u64>) -> Result<(), Why> {
    write(path, &format!("{dev} {}", before.unwrap_or(0)))
}

/// Restores or clears the rule of one device in a cgroup v2's io.max.
pub(super) fn io_max(cgroup: &Path, dev: &str, before: Option<&str>) -> Result<(), Why> {
    write(&cgroup.join("io.max"), &format!("{dev} {}", before.unwrap_or(NO_IO_MAX)))
}

/// One write, as kernel files want it. A file, group or device that is gone needs no value.
fn write(path: &Path, value: &str) -> Result<(), Why> {
    let written =
        OpenOptions::new().write(true).truncate(true).open(path).and_then(|mut file| file.write_all(value.as_bytes()));
    match written {
        Err(error) if !is_gone(&error) => Err(format!("cannot write '{value}' to {}: {error}", path.display())),
        _ => Ok(()),
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    let no_device = [Errno::NODEV, Errno::NXIO].map(|errno| Some(errno.raw_os_error()));
    error.kind() == ErrorKind::NotFound || no_device.contains(&error.raw_os_error())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_come_back_and_missing_files_are_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dirty_ratio");
        assert_eq!(file(&path, "20\n"), Ok(()));
        assert!(!path.exists());
        std::fs::write(&path, "0\n").unwrap();
        file(&path, "20\n").unwrap();
        file(&path, "20\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "20");
    }

    #[test]
    fn rules_are_cleared_or_restored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io.max");
        std::fs::write(&path, "").unwrap();
        io_max(dir.path(), "7:0", None).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "7:0 rbps=max wbps=max riops=max wiops=max");
        io_max(dir.path(), "7:0", Some("rbps=1 wbps=max riops=max wiops=2")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "7:0 rbps=1 wbps=max riops=max wiops=2");
        blkio_rule(&path, "7:0", Some(1_500)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "7:0 1500");
        assert_eq!(io_max(&dir.path().join("gone"), "7:0", None), Ok(()));
    }
}
