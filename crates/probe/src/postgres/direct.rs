//! Questions asked by a Unix socket itself, while the library, whose connection it is, has nothing under way there. Hundreds
//! of sessions are looked at ten times a second, and in the library's way with an answer much is in no cache any more at each
//! look: memory for each row, tasks that are woken, polled and handed on. Here a thread asks, waits and has the rows as they
//! came; what that saves is in docs/bench/overhead.md.

use super::row::ServerTime;
use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendFlags, send};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::fallible_iterator::FallibleIterator;
use tokio_postgres::types::{ToSql, Type};

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
/// How much is read at once.
const READ_BYTES: usize = 32 << 10;
/// How long the rest of an answer is waited for that has begun, which counts as the server's time. The server sends 8 KiB at
/// a time, and whoever sleeps until there is more is woken by each, in the server's place where both share a processor.
const REST: Duration = Duration::from_micros(100);

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

/// The socket of a connection, beside its library.
#[derive(Debug)]
pub(super) struct Direct {
    socket: OwnedFd,
    /// What was prepared here, by name.
    prepared: HashMap<&'static str, Columns>,
    outgoing: BytesMut,
}

impl Direct {
    /// Of a socket that does not block.
    pub(super) fn new(socket: OwnedFd) -> Direct {
        Direct { socket, prepared: HashMap::new(), outgoing: BytesMut::new() }
    }

    /// Has a query prepared under this name, where it is not yet. Its parameters are two moments.
    ///
    /// # Errors
    /// [`Unanswered`], after so long at the latest.
    pub(super) fn prepare(
        &mut self,
        name: &'static str,
        sql: impl FnOnce() -> String,
        within: Duration,
    ) -> Result<(), Unanswered> {
        if self.prepared.contains_key(name) {
            return Ok(());
        }
        self.outgoing.clear();
        let asked = frontend::parse(name, &sql(), [Type::TIMESTAMPTZ.oid(); 2], &mut self.outgoing)
            .and_then(|()| frontend::describe(b'S', name, &mut self.outgoing));
        asked.map_err(|error| Unanswered::Broken(error.to_string()))?;
        let answer = self.exchange(Vec::new(), within)?;
        self.prepared.insert(name, columns_of(&answer.bytes).map_err(Unanswered::Broken)?);
        Ok(())
    }

    /// Asks what was prepared under this name. The rows are kept in this buffer, which is emptied first.
    ///
    /// # Errors
    /// As [`Direct::prepare`].
    pub(super) fn ask(
        &mut self,
        name: &str,
        moments: [ServerTime; 2],
        buffer: Vec<u8>,
        within: Duration,
    ) -> Result<(Columns, Answer), Unanswered> {
        let broken = |why: &str| Unanswered::Broken(why.to_owned());
        let columns = self.prepared.get(name).cloned().ok_or_else(|| broken("its question was not prepared"))?;
        self.outgoing.clear();
        let put = |moment: ServerTime, to: &mut BytesMut| {
            moment.to_sql(&Type::TIMESTAMPTZ, to)?;
            Ok(IsNull::No)
        };
        let bound = frontend::bind("", name, [1], moments, put, [1], &mut self.outgoing);
        bound.map_err(|_| broken("its parameters cannot be sent"))?;
        frontend::execute("", 0, &mut self.outgoing).map_err(|error| Unanswered::Broken(error.to_string()))?;
        let answer = self.exchange(buffer, within)?;
        if answer.is_complete { Ok((columns, answer)) } else { Err(broken("the server sent no end of an answer")) }
    }

    /// Sends what was put down, and reads until the server is ready for more.
    fn exchange(&mut self, buffer: Vec<u8>, within: Duration) -> Result<Answer, Unanswered> {
        let until = Instant::now() + within;
        frontend::sync(&mut self.outgoing);
        self.send(until)?;
        let mut answer = Answer::kept_in(buffer);
        while !answer.is_whole().map_err(Unanswered::Broken)? {
            if !self.read(&mut answer.bytes, until)? {
                return Err(answer.unfinished());
            }
        }
        answer.refusal().map_or(Ok(answer), Err)
    }

