//! The driver's program: named, beside this one, or built from its source where the engine's headers are installed.

use crate::servers::{ServerError, cache_dir, process};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the program is called.
pub(super) const NAME: &str = "backwater-wt-driver";
/// Names a driver that is built already.
const NAMED: &str = "BACKWATER_WT_DRIVER";
/// Names the folder of the engine's headers and library, where other than the system's.
const ENGINE_DIR: &str = "WIREDTIGER_DIR";
/// How to get what is missing.
const INSTALL: &str = "apt-get install -y libwiredtiger-dev";

/// A driver that is there already: named by `BACKWATER_WT_DRIVER`, or beside this program.
pub fn installed() -> Option<PathBuf> {
    let named = std::env::var_os(NAMED).map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join(NAME));
    named.or_else(beside).filter(|path| path.is_file())
}

/// The driver, built from its source where it is not there yet.
///
/// # Errors
/// [`ServerError::NoEngine`] with the command that installs what is missing.
pub fn find_or_build(say: &dyn Fn(&str)) -> Result<PathBuf, ServerError> {
    if let Some(named) = std::env::var_os(NAMED).filter(|named| !Path::new(named).is_file()) {
        return no_engine(&format!("{NAMED} names {}, which is no file", Path::new(&named).display()));
    }
    if let Some(found) = installed() {
        return Ok(found);
    }
    let headers = std::env::var_os(ENGINE_DIR).map_or_else(|| PathBuf::from("/usr"), PathBuf::from);
    let header = headers.join("include/wiredtiger.h");
    if !header.is_file() {
        return no_engine(&format!("{} is not there", header.display()));
    }
    let Some(manifest) = source() else {
        return no_engine("the driver's source (wt-driver/, beside the crates) was not found from here");
    };
    say("building the driver of WiredTiger, once");
    build(&manifest)
}

/// `wt-driver/Cargo.toml` of the checkout that this program, or whoever calls it, lies in.
fn source() -> Option<PathBuf> {
    let starts = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    starts
        .iter()
        .flatten()
        .flat_map(|start| start.ancestors())
        .map(|dir| dir.join("wt-driver/Cargo.toml"))
        .find(|manifest| manifest.is_file())
}

fn build(manifest: &Path) -> Result<PathBuf, ServerError> {
    let target = cache_dir().join("wt-driver");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
    cargo.arg("--target-dir").arg(&target).stdin(Stdio::null());
    let output = cargo.output().map_err(|source| ServerError::Program { program: "cargo".into(), source })?;
    if !output.status.success() {
        return Err(ServerError::Failed {
            program: "cargo build of the driver of WiredTiger".into(),
            status: output.status.to_string(),
            output: process::last_lines(&String::from_utf8_lossy(&output.stderr)),
        });
    }
    Ok(target.join("release").join(NAME))
}

fn no_engine<T>(why: &str) -> Result<T, ServerError> {
    Err(ServerError::NoEngine { why: why.to_owned(), install: INSTALL })
}
