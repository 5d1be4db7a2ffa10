//! What the console changed, kept over restarts: one file beside the configuration, replaced as a whole, so that it is
//! always the old one or the new one. It also holds the configuration's rules as they stood, so that what is edited there
//! later counts again ([`StateForm::merged`]). What the server is about to be asked for stands in it before that is asked.

use crate::GateError;
use backwater_flow::{State, StateForm};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// What people find when they open it.
const HEAD: &str = "# Rules, pools and users as they were changed on the console. Written by Backwater: change the\n\
                    # configuration or use the console instead. A thing that is edited in the configuration counts again.\n";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Roles that the server was to make or change next, for a change that was to be kept after that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roles_under_way: Vec<String>,
    /// The configuration's own, as they stood when this was written.
    #[serde(default)]
    configured: StateForm,
    /// What was in force.
    #[serde(default)]
    in_force: StateForm,
}

/// What was kept; None where nothing was yet.
fn read(path: &Path) -> Result<Option<Kept>, GateError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(GateError::Read { path: path.to_owned(), source }),
    };
    let damaged = |why: String| GateError::Damaged { path: path.to_owned(), why };
    // Written as a whole it is never empty.
    if text.trim().is_empty() {
        return Err(damaged("it is empty".to_owned()));
    }
    toml::from_str(&text).map(Some).map_err(|error| damaged(GateError::place_and_why(&text, &error)))
}

/// Whether a file may stand there: that is told at the start, and not when the console changes something.
pub(super) fn may_be_kept(path: &Path) -> Result<(), GateError> {
    if path.file_name().is_none() || path.is_dir() {
        return Err(GateError::NoStateFile(path.to_owned()));
    }
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::accessat(rustix::fs::CWD, directory(path), wanted, rustix::fs::AtFlags::EACCESS)
        .map_err(|error| GateError::Write { path: path.to_owned(), source: error.into() })
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What is in force from the beginning: the configuration's own and what was kept.
pub(super) fn restored(path: &Path, configured: &StateForm) -> Result<StateForm, GateError> {
    Ok(match read(path)? {
        Some(kept) => StateForm::merged(&kept.configured, &kept.in_force, configured),
        None => configured.clone(),
    })
}

/// Keeps the configuration as it stands now beside what is in force, where it was edited since: or once that is edited back,
/// what the console had said before would count again.
pub(super) fn renew(path: &Path, configured: &StateForm, state: &State) -> Result<(), GateError> {
    match read(path)? {
        Some(kept) if kept.configured != *configured => {
            let kept = keep(path, configured, state, &kept.roles_under_way);
            kept.map_err(|source| GateError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Roles that a change was about which nobody kept: the server may have made or changed them, or not.
pub(super) fn under_way(path: &Path) -> Result<Vec<String>, GateError> {
    Ok(read(path)?.map(|kept| kept.roles_under_way).unwrap_or_default())
}

/// Keeps what is in force now, and which roles the server is asked for next. Returns when it is on disk.
pub(super) fn keep(path: &Path, configured: &StateForm, state: &State, roles: &[String]) -> io::Result<()> {
    let (configured, in_force) = (configured.clone(), StateForm::from(state.clone()));
    let kept = Kept { roles_under_way: roles.to_vec(), configured, in_force };
    let text = toml::to_string(&kept).map_err(io::Error::other)?;
    // Put in the place of a device or a pipe it would take that from everybody.
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(io::Error::other("it is no regular file"));
    }
    let next = path.with_extension("new");
    let mut file = File::create(&next)?;
    file.write_all(HEAD.as_bytes())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&next, path)?;
    // The name is on disk only when its directory is.
    File::open(directory(path))?.sync_all()
}

/// For the fuzzer: what is taken of a file is written so that the same is taken again.
#[cfg(fuzzing)]
pub fn exercise(text: &str) {
    let Ok(kept) = toml::from_str::<Kept>(text) else { return };
    // The configuration as it was, and one from which all was taken.
    for configured in [kept.configured.clone(), StateForm::default()] {
        let merged = StateForm::merged(&kept.configured, &kept.in_force, &configured);
        let Ok(state) = State::try_from(merged) else { continue };
        let in_force = StateForm::from(state.clone());
        let again = Kept { roles_under_way: kept.roles_under_way.clone(), configured, in_force };
        let written = format!("{HEAD}{}", toml::to_string(&again).expect("what is in force can be written"));
        let read = toml::from_str::<Kept>(&written).expect("and read");
        assert_eq!((read.roles_under_way, read.configured), (again.roles_under_way, again.configured));
        assert_eq!(State::try_from(read.in_force).ok(), Some(state));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_flow::statement::parse;

    #[test]
    fn what_is_no_file_stays_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let state = State::try_from(StateForm::default()).unwrap();
        let error = keep(&pipe, &StateForm::default(), &state, &[]).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
        assert!(!std::fs::metadata(&pipe).unwrap().is_file() && !dir.path().join("pipe.new").exists());
    }

    #[test]
    fn what_the_console_changed_is_there_again_and_the_configuration_can_be_edited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.toml");
        let form = |text: &str| toml::from_str::<StateForm>(text).unwrap();
        let configured = form("[pools.a]\nweight = 1\n[pools.b]\nweight = 1\n");
        assert_eq!(restored(&path, &configured).unwrap(), configured);
        let mut state = State::try_from(configured.clone()).unwrap();
        let sql = "CREATE EXCEPT RULE r WITH (rows=5); ALTER RESOURCE POOL a WITH (weight=7, except_rule='r'); \
                   ALTER USER u RESOURCE POOL a; SET low_priority_bandwidth='1500kB'";
        parse(sql).unwrap().iter().for_each(|statement| assert!(state.apply(statement).unwrap()));
        keep(&path, &configured, &state, &["u".to_owned()]).unwrap();
        let again = State::try_from(restored(&path, &configured).unwrap()).unwrap();
        assert_eq!(again, state);
        let edited = form("[pools.a]\nweight = 1\n[pools.b]\nweight = 9\n");
        let again = State::try_from(restored(&path, &edited).unwrap()).unwrap();
        assert_eq!((again.pools()["a"].weight, again.pools()["b"].weight), (7, 9));
        assert_eq!(again.pool_of("u"), "a");
        renew(&path, &edited, &again).unwrap();
        assert_eq!(under_way(&path).unwrap(), ["u"], "nobody has kept what that was for");
        keep(&path, &edited, &again, &[]).unwrap();
        assert!(under_way(&path).unwrap().is_empty());
        std::fs::write(&path, "in_force = 's3cret'").unwrap();
        let told = restored(&path, &configured).unwrap_err().to_string();
        assert!(
            told.contains("state.toml is damaged") && told.contains("line 1") && !told.contains("s3cret"),
            "{told}"
        );
        std::fs::write(&path, "").unwrap();
        assert!(restored(&path, &configured).unwrap_err().to_string().contains("it is empty"));
    }
}