    fn send(&self, until: Instant) -> Result<(), Unanswered> {
        let mut left = &self.outgoing[..];
        while !left.is_empty() {
            match send(&self.socket, left, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => left = &left[count..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Unanswered::Broken(error.to_string())),
            }
        }
        Ok(())
    }

    /// Reads what there is, and waits where there is nothing. False at the end of the connection.
    fn read(&self, into: &mut Vec<u8>, until: Instant) -> Result<bool, Unanswered> {
        if !into.is_empty() {
            std::thread::sleep(REST);
        }
        into.reserve(READ_BYTES);
        loop {
            match retry_on_intr(|| rustix::io::read(&self.socket, spare_capacity(into))) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, until)?,
                Err(error) => return Err(Unanswered::Broken(error.to_string())),
            }
        }
    }

    fn wait(&self, flags: PollFlags, until: Instant) -> Result<(), Unanswered> {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|error| Unanswered::Broken(error.to_string()))?;
        match retry_on_intr(|| poll(&mut [PollFd::new(&self.socket, flags)], Some(&left))) {
            Ok(0) => Err(Unanswered::Late),
            Ok(_) => Ok(()),
            Err(error) => Err(Unanswered::Broken(error.to_string())),
        }
    }
}

/// What the server sent until it was ready for more, as it came.
#[derive(Debug, Default)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    /// How much of it was looked at: whole messages.
    seen: usize,
    rows: usize,
    /// Where the first message lies that is an error.
    refusal: Option<Range<usize>>,
    /// Whether all rows came that there are.
    is_complete: bool,
    is_ready: bool,
}

impl Answer {
    fn kept_in(mut buffer: Vec<u8>) -> Answer {
        buffer.clear();
        Answer { bytes: buffer, ..Answer::default() }
    }

