//! One beat: connect, write one row in one transaction, commit; or, where nothing may be written, ask one question.

use super::table;
use crate::postgres::connect;
use crate::postgres::conninfo::{ConnInfo, Server};
use backwater_model::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, SimpleQueryMessage};

/// A beat that was let in and has no answer for this long is given up.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// What all beats of a heartbeat share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) info: ConnInfo,
    pub(super) recorder: String,
    /// [`LONGEST`], except in tests.
    pub(super) longest: Duration,
    /// Changes when the recorder leaves: no answer is waited for any more.
    pub(super) leaving: watch::Receiver<()>,
    /// Whether the server let any beat in so far.
    pub(super) was_let_in: AtomicBool,
}

/// What a beat may do on this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Not known yet: find out, and make the table and the row.
    Unknown,
    /// The row is there.
    Writing,
    /// A standby: nothing can be written.
    Standby,
    /// The server does not let this role write, for this reason.
    Barred(String),
}

/// How a beat ended.
#[derive(Debug)]
pub(super) struct Beaten {
    /// When it was to begin.
    pub(super) intended: Moment,
    /// When its end was known.
    pub(super) acknowledged: Moment,
    /// What the next beat may do.
    pub(super) mode: Mode,
    /// Whether it was an ordinary beat: one that first makes a table tells nothing of the server's speed.
    pub(super) ordinary: bool,
    /// Why it failed.
    pub(super) failure: Option<String>,
}

/// Beats once. `connected` is set as soon as the server has let it in. It ends only when its session is over: until
/// then it keeps its place among those that may stand open, so that there are never more sessions than places.
pub(super) async fn beat(common: Arc<Common>, mode: Mode, intended: Moment, connected: Arc<AtomicBool>) -> Beaten {
    let ordinary = mode != Mode::Unknown;
    let end = |mode: Mode, ordinary: bool, failure: Option<String>| Beaten {
        intended,
        acknowledged: crate::now(),
        mode,
        ordinary,
        failure,
    };
    let (client, server, session) = match connect::open(&common.info).await {
        Ok(opened) => (opened.client, opened.server, tokio::spawn(opened.task)),
        Err(error) => return end(mode, ordinary, Some(error.to_string())),
    };
    connected.store(true, Ordering::Relaxed);
    common.was_let_in.store(true, Ordering::Relaxed);
    let mut leaving = common.leaving.clone();
    let done = tokio::select! {
        biased;
        _ = leaving.changed() => None,
        done = act(&client, &common.recorder, &mode) => Some(done),
        () = tokio::time::sleep(common.longest) => None,
    };
    let answered = done.is_some();
    let beaten = match done {
        Some(Ok((mode, made))) => end(mode, ordinary && !made, None),
        Some(Err(error)) => end(mode, ordinary, Some(words(&error))),
        None => end(mode, ordinary, Some(format!("no answer within {} s", common.longest.as_secs()))),
    };
    let token = client.cancel_token();
    drop(client);
    let patience = if answered { common.longest } else { Duration::ZERO };
    see_off(&common, &server, &token, session, patience).await;
    beaten
}

/// Waits until a session without a client is over: it has said goodbye, the server has closed it, or the way there is
/// gone. After `patience` the server is asked to cancel it, again and again: a session that waits for a standby or for
/// the row does not notice that its client has gone, and a request may get lost.
async fn see_off(
    common: &Common,
    server: &Server,
    token: &CancelToken,
    mut session: JoinHandle<Result<(), tokio_postgres::Error>>,
    mut patience: Duration,
) {
    while tokio::time::timeout(patience, &mut session).await.is_err() {
        if let Err(error) = connect::cancel(&common.info, server, token).await {
            tracing::debug!(?error, "a heartbeat's session cannot be cancelled");
        }
        patience = common.longest;
    }
}

/// Does what may be done, and tells what may be done next, and whether something had to be made first.
async fn act(client: &Client, recorder: &str, mode: &Mode) -> Result<(Mode, bool), tokio_postgres::Error> {
    match mode {
        Mode::Unknown => Ok((find_out(client, recorder).await?, true)),
        Mode::Writing => match write(client, recorder).await {
            Ok(true) => Ok((Mode::Writing, false)),
            Ok(false) => Ok((find_out(client, recorder).await?, true)),
            Err(error) if is_about_table(&error) => Ok((find_out(client, recorder).await?, true)),
            Err(error) => Err(error),
        },
        Mode::Standby if in_recovery(client).await? => Ok((Mode::Standby, false)),
        // Promoted: the next beat finds out.
        Mode::Standby => Ok((Mode::Unknown, false)),
        Mode::Barred(why) => {
            in_recovery(client).await?;
            Ok((Mode::Barred(why.clone()), false))
        }
    }
}

/// A standby is asked; on a primary the table and the row are made, and the row is written.
async fn find_out(client: &Client, recorder: &str) -> Result<Mode, tokio_postgres::Error> {
    if in_recovery(client).await? {
        return Ok(Mode::Standby);
    }
    let made = async {
        table::make(client, recorder).await?;
        write(client, recorder).await
    };
    match made.await {
        Ok(_) => Ok(Mode::Writing),
        Err(error) if is_about_table(&error) => Ok(Mode::Barred(words(&error))),
        Err(error) => Err(error),
    }
}

async fn in_recovery(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let messages = client.simple_query("SELECT pg_catalog.pg_is_in_recovery()").await?;
    Ok(table::first(&messages) == Some("t"))
}

/// One transaction of its own; whether the row was there.
async fn write(client: &Client, recorder: &str) -> Result<bool, tokio_postgres::Error> {
    let messages = client.simple_query(&table::beat(recorder)).await?;
    Ok(messages.iter().any(|message| matches!(message, SimpleQueryMessage::CommandComplete(1))))
}

/// Whether the server works, but not with this role and this table: read only, not allowed, no such table.
fn is_about_table(error: &tokio_postgres::Error) -> bool {
    let codes = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::WRONG_OBJECT_TYPE,
    ];
    error.code().is_some_and(|code| codes.contains(code))
}

fn words(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |refusal| refusal.message().to_owned())
}
