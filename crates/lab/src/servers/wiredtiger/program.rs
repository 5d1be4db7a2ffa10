//! The driver's program: named, beside this one, or built from its source where the engine's headers are installed.

use crate::servers::{ServerError, cache_dir, place, process};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the program is called.
pub(super) const NAME: &str = "backwater-wt-driver";
/// Names a driver that is built already.
const NAMED: &str = "BACKWATER_WT_DRIVER";
/// Names the folder of the engine's headers and library, where other than the system's.
const ENGINE_DIR: &str = "WIREDTIGER_DIR";
/// The engine's library below that folder.
const LIBRARY: &str = "lib/libwiredtiger.so";
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
        let why =
            "its driver is not built, and the driver's source (wt-driver/, beside the crates) was not found from here";
        let next = "Run this from a clone of the project, where it is built once";
        return Err(ServerError::NoEngine { why: why.to_owned(), next: next.to_owned() });
    };
    say("building the driver of WiredTiger, once");
    build(&manifest)
}

/// Checks that the user that it will run as can run it: an engine that was named by its folder may lie where that user has no way in,
/// and the loader would say so only once the volume is made.
///
/// # Errors
/// [`ServerError::Unreachable`] with what to open where that is known, or what the loader said.
pub fn check_runs(program: &Path) -> Result<(), ServerError> {
    let Some(user) = process::ordinary_user()? else { return Ok(()) };
    let file = File::open(program).map_err(ServerError::file("open", program))?;
    // By its descriptor: it is a copy of it that will run, so the user need have no way to the program itself.
    let mut command = process::clean(format!("/proc/self/fd/{}", file.as_raw_fd()));
    process::as_user(&mut command, Some(user));
    let output = match command.arg("--version").output() {
        Ok(output) => output,
        // Its own mode shuts it to that user; the copy is open.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        Err(source) => return Err(ServerError::Program { program: program.to_path_buf(), source }),
    };
    if output.status.success() {
        return Ok(());
    }
    let engine = std::env::var_os(ENGINE_DIR).map(PathBuf::from);
    Err(cannot_run(program, engine.as_deref(), user, &String::from_utf8_lossy(&output.stderr)))
}

/// Why that user cannot run it, by where the engine was said to be and what the loader said.
fn cannot_run(program: &Path, engine: Option<&Path>, user: (u32, u32), said: &str) -> ServerError {
    let library = engine.and_then(|dir| std::path::absolute(dir.join(LIBRARY)).ok());
    let shut = library.and_then(|library| place::reachable(&library, Some(user)).err());
    shut.unwrap_or_else(|| {
        ServerError::Engine(format!(
            "user {}, as whom the driver runs, cannot run {}: {}. Where it was built with {ENGINE_DIR}, that folder and all above it must \
             be open to that user (chmod o+x)",
            user.0,
            program.display(),
            process::last_lines(said)
        ))
    })
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
    Err(ServerError::NoEngine { why: why.to_owned(), next: format!("Install it with: {INSTALL}") })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_of_the_engine_that_is_shut_is_named_and_otherwise_what_the_loader_said() {
        let dir = tempfile::tempdir().unwrap();
        let engine = dir.path().join("engine");
        std::fs::create_dir(&engine).unwrap();
        let (program, stranger) = (Path::new("/opt/backwater-wt-driver"), (u32::MAX - 7, u32::MAX - 7));
        let said = "error while loading shared libraries: libwiredtiger.so: cannot open shared object file";
        let told = |engine: Option<&Path>| cannot_run(program, engine, stranger, said).to_string();
        for (path, mode) in [(dir.path(), 0o755), (engine.as_path(), 0o700)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let shut = told(Some(engine.as_path()));
        assert!(shut.contains(&format!("chmod o+x {}", engine.display())) && shut.contains(LIBRARY), "{shut}");
        for open in [Some(Path::new("/usr")), None] {
            let other = told(open);
            assert!(other.contains(said) && other.contains("WIREDTIGER_DIR"), "{other}");
        }
    }
}
