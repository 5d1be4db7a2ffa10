//! What does not change while a host runs, and what this process itself costs.

use super::task::parse_stat;
use super::text::pair;
use super::{Roots, cgroup, file};
use backwater_model::HostFacts;
use std::collections::BTreeMap;

/// Kernel settings that rules and readers of a recording may ask for.
const SYSCTLS: [&str; 14] = [
    "vm.dirty_bytes",
    "vm.dirty_ratio",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "vm.dirtytime_expire_seconds",
    "vm.overcommit_memory",
    "vm.swappiness",
    "kernel.task_delayacct",
    "net.core.default_qdisc",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// What the host is. What cannot be read stays empty.
pub fn facts(roots: &Roots) -> HostFacts {
    let setting = |name: &str| file::word(&roots.proc.join("sys").join(name.replace('.', "/")));
    let stat = file::read(&roots.proc.join("stat")).unwrap_or_default();
    let meminfo = file::read(&roots.proc.join("meminfo")).unwrap_or_default();
    let known = |name: &&str| Some(((*name).to_owned(), setting(name)?.replace('\t', " ")));
    HostFacts {
        hostname: setting("kernel.hostname"),
        kernel: setting("kernel.osrelease"),
        boot_id: Some(file::boot_id(roots)).filter(|id| !id.is_empty()),
        cpus: processors(&stat),
        memory_bytes: pair(&meminfo, "MemTotal").map(|kib| kib.saturating_mul(1024)),
        page_bytes: Some(rustix::param::page_size() as u64),
        congestion_control: setting("net.ipv4.tcp_congestion_control"),
        cgroup_version: cgroup::version(roots).map(str::to_owned),
        read_as_root: Some(rustix::process::geteuid().is_root()),
        sysctls: SYSCTLS.iter().filter_map(known).collect::<BTreeMap<_, _>>(),
    }
}

/// How many processors have a line (`cpu0`, `cpu1`, …).
fn processors(stat: &str) -> Option<u32> {
    let numbered =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let count = stat.lines().filter(numbered).count();
    u32::try_from(count).ok().filter(|count| *count > 0)
}

/// What this process has used: seconds of processor time since its start, and resident memory in bytes. None where
/// `/proc/self/stat` cannot be read.
pub fn own_usage(roots: &Roots) -> Option<(f64, u64)> {
    let stat = parse_stat(&file::read(&roots.proc.join("self/stat")).ok()?)?;
    let cpu_s = stat.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Some((cpu_s, stat.resident_pages.saturating_mul(rustix::param::page_size() as u64)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::testing::fixture;
    use proptest::prelude::*;

    #[test]
    fn a_captured_host_is_described_and_what_is_missing_left_out() {
        let (roots, _) = fixture("capped");
        let facts = facts(&roots);
        assert_eq!(facts.cpus, Some(2));
        assert_eq!(facts.memory_bytes, Some(24_684_092 * 1024));
        assert_eq!(facts.cgroup_version.as_deref(), Some("v1"));
        assert_eq!(facts.hostname, None);
        assert!(facts.sysctls.is_empty());
    }

    #[test]
    fn this_host_and_this_process_are_described() {
        let facts = facts(&Roots::default());
        assert!(facts.kernel.is_some() && facts.boot_id.is_some() && facts.cpus.is_some());
        assert!(facts.sysctls.contains_key("vm.dirty_expire_centisecs"));
        let (cpu_s, resident) = own_usage(&Roots::default()).unwrap();
        assert!(cpu_s >= 0.0 && resident > 100_000);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            processors(&text);
        }
    }
}
