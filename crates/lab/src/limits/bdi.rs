//! A bound on the dirty pages of one device: `max_bytes` and `strict_limit` of its backing device (Linux 6.2).
//!
//! The kernel keeps `max_bytes` as a share of the host's threshold, in millionths (`max_ratio_fine`): what is read back
//! is a little less than what was set and moves with the available memory. The share is what the journal holds,
//! since an old `max_bytes` may be refused when it is written back. Both outlive the loop device.

use super::{LimitError, debugfs, values};
use backwater_model::Bytes;
use backwater_undo::{Change, Journal};
use std::path::{Path, PathBuf};

/// Below this a writer is stopped for every few pages; 0 and 1 would even set the share to nothing.
const LEAST_BYTES: u64 = 1 << 20;
/// What a device begins with: its whole share, not enforced.
const DEFAULTS: [(&str, &str); 3] = [("max_ratio_fine", "1000000"), ("min_ratio_fine", "0"), ("strict_limit", "0")];

/// The bound in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyLimit {
    /// Dirty bytes that the device may have.
    pub max_bytes: u64,
    /// Whether it holds although the host as a whole is far from its own threshold.
    pub strict: bool,
}

/// The writeback side of one device.
#[derive(Clone, Debug)]
pub(super) struct Bdi {
    dev: String,
    directory: PathBuf,
}

impl Bdi {
    /// Of `MAJ:MIN`, below `/sys/class/bdi`.
    pub(super) fn new(class: &Path, dev: &str) -> Bdi {
        Bdi { dev: dev.to_owned(), directory: class.join(dev) }
    }

    /// Puts back what an earlier user of the device left. Older kernels have less to reset.
    pub(super) fn reset(&self, journal: &Journal) -> Result<(), LimitError> {
        for (name, value) in DEFAULTS {
            let path = self.directory.join(name);
            if path.exists() {
                values::change(journal, &path, value)?;
            }
        }
        Ok(())
    }

    /// Bounds the device's dirty pages; the bytes that the kernel says are in force.
    pub(super) fn limit(&self, journal: &Journal, bytes: u64) -> Result<u64, LimitError> {
        self.check(bytes)?;
        self.reset(journal)?;
        let host = self.get()?.max_bytes;
        values::change(journal, &self.directory.join("strict_limit"), "1")?;
        // The share is noted, not max_bytes: see the head of this file.
        let share = self.directory.join("max_ratio_fine");
        journal.note(Change::FileValue { path: share.clone(), before: values::read(&share)? })?;
        values::write(&self.directory.join("max_bytes"), &bytes.to_string())
            .map_err(|error| self.explain(error, bytes, host))?;
        self.hold_share(journal, &share)?;
        let found = self.get()?;
        let off = found.max_bytes.abs_diff(bytes);
        if found.strict && off <= bytes / 10 {
            return Ok(found.max_bytes);
        }
        let what = format!("the dirty limit of device {}", self.dev);
        let (wanted, found) =
            (Bytes(bytes).to_string(), format!("{} (strict: {})", Bytes(found.max_bytes), found.strict));
        Err(LimitError::NotInForce { what, wanted, found })
    }

    /// Makes the bound the device's floor as well. Otherwise its part shrinks while others on the host write more than it
    /// does, to a third of the bound and less, and the experiment would be about their load.
    fn hold_share(&self, journal: &Journal, share: &Path) -> Result<(), LimitError> {
        let floor = self.directory.join("min_ratio_fine");
        if floor.exists() { values::change(journal, &floor, &values::read(share)?) } else { Ok(()) }
    }

    /// The bound in force.
    pub(super) fn get(&self) -> Result<DirtyLimit, LimitError> {
        let strict = values::read_number(&self.directory.join("strict_limit"))? == 1;
        Ok(DirtyLimit { max_bytes: values::read_number(&self.directory.join("max_bytes"))?, strict })
    }

    fn check(&self, bytes: u64) -> Result<(), LimitError> {
        if bytes < LEAST_BYTES {
            let why = format!("it must be at least {}", Bytes(LEAST_BYTES));
            let what = format!("the dirty limit of device {}", self.dev);
            return Err(LimitError::Value { what, value: Bytes(bytes).to_string(), why });
        }
        possible(&self.directory)
    }

