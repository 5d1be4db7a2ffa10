//! What clients say of their own session. Drivers open transactions and set what matters to a server alone: a console that
//! refused that would be out of their reach.

use super::Statement;
use super::parser::{Parsed, Parser};
use super::tokens::Kind;

/// What a client asks of a console.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A statement of the console's language.
    Statement(Statement),
    /// Something of the client's own session, which changes nothing else.
    Session(SessionCommand),
}

/// What a transaction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Change nothing.
    ReadOnly,
    /// Everything.
    ReadWrite,
}

/// A command of a client's own session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// `BEGIN`, in whatever mode; None: what it may do is the session's default.
    Begin(Option<Access>),
    /// `START TRANSACTION`, which is told apart in the answer.
    StartTransaction(Option<Access>),
    /// `SET TRANSACTION`, of the transaction that is open.
    SetTransaction(Option<Access>),
    /// What the transactions of the session may do that say nothing of it; None: as at its beginning.
    SetDefault(Option<Access>),
    /// `COMMIT` or `END`.
    Commit,
    /// `ROLLBACK` or `ABORT`.
    Rollback,
    /// A setting on which nothing here depends, or to the value that it has here.
    Set,
    /// The same back to its default.
    Reset,
    /// All of them.
    ResetAll,
    /// `DISCARD ALL`.
    DiscardAll,
    /// `SHOW TRANSACTION ISOLATION LEVEL`.
    ShowIsolation,
    /// `SHOW transaction_read_only`: this and the next are asked by clients that look for a server of some kind.
    ShowReadOnly,
    /// `SELECT pg_is_in_recovery()`.
    IsInRecovery,
    /// `SELECT 1`, by which pools of connections ask whether anybody is there.
    SelectOne,
    /// `SELECT pg_advisory_unlock_all()`: this and the next two are said by pools of connections that take one back.
    UnlockAll,
    /// `CLOSE ALL`.
    CloseAll,
    /// `UNLISTEN *`.
    Unlisten,
}

/// The setting that says whether transactions may change something.
pub const READ_ONLY: &str = "default_transaction_read_only";

/// Settings of a session that clients set.
const SETTINGS: [&str; 14] = [
    "application_name",
    "bytea_output",
    "client_encoding",
    "datestyle",
    "default_transaction_isolation",
    READ_ONLY,
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "intervalstyle",
    "lock_timeout",
    "search_path",
    "standard_conforming_strings",
    "statement_timeout",
    "timezone",
];

/// What may follow where a transaction begins. Nothing else: a forgotten semicolon must not swallow a statement.
const MODES: [&str; 11] = [
    "ISOLATION",
    "LEVEL",
    "SERIALIZABLE",
    "REPEATABLE",
    "READ",
    "COMMITTED",
    "UNCOMMITTED",
    "WRITE",
    "ONLY",
    "NOT",
    "DEFERRABLE",
];

/// The value that a setting has here, where answers depend on it and another was asked for.
fn instead(setting: &str, value: &str) -> Option<&'static str> {
    let value = value.to_ascii_lowercase();
    let (there_is, fits) = match setting {
        "client_encoding" => ("UTF8", matches!(&*value, "utf8" | "utf-8" | "unicode")),
        "datestyle" => ("ISO", value.starts_with("iso")),
        "standard_conforming_strings" => ("on", matches!(&*value, "on" | "true" | "yes" | "1")),
        _ => return None,
    };
    (!fits && value != "default").then_some(there_is)
}

impl Access {
    /// What a value of [`READ_ONLY`] says, as servers take it; None: nothing.
    pub fn of(value: &str) -> Option<Access> {
        match &*value.to_ascii_lowercase() {
            "on" | "true" | "t" | "yes" | "y" | "1" => Some(Access::ReadOnly),
            "off" | "false" | "f" | "no" | "n" | "0" => Some(Access::ReadWrite),
            _ => None,
        }
    }
}

