#![no_main]
//! A flight recorder's file: any bytes, and any bytes within a chunk whose compression is sound, since no fuzzer finds a
//! checksum. What must hold is in the decoder's own tests, whose mutations share it.

#[path = "../../crates/ftdc/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    common::exercise(bytes);
    if let Ok(length) = u16::try_from(bytes.len()) {
        common::exercise(&common::stored(bytes, length));
    }
});
