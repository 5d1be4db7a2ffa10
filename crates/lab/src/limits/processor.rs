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

    fn create_in(journal: &Journal, cgroup_root: &Path, name: &str) -> Result<ProcessorShare, LimitError> {
        let v1 = cgroup_root.join("cpu");
        let is_v2 = !v1.join("cpu.cfs_quota_us").exists();
        if is_v2 {
            let controllers = values::read(&cgroup_root.join("cgroup.controllers")).unwrap_or_default();
            if !controllers.split(' ').any(|controller| controller == "cpu") {
                return Err(no_controller());
            }
            cap::enable(cgroup_root, &["cpu"])?;
        }
        let parent = if is_v2 { cgroup_root } else { &v1 };
        let group = parent.join(format!("backwater-{}-{name}", journal.run()));
        journal.note(Change::CgroupDir { path: group.clone() })?;
        std::fs::create_dir(&group).map_err(LimitError::file("create", &group))?;
        Ok(ProcessorShare { group, is_v2 })
    }

    /// Puts a process there, and with it its later children.
    pub fn adopt(&self, pid: u32) -> Result<(), LimitError> {
        values::write(&self.group.join("cgroup.procs"), &pid.to_string())
    }

    /// Bounds what its processes get together, as a share of one processor; 1.0 is one of them.
    pub fn bound(&self, share: f64) -> Result<(), LimitError> {
        let quota_us = (share * PERIOD_US).round();
        if !(LEAST_US..=PERIOD_US * 1e3).contains(&quota_us) {
            let why = "the kernel takes a hundredth of a processor at least".to_owned();
            return Err(LimitError::Value { what: "processor time".to_owned(), value: share.to_string(), why });
        }
        self.set(&format!("{quota_us}"))
    }

    /// Lifts the bound; what is there stays there.
    pub fn lift(&self) -> Result<(), LimitError> {
        self.set(if self.is_v2 { "max" } else { "-1" })
    }

    fn set(&self, quota_us: &str) -> Result<(), LimitError> {
        if self.is_v2 {
            return values::write(&self.group.join("cpu.max"), &format!("{quota_us} {PERIOD_US}"));
        }
        values::write(&self.group.join("cpu.cfs_period_us"), &format!("{PERIOD_US}"))?;
        values::write(&self.group.join("cpu.cfs_quota_us"), quota_us)
    }
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
        let files = |names: &[&str]| names.iter().for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
        files(&["cpu.max", "cpu.cfs_period_us", "cpu.cfs_quota_us"]);
        let of = |is_v2| ProcessorShare { group: dir.path().to_owned(), is_v2 };
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        of(true).bound(0.05).unwrap();
        of(false).bound(0.25).unwrap();
        assert_eq!(
            (read("cpu.max"), read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")),
            ("5000 100000".to_owned(), "25000".to_owned(), "100000".to_owned())
        );
        of(true).lift().unwrap();
        of(false).lift().unwrap();
        assert_eq!((read("cpu.max"), read("cpu.cfs_quota_us")), ("max 100000".to_owned(), "-1".to_owned()));
        assert!(of(true).bound(0.001).is_err());
    }
}
