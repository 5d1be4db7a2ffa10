//! Where processes sleep in the kernel: `/proc/PID/wchan`, with the state in `/proc/PID/stat`. Read ten times a second
//! for every active session, so the files of most are kept open.

use super::Roots;
use super::file::KernelFile;
use super::task::{directory, parse_stat};
use std::collections::HashMap;

/// Processes whose two files are kept open. The usual limit is 1,024 files, and other probes need some too.
const MOST_KEPT_OPEN: usize = 200;

/// Reads the kernel waits of many processes again and again.
#[derive(Debug)]
pub struct KernelWaits {
    roots: Roots,
    kept: HashMap<i32, Files>,
}

#[derive(Debug)]
struct Files {
    wchan: KernelFile,
    stat: KernelFile,
}

impl Files {
    fn new(roots: &Roots, pid: i32) -> Self {
        let dir = directory(roots, pid);
        Files { wchan: KernelFile::short(dir.join("wchan")), stat: KernelFile::short(dir.join("stat")) }
    }

    fn read(&mut self) -> (Option<String>, Option<char>) {
        let state = self.stat.read().ok().and_then(|text| parse_stat(&text)).map(|stat| stat.state);
        let wchan = self.wchan.read().ok().and_then(|text| kernel_function(&text));
        (wchan, state)
    }
}

/// The kernel writes `0` for a process that runs and for one whose wait the reader may not see.
fn kernel_function(wchan: &str) -> Option<String> {
    let name = wchan.trim();
    (!name.is_empty() && name != "0").then(|| name.to_owned())
}

impl KernelWaits {
    /// A reader that has nothing open yet.
    pub fn new(roots: &Roots) -> Self {
        KernelWaits { roots: roots.clone(), kept: HashMap::new() }
    }

    /// The kernel function the process sleeps in, and its state (R, S, D, …). Each is none where it cannot be seen; the
    /// function also while the process runs.
    pub fn read(&mut self, pid: i32) -> (Option<String>, Option<char>) {
        if let Some(files) = self.kept.get_mut(&pid) {
            let read = files.read();
            if read.1.is_none() {
                self.kept.remove(&pid);
            }
            return read;
        }
        let mut files = Files::new(&self.roots, pid);
        let read = files.read();
        if read.1.is_some() && self.kept.len() < MOST_KEPT_OPEN {
            self.kept.insert(pid, files);
        }
        read
    }

    /// Closes the files of all processes but these.
    pub fn forget_others(&mut self, pids: &[i32]) {
        self.kept.retain(|pid, _| pids.contains(pid));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::fixture;
    use proptest::prelude::*;

    #[test]
    fn a_captured_backend_sleeps_behind_the_inode_lock() {
        let (roots, _) = fixture("capped");
        let mut waits = KernelWaits::new(&roots);
        let expected = (Some("ext4_buffered_write_iter".to_owned()), Some('D'));
        assert_eq!(waits.read(11_173), expected);
        assert_eq!(waits.read(11_173), expected);
        assert_eq!(waits.read(1), (None, None));
        waits.forget_others(&[]);
        assert!(waits.kept.is_empty());
    }

    #[test]
    fn a_sleeping_child_is_seen_and_its_end_too() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let mut waits = KernelWaits::new(&Roots::default());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut seen = waits.read(pid);
        let asleep = |function: &Option<String>| function.as_ref().is_some_and(|name| name.contains("nanosleep"));
        while !asleep(&seen.0) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
            seen = waits.read(pid);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(asleep(&seen.0), "{seen:?}");
        assert_eq!(waits.read(pid), (None, None));
    }

    #[test]
    fn no_more_than_so_many_files_are_kept_open() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let line = include_str!("../../tests/fixtures/capped/proc/11173/stat");
        for pid in 1..=MOST_KEPT_OPEN as i32 + 5 {
            std::fs::create_dir_all(directory(&roots, pid)).unwrap();
            std::fs::write(directory(&roots, pid).join("stat"), line).unwrap();
        }
        let mut waits = KernelWaits::new(&roots);
        for pid in 1..=MOST_KEPT_OPEN as i32 + 5 {
            assert_eq!(waits.read(pid), (None, Some('D')));
        }
        assert_eq!(waits.kept.len(), MOST_KEPT_OPEN);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            kernel_function(&text);
        }
    }
}
