//! A cap on a device's requests: by the root group of cgroup v1's blkio, which catches writeback too, or by io.max of
//! a group of its own on cgroup v2, whose root group takes no limits.

use super::{LimitError, values};
use backwater_undo::{Change, Journal};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a device may do at most. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// Reads a second.
    pub read_iops: Option<u64>,
    /// Writes a second.
    pub write_iops: Option<u64>,
    /// Bytes read a second.
    pub read_bytes_per_s: Option<u64>,
    /// Bytes written a second.
    pub write_bytes_per_s: Option<u64>,
}

/// By which means this host caps a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapMethod {
    /// The throttle files of cgroup v1's root blkio group: everybody's requests to the device are capped.
    BlkioV1Root {
        /// The group's directory.
        group: PathBuf,
    },
    /// io.max of a cgroup v2 group: only what runs in it is capped, so the server must be put there
    /// ([`SlowDisk::adopt`](super::SlowDisk::adopt)).
    IoMaxV2 {
        /// The group's directory, named `backwater-…`.
        cgroup: PathBuf,
    },
}

/// The v1 file and the v2 word of each of a cap's limits, in the order of [`Cap::limits`].
const NAMES: [(&str, &str); 4] = [
    ("blkio.throttle.read_iops_device", "riops"),
    ("blkio.throttle.write_iops_device", "wiops"),
    ("blkio.throttle.read_bps_device", "rbps"),
    ("blkio.throttle.write_bps_device", "wbps"),
];

impl Cap {
    fn limits(&self) -> [Option<u64>; 4] {
        [self.read_iops, self.write_iops, self.read_bytes_per_s, self.write_bytes_per_s]
    }

    fn from_limits([read_iops, write_iops, read_bytes_per_s, write_bytes_per_s]: [Option<u64>; 4]) -> Cap {
        Cap { read_iops, write_iops, read_bytes_per_s, write_bytes_per_s }
    }

    /// Whether it limits nothing.
    pub fn is_none(&self) -> bool {
        *self == Cap::default()
    }

    /// The kernel takes 0 for "no limit" on v1: never what somebody means who asks for it.
    fn check(&self) -> Result<(), LimitError> {
        if self.limits().contains(&Some(0)) {
            let why = "0 would mean no limit; leave the limit out, or ask for at least 1".to_owned();
            return Err(LimitError::Value { what: "a cap".to_owned(), value: "0".to_owned(), why });
        }
        Ok(())
    }
}

impl CapMethod {
    /// What the host at `cgroup_root` (`/sys/fs/cgroup`) has. On v2 a group named after the run is made.
    pub(super) fn choose(journal: &Journal, cgroup_root: &Path, name: &str) -> Result<CapMethod, LimitError> {
        let group = cgroup_root.join("blkio");
        if group.join(NAMES[1].0).exists() {
            return Ok(CapMethod::BlkioV1Root { group });
        }
        if !has_controller(cgroup_root, "io") {
            return Err(no_controller());
        }
        let cgroup = cgroup_root.join(format!("backwater-{}-{name}", journal.run()));
        enable(cgroup_root, &["io", "memory"])?;
        journal.note(Change::CgroupDir { path: cgroup.clone() })?;
        std::fs::create_dir(&cgroup).map_err(LimitError::file("create", &cgroup))?;
        Ok(CapMethod::IoMaxV2 { cgroup })
    }

    /// Sets the cap of `dev` (`MAJ:MIN`), and checks that it is in force.
    pub(super) fn set(&self, journal: &Journal, dev: &str, cap: &Cap) -> Result<(), LimitError> {
        cap.check()?;
        self.note(journal, dev)?;
        self.apply(dev, cap)
    }

    /// Notes what is in force for `dev`: the journal keeps the first of such notes.
    fn note(&self, journal: &Journal, dev: &str) -> Result<(), LimitError> {
        match self {
            CapMethod::BlkioV1Root { group } => {
                for (file, _) in NAMES {
                    let file = group.join(file);
                    let before = rule(&values::read(&file)?, dev).and_then(|value| value.parse().ok());
                    journal.note(Change::BlkioRule { file, dev: dev.to_owned(), before })?;
                }
            }
            CapMethod::IoMaxV2 { cgroup } => {
                let before = rule(&values::read(&cgroup.join("io.max"))?, dev).map(str::to_owned);
                journal.note(Change::IoMax { cgroup: cgroup.to_owned(), dev: dev.to_owned(), before })?;
            }
        }
        Ok(())
    }

