//! Rows of an answer, kept as they came. A look at hundreds of sessions is read ten times a second, and a quarter of the samples
//! of the thread that looks (perf, a hundred looks a second) lay in the library's way with rows: memory for each, a task that
//! is woken for them, a descriptor of each value. So while a look is answered, its rows are taken out of what the server
//! sends, below the library, which then sees an answer without rows; what that saves is in docs/bench/overhead.md.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::ReadBuf;

/// A message's type and its length, which counts itself.
const HEAD_BYTES: usize = 5;
const LENGTH_BYTES: usize = 4;
const ROW: u8 = b'D';
const READY_FOR_QUERY: u8 = b'Z';
/// How an answer begins: the query's parameters were taken, or it failed.
const BEGINS: [u8; 2] = [b'2', b'E'];
/// An answer that is larger is none to a look: ten thousand sessions with a text each, of 1,024 characters of four bytes, would
/// have some 42 MiB.
const MOST_BYTES: usize = 64 << 20;
/// How much is read at once.
const READ_BYTES: usize = 32 << 10;

/// The way between a socket, which brings what the server sends, and whoever wants the rows of an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Aside(Arc<Mutex<Incoming>>);

impl Aside {
    /// Keeps the rows of the next answer in this buffer, which is emptied first. Nothing else may be under way.
    pub(super) fn keep(&self, buffer: Vec<u8>) {
        self.lock().sorter.keep(buffer);
    }

    /// Why what came was given up, where it was: the library tells only that its connection is closed.
    pub(super) fn misfit(&self) -> Option<String> {
        self.lock().misfit.take()
    }

    /// The rows that were kept: whole messages, one after the other ([`messages`]).
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().sorter.rows)
    }

    /// For the socket, which asks here before it reads.
    pub(super) fn lock(&self) -> MutexGuard<'_, Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has come, where rows are kept.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    sorter: Sorter,
    /// Where it is read to.
    bytes: Vec<u8>,
    /// How much of what is to be handed on was.
    handed: usize,
    misfit: Option<String>,
}

impl Incoming {
    /// Hands on what is no row. Whether there was anything.
    pub(super) fn hand_on(&mut self, to: &mut ReadBuf<'_>) -> bool {
        let left = &self.sorter.others[self.handed..];
        if left.is_empty() {
            return false;
        }
        let count = left.len().min(to.remaining());
        to.put_slice(&left[..count]);
        self.handed += count;
        if self.handed == self.sorter.others.len() {
            self.sorter.others.clear();
            self.handed = 0;
        }
        true
    }

    /// Whether rows are kept that are still to come; where none are, all goes on to the library at once.
    pub(super) fn keeps(&self) -> bool {
        self.sorter.keeps
    }

    /// Whether the answer has begun and not ended.
    pub(super) fn awaits_rest(&self) -> bool {
        self.sorter.keeps && self.sorter.begun
    }

    /// Where to read to while rows are kept.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.bytes.resize(READ_BYTES, 0);
        &mut self.bytes
    }

    /// So many bytes were read.
    ///
    /// # Errors
    /// What came is no protocol, or too much.
    pub(super) fn came(&mut self, count: usize) -> io::Result<()> {
        let sorted = self.sorter.sort(&self.bytes[..count]);
        self.misfit = sorted.as_ref().err().map(ToString::to_string);
        sorted
    }
}

/// Takes the rows out of a stream of messages.
#[derive(Debug, Default)]
struct Sorter {
    /// Until the server is ready for the next query.
    keeps: bool,
    /// Whether the answer has begun: a query that failed before it was answered once its error was there, and that the server was ready
    /// again after it may still come.
    begun: bool,
    head: [u8; HEAD_BYTES],
    /// How much of the head has come.
    headed: usize,
    /// Of the message that is coming: what it is, and how much of it is still to come.
    kind: u8,
    left: usize,
    rows: Vec<u8>,
    others: Vec<u8>,
}

