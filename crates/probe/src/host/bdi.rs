//! The page cache of one device: `debugfs bdi/MAJ:MIN/stats`, and its limits in `/sys/class/bdi/MAJ:MIN`.
//! The units of the former are kB of 1024 bytes (mm/backing-dev.c, `bdi_debug_stats_show`).

use super::device::Life;
use super::file::{KernelFile, denied, tell_absent};
use super::numbered::Numbered;
use super::pace::Pace;
use super::text::pairs;
use super::{Roots, SOURCE, Watch};
use crate::{Probe, ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::{self, Def};
use std::sync::Arc;
use std::time::Duration;

/// Limits change rarely, and so does what lies behind a device: they are read at every so many looks.
const LOOKS_PER_LIMIT_READING: u32 = 10;

/// The kernel counts the dirty inodes of the device one by one for each reading, under a lock that writers need too
/// (`collect_wb_stats`): with very many of them it is read more rarely, so that it takes at most this share of one
/// processor, but at least every so often.
const LARGEST_SHARE: f64 = 0.001;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Lines of the stats file, all in KiB or KiB a second.
const STATS: [(&str, &Def); 8] = [
    ("BdiDirtied", &catalogue::BDI_DIRTIED),
    ("BdiWritten", &catalogue::BDI_WRITTEN),
    ("BdiReclaimable", &catalogue::BDI_RECLAIMABLE),
    ("BdiWriteback", &catalogue::BDI_WRITEBACK),
    ("BdiDirtyThresh", &catalogue::BDI_DIRTY_THRESH),
    ("DirtyThresh", &catalogue::BDI_GLOBAL_DIRTY_THRESH),
    ("BackgroundThresh", &catalogue::BDI_BACKGROUND_THRESH),
    ("BdiWriteBandwidth", &catalogue::BDI_WRITE_BANDWIDTH),
];

/// Reads the page cache of every watched device.
#[derive(Debug)]
pub(super) struct Writeback {
    roots: Roots,
    watch: Arc<Watch>,
    seen: Option<u64>,
    devices: Vec<Backing>,
    looks: u32,
}

/// The files of one device.
#[derive(Debug)]
struct Backing {
    dev: String,
    life: Life,
    numbered: Numbered,
    stats: KernelFile,
    pace: Pace,
    max_bytes: KernelFile,
    max_ratio: KernelFile,
    max_ratio_fine: KernelFile,
    strict_limit: KernelFile,
}

impl Backing {
    fn new(roots: &Roots, dev: &str) -> Self {
        let class = roots.sys.join("class/bdi").join(dev);
        Backing {
            dev: dev.to_owned(),
            life: Life::new(roots, dev),
            numbered: Numbered::new(Epoch::default(), vec![("dev", dev.to_owned())]),
            stats: KernelFile::optional(roots.debugfs.join("bdi").join(dev).join("stats")),
            pace: Pace::new(LARGEST_SHARE, LONGEST_PAUSE),
            max_bytes: KernelFile::optional(class.join("max_bytes")),
            max_ratio: KernelFile::optional(class.join("max_ratio")),
            max_ratio_fine: KernelFile::optional(class.join("max_ratio_fine")),
            strict_limit: KernelFile::optional(class.join("strict_limit")),
        }
    }

    fn read_stats(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        if !self.pace.is_due(sink.at) {
            return Ok(());
        }
        let (stats, pace) = (&mut self.stats, &mut self.pace);
        let text = pace.timed(sink.at, || stats.read())?;
        for (key, kib) in pairs(&text) {
            if let Some((_, def)) = STATS.iter().find(|(name, _)| *name == key) {
                self.numbered.put(sink, def, kib as f64 * 1024.0);
            }
        }
        Ok(())
    }

    fn read_limits(&mut self, sink: &mut Sink<'_>) {
        let numbered = &mut self.numbered;
        if let Some(bytes) = self.max_bytes.number() {
            numbered.put(sink, &catalogue::BDI_MAX_BYTES, bytes as f64);
        }
        // The fine ratio (6.2) is in parts per million; the old one is its whole percents.
        let fine = self.max_ratio_fine.number().map(|parts| parts as f64 / 1e6);
        if let Some(ratio) = fine.or_else(|| self.max_ratio.number().map(|percent| percent as f64 / 100.0)) {
            numbered.put(sink, &catalogue::BDI_MAX_RATIO, ratio);
        }
        match self.strict_limit.number() {
            Some(flag) => numbered.put(sink, &catalogue::BDI_STRICT_LIMIT, flag as f64),
            None => sink.absent(SOURCE, "a device's own dirty limit", NO_STRICT_LIMIT, Some("Linux 6.2 or newer")),
        }
    }
}

const NO_STRICT_LIMIT: &str = "this kernel has no strict_limit in /sys/class/bdi";

impl Writeback {
    pub(super) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        let (roots, watch) = (roots.clone(), Arc::clone(watch));
        Writeback { roots, watch, seen: None, devices: Vec::new(), looks: 0 }
    }

    /// Only whole devices and network file systems have a writeback of their own; partitions share their disk's.
    fn refresh(&mut self) {
        let changes = self.watch.changes();
        if self.seen == Some(changes) {
            return;
        }
        self.seen = Some(changes);
        let listed = self.watch.devices().into_iter();
        let present = listed.filter(|dev| self.roots.sys.join("class/bdi").join(dev).exists());
        self.devices = present.map(|dev| Backing::new(&self.roots, &dev)).collect();
        self.looks = 0;
    }
}

