//! Named network namespaces that the run made.

use super::Why;
use crate::ours;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io::ErrorKind;
use std::path::Path;

/// What `ip netns delete` does: unmounts the name's file and removes it. The namespace ends with its last process.
pub(super) fn remove(name: &str) -> Result<(), Why> {
    let path = Path::new("/run/netns").join(name);
    if name.contains('/') || !ours::is_named_ours(&path) {
        return Err(format!("network namespace {name} is not named backwater-…"));
    }
    match rustix::mount::unmount(&path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        // Not a mount point: killed between making the file and mounting the namespace on it.
        Ok(()) | Err(Errno::NOENT | Errno::INVAL) => {}
        Err(error) => return Err(format!("cannot unmount {}: {error}", path.display())),
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("cannot remove {}: {error}", path.display())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names() {
        assert!(remove("cni-1").is_err());
        assert!(remove("backwater-a/../b").is_err());
    }
}
