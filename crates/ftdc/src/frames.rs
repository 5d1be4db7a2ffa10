//! Documents one after the other from anything that can be read, with a window of bounded size. Behind damage, the
//! next document is looked for by what every one of the recorder's begins with.

use crate::bson::{EMPTY_DOCUMENT_BYTES, length};
use crate::document::Head;
use crate::source::INTERIM;
use crate::{Damage, Document, Fault, FtdcError, Limits};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Bytes read at once.
const STEP_BYTES: usize = 256 << 10;
/// Behind its length, a document begins with a date `_id` and an integer `type`.
const ID: &[u8] = b"\x09_id\0";
const TYPE: &[u8] = b"\x10type\0";
/// From the beginning of a document to the end of its type's key.
const SIGNATURE_BYTES: usize = 4 + ID.len() + 8 + TYPE.len();
/// Zeros that mongod itself writes to say that an interim file holds nothing.
const SENTINEL_BYTES: u64 = 8;

/// The documents of one file, in order.
///
/// After a [`Fault`] the iterator goes on with the next document that can be read; an error of the system comes behind
/// what was read before it, and is the end. Memory is bounded by [`Limits::document_bytes`].
#[derive(Debug)]
pub struct Documents<R> {
    input: R,
    file: Arc<Path>,
    limits: Limits,
    window: Vec<u8>,
    /// Where in the window the next document begins.
    start: usize,
    /// Where in the file that is.
    offset: u64,
    ended: bool,
    told_empty: bool,
    /// Why the system refused to read on, until that is told.
    failed: Option<std::io::Error>,
}

impl<R: Read> Documents<R> {
    /// Reads from the beginning of `input`; `file` is what faults will name.
    pub fn new(input: R, file: impl Into<Arc<Path>>, limits: Limits) -> Self {
        let (file, window) = (file.into(), Vec::new());
        let (start, offset, ended, told_empty, failed) = (0, 0, false, false, None);
        Documents { input, file, limits, window, start, offset, ended, told_empty, failed }
    }

