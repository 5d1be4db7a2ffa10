//! The PostgreSQL server whose sessions are slowed: who they are, what they do, and which socket of this host is theirs.

mod rows;

use super::end::End;
use anyhow::{Context, anyhow, bail};
use backwater_flow::rule::Attribute;
use backwater_gate::attach::{Activity, AttachError, Guardian, Named, Unseen};
use backwater_probe::postgres::{ConnInfo, connect_client};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// How long an answer is waited for: meanwhile nothing is done to whoever is held. The server gives up a little before, where it can.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const SETTINGS: &str = "SET statement_timeout = 9000";
/// How soon an answer is waited for no longer when it is time to end.
const LOOK: Duration = Duration::from_millis(100);

/// The server's release, and what its role may.
const ABOUT: &str = "SELECT pg_catalog.current_setting('server_version_num')::int4, \
                     pg_catalog.has_function_privilege('pg_catalog.pg_ls_tmpdir()', 'execute')";

/// What names a session and its statement.
const SESSION_BEGAN_US: &str = "(extract(epoch FROM a.backend_start) * 1e6)::int8";
const STATEMENT_BEGAN_US: &str = "(extract(epoch FROM a.query_start) * 1e6)::int8";
/// How long it has had neither statement nor transaction; null while it has one.
const IDLE_S: &str =
    "CASE WHEN a.state = 'idle' THEN extract(epoch FROM clock_timestamp() - a.state_change)::float8 END";
const IS_ACTIVE: &str = "a.state IN ('active', 'fastpath function call')";

/// A connection with the server.
pub(super) struct Server {
    target: String,
    /// Beyond which nothing is waited for.
    end: End,
    runtime: Runtime,
    client: Client,
    version: i32,
    /// Whether this role may list temporary files.
    lists_files: bool,
    /// Whether the rows of its sessions can be counted, where that was tried: or why not.
    counts_rows: Option<Result<(), String>>,
    /// When that is tried again: they could be before it was connected to anew, so that it may have been too busy.
    learn_again: Option<Instant>,
}

/// Why an answer is waited for no longer.
#[derive(Debug)]
enum NoAnswer {
    /// It did not come in time. Its connection stands, and may bring it yet.
    Late,
    /// It is time to end.
    Ended,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Late => write!(f, "no answer within {} s", ANSWER_WITHIN.as_secs()),
            NoAnswer::Ended => f.write_str("it is time to end"),
        }
    }
}

impl std::error::Error for NoAnswer {}

fn no_answer(error: &anyhow::Error) -> Option<&NoAnswer> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// Whether the server keeps its connection and does not answer.
pub(super) fn is_late(error: &anyhow::Error) -> bool {
    matches!(no_answer(error), Some(NoAnswer::Late))
}

/// Whether it is no failure: it is time to end.
pub(super) fn is_ended(error: &anyhow::Error) -> bool {
    matches!(no_answer(error), Some(NoAnswer::Ended))
}

/// Whether the connection is gone or going, or brings nothing, and not the query at fault.
pub(super) fn is_lost(error: &anyhow::Error) -> bool {
    let code = |error: &tokio_postgres::Error| error.code().map(|code| code.code().to_owned());
    let of_server = error.chain().find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>());
    // Class 57P: it is shut down, or has crashed; 08: so says a pooler; 57014: it took too long.
    let is_passing = |code: String| code.starts_with("57P") || code.starts_with("08") || code == "57014";
    is_late(error) || of_server.is_some_and(|error| code(error).is_none_or(is_passing))
}

/// Whether nothing can be asked any more of who has the rights.
pub(super) fn guardian_ended(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(AttachError::is_end)
}

/// What is asked, unless it takes too long.
async fn in_time<T>(asked: impl Future<Output = Result<T, tokio_postgres::Error>>) -> anyhow::Result<T> {
    match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(NoAnswer::Late.into()),
    }
}

/// Does it, and waits for it no longer than until the end.
fn block_on<T>(runtime: &Runtime, end: &End, doing: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let ended = async {
        while !end.is_here() {
            tokio::time::sleep(LOOK).await;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            done = doing => done,
            () = ended => Err(NoAnswer::Ended.into()),
        }
    })
}

