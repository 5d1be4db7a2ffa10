//! A flight recorder's file: any bytes, and any bytes within a chunk whose compression is sound, since no fuzzer finds a
//! checksum. What must hold is in the decoder's own tests, whose mutations share it.

#[path = "../../../crates/ftdc/tests/common/mod.rs"]
mod common;

pub(crate) fn run(bytes: &[u8]) {
    common::exercise(bytes);
    if let Ok(length) = u16::try_from(bytes.len()) {
        common::exercise(&common::stored(bytes, length));
    }
}
