//! The counters of one process at one look, and the rates between two looks.

use crate::ProbeError;
use crate::host::task::{Stat, directory, parse_stat};
use crate::host::text::pairs;
use crate::host::{Roots, file};
use backwater_model::ProcessUse;
use std::collections::BTreeMap;
use std::path::Path;

/// A process with more threads than this is read as a whole.
const MOST_THREADS: usize = 64;

/// Running totals of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters {
    /// With the process id, the process' identity.
    pub(super) start_ticks: u64,
    /// The program's name as the kernel has it.
    pub(super) name: String,
    /// The command line, of a process that may be a PostgreSQL server's.
    pub(super) title: Option<String>,
    pub(super) cpu_s: f64,
    /// None where it may not be read, and of a process that ended during the look.
    pub(super) io: Option<Own>,
    pub(super) io_denied: bool,
}

/// What a process read and wrote. `/proc/PID/io` also holds all that its reaped children ever did (`wait_task_zombie` in
/// kernel/exit.c), which was told as theirs while they lived: a postmaster would seem to write what its sessions wrote. The
/// files of its threads hold their own alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// By thread, of those that live.
    Threads(BTreeMap<i32, Io>),
    /// With what reaped children did.
    Whole(Io),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Io {
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) read_calls: u64,
    pub(super) write_calls: u64,
}

impl Counters {
    /// None for a process that has ended.
    pub(super) fn read(roots: &Roots, pid: i32) -> Option<Counters> {
        let dir = directory(roots, pid);
        let line = file::record(&dir.join("stat")).ok()?;
        let stat: Stat = parse_stat(&line)?;
        let name = name_in(&line)?.to_owned();
        let title = name.starts_with("postg").then(|| file::read(&dir.join("cmdline")).ok()).flatten();
        let io = Own::read(&dir);
        let io_denied = io.as_ref().is_err_and(file::denied);
        let io = io.ok();
        let cpu_s = stat.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some(Counters { start_ticks: stat.start_ticks, name, title, cpu_s, io, io_denied })
    }
}

impl Own {
    fn read(dir: &Path) -> Result<Own, ProbeError> {
        let threads = std::fs::read_dir(dir.join("task")).into_iter().flatten().flatten();
        let ids: Vec<i32> = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect();
        if ids.is_empty() || ids.len() > MOST_THREADS {
            return file::record(&dir.join("io")).map(|text| Own::Whole(io_in(&text)));
        }
        let mut all = BTreeMap::new();
        for id in ids {
            match file::record(&dir.join("task").join(id.to_string()).join("io")) {
                Ok(text) => drop(all.insert(id, io_in(&text))),
                Err(error) if file::denied(&error) => return Err(error),
                // The thread has ended since.
                Err(_) => {}
            }
        }
        Ok(Own::Threads(all))
    }

    /// How much a part grew; none where the two cannot be compared. What a thread did that has ended since is not known.
    fn grew(before: Option<&Own>, now: &Own, part: fn(&Io) -> u64) -> Option<u64> {
        let rise = |then: Option<&Io>, now: &Io| part(now).saturating_sub(then.map_or(0, part));
        match (before, now) {
            (None, Own::Threads(now)) => Some(now.values().map(part).sum()),
            (None, Own::Whole(now)) => Some(part(now)),
            (Some(Own::Threads(then)), Own::Threads(now)) => {
                Some(now.iter().map(|(id, now)| rise(then.get(id), now)).sum())
            }
            (Some(Own::Whole(then)), Own::Whole(now)) => Some(rise(Some(then), now)),
            _ => None,
        }
    }
}

/// The name in parentheses, which may itself hold some.
fn name_in(stat: &str) -> Option<&str> {
    let (head, _) = stat.rsplit_once(')')?;
    head.split_once('(').map(|(_, name)| name)
}

