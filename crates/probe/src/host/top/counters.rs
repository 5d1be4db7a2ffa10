//! The counters of one process at one look, and the rates between two looks.

use crate::host::task::{Stat, directory, parse_stat};
use crate::host::text::pairs;
use crate::host::{Roots, file};
use backwater_model::ProcessUse;

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
    pub(super) io: Option<Io>,
    pub(super) io_denied: bool,
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
        let io = file::record(&dir.join("io"));
        let io_denied = io.as_ref().is_err_and(file::denied);
        let io = io.ok().map(|text| io_in(&text));
        let cpu_s = stat.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some(Counters { start_ticks: stat.start_ticks, name, title, cpu_s, io, io_denied })
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
    let nothing = Counters { io: Some(Io::default()), ..Counters::default() };
    let before = before.unwrap_or(&nothing);
    let io = |part: fn(&Io) -> u64| {
        let (then, now) = (before.io.as_ref()?, now.io.as_ref()?);
        Some(part(now).saturating_sub(part(then)) as f64 / seconds)
    };
    ProcessUse {
        read_bytes_per_s: io(|io| io.read_bytes),
        write_bytes_per_s: io(|io| io.write_bytes),
        read_calls_per_s: io(|io| io.read_calls),
        write_calls_per_s: io(|io| io.write_calls),
        cpu_share: Some((now.cpu_s - before.cpu_s).max(0.0) / seconds),
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
        let io = counters.io.unwrap();
        assert_eq!((io.write_bytes, io.write_calls), (19_046_400, 5_207));
        assert_eq!(Counters::read(&roots, 1), None);
    }

    #[test]
    fn rates_are_of_the_time_between_and_a_new_process_counts_whole() {
        let at = |write_bytes, cpu_s| {
            let io = Io { write_bytes, read_calls: 10, ..Io::default() };
            Counters { cpu_s, io: Some(io), ..Counters::default() }
        };
        let process = rates(Some(&at(1_000, 1.0)), &at(5_000, 2.0), 2.0);
        assert_eq!((process.write_bytes_per_s, process.read_calls_per_s), (Some(2_000.0), Some(0.0)));
        assert_eq!(process.cpu_share, Some(0.5));
        assert_eq!(rates(None, &at(4_000, 1.0), 2.0).write_bytes_per_s, Some(2_000.0));
        let unreadable = Counters { io: None, ..at(0, 1.0) };
        assert_eq!(rates(Some(&at(0, 0.0)), &unreadable, 1.0).write_bytes_per_s, None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            name_in(&text);
            io_in(&text);
        }
    }
}
