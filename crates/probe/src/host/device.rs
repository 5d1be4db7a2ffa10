//! The device under a directory, and its relatives: the whole device of a partition, the file behind a loop device,
//! the parts of a device-mapper or md one. Read from mountinfo and `/sys/dev/block/MAJ:MIN`.

use super::file::{self, KernelFile};
use super::mounts::{Mount, covering, mounts_of};
use super::{Roots, text};
use crate::ProbeError;
use backwater_model::{Device, Epoch};
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::path::{Component, Path, PathBuf};

/// As many symbolic links are followed as the kernel follows.
const MOST_LINKS: usize = 40;
/// Loop devices on loop devices, device mappers on device mappers: no deeper than this.
const DEEPEST: usize = 8;
/// How the numbers of loop devices begin (Documentation/admin-guide/devices.txt).
const LOOP_MAJOR: &str = "7:";

/// The device under a path of this host, symbolic links (such as pg_wal often is) followed.
pub fn locate(roots: &Roots, path: &Path) -> Result<Device, ProbeError> {
    locate_from(roots, &roots.proc.join("self"), Path::new("/"), path)
}

/// The device under a path as one process sees it, in the mounts and the root directory of its container.
pub fn locate_in(roots: &Roots, pid: i32, path: &Path) -> Result<Device, ProbeError> {
    let process = roots.proc.join(pid.to_string());
    locate_from(roots, &process, &process.join("root"), path)
}

/// Where this process reaches a path of another one, symbolic links followed as that one would.
pub(super) fn place_in(roots: &Roots, pid: i32, path: &Path) -> std::io::Result<PathBuf> {
    let root = roots.proc.join(pid.to_string()).join("root");
    let inside = resolve(&root, path)?;
    Ok(root.join(inside.strip_prefix("/").unwrap_or(&inside)))
}

fn locate_from(roots: &Roots, process: &Path, root: &Path, path: &Path) -> Result<Device, ProbeError> {
    let fail = |source| ProbeError::Read { path: path.to_owned(), source };
    let resolved = resolve(root, path).map_err(fail)?;
    let mounts = mounts_of(process)?;
    let nowhere = || fail(Error::new(ErrorKind::NotFound, "no mounted file system holds it"));
    let mount = covering(&mounts, &resolved).ok_or_else(nowhere)?;
    Ok(device_of_mount(roots, mount, &mounts, DEEPEST))
}

fn device_of_mount(roots: &Roots, mount: &Mount, mounts: &[Mount], depth: usize) -> Device {
    if !mount.dev.starts_with("0:") {
        return device(roots, &mount.dev);
    }
    if let Some(dev) = device_number_of_path(roots, &mount.source) {
        // btrfs and the like: the file system has a number of its own and the source names a member device.
        return Device { mount_points: vec![shown(&mount.mount_point)], ..device(roots, &dev) };
    }
    let upper = mount.options.split(',').find_map(|option| option.strip_prefix("upperdir="));
    let below = upper.and_then(|upper| covering(mounts, upper.as_ref()));
    if let Some(below) = below.filter(|below| depth > 0 && *below != mount) {
        return device_of_mount(roots, below, mounts, depth - 1);
    }
    Device {
        dev: mount.dev.clone(),
        name: mount.source.clone(),
        mount_points: vec![shown(&mount.mount_point)],
        fs_type: Some(mount.fs_type.clone()),
        ..Device::default()
    }
}

/// What sysfs and the mounts of this host say of a device (`MAJ:MIN`). What they do not say stays empty.
pub fn device(roots: &Roots, dev: &str) -> Device {
    let dir = directory(roots, dev);
    let mounts = mounts_of(&roots.proc.join("self")).unwrap_or_default();
    let mine: Vec<&Mount> = mounts.iter().filter(|mount| mount.dev == dev).collect();
    let points: BTreeSet<String> = mine.iter().map(|mount| shown(&mount.mount_point)).collect();
    Device {
        dev: dev.to_owned(),
        name: device_name(&dir).unwrap_or_else(|| dev.to_owned()),
        parent: dir.join("partition").exists().then(|| file::word(&dir.join("../dev"))).flatten(),
        backing: backing(&dir),
        mount_points: points.into_iter().collect(),
        fs_type: mine.first().map(|mount| mount.fs_type.clone()),
        roles: Vec::new(),
    }
}

