//! What master and guardian say to each other: one JSON object a line, a question and its answer in turn.

use backwater_socket::{Reading, Socket};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A socket with the process's title, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Which.
    pub socket: Socket,
    /// Its process in a word.
    pub title: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundSockets {
    /// TCP connections by which may be sent.
    pub tcp: Vec<Named>,
    /// Other sockets of the process: Unix, UDP, or TCP by which nothing is sent (any more). Not counted where a peer was asked for.
    pub others: usize,
}

/// What came of a look at a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketLook {
    /// What is known of it now.
    Read(Reading),
    /// It is not there any more, for certain: its process has ended, or closed it.
    Gone,
    /// It could not be read, and why. It may well be there.
    Failed(String),
}

impl SocketLook {
    /// What is known of a socket by which something may still be sent, or why nothing is; None where nothing will be: it is gone, or
    /// its process has sent its last word. A client that shut its sending half alone reads on.
    pub fn open(self) -> Option<Result<Reading, String>> {
        match self {
            SocketLook::Read(reading) => reading.info.may_send().then_some(Ok(reading)),
            SocketLook::Gone => None,
            SocketLook::Failed(why) => Some(Err(why)),
        }
    }
}

/// What a guardian put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutBack {
    /// Changes put back.
    pub count: usize,
    /// What could not be, each with the reason and the command for a person.
    pub left: Vec<String>,
}

/// A rate for one socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pace {
    pub(super) socket: Socket,
    /// What it may send now, in bytes a second.
    pub(super) rate_bps: u64,
    /// And where the guardian hears nothing from its master for a second.
    pub(super) lasting_bps: u64,
}

/// What a master asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// The sockets of a process.
    FindPid(i32),
    /// The sockets connected with a client at this address.
    FindPeer(SocketAddr),
    /// What is known of sockets now.
    Read(Vec<Socket>),
    /// A process runs this statement of the master's, and sleeps after so many rows: its program counts rows from here on.
    Learn { pid: i32, statement: String, rows: u64 },
    /// The rows that the queries of these processes have sent.
    CountRows(Vec<i32>),
    /// Sockets may send so much, set in this order.
    Pace(Vec<Pace>),
    /// Sockets get back what they had.
    Release(Vec<Socket>),
    /// All of them do, and the guardian ends.
    Finish,
}

/// What the guardian answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It is ready; what earlier runs had left is put back.
    Ready(PutBack),
    /// What was found.
    Found(FoundSockets),
    /// What came of it for each socket.
    Readings(Vec<SocketLook>),
    /// Whether it is learnt.
    Learnt(bool),
    /// Rows for each process; none where it has ended or runs no query that is counted, or why they cannot be.
    Rows(Vec<Result<Option<u64>, String>>),
    /// An answer for each of several.
    Each(Vec<Answer>),
    /// It is done.
    Done,
    /// The connection is gone: nothing was done, and nothing need be.
    Gone,
    /// All is put back.
    Finished(PutBack),
    /// It cannot or will not, and why.
    Refused(String),
}

/// As a line.
pub(super) fn line(message: &impl Serialize) -> std::io::Result<String> {
    let mut text = serde_json::to_string(message)?;
    text.push('\n');
    Ok(text)
}

/// Reads bytes as a line that a guardian with rights may hear, and one that its master may: what is understood is said
/// again in words that mean the same. For the fuzzer.
#[cfg(fuzzing)]
pub fn exercise(bytes: &[u8]) {
    fn again<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        if let Ok(heard) = serde_json::from_slice::<T>(bytes) {
            let said = line(&heard).expect("what was read can be written");
            assert_eq!(serde_json::from_str::<T>(&said).expect("and read again"), heard);
            assert_eq!(said.find('\n'), Some(said.len() - 1), "one line");
        }
    }
    again::<Request>(bytes);
    again::<Answer>(bytes);
}
