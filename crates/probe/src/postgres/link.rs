//! The probe's one connection: its session settings, prepared statements, and a deadline for every query.

use super::answer::{Columns, Unanswered};
use super::connect::{self, Opened};
use super::conninfo::{ConnInfo, Server};
use super::direct::Direct;
use super::row::{Rows, ServerTime};
use crate::ProbeError;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
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
/// What a look is called where it fails.
const LOOK: &str = "sessions";

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
            QueryError::Lost(error) => error.lost(),
            QueryError::Denied(error) | QueryError::Failed(error) => error,
        }
    }
}

/// A look as it can be asked.
pub(super) enum Prepared<'a> {
    Direct(&'a RefCell<Direct>, &'static str, Columns),
    Library(Statement),
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
    /// Asks without the library; none by a network.
    direct: Option<RefCell<Direct>>,
    /// Whether something may be left to be read of what the library asked: it was told before the server was ready again.
    leaves_more: Cell<bool>,
    /// How long the server took over what it was asked through the library, at most since that was told, and when it answered last.
    longest: Cell<Duration>,
    answered: Cell<Option<Instant>>,
}

impl Link {
    /// Connects and makes the session one that reads only, waits for nothing and is known by its name.
    pub(super) async fn open(info: &ConnInfo) -> Result<Self, ProbeError> {
        let Opened { client, task, server: address, direct } = connect::open_direct(info).await?;
        let (task, server) = (Some(tokio::spawn(task)), address.label());
        let mut link = Link {
            client,
            task,
            statements: RefCell::default(),
            address,
            server,
            version: 0,
            direct: direct.map(RefCell::new),
            leaves_more: Cell::new(true),
            longest: Cell::default(),
            answered: Cell::default(),
        };
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
    async fn rows_read(
        &self,
        what: &'static str,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, QueryError> {
        let asked = Instant::now();
        let answer = tokio::time::timeout(DEADLINE, self.client.query(statement, parameters)).await;
        let answered = Instant::now();
        // What was asked in one go is answered one after the other.
        let before = self.answered.replace(Some(answered)).map_or(asked, |before| before.max(asked));
        self.longest.set(self.longest.get().max(answered - before));
        self.answer(what, answer)
    }

    /// How long the server took over the longest answer through the library since this was asked last.
    pub(super) fn take_longest(&self) -> Duration {
        self.longest.take()
    }

    /// Has a look prepared under this name, and nothing left of what was asked before, so that the look can be asked at once.
    /// Blocks, outside the runtime, and nothing may be under way.
    pub(super) fn prepare_look(
        &self,
        runtime: &Runtime,
        name: &'static str,
        sql: impl FnOnce(i32) -> String,
    ) -> Result<Prepared<'_>, QueryError> {
        let Some(direct) = &self.direct else {
            return runtime.block_on(self.statement(name, sql)).map(Prepared::Library);
        };
        if self.leaves_more.get() {
            let settling = async { tokio::time::timeout(DEADLINE, self.client.check_connection()).await };
            self.answer(LOOK, runtime.block_on(settling))?;
            self.leaves_more.set(false);
        }
        let prepared = direct.borrow_mut().prepare(name, || sql(self.major()), DEADLINE);
        prepared.map(|columns| Prepared::Direct(direct, name, columns)).map_err(|why| self.unanswered(LOOK, why))
    }

    /// All rows of a look: without the library, in this buffer, where that can be. Blocks, outside the runtime, and nothing may
    /// be under way.
    pub(super) fn look(
        &self,
        runtime: &Runtime,
        prepared: &Prepared<'_>,
        moments: [ServerTime; 2],
        buffer: Vec<u8>,
    ) -> Result<Rows, QueryError> {
        match prepared {
            Prepared::Direct(direct, name, columns) => {
                let answered = direct.borrow_mut().ask(name, moments, buffer, DEADLINE);
                let kept = answered.map(|answer| Rows::Kept(Columns::clone(columns), answer));
                kept.map_err(|why| self.unanswered(LOOK, why))
            }
            Prepared::Library(statement) => {
                let [statements, sessions] = &moments;
                runtime.block_on(self.rows_read(LOOK, statement, &[statements, sessions])).map(Rows::Read)
            }
        }
    }

    /// A query that is put together for the server's major and prepared the first time, under the name `what`.
    async fn statement(&self, what: &'static str, sql: impl FnOnce(i32) -> String) -> Result<Statement, QueryError> {
        let known = self.statements.borrow().get(what).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        // It is told before the server is ready again.
        self.leaves_more.set(true);
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
        if let Ok(Ok(value)) = answer {
            return Ok(value);
        }
        // An error is told before the server is ready again.
        self.leaves_more.set(true);
        let Ok(Err(error)) = answer else {
            // An answer may still come and would be taken for the next query's, so the connection is given up.
            return Err(QueryError::Lost(self.timeout(what, DEADLINE.as_secs_f64())));
        };
        Err(match error.as_db_error() {
            Some(refusal) => self.refused(what, refusal.code(), refusal.message()),
            None => QueryError::Lost(self.server_error(what, words(&error))),
        })
    }