fn io_in(text: &str) -> Io {
    let mut io = Io::default();
    for (key, value) in pairs(text) {
        match key {
            "read_bytes" => io.read_bytes = value,
            "write_bytes" => io.write_bytes = value,
            "syscr" => io.read_calls = value,
            "syscw" => io.write_calls = value,
            _ => {}
        }
    }
    io
}

/// What a process did between two looks. One that was not there at the first has done all of it in between.
pub(super) fn rates(before: Option<&Counters>, now: &Counters, seconds: f64) -> ProcessUse {
    let io = |part: fn(&Io) -> u64| {
        let then = match before {
            Some(before) => Some(before.io.as_ref()?),
            None => None,
        };
        Some(Own::grew(then, now.io.as_ref()?, part)? as f64 / seconds)
    };
    let cpu_s = before.map_or(0.0, |before| before.cpu_s);
    ProcessUse {
        read_bytes_per_s: io(|io| io.read_bytes),
        write_bytes_per_s: io(|io| io.write_bytes),
        read_calls_per_s: io(|io| io.read_calls),
        write_calls_per_s: io(|io| io.write_calls),
        cpu_share: Some((now.cpu_s - cpu_s).max(0.0) / seconds),
        ..ProcessUse::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::fixture;
    use proptest::prelude::*;

    #[test]
    fn a_captured_session_has_its_counters() {
        let (roots, _) = fixture("capped");
        let counters = Counters::read(&roots, 11_173).unwrap();
        assert_eq!((counters.name.as_str(), counters.cpu_s), ("postgres", 0.58));
        assert!(counters.title.unwrap().starts_with("postgres: "));
        let Some(Own::Whole(io)) = counters.io else { panic!("the capture has no threads: {:?}", counters.io) };
        assert_eq!((io.write_bytes, io.write_calls), (19_046_400, 5_207));
        assert_eq!(Counters::read(&roots, 1), None);
    }

    #[test]
    fn rates_are_of_the_time_between_and_a_new_process_counts_whole() {
        let at = |write_bytes, cpu_s| {
            let io = Io { write_bytes, read_calls: 10, ..Io::default() };
            Counters { cpu_s, io: Some(Own::Whole(io)), ..Counters::default() }
        };
        let process = rates(Some(&at(1_000, 1.0)), &at(5_000, 2.0), 2.0);
        assert_eq!((process.write_bytes_per_s, process.read_calls_per_s), (Some(2_000.0), Some(0.0)));
        assert_eq!(process.cpu_share, Some(0.5));
        assert_eq!(rates(None, &at(4_000, 1.0), 2.0).write_bytes_per_s, Some(2_000.0));
        let unreadable = Counters { io: None, ..at(0, 1.0) };
        assert_eq!(rates(Some(&at(0, 0.0)), &unreadable, 1.0).write_bytes_per_s, None);
        assert_eq!(rates(Some(&unreadable), &at(9_000, 1.0), 1.0).write_bytes_per_s, None);
    }

    #[test]
    fn threads_count_for_themselves() {
        let at = |threads: &[(i32, u64)]| {
            let io = |write_bytes| Io { write_bytes, ..Io::default() };
            let threads = threads.iter().map(|(id, bytes)| (*id, io(*bytes))).collect();
            Counters { io: Some(Own::Threads(threads)), ..Counters::default() }
        };
        let written = |before: &Counters, now: &Counters| rates(Some(before), now, 1.0).write_bytes_per_s;
        // One went on, one is new, one has ended.
        assert_eq!(written(&at(&[(1, 100), (2, 5_000)]), &at(&[(1, 160), (3, 40)])), Some(100.0));
        assert_eq!(rates(None, &at(&[(1, 160), (3, 40)]), 1.0).write_bytes_per_s, Some(200.0));
        // What has reaped children in it cannot be compared with what has not.
        let whole =
            Counters { io: Some(Own::Whole(Io { write_bytes: 9_000, ..Io::default() })), ..Counters::default() };
        assert_eq!(written(&at(&[(1, 100)]), &whole), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            name_in(&text);
            io_in(&text);
        }
    }
}