/// One client session.
pub(super) struct Session {
    pub(super) activity: Activity,
    pub(super) application: String,
    /// Its client's address and port; None: it came by a Unix socket, or this role may not see.
    pub(super) client: Option<SocketAddr>,
    /// How many transactions old its snapshot is: vacuum keeps what is younger.
    pub(super) snapshot_age: Option<i64>,
    backend_type: Option<String>,
    port: Option<i32>,
}

impl Server {
    /// Connects; waits no longer than until the end, for this and for every answer.
    pub(super) fn connect(target: &str, end: &End) -> anyhow::Result<Server> {
        let info = ConnInfo::parse(target, &|name| std::env::var(name).ok())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connected = block_on(&runtime, end, async {
            let (client, task) = connect_client(&info).await?;
            // Its end shows in the next query's error.
            drop(tokio::spawn(task));
            in_time(client.batch_execute(SETTINGS)).await?;
            let row = in_time(client.query_one(ABOUT, &[])).await?;
            anyhow::Ok((client, row.get(0), row.get(1)))
        });
        let (client, version, lists_files) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                // A name that is being looked up is not waited for.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let (target, end) = (target.to_owned(), end.clone());
        let (counts_rows, learn_again) = (None, None);
        Ok(Server { target, end, runtime, client, version, lists_files, counts_rows, learn_again })
    }

    /// Waits for nothing beyond this from now on.
    pub(super) fn ends(&mut self, end: &End) {
        self.end = end.clone();
    }

    /// Why an attribute cannot be judged on this server; None where it can.
    pub(super) fn unseen(&self, attribute: Attribute) -> Option<String> {
        match attribute {
            Attribute::WalRate | Attribute::WalSize if self.version < 180_000 => {
                Some("a server tells the WAL of a session from PostgreSQL 18 on".to_owned())
            }
            Attribute::SpillSize if !self.lists_files => {
                Some("this role may not list temporary files: GRANT pg_monitor TO it".to_owned())
            }
            Attribute::Rows => {
                let why = match &self.counts_rows {
                    Some(Ok(())) => return None,
                    Some(Err(why)) => why,
                    None => "it was not tried",
                };
                let again = if self.learn_again.is_some() { "; that is tried again every minute" } else { "" };
                Some(format!("{why}{again}; `backwater proxy` sees them"))
            }
            _ => None,
        }
    }

    /// All attributes that cannot be judged on this server, each with why.
    pub(super) fn all_unseen(&self) -> Unseen {
        Attribute::ALL.iter().filter_map(|attribute| Some((*attribute, self.unseen(*attribute)?))).collect()
    }

    /// Everybody's sessions but this program's own; figures that cost more only where a rule asks for them.
    pub(super) fn sessions(&mut self, wanted: &BTreeSet<Attribute>) -> anyhow::Result<Vec<Session>> {
        let wal = wanted.contains(&Attribute::WalRate) || wanted.contains(&Attribute::WalSize);
        let copied = wanted.contains(&Attribute::Rows) && self.version >= 140_000;
        let sql = sql(wanted.contains(&Attribute::SpillSize), wal, copied);
        let asked = in_time(self.client.query(&sql, &[]));
        let rows = block_on(&self.runtime, &self.end, asked).context("the server does not answer")?;
        Ok(rows.iter().map(session).collect())
    }

    /// Cancels the statement of a session, or ends the session: that statement and no later one, of no other session that has its
    /// process id meanwhile. Whether it still ran.
    pub(super) fn stop(&mut self, of: &Activity, whole_session: bool) -> anyhow::Result<bool> {
        let act = if whole_session { "pg_terminate_backend" } else { "pg_cancel_backend" };
        let sql = format!(
            "SELECT pg_catalog.{act}(a.pid) FROM pg_catalog.pg_stat_get_activity($1) a WHERE {SESSION_BEGAN_US} = $2 AND \
             {STATEMENT_BEGAN_US} = $3 AND {IS_ACTIVE} /* backwater */"
        );
        let parameters: [&(dyn ToSql + Sync); 3] = [&of.pid, &of.began_us, &of.statement_us];
        let rows = block_on(&self.runtime, &self.end, in_time(self.client.query(&sql, &parameters)));
        Ok(!rows.context("the server does not stop the session")?.is_empty())
    }

