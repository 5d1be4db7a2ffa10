//! Questions asked by a Unix socket itself, while the library, whose connection it is, has nothing under way there. Hundreds
//! of sessions are looked at ten times a second, and in the library's way with an answer much is in no cache any more at each
//! look: memory for each row, tasks that are woken, polled and handed on. Here a thread asks, waits and has the rows as they
//! came; what that saves is in docs/bench/overhead.md.

use super::answer::{Answer, Columns, Unanswered, columns_of};
use super::row::ServerTime;
use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendFlags, send};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::types::{ToSql, Type};

/// For how much there is room at least when something is read.
const READ_BYTES: usize = 32 << 10;
/// How long the rest of an answer is waited for that has begun, which counts as the server's time. The server sends 8 KiB at
/// a time, and whoever sleeps until there is more is woken by each, in the server's place where both share a processor.
const REST: Duration = Duration::from_micros(100);

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
    ) -> Result<Columns, Unanswered> {
        if let Some(known) = self.prepared.get(name) {
            return Ok(Arc::clone(known));
        }
        self.outgoing.clear();
        // The server may keep the name of an attempt that it gave up, and would refuse it for ever.
        let asked = frontend::close(b'S', name, &mut self.outgoing)
            .and_then(|()| frontend::parse(name, &sql(), [Type::TIMESTAMPTZ.oid(); 2], &mut self.outgoing))
            .and_then(|()| frontend::describe(b'S', name, &mut self.outgoing));
        asked.map_err(|error| Unanswered::Broken(error.to_string()))?;
        let answer = self.exchange(Vec::new(), within)?;
        let columns = columns_of(&answer.bytes).map_err(Unanswered::Broken)?;
        self.prepared.insert(name, Arc::clone(&columns));
        Ok(columns)
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
    ) -> Result<Answer, Unanswered> {
        let broken = |why: &str| Unanswered::Broken(why.to_owned());
        self.outgoing.clear();
        let put = |moment: ServerTime, to: &mut BytesMut| {
            moment.to_sql(&Type::TIMESTAMPTZ, to)?;
            Ok(IsNull::No)
        };
        let bound = frontend::bind("", name, [1], moments, put, [1], &mut self.outgoing);
        bound.map_err(|_| broken("its parameters cannot be sent"))?;
        frontend::execute("", 0, &mut self.outgoing).map_err(|error| Unanswered::Broken(error.to_string()))?;
        let answer = self.exchange(buffer, within)?;
        if answer.is_complete { Ok(answer) } else { Err(broken("the server sent no end of an answer")) }
    }

    /// Sends what was put down, and reads until the server is ready for more.
    fn exchange(&mut self, buffer: Vec<u8>, within: Duration) -> Result<Answer, Unanswered> {
        let until = Instant::now() + within;
        frontend::sync(&mut self.outgoing);
        let mut answer = Answer::kept_in(buffer);
        match self.send(until) {
            // A server that hung up may have said why before, which can still be read.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(why) => return Err(answer.unfinished(why)),
        }
        self.read(&mut answer.bytes, until).map_err(|why| answer.unfinished(why))?;
        while !answer.is_whole().map_err(Unanswered::Broken)? {
            // What has come is taken, however late; for the rest, however it comes, there is no more time.
            if Instant::now() >= until {
                return Err(Unanswered::Late);
            }
            self.read(&mut answer.bytes, until).map_err(|why| answer.unfinished(why))?;
        }
        answer.refusal().map_or(Ok(answer), Err)
    }

    fn send(&self, until: Instant) -> Result<(), Errno> {
        let mut left = &self.outgoing[..];
        while !left.is_empty() {
            match retry_on_intr(|| send(&self.socket, left, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)) {
                Ok(count) => left = &left[count..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what there is, and waits where there is nothing.
    fn read(&self, into: &mut Vec<u8>, until: Instant) -> Result<(), Errno> {
        // Where the last part filled the room that it was given, there is more.
        if !into.is_empty() && into.len() < into.capacity() {
            std::thread::sleep(REST);
        }
        into.reserve(READ_BYTES);
        loop {
            match retry_on_intr(|| rustix::io::read(&self.socket, spare_capacity(into))) {
                Ok(0) => return Err(Errno::CONNRESET),
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, until)?,
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(&self, flags: PollFlags, until: Instant) -> Result<(), Errno> {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&left)) {
            Ok(0) => Err(Errno::TIMEDOUT),
            // Who waits looks again, and how long is left.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::answer::tests::{message, ready};
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;
    use tokio_postgres::error::SqlState;

    const SOON: Duration = Duration::from_secs(60);

    fn ended() -> Vec<u8> {
        [message(b'C', b"SELECT\0"), ready()].concat()
    }

    fn error(code: &str, text: &str) -> Vec<u8> {
        message(b'E', format!("SERROR\0C{code}\0M{text}\0\0").as_bytes())
    }

    fn direct(socket: UnixStream) -> Direct {
        socket.set_nonblocking(true).unwrap();
        Direct::new(socket.into())
    }

    fn ask(direct: &mut Direct, within: Duration) -> Result<Answer, Unanswered> {
        direct.ask("a look", [ServerTime::EARLIEST; 2], Vec::new(), within)
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
        let given_up = [message(b'3', b""), message(b'1', b""), error("57014", "canceled"), ready()].concat();
        let (mut direct, serving) = server(vec![given_up, prepared, many, failed, ended()]);
        let mut prepare = || direct.prepare("a look", || "SELECT 1".to_owned(), SOON);
        assert!(matches!(prepare(), Err(Unanswered::Refused { .. })));
        let columns = prepare().unwrap();
        assert_eq!(*columns, [Some(Type::INT4), None], "the other is none of PostgreSQL's own");
        assert!(Arc::ptr_eq(&columns, &prepare().unwrap()), "nothing is asked again");
        let moments = [ServerTime::EARLIEST; 2];
        let answer = direct.ask("a look", moments, vec![1, 2, 3], SOON).unwrap();
        assert!(answer.count() == 1_000 && answer.rows().eq(rows.iter().map(Vec::as_slice)));
        let refused = direct.ask("a look", moments, answer.into_buffer(), SOON).unwrap_err();
        assert!(
            matches!(refused, Unanswered::Refused { code, message } if code == SqlState::QUERY_CANCELED && message == "canceled")
        );
        assert_eq!(ask(&mut direct, SOON).unwrap().count(), 0, "and it can be asked again");
        let asked = serving.join().unwrap();
        let parsed = [b"a look\0SELECT 1\0\0\x02".as_slice(), &[0, 0, 0x04, 0xa0], &[0, 0, 0x04, 0xa0]].concat();
        let closed = message(b'C', b"Sa look\0");
        let question = [closed, message(b'P', &parsed), message(b'D', b"Sa look\0"), message(b'S', b"")].concat();
        assert_eq!(asked[0], question, "two timestamptz, whose number is 1,184");
        assert!(asked[1] == asked[0], "with the name free, whatever became of the first attempt");
        assert_eq!(asked[2], asked[4]);
        let bound = [
            b"\0a look\0\0\x01\0\x01\0\x02".as_slice(),
            &[0, 0, 0, 8],
            &[0; 8],
            &[0, 0, 0, 8],
            &[0; 8],
            b"\0\x01\0\x01",
        ];
        let question = [message(b'B', &bound.concat()), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
        assert_eq!(asked[2], question);
    }

    fn broken(asked: Result<Answer, Unanswered>) -> String {
        match asked {
            Err(Unanswered::Broken(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_connection_that_ends_is_given_up_with_the_reason() {
        let after = |answer: Vec<u8>| {
            let (mut direct, serving) = server(vec![answer]);
            let asked = ask(&mut direct, SOON);
            serving.join().unwrap();
            broken(asked)
        };
        assert_eq!(after(message(b'2', b"")), "connection closed");
        assert_eq!(after(error("57P01", "terminating connection")), "terminating connection", "its last words");
        assert_eq!(after(ready()), "the server sent no end of an answer");
    }

    #[test]
    fn what_a_server_said_before_the_question_is_its_last_words_too() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&error("57P01", "terminating connection")).unwrap();
        drop(theirs);
        assert_eq!(broken(ask(&mut direct(ours), SOON)), "terminating connection", "the question cannot be sent");
        // A question that was not read resets a Unix connection.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let asking = std::thread::spawn(move || broken(ask(&mut direct(ours), SOON)));
        let mut byte = [0];
        theirs.read_exact(&mut byte).unwrap();
        theirs.write_all(&error("57P01", "terminating connection")).unwrap();
        drop(theirs);
        assert_eq!(asking.join().unwrap(), "terminating connection");
    }

    #[test]
    fn an_answer_is_given_up_in_time_however_it_comes() {
        let late = |ours| matches!(ask(&mut direct(ours), Duration::from_millis(20)), Err(Unanswered::Late));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(late(ours.try_clone().unwrap()), "nothing");
        // Now and then a row, without end.
        let dribbling = std::thread::spawn(move || {
            while theirs.write_all(&message(b'D', b"")).is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(late(ours));
        dribbling.join().unwrap();
    }
}
