//! What a kernel tells: texts of /proc and cgroups, in which processes and mounts name themselves, and netlink.

pub(crate) fn run(bytes: &[u8]) {
    backwater_probe::fuzzing::kernel(bytes);
}