impl Sorter {
    fn keep(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if !self.keeps {
            // Of an answer that failed, the end may be half there: then it is known where its message ends.
            (self.headed, self.kind, self.left) = (0, 0, 0);
        }
        (self.keeps, self.begun, self.rows) = (true, false, buffer);
    }

    fn sort(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while self.keeps && !bytes.is_empty() {
            let wanted = if self.left == 0 { HEAD_BYTES - self.headed } else { self.left };
            let (more, rest) = bytes.split_at(wanted.min(bytes.len()));
            if self.left == 0 {
                self.more_of_head(more)?;
            } else {
                self.left -= more.len();
                self.put(more);
            }
            let ends = self.kind == READY_FOR_QUERY && self.left == 0 && self.headed == 0;
            self.keeps = !(ends && self.begun);
            bytes = rest;
        }
        self.others.extend_from_slice(bytes);
        Ok(())
    }

    fn more_of_head(&mut self, more: &[u8]) -> io::Result<()> {
        self.head[self.headed..self.headed + more.len()].copy_from_slice(more);
        self.headed += more.len();
        if self.headed < HEAD_BYTES {
            return Ok(());
        }
        self.headed = 0;
        let (kind, body) = body_of(&self.head).ok_or_else(|| misfit("a message shorter than its own length"))?;
        if kind == ROW && self.rows.len().saturating_add(body) > MOST_BYTES {
            return Err(misfit("more than 64 MiB about its sessions"));
        }
        (self.kind, self.left) = (kind, body);
        self.begun |= BEGINS.contains(&kind);
        self.put(&self.head.clone());
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        let to = if self.kind == ROW { &mut self.rows } else { &mut self.others };
        to.extend_from_slice(bytes);
    }
}

/// What a message is, and how many bytes follow its head.
fn body_of(head: &[u8]) -> Option<(u8, usize)> {
    let length = u32::from_be_bytes(head.get(1..HEAD_BYTES)?.try_into().ok()?);
    Some((*head.first()?, usize::try_from(length).ok()?.checked_sub(LENGTH_BYTES)?))
}

fn misfit(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}

/// The bodies of messages that lie one after the other, up to the last that is whole.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (_, length) = body_of(bytes)?;
        let (body, rest) = bytes[HEAD_BYTES..].split_at_checked(length)?;
        bytes = rest;
        Some(body)
    })
}