    /// The socket of the session with this process id.
    pub(super) fn socket_of(&mut self, pid: i32, guardian: &mut Guardian) -> anyhow::Result<Named> {
        let sessions = self.sessions(&BTreeSet::new())?;
        let Some(session) = sessions.iter().find(|session| session.activity.pid == pid) else {
            bail!("the server has no session with process id {pid} (pg_stat_activity lists them)");
        };
        match session.backend_type.as_deref() {
            Some("client backend") => {}
            Some(other) => bail!("process {pid} is a {other}, not a client's session; it is left alone"),
            None => bail!("this role may not see whose process {pid} is: GRANT pg_read_all_stats TO it"),
        }
        if let Some(age) = session.snapshot_age {
            tracing::info!(
                "the snapshot of process {pid} is {age} transactions old; slowed, it holds back vacuum for longer"
            );
        }
        session.socket(guardian)
    }
}

impl Session {
    /// The socket on this host, by process id, or where that is another's (a server in a container) by the client's
    /// address. The client's address must fit in any case.
    pub(super) fn socket(&self, guardian: &mut Guardian) -> anyhow::Result<Named> {
        let pid = self.activity.pid;
        let Some(client) = self.client else {
            bail!(match self.port {
                Some(-1) => format!(
                    "the client of process {pid} came by a Unix socket, where pacing has no effect; `backwater proxy` \
                     reaches it"
                ),
                _ =>
                    format!("this role may not see where the client of process {pid} is: GRANT pg_read_all_stats TO it"),
            });
        };
        let fits = |named: &Named| named.socket.peer.port() == client.port() && named.socket.peer.ip() == client.ip();
        let refused = match guardian.find_pid(pid) {
            Ok(found) => match found.tcp.into_iter().find(fits) {
                Some(named) => return Ok(named),
                None => None,
            },
            Err(error) if error.is_end() => return Err(error.into()),
            Err(error) => Some(error),
        };
        // A client may have the same address and port towards another server on this host.
        let is_it = |named: &Named| fits(named) && named.socket.inner_pid() == Some(pid);
        if let Some(named) = guardian.find_peer(client)?.tcp.into_iter().find(is_it) {
            return Ok(named);
        }
        Err(match refused {
            Some(error) => error.into(),
            None => {
                anyhow!("no process on this host has the connection with {client}: run this on the server's own host")
            }
        })
    }
}

/// One row a client session or walsender, and what else waits for locks. Times as whole microseconds: what is the same stays the same.
fn sql(spill: bool, wal: bool, copied: bool) -> String {
    let spilled = match spill {
        true => {
            "(SELECT coalesce(sum(size), 0)::float8 FROM pg_catalog.pg_ls_tmpdir() \
              WHERE name LIKE 'pgsql!_tmp' || a.pid || '.%' ESCAPE '!')"
        }
        false => "NULL::float8",
    };
    let wal = match wal {
        true => "(SELECT wal_bytes::float8 FROM pg_catalog.pg_stat_get_backend_wal(a.pid))",
        false => "NULL::float8",
    };
    let (copied, copies) = match copied {
        true => (
            "c.tuples_processed::float8",
            "LEFT JOIN pg_catalog.pg_stat_progress_copy c ON c.pid = a.pid AND c.command = 'COPY TO' AND c.type = 'PIPE'",
        ),
        false => ("NULL::float8", ""),
    };
    format!(
        "SELECT a.pid, {SESSION_BEGAN_US}, a.usename::text, {IS_ACTIVE}, {STATEMENT_BEGAN_US}, \
         extract(epoch FROM clock_timestamp() - a.query_start)::float8, CASE WHEN a.wait_event_type = 'Lock' THEN pg_catalog.pg_blocking_pids(a.pid) ELSE \
         '{{}}'::int4[] END, {spilled}, {wal}, a.application_name, host(a.client_addr), a.client_port, \
         age(a.backend_xmin)::int8, a.backend_type, {IDLE_S}, {copied} FROM pg_catalog.pg_stat_activity a {copies} WHERE a.pid <> pg_backend_pid() AND \
         (coalesce(a.backend_type, 'client backend') IN ('client backend', 'walsender') OR {}) /* backwater */",
        backwater_gate::attach::WAITS_BESIDES
    )
}

