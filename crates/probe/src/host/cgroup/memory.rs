//! Memory of the control group that a watched server runs in: its limit, its page cache, and how much of that is
//! dirty. Only version 2 holds writers back by their group's dirty pages (Documentation/admin-guide/cgroup-v2.rst,
//! "Writeback"), so only there dirty figures are given.

use super::{Cgroup, CgroupVersion, cgroups_of};
use crate::host::file::{KernelFile, boot_id, tell_absent};
use crate::host::text::{pair, pairs};
use crate::host::{Roots, Watch};
use crate::{Probe, ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::{self, Def};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Version 1 writes "no limit" as the largest multiple of a page; nothing real is anywhere near it.
const NO_LIMIT_BYTES: u64 = 1 << 60;
/// A controller may be handed on to a group only later, and a group above be made anew: looked for at every so many looks.
/// (That the server itself was moved is noticed at once; see `membership.rs`.)
const LOOKS_PER_SEARCH: u32 = 20;

/// What is known of one group, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    limit: Option<u64>,
    used: Option<u64>,
    file: Option<u64>,
    dirty: Option<u64>,
    writeback: Option<u64>,
    dirtyable: Option<u64>,
}

/// Reads the memory of the watched servers' groups.
#[derive(Debug)]
pub(in crate::host) struct MemoryGroups {
    roots: Roots,
    watch: Arc<Watch>,
    boot: String,
    seen: Option<u64>,
    looks: u32,
    meminfo: KernelFile,
    groups: BTreeMap<String, Group>,
}

/// The files of one group, and of those above it, whose limits hold it too.
#[derive(Debug)]
struct Group {
    epoch: Epoch,
    version: CgroupVersion,
    stat: KernelFile,
    /// From the group itself up to the root.
    way: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    limit: KernelFile,
    /// Version 2 alone.
    high: KernelFile,
    used: KernelFile,
}

impl Level {
    fn new(group: &Cgroup) -> Self {
        let file = |name| KernelFile::optional(group.dir.join(name));
        let (limit, used) = match group.version {
            CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            CgroupVersion::V2 => ("memory.max", "memory.current"),
        };
        Level { limit: file(limit), high: file("memory.high"), used: file(used) }
    }
}

impl Group {
    fn new(cgroup: &Cgroup, epoch: Epoch) -> Self {
        let way = cgroup.way_to_root().map(|group| Level::new(&group)).collect();
        Group { epoch, version: cgroup.version, stat: KernelFile::new(cgroup.dir.join("memory.stat")), way }
    }

    fn usage(&mut self, meminfo: &mut KernelFile) -> Result<Usage, ProbeError> {
        let limit = least_limit(&mut self.way);
        let room = if self.version == CgroupVersion::V2 { headroom(&mut self.way) } else { None };
        let used = self.way.first_mut().and_then(|level| level.used.number());
        let stat = self.stat.read()?;
        let usage = Usage { limit, used, ..Usage::default() };
        Ok(match self.version {
            CgroupVersion::V1 => {
                let all = pair(&stat, "total_cache").zip(pair(&stat, "total_shmem"));
                Usage { file: all.map(|(all, shm)| all.saturating_sub(shm)), ..usage }
            }
            CgroupVersion::V2 => Usage {
                file: pair(&stat, "file"),
                dirty: pair(&stat, "file_dirty"),
                writeback: pair(&stat, "file_writeback"),
                dirtyable: room.zip(host_clean(meminfo)).and_then(|(room, clean)| dirtyable(&stat, room, clean)),
                ..usage
            },
        })
    }
}

impl MemoryGroups {
    pub(in crate::host) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        MemoryGroups {
            roots: roots.clone(),
            watch: Arc::clone(watch),
            boot: boot_id(roots),
            seen: None,
            looks: 0,
            meminfo: KernelFile::short(roots.proc.join("meminfo")),
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
        let mut before = std::mem::take(&mut self.groups);
        let servers = self.watch.servers().into_iter();
        let groups = servers.filter_map(|server| cgroups_of(&self.roots, server.postmaster_pid).ok()?.memory);
        // The root group has no limit, and what it uses is the host's own figure.
        for cgroup in groups.filter(|group| !group.is_root()) {
            let epoch = cgroup.epoch(&self.boot);
            let kept =
                before.remove(&cgroup.path).filter(|group| group.epoch == epoch && group.version == cgroup.version);
            self.groups
                .entry(cgroup.path.clone())
                .or_insert_with(|| kept.unwrap_or_else(|| Group::new(&cgroup, epoch)));
        }
    }
}

/// The smallest limit on the way to the root; none where there is none (the word `max` is no number).
fn least_limit(way: &mut [Level]) -> Option<u64> {
    way.iter_mut().filter_map(|level| level.limit.number()).filter(|limit| *limit < NO_LIMIT_BYTES).min()
}

/// How much more the group may take before a limit on the way to the root holds it (mm/memcontrol.c,
/// `mem_cgroup_wb_stats`: of memory.max and memory.high the smaller). None where nothing limits it.
fn headroom(way: &mut [Level]) -> Option<u64> {
    let rooms = way.iter_mut().filter_map(|level| {
        let limits = [level.limit.number(), level.high.number()];
        let ceiling = limits.into_iter().flatten().min()?;
        Some(ceiling.saturating_sub(level.used.number()?))
    });
    rooms.min()
}

