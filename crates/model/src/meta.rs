//! What a recording says of itself: the host, its devices, the targets, the clock.

use crate::{Event, EventKind, Moment, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ties CLOCK_BOOTTIME to the wall clock at one instant. A new one is kept whenever the wall clock steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAnchor {
    /// Boot time.
    pub boot: Moment,
    /// Unix time in microseconds at that instant.
    pub unix_us: i64,
}

/// What a device is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Holds a data directory.
    Data,
    /// Holds pg_wal (or a journal).
    Wal,
    /// Holds a tablespace.
    Tablespace,
    /// Holds the recording itself.
    Recording,
}

/// A block device that matters here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// `MAJ:MIN`, the label `dev` of its series. For a partition, the device that has the queue is `parent`.
    pub dev: String,
    /// Kernel name: `sda1`, `loop0`.
    pub name: String,
    /// The whole device of a partition, as `MAJ:MIN`.
    pub parent: Option<String>,
    /// File behind a loop device, or devices under a device-mapper one, as the kernel names them.
    pub backing: Vec<String>,
    /// Where it is mounted.
    pub mount_points: Vec<String>,
    /// File system type.
    pub fs_type: Option<String>,
    /// What it is used for, with the target's name.
    pub roles: Vec<(Role, String)>,
}

/// A rating that the guest cannot see: told by the user for a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredVolume {
    /// `MAJ:MIN`, a device path, or a mount point; none for the device of every data directory.
    pub device: Option<String>,
    /// Baseline I/O operations a second.
    pub iops: Option<f64>,
    /// Bytes a second.
    pub bytes_per_s: Option<f64>,
    /// I/O operations a second while burst credit lasts.
    pub burst_iops: Option<f64>,
}

/// One watched server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// Short name without credentials, used as the label `target` and in samples: `localhost:5432`, `primary`.
    pub name: String,
    /// `postgres`.
    pub kind: String,
    /// 150018 and the like.
    pub version_num: Option<i32>,
    /// Whether it runs on the host whose figures are read beside it: this one, or that of a flight recorder.
    pub local: bool,
    /// data_directory.
    pub data_directory: Option<String>,
    /// Device of the data directory, `MAJ:MIN`.
    pub data_device: Option<String>,
    /// Device of pg_wal, `MAJ:MIN`.
    pub wal_device: Option<String>,
    /// Process id of the postmaster.
    pub postmaster_pid: Option<i32>,
    /// Memory cgroup of the postmaster, where it has one of its own.
    pub memory_cgroup: Option<String>,
    /// Block I/O cgroup of the postmaster.
    pub io_cgroup: Option<String>,
    /// PostgreSQL's system_identifier, which a standby has in common with its primary; none where the role may not read it.
    pub system_identifier: Option<String>,
    /// After how many seconds a heartbeat was given up as missed; none where none was sent, or the recording does not tell.
    pub heartbeat_timeout_s: Option<f64>,
    /// Settings that matter to rules, as they were when the recording (or the window) began: later changes are events; in the server's own units and spelling (`16384` and unit `8kB` are stored as `128MB`).
    pub settings: BTreeMap<String, String>,
}

impl Target {
    /// Whether nothing is known of it but what it was called: it was away as the recording began, and was not met since.
    pub fn is_unmet(&self) -> bool {
        let Target { name, kind, heartbeat_timeout_s, .. } = self.clone();
        *self == Target { name, kind, heartbeat_timeout_s, ..Target::default() }
    }

    /// Whether it is WiredTiger, alone or in a MongoDB server, and no PostgreSQL server.
    pub fn is_engine(&self) -> bool {
        ["mongodb", "wiredtiger"].contains(&self.kind.as_str())
    }

