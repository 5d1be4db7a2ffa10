//! Transactions as clients see them, at a console that has none: every statement takes effect at once, and whoever takes
//! one back is told so. The status is kept as a server keeps it, for drivers look at it.

use super::answer::{Answer, Column, Kind, Value};
use super::message::Complaint;
use crate::wire::StartUp;
use backwater_flow::statement::{Access, READ_ONLY, Request, SessionCommand};

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
    /// Nothing may be.
    read_only: bool,
    /// The same of what begins from here on and says nothing of it, and of what stands alone.
    read_only_by_default: bool,
    /// The same where the connection began, to which it is reset.
    read_only_at_first: bool,
}

impl Block {
    /// Where a connection begins that says this of itself.
    pub(super) fn of(start: &StartUp) -> Block {
        let told = start.parameters.get(READ_ONLY).cloned().or_else(|| start.option(READ_ONLY));
        // What says nothing of it would be an error where it is set: here it may be another's idea of it.
        let read_only = told.and_then(|told| Access::of(&told)) == Some(Access::ReadOnly);
        Block { read_only_by_default: read_only, read_only_at_first: read_only, ..Block::default() }
    }

    /// Whether a transaction is open.
    pub(super) fn is_begun(self) -> bool {
        self.begun
    }

    fn is_read_only(self) -> bool {
        if self.begun { self.read_only } else { self.read_only_by_default }
    }

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

    /// Whether something may be changed: `tag` is what would.
    fn may_change(self, tag: &str) -> Result<(), Complaint> {
        match self.is_read_only() {
            true => Err(Complaint::new("25006", format!("cannot execute {tag} in a read-only transaction"))),
            false => Ok(()),
        }
    }

    /// Whether all of a text may be done that says what `tags` name, each with none where it changes nothing but the
    /// client's own session.
    pub(super) fn admit_all<'r>(
        mut self,
        requests: impl IntoIterator<Item = (&'r Request, Option<&'r str>)>,
    ) -> Result<(), Complaint> {
        for (request, changes) in requests {
            match (request, changes) {
                (Request::Session(command), _) => drop(self.answer(*command)),
                (Request::Statement(_), Some(tag)) => self.may_change(tag)?,
                (Request::Statement(_), None) => {}
            }
        }
        Ok(())
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
            SessionCommand::Begin(access) | SessionCommand::StartTransaction(access) => {
                if !self.begun {
                    (self.begun, self.read_only) = (true, self.read_only_by_default);
                }
                self.may(access);
            }
            SessionCommand::SetTransaction(access) if self.begun => self.may(access),
            SessionCommand::SetDefault(access) => {
                self.read_only_by_default = access.map_or(self.read_only_at_first, |access| access == Access::ReadOnly);
            }
            SessionCommand::ResetAll | SessionCommand::DiscardAll => {
                self.read_only_by_default = self.read_only_at_first;
            }
            SessionCommand::Commit | SessionCommand::Rollback => {
                let taken_back = self.failed || command == SessionCommand::Rollback;
                if taken_back {
                    answer.tag = tag(SessionCommand::Rollback).to_owned();
                }
                if taken_back && self.changed {
                    answer.notices.push(STAYS.to_owned());
                }
                *self = Block { begun: false, failed: false, changed: false, read_only: false, ..*self };
            }
            SessionCommand::ShowIsolation => answer.rows.push(vec![Value::text("read committed")]),
            SessionCommand::ShowReadOnly => {
                answer.rows.push(vec![Value::text(if self.is_read_only() { "on" } else { "off" })]);
            }
            SessionCommand::IsInRecovery => answer.rows.push(vec![Value::Truth(false)]),
            SessionCommand::SelectOne => answer.rows.push(vec![Value::Whole(1)]),
            SessionCommand::UnlockAll => answer.rows.push(vec![Value::text("")]),
            SessionCommand::Set
            | SessionCommand::SetTransaction(_)
            | SessionCommand::Reset
            | SessionCommand::CloseAll
            | SessionCommand::Unlisten => {}
        }
        answer
    }

    fn may(&mut self, access: Option<Access>) {
        self.read_only = access.map_or(self.read_only, |access| access == Access::ReadOnly);
    }
}