/// An address that the server tells of.
fn address(text: Option<String>) -> Option<IpAddr> {
    Some(text?.parse::<IpAddr>().ok()?.to_canonical())
}

fn session(row: &Row) -> Session {
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let address = address(text(10));
    let port: Option<i32> = row.get(11);
    let number = port.and_then(|port| u16::try_from(port).ok());
    Session {
        activity: Activity {
            pid: row.get(0),
            began_us: row.get::<_, Option<i64>>(1).unwrap_or_default(),
            user: text(2).unwrap_or_default(),
            active: row.get::<_, Option<bool>>(3).unwrap_or_default(),
            statement_us: row.get(4),
            elapsed_s: row.get(5),
            idle_s: row.get(14),
            blocked_by: row.get(6),
            spill_bytes: row.get(7),
            wal_bytes: row.get(8),
            copied_rows: row.get(15),
        },
        application: text(9).unwrap_or_default(),
        client: address.zip(number).map(|(ip, port)| SocketAddr::new(ip, port)),
        snapshot_age: row.get(12),
        backend_type: text(13),
        port,
    }
}

impl Session {
    /// Whether it is a client's, and not a standby's or a backup's.
    pub(super) fn is_clients(&self) -> bool {
        self.backend_type.as_deref() == Some("client backend")
    }

    /// Whether its client came by a Unix socket: then no socket of its own names its process.
    pub(super) fn is_local(&self) -> bool {
        self.port == Some(-1)
    }

    /// Whether this role may not see what it is and does. Of the server's own processes, hidden too, hardly any has a user.
    pub(super) fn is_hidden(&self) -> bool {
        self.backend_type.is_none() && !self.activity.user.is_empty()
    }
}

#[cfg(test)]
impl Session {
    /// A client's, as the server shows it.
    pub(super) fn of_client(activity: Activity, client: SocketAddr) -> Session {
        Session {
            activity,
            application: String::new(),
            client: Some(client),
            snapshot_age: None,
            backend_type: Some("client backend".to_owned()),
            port: Some(client.port().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_a_role_may_not_see_is_told_from_clients_and_from_the_servers_own() {
        let session = |user: &str, backend_type: Option<&str>| Session {
            activity: Activity { user: user.to_owned(), ..Activity::default() },
            application: String::new(),
            client: None,
            snapshot_age: None,
            backend_type: backend_type.map(str::to_owned),
            port: None,
        };
        let hidden = session("etl", None);
        assert!(hidden.is_hidden() && !hidden.is_clients());
        assert!(!session("", None).is_hidden() && !session("etl", Some("client backend")).is_hidden());
    }

    #[test]
    fn no_answer_is_waited_for_beyond_the_time_that_was_given() {
        let end = End::when_wanted(Arc::default()).within(Some(0.2));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let begun = Instant::now();
        let never = in_time(std::future::pending::<Result<(), tokio_postgres::Error>>());
        assert!(is_ended(&block_on(&runtime, &end, never).unwrap_err()));
        assert!(begun.elapsed() < ANSWER_WITHIN, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_late_answer_is_a_lost_server_and_an_end_that_is_wanted_is_none() {
        let told = |no_answer: NoAnswer| anyhow::Error::from(no_answer).context("the server does not answer");
        let (late, ended) = (told(NoAnswer::Late), told(NoAnswer::Ended));
        assert_eq!([is_late(&late), is_lost(&late), is_ended(&late)], [true, true, false]);
        assert_eq!([is_late(&ended), is_lost(&ended), is_ended(&ended)], [false, false, true]);
        assert!(!is_lost(&anyhow!("the query is at fault")));
        assert_eq!(format!("{late:#}"), "the server does not answer: no answer within 10 s");
    }
}
