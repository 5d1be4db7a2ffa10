//! What a kernel tells of sockets: `/proc/PID/net/tcp` and the answer to TCP_INFO.

pub(crate) fn run(bytes: &[u8]) {
    backwater_socket::fuzzing::socket(bytes);
}
