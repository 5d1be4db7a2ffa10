//! The memory of a server's process: where its shared segment is mapped, and what stands there. (proc(5): /proc/PID/maps;
//! process_vm_readv(2).) The segment is not mapped here: it would outlive its server and keep the next one from starting.

use super::at_least;
use super::layout::{SEGMENT_HEAD_BYTES, segment_bytes};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;
use std::ops::Range;
use std::path::Path;

/// So many pieces are read in one call (UIO_MAXIOV).
const MOST_PIECES: usize = 1_024;

/// What lies no further apart is read together: a piece of its own costs as much as copying so many bytes (measured, when
/// neither was looked at for a while).
const NEAR_BYTES: u64 = 2_048;

/// A piece of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) bytes: usize,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes as u64)
    }
}

/// The postmaster, in whose memory the segment is mapped as in every other of its processes.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    remote: Vec<RemoteIoVec>,
    /// What is read together, and the pieces in the order of their places.
    spans: Vec<Piece>,
    order: Vec<usize>,
}

impl Process {
    pub(super) fn of(pid: i32) -> Process {
        Process { pid: Pid::from_raw(pid), remote: Vec::new(), spans: Vec::new(), order: Vec::new() }
    }

    /// Reads these pieces, one after the other, into as many bytes.
    ///
    /// # Errors
    /// They cannot be read whole.
    pub(super) fn read(&mut self, pieces: &[Piece], into: &mut [u8]) -> Result<(), String> {
        let mut rest = into;
        for some in pieces.chunks(MOST_PIECES) {
            self.remote.clear();
            for piece in some {
                let base = usize::try_from(piece.at).map_err(|error| error.to_string())?;
                self.remote.push(RemoteIoVec { base, len: piece.bytes });
            }
            let bytes = some.iter().map(|piece| piece.bytes).sum();
            let (now, later) = rest.split_at_mut_checked(bytes).ok_or_else(|| "no room for it".to_owned())?;
            rest = later;
            let read = process_vm_readv(self.pid, &mut [IoSliceMut::new(now)], &self.remote);
            let read = read.map_err(|error| format!("the memory of process {} cannot be read: {error}", self.pid))?;
            if read != bytes {
                return Err(format!("of {bytes} bytes of process {} only {read} could be read", self.pid));
            }
        }
        Ok(())
    }

    /// Reads these pieces, and what lies between those that lie near each other. Where each is in what was read is put into `found`.
    ///
    /// # Errors
    /// They cannot be read whole.
    pub(super) fn gather(
        &mut self,
        pieces: &[Piece],
        into: &mut Vec<u8>,
        found: &mut Vec<Range<usize>>,
    ) -> Result<(), String> {
        self.order.clear();
        self.order.extend(0..pieces.len());
        self.order.sort_by_key(|place| pieces[*place].at);
        self.spans.clear();
        found.clear();
        found.resize(pieces.len(), 0..0);
        let mut end = 0;
        for place in &self.order {
            let piece = pieces[*place];
            match self.spans.last_mut() {
                Some(span) if piece.at <= span.end().saturating_add(NEAR_BYTES) => {
                    let more = usize::try_from(piece.end().saturating_sub(span.end())).unwrap_or(usize::MAX);
                    (span.bytes, end) = (span.bytes.saturating_add(more), end + more);
                }
                _ => {
                    self.spans.push(piece);
                    end += piece.bytes;
                }
            }
            let from = end - self.spans.last().map_or(0, |span| (span.end() - piece.at) as usize);
            found[*place] = from..from + piece.bytes;
        }
        let spans = std::mem::take(&mut self.spans);
        let read = self.read(&spans, at_least(into, end));
        into.truncate(end);
        self.spans = spans;
        read
    }

    /// Where the segment that holds all of the server's shared memory begins.
    ///
    /// # Errors
    /// There is none, or it may not be read.
    pub(super) fn segment(&mut self, proc: &Path) -> Result<u64, String> {
        let maps = proc.join(self.pid.to_string()).join("maps");
        let text = std::fs::read_to_string(&maps).map_err(|error| format!("{}: {error}", maps.display()))?;
        let mut why = format!("process {} has no shared memory of PostgreSQL's", self.pid);
        for mapped in text.lines().filter_map(shared) {
            let mut head = [0; SEGMENT_HEAD_BYTES];
            match self.read(&[Piece { at: mapped.start, bytes: SEGMENT_HEAD_BYTES }], &mut head) {
                // The small one beside it begins alike, and tells of the whole.
                Ok(()) if segment_bytes(&head).is_some_and(|bytes| bytes <= mapped.end - mapped.start) => {
                    return Ok(mapped.start);
                }
                Ok(()) => {}
                Err(error) => why = error,
            }
        }
        Err(why)
    }
}

/// Where a line of /proc/PID/maps says that memory is mapped which is shared and written.
fn shared(line: &str) -> Option<Range<u64>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |hex| u64::from_str_radix(hex, 16).ok();
    rest.starts_with("rw-s").then_some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn shared_mappings_are_told_from_others() {
        let line = "7f90341cc000-7f903d000000 rw-s 00000000 00:01 308307                     /dev/zero (deleted)";
        assert_eq!(shared(line), Some(0x7f90_341c_c000..0x7f90_3d00_0000));
        assert_eq!(shared("563a1000-563a2000 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(shared(""), None);
    }

    proptest! {
        /// Each is found where it says, whatever their order, and though some overlap.
        #[test]
        fn pieces_are_gathered_from_wherever_they_are(wanted in vec((0..60_000_usize, 1..900_usize), 0..60)) {
            let memory: Vec<u8> = (0..61_000_usize).map(|place| (place % 251) as u8 ^ (place >> 8) as u8).collect();
            let at = memory.as_ptr() as u64;
            let pieces: Vec<Piece> = wanted.iter().map(|(from, bytes)| Piece { at: at + *from as u64, bytes: *bytes }).collect();
            let (mut read, mut found) = (vec![7; 100], Vec::new());
            Process::of(std::process::id().cast_signed()).gather(&pieces, &mut read, &mut found).unwrap();
            prop_assert_eq!(found.len(), wanted.len());
            for ((from, bytes), place) in wanted.iter().zip(found) {
                prop_assert_eq!(&read[place], &memory[*from..from + bytes]);
            }
        }
    }

    #[test]
    fn pieces_are_read_in_their_order_however_many_and_one_that_is_nowhere_is_an_error() {
        let mut own = Process::of(std::process::id().cast_signed());
        let memory: Vec<u8> = (0..=255).collect();
        let at = memory.as_ptr() as u64;
        let pieces: Vec<Piece> = (0..3_000).map(|number| Piece { at: at + number % 256, bytes: 1 }).collect();
        let mut read = vec![9; 3_000];
        own.read(&pieces, &mut read).unwrap();
        assert!(read.iter().enumerate().all(|(number, byte)| usize::from(*byte) == number % 256));
        assert!(
            own.read(&[Piece { at, bytes: 1 }, Piece { at: 8, bytes: 1 }], &mut read).unwrap_err().contains("only 1")
        );
        assert!(own.read(&[Piece { at: 8, bytes: 1 }], &mut read).unwrap_err().contains("cannot be read"));
        assert!(own.segment(Path::new("/proc")).is_err(), "this is no server");
    }
}
