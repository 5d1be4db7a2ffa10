//! An answer to a look at sessions: however it is cut, no byte of it is lost. The first byte is how long the pieces are.

pub(crate) fn run(bytes: &[u8]) {
    let Some((piece, answer)) = bytes.split_first() else { return };
    backwater_probe::fuzzing::rows(answer, usize::from(*piece));
}
