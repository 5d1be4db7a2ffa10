//! Transactions as clients see them, at a console that has none: every statement takes effect at once, and whoever takes
//! one back is told so. The status is kept as a server keeps it, for drivers look at it.

use super::answer::{Answer, Column, Kind, Value};
use super::message::Complaint;
use backwater_flow::statement::{Request, SessionCommand};

/// What a transaction that ends without its changes is told.
const STAYS: &str = "what was changed stays: each statement of the console takes effect at once";

/// Where one connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    begun: bool,
    /// Something failed: everything until its end is refused.
    failed: bool,
    /// Something was changed since it began.
    changed: bool,
}

impl Block {
    /// As ReadyForQuery has it.
    pub(super) fn status(self) -> u8 {
        match self {
            Block { begun: false, .. } => b'I',
            Block { failed: false, .. } => b'T',
            Block { .. } => b'E',
        }
    }

    /// Something failed.
    pub(super) fn fail(&mut self) {
        self.failed = self.begun;
    }

    /// Something was changed.
    pub(super) fn change(&mut self) {
        self.changed = self.begun;
    }

    /// Whether a text may be done that begins so. After a failure only an end of the transaction may come.
    pub(super) fn admit(self, first: Option<&Request>) -> Result<(), Complaint> {
        match first {
            None | Some(Request::Session(SessionCommand::Commit | SessionCommand::Rollback)) => Ok(()),
            Some(_) if !self.failed => Ok(()),
            Some(_) => {
                let why = "current transaction is aborted, commands ignored until end of transaction block";
                Err(Complaint::new("25P02", why))
            }
        }
    }

    /// Does what a client asks of its own session.
    pub(super) fn answer(&mut self, command: SessionCommand) -> Answer {
        let mut answer = Answer { columns: columns(command), tag: tag(command).to_owned(), ..Answer::default() };
        match command {
            SessionCommand::Begin | SessionCommand::StartTransaction => self.begun = true,
            SessionCommand::Commit | SessionCommand::Rollback => {
                let taken_back = self.failed || command == SessionCommand::Rollback;
                if taken_back {
                    answer.tag = tag(SessionCommand::Rollback).to_owned();
                }
                if taken_back && self.changed {
                    answer.notices.push(STAYS.to_owned());
                }
                *self = Block::default();
            }
            SessionCommand::ShowIsolation => answer.rows.push(vec![Value::text("read committed")]),
            SessionCommand::SelectOne => answer.rows.push(vec![Value::Whole(1)]),
            SessionCommand::UnlockAll => answer.rows.push(vec![Value::text("")]),
            SessionCommand::Set
            | SessionCommand::Reset
            | SessionCommand::DiscardAll
            | SessionCommand::CloseAll
            | SessionCommand::Unlisten => {}
        }
        answer
    }
}

/// The columns that a command is answered with.
pub(super) fn columns(command: SessionCommand) -> &'static [Column] {
    match command {
        SessionCommand::ShowIsolation => &[Column { name: "transaction_isolation", kind: Kind::Text }],
        SessionCommand::SelectOne => &[Column { name: "?column?", kind: Kind::Whole }],
        SessionCommand::UnlockAll => &[Column { name: "pg_advisory_unlock_all", kind: Kind::Text }],
        _ => &[],
    }
}

/// As a server completes it.
fn tag(command: SessionCommand) -> &'static str {
    match command {
        SessionCommand::Begin => "BEGIN",
        SessionCommand::StartTransaction => "START TRANSACTION",
        SessionCommand::Commit => "COMMIT",
        SessionCommand::Rollback => "ROLLBACK",
        SessionCommand::Set => "SET",
        SessionCommand::Reset => "RESET",
        SessionCommand::DiscardAll => "DISCARD ALL",
        SessionCommand::ShowIsolation => "SHOW",
        SessionCommand::SelectOne | SessionCommand::UnlockAll => "SELECT 1",
        SessionCommand::CloseAll => "CLOSE CURSOR ALL",
        SessionCommand::Unlisten => "UNLISTEN",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_transaction_has_a_servers_status_and_tags_and_tells_what_stays() {
        let mut block = Block::default();
        let show = Request::Session(SessionCommand::ShowIsolation);
        block.fail();
        block.change();
        assert_eq!((block.status(), block.admit(Some(&show))), (b'I', Ok(())), "nothing was begun");
        assert_eq!(block.answer(SessionCommand::Begin).tag, "BEGIN");
        assert_eq!((block.status(), block.admit(Some(&show))), (b'T', Ok(())));
        block.change();
        assert!(block.answer(SessionCommand::Commit).notices.is_empty());
        block.answer(SessionCommand::StartTransaction);
        assert!(block.answer(SessionCommand::Rollback).notices.is_empty(), "nothing was changed");
        block.answer(SessionCommand::Begin);
        block.change();
        block.fail();
        assert_eq!(block.status(), b'E');
        assert_eq!(block.admit(Some(&show)).unwrap_err().sqlstate, "25P02");
        let commit = SessionCommand::Commit;
        assert_eq!((block.admit(None), block.admit(Some(&Request::Session(commit)))), (Ok(()), Ok(())));
        let answer = block.answer(commit);
        assert_eq!((answer.tag.as_str(), &*answer.notices), ("ROLLBACK", &[STAYS.to_owned()][..]));
        assert_eq!(block, Block::default());
    }
}
