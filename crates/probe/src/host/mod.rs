//! The host: page cache, devices, control groups, processes, sockets.
//!
//! One file a source. Each parser takes text, so that captured text of other kernels is its test; each probe takes
//! its root paths from [`Roots`]. What a kernel does not have, or this user may not read, is left out of the readings
//! and said once as an absence, with what would change that.

mod allowance;
mod bdi;
mod capabilities;
mod cgroup;
mod cpu;
mod device;
mod disk;
mod facts;
mod file;
mod kernel_wait;
mod memory;
mod mounts;
mod net;
mod netlink;
mod numbered;
mod pace;
mod pressure;
mod process;
mod sysctl;
mod task;
mod tcp;
#[cfg(test)]
mod testing;
mod text;
mod thread_waits;
mod title;
mod together;
mod top;
mod volume;
mod watch;

pub use capabilities::{Capability, capabilities};
pub use cgroup::{Cgroup, CgroupVersion, Cgroups, cgroups_of};
pub use device::{device, locate, locate_in};
pub use facts::{facts, own_usage};
pub use kernel_wait::KernelWaits;
pub(crate) use numbered::Numbered;
pub use thread_waits::ThreadWaits;
pub use top::{Scope, Top, Usage, users};
pub use watch::{Server, Watch};

use crate::Probe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use together::Together;

/// What the host's own events say as their source.
const SOURCE: &str = "host";
/// For series without labels.
const NO_LABELS: &[(&str, &str)] = &[];

/// Where the kernel's files are: those of this host, or a directory of captured text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/sys/kernel/debug`.
    pub debugfs: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots {
            proc: "/proc".into(),
            sys: "/sys".into(),
            debugfs: "/sys/kernel/debug".into(),
            cgroup: "/sys/fs/cgroup".into(),
        }
    }
}

impl Roots {
    /// The same directories under another root, as in a captured tree.
    pub fn under(root: &Path) -> Self {
        Roots {
            proc: root.join("proc"),
            sys: root.join("sys"),
            debugfs: root.join("sys/kernel/debug"),
            cgroup: root.join("sys/fs/cgroup"),
        }
    }
}

/// Every probe of the host: levels at 10 Hz, totals at 2 Hz (pressure at 1 Hz), processes, their sockets and network interfaces at 1 Hz,
/// free space every five seconds. Devices and servers may be added to `watch` while they run.
pub fn probes(roots: &Roots, watch: &Arc<Watch>) -> Vec<Box<dyn Probe>> {
    let levels: Vec<Box<dyn Probe>> = vec![
        Box::new(memory::PageCache::new(roots)),
        Box::new(bdi::Writeback::new(roots, watch)),
        Box::new(disk::Disks::new(roots, watch)),
    ];
    let processes: Vec<Box<dyn Probe>> = vec![
        Box::new(process::Processes::new(roots, watch)),
        Box::new(tcp::Sockets::new(roots, watch)),
        Box::new(net::Interfaces::new(roots, watch)),
    ];
    vec![
        Box::new(Together::brief("host.levels", levels)),
        totals(roots, watch),
        Box::new(Together::new("host.processes", processes)),
        Box::new(volume::Volumes::new(roots, watch)),
        Box::new(sysctl::Sysctls::new(roots)),
    ]
}

/// What is read twice a second, pressure once. Which groups servers are in comes first: the others read those groups.
fn totals(roots: &Roots, watch: &Arc<Watch>) -> Box<dyn Probe> {
    let parts: Vec<Box<dyn Probe>> = vec![
        Box::new(cgroup::Membership::new(roots, watch)),
        Box::new(pressure::Pressure::new(roots, watch)),
        Box::new(cpu::Processors::new(roots)),
        Box::new(cgroup::IoGroups::new(roots, watch)),
        Box::new(cgroup::MemoryGroups::new(roots, watch)),
    ];
    Box::new(Together::brief("host.totals", parts))
}

/// Reads bytes as whatever a kernel may tell. Its texts hold names that anybody may choose. For the fuzzer.
#[cfg(fuzzing)]
pub fn exercise(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = (task::parse_stat(&text), mounts::parse(&text), title::backend_type(&text), title::session(&text));
    let _ = (text::pairs(&text).count(), text::assigned(&text, "rbps"), text::is_device_number(&text));
    cgroup::exercise(&text);
    net::exercise(bytes);
    tcp::exercise(bytes);
    for message in netlink::messages(bytes, 0) {
        if let netlink::Message::Body(_, body) = message {
            net::exercise(body);
            tcp::exercise(body);
        }
    }
}
