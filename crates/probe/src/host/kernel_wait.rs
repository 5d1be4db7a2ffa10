//! Where processes sleep in the kernel: `/proc/PID/wchan`, with the state in `/proc/PID/stat`. Read ten times a second
//! for every active session, so the files of most are kept open, and the second, which costs twice the first, is read only
//! where the first leaves the state open: a kernel function nearly always sleeps in the same state. A process without one need not
//! run: since Linux 6.12 one that has just gone to sleep may stay in its run queue for a while, and then has none either.

use super::Roots;
use super::file::KernelFile;
use super::task::{directory, parse_stat};
use std::collections::{HashMap, HashSet};

/// Processes whose two files are kept open. The usual limit is 1,024 files, and other probes need some too.
const MOST_KEPT_OPEN: usize = 200;

/// After so many sleeps in a function that were all of one state, that is its state; looked at again at every so many.
const SURE_AFTER: u32 = 16;
const LOOKS_PER_CHECK: u32 = 16;
/// Kernel functions whose states are remembered.
const MOST_FUNCTIONS: usize = 512;

/// Reads the kernel waits of many processes again and again.
#[derive(Debug)]
pub struct KernelWaits {
    roots: Roots,
    kept: HashMap<i32, Files>,
    states: States,
}

/// In which state processes sleep in which function.
#[derive(Debug, Default)]
struct States {
    known: HashMap<String, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    state: char,
    /// How often it was this state, one time after the other; none once it was ever another.
    agreed: Option<u32>,
    looks: u32,
}

impl States {
    /// The state of a process that sleeps in this function, if that can be told without looking.
    fn told(&mut self, function: &str) -> Option<char> {
        let known = self.known.get_mut(function)?;
        known.agreed.filter(|agreed| *agreed >= SURE_AFTER)?;
        known.looks = known.looks.wrapping_add(1);
        (!known.looks.is_multiple_of(LOOKS_PER_CHECK)).then_some(known.state)
    }

    /// A process slept in this function, in this state. (One that runs has been woken in between.)
    fn learn(&mut self, function: &str, state: char) {
        if !matches!(state, 'S' | 'D') {
            return;
        }
        if let Some(known) = self.known.get_mut(function) {
            known.agreed = known.agreed.filter(|_| known.state == state).map(|agreed| agreed.saturating_add(1));
        } else if self.known.len() < MOST_FUNCTIONS {
            self.known.insert(function.to_owned(), Known { state, agreed: Some(1), looks: 0 });
        }
    }
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

    fn read(&mut self, states: &mut States) -> (Option<String>, Option<char>) {
        let wchan = self.wchan.read().ok().and_then(|text| kernel_function(&text));
        if let Some(told) = wchan.as_deref().and_then(|function| states.told(function)) {
            return (wchan, Some(told));
        }
        let state = self.stat.read().ok().and_then(|text| parse_stat(&text)).map(|stat| stat.state);
        if let (Some(function), Some(state)) = (wchan.as_deref(), state) {
            states.learn(function, state);
        }
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
        KernelWaits { roots: roots.clone(), kept: HashMap::new(), states: States::default() }
    }

    /// The kernel function the process sleeps in, and its state (R, S, D, …). Each is none where it cannot be seen; the
    /// function also while the process runs.
    pub fn read(&mut self, pid: i32) -> (Option<String>, Option<char>) {
        if let Some(files) = self.kept.get_mut(&pid) {
            let read = files.read(&mut self.states);
            if read.1.is_none() {
                self.kept.remove(&pid);
            }
            return read;
        }
        let mut files = Files::new(&self.roots, pid);
        let read = files.read(&mut self.states);
        if read.1.is_some() && self.kept.len() < MOST_KEPT_OPEN {
            self.kept.insert(pid, files);
        }
        read
    }

    /// Closes the files of all processes but these.
    pub fn forget_others(&mut self, pids: &[i32]) {
        let pids: HashSet<i32> = pids.iter().copied().collect();
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
    fn the_state_of_a_function_is_told_once_it_was_always_the_same_and_checked_now_and_then() {
        let mut states = States::default();
        (0..SURE_AFTER - 1).for_each(|_| states.learn("ep_poll", 'S'));
        assert_eq!(states.told("ep_poll"), None, "not yet sure");
        states.learn("ep_poll", 'R');
        states.learn("ep_poll", 'S');
        let told = (0..160).filter(|_| states.told("ep_poll") == Some('S')).count();
        assert_eq!(told, 150, "one look in sixteen is a real one");
        states.learn("ep_poll", 'D');
        (0..100).for_each(|_| states.learn("ep_poll", 'S'));
        assert_eq!(states.told("ep_poll"), None, "it has two states, so it is looked at for ever");
        assert_eq!(states.told("never_seen"), None);
    }

    #[test]
    fn a_process_whose_function_is_known_is_read_by_half_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        std::fs::create_dir_all(directory(&roots, 7)).unwrap();
        let line = include_str!("../../tests/fixtures/capped/proc/11173/stat");
        std::fs::write(directory(&roots, 7).join("stat"), line).unwrap();
        std::fs::write(directory(&roots, 7).join("wchan"), "balance_dirty_pages").unwrap();
        let mut waits = KernelWaits::new(&roots);
        let expected = (Some("balance_dirty_pages".to_owned()), Some('D'));
        (0..SURE_AFTER).for_each(|_| assert_eq!(waits.read(7), expected));
        std::fs::write(directory(&roots, 7).join("stat"), line.replace(") D ", ") S ")).unwrap();
        assert_eq!(waits.read(7), expected, "the state was not read");
        std::fs::write(directory(&roots, 7).join("wchan"), "0").unwrap();
        assert_eq!(waits.read(7), (None, Some('S')), "without a function it may sleep all the same");
        std::fs::create_dir_all(directory(&roots, 8)).unwrap();
        std::fs::write(directory(&roots, 8).join("stat"), line).unwrap();
        std::fs::write(directory(&roots, 8).join("wchan"), "0").unwrap();
        assert_eq!(waits.read(8), (None, Some('D')), "where it sleeps may not be seen");
        assert_eq!(waits.read(8), (None, Some('D')));
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
