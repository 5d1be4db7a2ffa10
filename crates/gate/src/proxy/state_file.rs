//! What the console changed, kept over restarts: one file beside the configuration, replaced as a whole, so that it is
//! always the old one or the new one. It also holds the configuration's rules as they stood, so that what is edited there
//! later counts again ([`StateForm::merged`]). What the server is about to be asked for stands in it before that is asked.
//!
//! Another may write it too: a proxy that took over the addresses, or people. Nobody replaces what he has not read.

use crate::GateError;
use backwater_flow::{State, StateForm};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Others that keep files of theirs beside it are waited for so long.
const LOCKED_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

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

/// What stands there; None where there is nothing.
pub(super) type Text = Option<String>;

fn text(path: &Path) -> io::Result<Text> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a text keeps.
fn read(path: &Path, text: &Text) -> Result<Option<Kept>, GateError> {
    let Some(text) = text else { return Ok(None) };
    let damaged = |why: String| GateError::Damaged { path: path.to_owned(), why };
    // Written as a whole it is never empty.
    if text.trim().is_empty() {
        return Err(damaged("it is empty".to_owned()));
    }
    toml::from_str(text).map(Some).map_err(|error| damaged(GateError::place_and_why(text, &error)))
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

/// What is in force from the beginning: the configuration's own and what was kept; and the text that was read.
pub(super) fn restored(path: &Path, configured: &StateForm) -> Result<(StateForm, Text), GateError> {
    let text = text(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
    let form = match read(path, &text)? {
        Some(kept) => StateForm::merged(&kept.configured, &kept.in_force, configured),
        None => configured.clone(),
    };
    Ok((form, text))
}

/// Keeps the configuration as it stands now beside what is in force, where it was edited since: or once that is edited back,
/// what the console had said before would count again.
pub(super) fn renew(path: &Path, seen: &mut Text, configured: &StateForm, state: &State) -> Result<(), GateError> {
    match read(path, seen)? {
        Some(kept) if kept.configured != *configured => {
            let kept = keep(path, seen, configured, state, &kept.roles_under_way);
            kept.map_err(|source| GateError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Roles that a change was about which nobody kept: the server may have made or changed them, or not.
pub(super) fn under_way(path: &Path, seen: &Text) -> Vec<String> {
    // A text that cannot be read is told of by whoever needs the rest of it.
    read(path, seen).ok().flatten().map(|kept| kept.roles_under_way).unwrap_or_default()
}

/// Keeps what is in force now, and which roles the server is asked for next, in the place of what was seen there last, and is
/// seen from then on. Returns when it is on disk.
pub(super) fn keep(
    path: &Path,
    seen: &mut Text,
    configured: &StateForm,
    state: &State,
    roles: &[String],
) -> io::Result<()> {
    let (configured, in_force) = (configured.clone(), StateForm::from(state.clone()));
    let kept = Kept { roles_under_way: roles.to_vec(), configured, in_force };
    let next_text = format!("{HEAD}{}", toml::to_string(&kept).map_err(io::Error::other)?);
    // Put in the place of a device or a pipe it would take that from everybody.
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(io::Error::other("it is no regular file"));
    }
    // The name is on disk only when its directory is.
    let directory = File::open(directory(path))?;
    lock(&directory)?;
    if text(path)? != *seen {
        return Err(io::Error::other(
            "somebody else has written it since it was read; a SIGHUP takes over what it says now",
        ));
    }
    let next = path.with_extension("new");
    let mut file = File::create(&next)?;
    file.write_all(next_text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&next, path)?;
    *seen = Some(next_text);
    directory.sync_all()
}

/// Keeps others away from looking and writing, for as long as this is open. A file system without locks has only what is looked at.
fn lock(directory: &File) -> io::Result<()> {
    let begun = Instant::now();
    while rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        if begun.elapsed() > LOCKED_WITHIN {
            return Err(io::Error::other("its directory is locked by somebody else; try again"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
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
        let error = keep(&pipe, &mut None, &StateForm::default(), &state, &[]).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
        assert!(!std::fs::metadata(&pipe).unwrap().is_file() && !dir.path().join("pipe.new").exists());
    }

    #[test]
    fn what_the_console_changed_is_there_again_and_the_configuration_can_be_edited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.toml");
        let form = |text: &str| toml::from_str::<StateForm>(text).unwrap();
        let configured = form("[pools.a]\nweight = 1\n[pools.b]\nweight = 1\n");
        assert_eq!(restored(&path, &configured).unwrap(), (configured.clone(), None));
        let mut state = State::try_from(configured.clone()).unwrap();
        let sql = "CREATE EXCEPT RULE r WITH (rows=5); ALTER RESOURCE POOL a WITH (weight=7, except_rule='r'); \
                   ALTER USER u RESOURCE POOL a; SET low_priority_bandwidth='1500kB'";
        parse(sql).unwrap().iter().for_each(|statement| assert!(state.apply(statement).unwrap()));
        let mut seen = None;
        keep(&path, &mut seen, &configured, &state, &["u".to_owned()]).unwrap();
        let (again, text) = restored(&path, &configured).unwrap();
        assert_eq!(text, seen);
        let again = State::try_from(again).unwrap();
        assert_eq!(again, state);
        let edited = form("[pools.a]\nweight = 1\n[pools.b]\nweight = 9\n");
        let again = State::try_from(restored(&path, &edited).unwrap().0).unwrap();
        assert_eq!((again.pools()["a"].weight, again.pools()["b"].weight), (7, 9));
        assert_eq!(again.pool_of("u"), "a");
        renew(&path, &mut seen, &edited, &again).unwrap();
        assert_eq!(under_way(&path, &seen), ["u"], "nobody has kept what that was for");
        keep(&path, &mut seen, &edited, &again, &[]).unwrap();
        assert!(under_way(&path, &seen).is_empty());
        std::fs::write(&path, "in_force = 's3cret'").unwrap();
        let told = restored(&path, &configured).unwrap_err().to_string();
        assert!(
            told.contains("state.toml is damaged") && told.contains("line 1") && !told.contains("s3cret"),
            "{told}"
        );
        std::fs::write(&path, "").unwrap();
        assert!(restored(&path, &configured).unwrap_err().to_string().contains("it is empty"));
    }

    #[test]
    fn what_somebody_else_has_written_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.toml");
        let (configured, state) = (StateForm::default(), State::default());
        let keep = |seen: &Text, role: &str| {
            let mut seen = seen.clone();
            keep(&path, &mut seen, &configured, &state, &[role.to_owned()]).map(|()| seen)
        };
        let ours = keep(&None, "a").unwrap();
        let theirs = keep(&ours, "b").unwrap();
        for seen in [&None, &ours] {
            let refused = keep(seen, "c").unwrap_err().to_string();
            assert!(refused.contains("somebody else has written it") && refused.contains("SIGHUP"), "{refused}");
        }
        assert_eq!(restored(&path, &configured).unwrap().1, theirs);
        let other = File::open(dir.path()).unwrap();
        lock(&other).unwrap();
        assert!(keep(&theirs, "d").unwrap_err().to_string().contains("try again"));
        drop(other);
        std::fs::remove_file(&path).unwrap();
        assert!(keep(&theirs, "e").is_err(), "who took it away wanted it to be gone");
        keep(&None, "f").unwrap();
    }
}
