//! A server's shared memory: whatever stands there, a look at it ends, and tells nothing that is no text.

pub(crate) fn run(bytes: &[u8]) {
    backwater_probe::fuzzing::memory(bytes);
}
