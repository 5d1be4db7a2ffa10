#![no_main]
//! What a kernel tells: texts of /proc and cgroups, in which processes and mounts name themselves, and netlink.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backwater_probe::fuzzing::kernel(bytes));
