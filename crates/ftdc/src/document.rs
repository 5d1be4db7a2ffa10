//! One document of a recorder's file: metadata, a chunk of samples, or a change of metadata.

use crate::bson::{elements, kind};
use crate::{Damage, Fault, FtdcError};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What a document holds: its field `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// 0: what does not change while the server runs: its build, its options, its host.
    Metadata,
    /// 1: samples.
    Chunk,
    /// 2: metadata that changed (since MongoDB 8.0).
    MetadataDelta,
    /// A type not known here. It is passed on, not lost.
    Other(i64),
}

/// A whole document as it lies in a file.
#[derive(Clone, Debug)]
pub struct Document {
    pub(crate) file: Arc<Path>,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) head: Head,
}

/// What stands around the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) at_ms: i64,
    pub(crate) kind: DocumentKind,
    /// Where in the document its body lies: compressed data of a chunk, a BSON document otherwise.
    pub(crate) body: Range<usize>,
    /// Which change of metadata it is; 0 begins anew.
    pub(crate) index: Option<i64>,
}

impl Document {
    /// The file it came from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Where in the file it begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its field `_id`, in milliseconds since 1970: the time of a chunk's first sample (before MongoDB 4.2 the time at
    /// which the chunk was written).
    pub fn at_ms(&self) -> i64 {
        self.head.at_ms
    }

    /// What it holds.
    pub fn kind(&self) -> DocumentKind {
        self.head.kind
    }

    /// The whole document as BSON.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A chunk's data (four bytes of length, then zlib), or the BSON document of metadata.
    pub fn body(&self) -> &[u8] {
        self.bytes.get(self.head.body.clone()).unwrap_or_default()
    }

    /// Which change of metadata it is, counted from 0, where a document says so.
    pub fn index(&self) -> Option<i64> {
        self.head.index
    }

    /// This damage, at this document's place.
    pub fn fault(&self, damage: Damage) -> FtdcError {
        let lost_bytes = if matches!(damage, Damage::Backwards(_)) { 0 } else { self.bytes.len() as u64 };
        FtdcError::Damaged(Fault { file: Arc::clone(&self.file), offset: self.offset, lost_bytes, damage })
    }
}

/// Elements at the top of a document. mongod writes three or four; more than this many are not looked at.
const MOST_ELEMENTS: usize = 16;

impl Head {
    /// Reads what stands around the body. The body itself is not looked into.
    pub(crate) fn of(document: &[u8]) -> Result<Head, Damage> {
        let mut at_ms = None;
        let mut number = None;
        let mut index = None;
        let (mut data, mut doc) = (None, None);
        for (count, element) in elements(document)?.enumerate() {
            let element = element?;
            if count == MOST_ELEMENTS {
                return Err(Damage::NotFtdc("it has too many fields"));
            }
            let place = place_of(document, element.value);
            match (element.key, element.kind) {
                (b"_id", kind::DATE) => at_ms = element.integer(),
                (b"type", _) => number = element.integer(),
                (b"index" | b"count", _) => index = element.integer(),
                // Four bytes of length and one of subtype stand before the data.
                (b"data", kind::BINARY) => data = Some(place.start + 5..place.end),
                (b"doc", kind::DOCUMENT) => doc = Some(place),
                _ => {}
            }
        }
        let at_ms = at_ms.ok_or(Damage::NotFtdc("it has no date as _id"))?;
        let kind = match number.ok_or(Damage::NotFtdc("it has no type"))? {
            0 => DocumentKind::Metadata,
            1 => DocumentKind::Chunk,
            2 => DocumentKind::MetadataDelta,
            other => DocumentKind::Other(other),
        };
        let body = match kind {
            DocumentKind::Chunk => data.ok_or(Damage::NotFtdc("a chunk without data"))?,
            DocumentKind::Other(_) => data.or(doc).unwrap_or(0..0),
            _ => doc.ok_or(Damage::NotFtdc("metadata without a document"))?,
        };
        Ok(Head { at_ms, kind, body, index })
    }
}

/// Where a part of these bytes lies in them.
fn place_of(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Builder;

    #[test]
    fn a_chunk_needs_a_date_a_type_and_data() {
        let whole = Builder::new().date("_id", 5).int32("type", 1).binary("data", b"abc").finish();
        let head = Head::of(&whole).unwrap();
        assert_eq!((head.at_ms, head.kind, &whole[head.body]), (5, DocumentKind::Chunk, &b"abc"[..]));
        let no_date = Builder::new().int32("_id", 5).int32("type", 1).binary("data", b"abc").finish();
        let no_type = Builder::new().date("_id", 5).binary("data", b"abc").finish();
        let no_data = Builder::new().date("_id", 5).int32("type", 1).finish();
        for document in [no_date, no_type, no_data] {
            assert!(matches!(Head::of(&document), Err(Damage::NotFtdc(_))));
        }
    }

    #[test]
    fn a_type_of_tomorrow_is_passed_on() {
        let whole = Builder::new().date("_id", 5).int64("type", 9).document("doc", |doc| doc.int32("a", 1)).finish();
        assert_eq!(Head::of(&whole).unwrap().kind, DocumentKind::Other(9));
    }
}
