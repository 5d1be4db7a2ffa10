//! The helper with the rights: it does what its master asks, remembers it, and undoes all of it when the master is gone.

use super::able::{self, Facts};
use super::bursts::{Bursts, Namespaces};
use super::class::LEAST_BPS;
use super::congestion;
use super::message::{Answer, FoundSockets, Named, Pace, PutBack, Request, SocketLook, line};
use super::rows::Rows;
use crate::GateError;
use backwater_socket::{Reading, Socket, SocketError, by_peer, by_pid};
use backwater_undo::{Change, Entry, Journal, Recovered, UndoError, recover};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream as AsyncStream;
use tokio::signal::unix::{SignalKind, signal};

/// A request holds some thousands of sockets.
const LONGEST_REQUEST: u64 = 16 << 20;
/// A master that says nothing for so long may be held up itself.
const SILENCE: Duration = Duration::from_secs(1);

/// Serves a master at the other end of `stream` until it says so, goes away, or this process is asked to end; then puts
/// everything back. What earlier runs left (journals in `state_dir`) is put back first. Only where `bursts` says so is anything
/// changed but the sockets.
///
/// # Errors
/// The journal cannot be kept, or something could not be put back.
pub fn guard(stream: UnixStream, state_dir: &Path, bursts: Bursts) -> Result<(), GateError> {
    let system = GateError::system;
    stream.set_nonblocking(true).map_err(system("talk to the master"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the guardian's runtime"))?;
    runtime.block_on(async {
        let stream = AsyncStream::from_std(stream).map_err(system("talk to the master"))?;
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(tokio::io::AsyncReadExt::take(read, LONGEST_REQUEST));
        let mut held = match begin(state_dir, bursts) {
            Ok((held, put_back)) => {
                say(&mut write, &Answer::Ready(put_back)).await;
                held
            }
            Err(why) => {
                say(&mut write, &Answer::Refused(why)).await;
                return Ok(());
            }
        };
        // A signal ends it as the master's end does: with everything put back.
        let mut terminate = signal(SignalKind::terminate()).map_err(system("watch for signals"))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system("watch for signals"))?;
        let mut hangup = signal(SignalKind::hangup()).map_err(system("watch for signals"))?;
        let mut text = String::new();
        loop {
            text.clear();
            read.get_mut().set_limit(LONGEST_REQUEST);
            // A line that is half read when something else happens is lost; waiting for its first byte loses nothing.
            tokio::select! {
                begun = read.fill_buf() => drop(begun),
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => break,
                () = tokio::time::sleep(SILENCE), if !held.raised.is_empty() => {
                    held.lower();
                    continue;
                }
            }
            tokio::select! {
                got = read.read_line(&mut text) => if !matches!(got, Ok(bytes) if bytes > 0) { break },
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => break,
            }
            match serde_json::from_str(&text) {
                Ok(Request::Finish) => break,
                Ok(request) => say(&mut write, &held.answer(request)).await,
                Err(error) => say(&mut write, &Answer::Refused(format!("not a request: {error}"))).await,
            }
        }
        let put_back = held.finish();
        say(&mut write, &Answer::Finished(put_back)).await;
        Ok(())
    })
}

/// A master that went away hears nothing, and needs to hear nothing.
async fn say(write: &mut (impl AsyncWriteExt + Unpin), answer: &Answer) {
    let told = match line(answer) {
        Ok(text) => write.write_all(text.as_bytes()).await,
        Err(error) => Err(error),
    };
    if let Err(error) = told {
        tracing::debug!(%error, "the master does not listen");
    }
}

/// Looks whether it can work at all, puts right what others left, and keeps only the rights it needs.
fn begin(state_dir: &Path, bursts: Bursts) -> Result<(Held, PutBack), String> {
    let facts = Facts::read();
    if let Some(why) = able::hindrance(&facts) {
        return Err(why);
    }
    let unkept = |error: UndoError| error.to_string();
    let put_back = told(&recover(state_dir).map_err(unkept)?);
    let journal = Journal::begin(state_dir, "attach").map_err(unkept)?;
    able::drop_rights(bursts.rights() | CapabilitySet::SYS_PTRACE)
        .map_err(|error| format!("cannot give up rights: {error}"))?;
    Ok((Held::new(journal, facts, bursts), put_back))
}

fn told(recovered: &[Recovered]) -> PutBack {
    PutBack {
        count: recovered.iter().map(|run| run.undone.len()).sum(),
        left: recovered.iter().flat_map(Recovered::not_put_back).collect(),
    }
}

/// What is paced now.
struct Held {
    journal: Journal,
    facts: Facts,
    /// By the socket's cookie: the note that holds what it had before.
    entries: HashMap<u64, Entry>,
    /// See [`congestion::allowed`].
    allowed_congestion: String,
    /// By the cookie: sockets that go faster for a moment, and what they may have for longer, in bytes a second.
    raised: HashMap<u64, (Socket, u64)>,
    bursts: Namespaces,
    rows: Rows,
}

impl Held {
    fn new(journal: Journal, facts: Facts, bursts: Bursts) -> Held {
        let bursts = Namespaces::new(bursts);
        Held {
            journal,
            facts,
            entries: HashMap::new(),
            allowed_congestion: congestion::allowed(),
            raised: HashMap::new(),
            bursts,
            rows: Rows::default(),
        }
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::FindPid(pid) => match by_pid(pid) {
                Ok(found) => Answer::Found(FoundSockets { tcp: named(found.tcp), others: found.others }),
                Err(error) => Answer::Refused(self.why(&error)),
            },
            Request::FindPeer(peer) => match by_peer(peer) {
                Ok(tcp) => Answer::Found(FoundSockets { tcp: named(tcp), others: 0 }),
                Err(error) => Answer::Refused(self.why(&error)),
            },
            Request::Read(sockets) => {
                let look = |socket: &Socket| looked(socket.read(), |error| self.why(error));
                Answer::Readings(sockets.iter().map(look).collect())
            }
            Request::Learn { pid, statement, rows } => match self.rows.learn(pid, &statement, rows) {
                Ok(learnt) => Answer::Learnt(learnt),
                Err(why) => Answer::Refused(why),
            },
            Request::CountRows(pids) => Answer::Rows(pids.into_iter().map(|pid| self.rows.count(pid)).collect()),
            Request::Pace(orders) => Answer::Each(orders.iter().map(|order| self.pace(order)).collect()),
            Request::Release(sockets) => self.release(&sockets),
            Request::Finish => Answer::Done,
        }
    }

    fn pace(&mut self, order: &Pace) -> Answer {
        let Pace { socket, rate_bps, lasting_bps } = order;
        if *rate_bps < LEAST_BPS {
            return Answer::Refused(format!("{rate_bps} bytes a second is no rate: the least is {LEAST_BPS}"));
        }
        let paced = match self.entries.contains_key(&socket.cookie) {
            true => socket.pace(Some(*rate_bps)).map_err(|error| self.refused(&error)),
            false => self.begin_to_pace(socket, *rate_bps),
        };
        match paced {
            Ok(()) if rate_bps > lasting_bps => {
                self.raised.insert(socket.cookie, (socket.clone(), *lasting_bps));
                Answer::Done
            }
            Ok(()) => {
                self.raised.remove(&socket.cookie);
                Answer::Done
            }
            Err(answer) => answer,
        }
    }

    /// What it had before is written down before it is changed.
    fn begin_to_pace(&mut self, socket: &Socket, rate_bps: u64) -> Result<(), Answer> {
        if socket.title().contains("walsender") {
            let why = "process is a walsender: pacing it would hold back a standby, and with it commits";
            return Err(Answer::Refused(why.to_owned()));
        }
        let before = socket.read().map_err(|error| self.refused(&error))?.rate_bps;
        if let Some(bps) = before {
            let rate = backwater_model::BytesPerSecond(bps as f64);
            return Err(Answer::Refused(format!(
                "the connection with {} of process {} is paced already, at {rate}, by somebody else (another \
                 `backwater attach`, or the server itself); it is left alone",
                socket.peer, socket.pid
            )));
        }
        let before_congestion =
            congestion::to_change(socket, &self.allowed_congestion).map_err(|error| self.refused(&error))?;
        let is_changed = before_congestion.is_some();
        let change = Change::SocketPacing { socket: socket.clone(), before_bytes_per_s: before, before_congestion };
        let entry = self.journal.note(change).map_err(|error| Answer::Refused(error.to_string()))?;
        self.entries.insert(socket.cookie, entry);
        if let Err(error) = socket.pace(Some(rate_bps)) {
            self.forget(socket);
            return Err(self.refused(&error));
        }
        if is_changed {
            congestion::change(socket);
        }
        self.bursts.see_to(&self.journal, socket);
        Ok(())
    }

    /// Its rate was noted and never changed: whoever paces it from here on is somebody else, until it is looked at anew.
    fn forget(&mut self, socket: &Socket) {
        if let Some(entry) = self.entries.remove(&socket.cookie)
            && let Err(error) = self.journal.undo(entry)
        {
            tracing::debug!(%error, "a note of a rate that was not changed stays until the end");
        }
    }

    /// The master is silent: whoever was to go faster for a moment goes as fast as may last. One that cannot be told is tried
    /// again after as long.
    fn lower(&mut self) {
        self.raised.retain(|_, (socket, lasting_bps)| match socket.pace(Some(*lasting_bps)) {
            Ok(()) => false,
            Err(error) => {
                tracing::debug!(%error, "a socket was to go slower again");
                !error.is_gone()
            }
        });
    }

    /// What could not be put back stays known: it is paced by this guardian still, and may be asked for again.
    fn release(&mut self, sockets: &[Socket]) -> Answer {
        let noted = |socket: &Socket| self.entries.get(&socket.cookie).copied();
        let entries: Vec<Entry> = sockets.iter().filter_map(noted).collect();
        let undone = self.journal.undo_all(&entries);
        for Socket { cookie, .. } in sockets {
            if self.entries.get(cookie).is_some_and(|entry| !self.journal.is_open(*entry)) {
                self.entries.remove(cookie);
                self.raised.remove(cookie);
            }
        }
        let undone = if self.entries.is_empty() { undone.and(self.bursts.let_go(&self.journal)) } else { undone };
        match undone {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    fn finish(&mut self) -> PutBack {
        let count = self.entries.len() + self.bursts.changed();
        match self.journal.finish() {
            Ok(()) => PutBack { count, left: Vec::new() },
            Err(UndoError::Left { left, .. }) => PutBack {
                count: count.saturating_sub(left.len()),
                left: left.iter().map(ToString::to_string).collect(),
            },
            Err(error) => PutBack { count, left: vec![error.to_string()] },
        }
    }

    /// Why nothing was done to a socket that had been found.
    fn refused(&self, error: &SocketError) -> Answer {
        if error.is_gone() { Answer::Gone } else { Answer::Refused(self.why(error)) }
    }

    fn why(&self, error: &SocketError) -> String {
        match error {
            SocketError::NoProcess { pid } => format!(
                "there is no process {pid} here; if the server runs on another host, or in a container with process ids \
                 of its own, run this there"
            ),
            SocketError::Process { pid, source, .. } => {
                let denied = [Errno::PERM, Errno::ACCESS].map(|errno| Some(errno.raw_os_error()));
                match denied.contains(&source.raw_os_error()) {
                    true => format!("{error}: {}", able::refusal(&self.facts, *pid)),
                    false => error.to_string(),
                }
            }
            SocketError::Gone { .. } | SocketError::Table { .. } => error.to_string(),
        }
    }
}

/// What a master is told of a reading. Whoever could not be read is not gone: a rate that is in force must not be forgotten.
fn looked(read: Result<Reading, SocketError>, why: impl Fn(&SocketError) -> String) -> SocketLook {
    match read {
        Ok(reading) => SocketLook::Read(reading),
        Err(error) if error.is_gone() => SocketLook::Gone,
        Err(error) => SocketLook::Failed(why(&error)),
    }
}

fn named(sockets: Vec<Socket>) -> Vec<Named> {
    sockets.into_iter().map(|socket| Named { title: socket.title(), socket }).collect()
}

impl Drop for Held {
    fn drop(&mut self) {
        tracing::debug!(paced = self.entries.len(), "the guardian ends");
    }
}

#[cfg(test)]
#[path = "guardian_tests.rs"]
mod tests;
