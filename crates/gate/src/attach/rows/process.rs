//! A process's program, where it is mapped, and its memory. (proc(5): /proc/PID/exe, /proc/PID/maps; process_vm_readv(2).)

use super::layout::Memory;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// No server's program is larger.
const LARGEST_BYTES: u64 = 256 << 20;

/// A program's file: an inode's number is soon another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// A process whose memory may be looked at.
#[derive(Debug)]
pub(super) struct Process {
    pid: i32,
    pub(super) program: Program,
    /// Where the program's file is in its memory.
    pub(super) mapped: Range<u64>,
}

impl Process {
    /// # Errors
    /// There is none, or it may not be looked at.
    pub(super) fn find(pid: i32) -> Result<Process, String> {
        let failed =
            |what: &'static str| move |error: io::Error| format!("cannot read {what} of process {pid}: {error}");
        let file = std::fs::metadata(exe(pid)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                format!("there is no process {pid} here (in a container the server is found by TCP alone)")
            }
            _ => failed("the program")(error),
        })?;
        let name = std::fs::read_link(exe(pid)).map_err(failed("the program's name"))?;
        let maps = File::open(format!("/proc/{pid}/maps")).map_err(failed("the mappings"))?;
        // The program is mapped first, as a rule: no need to have the kernel write of all that it maps.
        let lines = BufReader::with_capacity(4_096, maps).lines().map_while(Result::ok);
        let is_program = |line: &String| line.split_once('/').is_some_and(|(_, path)| is_at(path, &name));
        let pieces = lines.skip_while(|line| !is_program(line)).take_while(is_program).filter_map(|line| range(&line));
        let mapped = pieces.reduce(|all, piece| all.start..piece.end);
        let mapped = mapped.ok_or_else(|| format!("the program of process {pid} is not among its mappings"))?;
        let modified = (file.mtime(), file.mtime_nsec());
        let program = Program { device: file.dev(), inode: file.ino(), bytes: file.len(), modified };
        Ok(Process { pid, program, mapped })
    }

    /// # Errors
    /// Why its memory may not be read.
    pub(super) fn may_be_read(&self, address: u64) -> Result<(), String> {
        let why = |error| format!("the memory of process {} cannot be read: {error}", self.pid);
        self.try_read(address, &mut [0]).map(|_| ()).map_err(why)
    }

    fn try_read(&self, address: u64, into: &mut [u8]) -> nix::Result<usize> {
        let base = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
        let there = [RemoteIoVec { base, len: into.len() }];
        process_vm_readv(Pid::from_raw(self.pid), &mut [IoSliceMut::new(into)], &there)
    }

    /// Where something stands that the program has a name for, from where it is mapped.
    ///
    /// # Errors
    /// It has none, or it is no program of this machine's kind.
    pub(super) fn symbol(&self, name: &str) -> Result<u64, String> {
        let bad = |error: object::Error| format!("the program of process {} cannot be read: {error}", self.pid);
        let file = File::open(exe(self.pid))
            .map_err(|error| format!("cannot open the program of process {}: {error}", self.pid))?;
        if self.program.bytes > LARGEST_BYTES {
            return Err(format!("the program of process {} is larger than a server's", self.pid));
        }
        let cache = ReadCache::new(file);
        let program = object::File::parse(&cache).map_err(bad)?;
        if !program.is_64() || program.is_little_endian() != cfg!(target_endian = "little") {
            return Err(format!("the program of process {} is of another kind of machine than this one", self.pid));
        }
        let begin = program.segments().find(|segment| segment.file_range().0 == 0).map(|segment| segment.address());
        let symbol = program.dynamic_symbols().find(|symbol| symbol.name_bytes() == Ok(name.as_bytes()));
        let symbol = symbol.map(|symbol| symbol.address()).ok_or_else(|| {
            format!("the program of process {} has no {name}: it is no PostgreSQL server's", self.pid)
        })?;
        Ok(symbol.wrapping_sub(begin.unwrap_or_default()))
    }
}

impl Memory for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        // Where nothing is mapped any more nothing is read, and what ends in the midst of it as far as it goes.
        self.try_read(address, into).unwrap_or(0)
    }
}

/// Whether there is none, or it has ended and nobody has asked how.
pub(super) fn is_gone(pid: i32) -> bool {
    std::fs::metadata(exe(pid)).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn exe(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// Whether a line's path, which lacks its first slash, is this one.
fn is_at(path: &str, name: &std::path::Path) -> bool {
    name.as_os_str().as_encoded_bytes().strip_prefix(b"/") == Some(path.as_bytes())
}

/// Where the mapping of a line is.
fn range(line: &str) -> Option<Range<u64>> {
    let (start, rest) = line.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(address(start)?..address(rest.split_once(' ')?.0)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_process_is_read_as_its_program_says() {
        let own = Process::find(i32::try_from(std::process::id()).unwrap()).unwrap();
        let mut magic = [0; 4];
        assert_eq!((own.read(own.mapped.start, &mut magic), &magic), (4, b"\x7fELF"));
        let code = Process::find as *const () as u64;
        assert!(own.mapped.contains(&code), "{:x?} has no {code:x}", own.mapped);
        assert!(own.may_be_read(own.mapped.start).is_ok() && own.may_be_read(8).is_err());
        assert_eq!(own.read(8, &mut magic), 0, "nothing is mapped there");
        let said = own.symbol("ActivePortal").unwrap_err();
        assert!(said.contains("it is no PostgreSQL server's"), "{said}");
        assert!(Process::find(i32::MAX).unwrap_err().contains("there is no process"));
    }
}
