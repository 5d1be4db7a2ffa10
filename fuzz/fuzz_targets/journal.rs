#![no_main]
//! A journal of changes to the host: what a killed run left, from which the next one puts things back.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| backwater_undo::fuzzing::journal(bytes));