    /// Whether it can belong to the same PostgreSQL cluster as another: a standby has its primary's system identifier. Where
    /// one of the two is unknown, nothing speaks against it.
    pub fn may_replicate(&self, other: &Target) -> bool {
        self.system_identifier.as_ref().zip(other.system_identifier.as_ref()).is_none_or(|(own, other)| own == other)
    }
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Host name.
    pub hostname: Option<String>,
    /// `uname -r`.
    pub kernel: Option<String>,
    /// Boot id: the epoch of host counters.
    pub boot_id: Option<String>,
    /// Processors online.
    pub cpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Page size in bytes.
    pub page_bytes: Option<u64>,
    /// TCP congestion control in force.
    pub congestion_control: Option<String>,
    /// `v1`, `v2` or `hybrid`.
    pub cgroup_version: Option<String>,
    /// Whether root read it, to whom becoming root would show no more.
    pub read_as_root: Option<bool>,
    /// Kernel settings that matter (`vm.dirty_bytes` and the like).
    pub sysctls: BTreeMap<String, String>,
}

/// What a recording, or a live run, says of itself. Fields that an earlier version did not write are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The machine.
    pub host: HostFacts,
    /// Clock anchors, oldest first; at least one.
    pub anchors: Vec<ClockAnchor>,
    /// Devices that matter.
    pub devices: Vec<Device>,
    /// Watched servers.
    pub targets: Vec<Target>,
    /// Ratings told by the user.
    pub declared_volumes: Vec<DeclaredVolume>,
    /// Version of Backwater that wrote it.
    pub written_by: String,
}

/// Clock anchors that are kept at most. A clock that is steered by half a second every quarter of an hour fills them in
/// ten days; beyond that the least telling one goes.
const MOST_ANCHORS: usize = 1_000;

impl Meta {
    /// Adds a clock anchor in its place. Where there are more than a thousand, the one that differs least from the one
    /// before it goes, never the first or the newest, so that a clock that jumps without end cannot fill a recording.
    pub fn add_anchor(&mut self, anchor: ClockAnchor) {
        if self.anchors.contains(&anchor) {
            return;
        }
        let place = self.anchors.partition_point(|known| known.boot <= anchor.boot);
        self.anchors.insert(place, anchor);
        if self.anchors.len() > MOST_ANCHORS {
            let offset = |at: usize| self.anchors[at].unix_us.saturating_sub(self.anchors[at].boot.0);
            let step = |at: &usize| offset(*at).abs_diff(offset(*at - 1));
            if let Some(least) = (1..self.anchors.len() - 1).min_by_key(step) {
                self.anchors.remove(least);
            }
        }
    }

    /// Notes a change of a server's settings, as its event tells it (fields `name`, `after`; empty is no longer visible).
    pub fn note_setting(&mut self, event: &Event) {
        if event.kind != EventKind::Setting {
            return;
        }
        let Some(target) = self.targets.iter_mut().find(|target| target.name == event.source) else { return };
        let Some((name, after)) = event.fields.get("name").zip(event.fields.get("after")) else { return };
        if after.is_empty() {
            target.settings.remove(name);
        } else {
            target.settings.insert(name.clone(), after.clone());
        }
    }

    /// Unix time in microseconds of a moment, by the newest anchor at or before it (else the oldest).
    pub fn unix_us(&self, at: Moment) -> Option<i64> {
        let before = self.anchors.iter().rev().find(|anchor| anchor.boot <= at);
        let anchor = before.or(self.anchors.first())?;
        Some(anchor.unix_us.saturating_add((at - anchor.boot).0))
    }

    /// The moment at which the wall clock showed this Unix time in microseconds; the latest one, if it was set back and showed
    /// it twice. A time that a step forward skipped is the moment of that step.
    pub fn moment_of_unix_us(&self, unix_us: i64) -> Option<Moment> {
        let by = |at: usize| {
            let anchor = self.anchors.get(at)?;
            Some(anchor.boot + Span(unix_us.saturating_sub(anchor.unix_us)))
        };
        let until = |at: usize| self.anchors.get(at + 1).map(|next| next.boot);
        let begun = |at: &usize| self.anchors[*at].unix_us <= unix_us;
        let shown = |at: &usize| until(*at).is_none_or(|next| by(*at).is_some_and(|moment| moment < next));
        let newest_first = || (0..self.anchors.len()).rev().filter(begun);
        if let Some(at) = newest_first().find(shown) {
            return by(at);
        }
        match newest_first().next() {
            Some(skipped) => until(skipped),
            None => by(0),
        }
    }

    /// The device with this `MAJ:MIN`.
    pub fn device(&self, dev: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.dev == dev)
    }
}
