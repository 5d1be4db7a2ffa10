//! Putting back what killed runs left.

use crate::journal::{boot_id, settle};
use crate::lines::{Content, parse};
use crate::put_back::process;
use crate::{Change, Left, UndoError, wait};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the lock of a run that has ended may stay with a child that it was just starting.
const LET_GO_WITHIN: Duration = Duration::from_secs(5);

/// What was put back of one killed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its journal: gone now, unless something is left.
    pub journal: PathBuf,
    /// The run: `lab run stampede`; empty where it was killed before it wrote that down.
    pub what: String,
    /// What was put back, in this order. Some of it may never have been made.
    pub undone: Vec<Change>,
    /// What could not be put back, with the command for a person.
    pub left: Vec<Left>,
    /// Lines that this version does not understand, counted from 1: the journal is kept because of them.
    pub unreadable_lines: Vec<usize>,
}

impl Recovered {
    /// Whether nothing is left to do.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.unreadable_lines.is_empty()
    }

    /// All that is left to do, for people.
    pub fn not_put_back(&self) -> Vec<String> {
        let mut told: Vec<String> = self.left.iter().map(ToString::to_string).collect();
        if !self.unreadable_lines.is_empty() {
            let (path, lines) = (self.journal.display(), &self.unreadable_lines);
            told.push(format!("{path} has lines that this version does not understand: {lines:?}"));
        }
        told
    }
}

/// Puts back what runs that are gone have left in `state_dir`, and removes their journals. Runs that live are not
/// touched. Nothing to do, or no such directory, is an empty list.
pub fn recover(state_dir: &Path) -> Result<Vec<Recovered>, UndoError> {
    let unusable = |source| UndoError::StateDir { path: state_dir.to_owned(), source };
    let state_dir = match state_dir.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(unusable)?,
    };
    let mut recovered = Vec::new();
    for path in journals(&state_dir).map_err(unusable)? {
        if let Some(mut file) = lock(&path)? {
            recovered.extend(recover_one(&path, &mut file, &state_dir)?);
        }
    }
    Ok(recovered)
}

