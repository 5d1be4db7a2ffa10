//! The journal of one run: begun, written before each change, finished.

use crate::claim::Claim;
use crate::lines::{Began, Line, VERSION};
use crate::put_back::process::start_time;
use crate::put_back::put_back;
use crate::{Change, Left, Stop, UndoError, claim, ours, recover, state};
use backwater_socket::Holders;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The environment variable by which a process is known before it has a journalled id ([`Journal::spawn`]).
pub const MARKER_VARIABLE: &str = "BACKWATER_RUN";

/// A journal of so many bytes is written anew with what is open alone, and not again before it is twice as long as that is.
const LONG: u64 = 64 << 10;

/// The journal of one run. Can be shared between threads by reference or `Arc`; dropping it puts everything back.
#[derive(Debug)]
pub struct Journal {
    state_dir: PathBuf,
    path: PathBuf,
    /// Its first line.
    began: Began,
    run: String,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Holds the lock that says that the run lives.
    file: File,
    /// The length at which it is written anew.
    long: u64,
    open: Vec<(u64, Change)>,
    next: u64,
    finished: bool,
    /// Names taken for this run alone or shared with others, and the locks that hold them.
    claims: Vec<(String, Claim)>,
}

/// The number of a noted change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry(u64);

impl Journal {
    /// Begins the journal of a run (`what`: `lab run stampede`) in `state_dir`, which is made where it is missing.
    /// The file is locked as long as the run lives, so that nobody else undoes it.
    pub fn begin(state_dir: &Path, what: &str) -> Result<Journal, UndoError> {
        state::make(state_dir)?;
        let unusable = |source| UndoError::StateDir { path: state_dir.to_owned(), source };
        let state_dir = state_dir.canonicalize().map_err(unusable)?;
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let start_time = start_time(pid).unwrap_or_default();
        let began = Began { version: VERSION, what: what.to_owned(), pid, start_time, boot: boot_id() };
        let (path, file) = create(&state_dir, &began)?;
        let run = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().replace("journal-", ""));
        let inner = Inner { file, long: LONG, open: Vec::new(), next: 0, finished: false, claims: Vec::new() };
        let journal = Journal { state_dir, path, began, run, inner: Mutex::new(inner) };
        journal.append(&mut journal.inner().file, Line::Began(journal.began.clone()))?;
        sync_directory(&journal.state_dir)?;
        Ok(journal)
    }

    /// The journal's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory it lies in.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// A word that no other run on this host uses, for names: `backwater-RUN-disk`.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Writes the change down and syncs it. Only then may it be made. Of two notes about the same value the first,
    /// which holds the value before the run, is kept.
    pub fn note(&self, change: Change) -> Result<Entry, UndoError> {
        let change = self.checked(change)?;
        let mut inner = self.inner();
        if inner.finished {
            return Err(UndoError::Finished { what: self.began.what.clone() });
        }
        if let Some((entry, _)) = inner.open.iter().find(|(_, noted)| noted.same_target(&change)) {
            return Ok(Entry(*entry));
        }
        let entry = inner.next;
        self.append(&mut inner.file, Line::Note { entry, change: change.clone() })?;
        inner.next += 1;
        inner.open.push((entry, change));
        Ok(Entry(entry))
    }

    /// Starts a process that the undo ends: noted before it has an id, by a variable in its environment, and again
    /// with its id. The environment must not be cleared after this call, nor by a wrapper around the program.
    pub fn spawn(&self, command: &mut Command, what: &str, stop: Stop) -> Result<(Child, Entry), UndoError> {
        let marker = format!("{}-{}", self.run, self.inner().next);
        let entry = self.note(Change::Spawn { marker: marker.clone(), what: what.to_owned(), stop })?;
        let child = command.env(MARKER_VARIABLE, marker).spawn();
        let child = child.map_err(|source| UndoError::Spawn { what: what.to_owned(), source })?;
        // An id of a live child always fits; a child that ended already needs no undo.
        if let Ok(pid) = i32::try_from(child.id())
            && let Some(start_time) = start_time(pid)
        {
            self.note(Change::Process { pid, start_time, what: what.to_owned(), stop })?;
        }
        Ok((child, entry))
    }

    /// Takes `name` ("sysctl") for this run alone until it finishes, and puts back first what killed runs left of it.
    /// [`UndoError::Claimed`] while another run has it.
    pub fn claim(&self, name: &str) -> Result<(), UndoError> {
        self.hold(name, claim::take)?;
        recover(&self.state_dir).map(drop)
    }

    /// Holds `name` together with other runs until this one finishes: see [`Change::Mount`].
    pub fn share(&self, name: &str) -> Result<(), UndoError> {
        self.hold(name, claim::share)
    }

    fn hold(&self, name: &str, take: fn(&Path, &str) -> Result<Claim, UndoError>) -> Result<(), UndoError> {
        let mut inner = self.inner();
        if !inner.claims.iter().any(|(held, _)| held == name) {
            let lock = take(&self.state_dir, name)?;
            inner.claims.push((name.to_owned(), lock));
        }
        Ok(())
    }

    /// Puts one change back, before the end of the run.
    pub fn undo(&self, entry: Entry) -> Result<(), UndoError> {
        self.undo_all(&[entry])
    }

    /// Puts several back in one go, so that what is asked of the whole host is asked once. [`UndoError::Left`] names those that
    /// could not be put back; the others are.
    pub fn undo_all(&self, entries: &[Entry]) -> Result<(), UndoError> {
        let mut inner = self.inner();
        if let Some(unknown) = entries.iter().find(|entry| entry.0 >= inner.next) {
            return Err(UndoError::NoSuchEntry { entry: unknown.0, path: self.path.clone() });
        }
        let (mut holders, mut undone, mut left) = (Holders::default(), Vec::new(), Vec::new());
        for entry in entries {
            // One that is not open was put back before.
            let Some(index) = inner.open.iter().position(|(number, _)| *number == entry.0) else { continue };
            let done = put_back(&inner.open[index].1, &self.state_dir, &mut holders);
            match done {
                Ok(()) => {
                    inner.open.remove(index);
                    undone.push(Line::Undone { entry: entry.0 });
                }
                Err(failed) => left.push(*failed),
            }
        }
        if !undone.is_empty() {
            // Synced once for all: one that a kill leaves unmarked would only be undone once more, which is harmless.
            write_whole(&mut inner.file, undone).map_err(UndoError::file("write", &self.path))?;
            self.shorten(&mut inner);
        }
        if left.is_empty() { Ok(()) } else { Err(self.left(left)) }
    }

    /// Whether a change is still to be put back.
    pub fn is_open(&self, entry: Entry) -> bool {
        self.inner().open.iter().any(|(number, _)| *number == entry.0)
    }

    /// Where the file has become long, one with what is open alone takes its place, so that a run of many changes, each undone
    /// soon, does not fill the disk. A kill in between leaves both: what is open in both is put back twice, which is harmless.
    fn shorten(&self, inner: &mut Inner) {
        let length = |file: &File| file.metadata().map_or(0, |metadata| metadata.len());
        if length(&inner.file) < inner.long {
            return;
        }
        match self.replacement(&inner.open) {
            Ok(file) => inner.file = file,
            // The long one holds the same.
            Err(error) => tracing::warn!(%error, "the journal of changes grows on"),
        }
        inner.long = LONG.max(2 * length(&inner.file));
    }

    /// A file, locked before it has the journal's name, with these changes and no others.
    fn replacement(&self, open: &[(u64, Change)]) -> Result<File, UndoError> {
        let (path, mut file) = create(&self.state_dir, &self.began)?;
        let notes = open.iter().map(|(entry, change)| Line::Note { entry: *entry, change: change.clone() });
        let written = write_whole(&mut file, std::iter::once(Line::Began(self.began.clone())).chain(notes));
        if let Err(error) = written.and_then(|()| std::fs::rename(&path, &self.path)) {
            // While it is still locked: nobody may take it for what a killed run left.
            let _ = std::fs::remove_file(&path);
            return Err(UndoError::file("write", &path)(error));
        }
        // Before a change is noted in it that the file before does not have.
        if let Err(error) = sync_directory(&self.state_dir) {
            tracing::warn!(%error, "a crash of the host may leave the journal as it was");
        }
        Ok(file)
    }

    /// Puts everything back, limits first, files last, and removes the journal. Once is enough; after it nothing more
    /// may be noted. [`UndoError::Left`] names what could not be put back; the journal is then kept for
    /// [`recover`](crate::recover).
    pub fn finish(&self) -> Result<(), UndoError> {
        let mut inner = self.inner();
        if inner.finished {
            return Ok(());
        }
        inner.finished = true;
        // A shared thing is taken down by the last who holds it: this run must not count itself. What it took for
        // itself alone it keeps until all is put back.
        let shared: Vec<String> = inner.open.iter().filter_map(|(_, change)| shared_name(change)).collect();
        inner.claims.retain(|(name, _)| !shared.contains(name));
        let open = std::mem::take(&mut inner.open);
        let (_, left) = settle(&mut inner.file, open, &self.state_dir);
        inner.claims.clear();
        if !left.is_empty() {
            // The lock goes with the file, so that a later run may try again.
            let unlocked = flock(&inner.file, FlockOperation::Unlock);
            unlocked.map_err(|error| UndoError::file("unlock", &self.path)(error.into()))?;
            return Err(self.left(left));
        }
        std::fs::remove_file(&self.path).map_err(UndoError::file("remove", &self.path))
    }

    fn left(&self, left: Vec<Left>) -> UndoError {
        UndoError::Left { path: self.path.clone(), left }
    }

    /// The change with its paths as the kernel names them; refused if its undo could hurt somebody else.
    fn checked(&self, mut change: Change) -> Result<Change, UndoError> {
        match &mut change {
            Change::Mount { target: path, .. } | Change::Directory { path } | Change::File { path } => {
                *path = resolved(path);
            }
            Change::Loop { backing, .. } => *backing = resolved(backing),
            _ => {}
        }
        if let Some(path) = change.removes() {
            if !ours::is_ours(path, &self.state_dir) {
                return Err(UndoError::NotOurs { path: path.to_owned(), state_dir: self.state_dir.clone() });
            }
            let noted = self.inner().open.iter().any(|(_, noted)| noted.same_target(&change));
            if !noted && path.symlink_metadata().is_ok() {
                return Err(UndoError::Exists { path: path.to_owned() });
            }
        }
        Ok(change)
    }

    fn append(&self, file: &mut File, line: Line) -> Result<(), UndoError> {
        write_whole(file, [line]).map_err(UndoError::file("write", &self.path))
    }

    /// A thread that panicked while noting leaves the list as the file has it, or one entry short of it.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!(%error, run = self.began.what, "the host is not as it was");
        }
    }
}

