//! The probe's one connection: its session settings, prepared statements, and a deadline for every query.

use super::aside::{Aside, messages};
use super::connect::{self, Opened};
use super::conninfo::{ConnInfo, Server};
use super::row::{Rows, has_values};
use crate::ProbeError;
use futures_util::TryStreamExt;
use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// The oldest major that is read.
const OLDEST: i32 = 12;
/// The newest major that this was tested with.
const NEWEST: i32 = 18;
/// The server gives up on a query of the probe after this long,
const STATEMENT_TIMEOUT_MS: u32 = 2_000;
/// on a lock after this long: the probe must not queue behind a VACUUM FULL of a catalog;
const LOCK_TIMEOUT_MS: u32 = 500;
/// and the client on an answer after this long.
const DEADLINE: Duration = Duration::from_secs(5);

/// Why a query brought nothing, and what that means for the next one.
#[derive(Debug)]
pub(super) enum QueryError {
    /// The connection is gone or useless.
    Lost(ProbeError),
    /// This role may not ask that, or this server does not know it: asking again is no use.
    Denied(ProbeError),
    /// It failed this time.
    Failed(ProbeError),
}

impl From<QueryError> for ProbeError {
    fn from(error: QueryError) -> ProbeError {
        match error {
            QueryError::Lost(error) | QueryError::Denied(error) | QueryError::Failed(error) => error,
        }
    }
}

/// A live session on the server.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    task: Option<JoinHandle<Result<(), tokio_postgres::Error>>>,
    /// Prepared once, by name. Queries that are under way share the link.
    statements: RefCell<HashMap<&'static str, Statement>>,
    /// Which of the address's servers it is.
    pub(super) address: Server,
    /// `host:port`.
    pub(super) server: String,
    /// server_version_num.
    pub(super) version: i32,
    /// Keeps the rows of a look as they come.
    aside: Option<Aside>,
}

impl Link {
    /// Connects and makes the session one that reads only, waits for nothing and is known by its name.
    pub(super) async fn open(info: &ConnInfo) -> Result<Self, ProbeError> {
        let Opened { client, task, server: address, aside } = connect::open(info).await?;
        let (task, server) = (Some(tokio::spawn(task)), address.label());
        let mut link = Link { client, task, statements: RefCell::default(), address, server, version: 0, aside };
        let row = link.one("server version", "SELECT pg_catalog.current_setting('server_version_num')::int4").await?;
        link.version = row.get(0);
        supported(link.version).map_err(|why| ProbeError::Connect(format!("{} {why}", link.server)))?;
        let settings = session_settings(link.version);
        let setting_up = tokio::time::timeout(DEADLINE, link.client.batch_execute(&settings)).await;
        link.answer("session settings", setting_up)?;
        Ok(link)
    }

    /// The major version.
    pub(super) fn major(&self) -> i32 {
        self.version / 10_000
    }

    /// All rows of a query, prepared the first time under the name `what`.
    pub(super) async fn rows(&self, what: &'static str, sql: &str) -> Result<Vec<Row>, QueryError> {
        self.rows_with(what, sql, &[]).await
    }

    /// As [`Link::rows`], with parameters. Several may be under way at once: the server answers them in the order in which
    /// they were first polled, and a query that waits in line costs neither side a wake-up.
    pub(super) async fn rows_with(
        &self,
        what: &'static str,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, QueryError> {
        let statement = self.statement(what, |_| sql.to_owned()).await?;
        self.rows_read(what, &statement, parameters).await
    }

    /// As [`Link::rows_with`], of a statement that is prepared.
    pub(super) async fn rows_read(
        &self,
        what: &'static str,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, QueryError> {
        let answer = tokio::time::timeout(DEADLINE, self.client.query(statement, parameters)).await;
        self.answer(what, answer)
    }

