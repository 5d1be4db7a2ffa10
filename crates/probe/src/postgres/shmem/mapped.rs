//! A server's shared memory, mapped to be read. (proc(5): /proc/PID/maps and map_files; mmap(2).)
//!
//! What keeps a mapping from doing harm: it lets nothing be written. It keeps the memory from being given back once its server
//! has let go of it, so it is undone at the first look after the session that asks has ended, as it does in a crash too, and wherever
//! the server does not answer. Memory of which the next server may need the same pages (huge pages), or that it is not given while
//! others have it (System V), is not mapped at all, nor is any where all that is mapped counts against a limit (vm.overcommit_memory).
//!
//! What makes the unsafe code sound: what is mapped is a file that nobody can shorten (/dev/zero's), as far as it is mapped; it is
//! read within its bounds only, and by atomic loads of at most eight bytes without an order, which may be of memory that is mapped
//! read-only (std::sync::atomic, "Atomic accesses to read-only memory"), whatever its server writes meanwhile.
#![expect(unsafe_code, reason = "memory that others write cannot be mapped and read in a safe way")]

use super::layout::{SEGMENT_HEAD_BYTES, segment_bytes};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What memory is called that is shared by a process with those it forks.
const SHARED: &str = "/dev/zero (deleted)";

/// The segment that holds all of a server's shared memory.
#[derive(Debug)]
pub(super) struct Segment {
    begin: NonNull<u8>,
    bytes: usize,
    /// Where it begins in the server's own processes.
    there: u64,
}

// SAFETY: nothing of it is ever written here, and it is as good in one thread as in another.
unsafe impl Send for Segment {}

impl Segment {
    /// Of the server whose postmaster is this process.
    ///
    /// # Errors
    /// There is none, or it may not or should not be mapped.
    pub(super) fn of(postmaster: i32, proc: &Path) -> Result<Segment, String> {
        let process = proc.join(postmaster.to_string());
        let maps = process.join("maps");
        let text = std::fs::read_to_string(&maps).map_err(|error| format!("{}: {error}", maps.display()))?;
        let mut why = format!("process {postmaster} has no shared memory of PostgreSQL's");
        for (range, name) in text.lines().filter_map(shared) {
            if name != SHARED {
                why = unfit(name).unwrap_or(why);
                continue;
            }
            let path = process.join("map_files").join(format!("{:x}-{:x}", range.start, range.end));
            let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            if !is_of_the_kernel(&file)? {
                why = format!("{} is a file of somebody's that is only called so", path.display());
                continue;
            }
            let bytes = usize::try_from(range.end - range.start).map_err(|error| error.to_string())?;
            let segment = Segment::map(&file, bytes, range.start)?;
            let mut head = [0; SEGMENT_HEAD_BYTES];
            segment.copy(0, &mut head)?;
            if segment_bytes(&head).is_some_and(|told| told <= bytes as u64) {
                return Ok(segment);
            }
        }
        Err(why)
    }

