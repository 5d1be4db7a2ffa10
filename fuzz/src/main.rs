//! Everything that reads foreign bytes, under libFuzzer: `cargo xtask fuzz` builds this with the compiler that is there, with a
//! fuzzer's counters in the workspace's own crates, and runs it once for each target. One program, so that it is linked
//! once. What must hold for any bytes is also tested by proptest beside the parsers.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod targets;

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::chosen()(bytes));

/// A value of a type out of bytes; None where there are too few.
#[cfg(fuzzing)]
fn taken<'a, T: libfuzzer_sys::arbitrary::Arbitrary<'a>>(bytes: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(libfuzzer_sys::arbitrary::Unstructured::new(bytes)).ok()
}

#[cfg(not(fuzzing))]
#[allow(clippy::print_stderr)]
fn main() -> std::process::ExitCode {
    eprintln!("a fuzzer without its counters: cargo xtask fuzz builds and runs it");
    std::process::ExitCode::from(2)
}