    /// Whether all has come. What a server says unasked may follow; it is left out, but not cut.
    ///
    /// # Errors
    /// What came is no protocol, or too much.
    fn is_whole(&mut self) -> Result<bool, String> {
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

    fn refusal(&self) -> Option<Unanswered> {
        let message = &self.bytes[self.refusal.clone()?];
        Some(refusal_in(message).unwrap_or_else(Unanswered::Broken))
    }

    /// Of an answer whose connection ended in its midst: the server's last words, where there were any.
    fn unfinished(&self) -> Unanswered {
        match self.refusal() {
            Some(Unanswered::Refused { message, .. }) => Unanswered::Broken(message),
            _ => Unanswered::Broken("connection closed".to_owned()),
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
fn columns_of(answer: &[u8]) -> Result<Columns, String> {
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;

    const SOON: Duration = Duration::from_secs(60);

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() + HEAD_BYTES - 1) as u32;
        [&[kind], length.to_be_bytes().as_slice(), body].concat()
    }

    fn ready() -> Vec<u8> {
        message(b'Z', b"I")
    }

    fn ended() -> Vec<u8> {
        [message(b'C', b"SELECT\0"), ready()].concat()
    }

    fn error(code: &str, text: &str) -> Vec<u8> {
        message(b'E', format!("SERROR\0C{code}\0M{text}\0\0").as_bytes())
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

    /// As if a look had been prepared.
    fn direct(socket: UnixStream) -> Direct {
        socket.set_nonblocking(true).unwrap();
        let mut direct = Direct::new(socket.into());
        direct.prepared.insert("a look", Columns::from(Vec::new()));
        direct
    }

    /// A server that answers each question, as far as a Sync, with the next of these.
    fn server(answers: Vec<Vec<u8>>) -> (Direct, JoinHandle<Vec<Vec<u8>>>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let serving = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in answers {
                let mut question = Vec::new();
                while !question.ends_with(&message(b'S', b"")) {
                    let mut byte = [0];
                    theirs.read_exact(&mut byte).unwrap();
                    question.push(byte[0]);
                }
                asked.push(question);
                for piece in answer.chunks(8_192) {
                    theirs.write_all(piece).unwrap();
                }
            }
            asked
        });
        (direct(ours), serving)
    }

    #[test]
    fn what_is_prepared_is_asked_and_its_rows_are_kept() {
        let described =
            |oid: u32| [b"pid\0", [0; 6].as_slice(), &oid.to_be_bytes(), &[0, 4, 0, 0, 0, 0, 0, 0]].concat();
        let columns = [2_u16.to_be_bytes().to_vec(), described(23), described(70_000)].concat();
        let prepared = [message(b'1', b""), message(b't', &[0; 2]), message(b'T', &columns), ready()].concat();
        let rows: Vec<Vec<u8>> = (0..1_000_usize).map(|row| vec![row as u8; row]).collect();
        let sent: Vec<u8> = rows.iter().flat_map(|row| message(b'D', row)).collect();
        let many = [message(b'2', b""), message(b'N', b"\0"), sent, ended()].concat();
        let failed = [message(b'2', b""), message(b'D', b""), error("57014", "canceled"), ready()].concat();
        let (mut direct, serving) = server(vec![prepared, many, failed, ended()]);
        direct.prepared.clear();
        for _ in 0..2 {
            direct.prepare("a look", || "SELECT 1".to_owned(), SOON).unwrap();
        }
        let moments = [ServerTime::EARLIEST; 2];
        assert!(matches!(direct.ask("another", moments, Vec::new(), SOON), Err(Unanswered::Broken(_))));
        let (columns, answer) = direct.ask("a look", moments, vec![1, 2, 3], SOON).unwrap();
        assert_eq!(*columns, [Some(Type::INT4), None], "the other is none of PostgreSQL's own");
        assert!(answer.count() == 1_000 && answer.rows().eq(rows.iter().map(Vec::as_slice)));
        let refused = direct.ask("a look", moments, answer.into_buffer(), SOON).unwrap_err();
        assert!(
            matches!(refused, Unanswered::Refused { code, message } if code == SqlState::QUERY_CANCELED && message == "canceled")
        );
        assert_eq!(direct.ask("a look", moments, Vec::new(), SOON).unwrap().1.count(), 0, "and it can be asked again");
        let asked = serving.join().unwrap();
        let parsed = [b"a look\0SELECT 1\0\0\x02".as_slice(), &[0, 0, 0x04, 0xa0], &[0, 0, 0x04, 0xa0]].concat();
        let question = [message(b'P', &parsed), message(b'D', b"Sa look\0"), message(b'S', b"")].concat();
        assert_eq!(asked[0], question, "two timestamptz, whose number is 1,184");
        assert_eq!(asked[1], asked[3]);
        let bound = [
            b"\0a look\0\0\x01\0\x01\0\x02".as_slice(),
            &[0, 0, 0, 8],
            &[0; 8],
            &[0, 0, 0, 8],
            &[0; 8],
            b"\0\x01\0\x01",
        ];
        let question = [message(b'B', &bound.concat()), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
        assert_eq!(asked[1], question);
    }

    #[test]
    fn a_connection_that_ends_or_says_nothing_is_given_up_with_the_reason() {
        let ask = |answer: Vec<u8>, within| {
            let (mut direct, serving) = server(vec![answer]);
            let asked = direct.ask("a look", [ServerTime::EARLIEST; 2], Vec::new(), within).unwrap_err();
            serving.join().unwrap();
            asked
        };
        let broken = |answer: Vec<u8>| match ask(answer, SOON) {
            Unanswered::Broken(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(broken(message(b'2', b"")), "connection closed");
        assert_eq!(broken(error("57P01", "terminating connection")), "terminating connection", "its last words");
        assert_eq!(broken(ready()), "the server sent no end of an answer");
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut direct = direct(ours);
        let ask = |direct: &mut Direct| {
            direct.ask("a look", [ServerTime::EARLIEST; 2], Vec::new(), Duration::from_millis(20))
        };
        assert!(matches!(ask(&mut direct), Err(Unanswered::Late)));
        drop(theirs);
        assert!(matches!(ask(&mut direct), Err(Unanswered::Broken(_))), "and no signal");
    }
}