    /// So much of a file as it is in all of the time that it is mapped.
    pub(super) fn map(file: &File, bytes: usize, there: u64) -> Result<Segment, String> {
        // SAFETY: the kernel chooses where, so that nothing of this process is mapped over.
        let begin = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0) };
        let begin = begin.map_err(|error| format!("the server's shared memory cannot be mapped: {error}"))?;
        let begin = NonNull::new(begin.cast()).ok_or("it is nowhere")?;
        Ok(Segment { begin, bytes, there })
    }

    /// Where in the segment a place of the server's own processes is.
    pub(super) fn place(&self, there: u64) -> Option<usize> {
        usize::try_from(there.checked_sub(self.there)?).ok().filter(|place| *place < self.bytes)
    }

    /// # Errors
    /// It is not in the segment, or not where a word may be.
    pub(super) fn word(&self, at: usize) -> Result<u32, String> {
        if !at.is_multiple_of(4) || at.checked_add(4).is_none_or(|end| end > self.bytes) {
            return Err(self.outside(at));
        }
        // SAFETY: within what is mapped, aligned, and only ever loaded.
        Ok(unsafe { AtomicU32::from_ptr(self.begin.as_ptr().add(at).cast()) }.load(Ordering::Relaxed))
    }

    /// Copies what stands there, which may be written meanwhile.
    ///
    /// # Errors
    /// Not all of it is in the segment.
    pub(super) fn copy(&self, at: usize, into: &mut [u8]) -> Result<(), String> {
        if at.checked_add(into.len()).is_none_or(|end| end > self.bytes) {
            return Err(self.outside(at));
        }
        let longs = if at.is_multiple_of(8) { into.len() / 8 * 8 } else { 0 };
        let (by_eight, by_one) = into.split_at_mut(longs);
        for (number, eight) in by_eight.chunks_exact_mut(8).enumerate() {
            // SAFETY: within what is mapped, aligned, and only ever loaded.
            let long = unsafe { AtomicU64::from_ptr(self.begin.as_ptr().add(at + 8 * number).cast()) };
            eight.copy_from_slice(&long.load(Ordering::Relaxed).to_ne_bytes());
        }
        for (number, one) in by_one.iter_mut().enumerate() {
            // SAFETY: as above.
            *one = unsafe { AtomicU8::from_ptr(self.begin.as_ptr().add(at + longs + number)) }.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn outside(&self, at: usize) -> String {
        format!("byte {at} cannot be read in {} bytes of shared memory", self.bytes)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing that was lent of it is left.
        let _gone = unsafe { munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

/// Whether a file is of the kernel's own file system, in which nobody finds a file to shorten it, as one that is made here is.
fn is_of_the_kernel(file: &File) -> Result<bool, String> {
    let own = memfd_create("backwater", MemfdFlags::CLOEXEC);
    let devices = own.and_then(|own| Ok((fstat(own)?.st_dev, fstat(file)?.st_dev)));
    devices.map(|(own, other)| own == other).map_err(|error| format!("memfd_create: {error}"))
}

/// Where a line of /proc/PID/maps says that memory is mapped which is shared and written, and what it is called.
fn shared(line: &str) -> Option<(Range<u64>, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |hex| u64::from_str_radix(hex, 16).ok();
    let name = rest.splitn(5, ' ').last()?.trim_start();
    rest.starts_with("rw-s").then_some((number(start)?..number(end)?, name))
}

/// Why shared memory is not mapped that is called so, where it may be the server's.
fn unfit(name: &str) -> Option<String> {
    let huge = "it is in huge pages, which the next server may need as soon as this one has crashed";
    let system_v = "it is System V's (shared_memory_type), which no server takes while others have it";
    match name {
        _ if name.contains("hugepage") => Some(huge.to_owned()),
        // The small one beside every segment begins alike, and comes with others.
        _ if name.starts_with("/SYSV") => Some(system_v.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn shared_mappings_are_told_from_others() {
        let line = "7f90341cc000-7f903d000000 rw-s 00000000 00:01 308307                     /dev/zero (deleted)";
        assert_eq!(shared(line), Some((0x7f90_341c_c000..0x7f90_3d00_0000, SHARED)));
        assert_eq!(shared("563a1000-563a2000 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(shared(""), None);
        let (_, name) = shared("7f9-7fa rw-s 00000000 00:0f 2080 /anon_hugepage (deleted)").unwrap();
        assert!(unfit(name).unwrap().contains("huge"));
        let (_, name) = shared("7f9-7fa rw-s 00000000 00:01 7   /SYSV0052e2c1 (deleted)").unwrap();
        assert!(unfit(name).unwrap().contains("System V"));
        assert!(unfit(SHARED).is_none());
    }

    #[test]
    fn a_process_that_is_no_server_has_none() {
        let own = std::process::id().cast_signed();
        assert!(Segment::of(own, Path::new("/proc")).unwrap_err().contains("no shared memory"));
        assert!(Segment::of(own, Path::new("/nowhere")).unwrap_err().contains("/nowhere"));
    }

    proptest! {
        /// What stands there is read, wherever it begins; what lies beyond is an error.
        #[test]
        fn pieces_are_read_within_bounds(at in 0..5_000_usize, bytes in 0..900_usize) {
            let memory: Vec<u8> = (0..4_096_usize).map(|place| (place % 251) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&memory).unwrap();
            let segment = Segment::map(&file, memory.len(), 10_000).unwrap();
            let mut read = vec![7; bytes];
            let is_inside = at + bytes <= memory.len();
            prop_assert_eq!(segment.copy(at, &mut read).is_ok(), is_inside);
            if is_inside {
                prop_assert_eq!(&read, &memory[at..at + bytes]);
            }
            let word = at.is_multiple_of(4).then(|| memory.get(at..at + 4)).flatten();
            prop_assert_eq!(segment.word(at).ok(), word.map(|four| u32::from_ne_bytes(four.try_into().unwrap())));
            prop_assert_eq!(segment.place(10_000 + at as u64), (at < 4_096).then_some(at));
            prop_assert_eq!(segment.place(9_999), None);
        }
    }
}