/// How to make the stats readable after this error.
pub(super) fn stats_remedy(roots: &Roots, error: &ProbeError) -> Option<&'static str> {
    let mounted = roots.debugfs.join("bdi").exists();
    (!denied(error) && !mounted).then_some("mount -t debugfs none /sys/kernel/debug")
}

impl Probe for Writeback {
    fn name(&self) -> &str {
        "host.bdi"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.refresh();
        let with_limits = self.looks.is_multiple_of(LOOKS_PER_LIMIT_READING);
        self.looks = self.looks.wrapping_add(1);
        for device in &mut self.devices {
            if with_limits {
                device.numbered.in_epoch(device.life.epoch());
            }
            // Why not is looked at now and then only: where it cannot be read, that costs more than the reading.
            if let (Err(error), true) = (device.read_stats(sink), with_limits) {
                let remedy = stats_remedy(&self.roots, &error);
                tell_absent(sink, &format!("dirty page cache of device {}", device.dev), &error, remedy);
            }
            if with_limits {
                device.read_limits(sink);
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
    use backwater_model::EventKind;

    #[test]
    fn a_captured_device_gives_levels_and_limits_in_bytes() {
        let (roots, watch) = fixture("capped");
        let look = Look::of(&mut Writeback::new(&roots, &watch));
        assert_eq!(look.value("host.bdi.reclaimable_bytes", &[("dev", "7:0")]), Some(126_352.0 * 1024.0));
        assert_eq!(look.value("host.bdi.dirty_threshold_bytes", &[("dev", "7:0")]), Some(261_200.0 * 1024.0));
        assert_eq!(look.value("host.bdi.global_dirty_threshold_bytes", &[]), Some(4_456_860.0 * 1024.0));
        assert_eq!(look.value("host.bdi.write_bandwidth_bytes_per_s", &[]), Some(7_532.0 * 1024.0));
        assert_eq!(look.value("host.bdi.max_bytes", &[]), Some(267_469_910.0));
        assert_eq!(look.value("host.bdi.max_ratio", &[]), Some(0.05));
        assert_eq!(look.value("host.bdi.strict_limit", &[]), Some(1.0));
        assert!(look.batch.events.is_empty(), "{:?}", look.batch.events);
    }

    #[test]
    fn without_debugfs_the_limits_are_read_and_the_mount_command_is_named_once() {
        let (mut roots, watch) = fixture("capped");
        roots.debugfs = "/nonexistent".into();
        let mut probe = Writeback::new(&roots, &watch);
        let look = Look::of_many(&mut probe, 3);
        assert_eq!(look.value("host.bdi.reclaimable_bytes", &[]), None);
        assert_eq!(look.value("host.bdi.strict_limit", &[]), Some(1.0));
        assert_eq!(look.batch.events.len(), 1);
        let event = &look.batch.events[0];
        assert_eq!(event.kind, EventKind::Absent);
        assert!(event.fields["remedy"].contains("mount -t debugfs"), "{event:?}");
    }
}
