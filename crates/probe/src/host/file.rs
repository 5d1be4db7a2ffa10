//! Reading kernel files: once, or again and again through a descriptor that is kept open (12 → 5 µs a look).

use super::task::parse_stat;
use super::{Roots, SOURCE};
use crate::{ProbeError, Sink, rights};
use std::borrow::Cow;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No kernel file that is read here is longer; more would be read as a sign that it is no kernel file.
const LONGEST_BYTES: usize = 4 << 20;
/// A file that this kernel or device does not have is looked for again after so long.
const ABSENT_FOR: Duration = Duration::from_secs(10);

/// What is read by one call.
pub(super) const CHUNK_BYTES: usize = 4096;

/// When reading ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// At the end of the file.
    End,
    /// At a read that gives less than a page: the file is one record, and no second read need look for its end.
    ShortRead,
    /// After one read of at most so many bytes, and no more than [`CHUNK_BYTES`].
    OneRead(usize),
}

/// A kernel file that is kept open and read from its start at every look. It is opened anew where the kernel object
/// behind it was replaced (a loop device attached again, a process id used again).
#[derive(Debug)]
pub(super) struct KernelFile {
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
    until: Until,
    /// Whether it may well be missing, so that it is not looked for at every look.
    optional: bool,
    /// Found missing then.
    absent_since: Option<Instant>,
}

impl KernelFile {
    /// A file that will be opened at the first look.
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        KernelFile { path, file: None, buffer: Vec::new(), until: Until::End, optional: false, absent_since: None }
    }

    /// The same for a file of one record that is shorter than a page (`single_open` in the kernel, or of sysfs), which a
    /// single read gives whole: half the calls.
    pub(super) fn short(path: impl Into<PathBuf>) -> Self {
        KernelFile { until: Until::ShortRead, ..KernelFile::new(path) }
    }

    /// A short file that many kernels or devices do not have. Ten vain calls a second for each would be paid for ever,
    /// so once found missing it counts as missing for a while.
    pub(super) fn optional(path: impl Into<PathBuf>) -> Self {
        KernelFile { optional: true, ..KernelFile::short(path) }
    }

    /// Its present contents.
    pub(super) fn read(&mut self) -> Result<Cow<'_, str>, ProbeError> {
        if self.absent_since.is_some_and(|since| since.elapsed() < ABSENT_FOR) {
            return Err(ProbeError::Read { path: self.path.clone(), source: ErrorKind::NotFound.into() });
        }
        let kept = self.file.is_some();
        let mut result = self.look();
        if result.is_err() && kept {
            self.file = None;
            result = self.look();
        }
        if let Err(source) = result {
            self.file = None;
            let absent = self.optional && source.kind() == ErrorKind::NotFound;
            self.absent_since = absent.then(Instant::now);
            return Err(ProbeError::Read { path: self.path.clone(), source });
        }
        self.absent_since = None;
        Ok(text(&self.buffer))
    }

    /// Whether a descriptor is kept.
    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Its present contents through the descriptor that is kept open, and in no other way: of a process, those of the very
    /// one it was opened for.
    pub(super) fn read_kept(&mut self) -> Result<Cow<'_, str>, ProbeError> {
        let result = if self.file.is_some() { self.look() } else { Err(ErrorKind::NotFound.into()) };
        match result {
            Ok(()) => Ok(text(&self.buffer)),
            Err(source) => {
                self.file = None;
                Err(ProbeError::Read { path: self.path.clone(), source })
            }
        }
    }

    /// Only the lines that one read of so many bytes gives (a page at most), the last one left out unless it is whole. The
    /// kernel makes many long files anew at each read, line by line as far as it is asked (seq_file), and to its end too,
    /// so a reader of the first lines saves most of the work.
    pub(super) fn first_lines(&mut self, bytes: usize) -> Result<Cow<'_, str>, ProbeError> {
        let until = std::mem::replace(&mut self.until, Until::OneRead(bytes));
        let result = self.read().map(|_| ());
        self.until = until;
        result?;
        let whole = self.buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        Ok(text(&self.buffer[..whole]))
    }

    /// Its present contents as a number; none where it cannot be read or is none.
    pub(super) fn number(&mut self) -> Option<u64> {
        self.read().ok()?.trim().parse().ok()
    }

    fn look(&mut self) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path)?),
        };
        self.buffer.clear();
        read_into(file, &mut self.buffer, self.until)
    }
}