/// What the kernel takes the dirty ratios of for a group (mm/page-writeback.c, `mdtc_calc_avail`): its file pages,
/// and as much of the rest of the host's clean memory as its limits let it have.
fn dirtyable(stat: &str, headroom: u64, host_clean: u64) -> Option<u64> {
    let file = pair(stat, "inactive_file")?.saturating_add(pair(stat, "active_file")?);
    let clean = file.saturating_sub(pair(stat, "file_dirty")?);
    Some(file.saturating_add(headroom.min(host_clean.saturating_sub(clean))))
}

/// The host's free memory and clean page cache, in bytes.
fn host_clean(meminfo: &mut KernelFile) -> Option<u64> {
    clean_of(&meminfo.read().ok()?)
}

fn clean_of(meminfo: &str) -> Option<u64> {
    let found: BTreeMap<&str, u64> = pairs(meminfo).collect();
    let kib = |key: &str| found.get(key).copied();
    let available = kib("MemFree")?.saturating_add(kib("Active(file)")?).saturating_add(kib("Inactive(file)")?);
    Some(available.saturating_sub(kib("Dirty")?).saturating_mul(1024))
}

/// Reads a text as each of the files that this looks into. For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn exercise(text: &str) {
    let clean = clean_of(text).unwrap_or(u64::MAX);
    dirtyable(text, u64::MAX, clean);
}

impl Usage {
    fn series(&self) -> [(&'static Def, Option<u64>); 6] {
        [
            (&catalogue::CGROUP_MEMORY_LIMIT, self.limit),
            (&catalogue::CGROUP_MEMORY_USED, self.used),
            (&catalogue::CGROUP_MEMORY_FILE, self.file),
            (&catalogue::CGROUP_DIRTY, self.dirty),
            (&catalogue::CGROUP_WRITEBACK, self.writeback),
            (&catalogue::CGROUP_MEMORY_RECLAIMABLE, self.dirtyable),
        ]
    }
}

impl Probe for MemoryGroups {
    fn name(&self) -> &str {
        "host.cgroup.memory"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.refresh();
        for (path, group) in &mut self.groups {
            let usage = match group.usage(&mut self.meminfo) {
                Ok(usage) => usage,
                Err(error) => {
                    tell_absent(sink, &format!("memory of control group {path}"), &error, None);
                    continue;
                }
            };
            for (def, value) in usage.series() {
                if let Some(bytes) = value {
                    sink.put(def, &[("cgroup", path)], group.epoch, bytes as f64);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::{Look, fixture};
    use proptest::prelude::*;

    #[test]
    fn version_2_gives_dirty_pages_and_what_may_be_dirtied() {
        let (roots, watch) = fixture("unified");
        let look = Look::of(&mut MemoryGroups::new(&roots, &watch));
        let group = [("cgroup", "/system.slice/postgresql.service")];
        let value = |name: &str| look.value(name, &group);
        assert_eq!(value("host.cgroup.memory_limit_bytes"), Some(268_435_456.0), "its parent's limit holds it");
        assert_eq!(value("host.cgroup.memory_bytes"), Some(209_715_200.0));
        assert_eq!(value("host.cgroup.file_bytes"), Some(146_800_640.0));
        assert_eq!(value("host.cgroup.dirty_bytes"), Some(9_437_184.0));
        assert_eq!(value("host.cgroup.writeback_bytes"), Some(1_048_576.0));
        let file_pages = 62_914_560.0 + 16_777_216.0;
        let room_under_the_parent = 268_435_456.0 - 251_658_240.0;
        assert_eq!(value("host.cgroup.dirtyable_bytes"), Some(file_pages + room_under_the_parent));
    }

    #[test]
    fn version_1_gives_the_limit_of_the_parent_and_no_dirty_figures() {
        let (roots, watch) = fixture("capped");
        let look = Look::of(&mut MemoryGroups::new(&roots, &watch));
        let group = [("cgroup", "/db/pg")];
        assert_eq!(look.value("host.cgroup.memory_limit_bytes", &group), Some(536_870_912.0));
        assert!(look.value("host.cgroup.file_bytes", &group).unwrap() > 0.0);
        assert_eq!(look.value("host.cgroup.dirty_bytes", &group), None);
    }

    #[test]
    fn what_the_rest_of_the_host_lacks_no_limit_can_give() {
        let stat = "inactive_file 100\nactive_file 50\nfile_dirty 30\n";
        assert_eq!(dirtyable(stat, 1_000, 10_000), Some(1_150));
        assert_eq!(dirtyable(stat, 1_000, 500), Some(150 + 380));
        assert_eq!(dirtyable(stat, 1_000, 0), Some(150));
        assert_eq!(dirtyable("active_file 50\n", 1_000, 0), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in ".*", room: u64, clean: u64, numbers: [u64; 3]) {
            clean_of(&text);
            let [a, b, c] = numbers;
            dirtyable(&format!("inactive_file {a}\nactive_file {b}\nfile_dirty {c}\n"), room, clean);
            clean_of(&format!("MemFree: {a} kB\nActive(file): {b} kB\nInactive(file): {c} kB\nDirty: 1 kB\n"));
        }
    }
}
