//! What keeps the lab from setting its limits on this host, told before anything is tried.

use super::{bdi, cap, tool};
use std::path::Path;

/// What the lab cannot do here: the capability, why it is missing, and what to do. Empty where it can do everything. A
/// kernel that bounds no single device will do where the host's own limit may be changed instead.
pub fn what_is_missing(allow_host_changes: bool) -> Vec<(String, String, String)> {
    if !rustix::process::geteuid().is_root() {
        // The rest is only seen, and only matters, as root.
        return vec![row("limits", "they need root", "Run the same command as root, with sudo")];
    }
    let mut missing = Vec::new();
    if let Some(why) = no_loop_devices() {
        let next = "Run on the host or in a privileged container, and load the driver: `modprobe loop`";
        missing.push(row("a volume of its own", &why, next));
    }
    for program in ["losetup", "mkfs.ext4"] {
        if tool::find(program).is_none() {
            let next = format!("Install it: `apt-get install {}`", tool::package(program));
            missing.push(row("a volume of its own", &format!("{program} is not installed"), &next));
        }
    }
    missing.extend(told("a cap on the volume", cap::possible(Path::new("/sys/fs/cgroup"))));
    // Every device has the same files: the kernel's version decides.
    let device = std::fs::read_dir("/sys/class/bdi").ok().and_then(|mut all| all.next()?.ok());
    if let Some(device) = device.filter(|_| !allow_host_changes) {
        missing.extend(told("a dirty limit on the volume", bdi::possible(&device.path())));
    }
    missing
}

/// Whether the driver is there and this process may use it: root in a container often may not.
fn no_loop_devices() -> Option<String> {
    let control = "/dev/loop-control";
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(control);
    if let Err(error) = opened {
        return Some(format!("no loop devices: cannot open {control}: {error}"));
    }
    let may = capabilities().is_none_or(|set| set & (1 << CAP_SYS_ADMIN) != 0);
    (!may).then(|| "this process may not mount (no CAP_SYS_ADMIN)".to_owned())
}

/// The bit in linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;

fn capabilities() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn told(what: &str, possible: Result<(), super::LimitError>) -> Option<(String, String, String)> {
    match possible.err()? {
        super::LimitError::Unsupported { why, next, .. } => Some(row(what, &why, &next)),
        other => Some(row(what, &other.to_string(), "Look at the host's log: `dmesg`")),
    }
}

fn row(what: &str, why: &str, next: &str) -> (String, String, String) {
    (what.to_owned(), why.to_owned(), next.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_thing_has_a_reason_and_a_way() {
        for (what, why, next) in what_is_missing(false) {
            assert!(!what.is_empty() && !why.is_empty() && !next.is_empty(), "{what}: {why}. {next}");
        }
    }
}
