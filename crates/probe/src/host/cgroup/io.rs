//! What the control groups of watched servers, and all groups above them, may do to the watched devices, and did.

use super::{Cgroup, CgroupVersion, cgroups_of, io_root, v1, v2};
use crate::host::file::{KernelFile, boot_id};
use crate::host::{Roots, SOURCE, Watch};
use crate::{Probe, ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::Def;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(super) const READ: &str = "read";
pub(super) const WRITE: &str = "write";

/// A controller may be handed on to a group only later, and a group above be made anew: looked for at every so many looks.
/// (That the server itself was moved is noticed at once; see `membership.rs`.)
const LOOKS_PER_SEARCH: u32 = 20;

/// One limit or counter of one group.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// Device as `MAJ:MIN`.
    pub(super) dev: &'a str,
    /// [`READ`] or [`WRITE`].
    pub(super) op: &'static str,
    /// Which series.
    pub(super) def: &'static Def,
    /// In the unit of the series.
    pub(super) value: u64,
}

/// Reads limits and counters of block I/O.
#[derive(Debug)]
pub(in crate::host) struct IoGroups {
    roots: Roots,
    watch: Arc<Watch>,
    boot: String,
    seen: Option<u64>,
    looks: u32,
    devices: BTreeSet<String>,
    groups: BTreeMap<String, Group>,
}

/// The files of one group.
#[derive(Debug)]
struct Group {
    version: CgroupVersion,
    epoch: Epoch,
    files: Vec<KernelFile>,
}

impl Group {
    fn new(cgroup: &Cgroup, epoch: Epoch) -> Self {
        let names: Vec<&str> = match cgroup.version {
            CgroupVersion::V1 => {
                let limits = v1::LIMITS.iter().map(|(name, _, _)| *name);
                limits.chain(v1::COUNTERS.iter().map(|(name, _)| *name)).collect()
            }
            CgroupVersion::V2 => vec!["io.max", "io.stat"],
        };
        let files = names.into_iter().map(|name| KernelFile::short(cgroup.dir.join(name))).collect();
        Group { version: cgroup.version, epoch, files }
    }

    /// Reads what there is. A group whose parent does not hand the controller on has no files, and no limits; the
    /// root group of version 2 has no `io.max`.
    fn read(&mut self, take: &mut dyn FnMut(Entry<'_>)) {
        for (place, file) in self.files.iter_mut().enumerate() {
            let Ok(text) = file.read() else { continue };
            match (self.version, place) {
                (CgroupVersion::V1, place) => match v1::LIMITS.get(place) {
                    Some((_, op, def)) => v1::limits(&text, op, def).for_each(&mut *take),
                    None => v1::counters(&text, v1::COUNTERS[place - v1::LIMITS.len()].1).for_each(&mut *take),
                },
                (CgroupVersion::V2, 0) => v2::limits(&text).for_each(&mut *take),
                (CgroupVersion::V2, _) => v2::counters(&text).for_each(&mut *take),
            }
        }
    }
}

impl IoGroups {
    pub(in crate::host) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        IoGroups {
            roots: roots.clone(),
            watch: Arc::clone(watch),
            boot: boot_id(roots),
            seen: None,
            looks: 0,
            devices: BTreeSet::new(),
            groups: BTreeMap::new(),
        }
    }

    fn refresh(&mut self) {
        let changes = self.watch.changes();
        let due = self.looks.is_multiple_of(LOOKS_PER_SEARCH);
        self.looks = self.looks.wrapping_add(1);
        if self.seen == Some(changes) && !due {
            return;
        }
        self.seen = Some(changes);
        self.devices = self.watch.devices().into_iter().collect();
        let of_servers = self.watch.servers().into_iter();
        let of_servers = of_servers.filter_map(|server| cgroups_of(&self.roots, server.postmaster_pid).ok()?.io);
        let wanted = of_servers.flat_map(|group| group.way_to_root().collect::<Vec<_>>()).chain(io_root(&self.roots));
        let mut before = std::mem::take(&mut self.groups);
        for cgroup in wanted {
            let epoch = cgroup.epoch(&self.boot);
            let kept = before.remove(&cgroup.path).filter(|group| group.epoch == epoch);
            self.groups
                .entry(cgroup.path.clone())
                .or_insert_with(|| kept.unwrap_or_else(|| Group::new(&cgroup, epoch)));
        }
    }
}

impl Probe for IoGroups {
    fn name(&self) -> &str {
        "host.cgroup.io"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.refresh();
        if self.groups.is_empty() {
            let why = "no control group here has the blkio (v1) or io (v2) controller";
            sink.absent(SOURCE, "I/O limits of control groups", why, None);
        }
        let devices = &self.devices;
        for (path, group) in &mut self.groups {
            let epoch = group.epoch;
            group.read(&mut |entry| {
                if devices.contains(entry.dev) {
                    let labels = [("cgroup", path.as_str()), ("dev", entry.dev), ("op", entry.op)];
                    sink.put(entry.def, &labels, epoch, entry.value as f64);
                }
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{Look, fixture};

    #[test]
    fn version_1_gives_the_root_groups_cap() {
        let (roots, watch) = fixture("capped");
        let look = Look::of(&mut IoGroups::new(&roots, &watch));
        let write = [("cgroup", "/"), ("dev", "7:0"), ("op", "write")];
        assert_eq!(look.value("host.cgroup.iops_limit", &write), Some(1_500.0));
        assert_eq!(look.value("host.cgroup.bytes_limit_per_s", &write), None);
        assert_eq!(look.value("host.cgroup.ios", &write), Some(254_057.0));
        let read = [("cgroup", "/"), ("dev", "7:0"), ("op", "read")];
        assert_eq!(look.value("host.cgroup.iops_limit", &read), None);
        assert_eq!(look.value("host.cgroup.io_bytes", &read), Some(1_419_082_752.0));
    }

    #[test]
    fn version_2_gives_the_servers_group_and_all_above_for_watched_devices_only() {
        let (roots, watch) = fixture("unified");
        let look = Look::of(&mut IoGroups::new(&roots, &watch));
        let at = |cgroup| [("cgroup", cgroup), ("dev", "7:0"), ("op", "write")];
        let service = "/system.slice/postgresql.service";
        assert_eq!(look.value("host.cgroup.iops_limit", &at(service)), Some(1_500.0));
        assert_eq!(look.value("host.cgroup.bytes_limit_per_s", &at(service)), Some(4_194_304.0));
        assert_eq!(look.value("host.cgroup.ios", &at("/system.slice")), Some(254_077.0));
        assert_eq!(look.value("host.cgroup.iops_limit", &at("/system.slice")), None);
        assert_eq!(look.value("host.cgroup.io_bytes", &at("/")), Some(2_000.0));
        assert_eq!(look.value("host.cgroup.ios", &[("dev", "8:16")]), None);
        assert_eq!(look.value("host.cgroup.ios", &[("dev", "8:0")]), None);
    }

    #[test]
    fn a_host_without_control_groups_says_so() {
        let (mut roots, watch) = fixture("unified");
        roots.cgroup = "/nonexistent".into();
        assert!(Look::of(&mut IoGroups::new(&roots, &watch)).lacks("I/O limits"));
    }
}
