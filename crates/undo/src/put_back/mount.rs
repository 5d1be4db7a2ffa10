//! Mounts: what is mounted where, and unmounting what a run mounted.

use super::Why;
use crate::{claim, ours, wait};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a mount may stay busy after the processes on it have ended.
const FREE_WITHIN: Duration = Duration::from_secs(5);

/// One mount of this process's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub target: PathBuf,
    /// `ext4`, `debugfs`.
    pub file_system: String,
    /// `/dev/loop3`, or any text for a file system without a device.
    pub source: String,
}

/// What is mounted at exactly `target`: the topmost, where several are stacked.
pub fn mounted_at(target: &Path) -> Option<Mounted> {
    all().into_iter().rfind(|mounted| mounted.target == target)
}

/// A mount point at or below `path`.
pub(super) fn any_below(path: &Path) -> Option<PathBuf> {
    all().into_iter().map(|mounted| mounted.target).find(|target| target.starts_with(path))
}

fn all() -> Vec<Mounted> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

/// One line of mountinfo (proc_pid_mountinfo(5)): `36 35 98:0 /root /target opts [optional…] - ext4 /dev/x opts`.
fn parse(line: &[u8]) -> Option<Mounted> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = words.iter().skip(6).position(|word| *word == b"-")? + 6;
    let text = |index: usize| words.get(index).map(|word| String::from_utf8_lossy(&unescape(word)).into_owned());
    let target = PathBuf::from(OsString::from_vec(unescape(words.get(4)?)));
    Some(Mounted { target, file_system: text(dash + 1)?, source: text(dash + 2)? })
}

/// The kernel writes space, tab, newline and backslash as `\040` and the like.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// Unmounts `target` if what is on top there came from `source`. A shared mount is left to the last of those who hold
/// it, since each has it in its own journal.
pub(super) fn unmount_ours(target: &Path, source: &str, shared: Option<&str>, state_dir: &Path) -> Result<(), Why> {
    let _last = match shared.map(|name| claim::last(state_dir, name)) {
        Some(Ok(None)) => return Ok(()),
        Some(Err(error)) => return Err(error.to_string()),
        Some(Ok(lock)) => lock,
        None => None,
    };
    let mine = || mounted_at(target).is_some_and(|mounted| mounted.source == source);
    let mut failed = None;
    wait::until(FREE_WITHIN, || {
        if !mine() {
            return true;
        }
        failed = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW).err();
        // Anything but "busy" will not change by waiting, and whoever reads a view of the kernel may do so for days.
        failed.is_some_and(|error| error != Errno::BUSY || is_kernels_view(source))
    });
    // Also where it took longer than that: what stands in memory is written first, and some disks are slow.
    if !mine() {
        return Ok(());
    }
    detach_if_ours(target, source, state_dir, failed)
}

/// Whether the mount is a file system without a device that a run mounted (debugfs), told by the source it named.
fn is_kernels_view(source: &str) -> bool {
    source.starts_with(ours::PREFIX)
}

/// The last resort for a busy mount of the run's own: out of the tree now, freed when its last user ends. Another
/// recorder that has files of debugfs open goes on reading them; nothing is ever written there. A mount elsewhere, of
/// a device, is left to a person or a later run.
fn detach_if_ours(target: &Path, source: &str, state_dir: &Path, failed: Option<Errno>) -> Result<(), Why> {
    let why = failed.map_or_else(|| "unknown".to_owned(), |error| error.to_string());
    if failed == Some(Errno::BUSY) && (is_kernels_view(source) || ours::is_ours(target, state_dir)) {
        let said = "still in use: unmounted lazily, freed when its last user ends";
        match is_kernels_view(source) {
            true => tracing::info!(target_dir = %target.display(), said),
            false => tracing::warn!(target_dir = %target.display(), said),
        }
        let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
        return rustix::mount::unmount(target, flags)
            .map_err(|error| format!("cannot unmount {}: {error}", target.display()));
    }
    Err(format!("cannot unmount {}: {why}", target.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = br"98 1 7:0 / /mnt/a\040b rw,relatime shared:3 master:1 - ext4 /dev/loop0 rw";
        let wanted = Mounted { target: "/mnt/a b".into(), file_system: "ext4".into(), source: "/dev/loop0".into() };
        assert_eq!(parse(line).unwrap(), wanted);
        assert_eq!(parse(b"36 35 98:0 /mnt1 /mnt2 rw - tmpfs"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn the_root_is_mounted_and_nothing_of_ours() {
        assert!(mounted_at(Path::new("/")).is_some());
        assert!(any_below(Path::new("/proc")).is_some());
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(any_below(dir.path()), None);
        unmount_ours(dir.path(), "/dev/loop99", None, dir.path()).unwrap();
    }

    #[test]
    fn a_mount_of_somebody_else_is_left_alone() {
        unmount_ours(Path::new("/proc"), "not-the-source", None, Path::new("/nowhere")).unwrap();
        assert!(mounted_at(Path::new("/proc")).is_some());
    }

    #[test]
    fn a_view_of_the_kernel_is_unmounted_while_another_reads_it() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: put_back::mount::a_view_of_the_kernel_is_unmounted_while_another_reads_it: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().canonicalize().unwrap();
        let source = "backwater-view";
        rustix::mount::mount(source, &target, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
        std::fs::write(target.join("stats"), "42").unwrap();
        let mut reader = std::fs::File::open(target.join("stats")).unwrap();
        unmount_ours(&target, source, None, Path::new("/nowhere")).unwrap();
        assert_eq!(mounted_at(&target), None);
        assert_eq!(std::io::read_to_string(&mut reader).unwrap(), "42", "who had it open goes on reading");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
