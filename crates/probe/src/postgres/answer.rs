//! What a server sends to a question's end, kept as it came.

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use tokio_postgres::error::SqlState;
use tokio_postgres::fallible_iterator::FallibleIterator;
use tokio_postgres::types::Type;

/// A message's type and its length, which counts itself.
const HEAD_BYTES: usize = 5;
const COMMAND_COMPLETE: u8 = b'C';
const ERROR_RESPONSE: u8 = b'E';
const READY_FOR_QUERY: u8 = b'Z';
const ROW: u8 = b'D';
const ROW_DESCRIPTION: u8 = b'T';
/// An answer that is larger is none to a look: ten thousand sessions with a text each, of 1,024 characters of four bytes, would
/// have some 42 MiB.
const MOST_BYTES: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The server says so; it can be asked again.
    Refused { code: SqlState, message: String },
    /// There is none yet: nothing may be asked by this connection any more, by the library neither.
    Late,
    /// As before, because the connection is gone or what came is no answer.
    Broken(String),
}

/// The types of an answer's columns; none that PostgreSQL does not have itself.
pub(super) type Columns = Arc<[Option<Type>]>;

/// What the server sent until it was ready for more, as it came.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    /// How much of it was looked at: whole messages.
    seen: usize,
    rows: usize,
    /// Where the first message lies that is an error.
    refusal: Option<Range<usize>>,
    /// Whether all rows came that there are.
    pub(super) is_complete: bool,
    is_ready: bool,
}

impl Answer {
    pub(super) fn kept_in(mut buffer: Vec<u8>) -> Answer {
        buffer.clear();
        Answer { bytes: buffer, ..Answer::default() }
    }

    /// Whether all has come. What a server says unasked may follow; it is left out, but not cut.
    ///
    /// # Errors
    /// What came is no protocol, or too much.
    pub(super) fn is_whole(&mut self) -> Result<bool, String> {
        while let Some((kind, length)) = head_of(&self.bytes[self.seen..])? {
            let end = self.seen.saturating_add(length);
            if end > MOST_BYTES {
                return Err("the server sent more than 64 MiB about its sessions".to_owned());
            }
            if end > self.bytes.len() {
                return Ok(false);
            }
            match kind {
                ROW => self.rows += 1,
                COMMAND_COMPLETE => self.is_complete = true,
                ERROR_RESPONSE => _ = self.refusal.get_or_insert(self.seen..end),
                READY_FOR_QUERY => self.is_ready = true,
                _ => {}
            }
            self.seen = end;
        }
        Ok(self.is_ready && self.seen == self.bytes.len())
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> usize {
        self.rows
    }

    /// The bodies of its rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        messages(&self.bytes).filter(|(kind, _)| *kind == ROW).map(|(_, row)| &row[HEAD_BYTES..])
    }

    /// The memory it was kept in.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn refusal(&self) -> Option<Unanswered> {
        let message = &self.bytes[self.refusal.clone()?];
        Some(refusal_in(message).unwrap_or_else(Unanswered::Broken))
    }

    /// Of an answer that does not go on: with the server's last words, where there were any.
    pub(super) fn unfinished(&self, why: Errno) -> Unanswered {
        match (self.refusal(), why) {
            (_, Errno::TIMEDOUT) => Unanswered::Late,
            (Some(Unanswered::Refused { message, .. }), _) => Unanswered::Broken(message),
            (_, Errno::CONNRESET | Errno::PIPE) => Unanswered::Broken("connection closed".to_owned()),
            (_, why) => Unanswered::Broken(why.to_string()),
        }
    }
}

/// What a message is, and how many bytes it has with its head; none where that has not come.
fn head_of(bytes: &[u8]) -> Result<Option<(u8, usize)>, String> {
    let Some(([kind, length @ ..], _)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length < HEAD_BYTES - 1 {
        return Err("the server sent a message shorter than its own length".to_owned());
    }
    Ok(Some((*kind, length.saturating_add(1))))
}

/// Messages that lie one after the other, up to the last that is whole: what each is, and all of it.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, length) = head_of(bytes).ok().flatten()?;
        let (message, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Some((kind, message))
    })
}

/// A message as the library's own parser has it.
fn parsed(message: &[u8]) -> Result<Option<Message>, String> {
    Message::parse(&mut BytesMut::from(message)).map_err(|error| error.to_string())
}