impl Parser<'_> {
    /// A command of the client's own session; none where there is none, and then nothing was read.
    pub(super) fn session_command(&mut self) -> Parsed<Option<SessionCommand>> {
        let from = self.next;
        let command = self.first_word_and_rest()?;
        if command.is_none() {
            self.next = from;
        }
        Ok(command)
    }

    fn first_word_and_rest(&mut self) -> Parsed<Option<SessionCommand>> {
        let Kind::Word(first) = &self.peek().kind else { return Ok(None) };
        let first = first.to_ascii_uppercase();
        self.next += 1;
        Ok(match first.as_str() {
            "BEGIN" => {
                self.transaction();
                Some(SessionCommand::Begin(self.modes()))
            }
            "START" if self.words(&["TRANSACTION"]) => Some(SessionCommand::StartTransaction(self.modes())),
            "COMMIT" | "END" => {
                self.transaction();
                Some(SessionCommand::Commit)
            }
            "ROLLBACK" | "ABORT" => {
                self.transaction();
                Some(SessionCommand::Rollback)
            }
            "SET" => self.set_of_session()?,
            "RESET" if self.words(&["ALL"]) => Some(SessionCommand::ResetAll),
            "RESET" => self.setting().map(|setting| match setting {
                READ_ONLY => SessionCommand::SetDefault(None),
                _ => SessionCommand::Reset,
            }),
            "DISCARD" => self.words(&["ALL"]).then_some(SessionCommand::DiscardAll),
            "SHOW" if self.words(&["TRANSACTION_READ_ONLY"]) => Some(SessionCommand::ShowReadOnly),
            "SHOW" => self.isolation().then_some(SessionCommand::ShowIsolation),
            "SELECT" if self.one() => Some(SessionCommand::SelectOne),
            "SELECT" if self.call("PG_IS_IN_RECOVERY") => Some(SessionCommand::IsInRecovery),
            "SELECT" => self.call("PG_ADVISORY_UNLOCK_ALL").then_some(SessionCommand::UnlockAll),
            "CLOSE" => self.words(&["ALL"]).then_some(SessionCommand::CloseAll),
            "UNLISTEN" => self.symbol_if('*').then_some(SessionCommand::Unlisten),
            _ => None,
        })
    }

    fn set_of_session(&mut self) -> Parsed<Option<SessionCommand>> {
        let for_session = self.words(&["SESSION"]);
        if for_session && self.words(&["CHARACTERISTICS", "AS", "TRANSACTION"]) {
            let access = self.modes();
            return Ok(Some(access.map_or(SessionCommand::Set, |access| SessionCommand::SetDefault(Some(access)))));
        }
        let is_local = !for_session && self.words(&["LOCAL"]);
        if self.words(&["TRANSACTION"]) {
            return Ok(Some(SessionCommand::SetTransaction(self.modes())));
        }
        let setting = if self.words(&["TIME", "ZONE"]) {
            "timezone"
        } else if self.words(&["NAMES"]) {
            "client_encoding"
        } else {
            let Some(setting) = self.setting() else { return Ok(None) };
            if !self.words(&["TO"]) {
                self.symbol('=')?;
            }
            setting
        };
        let at = self.next;
        let value = self.values()?;
        match instead(setting, &value) {
            Some(there_is) => Err(self.wrong_at(at, format!("{setting} is always {there_is} here"))),
            // By then there is no other transaction to which it could matter.
            None if setting == READ_ONLY && !is_local => {
                let access = Access::of(&value);
                if access.is_none() && !value.eq_ignore_ascii_case("default") {
                    return Err(self.wrong_at(at, format!("{setting} is on or off")));
                }
                Ok(Some(SessionCommand::SetDefault(access)))
            }
            None => Ok(Some(SessionCommand::Set)),
        }
    }

    /// Values separated by commas; returns the first.
    fn values(&mut self) -> Parsed<String> {
        let mut first = None;
        loop {
            self.symbol_if('-');
            let value = match &self.peek().kind {
                Kind::Word(value) | Kind::Quoted(value) | Kind::Text(value) | Kind::Number(value) => value.clone(),
                _ => return Err(self.unexpected("a value")),
            };
            self.next += 1;
            let first = first.get_or_insert(value);
            if !self.symbol_if(',') {
                return Ok(std::mem::take(first));
            }
        }
    }

    /// A session's setting, in whatever case it is written.
    fn setting(&mut self) -> Option<&'static str> {
        let (Kind::Word(name) | Kind::Quoted(name)) = &self.peek().kind else { return None };
        let setting = SETTINGS.into_iter().find(|setting| name.eq_ignore_ascii_case(setting))?;
        self.next += 1;
        Some(setting)
    }

    fn isolation(&mut self) -> bool {
        self.words(&["TRANSACTION", "ISOLATION", "LEVEL"]) || self.words(&["TRANSACTION_ISOLATION"])
    }

    fn one(&mut self) -> bool {
        let is_one = matches!(&self.peek().kind, Kind::Number(number) if number == "1");
        if is_one {
            self.next += 1;
        }
        is_one
    }

    /// A call of this function without arguments, wherever servers find it.
    fn call(&mut self, function: &str) -> bool {
        let from = self.next;
        if self.words(&["PG_CATALOG"]) {
            self.symbol_if('.');
        }
        let is_called = self.words(&[function]) && self.symbol_if('(') && self.symbol_if(')');
        if !is_called {
            self.next = from;
        }
        is_called
    }

    /// The word that may follow BEGIN, COMMIT and ROLLBACK.
    fn transaction(&mut self) {
        let _ = self.words(&["TRANSACTION"]) || self.words(&["WORK"]);
    }

    /// The modes of a transaction; returns what it may do, where that is said. The last word counts.
    fn modes(&mut self) -> Option<Access> {
        let mut access = None;
        while let Some(mode) = MODES.into_iter().find(|mode| self.words(&[mode])) {
            match mode {
                "ONLY" => access = Some(Access::ReadOnly),
                "WRITE" => access = Some(Access::ReadWrite),
                _ => {}
            }
            self.symbol_if(',');
        }
        access
    }

    /// These words one after another; none of them is read where they do not all stand here.
    fn words(&mut self, words: &[&str]) -> bool {
        let from = self.next;
        for word in words {
            if !self.at_keyword(word) {
                self.next = from;
                return false;
            }
            self.next += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{parse, parse_requests};
    use super::*;

    fn read(text: &str) -> Vec<Request> {
        parse_requests(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_drivers_open_with_is_read() {
        let (read_only, read_write) = (Some(Access::ReadOnly), Some(Access::ReadWrite));
        for (text, command) in [
            ("BEGIN", SessionCommand::Begin(None)),
            (
                "begin transaction isolation level repeatable read, read only, not deferrable",
                SessionCommand::Begin(read_only),
            ),
            ("BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE", SessionCommand::Begin(read_write)),
            ("START TRANSACTION READ WRITE", SessionCommand::StartTransaction(read_write)),
            ("COMMIT", SessionCommand::Commit),
            ("end work", SessionCommand::Commit),
            ("ROLLBACK TRANSACTION", SessionCommand::Rollback),
            ("ABORT", SessionCommand::Rollback),
            ("DISCARD ALL", SessionCommand::DiscardAll),
            ("RESET ALL", SessionCommand::ResetAll),
            ("RESET timezone", SessionCommand::Reset),
            ("SET extra_float_digits = 3", SessionCommand::Set),
            ("SET application_name = 'PostgreSQL JDBC Driver'", SessionCommand::Set),
            ("SET DateStyle TO ISO, MDY", SessionCommand::Set),
            ("SET client_encoding TO 'UTF8'", SessionCommand::Set),
            ("SET NAMES 'utf-8'", SessionCommand::Set),
            ("SET TIME ZONE 'Europe/Berlin'", SessionCommand::Set),
            ("SET SESSION \"TimeZone\" = DEFAULT", SessionCommand::Set),
            ("SET LOCAL statement_timeout = -1", SessionCommand::Set),
            ("SET search_path TO \"$user\", public", SessionCommand::Set),
            ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED", SessionCommand::Set),
            ("SET TRANSACTION READ ONLY", SessionCommand::SetTransaction(read_only)),
            ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", SessionCommand::SetTransaction(None)),
            ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, DEFERRABLE", SessionCommand::SetDefault(read_only)),
            ("SET default_transaction_read_only = on", SessionCommand::SetDefault(read_only)),
            ("SET SESSION default_transaction_read_only TO 'false'", SessionCommand::SetDefault(read_write)),
            ("SET LOCAL default_transaction_read_only = on", SessionCommand::Set),
            ("RESET default_transaction_read_only", SessionCommand::SetDefault(None)),
            ("SET default_transaction_read_only TO DEFAULT", SessionCommand::SetDefault(None)),
            ("SET SESSION TRANSACTION READ WRITE", SessionCommand::SetTransaction(read_write)),
            ("SHOW TRANSACTION ISOLATION LEVEL", SessionCommand::ShowIsolation),
            ("show transaction_isolation", SessionCommand::ShowIsolation),
            ("SHOW transaction_read_only", SessionCommand::ShowReadOnly),
            ("SELECT pg_catalog.pg_is_in_recovery()", SessionCommand::IsInRecovery),
            ("select pg_is_in_recovery()", SessionCommand::IsInRecovery),
            ("SELECT 1", SessionCommand::SelectOne),
        ] {
            assert_eq!(read(text), [Request::Session(command)], "{text}");
            assert!(parse(text).is_err(), "only clients speak so: {text}");
        }
        assert_eq!(read(" ; ;"), []);
        // What asyncpg says of a connection that its pool takes back.
        let reset = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;";
        let commands =
            [SessionCommand::UnlockAll, SessionCommand::CloseAll, SessionCommand::Unlisten, SessionCommand::ResetAll];
        assert_eq!(read(reset), commands.map(Request::Session));
        for other in
            ["SELECT pg_advisory_unlock_all", "SELECT pg_advisory_unlock(1)", "CLOSE a", "UNLISTEN a", "UNLISTEN"]
        {
            assert!(parse_requests(other).is_err(), "{other}");
        }
    }

    #[test]
    fn statements_are_read_between_them_and_none_is_swallowed() {
        let show = Request::Statement(parse("SHOW POOLS").unwrap().remove(0));
        let set = Request::Statement(parse("SET low_priority_bandwidth = 5").unwrap().remove(0));
        let (begin, commit) = (Request::Session(SessionCommand::Begin(None)), Request::Session(SessionCommand::Commit));
        assert_eq!(read("BEGIN; SHOW POOLS; SET low_priority_bandwidth = 5; COMMIT;"), [begin, show, set, commit]);
        let refused = |text: &str| parse_requests(text).unwrap_err().to_string();
        assert_eq!(
            refused("BEGIN DROP RESOURCE POOL a"),
            "the end of the statement is expected here, not 'DROP' (at character 7)"
        );
        assert!(refused("ROLLBACK TO SAVEPOINT a").contains("the end of the statement"));
        assert_eq!(refused("SET client_encoding TO LATIN1"), "client_encoding is always UTF8 here (at character 24)");
        assert_eq!(refused("SET datestyle = 'German'"), "datestyle is always ISO here (at character 17)");
        assert!(refused("SET standard_conforming_strings = off").contains("is always on here"));
        assert_eq!(refused("SET work_mem = 1"), parse("SET work_mem = 1").unwrap_err().to_string());
        assert!(refused("SET default_transaction_read_only = maybe").contains("is on or off (at character 37)"));
        assert_eq!(refused("SELECT 2"), parse("SELECT 2").unwrap_err().to_string());
        assert!(refused("SELECT 1 FROM a").contains("the end of the statement"));
        assert!(refused("SET extra_float_digits 3").contains("'=' is expected here"));
    }
}
