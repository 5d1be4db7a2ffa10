//! The page cache of the whole host: `/proc/vmstat`, and memory in `/proc/meminfo`.

use super::file::{CHUNK_BYTES, KernelFile, boot_id, tell_absent};
use super::numbered::Numbered;
use super::text::pair;
use super::{Roots, SOURCE};
use crate::{Probe, ProbeError, Sink};
use backwater_model::Epoch;
use backwater_model::catalogue::{self, Def};
use std::time::Duration;

/// Memory sizes change slowly: they are read at every so many looks.
const LOOKS_PER_MEMORY_READING: u32 = 10;

/// How much longer the numbers of the lines read may become.
const LONGER_NUMBERS_BYTES: usize = 128;

/// Series of `/proc/vmstat`, all counted in pages.
const PAGES: [(&str, &Def); 6] = [
    ("nr_dirty", &catalogue::VM_DIRTY),
    ("nr_writeback", &catalogue::VM_WRITEBACK),
    ("nr_dirtied", &catalogue::VM_DIRTIED),
    ("nr_written", &catalogue::VM_WRITTEN),
    ("nr_dirty_threshold", &catalogue::VM_DIRTY_THRESHOLD),
    ("nr_dirty_background_threshold", &catalogue::VM_BACKGROUND_THRESHOLD),
];

/// How all of them begin.
const PAGES_BEGIN: [&str; 2] = ["nr_d", "nr_w"];

/// Reads how much of the page cache is dirty, and its limits.
#[derive(Debug)]
pub(super) struct PageCache {
    vmstat: KernelFile,
    /// How many bytes hold the lines that matter, with room for longer numbers; none where a page does not.
    first_bytes: Option<usize>,
    meminfo: KernelFile,
    page_bytes: f64,
    numbered: Numbered,
    looks: u32,
}

impl PageCache {
    pub(super) fn new(roots: &Roots) -> Self {
        PageCache {
            vmstat: KernelFile::new(roots.proc.join("vmstat")),
            first_bytes: Some(CHUNK_BYTES),
            meminfo: KernelFile::short(roots.proc.join("meminfo")),
            page_bytes: rustix::param::page_size() as f64,
            numbered: Numbered::new(Epoch::of(&["boot", &boot_id(roots)]), Vec::new()),
            looks: 0,
        }
    }

    /// The counts stand in the first lines of the file; a kernel with very many others before them is read whole.
    fn page_counts(&mut self) -> Result<[Option<u64>; PAGES.len()], ProbeError> {
        if let Some(bytes) = self.first_bytes {
            let (counts, end) = page_counts(&self.vmstat.first_lines(bytes)?);
            if counts.iter().all(Option::is_some) {
                self.first_bytes = Some((end + LONGER_NUMBERS_BYTES).min(CHUNK_BYTES));
                return Ok(counts);
            }
            // They may have moved; if a page does not hold them either, the whole file is read from now on.
            self.first_bytes = (bytes < CHUNK_BYTES).then_some(CHUNK_BYTES);
        }
        Ok(page_counts(&self.vmstat.read()?).0)
    }

    fn read_memory(&mut self, sink: &mut Sink<'_>) {
        let text = match self.meminfo.read() {
            Ok(text) => text,
            Err(error) => return tell_absent(sink, "memory size", &error, None),
        };
        for (key, def) in [("MemTotal", &catalogue::MEM_TOTAL), ("MemAvailable", &catalogue::MEM_AVAILABLE)] {
            if let Some(kib) = pair(&text, key) {
                self.numbered.put(sink, def, kib as f64 * 1024.0);
            }
        }
    }
}

/// The page counts that matter, in the order of [`PAGES`], and how many bytes of the text hold them.
fn page_counts(vmstat: &str) -> ([Option<u64>; PAGES.len()], usize) {
    let (mut counts, mut end) = ([None; PAGES.len()], 0);
    for line in vmstat.split_inclusive('\n') {
        end += line.len();
        // Most lines are none of them, and this is all that is looked at.
        if !PAGES_BEGIN.iter().any(|begin| line.starts_with(begin)) {
            continue;
        }
        let Some((key, value)) = line.split_once(' ') else { continue };
        let Some(place) = PAGES.iter().position(|(name, _)| *name == key) else { continue };
        counts[place] = value.trim().parse().ok();
        if counts.iter().all(Option::is_some) {
            break;
        }
    }
    (counts, end)
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
                Some(pages) => self.numbered.put(sink, def, pages as f64 * self.page_bytes),
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
        let (counts, end) = page_counts(text);
        assert!(text[..end].ends_with("\n") && text[..end].contains("nr_dirty_background_threshold"));
        assert!(counts.iter().all(Option::is_some), "{counts:?}");
        assert_eq!(counts[0], Some(31_628));
        assert_eq!(counts[4], Some(1_114_215));
        assert_eq!(counts[5], Some(556_427));
    }

    #[test]
    fn a_kernel_without_thresholds_leaves_them_out() {
        assert_eq!(page_counts("nr_dirty 5\nnr_writeback 0\n").0, [Some(5), Some(0), None, None, None, None]);
    }

    #[test]
    fn only_what_holds_the_counts_is_read_and_lines_that_move_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        std::fs::create_dir_all(&roots.proc).unwrap();
        let text = include_str!("../../tests/fixtures/capped/proc/vmstat");
        std::fs::write(roots.proc.join("vmstat"), text).unwrap();
        let mut cache = PageCache::new(&roots);
        let first = cache.page_counts().unwrap();
        assert!(cache.first_bytes.is_some_and(|bytes| bytes < CHUNK_BYTES));
        assert_eq!(cache.page_counts().unwrap(), first);
        std::fs::write(roots.proc.join("vmstat"), format!("{}{text}", "nr_other 1\n".repeat(50))).unwrap();
        (0..3).for_each(|_| assert_eq!(cache.page_counts().unwrap(), first));
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
            assert!(cache.first_bytes.is_none());
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            page_counts(&text);
        }
    }
}
