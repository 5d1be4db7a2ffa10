//! Control groups: which ones a process is in, on version 1, version 2 or both at once, and how to reach them.

mod io;
mod membership;
mod memory;
mod v1;
mod v2;

pub(super) use io::IoGroups;
pub(super) use membership::Membership;
pub(super) use memory::MemoryGroups;

use super::mounts::mounts_of;
use super::{Roots, file};
use crate::ProbeError;
use backwater_model::Epoch;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Which of the kernel's two interfaces a group is reached through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CgroupVersion {
    /// One hierarchy a controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// One control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The interface it is reached through.
    pub version: CgroupVersion,
    /// Its path as `/proc/PID/cgroup` spells it, `/` for the root group: the label `cgroup` of its series.
    pub path: String,
    /// Its directory.
    pub dir: PathBuf,
}

/// The groups whose controllers act on a process. None where the controller is not there or the group is out of sight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// Of block I/O: the nearest group on the way to the root that has the controller.
    pub io: Option<Cgroup>,
    /// Of memory: the nearest group on the way to the root that has the controller.
    pub memory: Option<Cgroup>,
    /// On the one hierarchy of version 2, whatever its controllers.
    pub unified: Option<Cgroup>,
}

impl Cgroup {
    /// Whether it is the root group, which no memory limit can be set on.
    pub fn is_root(&self) -> bool {
        self.path == "/"
    }

    /// The group it lies in; none for the root.
    pub fn parent(&self) -> Option<Cgroup> {
        let (above, _) = self.path.trim_end_matches('/').rsplit_once('/')?;
        let path = if above.is_empty() { "/" } else { above };
        Some(Cgroup { version: self.version, path: path.to_owned(), dir: self.dir.parent()?.to_owned() })
    }

    /// Itself, its parent, and so on up to and including the root.
    pub fn way_to_root(&self) -> impl Iterator<Item = Cgroup> {
        std::iter::successors(Some(self.clone()), Cgroup::parent)
    }

    /// Tells one life of the group from the next: a group made anew in the same place has another inode.
    pub(super) fn epoch(&self, boot: &str) -> Epoch {
        let inode = std::fs::metadata(&self.dir).map(|metadata| metadata.ino()).unwrap_or_default();
        Epoch::of(&["cgroup", boot, &self.path, &inode.to_string()])
    }
}

/// The control groups of a process.
pub fn cgroups_of(roots: &Roots, pid: i32) -> Result<Cgroups, ProbeError> {
    let text = file::read(&roots.proc.join(pid.to_string()).join("cgroup"))?;
    let old = |controller: &str| {
        let path = path_on_v1(&text, controller)?;
        reach(roots, CgroupVersion::V1, &roots.cgroup.join(controller), path)
    };
    let unified =
        unified_top(roots).zip(path_on_v2(&text)).and_then(|(top, path)| reach(roots, CgroupVersion::V2, &top, path));
    let new = |file: &str| unified.as_ref()?.way_to_root().find(|group| group.dir.join(file).exists());
    Ok(Cgroups {
        io: old("blkio").or_else(|| new("io.stat")),
        memory: old("memory").or_else(|| new("memory.stat")),
        unified: unified.clone(),
    })
}

/// `v1`, `v2` or `hybrid`; none where no control groups are mounted.
pub(super) fn version(roots: &Roots) -> Option<&'static str> {
    let v1 = ["blkio", "memory", "cpu"].iter().any(|controller| roots.cgroup.join(controller).is_dir());
    match (v1, unified_top(roots)) {
        (false, None) => None,
        (true, None) => Some("v1"),
        (false, Some(_)) => Some("v2"),
        (true, Some(_)) => Some("hybrid"),
    }
}

/// Where the root group of version 2 is.
pub(super) fn unified_top(roots: &Roots) -> Option<PathBuf> {
    let places = [roots.cgroup.clone(), roots.cgroup.join("unified")];
    places.into_iter().find(|top| top.join("cgroup.controllers").exists())
}

/// The root group whose I/O controller acts here.
pub(super) fn io_root(roots: &Roots) -> Option<Cgroup> {
    let old = reach(roots, CgroupVersion::V1, &roots.cgroup.join("blkio"), "/");
    let new = || {
        let top = unified_top(roots)?;
        let controllers = file::read(&top.join("cgroup.controllers")).ok()?;
        controllers.split_ascii_whitespace().any(|name| name == "io").then_some(top)
    };
    old.or_else(|| reach(roots, CgroupVersion::V2, &new()?, "/"))
}

fn path_on_v1<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    lines(text).find(|(_, names, _)| names.split(',').any(|name| name == controller)).map(|(_, _, path)| path)
}

fn path_on_v2(text: &str) -> Option<&str> {
    lines(text).find(|(id, names, _)| *id == "0" && names.is_empty()).map(|(_, _, path)| path)
}