    fn unanswered(&self, what: &'static str, why: Unanswered) -> QueryError {
        match why {
            Unanswered::Refused { code, message } => self.refused(what, &code, &message),
            Unanswered::Late => QueryError::Lost(self.timeout(what, DEADLINE.as_secs_f64())),
            Unanswered::Broken(message) => QueryError::Lost(self.server_error(what, message)),
        }
    }

    /// What an error of the server's means.
    fn refused(&self, what: &'static str, code: &SqlState, message: &str) -> QueryError {
        if *code == SqlState::QUERY_CANCELED {
            return QueryError::Failed(self.timeout(what, f64::from(STATEMENT_TIMEOUT_MS) / 1e3));
        }
        let error = self.server_error(what, message.to_owned());
        let unknown = [&SqlState::UNDEFINED_FUNCTION, &SqlState::UNDEFINED_COLUMN, &SqlState::UNDEFINED_TABLE];
        let never = [&SqlState::INSUFFICIENT_PRIVILEGE, &SqlState::FEATURE_NOT_SUPPORTED];
        if unknown.into_iter().chain(never).any(|known| known == code) {
            return QueryError::Denied(error);
        }
        // Class 57P: the server is going away.
        if code.code().starts_with("57P") { QueryError::Lost(error) } else { QueryError::Failed(error) }
    }

    /// A look brought rows that cannot be read: what comes next would be no better.
    pub(super) fn unreadable(&self, message: String) -> QueryError {
        QueryError::Lost(self.server_error(LOOK, message))
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
    use super::super::conninfo::Address;
    use super::*;
    use std::io::{Read, Write};

    /// A server that answers each question, as far as a Sync, with the next of these, a little time between its parts.
    fn serve(mut socket: std::os::unix::net::UnixStream, answers: Vec<Vec<Vec<u8>>>) {
        let mut startup = [0; 4];
        socket.read_exact(&mut startup).unwrap();
        let mut body = vec![0; u32::from_be_bytes(startup) as usize - 4];
        socket.read_exact(&mut body).unwrap();
        socket.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
        for answer in answers {
            let mut head = [0; 5];
            while head[0] != b'S' {
                socket.read_exact(&mut head).unwrap();
                body.resize(u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4, 0);
                socket.read_exact(&mut body).unwrap();
            }
            for part in answer {
                socket.write_all(&part).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    #[test]
    fn what_is_left_of_an_error_is_not_taken_for_a_look_s_answer() {
        let ready = || b"Z\0\0\0\x05I".to_vec();
        let refused = b"E\0\0\0\x17SERROR\0C42P01\0Mno\0\0".to_vec();
        let described = b"3\0\0\0\x041\0\0\0\x04T\0\0\0\x06\0\0Z\0\0\0\x05I".to_vec();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let answers = vec![vec![refused, ready()], vec![ready()], vec![described]];
        let serving = std::thread::spawn(move || serve(theirs, answers));
        let runtime = super::super::probe::runtime().unwrap();
        ours.set_nonblocking(true).unwrap();
        let direct = Direct::new(ours.try_clone().unwrap().into());
        let (client, task) = runtime
            .block_on(async {
                let socket = tokio::net::UnixStream::from_std(ours).unwrap();
                tokio_postgres::Config::new().user("u").connect_raw(socket, tokio_postgres::NoTls).await
            })
            .unwrap();
        let link = Link {
            client,
            task: Some(runtime.spawn(task)),
            statements: RefCell::default(),
            address: Server { address: Address::Unix("/".into()), port: 0, password: None },
            server: "a server".to_owned(),
            version: 150_000,
            direct: Some(RefCell::new(direct)),
            leaves_more: Cell::new(false),
            longest: Cell::default(),
            answered: Cell::default(),
        };
        let refused = runtime.block_on(link.rows("a view", "SELECT 1")).unwrap_err();
        assert!(matches!(refused, QueryError::Denied(_)), "{refused:?}");
        let prepared = link.prepare_look(&runtime, "a look", |major| format!("SELECT {major}"));
        assert!(matches!(prepared, Ok(Prepared::Direct(..))));
        drop(prepared);
        serving.join().unwrap();
    }

    #[test]
    fn old_servers_are_refused_by_name() {
        assert_eq!(supported(120_000), Ok(()));
        assert_eq!(supported(180_006), Ok(()));
        assert!(supported(110_022).unwrap_err().starts_with("runs PostgreSQL 11.22; Backwater reads 12 to 18."));
        assert!(supported(90_624).unwrap_err().starts_with("runs PostgreSQL 9.6;"));
    }
}
