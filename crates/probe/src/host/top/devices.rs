//! Which devices a process writes to: those of the files it has open for writing. A process that opens, writes and
//! closes quickly may have none open at the moment.

use super::counters::Counters;
use crate::host::task::directory;
use crate::host::{Roots, device, file};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Files of one process that are looked at: a session of PostgreSQL may have a thousand open.
const MOST_FILES: usize = 512;
/// What was found is believed for so long.
const BELIEVED_FOR: Duration = Duration::from_secs(10);
/// The bits of a file's flags that say whether it is open for reading only (0), writing, or both.
const ACCESS: u32 = 0o3;

/// The devices of processes, remembered for a while.
#[derive(Debug)]
pub(super) struct WrittenTo {
    roots: Roots,
    known: HashMap<(i32, u64), (Instant, Vec<String>)>,
    names: HashMap<u64, String>,
}

impl WrittenTo {
    pub(super) fn new(roots: &Roots) -> Self {
        WrittenTo { roots: roots.clone(), known: HashMap::new(), names: HashMap::new() }
    }

    /// The kernel's names of the devices a process has files open for writing on, in order.
    pub(super) fn of(&mut self, pid: i32, start_ticks: u64) -> Vec<String> {
        let believed = self.known.get(&(pid, start_ticks)).filter(|(at, _)| at.elapsed() < BELIEVED_FOR);
        if let Some((_, names)) = believed {
            return names.clone();
        }
        let devices = open_for_writing(&self.roots, pid);
        let mut names: Vec<String> = devices.into_iter().map(|dev| self.name(dev)).collect();
        names.sort();
        self.known.insert((pid, start_ticks), (Instant::now(), names.clone()));
        names
    }

    pub(super) fn forget_others(&mut self, present: &HashMap<i32, Counters>) {
        let there = |pid: &i32, start| present.get(pid).is_some_and(|counters| counters.start_ticks == start);
        self.known.retain(|(pid, start), _| there(pid, *start));
    }

    fn name(&mut self, dev: u64) -> String {
        let number = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        self.names.entry(dev).or_insert_with(|| device(&self.roots, &number).name).clone()
    }
}

fn open_for_writing(roots: &Roots, pid: i32) -> BTreeSet<u64> {
    let dir = directory(roots, pid);
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir.join("fd")).into_iter().flatten().flatten().take(MOST_FILES) {
        let Ok(metadata) = std::fs::metadata(entry.path()) else { continue };
        // Files in memory have a number without a device, and are no writes to storage.
        let storage = metadata.is_file() && rustix::fs::major(metadata.dev()) != 0;
        if storage && !found.contains(&metadata.dev()) && is_writable(&dir.join("fdinfo").join(entry.file_name())) {
            found.insert(metadata.dev());
        }
    }
    found
}

fn is_writable(fdinfo: &std::path::Path) -> bool {
    let text = file::read(fdinfo).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & ACCESS != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_open_for_writing_names_its_device_and_one_open_for_reading_does_not() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = std::fs::File::create(dir.path().join("written")).unwrap();
        let dev = file.metadata().unwrap().dev();
        let own = std::process::id() as i32;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let fdinfo = |fd: i32| std::path::PathBuf::from(format!("/proc/self/fdinfo/{fd}"));
        assert!(is_writable(&fdinfo(fd)));
        let read = std::fs::File::open(dir.path().join("written")).unwrap();
        assert!(!is_writable(&fdinfo(std::os::fd::AsRawFd::as_raw_fd(&read))));
        if rustix::fs::major(dev) != 0 {
            assert!(open_for_writing(&Roots::default(), own).contains(&dev));
            assert!(!WrittenTo::new(&Roots::default()).of(own, 1).is_empty());
        }
    }
}
