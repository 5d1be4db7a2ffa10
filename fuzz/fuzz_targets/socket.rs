#![no_main]
//! What a kernel tells of sockets: `/proc/PID/net/tcp` and the answer to TCP_INFO.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backwater_socket::fuzzing::socket(bytes));
