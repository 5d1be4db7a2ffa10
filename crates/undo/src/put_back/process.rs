//! Processes that the run started: asked to stop, waited for, killed; with their groups and descendants.
//!
//! A process is known by its id *and* its start time. Signals go through a pidfd that is opened first and checked
//! second, so that an id that was given to somebody else in between is never touched.

use super::Why;
use crate::journal::MARKER_VARIABLE;
use crate::{Stop, wait};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a process may take to stop when asked. PostgreSQL kills its own children after 5 s of an immediate stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How long its descendants may stay when it is gone.
const FOLLOW_WITHIN: Duration = Duration::from_secs(2);
/// How long a killed process may stay: it can be inside a write to a device that is still draining.
const DIE_WITHIN: Duration = Duration::from_secs(20);
/// How long a process may be without an environment while it becomes another program.
const BECOME_WITHIN: Duration = Duration::from_millis(50);

/// Processes by id, with their start times.
type Family = BTreeMap<i32, u64>;

/// What `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    ended: bool,
    parent: i32,
    group: i32,
    start_time: u64,
}

/// When the process started, in clock ticks since boot; `None` where there is none. With the id it names a process
/// for good.
pub fn start_time(pid: i32) -> Option<u64> {
    stat(pid).map(|stat| stat.start_time)
}

fn stat(pid: i32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name may hold spaces and parentheses: the fields begin after the last one.
fn parse(text: &str) -> Option<Stat> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let start_time = fields.nth(16)?.parse().ok()?;
    Some(Stat { ended: matches!(state, "Z" | "X"), parent, group, start_time })
}

/// Whether that very process still runs. One that ended and waits to be reaped does not.
pub(crate) fn runs(pid: i32, start_time: u64) -> bool {
    stat(pid).is_some_and(|stat| stat.start_time == start_time && !stat.ended)
}

/// Ends the process, its group where it leads one, and its descendants.
pub(super) fn end(pid: i32, start_time: u64, stop: Stop) -> Result<(), Why> {
    end_all(Family::from([(pid, start_time)]), stop)
}

/// Ends every process that carries the marker in its environment, and its descendants. One that is just becoming
/// another program (execve) shows no environment for that moment, so that finding nobody is believed only after a while.
pub(super) fn end_marked(marker: &str, stop: Stop) -> Result<(), Why> {
    let mut found = Family::new();
    wait::until(BECOME_WITHIN, || {
        found = marked(marker);
        !found.is_empty()
    });
    end_all(found, stop)
}

fn end_all(mut roots: Family, stop: Stop) -> Result<(), Why> {
    // The process that undoes, or one of its parents, can only be meant by a mistake.
    let own = ancestors();
    roots.retain(|pid, start_time| *pid > 1 && !own.contains(pid) && runs(*pid, *start_time));
    let mut family = roots.clone();
    grow(&mut family);
    // A SIGQUIT or SIGINT is for the server alone, which ends its children in its own order.
    let asked = if stop == Stop::Terminate { &family } else { &roots };
    for (pid, start_time) in asked {
        signal(*pid, *start_time, stop.signal());
    }
    let mut look = || {
        grow(&mut family);
        family.retain(|pid, start_time| runs(*pid, *start_time));
        family.clone()
    };
    wait::until(STOP_WITHIN, || !look().keys().any(|pid| roots.contains_key(pid)));
    wait::until(FOLLOW_WITHIN, || look().is_empty());
    kill(family)
}

fn kill(mut family: Family) -> Result<(), Why> {
    let died = wait::until(DIE_WITHIN, || {
        grow(&mut family);
        family.retain(|pid, start_time| runs(*pid, *start_time));
        for (pid, start_time) in &family {
            signal(*pid, *start_time, Signal::KILL);
        }
        family.is_empty()
    });
    if died {
        return Ok(());
    }
    let left: Vec<String> = family.keys().map(i32::to_string).collect();
    Err(format!("still running after SIGKILL: {} (not this user's, or waiting for a device)", left.join(", ")))
}

impl Stop {
    fn signal(self) -> Signal {
        match self {
            Stop::Terminate => Signal::TERM,
            Stop::Interrupt => Signal::INT,
            Stop::Quit => Signal::QUIT,
        }
    }
}

/// Sends to that very process. Errors are not told: whether it went is looked at afterwards.
fn signal(pid: i32, start_time: u64, signal: Signal) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    let sent = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(_) if !runs(pid.as_raw_nonzero().get(), start_time) => return,
        Ok(fd) => rustix::process::pidfd_send_signal(fd, signal),
        // Before Linux 5.3.
        Err(Errno::NOSYS) if runs(pid.as_raw_nonzero().get(), start_time) => rustix::process::kill_process(pid, signal),
        Err(error) => Err(error),
    };
    if let Err(error) = sent {
        tracing::debug!(%pid, ?signal, %error, "signal not sent");
    }
}

/// Adds the group members and descendants of those in the family that live now. Called again and again, since a child
/// whose parent ended can no longer be found by it.
fn grow(family: &mut Family) {
    let own = ancestors();
    let all: BTreeMap<i32, Stat> = pids().filter_map(|pid| Some((pid, stat(pid)?))).collect();
    let is_in = |family: &Family, pid: i32| {
        all.get(&pid).is_some_and(|stat| !stat.ended && family.get(&pid) == Some(&stat.start_time))
    };
    loop {
        let before = family.len();
        for (pid, stat) in all.iter().filter(|(pid, stat)| !stat.ended && !own.contains(pid)) {
            if is_in(family, stat.parent) || is_in(family, stat.group) {
                family.insert(*pid, stat.start_time);
            }
        }
        if family.len() == before {
            return;
        }
    }
}

/// This process and its parents.
fn ancestors() -> Vec<i32> {
    let mut chain = vec![i32::try_from(std::process::id()).unwrap_or(i32::MAX)];
    while let Some(parent) = chain.last().and_then(|pid| stat(*pid)).map(|stat| stat.parent).filter(|pid| *pid > 0) {
        chain.push(parent);
    }
    chain
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Those whose environment, as they were started, holds the marker.
fn marked(marker: &str) -> Family {
    let wanted = format!("{MARKER_VARIABLE}={marker}");
    let carries = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    pids().filter(carries).filter_map(|pid| Some((pid, start_time(pid)?))).collect()
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
