//! Block devices: `/sys/dev/block/MAJ:MIN/stat`, the line of `/proc/diskstats` of one device, and its queue's depth.
//! Fields by kernel: 11, 15 since 4.18 (discards), 17 since 5.5 (flushes); Documentation/admin-guide/iostats.rst.

use super::device::Life;
use super::file::{KernelFile, missing, tell_absent};
use super::numbered::Numbered;
use super::{Roots, Watch};
use crate::{Probe, ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::{self, Def};
use std::sync::Arc;
use std::time::Duration;

/// The kernel counts sectors of 512 bytes, whatever the device's own are.
const SECTOR_BYTES: f64 = 512.0;
/// The depth of the queue changes rarely, and so does what lies behind a device: they are read at every so many looks.
const LOOKS_PER_DEPTH_READING: u32 = 10;
const LOOKS_PER_LIFE_READING: u32 = 5;

/// Place of a field in the line, its series, and what one unit of it is.
const FIELDS: [(usize, &Def, f64); 11] = [
    (0, &catalogue::DISK_READS, 1.0),
    (2, &catalogue::DISK_READ_BYTES, SECTOR_BYTES),
    (3, &catalogue::DISK_READ_MS, 1.0),
    (4, &catalogue::DISK_WRITES, 1.0),
    (6, &catalogue::DISK_WRITTEN_BYTES, SECTOR_BYTES),
    (7, &catalogue::DISK_WRITE_MS, 1.0),
    (8, &catalogue::DISK_IN_FLIGHT, 1.0),
    (9, &catalogue::DISK_BUSY_MS, 1.0),
    (10, &catalogue::DISK_WEIGHTED_MS, 1.0),
    (15, &catalogue::DISK_FLUSHES, 1.0),
    (16, &catalogue::DISK_FLUSH_MS, 1.0),
];

/// Reads the counters of every watched device.
#[derive(Debug)]
pub(super) struct Disks {
    roots: Roots,
    watch: Arc<Watch>,
    seen: Option<u64>,
    disks: Vec<Disk>,
    looks: u32,
}

#[derive(Debug)]
struct Disk {
    dev: String,
    life: Life,
    numbered: Numbered,
    stat: KernelFile,
    depth: KernelFile,
}

impl Disk {
    fn new(roots: &Roots, dev: &str) -> Self {
        let dir = roots.sys.join("dev/block").join(dev);
        Disk {
            dev: dev.to_owned(),
            life: Life::new(roots, dev),
            numbered: Numbered::new(Epoch::default(), vec![("dev", dev.to_owned())]),
            stat: KernelFile::short(dir.join("stat")),
            depth: KernelFile::optional(dir.join("queue/nr_requests")),
        }
    }

    fn read(&mut self, sink: &mut Sink<'_>, look: u32) -> Result<(), ProbeError> {
        if look.is_multiple_of(LOOKS_PER_LIFE_READING) {
            self.numbered.in_epoch(self.life.epoch());
        }
        let text = self.stat.read()?;
        for (def, value) in values(&text) {
            self.numbered.put(sink, def, value);
        }
        let with_depth = look.is_multiple_of(LOOKS_PER_DEPTH_READING);
        if let Some(depth) = with_depth.then(|| self.depth.number()).flatten() {
            self.numbered.put(sink, &catalogue::DISK_NR_REQUESTS, depth as f64);
        }
        Ok(())
    }
}

/// The series that a stat line holds, those that this kernel's line does not have left out.
fn values(line: &str) -> impl Iterator<Item = (&'static Def, f64)> {
    line.split_ascii_whitespace().enumerate().filter_map(|(place, field)| {
        let (_, def, factor) = FIELDS.iter().find(|(known, _, _)| *known == place)?;
        Some((*def, field.parse::<u64>().ok()? as f64 * factor))
    })
}

impl Disks {
    pub(super) fn new(roots: &Roots, watch: &Arc<Watch>) -> Self {
        Disks { roots: roots.clone(), watch: Arc::clone(watch), seen: None, disks: Vec::new(), looks: 0 }
    }

    fn refresh(&mut self) {
        let changes = self.watch.changes();
        if self.seen != Some(changes) {
            self.seen = Some(changes);
            // A major of 0 is a file system without a block device: it has no counters here.
            let listed = self.watch.devices().into_iter().filter(|dev| !dev.starts_with("0:"));
            self.disks = listed.map(|dev| Disk::new(&self.roots, &dev)).collect();
            self.looks = 0;
        }
    }
}

impl Probe for Disks {
    fn name(&self) -> &str {
        "host.disk"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        self.refresh();
        let look = self.looks;
        self.looks = self.looks.wrapping_add(1);
        for disk in &mut self.disks {
            if let Err(error) = disk.read(sink, look) {
                let remedy = missing(&error).then_some("name a device of this host");
                tell_absent(sink, &format!("counters of device {}", disk.dev), &error, remedy);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{Look, fixture};
    use proptest::prelude::*;

    fn value(line: &str, def: &Def) -> Option<f64> {
        values(line).find(|(have, _)| *have == def).map(|(_, value)| value)
    }

    #[test]
    fn a_line_of_17_fields_gives_flushes_and_shorter_ones_do_not() {
        let new = include_str!("../../tests/fixtures/capped/sys/dev/block/7:0/stat");
        assert_eq!(value(new, &catalogue::DISK_WRITES), Some(245_401.0));
        assert_eq!(value(new, &catalogue::DISK_WRITTEN_BYTES), Some(11_860_292.0 * 512.0));
        assert_eq!(value(new, &catalogue::DISK_BUSY_MS), Some(23_200.0));
        assert_eq!(value(new, &catalogue::DISK_FLUSHES), Some(325.0));
        let linux_4_18 = "46205 7655 4268514 33507 9348 25411 4441128 15957 3 6912 49976 4661 64 524744 495\n";
        assert_eq!(value(linux_4_18, &catalogue::DISK_IN_FLIGHT), Some(3.0));
        assert_eq!(value(linux_4_18, &catalogue::DISK_FLUSHES), None);
        let linux_3_10 = "46205 7655 4268514 33507 9348 25411 4441128 15957 0 6912 49976\n";
        assert_eq!(value(linux_3_10, &catalogue::DISK_WEIGHTED_MS), Some(49_976.0));
        assert_eq!(values(linux_3_10).count(), 9);
    }

    #[test]
    fn a_captured_device_is_read_with_its_depth_and_an_unknown_one_is_said_once() {
        let (roots, watch) = fixture("capped");
        watch.add_device(&roots, "9:9");
        let look = Look::of_many(&mut Disks::new(&roots, &watch), 2);
        assert_eq!(look.value("host.disk.writes", &[("dev", "7:0")]), Some(245_401.0));
        assert_eq!(look.value("host.disk.nr_requests", &[("dev", "7:0")]), Some(128.0));
        assert!(look.lacks("device 9:9"));
        assert_eq!(look.batch.events.len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            values(&text).count();
        }
    }
}
