//! The console's messages: what a client says, read whole and bounded, and what it is answered. (PostgreSQL
//! documentation, "Message Formats".)

use super::answer::{Answer, Column, Value};
use crate::wire::error_or_notice;

/// A client's message that is longer is refused: statements are short.
pub(super) const MOST_BYTES: usize = 256 * 1024;

/// A message of a client, type and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) kind: u8,
    pub(super) body: Vec<u8>,
}

/// A length that cannot be, or is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message has {0} bytes: the console takes up to {MOST_BYTES}")]
pub(super) struct TooLong(u32);

/// Takes the first whole message out of what was read. None where more is needed.
pub(super) fn take(read: &mut Vec<u8>) -> Result<Option<Said>, TooLong> {
    let Some(([kind, a, b, c, d], _)) = read.split_first_chunk::<5>() else { return Ok(None) };
    let (kind, said) = (*kind, u32::from_be_bytes([*a, *b, *c, *d]));
    let length = said as usize;
    if !(4..=MOST_BYTES).contains(&length) {
        return Err(TooLong(said));
    }
    if read.len() < 1 + length {
        return Ok(None);
    }
    let rest = read.split_off(1 + length);
    let body = std::mem::replace(read, rest).split_off(5);
    Ok(Some(Said { kind, body }))
}

/// Reads a body piece by piece.
pub(super) struct Body<'b>(pub(super) &'b [u8]);

impl<'b> Body<'b> {
    /// A text with its zero; None where it has none or is no UTF-8.
    pub(super) fn text(&mut self) -> Option<&'b str> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&self.0[..end]).ok()?;
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i16::from_be_bytes(*bytes))
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*bytes))
    }
}

/// What is answered, collected until it is sent.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) sqlstate: &'static str,
    pub(super) message: String,
    /// In characters from 1; 0 for nowhere.
    pub(super) position: usize,
}

impl Complaint {
    pub(super) fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Complaint { sqlstate, message: message.into(), position: 0 }
    }
}

impl Reply {
    /// One message.
    pub(super) fn put(&mut self, kind: u8, body: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        self.bytes.extend_from_slice(body);
    }

    /// An Authentication message.
    pub(super) fn authentication(&mut self, code: u32, rest: &[u8]) {
        self.put(b'R', &[&code.to_be_bytes(), rest].concat());
    }

    /// A ParameterStatus.
    pub(super) fn parameter(&mut self, name: &str, value: &str) {
        self.put(b'S', format!("{name}\0{value}\0").as_bytes());
    }

    /// ReadyForQuery, with where the transaction stands.
    pub(super) fn ready(&mut self, status: u8) {
        self.put(b'Z', &[status]);
    }

    /// An ErrorResponse; the session goes on.
    pub(super) fn error(&mut self, complaint: &Complaint) {
        let Complaint { sqlstate, message, position } = complaint;
        self.bytes.extend(error_or_notice(b'E', "ERROR", sqlstate, message, *position));
    }

    /// A NoticeResponse.
    pub(super) fn notice(&mut self, message: &str) {
        self.bytes.extend(error_or_notice(b'N', "NOTICE", "00000", message, 0));
    }

    /// A RowDescription; formats as in a Bind, none for text.
    pub(super) fn columns(&mut self, columns: &[Column], formats: &[i16]) {
        let mut body = (columns.len() as u16).to_be_bytes().to_vec();
        for (number, column) in columns.iter().enumerate() {
            body.extend_from_slice(column.name.as_bytes());
            body.push(0);
            // Of no table.
            body.extend_from_slice(&[0; 6]);
            let (oid, size) = column.kind.type_of();
            body.extend_from_slice(&oid.to_be_bytes());
            body.extend_from_slice(&size.to_be_bytes());
            body.extend_from_slice(&(-1i32).to_be_bytes());
            body.extend_from_slice(&format_of(formats, number).to_be_bytes());
        }
        self.put(b'T', &body);
    }

    /// A DataRow.
    pub(super) fn row(&mut self, row: &[Value], formats: &[i16]) {
        let mut body = (row.len() as u16).to_be_bytes().to_vec();
        for (number, value) in row.iter().enumerate() {
            match value.encoded(format_of(formats, number) == 1) {
                Some(bytes) => {
                    body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                    body.extend_from_slice(&bytes);
                }
                None => body.extend_from_slice(&(-1i32).to_be_bytes()),
            }
        }
        self.put(b'D', &body);
    }

    /// CommandComplete.
    pub(super) fn complete(&mut self, tag: &str) {
        self.put(b'C', format!("{tag}\0").as_bytes());
    }

    /// All of an answer, as a simple query gets it.
    pub(super) fn answer(&mut self, answer: &Answer) {
        answer.notices.iter().for_each(|notice| self.notice(notice));
        if !answer.columns.is_empty() {
            self.columns(answer.columns, &[]);
            answer.rows.iter().for_each(|row| self.row(row, &[]));
        }
        self.complete(&answer.tag);
    }
}

/// None: text for all; one: for all; else one each.
fn format_of(formats: &[i16], column: usize) -> i16 {
    match formats {
        [] => 0,
        [all] => *all,
        each => each.get(column).copied().unwrap_or(0),
    }
}

/// Reads bytes as messages: what is taken, and what is left, is what there was. For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn exercise(bytes: &[u8]) {
    let mut left = bytes.to_vec();
    let mut taken = 0;
    while let Ok(Some(said)) = take(&mut left) {
        taken += 5 + said.body.len();
        let mut body = Body(&said.body);
        while body.text().is_some() || body.i32().is_some() || body.i16().is_some() || body.byte().is_some() {}
        assert!(body.0.is_empty());
    }
    assert_eq!(&bytes[taken..], left);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_that_cannot_be_is_refused() {
        assert!(take(&mut vec![b'Q', 0, 0, 0, 3]).is_err());
        assert!(take(&mut vec![b'Q', 0x7f, 0, 0, 0]).is_err());
        assert_eq!(take(&mut vec![b'Q', 0, 0, 0]), Ok(None));
    }

    proptest! {
        /// However messages are cut, they are taken one by one and whole.
        #[test]
        fn messages_are_taken_whole(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..5), cut in 1..20usize) {
            let mut stream = Reply::default();
            bodies.iter().for_each(|body| stream.put(b'x', body));
            let (mut read, mut taken) = (Vec::new(), Vec::new());
            for piece in stream.bytes.chunks(cut) {
                read.extend_from_slice(piece);
                while let Some(said) = take(&mut read).unwrap() { taken.push(said.body) }
            }
            prop_assert_eq!(taken, bodies);
            prop_assert!(read.is_empty());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut read = bytes.clone();
            while let Ok(Some(_)) = take(&mut read) {}
            let mut body = Body(&bytes);
            let _ = (body.text(), body.i16(), body.byte(), body.i32(), body.text());
        }
    }
}
