//! What a session is doing, from the heads of its messages alone: whether a statement runs, its number, rows and the
//! transaction's state. A server answers each simple query, function call and Sync with one ReadyForQuery.

use super::{Head, Heads};

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
    /// ReadyForQuery messages that are still owed.
    owed: u64,
    /// Messages of the extended protocol were sent and no Sync after them.
    unsynced: bool,
    statements: u64,
    rows: u64,
    cancel_key: Option<Vec<u8>>,
}

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
        let (owed, unsynced, statements, rows) = (0, false, 0, 0);
        Tracker { up, down, transaction: None, owed, unsynced, statements, rows, cancel_key: None }
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

    /// Bytes pass.
    pub fn pass(&mut self, side: Side, bytes: &[u8]) {
        // The reader is taken out for as long as it tells, since what it tells changes the rest.
        match side {
            Side::Up => {
                let mut heads = std::mem::take(&mut self.up);
                heads.feed(bytes, |head| self.client_said(head));
                self.up = heads;
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
        self.owed > 0 || self.unsynced
    }

    fn begin(&mut self) {
        if !self.is_busy() {
            self.statements += 1;
            self.rows = 0;
        }
    }

    fn client_said(&mut self, head: Head) {
        match head.kind {
            // Query, FunctionCall, Sync: each is answered by one ReadyForQuery.
            b'Q' | b'F' | b'S' => {
                self.begin();
                self.owed += 1;
                self.unsynced = false;
            }
            // Parse, Bind, Execute, Describe, Close, Flush.
            b'P' | b'B' | b'E' | b'D' | b'C' | b'H' => {
                self.begin();
                self.unsynced = true;
            }
            _ => {}
        }
    }

    fn server_said(&mut self, head: Head) {
        match head.kind {
            b'D' => self.rows += 1,
            b'Z' => {
                // The first one ends the login and is owed by nobody.
                if self.transaction.is_some() {
                    self.owed = self.owed.saturating_sub(1);
                }
                self.transaction = Some(match head.first {
                    Some(b'T') => Transaction::Open,
                    Some(b'E') => Transaction::Failed,
                    _ => Transaction::Idle,
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pass(tracker: &mut Tracker, side: Side, kinds: &str) {
        for kind in kinds.bytes() {
            tracker.pass(side, &[kind, 0, 0, 0, 4]);
        }
    }

    fn ready(tracker: &mut Tracker, state: u8) {
        tracker.pass(Side::Down, &[b'Z', 0, 0, 0, 5, state]);
    }

    #[test]
    fn statements_begin_and_end_with_pipelining_and_transactions() {
        let mut tracker = Tracker::new();
        pass(&mut tracker, Side::Up, "p");
        assert!(!tracker.is_quiet() && tracker.statement().is_none());
        tracker.pass(Side::Down, b"K\0\0\0\x0c\0\0\0\x2asecr");
        assert_eq!(tracker.cancel_key(), None);
        ready(&mut tracker, b'I');
        assert!(tracker.is_quiet());
        assert_eq!(tracker.cancel_key(), Some(&b"\0\0\0\x2asecr"[..]));
        pass(&mut tracker, Side::Up, "PBES");
        assert_eq!(tracker.statement(), Some(1));
        pass(&mut tracker, Side::Up, "PBES");
        pass(&mut tracker, Side::Down, "12DDC");
        ready(&mut tracker, b'T');
        assert_eq!((tracker.statement(), tracker.rows()), (Some(1), 2));
        ready(&mut tracker, b'T');
        assert_eq!(tracker.statement(), None);
        assert!(!tracker.is_quiet(), "a transaction is open");
        pass(&mut tracker, Side::Up, "Q");
        assert_eq!((tracker.statement(), tracker.rows()), (Some(2), 0));
        ready(&mut tracker, b'I');
        assert!(tracker.is_quiet());
        pass(&mut tracker, Side::Up, "PH");
        assert_eq!(tracker.statement(), Some(3), "flushed and not synced");
    }

    #[test]
    fn the_middle_of_a_message_is_not_quiet() {
        let mut tracker = Tracker::new();
        ready(&mut tracker, b'I');
        tracker.pass(Side::Up, b"Q\0\0");
        assert!(!tracker.is_quiet() && !tracker.at_boundary(Side::Up));
    }

    #[test]
    fn an_encrypted_session_is_never_quiet() {
        let mut tracker = Tracker::opaque();
        ready(&mut tracker, b'I');
        assert!(tracker.is_opaque() && !tracker.is_quiet() && tracker.statement().is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..100)), 0..30)) {
            let mut tracker = Tracker::new();
            for (up, piece) in pieces {
                tracker.pass(if up { Side::Up } else { Side::Down }, &piece);
                let _ = (tracker.statement(), tracker.is_quiet());
            }
        }
    }
}