    /// The kernel refuses more than the host's own threshold with a bare "invalid argument".
    fn explain(&self, error: LimitError, bytes: u64, host: u64) -> LimitError {
        if bytes < host {
            return error;
        }
        LimitError::Value {
            what: format!("the dirty limit of device {}", self.dev),
            value: Bytes(bytes).to_string(),
            why: format!("the host's own threshold is {} now, and a device's part cannot be more", Bytes(host)),
        }
    }

    /// Bytes dirty and under writeback; `None` without debugfs.
    pub(super) fn level_bytes(&self) -> Option<u64> {
        level(&debugfs::device_stats(&self.dev)?)
    }
}

/// Whether the kernel bounds single devices.
pub(super) fn possible(directory: &Path) -> Result<(), LimitError> {
    if directory.join("max_bytes").exists() && directory.join("max_ratio_fine").exists() {
        return Ok(());
    }
    Err(LimitError::Unsupported {
        what: "a dirty limit for one device".to_owned(),
        why: format!("{} has no max_bytes, which came with Linux 6.2", directory.display()),
        next: "Use a newer kernel, or limit the whole host with vm.dirty_bytes: --allow-host-changes".to_owned(),
    })
}

/// BdiReclaimable + BdiWriteback of `/sys/kernel/debug/bdi/MAJ:MIN/stats`.
fn level(text: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some(kib("BdiReclaimable")?.saturating_add(kib("BdiWriteback")?).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    /// A device of plain files, limited by an earlier user.
    fn device() -> (tempfile::TempDir, Bdi) {
        let dir = tempfile::tempdir().unwrap();
        let bdi = Bdi::new(dir.path(), "7:0");
        fs::create_dir(&bdi.directory).unwrap();
        let files =
            [("max_ratio_fine", "58607\n"), ("min_ratio_fine", "0\n"), ("strict_limit", "1\n"), ("max_bytes", "9\n")];
        for (name, value) in files {
            fs::write(bdi.directory.join(name), value).unwrap();
        }
        (dir, bdi)
    }

    #[test]
    fn inherited_limits_are_reset_and_come_back() {
        let (dir, bdi) = device();
        let journal = Journal::begin(dir.path(), "test").unwrap();
        bdi.reset(&journal).unwrap();
        let read = |name: &str| fs::read_to_string(bdi.directory.join(name)).unwrap().trim().to_owned();
        assert_eq!((read("max_ratio_fine"), read("strict_limit")), ("1000000".to_owned(), "0".to_owned()));
        assert_eq!(bdi.limit(&journal, 256 << 20).unwrap(), 256 << 20);
        assert_eq!(bdi.get().unwrap(), DirtyLimit { max_bytes: 256 << 20, strict: true });
        assert_eq!(read("min_ratio_fine"), read("max_ratio_fine"), "others cannot take of it");
        journal.finish().unwrap();
        assert_eq!((read("max_ratio_fine"), read("strict_limit")), ("58607".to_owned(), "1".to_owned()));
        assert_eq!(read("min_ratio_fine"), "0");
    }

    #[test]
    fn too_little_and_too_old_say_why() {
        let (dir, bdi) = device();
        let journal = Journal::begin(dir.path(), "test").unwrap();
        let error = bdi.limit(&journal, 4096).unwrap_err().to_string();
        assert!(error.contains("at least 1"), "{error}");
        let old = Bdi::new(dir.path(), "7:9");
        let error = old.limit(&journal, 1 << 30).unwrap_err().to_string();
        assert!(error.contains("Linux 6.2") && error.contains("vm.dirty_bytes"), "{error}");
    }

    #[test]
    fn the_level_is_what_is_dirty_and_under_way() {
        let text = "BdiWriteback:            84880 kB\nBdiReclaimable:         126352 kB\nBdiDirtyThresh:  261200 kB\n";
        assert_eq!(level(text), Some((84_880 + 126_352) * 1024));
        assert_eq!(level("BdiWriteback: x kB\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}") {
            let _ = level(&text);
        }
    }
}