/// Bytes as text. Nearly all are, which the lossy way looks at one by one.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

fn read_into(file: &File, buffer: &mut Vec<u8>, until: Until) -> std::io::Result<()> {
    let mut chunk = [0; CHUNK_BYTES];
    let at_once = if let Until::OneRead(bytes) = until { bytes.min(CHUNK_BYTES) } else { CHUNK_BYTES };
    while buffer.len() < LONGEST_BYTES {
        match file.read_at(&mut chunk[..at_once], buffer.len() as u64) {
            Ok(0) => break,
            Ok(count) => {
                buffer.extend_from_slice(&chunk[..count]);
                if matches!(until, Until::OneRead(_)) || (until == Until::ShortRead && count < chunk.len()) {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The contents of a short file of one record ([`KernelFile::short`]) that is read once.
pub(super) fn record(path: &Path) -> Result<String, ProbeError> {
    once(path, Until::ShortRead)
}

/// The contents of a file that is read once. Not by `std::fs::read`: kernel files say that they are empty, upon which it
/// reads 32 bytes, then some more, and the kernel makes the whole text each time.
pub(super) fn read(path: &Path) -> Result<String, ProbeError> {
    once(path, Until::End)
}

fn once(path: &Path, until: Until) -> Result<String, ProbeError> {
    let mut bytes = Vec::new();
    let result = File::open(path).and_then(|file| read_into(&file, &mut bytes, until));
    result.map_err(|source| ProbeError::Read { path: path.to_owned(), source })?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The trimmed contents of a file that may be missing or empty.
pub(super) fn word(path: &Path) -> Option<String> {
    let text = read(path).ok()?;
    let trimmed = text.trim();
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

/// The id of this boot: the epoch of host counters. Empty where it cannot be read.
pub(super) fn boot_id(roots: &Roots) -> String {
    word(&roots.proc.join("sys/kernel/random/boot_id")).unwrap_or_default()
}

/// Whether reading failed for want of a privilege.
pub(super) fn denied(error: &ProbeError) -> bool {
    matches!(error, ProbeError::Read { source, .. } if source.kind() == ErrorKind::PermissionDenied)
}

/// Whether reading failed because the file, or what it was of, is not there.
pub(super) fn missing(error: &ProbeError) -> bool {
    let gone = |source: &std::io::Error| {
        source.kind() == ErrorKind::NotFound
            || source.raw_os_error().is_some_and(|code| {
                let code = rustix::io::Errno::from_raw_os_error(code);
                [rustix::io::Errno::SRCH, rustix::io::Errno::NODEV, rustix::io::Errno::NXIO].contains(&code)
            })
    };
    matches!(error, ProbeError::Read { source, .. } if gone(source))
}

/// Whether the process is gone whose file could not be read. The files of one that is ending are refused before its directory
/// goes, and are root's from then on.
fn of_ended_process(error: &ProbeError) -> bool {
    let ProbeError::Read { path, .. } = error else { return false };
    let Some(directory) = process_directory(path) else { return false };
    let stat = read(&directory.join("stat")).ok().and_then(|line| parse_stat(&line));
    stat.is_none_or(|stat| matches!(stat.state, 'Z' | 'X') || stat.resident_pages == 0)
}

/// `/proc/PID` of a file below it.
fn process_directory(path: &Path) -> Option<&Path> {
    let is_pid = |directory: &Path| Some(directory.file_name()?.to_str()?.parse::<i32>().is_ok());
    path.ancestors().find(|at| is_pid(at) == Some(true) && at.parent().is_some_and(|parent| parent.ends_with("proc")))
}

/// Says that something cannot be seen because a file could not be read. Not of a process that has ended: what is said to be
/// absent stays said, and its successor may well be seen.
pub(super) fn tell_absent(sink: &mut Sink<'_>, what: &str, error: &ProbeError, remedy: Option<&str>) {
    if of_ended_process(error) {
        return;
    }
    let as_root = rights::remedy("run as root, or as the server's own user");
    let remedy = if denied(error) { remedy.or(Some(as_root)) } else { remedy };
    sink.absent(SOURCE, what, &error.to_string(), remedy);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_kept_file_shows_what_is_written_later_and_survives_replacement() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        std::fs::write(&path, "1\n").unwrap();
        let mut file = KernelFile::new(&path);
        assert_eq!(file.number(), Some(1));
        std::fs::write(&path, "22\n").unwrap();
        assert_eq!(file.number(), Some(22));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.number(), Some(22), "the open file still stands");
        assert_eq!(file.read_kept().unwrap(), "22\n");
        std::fs::write(&path, "333\n").unwrap();
        assert_eq!(file.read_kept().unwrap(), "22\n", "and no other one does");
        assert!(KernelFile::new(&path).read_kept().is_err());
    }

    #[test]
    fn long_files_are_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        let text = "0123456789abcdef".repeat(1_000);
        std::fs::write(&path, &text).unwrap();
        assert_eq!(KernelFile::new(&path).read().unwrap(), text);
    }

    #[test]
    fn the_first_lines_are_whole_lines_of_the_first_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        std::fs::write(&path, "nr_dirty 31628\n".repeat(1_000)).unwrap();
        let mut file = KernelFile::new(&path);
        let first = file.first_lines(CHUNK_BYTES).unwrap().into_owned();
        assert_eq!(first.lines().count(), 4_096 / 15);
        assert!(first.lines().all(|line| line == "nr_dirty 31628"));
        assert_eq!(file.first_lines(31).unwrap(), "nr_dirty 31628\nnr_dirty 31628\n");
        assert_eq!(file.read().unwrap().lines().count(), 1_000);
        std::fs::write(&path, "no line").unwrap();
        assert_eq!(file.first_lines(CHUNK_BYTES).unwrap(), "");
    }

    #[test]
    fn a_missing_optional_file_is_looked_for_again_after_a_while_and_others_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fine");
        let (mut optional, mut other) = (KernelFile::optional(&path), KernelFile::short(&path));
        assert_eq!((optional.number(), other.number()), (None, None));
        std::fs::write(&path, "5\n").unwrap();
        assert_eq!((optional.number(), other.number()), (None, Some(5)));
        assert!(missing(&optional.read().unwrap_err()));
        optional.absent_since = Instant::now().checked_sub(ABSENT_FOR);
        assert_eq!((optional.number(), optional.number()), (Some(5), Some(5)));
    }

    #[test]
    fn a_file_of_a_process_that_lives_is_told_and_of_one_that_has_ended_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let process = dir.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        let ended = |stat: &str| {
            std::fs::write(process.join("stat"), stat).unwrap();
            of_ended_process(&KernelFile::new(process.join("root/data/16/x")).read().unwrap_err())
        };
        let line = "7 (postgres) S 1 7 7 0 -1 0 0 0 0 0 3 4 0 0 20 0 1 0 99 4096 12 0\n";
        assert!(!ended(line));
        assert!(ended(&line.replace(" S ", " Z ")));
        assert!(ended(&line.replace(" 12 ", " 0 ")), "it has let go of its memory and is about to end");
        std::fs::remove_dir_all(&process).unwrap();
        assert!(of_ended_process(&KernelFile::new(process.join("ns/net")).read().unwrap_err()));
        let of_no_process = dir.path().join("block/7/stat");
        assert!(!of_ended_process(&KernelFile::new(of_no_process).read().unwrap_err()));
    }

    #[test]
    fn an_error_names_the_file_and_tells_missing_from_denied() {
        let mut file = KernelFile::new("/nowhere/at/all");
        let error = file.read().unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"));
        assert!(missing(&error) && !denied(&error));
    }
}
