//! What a session is doing, from the heads of its messages alone: whether a statement runs, its number, rows and the
//! transaction's state. A server answers each simple query, function call and Sync with one ReadyForQuery, but for the Syncs
//! that it reads while it takes data for COPY: those it ignores.

use super::{Head, Heads};
use std::collections::VecDeque;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// The state of a session's transaction, as the server last said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// None.
    Idle,
    /// One is open.
    Open,
    /// One failed and waits for its end.
    Failed,
}

/// Follows one session. What passes is looked at, never changed.
#[derive(Clone, Debug)]
pub struct Tracker {
    up: Heads,
    down: Heads,
    transaction: Option<Transaction>,
    /// What the client said and the server has not answered yet. A copy's end never stands first.
    asked: VecDeque<Run>,
    /// The server takes data for COPY, and the client has not said their end.
    copies: bool,
    /// It failed at a message of the extended protocol: until the next Sync it passes everything over, queries too.
    skips: bool,
    statements: u64,
    transactions: u64,
    rows: u64,
    cancel_key: Option<Vec<u8>>,
}

/// What matters of what a client said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// A simple query or a function call, answered by one ReadyForQuery.
    Query,
    /// Messages of the extended protocol, any number of them.
    Extended,
    /// Answered by one ReadyForQuery, unless it is ignored.
    Sync,
    /// CopyDone or CopyFail.
    CopyEnd,
}

impl Asked {
    /// Whether a ReadyForQuery answers it.
    fn is_answered(self) -> bool {
        matches!(self, Asked::Query | Asked::Sync)
    }
}

/// The same said so many times in a row.
#[derive(Clone, Copy, Debug)]
struct Run {
    what: Asked,
    times: u32,
}

/// A client that says more than so many runs before the server answers is not followed any longer, or it could have this
/// program remember without end. Any number of statements of one protocol, each with its Sync, is one run.
const MOST_RUNS: usize = 4_096;

/// BackendKeyData: the process's number and the key that a cancel request needs.
const BACKEND_KEY_DATA: u8 = b'K';

impl Default for Tracker {
    fn default() -> Self {
        Tracker::new()
    }
}

impl Tracker {
    /// A session that begins, after its start-up message.
    pub fn new() -> Self {
        let mut down = Heads::new();
        down.keep(Some(BACKEND_KEY_DATA));
        Tracker::of(Heads::new(), down)
    }

    /// A session that cannot be followed: it is encrypted.
    pub fn opaque() -> Self {
        Tracker::of(Heads::opaque(), Heads::opaque())
    }

    fn of(up: Heads, down: Heads) -> Self {
        Tracker {
            up,
            down,
            transaction: None,
            asked: VecDeque::new(),
            copies: false,
            skips: false,
            statements: 0,
            transactions: 0,
            rows: 0,
            cancel_key: None,
        }
    }

    /// What a cancel request carries: the server's process number and the key behind it. None until the login is done,
    /// and where the server gives none.
    pub fn cancel_key(&self) -> Option<&[u8]> {
        self.cancel_key.as_deref().filter(|key| key.len() >= 8)
    }

    /// The number of statements that have begun.
    pub fn statements(&self) -> u64 {
        self.statements
    }

    /// How often the server has said that no transaction is open any more: what one locked is free then, also where the next
    /// statement is under way already.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    /// The number of messages of which the client has said enough to know what they are.
    pub fn messages(&self) -> u64 {
        self.up.told()
    }

    /// Bytes pass.
    pub fn pass(&mut self, side: Side, bytes: &[u8]) {
        // The reader is taken out for as long as it tells, since what it tells changes the rest.
        match side {
            Side::Up => {
                let mut heads = std::mem::take(&mut self.up);
                heads.feed(bytes, |head| self.client_said(head));
                self.up = heads;
                if self.asked.len() > MOST_RUNS {
                    self.lose();
                }
            }
            Side::Down => {
                let mut heads = std::mem::take(&mut self.down);
                heads.feed(bytes, |head| self.server_said(head));
                if self.transaction.is_some() && self.cancel_key.is_none() {
                    // The key comes before the login's end and never again.
                    self.cancel_key = Some(heads.take_kept().unwrap_or_default());
                    heads.keep(None);
                }
                self.down = heads;
            }
        }
    }

    /// The number of the statement that runs; None between statements, before the login is done, and where the session
    /// cannot be followed.
    pub fn statement(&self) -> Option<u64> {
        (self.transaction.is_some() && self.is_busy()).then_some(self.statements)
    }

    /// What the server last said of the transaction; None before the login is done.
    pub fn transaction(&self) -> Option<Transaction> {
        self.transaction
    }

    /// Rows that the statement that runs, or ran last, has sent so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether the session can be ended without anybody noticing a loss: logged in, between statements and transactions,
    /// at the end of a message both ways.
    pub fn is_quiet(&self) -> bool {
        let idle = self.transaction == Some(Transaction::Idle) && !self.is_busy();
        idle && self.at_boundary(Side::Up) && self.at_boundary(Side::Down)
    }