/// The columns that a command is answered with.
pub(super) fn columns(command: SessionCommand) -> &'static [Column] {
    match command {
        SessionCommand::ShowIsolation => &[Column { name: "transaction_isolation", kind: Kind::Text }],
        SessionCommand::ShowReadOnly => &[Column { name: "transaction_read_only", kind: Kind::Text }],
        SessionCommand::IsInRecovery => &[Column { name: "pg_is_in_recovery", kind: Kind::Truth }],
        SessionCommand::SelectOne => &[Column { name: "?column?", kind: Kind::Whole }],
        SessionCommand::UnlockAll => &[Column { name: "pg_advisory_unlock_all", kind: Kind::Text }],
        _ => &[],
    }
}

/// As a server completes it.
fn tag(command: SessionCommand) -> &'static str {
    match command {
        SessionCommand::Begin(_) => "BEGIN",
        SessionCommand::StartTransaction(_) => "START TRANSACTION",
        SessionCommand::Commit => "COMMIT",
        SessionCommand::Rollback => "ROLLBACK",
        SessionCommand::Set | SessionCommand::SetTransaction(_) | SessionCommand::SetDefault(_) => "SET",
        SessionCommand::Reset | SessionCommand::ResetAll => "RESET",
        SessionCommand::DiscardAll => "DISCARD ALL",
        SessionCommand::ShowIsolation | SessionCommand::ShowReadOnly => "SHOW",
        SessionCommand::SelectOne | SessionCommand::IsInRecovery | SessionCommand::UnlockAll => "SELECT 1",
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
        assert_eq!(block.answer(SessionCommand::Begin(None)).tag, "BEGIN");
        assert_eq!((block.status(), block.admit(Some(&show))), (b'T', Ok(())));
        block.change();
        assert!(block.answer(SessionCommand::Commit).notices.is_empty());
        block.answer(SessionCommand::StartTransaction(None));
        assert!(block.answer(SessionCommand::Rollback).notices.is_empty(), "nothing was changed");
        block.answer(SessionCommand::Begin(None));
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
    #[test]
    fn what_is_read_only_changes_nothing() {
        let admitted = |before: &mut Block, text: &str| {
            let requests = backwater_flow::statement::parse_requests(text).unwrap();
            let tags = |request: &Request| matches!(request, Request::Statement(_)).then_some("DROP RESOURCE POOL");
            let admitted = before.admit_all(requests.iter().map(|request| (request, tags(request))));
            if admitted.is_ok() {
                for request in &requests {
                    if let Request::Session(command) = request {
                        before.answer(*command);
                    }
                }
            }
            admitted.map_err(|complaint| (complaint.sqlstate, complaint.message))
        };
        let refused = || Err(("25006", "cannot execute DROP RESOURCE POOL in a read-only transaction".to_owned()));
        let mut block = Block::default();
        assert_eq!(admitted(&mut block, "BEGIN READ ONLY; DROP RESOURCE POOL a"), refused());
        assert_eq!(block, Block::default(), "nothing of the text was done");
        for text in ["BEGIN READ ONLY", "SET TRANSACTION READ WRITE", "DROP RESOURCE POOL a"] {
            assert_eq!(admitted(&mut block, text), Ok(()), "{text}");
        }
        assert_eq!(admitted(&mut block, "SET TRANSACTION READ ONLY; DROP RESOURCE POOL a"), refused());
        assert_eq!(admitted(&mut block, "BEGIN READ ONLY; COMMIT; DROP RESOURCE POOL a"), Ok(()));
        assert_eq!(admitted(&mut block, "SET default_transaction_read_only = on; COMMIT"), Ok(()));
        assert_eq!(admitted(&mut block, "DROP RESOURCE POOL a"), refused());
        assert_eq!(admitted(&mut block, "BEGIN; DROP RESOURCE POOL a"), refused());
        assert_eq!(admitted(&mut block, "BEGIN READ WRITE; DROP RESOURCE POOL a; COMMIT"), Ok(()));
        assert_eq!(
            admitted(&mut block, "SET TRANSACTION READ WRITE; DROP RESOURCE POOL a"),
            refused(),
            "no transaction"
        );
        assert_eq!(admitted(&mut block, "RESET ALL; DROP RESOURCE POOL a"), Ok(()));
    }
}
