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
        let (asked, copies, statements, transactions, rows) = (VecDeque::new(), false, 0, 0, 0);
        Tracker { up, down, transaction: None, asked, copies, statements, transactions, rows, cancel_key: None }
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
            // Parse, Bind, Execute, Describe, Close, Flush.
            b'P' | b'B' | b'E' | b'D' | b'C' | b'H' => self.ask(Asked::Extended),
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
            b'E' => self.copies = false,
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
        while self.asked.front().is_some_and(|run| !run.what.is_answered()) {
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

    /// A session that is logged in, and what both sides say then: the client's messages as they are, the server's after '<'.
    fn after(said: &str) -> Tracker {
        let mut tracker = Tracker::new();
        ready(&mut tracker, b'I');
        for part in said.split(' ') {
            match part.strip_prefix('<') {
                Some("Z") => ready(&mut tracker, b'I'),
                Some(kinds) => pass(&mut tracker, Side::Down, kinds),
                None => pass(&mut tracker, Side::Up, part),
            }
        }
        tracker
    }

    #[test]
    fn a_sync_that_a_copy_ignores_is_not_waited_for() {
        // As tokio-postgres does it; all of it at once; by a flush; without a Sync in between; ended by an error of the client.
        for copied in
            ["PBES <12G dd cS <C", "PBESddcS <12GC", "PBEH <12G SSdd cS <C", "PBE <12G dd cS <C", "PBES <12G d fS <E"]
        {
            let copying = after(copied);
            assert_eq!(copying.statement(), Some(1), "{copied}");
            assert!(after(&format!("{copied} <Z")).is_quiet(), "{copied}");
            assert_eq!(after(&format!("{copied} <Z PBES")).statement(), Some(2), "{copied}");
            assert!(after(&format!("{copied} <Z PBES <12DCZ")).rows() == 1);
        }
        assert!(after("PBES <12G dd").statement().is_some(), "it waits for data");
    }

    #[test]
    fn an_error_while_copying_is_answered_once() {
        // Data that the server refuses: the rest of them is skipped, up to the Sync after their end.
        assert!(after("PBES <12G dd <E dcS <Z").is_quiet());
        assert!(after("PBES <12G dd <E").statement().is_some());
        // The copy never began: both Syncs are answered.
        let begun = after("PBESddcS <E <Z");
        assert!(begun.statement().is_some() && after("PBESddcS <E <Z <Z").is_quiet());
    }

    #[test]
    fn copies_among_others_take_no_others_sync() {
        assert_eq!(after("PBES PBES <12C <Z <12G").statement(), Some(1));
        assert!(after("PBES PBES <12C <Z <12G dcS <C <Z").is_quiet());
        // A copy in the simple protocol, two of them in one query, and a query behind them.
        assert!(after("Q <G ddc <C <Z").is_quiet());
        assert!(after("Q <G c <C <G dc <C <Z").is_quiet());
        assert!(after("Qdc Q <G <C <Z").statement().is_some());
        assert!(after("Qdc Q <G <C <Z <DC <Z").is_quiet());
        // An end of data that nobody asked for, after a copy that failed.
        assert!(after("Q <E <Z dc").is_quiet());
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

    #[test]
    fn a_long_pipeline_is_counted_whole() {
        let mut tracker = after("");
        for _ in 0..10_000 {
            pass(&mut tracker, Side::Up, "PBES");
        }
        for _ in 0..10_000 {
            pass(&mut tracker, Side::Up, "Q");
        }
        assert_eq!((tracker.statement(), tracker.asked.len()), (Some(1), 2));
        let before = tracker.transactions();
        for _ in 1..20_000 {
            ready(&mut tracker, b'I');
            assert_eq!(tracker.statement(), Some(1));
        }
        assert_eq!(tracker.transactions() - before, 19_999, "each has let go what it locked");
        ready(&mut tracker, b'I');
        assert!(tracker.is_quiet());
        pass(&mut tracker, Side::Up, "Q");
        assert_eq!(tracker.statement(), Some(2));
    }

    #[test]
    fn ends_of_copies_without_end_are_remembered_as_one() {
        for said in ["c", "Hc", "cfH"] {
            let mut tracker = after("P");
            for _ in 0..100_000 {
                pass(&mut tracker, Side::Up, said);
            }
            assert_eq!((tracker.asked.len(), tracker.statement()), (2, Some(1)), "{said}");
            ready(&mut tracker, b'I');
            assert!(tracker.is_quiet(), "{said}");
        }
        // As many as there are copies in one query are all its own.
        let copies = |ends: usize| after(&format!("Q{} Q <GCGCGC", "dc".repeat(ends)));
        assert!(!copies(3).copies && copies(2).copies, "of two ends, the third is still to come");
        assert!(after(&format!("Q{} Q <GCGCGC <Z <Z", "dc".repeat(3))).is_quiet());
    }

    #[test]
    fn who_says_too_much_unanswered_is_not_followed_any_longer() {
        let mut tracker = after("Q <T");
        for _ in 0..MOST_RUNS {
            pass(&mut tracker, Side::Up, "cQ");
        }
        assert!(tracker.is_opaque() && tracker.asked.capacity() == 0, "{:?}", tracker.asked.len());
        assert_eq!(
            (tracker.statement(), tracker.statements(), tracker.transaction()),
            (None, 1, Some(Transaction::Idle))
        );
        ready(&mut tracker, b'I');
        assert!(!tracker.is_quiet());
    }

    /// What an honest client sends at once, and what its server answers before it says for the last time that it is ready.
    const HONEST: [(&str, &str); 7] = [
        ("Q", "TDC"),
        ("PBES", "12C"),
        ("PBEPBEHS", "1212CC"),
        ("S", ""),
        ("PBESdcS", "12GC"),
        ("Qddc", "GC"),
        ("QdcdcS", "GCGCZ"),
    ];

    proptest! {
        /// However far ahead of the server an honest client is, a statement runs until the last one is answered.
        #[test]
        fn an_honest_pipeline_runs_until_its_last_answer(units in prop::collection::vec(0..HONEST.len(), 1..60), ahead in 1..60usize) {
            let mut tracker = after("");
            let (mut said, mut answered) = (0, 0);
            while answered < units.len() {
                while said < units.len() && said - answered < ahead {
                    pass(&mut tracker, Side::Up, HONEST[units[said]].0);
                    said += 1;
                }
                for kind in HONEST[units[answered]].1.bytes() {
                    prop_assert!(tracker.statement().is_some());
                    match kind { b'Z' => ready(&mut tracker, b'I'), kind => tracker.pass(Side::Down, &[kind, 0, 0, 0, 4]) }
                }
                prop_assert!(tracker.statement().is_some());
                ready(&mut tracker, b'I');
                answered += 1;
                prop_assert_eq!(tracker.statement().is_some(), answered < said, "{} of {}", answered, said);
            }
            prop_assert!(tracker.is_quiet());
        }

        #[test]
        fn no_client_has_it_remember_without_end(kinds in prop::collection::vec(prop::sample::select(b"QFSPHcfd".to_vec()), 1..20), copies in any::<bool>()) {
            let mut tracker = after(if copies { "Q <G" } else { "P" });
            for kind in kinds.iter().cycle().take(3 * MOST_RUNS) {
                tracker.pass(Side::Up, &[*kind, 0, 0, 0, 4]);
                prop_assert!(tracker.asked.capacity() <= 2 * MOST_RUNS);
            }
        }

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
