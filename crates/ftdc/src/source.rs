//! Where recordings lie: one file, or a directory (`diagnostic.data`) whose files are read in the order of time, the
//! interim file last.

use crate::{Damage, Document, DocumentKind, Documents, Fault, FtdcError, Limits, Timeline};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What every file of the recorder begins with, and the one that is written over and over until a chunk is full.
const PREFIX: &str = "metrics.";
pub(crate) const INTERIM: &str = "metrics.interim";
/// Left behind where a server died while it wrote an interim file; never whole.
const HALF_WRITTEN: &str = ".temp";
/// How long after its first sample the last of a chunk is written: 300 samples, one a second unless set otherwise, and some that came late.
const LONGEST_CHUNK_MS: i64 = 330_000;
/// Chunks whose times are kept, to know the interim one again: a year of them.
const MOST_CHUNKS: usize = 100_000;
/// The directory within a server's data directory.
const DIRECTORY: &str = "diagnostic.data";

/// One file of a recording.
#[derive(Clone, Debug)]
pub struct SourceFile {
    path: Arc<Path>,
    bytes: u64,
    interim: bool,
    first_ms: Option<i64>,
    /// Whether the first document is metadata, whose time is that of the file's beginning in every version.
    metadata_first: bool,
    /// The interim file stays open as it was found: see [`files_in`].
    held: Option<Arc<File>>,
}

impl SourceFile {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size when the source was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is `metrics.interim`: the samples of the chunk that is not full yet.
    pub fn is_interim(&self) -> bool {
        self.interim
    }

    /// The time of its first document, in milliseconds since 1970; none where it does not begin with one.
    pub fn first_ms(&self) -> Option<i64> {
        self.first_ms
    }
}

/// A recording: the files of it, in order. Opening one reads 32 bytes of each file.
#[derive(Clone, Debug)]
pub struct Source {
    files: Vec<SourceFile>,
    limits: Limits,
    /// Whether it is one file that was named, and no directory of them: that it cannot be read is then an error.
    alone: bool,
}

impl Source {
    /// Opens a file, a directory of the recorder, or a server's data directory that has one.
    pub fn open(path: impl AsRef<Path>) -> Result<Source, FtdcError> {
        Source::open_with(path, Limits::default())
    }

    /// As [`open`](Source::open), with limits of one's own.
    pub fn open_with(path: impl AsRef<Path>, limits: Limits) -> Result<Source, FtdcError> {
        let path = path.as_ref();
        let meta = std::fs::metadata(path).map_err(|error| FtdcError::read(path, error))?;
        if !meta.is_dir() {
            let file = File::open(path).and_then(|file| look_at(path.to_owned(), file));
            let files = vec![file.map_err(|error| FtdcError::read(path, error))?];
            return Ok(Source { files, limits, alone: true });
        }
        let mut files = files_in(path)?;
        if files.is_empty() && path.join(DIRECTORY).is_dir() {
            files = files_in(&path.join(DIRECTORY))?;
        }
        if files.is_empty() {
            return Err(FtdcError::NothingHere { path: path.to_owned() });
        }
        Ok(Source { files, limits, alone: false })
    }

    /// Its files, in the order in which they are read.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The limits it was opened with.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The same without the files that hold nothing of the last so many milliseconds: those before the last that begins before
    /// them. For whoever looks at a running server again and again.
    pub fn tail(mut self, last_ms: i64) -> Source {
        let newest = self.files.iter().rev().find_map(|file| file.first_ms);
        let from = newest.map(|newest| newest.saturating_sub(last_ms));
        // Before MongoDB 4.2 a chunk's time is that of its end, so only metadata tells when a file begins.
        let begins_before = |file: &SourceFile| {
            let first = file.first_ms.filter(|_| file.metadata_first && !file.interim);
            first.zip(from).is_some_and(|(first, from)| first <= from)
        };
        if let Some(place) = self.files.iter().rposition(begins_before) {
            self.files.drain(..place);
        }
        self
    }

    /// Puts the files in the order of these times, those without one last; the interim file stays behind all.
    pub(crate) fn sort_by(&mut self, time: impl Fn(&SourceFile) -> Option<i64>) {
        self.files.sort_by_cached_key(|file| {
            let time = time(file);
            (file.interim, time.is_none(), time)
        });
    }

    /// The documents of the files that may have samples of a stretch of time.
    pub(crate) fn documents_along(&self, timeline: &Timeline, stretch: &Range<i64>) -> SourceDocuments {
        // What stands in the interim file is put behind the last whole one sooner or later.
        let last = self.files.iter().rposition(|file| !file.interim);
        let wants = |(place, file): &(usize, &SourceFile)| Some(*place) == last || timeline.wants(&file.path, stretch);
        let wanted = self.files.iter().enumerate().filter(wants).map(|(_, file)| file);
        self.read(wanted.cloned().collect())
    }