/// Any bytes in pieces of any size, as a server may send them.
#[cfg(fuzzing)]
pub fn exercise(bytes: &[u8], piece: usize) {
    let mut sorter = Sorter::default();
    sorter.keep(Vec::new());
    if bytes.chunks(piece.max(1)).all(|piece| sorter.sort(piece).is_ok()) {
        let waiting = if sorter.keeps { sorter.headed } else { 0 };
        assert_eq!(sorter.rows.len() + sorter.others.len() + waiting, bytes.len(), "a byte was lost or made up");
    }
    messages(&sorter.rows).for_each(|row| super::row::exercise(row));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() + LENGTH_BYTES) as u32;
        [&[kind], length.to_be_bytes().as_slice(), body].concat()
    }

    fn armed() -> Sorter {
        let mut sorter = Sorter::default();
        sorter.keep(Vec::new());
        sorter
    }

    fn sorted(bytes: &[u8], piece: usize) -> Sorter {
        let mut sorter = armed();
        bytes.chunks(piece).for_each(|piece| sorter.sort(piece).unwrap());
        sorter
    }

    proptest! {
        #[test]
        fn rows_are_kept_and_all_else_is_handed_on_in_whatever_pieces_it_comes(
            first in prop::sample::select(BEGINS.to_vec()),
            left in any::<bool>(),
            answer in vec((prop::sample::select(b"12TDNSCE".to_vec()), vec(any::<u8>(), 0..40)), 0..12),
            after in vec(any::<u8>(), 0..30),
            piece in 1..60_usize,
        ) {
            let of = |wanted: fn(u8) -> bool| {
                let chosen = answer.iter().filter(|(kind, _)| wanted(*kind));
                chosen.map(|(kind, body)| message(*kind, body)).collect::<Vec<_>>().concat()
            };
            let (ready, all) = (message(b'Z', b"I"), of(|_| true));
            // What was left of the query before: it had failed.
            let before = [if left { ready.clone() } else { Vec::new() }, message(first, b"")].concat();
            let sorter = sorted(&[before.as_slice(), &all, &ready, &after].concat(), piece);
            prop_assert!(!sorter.keeps);
            prop_assert_eq!(&sorter.rows, &of(|kind| kind == ROW));
            prop_assert_eq!(&sorter.others, &[before.as_slice(), &of(|kind| kind != ROW), &ready, &after].concat());
            let bodies: Vec<&[u8]> = answer.iter().filter(|(kind, _)| *kind == ROW).map(|(_, body)| body.as_slice()).collect();
            prop_assert_eq!(messages(&sorter.rows).collect::<Vec<_>>(), bodies);
        }
    }

    #[test]
    fn what_is_no_protocol_is_refused() {
        assert!(armed().sort(&[b'D', 0, 0, 0, 3]).is_err());
        let aside = Aside::default();
        aside.keep(Vec::new());
        aside.lock().room()[..5].copy_from_slice(&[b'D', 0x7f, 0xff, 0xff, 0xff]);
        assert!(aside.lock().came(5).is_err());
        assert_eq!(aside.misfit().unwrap(), "the server sent more than 64 MiB about its sessions");
    }

    #[test]
    fn an_answer_that_failed_leaves_its_end_wherever_it_was_cut() {
        let error = message(b'E', b"SERROR\0C57014\0");
        let (ready, row) = (message(b'Z', b"I"), message(b'D', b"row"));
        let next = [ready.as_slice(), &message(b'2', b""), &row, &ready].concat();
        for cut in 0..=ready.len() {
            let mut sorter = armed();
            sorter.sort(&[message(b'2', b"").as_slice(), &row, &error, &next[..cut]].concat()).unwrap();
            sorter.keep(Vec::new());
            sorter.sort(&next[cut..]).unwrap();
            assert!(!sorter.keeps && sorter.rows == row, "cut after {cut} bytes");
            assert_eq!(
                sorter.others,
                [&message(b'2', b""), &error, &ready, &message(b'2', b""), &ready].map(Vec::as_slice).concat()
            );
        }
    }

    #[test]
    fn of_cut_rows_only_the_whole_ones_are_read() {
        let rows = [message(b'D', b"one"), message(b'D', b"two")].concat();
        for cut in 0..rows.len() {
            let whole: Vec<&[u8]> = messages(&rows[..cut]).collect();
            assert_eq!(whole, if cut < 8 { vec![] } else { vec![b"one"] });
        }
    }

    #[test]
    fn a_small_buffer_is_handed_as_much_as_it_takes() {
        let aside = Aside::default();
        aside.keep(vec![1, 2, 3]);
        let mut incoming = aside.lock();
        let sent = [message(b'2', b""), message(b'D', b"row"), message(b'Z', b"I")].concat();
        incoming.room()[..sent.len()].copy_from_slice(&sent);
        incoming.came(sent.len()).unwrap();
        assert!(!incoming.keeps(), "the answer has ended");
        let (mut handed, mut small) = (Vec::new(), [0; 4]);
        loop {
            let mut buffer = ReadBuf::new(&mut small);
            if !incoming.hand_on(&mut buffer) {
                break;
            }
            handed.extend_from_slice(buffer.filled());
        }
        assert_eq!(handed, [message(b'2', b""), message(b'Z', b"I")].concat());
        drop(incoming);
        assert_eq!(aside.take(), message(b'D', b"row"), "and nothing of what was in the buffer");
    }
}
