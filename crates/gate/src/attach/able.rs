//! Whether this process may pace the sockets of others here, and the exact reason where it may not.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::os::fd::AsFd;

/// What decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the kernel said when a descriptor of this process's own was duplicated in the same way; None: it works.
    pub duplicating: Option<i32>,
    /// Whether this process has CAP_SYS_PTRACE in force.
    pub may_trace: bool,
    /// Whether it is root.
    pub is_root: bool,
    /// `kernel.yama.ptrace_scope`, where the kernel has Yama.
    pub ptrace_scope: Option<u8>,
    /// Whether it lives in a user namespace of its own, where its rights end.
    pub confined: bool,
}

impl Facts {
    /// As they are here.
    pub fn read() -> Facts {
        let own = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        let duplicating = match own {
            Ok(fd) => backwater_socket::probe_duplicating(fd.as_fd()).err().and_then(|error| error.raw_os_error()),
            Err(error) => Some(error.raw_os_error()),
        };
        let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let whole = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        Facts {
            duplicating,
            may_trace: capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE)),
            is_root: rustix::process::geteuid().is_root(),
            ptrace_scope: scope.and_then(|text| text.trim().parse().ok()),
            confined: !map.is_empty() && !whole,
        }
    }
}

/// Why sockets of other users' processes cannot be paced here, and what to do; None where they can.
pub fn hindrance(facts: &Facts) -> Option<String> {
    match facts.duplicating.map(Errno::from_raw_os_error) {
        Some(Errno::NOSYS) => {
            return Some(
                "this kernel cannot duplicate another process's socket (pidfd_getfd, Linux 5.6 and later); \
                 use `backwater proxy` here"
                    .to_owned(),
            );
        }
        Some(Errno::PERM) => {
            return Some(
                "a filter of system calls (seccomp) forbids pidfd_getfd here, as in a container; run on the host itself, \
                 or give the container --cap-add SYS_PTRACE and a profile that allows pidfd_open and pidfd_getfd"
                    .to_owned(),
            );
        }
        Some(error) => return Some(format!("pidfd_getfd fails here: {error}")),
        None => {}
    }
    if facts.ptrace_scope == Some(3) {
        return Some(
            "kernel.yama.ptrace_scope is 3: no process may look into another, not even root, until the host is started \
             again with a lower value; use `backwater proxy` here"
                .to_owned(),
        );
    }
    if !facts.may_trace {
        let next = match (facts.is_root, facts.ptrace_scope) {
            (true, _) => {
                "this process is root without it, as in a container: give it --cap-add SYS_PTRACE, or run on the host"
            }
            (false, Some(2)) => "run as root (kernel.yama.ptrace_scope is 2: nobody else may)",
            (false, _) => "run as root",
        };
        return Some(format!(
            "CAP_SYS_PTRACE is missing, without which no other process's socket can be reached; {next}"
        ));
    }
    None
}

/// Why one process was refused although rights are there.
pub(super) fn refusal(facts: &Facts, pid: i32) -> String {
    if let Some(why) = hindrance(facts) {
        return why;
    }
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    match (namespace("self"), namespace(&pid.to_string())) {
        (Some(own), Some(theirs)) if own != theirs && facts.confined => format!(
            "process {pid} lives in another user namespace ({}), where this process's rights count for nothing; run on \
             the host itself",
            theirs.display()
        ),
        _ => "a security module (SELinux, AppArmor) or a filter of system calls forbids it; its log says which"
            .to_owned(),
    }
}

/// Gives up every right that a process needs no more: all but `kept` and those to read and write files.
///
/// # Errors
/// The kernel refuses, which it has no reason to.
pub fn drop_rights(kept: CapabilitySet) -> std::io::Result<()> {
    let have = capabilities(None)?;
    let wanted = kept | CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let sets = CapabilitySets {
        effective: have.effective & wanted,
        permitted: have.permitted & wanted,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GOOD: Facts =
        Facts { duplicating: None, may_trace: true, is_root: true, ptrace_scope: Some(1), confined: false };

    fn why(facts: Facts) -> String {
        hindrance(&facts).unwrap()
    }

    #[test]
    fn each_hindrance_is_named_for_what_it_is() {
        assert_eq!(hindrance(&GOOD), None);
        assert_eq!(hindrance(&Facts { ptrace_scope: Some(2), ..GOOD }), None);
        assert!(why(Facts { duplicating: Some(Errno::NOSYS.raw_os_error()), ..GOOD }).contains("Linux 5.6"));
        assert!(why(Facts { duplicating: Some(Errno::PERM.raw_os_error()), ..GOOD }).contains("seccomp"));
        assert!(why(Facts { ptrace_scope: Some(3), ..GOOD }).contains("ptrace_scope is 3"));
        let ordinary = Facts { may_trace: false, is_root: false, ..GOOD };
        assert!(why(ordinary).ends_with("run as root"));
        assert!(why(Facts { ptrace_scope: Some(2), ..ordinary }).contains("ptrace_scope is 2"));
        assert!(why(Facts { is_root: true, ..ordinary }).contains("--cap-add SYS_PTRACE"));
    }

    #[test]
    fn here_the_kernel_is_asked() {
        let facts = Facts::read();
        assert_eq!(facts.is_root, rustix::process::geteuid().is_root());
        if facts.is_root && !facts.confined && facts.may_trace {
            assert!(facts.duplicating.is_none(), "{facts:?}");
        }
    }

    #[test]
    fn rights_that_are_dropped_are_gone() {
        // Rights belong to a thread: this one is not the test's others.
        std::thread::spawn(|| {
            drop_rights(CapabilitySet::empty()).unwrap();
            let left = capabilities(None).unwrap();
            assert!(!left.effective.contains(CapabilitySet::SYS_PTRACE));
            assert!(!left.permitted.contains(CapabilitySet::NET_ADMIN));
        })
        .join()
        .unwrap();
    }
}