fn lines(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        Some((parts.next()?, parts.next()?, parts.next()?))
    })
}

/// The directory of a group. In a container only a part of the hierarchy may be mounted: then the path begins with
/// what the mount shows as its root.
fn reach(roots: &Roots, version: CgroupVersion, top: &Path, path: &str) -> Option<Cgroup> {
    if Path::new(path).components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let below = |part: &Path| {
        let dir = top.join(part);
        dir.is_dir().then_some(dir)
    };
    let inner = path.trim_start_matches('/');
    if let Some(dir) = below(inner.as_ref()) {
        let path = format!("/{}", inner.trim_end_matches('/'));
        return Some(Cgroup { version, path, dir });
    }
    let mounts = mounts_of(&roots.proc.join("self")).ok()?;
    let mount = mounts.iter().rfind(|mount| mount.mount_point == top)?;
    let seen = Path::new(path).strip_prefix(&mount.root).ok()?;
    Some(Cgroup { version, path: format!("/{}", seen.display()), dir: below(seen)? })
}

/// Reads a text as any file of a cgroup that has a shape of its own. For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn exercise(text: &str) {
    v2::limits(text).count();
    v2::counters(text).count();
    v1::limits(text, v1::LIMITS[0].1, v1::LIMITS[0].2).count();
    v1::counters(text, v1::COUNTERS[0].1).count();
    memory::exercise(text);
    for path in [path_on_v1(text, "memory"), path_on_v2(text)].into_iter().flatten() {
        let group = Cgroup { version: CgroupVersion::V1, path: path.to_owned(), dir: PathBuf::from("/") };
        assert!(group.way_to_root().count() <= path.len() + 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::fixture;
    use proptest::prelude::*;

    #[test]
    fn a_process_on_version_1_has_a_group_for_each_controller() {
        let (roots, _) = fixture("capped");
        let groups = cgroups_of(&roots, 10_911).unwrap();
        let io = groups.io.unwrap();
        assert_eq!((io.version, io.path.as_str(), io.is_root()), (CgroupVersion::V1, "/", true));
        let memory = groups.memory.unwrap();
        let way: Vec<_> = memory.way_to_root().map(|group| group.path).collect();
        assert_eq!(way, ["/db/pg", "/db", "/"]);
        assert_eq!(memory.way_to_root().last().unwrap().dir, roots.cgroup.join("memory"));
        assert_eq!((groups.unified, version(&roots)), (None, Some("v1")));
    }

    #[test]
    fn a_process_on_version_2_has_one_group() {
        let (roots, _) = fixture("unified");
        let groups = cgroups_of(&roots, 10_911).unwrap();
        assert_eq!(groups.io, groups.memory);
        assert_eq!(groups.io.unwrap().path, "/system.slice/postgresql.service");
        assert_eq!(version(&roots), Some("v2"));
        assert_eq!(io_root(&roots).unwrap().path, "/");
    }

    #[test]
    fn the_nearest_group_with_the_controller_acts() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        std::fs::create_dir_all(roots.cgroup.join("a/b")).unwrap();
        std::fs::create_dir_all(roots.proc.join("7")).unwrap();
        std::fs::write(roots.cgroup.join("cgroup.controllers"), "memory\n").unwrap();
        std::fs::write(roots.cgroup.join("a/memory.stat"), "file 0\n").unwrap();
        std::fs::write(roots.proc.join("7/cgroup"), "0::/a/b\n").unwrap();
        let groups = cgroups_of(&roots, 7).unwrap();
        assert_eq!(groups.memory.unwrap().path, "/a");
        assert_eq!((groups.io, io_root(&roots)), (None, None));
        std::fs::write(roots.proc.join("7/cgroup"), "0::/../elsewhere\n").unwrap();
        assert_eq!(cgroups_of(&roots, 7).unwrap(), Cgroups::default());
    }

    #[test]
    fn a_container_that_mounts_its_own_part_is_reached_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let top = roots.cgroup.join("memory");
        std::fs::create_dir_all(top.join("inner")).unwrap();
        std::fs::create_dir_all(roots.proc.join("self")).unwrap();
        std::fs::create_dir_all(roots.proc.join("7")).unwrap();
        let mount = format!("1 0 0:31 /docker/abc {} rw - cgroup cgroup rw,memory\n", top.display());
        std::fs::write(roots.proc.join("self/mountinfo"), mount).unwrap();
        std::fs::write(roots.proc.join("7/cgroup"), "4:memory:/docker/abc/inner\n").unwrap();
        assert_eq!(cgroups_of(&roots, 7).unwrap().memory.unwrap().dir, top.join("inner"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*", path in "[/a.]{0,9}") {
            path_on_v1(&text, "blkio");
            path_on_v2(&text);
            let group = Cgroup { version: CgroupVersion::V2, path, dir: "/x/y".into() };
            prop_assert!(group.way_to_root().take(20).count() < 20);
        }
    }
}