/// Puts changes back in the right order, marking each in the journal's file.
pub(crate) fn settle(file: &mut File, mut open: Vec<(u64, Change)>, state_dir: &Path) -> (Vec<Change>, Vec<Left>) {
    open.sort_by_key(|(entry, change)| (change.rank(), std::cmp::Reverse(*entry)));
    let (mut done, mut left, mut holders) = (Vec::new(), Vec::new(), Holders::default());
    for (entry, change) in open {
        match put_back(&change, state_dir, &mut holders) {
            Ok(()) => {
                // Unmarked it would only be undone once more, which is harmless.
                if let Err(error) = write_whole(file, [Line::Undone { entry }]) {
                    tracing::warn!(%error, "cannot mark a change as undone in the journal");
                }
                done.push(change);
            }
            Err(failed) => left.push(*failed),
        }
    }
    (done, left)
}

/// Lines at once, synced: a kill leaves none of them or all, as far as the kernel writes in one go, and so does a disk that
/// becomes full: a part of a line would make one with what is written next, which nobody could read.
fn write_whole(file: &mut File, lines: impl IntoIterator<Item = Line>) -> std::io::Result<()> {
    let text: Result<String, _> = lines.into_iter().map(|line| line.to_text()).collect();
    let (text, length) = (text.map_err(std::io::Error::other)?, file.metadata()?.len());
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
    written.or_else(|error| file.set_len(length).and(Err(error)))
}

/// Numbers the journals of this process, whatever directory each is in: the word of a run ([`Journal::run`]) is made of
/// the number, and two runs with one word would end each other's processes.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes a journal's file under a free name and locks it. Another run's recovery may lock or remove it in between, as
/// an empty journal that nobody owns: then the next name is tried.
fn create(state_dir: &Path, of: &Began) -> Result<(PathBuf, File), UndoError> {
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let path = state_dir.join(format!("journal-{}-{}{suffix}.jsonl", of.pid, of.start_time));
        let opened = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path);
        let file = match opened {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            opened => opened.map_err(UndoError::file("create", &path))?,
        };
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if locked && file.metadata().map_err(UndoError::file("read", &path))?.nlink() > 0 {
            return Ok((path, file));
        }
    }
}

/// So that the file's name survives a crash of the host too.
fn sync_directory(path: &Path) -> Result<(), UndoError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(UndoError::file("sync", path))
}

/// The path with links resolved in all but its last part, which may not exist yet.
fn resolved(path: &Path) -> PathBuf {
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

fn shared_name(change: &Change) -> Option<String> {
    if let Change::Mount { shared, .. } = change { shared.clone() } else { None }
}

/// The kernel's id of this boot; empty where it cannot be read, which then equals itself.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