    /// Every document of every file, in order. A chunk of the interim file that has since been written to another file
    /// is left out; that file is read as it was when the source was opened, so that a server which goes on writing leaves no gap.
    /// A file that is gone by the time it is read is a fault, and the rest is read on: servers remove their oldest. So is one of
    /// several that the system refuses, or the rest of it.
    pub fn documents(&self) -> SourceDocuments {
        self.read(self.files.clone().into())
    }

    fn read(&self, files: VecDeque<SourceFile>) -> SourceDocuments {
        let (limits, alone) = (self.limits, self.alone);
        SourceDocuments { files, limits, alone, current: None, last_chunk_ms: i64::MIN, chunks_ms: BTreeSet::new() }
    }

    /// The documents that may hold samples of this stretch of time (milliseconds since 1970), and the metadata of the
    /// files that were opened for it. A chunk more at each end may come along: look at the samples' own times.
    pub fn documents_between(&self, stretch: Range<i64>) -> impl Iterator<Item = Result<Document, FtdcError>> + use<> {
        // Before MongoDB 4.2 a chunk's time is that of its end, so only metadata tells when a file begins.
        let starts: Vec<_> = self.files.iter().map(|file| file.first_ms.filter(|_| file.metadata_first)).collect();
        let late = |place: usize| starts[place].is_some_and(|first| first >= stretch.end);
        let wanted = |place: usize| {
            // A server that is started anew puts what it rescues of an interim file behind the first metadata of its next file.
            let begins_late = late(place) && (place > 0 && late(place - 1));
            let next = starts.get(place + 1).copied().flatten();
            // Only one that goes on where this ends tells its end.
            let goes_on = |next: i64| starts[place].is_none_or(|first| first <= next);
            let ends_early =
                next.is_some_and(|next| next <= stretch.start && goes_on(next)) && !self.files[place].interim;
            !begins_late && !ends_early
        };
        let files = (0..self.files.len()).filter(|place| wanted(*place)).map(|place| self.files[place].clone());
        let all = self.read(files.collect());
        Between { all, stretch, held: None, ready: None, past: false }
    }
}