    /// Whether the messages that passed on this side are whole. Of an encrypted session that is never known.
    pub fn at_boundary(&self, side: Side) -> bool {
        match side {
            Side::Up => self.up.at_boundary(),
            Side::Down => self.down.at_boundary(),
        }
    }

    /// Whether nothing of it can be followed.
    pub fn is_opaque(&self) -> bool {
        self.up.is_opaque() || self.down.is_opaque()
    }

    fn is_busy(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Follows it no longer. What was known stays known.
    fn lose(&mut self) {
        (self.up, self.down) = (Heads::opaque(), Heads::opaque());
        self.asked = VecDeque::new();
    }

    fn ask(&mut self, what: Asked) {
        if !self.is_busy() {
            self.statements += 1;
            self.rows = 0;
        }
        let last = self.asked.back().map(|run| run.what);
        match what {
            // One after the last query or Sync is as good as many.
            Asked::Extended if self.unanswered().any(|what| what == Asked::Extended) => return,
            // The Sync stands for what it ends.
            Asked::Sync if last == Some(Asked::Extended) => self.asked.truncate(self.asked.len() - 1),
            _ => {}
        }
        match self.asked.back_mut() {
            Some(run) if run.what == what => run.times = run.times.saturating_add(1),
            _ => self.asked.push_back(Run { what, times: 1 }),
        }
    }

    /// What was said after the last that a ReadyForQuery answers: ends of copies and one of the extended protocol at most.
    fn unanswered(&self) -> impl Iterator<Item = Asked> {
        self.asked.iter().rev().map(|run| run.what).take_while(|what| !what.is_answered())
    }

    fn client_said(&mut self, head: Head) {
        match head.kind {
            b'S' if self.copies => {}
            b'S' => self.ask(Asked::Sync),
            // Query, FunctionCall.
            b'Q' | b'F' => self.ask(Asked::Query),
            // Parse, Bind, Execute, Describe. Close and Flush begin nothing: who says them after the last Sync, and no other, rests.
            b'P' | b'B' | b'E' | b'D' => self.ask(Asked::Extended),
            // CopyDone, CopyFail: said before the server began to copy, they are remembered.
            b'c' | b'f' if self.copies => self.copies = false,
            b'c' | b'f' if self.is_busy() => self.ask(Asked::CopyEnd),
            _ => {}
        }
    }

    fn server_said(&mut self, head: Head) {
        match head.kind {
            // DataRow, and CopyData: a server sends one for each row.
            b'D' | b'd' => self.rows += 1,
            // CopyInResponse.
            b'G' => self.copy_began(),
            // After an error it skips until the next Sync, and answers that one.
            b'E' => {
                self.copies = false;
                self.skips |= self.asked.front().is_some_and(|run| run.what == Asked::Extended);
            }
            b'Z' => {
                // The first one ends the login and is owed by nobody.
                if self.transaction.is_some() {
                    self.answered();
                }
                self.transaction = Some(match head.first {
                    Some(b'T') => Transaction::Open,
                    Some(b'E') => Transaction::Failed,
                    _ => Transaction::Idle,
                });
                self.transactions += u64::from(self.transaction == Some(Transaction::Idle));
            }
            _ => {}
        }
    }

    /// What the client said first begins to copy. Syncs that it sent before the data's end, if it has said that already, are
    /// ignored.
    fn copy_began(&mut self) {
        let end = self.asked.iter().position(|run| run.what == Asked::CopyEnd);
        let mut later = self.asked.split_off(end.unwrap_or(self.asked.len()));
        let was_asked = self.is_busy();
        self.asked.retain(|run| run.what != Asked::Sync);
        if was_asked && self.asked.is_empty() {
            // What those Syncs stood for goes on.
            self.asked.push_back(Run { what: Asked::Extended, times: 1 });
        }
        take_one(&mut later);
        self.asked.append(&mut later);
        self.copies = end.is_none();
    }

    /// The server is ready for what comes after the first Sync or query.
    fn answered(&mut self) {
        self.copies = false;
        let skipped = std::mem::take(&mut self.skips);
        let passed_over = |run: &Run| !run.what.is_answered() || (skipped && run.what != Asked::Sync);
        while self.asked.front().is_some_and(passed_over) {
            self.asked.pop_front();
        }
        take_one(&mut self.asked);
        while self.asked.front().is_some_and(|run| run.what == Asked::CopyEnd) {
            self.asked.pop_front();
        }
    }
}

/// Takes one of what stands first.
fn take_one(runs: &mut VecDeque<Run>) {
    match runs.front_mut() {
        Some(run) if run.times > 1 => run.times -= 1,
        _ => drop(runs.pop_front()),
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
