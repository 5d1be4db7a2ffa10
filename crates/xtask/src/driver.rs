//! `wt-driver/`, a workspace of its own beside this one: its format, lints and tests, and the program that the lab's tests
//! of WiredTiger start.

use crate::run;
use std::path::Path;

const MANIFEST: [&str; 2] = ["--manifest-path", "wt-driver/Cargo.toml"];
/// Where it is built: below this workspace's own.
const TARGET: &str = "target/wt-driver";
/// What it is compiled against; the package that brings it is in the list of tools.
pub(crate) const HEADER: &str = "/usr/include/wiredtiger.h";

/// Whether it can be built here.
pub(crate) fn possible() -> bool {
    Path::new(HEADER).exists()
}

/// Its format and its lints; the latter where it can be built.
pub(crate) fn lints() -> anyhow::Result<()> {
    run::step("format of the driver", "cargo", &[&["fmt"], &MANIFEST[..], &["--check"]].concat())?;
    if !possible() {
        return Ok(());
    }
    let lints = [&["clippy"], &common()[..], &["--all-targets", "--", "-D", "warnings"]].concat();
    run::step("lints of the driver", "cargo", &lints)
}

/// Builds it, and says where its program is.
pub(crate) fn build() -> anyhow::Result<String> {
    run::step("the driver of WiredTiger", "cargo", &[&["build"], &common()[..]].concat())?;
    let program = run::workspace()?.join(TARGET).join("debug/backwater-wt-driver");
    Ok(program.display().to_string())
}

/// What runs its tests.
pub(crate) fn tests() -> Vec<&'static str> {
    [&["test"], &common()[..], &["--no-fail-fast", "--", "--show-output"]].concat()
}

fn common() -> Vec<&'static str> {
    [&MANIFEST[..], &["--target-dir", TARGET, "--locked"]].concat()
}
