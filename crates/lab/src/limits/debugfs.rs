//! debugfs, where the kernel tells what a single device has dirty: mounted for the run where it is not.

use super::LimitError;
use backwater_undo::{Change, Journal, mounted_at};
use rustix::mount::{MountFlags, mount};
use std::path::{Path, PathBuf};

/// Where everybody expects it.
const MOUNT_POINT: &str = "/sys/kernel/debug";
/// The source that our mount names, so that it is told from the host's own.
const SOURCE: &str = "backwater-debugfs";
/// The name under which runs hold it together: the last one unmounts it.
const SHARED: &str = "debugfs";

/// Mounts debugfs where it is not mounted; where it is.
pub fn ensure(journal: &Journal) -> Result<PathBuf, LimitError> {
    let target = Path::new(MOUNT_POINT);
    let of_host =
        || mounted_at(target).is_some_and(|mounted| mounted.file_system == "debugfs" && mounted.source != SOURCE);
    if of_host() {
        return Ok(target.to_owned());
    }
    // From here on no other run takes it down.
    journal.share(SHARED)?;
    journal.note(Change::Mount {
        target: target.to_owned(),
        source: SOURCE.to_owned(),
        shared: Some(SHARED.to_owned()),
    })?;
    if mounted_at(target).is_none() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(SOURCE, target, "debugfs", flags, None).map_err(|error| LimitError::Unsupported {
            what: "reading a device's dirty level".to_owned(),
            why: format!("debugfs cannot be mounted on {MOUNT_POINT}: {error}"),
            next: "Run as root on a kernel with CONFIG_DEBUG_FS, outside of a container".to_owned(),
        })?;
    }
    Ok(target.to_owned())
}

/// `bdi/MAJ:MIN/stats`, where it can be read.
pub(super) fn device_stats(dev: &str) -> Option<String> {
    std::fs::read_to_string(Path::new(MOUNT_POINT).join("bdi").join(dev).join("stats")).ok()
}