/// The types of the columns that are described there.
pub(super) fn columns_of(answer: &[u8]) -> Result<Columns, String> {
    let described = messages(answer).find(|(kind, _)| *kind == ROW_DESCRIPTION);
    match described.map_or(Ok(None), |(_, message)| parsed(message))? {
        Some(Message::RowDescription(columns)) => {
            let types = columns.fields().map(|column| Ok(Type::from_oid(column.type_oid()))).collect::<Vec<_>>();
            types.map(Columns::from).map_err(|error| error.to_string())
        }
        _ => Err("the server described no columns".to_owned()),
    }
}

/// What an error says.
fn refusal_in(message: &[u8]) -> Result<Unanswered, String> {
    let Some(Message::ErrorResponse(error)) = parsed(message)? else { return Err("no error".to_owned()) };
    let field = |wanted: u8| {
        let found = error.fields().find(|field| Ok(field.type_() == wanted)).map_err(|error| error.to_string())?;
        Ok::<_, String>(
            found.map(|field| String::from_utf8_lossy(field.value_bytes()).into_owned()).unwrap_or_default(),
        )
    };
    Ok(Unanswered::Refused { code: SqlState::from_code(&field(b'C')?), message: field(b'M')? })
}

/// Any bytes in pieces of any size, as a server may send them.
#[cfg(fuzzing)]
pub fn exercise(bytes: &[u8], piece: usize) {
    let mut answer = Answer::default();
    for piece in bytes.chunks(piece.max(1)) {
        answer.bytes.extend_from_slice(piece);
        if !matches!(answer.is_whole(), Ok(false)) {
            break;
        }
    }
    assert_eq!(answer.rows().count(), answer.count(), "a row was lost or made up");
    answer.rows().for_each(super::row::exercise);
    let _ = (columns_of(bytes), answer.refusal());
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    pub(in crate::postgres) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() + HEAD_BYTES - 1) as u32;
        [&[kind], length.to_be_bytes().as_slice(), body].concat()
    }

    pub(in crate::postgres) fn ready() -> Vec<u8> {
        message(b'Z', b"I")
    }

    /// What becomes of an answer that comes in such pieces.
    fn taken(bytes: &[u8], piece: usize) -> Result<Option<Answer>, String> {
        let mut answer = Answer::default();
        for piece in bytes.chunks(piece) {
            answer.bytes.extend_from_slice(piece);
            if answer.is_whole()? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    proptest! {
        #[test]
        fn an_answer_is_whole_with_its_end_and_has_its_rows_in_whatever_pieces_it_comes(
            before in vec((prop::sample::select(b"12TDNSC".to_vec()), vec(any::<u8>(), 0..40)), 0..12),
            after in vec((prop::sample::select(b"NSA".to_vec()), vec(any::<u8>(), 0..40)), 0..3),
            piece in 1..60_usize,
        ) {
            let all = |some: &[(u8, Vec<u8>)]| some.iter().flat_map(|(kind, body)| message(*kind, body)).collect::<Vec<_>>();
            let answer = [all(&before), ready()].concat();
            for cut in 0..answer.len() {
                prop_assert!(taken(&answer[..cut], piece).unwrap().is_none());
            }
            // What is cut when the server was ready is waited for.
            let with_more = [answer.clone(), all(&after)].concat();
            let got = taken(&with_more, with_more.len()).unwrap().unwrap();
            prop_assert_eq!(&got.bytes, &with_more);
            prop_assert!(answer.len() == with_more.len() || taken(&with_more[..with_more.len() - 1], with_more.len()).unwrap().is_none());
            let got = taken(&answer, piece).unwrap().unwrap();
            let rows: Vec<&[u8]> = before.iter().filter(|(kind, _)| *kind == ROW).map(|(_, body)| body.as_slice()).collect();
            prop_assert_eq!(got.count(), rows.len());
            prop_assert_eq!(got.rows().collect::<Vec<_>>(), rows);
            prop_assert_eq!(got.is_complete, before.iter().any(|(kind, _)| *kind == COMMAND_COMPLETE));
        }
    }

    #[test]
    fn what_is_no_protocol_is_refused() {
        assert_eq!(taken(&[b'D', 0, 0, 0, 3], 5).unwrap_err(), "the server sent a message shorter than its own length");
        let endless = taken(&[b'D', 0x7f, 0xff, 0xff, 0xff], 1).unwrap_err();
        assert_eq!(endless, "the server sent more than 64 MiB about its sessions");
    }
}