/// A device and its relatives, itself first in spirit: partition → whole device → what is behind it.
pub(super) fn family(roots: &Roots, dev: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    let mut open = vec![(dev.to_owned(), DEEPEST)];
    while let Some((dev, depth)) = open.pop() {
        if !known.insert(dev.clone()) || depth == 0 {
            continue;
        }
        let device = device(roots, &dev);
        let behind = device.backing.iter().filter_map(|name| device_number_behind(roots, name));
        open.extend(device.parent.into_iter().chain(behind).map(|dev| (dev, depth - 1)));
    }
    known
}

fn device_number_behind(roots: &Roots, name: &str) -> Option<String> {
    if name.starts_with('/') {
        let device = locate(roots, name.as_ref()).ok()?;
        return (!device.dev.starts_with("0:")).then_some(device.dev);
    }
    device_number_of_name(roots, name)
}

fn directory(roots: &Roots, dev: &str) -> PathBuf {
    roots.sys.join("dev/block").join(dev)
}

fn device_name(dir: &Path) -> Option<String> {
    let uevent = file::read(&dir.join("uevent")).ok()?;
    uevent.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned)
}

fn backing(dir: &Path) -> Vec<String> {
    if let Some(file) = file::word(&dir.join("loop/backing_file")) {
        return vec![file];
    }
    let entries = std::fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn device_number_of_name(roots: &Roots, name: &str) -> Option<String> {
    file::word(&roots.sys.join("class/block").join(name).join("dev")).filter(|dev| text::is_device_number(dev))
}

/// `/dev/mapper/vg-data` and the like → `MAJ:MIN`.
fn device_number_of_path(roots: &Roots, path: &str) -> Option<String> {
    let path = Path::new(path);
    if !path.starts_with("/dev") {
        return None;
    }
    let real = resolve(Path::new("/"), path).unwrap_or_else(|_| path.to_owned());
    device_number_of_name(roots, &real.file_name()?.to_string_lossy())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// An absolute path without symbolic links, as seen by somebody whose root directory is `root`. (The standard
/// library would follow an absolute link out of a container.)
fn resolve(root: &Path, path: &Path) -> std::io::Result<PathBuf> {
    let absolute = if path.is_absolute() { path.to_owned() } else { std::env::current_dir()?.join(path) };
    let mut todo: Vec<PathBuf> = parts(&absolute);
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == Path::new("..") {
            done.pop();
            continue;
        }
        let next = done.join(&part);
        let here = root.join(next.strip_prefix("/").unwrap_or(&next));
        if !std::fs::symlink_metadata(&here)?.is_symlink() {
            done = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Error::from(rustix::io::Errno::LOOP));
        }
        let target = std::fs::read_link(&here)?;
        if target.is_absolute() {
            done = PathBuf::from("/");
        }
        todo.extend(parts(&target));
    }
    Ok(done)
}

/// The parts of a path, the last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let useful = path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    useful.map(|part| PathBuf::from(part.as_os_str())).collect()
}

/// Tells one life of a device from the next: the boot, and the device's sequence number (Linux 5.15), which changes
/// whenever a loop device gets another file. Older kernels: the file itself.
#[derive(Debug)]
pub(super) struct Life {
    boot: String,
    dev: String,
    sequence: KernelFile,
    backing: Option<KernelFile>,
}

impl Life {
    pub(super) fn new(roots: &Roots, dev: &str) -> Self {
        let dir = directory(roots, dev);
        Life {
            boot: file::boot_id(roots),
            dev: dev.to_owned(),
            sequence: KernelFile::optional(dir.join("diskseq")),
            backing: dev.starts_with(LOOP_MAJOR).then(|| KernelFile::short(dir.join("loop/backing_file"))),
        }
    }

    /// The present epoch of the device's counters.
    pub(super) fn epoch(&mut self) -> Epoch {
        let sequence = self.sequence.read().unwrap_or_default();
        let backing = self.backing.as_mut().filter(|_| sequence.is_empty());
        let backing = backing.and_then(|file| file.read().ok()).unwrap_or_default();
        Epoch::of(&["device", &self.boot, &self.dev, sequence.trim(), backing.trim()])
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
