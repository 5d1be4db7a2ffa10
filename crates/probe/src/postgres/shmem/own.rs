//! The session that asks, which is in the server's memory too: whether that is still the memory of a server that runs.

use super::layout::Status;
use crate::postgres::local;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The probe's own session.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) pid: i32,
    began: Option<i64>,
    /// Its process, which tells when it has ended.
    process: OwnedFd,
}

impl Own {
    /// Of a process of this server's.
    ///
    /// # Errors
    /// This host has no such process under this number.
    pub(super) fn child(pid: i32, began: Option<i64>, postmaster: i32, proc: &Path) -> Result<Own, String> {
        let own = Own::of(pid, began)?;
        if local::parent(proc, pid) == Some(postmaster) {
            Ok(own)
        } else {
            Err(format!("process {pid} is none of its own here (a server in a container numbers them for itself)"))
        }
    }

    pub(super) fn of(pid: i32, began: Option<i64>) -> Result<Own, String> {
        let number = Pid::from_raw(pid).ok_or_else(|| format!("{pid} is no process"))?;
        let process = pidfd_open(number, PidfdFlags::empty()).map_err(|error| format!("process {pid}: {error}"))?;
        Ok(Own { pid, began, process })
    }

    /// Whether its process is no more.
    pub(super) fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&now)), Ok(1..))
    }

    pub(super) fn is(&self, status: Status<'_>) -> bool {
        (status.pid(), status.began()) == (self.pid, self.began)
    }

    /// As it is while it does not ask.
    pub(super) fn is_idle(&self, status: Status<'_>) -> bool {
        self.is(status) && status.state() == Some("idle")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_ends_has_ended() {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        let (pid, own) = (child.id().cast_signed(), std::process::id().cast_signed());
        let session = Own::child(pid, Some(1), own, Path::new("/proc")).unwrap();
        assert!(!session.has_ended());
        assert!(Own::child(pid, Some(1), 1, Path::new("/proc")).unwrap_err().contains("none of its own"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(session.has_ended());
        assert!(Own::of(pid, Some(1)).is_err(), "it is waited for");
    }
}
