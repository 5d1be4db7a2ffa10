//! A bound on processor time: a control group of its own with a quota, `cpu.cfs_quota_us` of cgroup v1 or `cpu.max` of v2.

use super::{LimitError, cap, values};
use backwater_undo::{Change, Journal};
use std::path::{Path, PathBuf};

/// The kernel's own period, over which a quota is counted.
const PERIOD_US: f64 = 100_000.0;
/// The least quota that it takes.
const LEAST_US: f64 = 1_000.0;

/// A control group whose processes share a part of one processor. It goes when the journal is finished; what runs in it then
/// is moved to its parent.
#[derive(Debug)]
pub struct ProcessorShare {
    group: PathBuf,
    is_v2: bool,
}

impl ProcessorShare {
    /// Makes the group, without a bound. `name` is for its own name: letters, digits and `-`.
    pub fn create(journal: &Journal, name: &str) -> Result<ProcessorShare, LimitError> {
        Self::create_in(journal, Path::new("/sys/fs/cgroup"), name)
    }

    /// Whether this host can bound processor time at all.
    pub(crate) fn possible() -> Result<(), LimitError> {
        let root = Path::new("/sys/fs/cgroup");
        if is_v1(root) || cap::has_controller(root, "cpu") { Ok(()) } else { Err(no_controller()) }
    }

    fn create_in(journal: &Journal, cgroup_root: &Path, name: &str) -> Result<ProcessorShare, LimitError> {
        let is_v2 = !is_v1(cgroup_root);
        if is_v2 {
            if !cap::has_controller(cgroup_root, "cpu") {
                return Err(no_controller());
            }
            cap::enable(cgroup_root, &["cpu"])?;
        }
        let group = if is_v2 { cgroup_root.to_owned() } else { cgroup_root.join("cpu") };
        let group = group.join(format!("backwater-{}-{name}", journal.run()));
        journal.note(Change::CgroupDir { path: group.clone() })?;
        std::fs::create_dir(&group).map_err(LimitError::file("create", &group))?;
        Ok(ProcessorShare { group, is_v2 })
    }

    /// Puts a process there, and with it its later children.
    pub fn adopt(&self, pid: u32) -> Result<(), LimitError> {
        values::write(&self.group.join("cgroup.procs"), &pid.to_string())
    }

    /// Bounds what its processes get together, as a share of one processor; 1.0 is one of them.
    pub fn bound(&self, journal: &Journal, share: f64) -> Result<(), LimitError> {
        let quota_us = (share * PERIOD_US).round();
        if !(LEAST_US..=PERIOD_US * 1e3).contains(&quota_us) {
            let why = "the kernel takes a hundredth of a processor at least".to_owned();
            return Err(LimitError::Value { what: "processor time".to_owned(), value: share.to_string(), why });
        }
        self.set(journal, &format!("{quota_us}"))
    }

    /// Lifts the bound; what is there stays there.
    pub fn lift(&self, journal: &Journal) -> Result<(), LimitError> {
        self.set(journal, if self.is_v2 { "max" } else { "-1" })
    }

    /// Noted as a limit: whoever puts the host back lifts it before it stops what is held by it.
    fn set(&self, journal: &Journal, quota_us: &str) -> Result<(), LimitError> {
        if self.is_v2 {
            return values::change(journal, &self.group.join("cpu.max"), &format!("{quota_us} {PERIOD_US}"));
        }
        values::change(journal, &self.group.join("cpu.cfs_period_us"), &format!("{PERIOD_US}"))?;
        values::change(journal, &self.group.join("cpu.cfs_quota_us"), quota_us)
    }
}

fn is_v1(cgroup_root: &Path) -> bool {
    cgroup_root.join("cpu/cpu.cfs_quota_us").exists()
}

fn no_controller() -> LimitError {
    LimitError::Unsupported {
        what: "bounding processor time".to_owned(),
        why: "this host has neither cgroup v1's cpu controller nor cgroup v2's".to_owned(),
        next: "Use a kernel with CONFIG_CFS_BANDWIDTH, or mount the controller: `mount -t cgroup -o cpu cgroup \
               /sys/fs/cgroup/cpu`"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_host_without_the_controller_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin(dir.path(), "test").unwrap();
        let error = ProcessorShare::create_in(&journal, &dir.path().join("none"), "x").unwrap_err().to_string();
        assert!(error.contains("cpu controller"), "{error}");
        journal.finish().unwrap();
    }

    #[test]
    fn quotas_are_written_as_each_version_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin(&dir.path().join("state"), "test").unwrap();
        let free = [("cpu.max", "max 100000\n"), ("cpu.cfs_period_us", "100000\n"), ("cpu.cfs_quota_us", "-1\n")];
        free.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
        let of = |is_v2| ProcessorShare { group: dir.path().to_owned(), is_v2 };
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap().trim().to_owned();
        of(true).bound(&journal, 0.05).unwrap();
        of(false).bound(&journal, 0.25).unwrap();
        assert_eq!(
            (read("cpu.max"), read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")),
            ("5000 100000".to_owned(), "25000".to_owned(), "100000".to_owned())
        );
        of(true).lift(&journal).unwrap();
        of(false).bound(&journal, 0.5).unwrap();
        of(false).lift(&journal).unwrap();
        assert_eq!((read("cpu.max"), read("cpu.cfs_quota_us")), ("max 100000".to_owned(), "-1".to_owned()));
        assert!(of(true).bound(&journal, 0.001).is_err());
        of(false).bound(&journal, 0.5).unwrap();
        journal.finish().unwrap();
        assert_eq!(read("cpu.cfs_quota_us"), "-1", "a limit that is left is lifted with the rest");
    }
}
