//! What this host and this user allow to be seen, for `backwater check`.

use super::{Roots, bdi, cgroup, file, pressure, process, tcp};
use crate::{ProbeError, rights};

/// One thing that may or may not be seen here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What.
    pub what: &'static str,
    /// What is lost without it.
    pub costs: &'static str,
    /// Why it cannot be seen; none where it can.
    pub missing: Option<String>,
    /// What would change that: a command, where there is one.
    pub remedy: Option<String>,
}

/// Everything that the host probes would like to read, and whether they can.
pub fn capabilities(roots: &Roots) -> Vec<Capability> {
    vec![
        page_cache(roots),
        device_stats(roots),
        device_limit(roots),
        pressure_information(roots),
        io_limits(roots),
        foreign_waits(roots),
        foreign_io(roots),
        delays(roots),
        sockets(),
        other_namespaces(roots),
    ]
}

fn judged((what, costs): (&'static str, &'static str), missing: Option<String>, remedy: Option<&str>) -> Capability {
    let remedy = remedy.filter(|_| missing.is_some()).map(str::to_owned);
    Capability { what, costs, missing, remedy }
}

fn page_cache(roots: &Roots) -> Capability {
    let missing = file::read(&roots.proc.join("vmstat")).err().map(|error| error.to_string());
    let costs = "how full the page cache is, and when writers will be paused: dirty-throttle, and the limit of advise";
    judged(("dirty page cache of the host", costs), missing, None)
}

fn device_stats(roots: &Roots) -> Capability {
    let costs = "how full the page cache of one device is: dirty-throttle is told of the host as a whole then";
    let what = ("dirty page cache of each device (debugfs bdi)", costs);
    let dir = roots.debugfs.join("bdi");
    let Err(source) = std::fs::read_dir(&dir) else { return judged(what, None, None) };
    let error = ProbeError::Read { path: dir, source };
    let remedy = bdi::stats_remedy(roots, &error).unwrap_or(rights::remedy("run as root"));
    judged(what, Some(error.to_string()), Some(remedy))
}

fn device_limit(roots: &Roots) -> Capability {
    let costs = "a limit for the one volume that is slow: advise gives one for the whole host then";
    let what = ("a dirty limit for each device (max_bytes, strict_limit)", costs);
    let devices: Vec<_> = std::fs::read_dir(roots.sys.join("class/bdi")).into_iter().flatten().flatten().collect();
    let has = |name: &str| devices.iter().any(|device| device.path().join(name).exists());
    let missing = (!has("max_bytes") || !has("strict_limit")).then(|| "this kernel is older than 6.2".to_owned());
    judged(what, missing, Some("Linux 6.2 or newer; until then vm.dirty_bytes for the whole host"))
}

fn pressure_information(roots: &Roots) -> Capability {
    let found = file::read(&roots.proc.join("pressure/io")).err().map(|error| pressure::why_absent(&error));
    let (why, remedy) = found.map_or((None, None), |(why, remedy)| (Some(why), remedy));
    let costs = "how long tasks waited for storage, which bears out dirty-throttle and device-saturated";
    judged(("pressure stall information (PSI)", costs), why, remedy)
}

fn io_limits(roots: &Roots) -> Capability {
    let missing = cgroup::io_root(roots).is_none();
    let why = missing.then(|| "no control group here has the blkio (v1) or io (v2) controller".to_owned());
    let costs = "caps: io-capped and wal-device-capped; a device that stands at one looks slow by itself";
    judged(
        ("I/O limits of control groups", costs),
        why,
        Some("boot with the io controller enabled (systemd.unified_cgroup_hierarchy=1)"),
    )
}

/// The kernel shows a foreign process' wait as `0` instead of refusing, so the privilege itself is looked at.
fn foreign_waits(roots: &Roots) -> Capability {
    let held = holds(roots, CAP_SYS_PTRACE);
    let why = (!held).then(|| "CAP_SYS_PTRACE is not held: only processes of the same user are seen".to_owned());
    let costs = "what sessions wait for in the kernel, as writers that are paused do";
    judged(("kernel waits of processes of other users (wchan)", costs), why, Some(rights::remedy(AS_SERVER)))
}

