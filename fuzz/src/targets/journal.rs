//! A journal of changes to the host: what a killed run left, from which the next one puts things back.

pub(crate) fn run(bytes: &[u8]) {
    backwater_undo::fuzzing::journal(bytes);
}
