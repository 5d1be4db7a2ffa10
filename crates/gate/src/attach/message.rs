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
    /// A reading a socket; None for one that is gone.
    Readings(Vec<Option<Reading>>),
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
