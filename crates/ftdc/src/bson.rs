//! Reading BSON as it lies in memory: no copies, keys in their order, a repeated key as often as it is there (which
//! is why no map stands behind this). Format: bsonspec.org, version 1.1.

use crate::Damage;

/// Element types that this crate looks into.
pub(crate) mod kind {
    pub(crate) const DOUBLE: u8 = 0x01;
    pub(crate) const STRING: u8 = 0x02;
    pub(crate) const DOCUMENT: u8 = 0x03;
    pub(crate) const ARRAY: u8 = 0x04;
    pub(crate) const BINARY: u8 = 0x05;
    pub(crate) const OBJECT_ID: u8 = 0x07;
    pub(crate) const BOOL: u8 = 0x08;
    pub(crate) const DATE: u8 = 0x09;
    pub(crate) const NULL: u8 = 0x0A;
    pub(crate) const INT32: u8 = 0x10;
    pub(crate) const TIMESTAMP: u8 = 0x11;
    pub(crate) const INT64: u8 = 0x12;
    pub(crate) const DECIMAL: u8 = 0x13;
}

/// Bytes of the smallest document.
pub(crate) const EMPTY_DOCUMENT_BYTES: usize = 5;

/// One element of a document.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// BSON's number of its type.
    pub kind: u8,
    /// Its key, without the final zero. Not necessarily UTF-8.
    pub key: &'a [u8],
    /// Its value as it is stored, with a length in front where the type has one.
    pub value: &'a [u8],
}

impl<'a> Element<'a> {
    /// An integer of any numeric type; doubles are truncated.
    pub fn integer(&self) -> Option<i64> {
        Some(match self.kind {
            kind::INT32 => i64::from(i32::from_le_bytes(self.value.try_into().ok()?)),
            kind::INT64 | kind::DATE => i64::from_le_bytes(self.value.try_into().ok()?),
            kind::DOUBLE => f64::from_le_bytes(self.value.try_into().ok()?) as i64,
            kind::BOOL => i64::from(self.value.first().copied()? != 0),
            _ => return None,
        })
    }

    /// A string, with what is not UTF-8 replaced.
    pub fn text(&self) -> Option<std::borrow::Cow<'a, str>> {
        let bytes = self.value.get(4..self.value.len().checked_sub(1)?)?;
        (self.kind == kind::STRING).then(|| String::from_utf8_lossy(bytes))
    }

    /// The elements of a document or an array.
    pub fn elements(&self) -> Option<Elements<'a>> {
        self.is_document().then(|| elements(self.value).ok())?
    }

    pub(crate) fn is_document(&self) -> bool {
        matches!(self.kind, kind::DOCUMENT | kind::ARRAY)
    }
}

/// The elements of a document, in order. Ends after the first damage.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

/// The elements of a whole document: its length, its elements, its final zero, and nothing after.
pub fn elements(document: &[u8]) -> Result<Elements<'_>, Damage> {
    let claimed = length(document).ok_or(Damage::Bson("a document is shorter than its length"))?;
    if claimed < EMPTY_DOCUMENT_BYTES || claimed != document.len() {
        return Err(Damage::Bson("a document's length is wrong"));
    }
    match document.split_last() {
        Some((0, front)) => Ok(Elements { rest: front.get(4..).unwrap_or_default() }),
        _ => Err(Damage::Bson("a document does not end with a zero")),
    }
}

/// The first element with this key.
pub fn find<'a>(document: &'a [u8], key: &str) -> Option<Element<'a>> {
    elements(document).ok()?.map_while(Result::ok).find(|element| element.key == key.as_bytes())
}

/// The first element at this path of keys.
pub fn find_path<'a>(document: &'a [u8], path: &[&str]) -> Option<Element<'a>> {
    let (last, parents) = path.split_last()?;
    let mut inside = document;
    for key in parents {
        let element = find(inside, key)?;
        inside = element.is_document().then_some(element.value)?;
    }
    find(inside, last)
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, rest) = self.rest.split_first()?;
        let element = split(*kind, rest);
        self.rest = match &element {
            Ok((_, rest)) => rest,
            Err(_) => &[],
        };
        Some(element.map(|(element, _)| element))
    }
}

fn split(kind: u8, bytes: &[u8]) -> Result<(Element<'_>, &[u8]), Damage> {
    let end = memchr::memchr(0, bytes).ok_or(Damage::Bson("a key does not end"))?;
    let (key, rest) = bytes.split_at(end);
    let rest = rest.get(1..).unwrap_or_default();
    let width = width(kind, rest)?;
    let (value, rest) = rest.split_at_checked(width).ok_or(Damage::Bson("a value ends after its document"))?;
    Ok((Element { kind, key, value }, rest))
}

/// Bytes of a value of this type that begins here.
fn width(kind: u8, rest: &[u8]) -> Result<usize, Damage> {
    let counted = |extra: usize, least: usize| match length(rest) {
        Some(length) if length >= least => Ok(length.saturating_add(extra)),
        _ => Err(Damage::Bson("a value's length is wrong")),
    };
    match kind {
        kind::DOUBLE | kind::DATE | kind::TIMESTAMP | kind::INT64 => Ok(8),
        kind::STRING | 0x0D | 0x0E => counted(4, 1),
        kind::DOCUMENT | kind::ARRAY => counted(0, EMPTY_DOCUMENT_BYTES),
        kind::BINARY => counted(5, 0),
        0x06 | kind::NULL | 0x7F | 0xFF => Ok(0),
        kind::OBJECT_ID => Ok(12),
        kind::BOOL => Ok(1),
        0x0B => regex_width(rest),
        0x0C => counted(16, 1),
        0x0F => counted(0, 14),
        kind::INT32 => Ok(4),
        kind::DECIMAL => Ok(16),
        _ => Err(Damage::Bson("an element has an unknown type")),
    }
}

/// A regular expression is two strings, each ended by a zero.
fn regex_width(rest: &[u8]) -> Result<usize, Damage> {
    let mut zeros = memchr::memchr_iter(0, rest);
    zeros.nth(1).map(|at| at + 1).ok_or(Damage::Bson("a regular expression does not end"))
}

/// The length at the front of these bytes; none if there is none or it is negative.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let four = bytes.first_chunk::<4>()?;
    usize::try_from(i32::from_le_bytes(*four)).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Builder;
    use proptest::prelude::*;

    #[test]
    fn keys_are_kept_in_order_and_repeated() {
        let document = Builder::new().int32("a", 1).int32("a", 2).string("b", "x").null("c").finish();
        let all: Vec<_> = elements(&document).unwrap().map(|element| element.unwrap().key.to_vec()).collect();
        assert_eq!(all, [b"a".to_vec(), b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        assert_eq!(find(&document, "b").unwrap().text().unwrap(), "x");
        assert_eq!(find(&document, "a").unwrap().integer(), Some(1));
    }

    #[test]
    fn paths_go_through_documents_only() {
        let document = Builder::new().document("a", |inside| inside.int64("b", 7)).int32("c", 1).finish();
        assert_eq!(find_path(&document, &["a", "b"]).unwrap().integer(), Some(7));
        assert!(find_path(&document, &["c", "b"]).is_none() && find_path(&document, &[]).is_none());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(elements) = elements(&bytes) {
                for element in elements {
                    let _ = element.map(|e| (e.integer(), e.text().map(|t| t.len()), e.elements().map(Iterator::count)));
                }
            }
            for kind in 0..=255u8 {
                let _ = split(kind, &bytes);
            }
        }
    }
}