    /// All rows of a statement, kept as they come where that can be, in this buffer. Nothing may be under way when it is first
    /// polled: the rows of whatever is answered next are kept.
    pub(super) async fn rows_kept(
        &self,
        what: &'static str,
        statement: Statement,
        parameters: &[&(dyn ToSql + Sync)],
        buffer: Vec<u8>,
    ) -> Result<Rows, QueryError> {
        let Some(aside) = &self.aside else {
            return self.rows_read(what, &statement, parameters).await.map(Rows::Read);
        };
        aside.keep(buffer);
        let asking = async {
            let mut answer = pin!(self.client.query_raw(&statement, parameters.iter().copied()).await?);
            let mut strayed = Vec::new();
            while let Some(row) = answer.try_next().await? {
                strayed.push(row);
            }
            Ok((strayed, answer.rows_affected()))
        };
        let answer = tokio::time::timeout(DEADLINE, asking).await;
        let (strayed, told) = self.answer(what, answer).map_err(|error| match aside.misfit() {
            Some(misfit) => QueryError::Lost(self.server_error(what, misfit)),
            None => error,
        })?;
        let kept = aside.take();
        match are_kept(statement.columns().len(), told, &kept, strayed.len() as u64) {
            Ok(true) => Ok(Rows::Kept(statement, kept)),
            Ok(false) => Ok(Rows::Read(strayed)),
            Err(message) => Err(QueryError::Lost(self.server_error(what, message))),
        }
    }

    /// A query that is put together for the server's major and prepared the first time, under the name `what`.
    pub(super) async fn statement(
        &self,
        what: &'static str,
        sql: impl FnOnce(i32) -> String,
    ) -> Result<Statement, QueryError> {
        let known = self.statements.borrow().get(what).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let prepared = tokio::time::timeout(DEADLINE, self.client.prepare(&sql(self.major()))).await;
        let statement = self.answer(what, prepared)?;
        self.statements.borrow_mut().insert(what, statement.clone());
        Ok(statement)
    }

    /// The one row of a query that always has one.
    pub(super) async fn one(&self, what: &'static str, sql: &str) -> Result<Row, QueryError> {
        let first = self.rows(what, sql).await?.into_iter().next();
        first.ok_or_else(|| QueryError::Failed(self.server_error(what, "no row".to_owned())))
    }