fn foreign_io(roots: &Roots) -> Capability {
    let costs = "who reads and writes, process by process: top";
    let what = ("I/O of processes of other users (/proc/PID/io)", costs);
    let held = holds(roots, CAP_SYS_PTRACE) || file::read(&roots.proc.join("1/io")).is_ok();
    judged(what, (!held).then(|| "CAP_SYS_PTRACE is not held".to_owned()), Some(rights::remedy(AS_SERVER)))
}

/// Before 5.14 the kernel always measured it.
fn delays(roots: &Roots) -> Capability {
    let why = (!process::accounts_for_delays(roots)).then(|| "kernel.task_delayacct is off".to_owned());
    let costs = "how long each process waited for storage";
    judged(("time blocked on I/O by process", costs), why, Some("sysctl kernel.task_delayacct=1"))
}

fn sockets() -> Capability {
    let missing = tcp::can_ask().err().map(|error| error.to_string());
    let costs = "what holds a connection up: net-overload, slow-reader, network-narrow, standby-disk";
    judged(("TCP state of a server's connections (sock_diag)", costs), missing, Some("modprobe -a tcp_diag inet_diag"))
}

fn other_namespaces(roots: &Roots) -> Capability {
    let held = holds(roots, CAP_SYS_ADMIN);
    let why = (!held).then(|| "CAP_SYS_ADMIN is not held".to_owned());
    judged(
        (
            "TCP state, network queues and shapers of servers in a network namespace of their own",
            "the same of servers in containers",
        ),
        why,
        Some(rights::remedy("run as root")),
    )
}

const AS_SERVER: &str = "run as root, or as the user the server runs as";
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;

/// Whether I/O and open files of the processes of all users may be read.
pub(super) fn sees_all_processes(roots: &Roots) -> bool {
    holds(roots, CAP_SYS_PTRACE) && (holds(roots, CAP_DAC_READ_SEARCH) || holds(roots, CAP_DAC_OVERRIDE))
}

/// Whether this process holds a capability (linux/capability.h).
fn holds(roots: &Roots, capability: u32) -> bool {
    let status = file::read(&roots.proc.join("self/status")).unwrap_or_default();
    effective(&status).is_some_and(|held| held >> capability & 1 == 1)
}

fn effective(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::fixture;
    use proptest::prelude::*;

    #[test]
    fn a_captured_host_allows_what_it_has_and_names_the_rest() {
        let (roots, _) = fixture("capped");
        let list = capabilities(&roots);
        let missing = |part: &str| list.iter().any(|entry| entry.what.contains(part) && entry.missing.is_some());
        assert!(!missing("debugfs") && !missing("PSI") && !missing("strict_limit") && !missing("control groups"));
        assert!(missing("wchan"));
        assert!(list.iter().all(|entry| entry.missing.is_some() || entry.remedy.is_none()));
    }

    #[test]
    fn an_empty_host_lacks_everything_and_says_what_to_do() {
        let list = capabilities(&Roots::under("/nonexistent".as_ref()));
        let remedy = |part: &str| list.iter().find(|entry| entry.what.contains(part)).and_then(|e| e.remedy.as_deref());
        assert_eq!(remedy("debugfs"), Some("mount -t debugfs none /sys/kernel/debug"));
        assert_eq!(remedy("wchan"), Some(rights::remedy(AS_SERVER)));
    }

    #[test]
    fn held_capabilities_are_read() {
        let root = effective("CapPrm:\t0\nCapEff:\t000001ffffffffff\n");
        assert_eq!(root.map(|held| held >> CAP_SYS_PTRACE & 1), Some(1));
        assert_eq!(effective("CapEff:\t0000000000000000\n"), Some(0));
        assert_eq!(effective("nothing"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(CapEff:)?.*") {
            effective(&text);
        }
    }
}