    /// Where in the file the next document begins, or would.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    fn left(&self) -> &[u8] {
        self.window.get(self.start..).unwrap_or_default()
    }

    /// Tries to have so many bytes in the window; says how many there are.
    fn fill(&mut self, need: usize) -> usize {
        let have = self.left().len();
        if have >= need || self.ended {
            return have;
        }
        self.window.drain(..self.start);
        self.start = 0;
        let missing = (need - have).max(STEP_BYTES);
        match self.input.by_ref().take(missing as u64).read_to_end(&mut self.window) {
            Ok(read) => self.ended = read < missing,
            // What was read before it stands in the window.
            Err(error) => (self.ended, self.failed) = (true, Some(error)),
        }
        self.left().len()
    }

    fn advance(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    fn document(&mut self) -> Result<Option<Document>, FtdcError> {
        let have = self.fill(4);
        if have == 0 {
            return if self.offset == 0 { self.empty() } else { Ok(None) };
        }
        let Some(claimed) = length(self.left()) else {
            let damage = match have {
                0..4 => Damage::CutShort { claimed: 4, left: have as u64 },
                _ => Damage::NotFtdc("its length is negative"),
            };
            return self.skip(damage);
        };
        if claimed == 0 {
            return self.zeros();
        }
        if claimed < EMPTY_DOCUMENT_BYTES {
            return self.skip(Damage::NotFtdc("its length is less than that of an empty document"));
        }
        if claimed > self.limits.document_bytes {
            let (claimed, limit) = (claimed as u64, self.limits.document_bytes as u64);
            return self.skip(Damage::TooLarge { what: "bytes in a document", claimed, limit });
        }
        let have = self.fill(claimed);
        let Some(bytes) = self.left().get(..claimed) else {
            return self.skip(Damage::CutShort { claimed: claimed as u64, left: have as u64 });
        };
        match Head::of(bytes) {
            Ok(head) => {
                let bytes = bytes.to_vec();
                let document = Document { file: Arc::clone(&self.file), offset: self.offset, bytes, head };
                self.advance(claimed);
                Ok(Some(document))
            }
            Err(damage) => self.skip(damage),
        }
    }

    /// Nothing at all: well for what is to be filled, said once of any other.
    fn empty(&mut self) -> Result<Option<Document>, FtdcError> {
        let to_be_filled = self.file.file_name().is_some_and(|name| name == INTERIM);
        if to_be_filled || self.failed.is_some() || std::mem::replace(&mut self.told_empty, true) {
            return Ok(None);
        }
        Err(FtdcError::Damaged(Fault { file: Arc::clone(&self.file), offset: 0, lost_bytes: 0, damage: Damage::Empty }))
    }

    /// A length of zero: mongod's sentinel where nothing else follows, a fault otherwise.
    fn zeros(&mut self) -> Result<Option<Document>, FtdcError> {
        let offset = self.offset;
        // Beyond this place: a document whose length was overwritten with zeros must not be found again.
        self.advance(1);
        let only_zeros = self.search();
        let lost_bytes = self.offset - offset;
        if only_zeros && lost_bytes <= SENTINEL_BYTES && self.left().is_empty() {
            return Ok(None);
        }
        let damage = if only_zeros { Damage::Zeros(lost_bytes) } else { Damage::NotFtdc("its length is zero") };
        Err(FtdcError::Damaged(Fault { file: Arc::clone(&self.file), offset, lost_bytes, damage }))
    }

    /// Reports the damage here and stands at the next document behind it, or at the end.
    fn skip(&mut self, damage: Damage) -> Result<Option<Document>, FtdcError> {
        let offset = self.offset;
        let whole = !matches!(damage, Damage::CutShort { .. });
        if !whole && self.failed.is_some() {
            // It is not the file that ends here: the error tells of what is missing from this document on.
            self.window.clear();
            self.start = 0;
            return Ok(None);
        }
        // What does not begin like a document, and has none in it either, is no damaged recording.
        let foreign = offset == 0 && whole && !begins_like_one(self.left());
        self.advance(1);
        self.search();
        let nothing_found = self.left().is_empty();
        let damage = if foreign && nothing_found { Damage::NotFtdc(ANOTHER_KIND) } else { damage };
        let lost_bytes = self.offset - offset;
        Err(FtdcError::Damaged(Fault { file: Arc::clone(&self.file), offset, lost_bytes, damage }))
    }

    /// Moves to the next place that looks like a document's beginning, or to the end; says whether only zeros were
    /// passed.
    fn search(&mut self) -> bool {
        let mut only_zeros = true;
        loop {
            let last = self.fill(SIGNATURE_BYTES) < SIGNATURE_BYTES;
            let found = signature(self.left());
            let passed = match found {
                Ok(at) => at,
                Err(_) if last => self.left().len(),
                Err(passed) => passed,
            };
            only_zeros &= self.left().iter().take(passed).all(|byte| *byte == 0);
            self.advance(passed);
            if last || found.is_ok() {
                return only_zeros;
            }
        }
    }

    /// Why the system refused to read on, once.
    fn failure(&mut self) -> Option<FtdcError> {
        let source = self.failed.take()?;
        // Of a file that could not be read nobody knows whether it is.
        self.told_empty = true;
        Some(FtdcError::read(&self.file, source))
    }
}

/// What is said of a file in which nothing looks like a document.
const ANOTHER_KIND: &str = "nothing in this file looks like one, so it is a file of another kind";

/// Whether a document's head stands at the beginning, whatever the length before it says.
fn begins_like_one(bytes: &[u8]) -> bool {
    bytes.get(4..).is_some_and(|head| head.starts_with(ID))
}

/// Where the first signature in these bytes begins; else how many bytes certainly begin none.
fn signature(bytes: &[u8]) -> Result<usize, usize> {
    let found = memchr::memmem::find_iter(bytes, ID).find(|at| {
        let of_type = at + ID.len() + 8;
        *at >= 4 && bytes.get(of_type..).is_some_and(|rest| rest.starts_with(TYPE))
    });
    match found {
        Some(at) => Ok(at - 4),
        None => Err((bytes.len() + 1).saturating_sub(SIGNATURE_BYTES)),
    }
}

