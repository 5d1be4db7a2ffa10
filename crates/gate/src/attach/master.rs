//! The master's end: it asks and is answered. It needs no rights of its own.

use super::message::{Answer, FoundSockets, Pace, PutBack, Request, SocketLook, line};
use backwater_socket::Socket;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long an answer may take: looking through the descriptors of ten thousand processes, and more.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why pacing cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The helper cannot be started.
    #[error("cannot start the guardian process: {0}")]
    Start(io::Error),
    /// The helper is gone.
    #[error(
        "the guardian process ended unexpectedly ({0}); what it had paced is put back by the next `backwater attach` or \
         `backwater lab clean`"
    )]
    Ended(String),
    /// The same, and it could say what it put back.
    #[error("the guardian process was asked to end, and has put everything back that it could")]
    Finished(PutBack),
    /// It says no.
    #[error("{0}")]
    Refused(String),
    /// The connection is gone.
    #[error("the connection is gone")]
    Gone,
}

impl AttachError {
    /// Whether the helper is gone, and nothing can be asked of it any more.
    pub fn is_end(&self) -> bool {
        matches!(self, AttachError::Ended(_) | AttachError::Finished(_))
    }
}

/// The helper process, as its master has it. Dropping it makes the helper put everything back, too.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    stream: UnixStream,
    answers: BufReader<UnixStream>,
    put_right: PutBack,
}

impl Guardian {
    /// Starts the helper: `command` is a program that calls [`guard`](super::guard) on its standard input.
    ///
    /// # Errors
    /// It cannot be started, or it cannot work here: the exact reason.
    pub fn start(mut command: Command) -> Result<Guardian, AttachError> {
        let (own, theirs) = UnixStream::pair().map_err(AttachError::Start)?;
        own.set_read_timeout(Some(PATIENCE)).map_err(AttachError::Start)?;
        // A group of its own: Ctrl-C on the terminal is for the master, which ends it in order.
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().map_err(AttachError::Start)?;
        // The command held the helper's end; only the helper may, or its end would not be heard.
        drop(command);
        let answers = BufReader::new(own.try_clone().map_err(AttachError::Start)?);
        let mut guardian = Guardian { child, stream: own, answers, put_right: PutBack::default() };
        match guardian.answer()? {
            Answer::Ready(put_right) => guardian.put_right = put_right,
            other => return Err(unexpected(other)),
        }
        Ok(guardian)
    }

    /// What earlier runs had left and the helper put right when it began.
    pub fn put_right(&self) -> &PutBack {
        &self.put_right
    }

    /// The helper's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The sockets of a process.
    ///
    /// # Errors
    /// There is none, or it may not be looked at.
    pub fn find_pid(&mut self, pid: i32) -> Result<FoundSockets, AttachError> {
        match self.ask(&Request::FindPid(pid))? {
            Answer::Found(found) => Ok(found),
            other => Err(unexpected(other)),
        }
    }

    /// The sockets that are connected with a client at this address.
    ///
    /// # Errors
    /// They may not be looked at.
    pub fn find_peer(&mut self, peer: SocketAddr) -> Result<FoundSockets, AttachError> {
        match self.ask(&Request::FindPeer(peer))? {
            Answer::Found(found) => Ok(found),
            other => Err(unexpected(other)),
        }
    }

    /// What is known of sockets now, in the same order.
    ///
    /// # Errors
    /// The helper is gone.
    pub fn read(&mut self, sockets: Vec<Socket>) -> Result<Vec<SocketLook>, AttachError> {
        let count = sockets.len();
        match self.ask(&Request::Read(sockets))? {
            Answer::Readings(looks) if looks.len() == count => Ok(looks),
            other => Err(unexpected(other)),
        }
    }

    /// Lets the helper look at a process that runs this statement of ours, and sleeps after so many rows, so that it can count
    /// the rows of all that run the same program. False where the process does not do that now.
    ///
    /// # Errors
    /// [`AttachError::Refused`]: why they cannot be counted.
    pub fn learn_rows(&mut self, pid: i32, statement: &str, rows: u64) -> Result<bool, AttachError> {
        match self.ask(&Request::Learn { pid, statement: statement.to_owned(), rows })? {
            Answer::Learnt(learnt) => Ok(learnt),
            other => Err(unexpected(other)),
        }
    }

    /// The rows that the queries of these processes have sent to their clients, in the same order; none where one has ended or runs no
    /// query that is counted, or why its rows cannot be.
    ///
    /// # Errors
    /// The helper is gone.
    pub fn count_rows(&mut self, pids: Vec<i32>) -> Result<Vec<Result<Option<u64>, String>>, AttachError> {
        let count = pids.len();
        match self.ask(&Request::CountRows(pids))? {
            Answer::Rows(rows) if rows.len() == count => Ok(rows),
            other => Err(unexpected(other)),
        }
    }

    /// Lets sockets send no more than so much, one after the other: for each, in the same order, whether it may be paced, or
    /// [`AttachError::Gone`]. All in one question: with a hundred sockets a question each takes milliseconds.
    ///
    /// # Errors
    /// The helper is gone.
    pub(super) fn pace(&mut self, orders: Vec<Pace>) -> Result<Vec<Result<(), AttachError>>, AttachError> {
        let count = orders.len();
        match self.ask(&Request::Pace(orders))? {
            Answer::Each(answers) if answers.len() == count => Ok(answers.into_iter().map(done).collect()),
            other => Err(unexpected(other)),
        }
    }

    /// Gives sockets back what they had, in one question: of those that are gone the host is asked once who may have them now.
    ///
    /// # Errors
    /// Not all could be put back.
    pub fn release(&mut self, sockets: Vec<Socket>) -> Result<(), AttachError> {
        done(self.ask(&Request::Release(sockets))?)
    }

    /// Puts everything back and ends the helper.
    ///
    /// # Errors
    /// The helper is gone.
    pub fn finish(mut self) -> Result<PutBack, AttachError> {
        let put_back = match self.ask(&Request::Finish)? {
            Answer::Finished(put_back) => put_back,
            other => return Err(unexpected(other)),
        };
        self.child.wait().map_err(|error| AttachError::Ended(error.to_string()))?;
        Ok(put_back)
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, AttachError> {
        let ended = |error: io::Error| AttachError::Ended(error.to_string());
        let text = line(request).map_err(ended)?;
        match self.stream.write_all(text.as_bytes()) {
            Ok(()) => self.answer(),
            // Its last word, where it had one, is still there.
            Err(error) => self.answer().map_err(|_| ended(error)),
        }
    }

    fn answer(&mut self) -> Result<Answer, AttachError> {
        let mut text = String::new();
        match self.answers.read_line(&mut text) {
            Ok(0) => Err(AttachError::Ended("it closed the connection".to_owned())),
            Ok(_) => {
                serde_json::from_str(&text).map_err(|error| AttachError::Ended(format!("it said {text:?}: {error}")))
            }
            Err(error) => Err(AttachError::Ended(error.to_string())),
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Its end of the line is what it waits for; then it has work to do that must not be cut off.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "cannot wait for the guardian process");
        }
    }
}

fn done(answer: Answer) -> Result<(), AttachError> {
    match answer {
        Answer::Done => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn unexpected(answer: Answer) -> AttachError {
    match answer {
        Answer::Refused(why) => AttachError::Refused(why),
        Answer::Gone => AttachError::Gone,
        Answer::Finished(put_back) => AttachError::Finished(put_back),
        other => AttachError::Ended(format!("it answered {other:?}")),
    }
}