    /// Sets a cap on a device whose cap is noted already.
    pub(super) fn apply(&self, dev: &str, cap: &Cap) -> Result<(), LimitError> {
        match self {
            CapMethod::BlkioV1Root { group } => {
                for (limit, (file, _)) in cap.limits().into_iter().zip(NAMES) {
                    values::write(&group.join(file), &format!("{dev} {}", limit.unwrap_or(0)))?;
                }
            }
            CapMethod::IoMaxV2 { cgroup } => {
                let shown = |limit: Option<u64>| limit.map_or_else(|| "max".to_owned(), |value| value.to_string());
                let limits = cap.limits().into_iter().zip(NAMES);
                let words: Vec<_> = limits.map(|(limit, (_, word))| format!("{word}={}", shown(limit))).collect();
                values::write(&cgroup.join("io.max"), &format!("{dev} {}", words.join(" ")))?;
            }
        }
        let found = self.get(dev)?;
        if found == *cap {
            return Ok(());
        }
        let (wanted, found) = (format!("{cap:?}"), format!("{found:?}"));
        Err(LimitError::NotInForce { what: format!("the cap of device {dev}"), wanted, found })
    }

    /// The cap in force.
    pub(super) fn get(&self, dev: &str) -> Result<Cap, LimitError> {
        match self {
            CapMethod::BlkioV1Root { group } => {
                let mut limits = [None; 4];
                for (limit, (file, _)) in limits.iter_mut().zip(NAMES) {
                    let value = rule(&values::read(&group.join(file))?, dev).and_then(|value| value.parse().ok());
                    *limit = value.filter(|value| *value > 0);
                }
                Ok(Cap::from_limits(limits))
            }
            CapMethod::IoMaxV2 { cgroup } => {
                let text = values::read(&cgroup.join("io.max"))?;
                let words = io_max(rule(&text, dev).unwrap_or_default());
                Ok(Cap::from_limits(NAMES.map(|(_, word)| words.get(word).copied())))
            }
        }
    }
}

/// Lets groups below the root have these controllers: for a cap `io`, and memory accounting, since only with both is
/// writeback charged to the group that dirtied the pages (cgroup-v2, "Writeback").
///
/// They stay enabled when the run ends. Whoever disabled them would take the limits of every group below the root away, of another
/// run as of a service that was started meanwhile, and nothing tells who has come to need them.
pub(super) fn enable(cgroup_root: &Path, controllers: &[&str]) -> Result<(), LimitError> {
    let path = cgroup_root.join("cgroup.subtree_control");
    let enabled = values::read(&path)?;
    let missing: Vec<_> = controllers.iter().filter(|one| !enabled.split(' ').any(|word| word == **one)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // The file takes changes, not its own content.
    values::write(&path, &missing.iter().map(|one| format!("+{one}")).collect::<Vec<_>>().join(" "))
}

/// Whether the host has cgroup v2 with this controller.
pub(super) fn has_controller(cgroup_root: &Path, name: &str) -> bool {
    let controllers = values::read(&cgroup_root.join("cgroup.controllers")).unwrap_or_default();
    controllers.split_ascii_whitespace().any(|controller| controller == name)
}

fn no_controller() -> LimitError {
    LimitError::Unsupported {
        what: "capping a device".to_owned(),
        why: "this host has neither cgroup v1's blkio throttle nor cgroup v2's io controller".to_owned(),
        next: "Use a kernel with CONFIG_BLK_DEV_THROTTLING, or mount the controller: `mount -t cgroup -o blkio cgroup \
               /sys/fs/cgroup/blkio`"
            .to_owned(),
    }
}

/// Whether this host can cap a device at all.
pub(super) fn possible(cgroup_root: &Path) -> Result<(), LimitError> {
    let v1 = cgroup_root.join("blkio").join(NAMES[1].0).exists();
    if v1 || has_controller(cgroup_root, "io") { Ok(()) } else { Err(no_controller()) }
}

/// What stands after `dev` in a file of lines `MAJ:MIN …`.
fn rule<'a>(text: &'a str, dev: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.split_once(' ').filter(|(name, _)| *name == dev)).map(|(_, rest)| rest.trim())
}

/// `rbps=max wbps=1048576 …` as numbers; what is `max` is left out.
fn io_max(text: &str) -> BTreeMap<&str, u64> {
    let words = text.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    words.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}

#[cfg(test)]
#[path = "cap_tests.rs"]
mod tests;
