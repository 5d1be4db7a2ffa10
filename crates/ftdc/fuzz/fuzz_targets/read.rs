#![no_main]
//! Any bytes, read in every way there is. What must hold is in `tests/common/mod.rs`, which the mutation test shares.

#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| common::exercise(bytes));
