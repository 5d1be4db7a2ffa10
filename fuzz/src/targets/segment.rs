//! A closed part of a recording. The foreign decoder may panic over it, which its reader turns into an error; so a panic counts
//! here when it comes out.

use std::path::PathBuf;
use std::sync::LazyLock;

/// Where the segment lies; with it the fuzzer's own hook is taken off, which ends the process before anybody can catch a panic.
static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    std::panic::set_hook(Box::new(|_| {}));
    let dir = std::env::temp_dir().join(format!("backwater-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
});

pub(crate) fn run(bytes: &[u8]) {
    backwater_record::fuzzing::segment(&DIR, bytes);
}