/// Newest first: what was changed last is put back first, across runs too.
fn journals(state_dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(state_dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("journal-") && name.ends_with(".jsonl") {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            found.push((modified, entry.path()));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The journal's file, locked; `None` if its run lives, or somebody else has recovered it meanwhile.
fn lock(path: &Path) -> Result<Option<File>, UndoError> {
    let file = match OpenOptions::new().read(true).append(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(UndoError::file("open", path))?,
    };
    let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    if locked == Err(Errno::WOULDBLOCK) && has_ended(path) {
        // A child that the run was starting when it was killed holds a copy of every open file until it has become its
        // program. Only from then on can it be told by its marker, so it is waited for, not passed by.
        wait::until(LET_GO_WITHIN, || {
            locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            locked != Err(Errno::WOULDBLOCK)
        });
    }
    match locked {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked.map_err(|error| UndoError::file("lock", path)(error.into()))?,
    }
    let named = file.metadata().map_err(UndoError::file("read", path))?.nlink() > 0;
    Ok(named.then_some(file))
}

/// Whether the process that began the journal runs no more; false where the journal does not say which it was.
fn has_ended(path: &Path) -> bool {
    let began = std::fs::read(path).ok().and_then(|bytes| parse(&bytes).began);
    began.is_some_and(|began| !process::runs(began.pid, began.start_time))
}

fn recover_one(path: &Path, file: &mut File, state_dir: &Path) -> Result<Option<Recovered>, UndoError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(UndoError::file("read", path))?;
    let content = parse(&bytes);
    // What is appended must not continue the line that the kill cut.
    file.set_len(content.whole_bytes as u64).map_err(UndoError::file("write", path))?;
    let empty = content.began.is_none() && content.open.is_empty() && content.unreadable.is_empty();
    let recovered = undo_content(content, path, file, state_dir);
    if recovered.is_complete() {
        std::fs::remove_file(path).map_err(UndoError::file("remove", path))?;
    }
    Ok((!empty).then_some(recovered))
}

fn undo_content(content: Content, path: &Path, file: &mut File, state_dir: &Path) -> Recovered {
    let this_boot = content.began.as_ref().is_none_or(|began| began.boot == boot_id());
    let open = content.open.into_iter().filter(|(_, change)| this_boot || !change.gone_with_boot()).collect();
    let (undone, left) = settle(file, open, state_dir);
    let what = content.began.map(|began| began.what).unwrap_or_default();
    Recovered { journal: path.to_owned(), what, undone, left, unreadable_lines: content.unreadable }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Journal;

    /// A journal as a killed run leaves it, with `text` as its lines.
    fn abandoned(state_dir: &Path, text: &str) -> PathBuf {
        let path = state_dir.join("journal-1-1.jsonl");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn note(entry: u64, path: &Path) -> String {
        format!("{{\"note\":{{\"entry\":{entry},\"change\":{{\"kind\":\"file\",\"path\":\"{}\"}}}}}}\n", path.display())
    }

    fn head(boot: &str) -> String {
        format!(
            "{{\"began\":{{\"version\":1,\"what\":\"t\",\"pid\":2147483647,\"start_time\":1,\"boot\":\"{boot}\"}}}}\n"
        )
    }

    #[test]
    fn nothing_to_do_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(recover(&dir.path().join("missing")).unwrap(), []);
        let empty = abandoned(dir.path(), "");
        assert_eq!(recover(dir.path()).unwrap(), []);
        assert!(!empty.exists());
    }

    #[test]
    fn a_live_run_is_not_undone() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin(dir.path(), "live").unwrap();
        let file = journal.state_dir().join("image");
        journal.note(Change::File { path: file.clone() }).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_eq!(recover(dir.path()).unwrap(), []);
        assert!(file.exists());
        journal.finish().unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn a_child_that_still_holds_a_dead_runs_lock_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap();
        std::fs::write(state.join("a"), "").unwrap();
        let journal = abandoned(&state, &format!("{}{}", head(&boot_id()), note(0, &state.join("a"))));
        let held = File::open(&journal).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                drop(held);
            });
            assert!(recover(&state).unwrap()[0].is_complete());
        });
        assert!(!journal.exists() && !state.join("a").exists());
    }

    #[test]
    fn a_cut_last_line_is_ignored_and_the_rest_undone() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap();
        std::fs::write(state.join("a"), "").unwrap();
        let text = format!("{}{}{}", head(&boot_id()), note(0, &state.join("a")), r#"{"note":{"entry":1,"ch"#);
        let journal = abandoned(&state, &text);
        let recovered = recover(&state).unwrap();
        assert!(recovered[0].is_complete());
        assert_eq!(recovered[0].undone, [Change::File { path: state.join("a") }]);
        assert!(!journal.exists() && !state.join("a").exists());
    }

    #[test]
    fn a_kill_while_the_journal_was_written_anew_leaves_two_and_both_are_undone() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap();
        for cut in [0, 20, 300] {
            std::fs::write(state.join("a"), "").unwrap();
            let (head, open) = (head(&boot_id()), note(1, &state.join("a")));
            let undone = format!("{}{{\"undone\":{{\"entry\":0}}}}\n", note(0, &state.join("b")));
            abandoned(&state, &format!("{head}{undone}{open}"));
            let whole = format!("{head}{open}");
            std::fs::write(state.join("journal-1-1-1.jsonl"), &whole[..cut.min(whole.len())]).unwrap();
            let recovered = recover(&state).unwrap();
            assert!(recovered.iter().all(Recovered::is_complete), "{cut}: {recovered:?}");
            assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "{cut}");
        }
    }

    #[test]
    fn what_cannot_be_undone_is_said_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap();
        std::fs::write(state.join("a"), "").unwrap();
        let text = format!("{}{}{}", head(&boot_id()), note(0, &state.join("a")), note(1, Path::new("/etc/passwd")));
        let journal = abandoned(&state, &text);
        for round in 0..2 {
            let recovered = recover(&state).unwrap();
            assert_eq!(recovered[0].left.len(), 1, "round {round}");
            assert_eq!(recovered[0].left[0].command, "rm /etc/passwd");
            assert_eq!(recovered[0].undone.len(), 1 - round);
        }
        assert!(journal.exists() && Path::new("/etc/passwd").exists());
    }

    #[test]
    fn lines_of_a_newer_version_keep_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let journal = abandoned(dir.path(), &format!("{}{{\"later\":1}}\n", head(&boot_id())));
        assert_eq!(recover(dir.path()).unwrap()[0].unreadable_lines, [2]);
        assert!(journal.exists());
    }

    #[test]
    fn after_a_reboot_only_files_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap();
        std::fs::write(state.join("a"), "").unwrap();
        let value =
            r#"{"note":{"entry":1,"change":{"kind":"file_value","path":"/proc/sys/vm/dirty_ratio","before":"97"}}}"#;
        abandoned(&state, &format!("{}{}{value}\n", head("an-earlier-boot"), note(0, &state.join("a"))));
        let recovered = recover(&state).unwrap();
        assert_eq!(recovered[0].undone, [Change::File { path: state.join("a") }]);
    }
}