impl<R: Read> Iterator for Documents<R> {
    type Item = Result<Document, FtdcError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.document() {
            Ok(None) => self.failure().map(Err),
            other => other.transpose(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Builder, DocumentKind};

    fn metadata(at_ms: i64) -> Vec<u8> {
        Builder::new().date("_id", at_ms).int32("type", 0).document("doc", |doc| doc.string("a", "b")).finish()
    }

    fn read(bytes: &[u8]) -> (Vec<i64>, Vec<Fault>) {
        let (mut times, mut faults) = (Vec::new(), Vec::new());
        for document in Documents::new(bytes, Path::new("f"), Limits::default()) {
            match document {
                Ok(document) => times.push(document.at_ms()),
                Err(FtdcError::Damaged(fault)) => faults.push(fault),
                Err(other) => panic!("{other}"),
            }
        }
        (times, faults)
    }

    fn file(count: i64) -> Vec<u8> {
        (1..=count).flat_map(metadata).collect()
    }

    #[test]
    fn a_sentinel_is_no_fault() {
        assert_eq!(read(&[0; 8]), (vec![], vec![]));
    }

    #[test]
    fn a_wrong_length_costs_one_document() {
        let size = metadata(0).len();
        for wrong in [0u32, 1, 20, size as u32 - 1, size as u32 + 1, 2 * size as u32, 1 << 20, u32::MAX] {
            let mut bytes = file(4);
            bytes[size..size + 4].copy_from_slice(&wrong.to_le_bytes());
            let (times, faults) = read(&bytes);
            assert_eq!(times, [1, 3, 4], "{wrong}");
            assert_eq!((faults.len(), faults[0].offset, faults[0].lost_bytes), (1, size as u64, size as u64));
        }
    }

    #[test]
    fn a_cut_end_is_a_fault_with_its_place() {
        let bytes = file(2);
        let size = (bytes.len() / 2) as u64;
        for cut in size + 1..2 * size {
            let (times, faults) = read(&bytes[..cut as usize]);
            assert_eq!((times, faults.len()), (vec![1], 1));
            assert_eq!((faults[0].offset, faults[0].lost_bytes), (size, cut - size));
        }
    }

    #[test]
    fn an_empty_file_is_said_to_be_empty_but_for_one_that_is_to_be_filled() {
        let (times, faults) = read(&[]);
        assert_eq!((times.len(), faults.len(), &faults[0].damage), (0, 1, &Damage::Empty));
        assert_eq!(Documents::new(&[][..], Path::new("d/metrics.interim"), Limits::default()).count(), 0);
        let (_, faults) = read(&metadata(1));
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn zeros_between_documents_and_at_the_end_are_said() {
        let mut bytes = metadata(1);
        bytes.extend([0; 4_096]);
        bytes.extend(metadata(2));
        bytes.extend([0; 100]);
        let (times, faults) = read(&bytes);
        assert_eq!(times, [1, 2]);
        assert_eq!(
            faults.iter().map(|f| f.damage.clone()).collect::<Vec<_>>(),
            [Damage::Zeros(4_096), Damage::Zeros(100)]
        );
    }

    #[test]
    fn a_document_behind_garbage_is_found_across_reads() {
        let mut bytes = vec![0xAA; STEP_BYTES - 10];
        bytes.extend(metadata(7));
        let (times, faults) = read(&bytes);
        assert_eq!((times, faults.len()), (vec![7], 1));
    }

    /// Refuses to be read, as a disk does that has a bad block.
    struct Refusing;

    impl Read for Refusing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("a bad block"))
        }
    }

    #[test]
    fn what_was_read_before_an_error_of_the_system_is_handed_on_first() {
        let bytes = file(3);
        let size = bytes.len() / 3;
        for cut in [0, 2, size - 1, 2 * size, 2 * size + 2, 3 * size - 1, 3 * size] {
            let input = Read::chain(&bytes[..cut], Refusing);
            let mut documents = Documents::new(input, Path::new("f"), Limits::default());
            let told: Vec<_> = documents.by_ref().collect();
            let times: Vec<i64> = told.iter().flatten().map(Document::at_ms).collect();
            assert_eq!(times, (1..=(cut / size) as i64).collect::<Vec<_>>(), "{cut}");
            assert_eq!(told.len(), times.len() + 1, "the error, once: {told:?}");
            assert!(matches!(told.last(), Some(Err(FtdcError::Read { .. }))), "{told:?}");
            assert_eq!(documents.offset(), (cut / size * size) as u64);
        }
    }

    #[test]
    fn a_file_of_another_kind_is_told_as_one() {
        for bytes in [
            &b"# HELP go_gc_duration_seconds A summary"[..],
            &[0x89, b'P', b'N', b'G', 13, 10, 26, 10, 0, 0],
            &[0xFF; 99],
        ] {
            let (_, faults) = read(bytes);
            assert_eq!((faults.len(), &faults[0].damage), (1, &Damage::NotFtdc(ANOTHER_KIND)));
        }
    }

    #[test]
    fn unknown_types_are_documents_too() {
        let bytes = Builder::new().date("_id", 1).int32("type", 77).finish();
        let all: Vec<_> = Documents::new(&bytes[..], Path::new("f"), Limits::default()).collect();
        assert_eq!(all[0].as_ref().unwrap().kind(), DocumentKind::Other(77));
    }
}