fn files_in(dir: &Path) -> Result<Vec<SourceFile>, FtdcError> {
    // Opened before all others: what goes from it into one of them meanwhile is then seen twice, and left out once. The other way
    // round it would be seen in neither. Servers replace it by renaming another, so that what is open stays as it is.
    let (interim, mut refusal) = match interim_in(dir) {
        Ok(interim) => (interim, None),
        Err((path, error)) => (Some(unseen(&path)), Some(FtdcError::read(&path, error))),
    };
    let mut seen = refusal.is_none() && interim.is_some();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| FtdcError::read(dir, error))? {
        let path = entry.map_err(|error| FtdcError::read(dir, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(PREFIX) || name == INTERIM || name.ends_with(HALF_WRITTEN) || path.is_dir() {
            continue;
        }
        match File::open(&path).and_then(|file| look_at(path.clone(), file)) {
            Ok(file) => {
                files.push(file);
                seen = true;
            }
            // A server removes its oldest file while it writes.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // The others are read; when this one's turn comes, it is told why it cannot be.
            Err(error) => {
                files.push(unseen(&path));
                refusal.get_or_insert_with(|| FtdcError::read(&path, error));
            }
        }
    }
    if let Some(refusal) = refusal.filter(|_| !seen) {
        return Err(refusal);
    }
    // A file's name holds the time at which it was begun; of names that people gave, what is in the file tells it.
    files.sort_by_cached_key(|file| {
        let begun_ms = begun_by_name(&file.path).or(file.first_ms);
        (begun_ms.is_none(), begun_ms, file.path.to_path_buf())
    });
    files.extend(interim);
    Ok(files)
}

fn interim_in(dir: &Path) -> Result<Option<SourceFile>, (PathBuf, std::io::Error)> {
    let path = dir.join(INTERIM);
    let found = match File::open(&path) {
        Ok(file) if file.metadata().is_ok_and(|meta| meta.is_file()) => look_at(path.clone(), file).map(Some),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    found.map_err(|error| (path, error))
}

/// A file that was not looked into, because the system refused.
fn unseen(path: &Path) -> SourceFile {
    let bytes = std::fs::metadata(path).map_or(0, |meta| meta.len());
    let interim = path.file_name().is_some_and(|name| name == INTERIM);
    SourceFile { path: path.into(), bytes, interim, first_ms: None, metadata_first: false, held: None }
}

/// The time in `metrics.2021-03-15T02-21-47Z-00000`, in milliseconds since 1970.
fn begun_by_name(path: &Path) -> Option<i64> {
    let time = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.get(..20)?;
    jiff::fmt::strtime::parse("%Y-%m-%dT%H-%M-%SZ", time)
        .ok()?
        .to_datetime()
        .ok()?
        .to_zoned(jiff::tz::TimeZone::UTC)
        .ok()
        .map(|time| time.timestamp().as_millisecond())
}

fn look_at(path: PathBuf, file: File) -> std::io::Result<SourceFile> {
    let bytes = file.metadata()?.len();
    let mut head = Vec::new();
    (&file).take(32).read_to_end(&mut head)?;
    // Behind four bytes of length: a date named `_id`.
    let first_ms = match head.get(4..17) {
        Some([0x09, b'_', b'i', b'd', 0, date @ ..]) => date.first_chunk::<8>().map(|date| i64::from_le_bytes(*date)),
        _ => None,
    };
    // Behind that: an integer named `type`.
    let metadata_first = head.get(17..27) == Some(b"\x10type\0\0\0\0\0");
    let interim = path.file_name().is_some_and(|name| name == INTERIM);
    let held = interim.then(|| Arc::new(file));
    Ok(SourceFile { path: path.into(), bytes, interim, first_ms, metadata_first, held })
}

/// A file from its beginning on, whoever else reads what is open.
#[derive(Debug)]
struct Reading {
    file: Arc<File>,
    offset: u64,
}

impl Reading {
    fn of(file: &SourceFile) -> std::io::Result<Reading> {
        let open = file.held.clone().map_or_else(|| File::open(&file.path).map(Arc::new), Ok)?;
        Ok(Reading { file: open, offset: 0 })
    }
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(into, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

fn removed(file: SourceFile) -> Fault {
    Fault { file: file.path, offset: 0, lost_bytes: file.bytes, damage: Damage::Removed }
}

/// What the system refuses to read of one file among several, from here on.
fn unreadable(file: &SourceFile, offset: u64, error: &std::io::Error) -> Fault {
    let (path, lost_bytes) = (Arc::clone(&file.path), file.bytes.saturating_sub(offset));
    Fault { file: path, offset, lost_bytes, damage: Damage::Unreadable(error.to_string()) }
}

/// The documents of every file of a source.
#[derive(Debug)]
pub struct SourceDocuments {
    files: VecDeque<SourceFile>,
    limits: Limits,
    alone: bool,
    current: Option<(Documents<Reading>, SourceFile)>,
    last_chunk_ms: i64,
    /// Of the last chunks.
    chunks_ms: BTreeSet<i64>,
}

impl Iterator for SourceDocuments {
    type Item = Result<Document, FtdcError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((documents, file)) = &mut self.current else {
                let file = self.files.pop_front()?;
                match Reading::of(&file) {
                    Ok(open) => {
                        let documents = Documents::new(open, Arc::clone(&file.path), self.limits);
                        self.current = Some((documents, file));
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        return Some(Err(FtdcError::Damaged(removed(file))));
                    }
                    Err(error) if self.alone => return Some(Err(FtdcError::read(&file.path, error))),
                    Err(error) => return Some(Err(FtdcError::Damaged(unreadable(&file, 0, &error)))),
                }
                continue;
            };
            match documents.next() {
                None => self.current = None,
                Some(Ok(document)) if document.kind() == DocumentKind::Chunk => {
                    // The interim chunk has the time of its first sample, as has the whole one that replaces it (before 4.2 that of its
                    // last). One that is older than that is not replaced: somebody set the clock back.
                    let (at_ms, last_ms) = (document.at_ms(), self.last_chunk_ms);
                    let within_a_chunk = (0..=LONGEST_CHUNK_MS).contains(&last_ms.saturating_sub(at_ms));
                    if file.interim && (within_a_chunk || self.chunks_ms.contains(&at_ms)) {
                        continue;
                    }
                    self.last_chunk_ms = at_ms;
                    self.chunks_ms.insert(at_ms);
                    if self.chunks_ms.len() > MOST_CHUNKS {
                        self.chunks_ms.pop_first();
                    }
                    return Some(Ok(document));
                }
                Some(Err(FtdcError::Read { source, .. })) if !self.alone => {
                    return Some(Err(FtdcError::Damaged(unreadable(file, documents.offset(), &source))));
                }
                other => return other,
            }
        }
    }
}

/// Leaves out chunks that can hold nothing of a stretch of time: those before the last that begins before it, and
/// those behind the first that begins after it.
struct Between {
    all: SourceDocuments,
    stretch: Range<i64>,
    held: Option<Document>,
    ready: Option<Document>,
    past: bool,
}

impl Iterator for Between {
    type Item = Result<Document, FtdcError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(ready) = self.ready.take() {
            return Some(Ok(ready));
        }
        loop {
            let document = match self.all.next() {
                Some(Ok(document)) if document.kind() == DocumentKind::Chunk => document,
                None => return self.held.take().map(Ok),
                other => return other,
            };
            if document.at_ms() < self.stretch.start {
                // Behind it may come older ones, of a clock that was set back or of another server.
                if self.held.as_ref().is_none_or(|held| held.at_ms() <= document.at_ms()) {
                    self.held = Some(document);
                }
                continue;
            }
            if document.at_ms() >= self.stretch.end && std::mem::replace(&mut self.past, true) {
                continue;
            }
            let Some(held) = self.held.take() else { return Some(Ok(document)) };
            self.ready = Some(document);
            return Some(Ok(held));
        }
    }
}
