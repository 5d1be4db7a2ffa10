//! Loop devices that hold a file of the run.

use super::Why;
use crate::wait;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where losetup is, also when the PATH of the caller lacks administrators' programs (as `su` leaves it).
const PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
/// How long the kernel may take to let go of the file.
const FREE_WITHIN: Duration = Duration::from_secs(5);

/// Detaches `device` if the file behind it is still `backing`.
pub(super) fn detach(device: &Path, backing: &Path) -> Result<(), Why> {
    if !holds(device, backing) {
        return Ok(());
    }
    let output = Command::new("losetup").env("PATH", PATH).arg("--detach").arg(device).output();
    let output = output.map_err(|error| format!("cannot run losetup: {error}"))?;
    if wait::until(FREE_WITHIN, || !holds(device, backing)) {
        return Ok(());
    }
    if attribute(device, "autoclear").as_deref() == Some("1") {
        tracing::warn!(device = %device.display(), "still in use: detached when its last user ends");
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(if text.is_empty() { format!("{} is still attached", device.display()) } else { text })
}

/// Whether the kernel says that `backing` is behind `device`. A file that was removed meanwhile counts.
fn holds(device: &Path, backing: &Path) -> bool {
    let Some(file) = attribute(device, "backing_file") else { return false };
    Path::new(file.strip_suffix(" (deleted)").unwrap_or(&file)) == backing
}

fn attribute(device: &Path, name: &str) -> Option<String> {
    let directory = PathBuf::from("/sys/block").join(device.file_name()?).join("loop");
    std::fs::read_to_string(directory.join(name)).ok().map(|text| text.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_holds_nothing_of_ours_is_left_alone() {
        assert_eq!(detach(Path::new("/dev/loop-none"), Path::new("/backwater-x/image")), Ok(()));
        assert_eq!(detach(Path::new("/"), Path::new("/backwater-x/image")), Ok(()));
    }
}
