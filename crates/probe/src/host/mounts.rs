//! Mounted file systems: `/proc/PID/mountinfo` (proc(5)).

use super::file;
use crate::ProbeError;
use std::path::{Path, PathBuf};

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Device number of the file system; its major is 0 where no block device is directly below.
    pub(super) dev: String,
    /// The directory of the file system that is mounted here.
    pub(super) root: PathBuf,
    /// Where it is mounted.
    pub(super) mount_point: PathBuf,
    /// `ext4`, `cgroup2`…
    pub(super) fs_type: String,
    /// What is mounted: a device path, a server's export, or any word.
    pub(super) source: String,
    /// Options of the file system.
    pub(super) options: String,
}

/// The mounts that one process sees; `process` is its directory under /proc.
pub(super) fn mounts_of(process: &Path) -> Result<Vec<Mount>, ProbeError> {
    Ok(parse(&file::read(&process.join("mountinfo"))?))
}

/// Every line that has the fields needed.
pub(super) fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (fixed, after) = line.split_once(" - ")?;
    let mut fixed = fixed.split(' ').skip(2);
    let (dev, root, mount_point) = (fixed.next()?, fixed.next()?, fixed.next()?);
    let mut after = after.split(' ');
    Some(Mount {
        dev: dev.to_owned(),
        root: unescape(root).into(),
        mount_point: unescape(mount_point).into(),
        fs_type: after.next()?.to_owned(),
        source: unescape(after.next()?),
        options: unescape(after.next().unwrap_or_default()),
    })
}

/// The mount that holds an absolute path without symbolic links: the deepest, and of several in the same place the
/// last.
pub(super) fn covering<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let fitting = mounts.iter().filter(|mount| path.starts_with(&mount.mount_point));
    fitting.max_by_key(|mount| mount.mount_point.components().count())
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(word: &str) -> String {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
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
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn captured_mounts_are_read_and_the_deepest_covers() {
        let mounts = parse(include_str!("../../tests/fixtures/capped/proc/self/mountinfo"));
        let on =
            |path: &str| covering(&mounts, path.as_ref()).map(|mount| (mount.dev.as_str(), mount.fs_type.as_str()));
        assert_eq!(on("/srv/pg/data/base"), Some(("7:0", "ext4")));
        assert_eq!(on("/srv/pgother"), Some(("254:0", "ext4")));
        assert_eq!(on("/dev/shm/x"), Some(("0:27", "tmpfs")), "the later of two mounts in one place hides the other");
    }

    #[test]
    fn optional_fields_and_escapes_are_understood() {
        let line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/ro\\134ot rw,errors=continue";
        let mounts = parse(line);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].mount_point, Path::new("/mnt 2"));
        assert_eq!(mounts[0].root, Path::new("/mnt1"));
        assert_eq!(mounts[0].source, "/dev/ro\\ot");
        assert_eq!(mounts[0].options, "rw,errors=continue");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*", word in "[\\\\0-7é ]*") {
            parse(&text);
            unescape(&word);
        }
    }
}
