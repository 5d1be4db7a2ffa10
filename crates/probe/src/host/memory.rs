//! The page cache of the whole host: `/proc/vmstat`, and memory in `/proc/meminfo`.

use super::file::{KernelFile, boot_id, tell_absent};
use super::text::{pair, pairs};
use super::{NO_LABELS, Roots, SOURCE};
use crate::{Probe, ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::{self, Def};
use std::time::Duration;

/// Memory sizes change slowly: they are read at every so many looks.
const LOOKS_PER_MEMORY_READING: u32 = 5;

/// Series of `/proc/vmstat`, all counted in pages.
const PAGES: [(&str, &Def); 6] = [
    ("nr_dirty", &catalogue::VM_DIRTY),
    ("nr_writeback", &catalogue::VM_WRITEBACK),
    ("nr_dirtied", &catalogue::VM_DIRTIED),
    ("nr_written", &catalogue::VM_WRITTEN),
    ("nr_dirty_threshold", &catalogue::VM_DIRTY_THRESHOLD),
    ("nr_dirty_background_threshold", &catalogue::VM_BACKGROUND_THRESHOLD),
];

/// Reads how much of the page cache is dirty, and its limits.
#[derive(Debug)]
pub(super) struct PageCache {
    vmstat: KernelFile,
    in_first_lines: bool,
    meminfo: KernelFile,
    page_bytes: f64,
    epoch: Epoch,
    looks: u32,
}

impl PageCache {
    pub(super) fn new(roots: &Roots) -> Self {
        PageCache {
            vmstat: KernelFile::new(roots.proc.join("vmstat")),
            in_first_lines: true,
            meminfo: KernelFile::short(roots.proc.join("meminfo")),
            page_bytes: rustix::param::page_size() as f64,
            epoch: Epoch::of(&["boot", &boot_id(roots)]),
            looks: 0,
        }
    }

    /// The counts stand in the first lines of the file; a kernel with very many others before them is read whole.
    fn page_counts(&mut self) -> Result<[Option<u64>; PAGES.len()], ProbeError> {
        if self.in_first_lines {
            let counts = page_counts(&self.vmstat.first_lines()?);
            if counts.iter().all(Option::is_some) {
                return Ok(counts);
            }
            self.in_first_lines = false;
        }
        Ok(page_counts(&self.vmstat.read()?))
    }

    fn read_memory(&mut self, sink: &mut Sink<'_>) {
        let text = match self.meminfo.read() {
            Ok(text) => text,
            Err(error) => return tell_absent(sink, "memory size", &error, None),
        };
        for (key, def) in [("MemTotal", &catalogue::MEM_TOTAL), ("MemAvailable", &catalogue::MEM_AVAILABLE)] {
            if let Some(kib) = pair(&text, key) {
                sink.put(def, NO_LABELS, self.epoch, kib as f64 * 1024.0);
            }
        }
    }
}

/// The page counts that matter, in the order of [`PAGES`].
fn page_counts(vmstat: &str) -> [Option<u64>; PAGES.len()] {
    let mut counts = [None; PAGES.len()];
    for (key, value) in pairs(vmstat) {
        if let Some(place) = PAGES.iter().position(|(name, _)| *name == key) {
            counts[place] = Some(value);
        }
    }
    counts
}

impl Probe for PageCache {
    fn name(&self) -> &str {
        "host.vm"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        let counts = self.page_counts()?;
        for ((key, def), count) in PAGES.iter().zip(counts) {
            match count {
                Some(pages) => sink.put(def, NO_LABELS, self.epoch, pages as f64 * self.page_bytes),
                None => sink.absent(SOURCE, key, "/proc/vmstat of this kernel does not have it", None),
            }
        }
        if self.looks.is_multiple_of(LOOKS_PER_MEMORY_READING) {
            self.read_memory(sink);
        }
        self.looks = self.looks.wrapping_add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn captured_vmstat_gives_every_count() {
        let text = include_str!("../../tests/fixtures/capped/proc/vmstat");
        let counts = page_counts(text);
        assert!(counts.iter().all(Option::is_some), "{counts:?}");
        assert_eq!(counts[0], Some(31_628));
        assert_eq!(counts[4], Some(1_114_215));
        assert_eq!(counts[5], Some(556_427));
    }

    #[test]
    fn a_kernel_without_thresholds_leaves_them_out() {
        assert_eq!(page_counts("nr_dirty 5\nnr_writeback 0\n"), [Some(5), Some(0), None, None, None, None]);
    }

    #[test]
    fn a_long_file_is_read_whole_where_the_counts_stand_late() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        std::fs::create_dir_all(&roots.proc).unwrap();
        let text = include_str!("../../tests/fixtures/capped/proc/vmstat");
        std::fs::write(roots.proc.join("vmstat"), format!("{}{text}", "nr_other 1\n".repeat(400))).unwrap();
        let mut cache = PageCache::new(&roots);
        for _ in 0..2 {
            assert_eq!(cache.page_counts().unwrap()[4], Some(1_114_215));
            assert!(!cache.in_first_lines);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            page_counts(&text);
        }
    }
}
