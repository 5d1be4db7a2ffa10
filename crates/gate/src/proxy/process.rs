//! What the server's process has used for a statement, where the server is on this host: CPU time and private memory.

use crate::used::{Used, cpu_percent, is_titled};
use backwater_flow::MB;
use backwater_model::{Moment, Span};

/// How often a process is looked at: the system counts CPU time in hundredths of a second.
const LOOK_EVERY: Span = Span::from_millis(100);

/// One process, counted from the beginning of a statement.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// It is the process that it should be.
    is_it: bool,
    looked_at: Option<Moment>,
    /// CPU seconds when the statement was first seen.
    before_s: Option<f64>,
    /// CPU seconds since then.
    cpu_s: Option<f64>,
    percent: Option<f64>,
    memory_bytes: Option<f64>,
}

impl Process {
    /// Looks, if it is time to. CPU time before the first look at a statement is left out: it is none of its own.
    /// Nor does it look at a process whose title lacks one of `marks`.
    pub(super) fn look(&mut self, pid: i32, marks: &[&str], begins: bool, since: Moment, now: Moment) {
        if begins {
            *self = Process { is_it: is_titled(pid, marks), ..Process::default() };
        }
        if !self.is_it {
            return;
        }
        if self.looked_at.is_some_and(|at| now - at < LOOK_EVERY) {
            return;
        }
        self.looked_at = Some(now);
        let Used { cpu_s: total_s, memory_bytes } = Used::of(pid);
        self.before_s = self.before_s.or(total_s);
        self.cpu_s = total_s.zip(self.before_s).map(|(total_s, before_s)| total_s - before_s);
        self.percent = self.cpu_s.and_then(|cpu_s| cpu_percent(cpu_s, now.seconds_since(since)));
        self.memory_bytes = memory_bytes;
    }

    pub(super) fn cpu_s(&self) -> Option<f64> {
        self.cpu_s
    }

    pub(super) fn cpu_percent(&self) -> Option<f64> {
        self.percent
    }

    pub(super) fn private_mb(&self) -> Option<f64> {
        self.memory_bytes.map(|bytes| bytes / MB as f64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clock;

    #[test]
    fn this_process_uses_cpu_and_memory() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let mut process = Process::default();
        let since = clock::now();
        process.look(pid, &[], true, since, since);
        assert_eq!((process.cpu_s(), process.cpu_percent()), (Some(0.0), None));
        assert!(process.private_mb().unwrap() > 0.0);
        let mut burnt = 0u64;
        while process.cpu_s().unwrap() < 0.05 {
            burnt = std::hint::black_box(burnt + 1);
            if burnt.is_multiple_of(100_000) {
                process.look(pid, &[], false, since, clock::now());
            }
        }
        assert!(process.cpu_percent().unwrap() > 1.0);
    }

    #[test]
    fn a_process_that_is_gone_or_another_says_nothing() {
        let (pid, now) = (i32::try_from(std::process::id()).unwrap(), clock::now());
        let mut other = Process::default();
        other.look(pid, &["(65536)"], true, now, now);
        assert_eq!((other.cpu_s(), other.private_mb()), (None, None));
        let mut process = Process::default();
        process.look(-1, &[], true, Moment(0), Moment(0));
        assert_eq!((process.cpu_s(), process.cpu_percent(), process.private_mb()), (None, None, None));
    }
}