    fn answer<T>(
        &self,
        what: &'static str,
        answer: Result<Result<T, tokio_postgres::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, QueryError> {
        let error = match answer {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            // An answer may still come and would be taken for the next query's, so the connection is given up.
            Err(_) => return Err(QueryError::Lost(self.timeout(what, DEADLINE.as_secs_f64()))),
        };
        let Some(refusal) = error.as_db_error() else {
            return Err(QueryError::Lost(self.server_error(what, words(&error))));
        };
        let code = refusal.code();
        if *code == SqlState::QUERY_CANCELED {
            return Err(QueryError::Failed(self.timeout(what, f64::from(STATEMENT_TIMEOUT_MS) / 1e3)));
        }
        let error = self.server_error(what, refusal.message().to_owned());
        let unknown = [&SqlState::UNDEFINED_FUNCTION, &SqlState::UNDEFINED_COLUMN, &SqlState::UNDEFINED_TABLE];
        let never = [&SqlState::INSUFFICIENT_PRIVILEGE, &SqlState::FEATURE_NOT_SUPPORTED];
        if unknown.into_iter().chain(never).any(|known| known == code) {
            return Err(QueryError::Denied(error));
        }
        // Class 57P: the server is going away.
        Err(if code.code().starts_with("57P") { QueryError::Lost(error) } else { QueryError::Failed(error) })
    }

    fn server_error(&self, what: &'static str, message: String) -> ProbeError {
        ProbeError::Server { server: self.server.clone(), what, message }
    }

    fn timeout(&self, what: &'static str, seconds: f64) -> ProbeError {
        ProbeError::Timeout { server: self.server.clone(), what, seconds }
    }

    /// Says goodbye, so that the server's log has no broken connection.
    pub(super) async fn close(self) {
        let Link { client, task, .. } = self;
        drop(client);
        if let Some(task) = task {
            let _ = tokio::time::timeout(Duration::from_millis(200), task).await;
        }
    }
}

/// Whether the rows of an answer, which tells how many it has, are those that were kept; else they are those that the library
/// read. That some are kept and some not is an error.
fn are_kept(columns: usize, told: Option<u64>, kept: &[u8], read: u64) -> Result<bool, String> {
    let mut count = 0;
    for row in messages(kept) {
        if !has_values(row, columns) {
            return Err(format!("a row of {} bytes, which are not {columns} values", row.len()));
        }
        count += 1;
    }
    match told {
        Some(told) if told == count && read == 0 => Ok(true),
        Some(told) if told == read && count == 0 => Ok(false),
        _ => Err(format!("{count} of its rows were kept and {read} were not, which is not what it told")),
    }
}

/// The error with its causes.
fn words(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Whether this server_version_num can be read; the error continues a sentence that begins with the server's name.
fn supported(version: i32) -> Result<(), String> {
    let major = version / 10_000;
    if major < OLDEST {
        let shown = if version < 100_000 {
            format!("{}.{}", version / 10_000, version / 100 % 100)
        } else {
            format!("{major}.{}", version % 10_000)
        };
        return Err(format!(
            "runs PostgreSQL {shown}; Backwater reads {OLDEST} to {NEWEST}. Upgrade the server, or watch its host alone, \
             from there: backwater record host -o DIR"
        ));
    }
    if major > NEWEST {
        tracing::warn!(major, "this PostgreSQL is newer than Backwater was tested with ({NEWEST})");
    }
    Ok(())
}

/// A look at sessions takes some hundred KiB of the server's process, freed at its end. The C library (glibc's malloc) hands
/// so much back to the kernel each time, and takes it anew page by page, which was a quarter of a look's time; once a
/// larger piece has been mapped and freed it keeps up to twice as much (mallopt(3), M_MMAP_THRESHOLD).
const ONCE_MUCH_MEMORY: &str = " SELECT length(repeat(' ', 4194304));";

fn session_settings(version: i32) -> String {
    let mut settings = format!(
        "SET application_name = 'backwater'; SET search_path = pg_catalog; SET statement_timeout = {STATEMENT_TIMEOUT_MS}; \
         SET lock_timeout = {LOCK_TIMEOUT_MS}; SET default_transaction_read_only = on; SET jit = off; \
         SET plan_cache_mode = force_generic_plan; SET max_parallel_workers_per_gather = 0; SET client_min_messages = error;"
    );
    if version >= 140_000 {
        settings.push_str(" SET idle_session_timeout = 0;");
    }
    if version >= 150_000 {
        // Otherwise the first view read in a transaction is read for all.
        settings.push_str(" SET stats_fetch_consistency = none;");
    }
    settings.push_str(ONCE_MUCH_MEMORY);
    settings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rows_are_all_kept_or_all_read_and_as_many_as_were_told() {
        let row = b"D\0\0\0\x0b\0\x01\0\0\0\x01x".as_slice();
        let two = [row, row].concat();
        assert_eq!([are_kept(1, Some(2), &two, 0), are_kept(1, Some(0), &[], 0)], [Ok(true), Ok(true)]);
        assert_eq!(are_kept(1, Some(3), &[], 3), Ok(false));
        for (told, kept, read) in [(Some(3), &two, 0), (Some(1), &two, 0), (Some(3), &two, 1), (None, &two, 0)] {
            let error = are_kept(1, told, kept, read).unwrap_err();
            assert!(error.starts_with(&format!("2 of its rows were kept and {read} were not")), "{error}");
        }
        assert_eq!(are_kept(1, Some(2), &two[..two.len() - 1], 0).unwrap_err()[..2], *"1 ", "one is cut");
        assert_eq!(are_kept(2, Some(2), &two, 0).unwrap_err(), "a row of 7 bytes, which are not 2 values");
    }

    #[test]
    fn old_servers_are_refused_by_name() {
        assert_eq!(supported(120_000), Ok(()));
        assert_eq!(supported(180_006), Ok(()));
        assert!(supported(110_022).unwrap_err().starts_with("runs PostgreSQL 11.22; Backwater reads 12 to 18."));
        assert!(supported(90_624).unwrap_err().starts_with("runs PostgreSQL 9.6;"));
    }
}
