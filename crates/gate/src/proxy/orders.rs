//! What only the server can do, by the proxy's own connection with it: end a session or stop its statement, make a role.

use super::hidden;
use super::server_view::{SLACK, reason};
use crate::clock;
use backwater_model::Moment;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_postgres::Client;

/// What makes a role may wait for another's lock, and the view waits with it: not until what it told before is too old.
pub(super) const ROLE_WITHIN: Duration = Duration::from_secs(1);
/// What whoever gave an order is told where it was never sent.
pub(super) const AWAY: &str = "the proxy has no connection with the server now; try again";

/// Something that the server is to do.
pub(super) enum Order {
    Terminate {
        pid: i32,
        our_port: i32,
        since: Moment,
    },
    Stop {
        pid: i32,
        began_us: i64,
        statement_us: i64,
        whole_session: bool,
    },
    MakeRole {
        user: String,
        password: Option<String>,
        done: oneshot::Sender<Result<Made, String>>,
    },
    SetPassword {
        user: String,
        password: String,
        done: oneshot::Sender<Result<Made, String>>,
    },
    /// Nothing but whether it is there.
    FindRole {
        user: String,
        done: oneshot::Sender<Result<Made, String>>,
    },
}

impl Order {
    /// Nobody carries it out: who waits for that hears that nothing was done, and the log says of whom it was not.
    pub(super) fn refuse(self) {
        match self {
            Order::MakeRole { done, .. } | Order::SetPassword { done, .. } | Order::FindRole { done, .. } => {
                // Who does not wait any more does not want to know.
                let _ = done.send(Err(AWAY.to_owned()));
            }
            // Its client is gone, and is what it notices first.
            Order::Terminate { pid, .. } => tracing::warn!(
                pid,
                "nobody is logged in at the server who could end this process (see [server_account]): it may work on until it next \
                 speaks to its client"
            ),
            Order::Stop { pid, .. } => {
                tracing::warn!(
                    pid,
                    "nobody is logged in at the server any more who could stop this process: it goes on"
                );
            }
        }
    }
}

/// What became of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// It is as it was asked for.
    Done,
    /// It was there already, and is left as it is.
    WasThere,
    /// There is none.
    IsNot,
}

/// Does one.
pub(super) async fn carry_out(client: &Client, order: Order) {
    match order {
        Order::Terminate { pid, our_port, since } => {
            let age_us = (clock::now() - since).0.saturating_add(SLACK.0);
            match client.query(TERMINATE, &[&pid, &our_port, &age_us]).await {
                Ok(rows) if rows.is_empty() => {
                    let why = "the server ended it before it was told to, or does not show it as this proxy's";
                    tracing::info!(pid, "a session is not terminated: {why}");
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(pid, "the server does not end a session: {}", reason(&error)),
            }
        }
        Order::Stop { pid, began_us, statement_us, whole_session } => {
            let stopped = client.query(&stop_sql(whole_session), &[&pid, &began_us, &statement_us]).await;
            match stopped {
                Ok(rows) if rows.is_empty() => tracing::info!(pid, "its statement had ended before it was stopped"),
                Ok(_) => {}
                Err(error) => tracing::warn!(pid, "the server does not stop a session: {}", reason(&error)),
            }
        }
        // Who does not wait any more was told so: it must not be done behind his back.
        Order::MakeRole { done, .. } | Order::SetPassword { done, .. } | Order::FindRole { done, .. }
            if done.is_closed() => {}
        Order::MakeRole { user, password, done } => {
            let with = password.map(|password| format!(" PASSWORD '{}'", verifier(&password))).unwrap_or_default();
            let made = client.batch_execute(&soon(&format!("CREATE ROLE {} LOGIN{with}", quoted(&user)))).await;
            // Who does not wait any more does not want to know.
            let _ = done.send(match made {
                Err(error) if error.code() == Some(&tokio_postgres::error::SqlState::DUPLICATE_OBJECT) => {
                    Ok(Made::WasThere)
                }
                made => made.map(|()| Made::Done).map_err(|error| reason(&error)),
            });
        }
        Order::SetPassword { user, password, done } => {
            let sql = format!("ALTER ROLE {} PASSWORD '{}'", quoted(&user), verifier(&password));
            let set = client.batch_execute(&soon(&sql)).await;
            let _ = done.send(set.map(|()| Made::Done).map_err(|error| reason(&error)));
        }
        Order::FindRole { user, done } => {
            let sql = format!("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = {} /* backwater */", literal(&user));
            let found = client.simple_query(&soon(&sql)).await;
            let is_row = |message: &_| matches!(message, tokio_postgres::SimpleQueryMessage::Row(_));
            let told = |all: &Vec<_>| if all.iter().any(is_row) { Made::WasThere } else { Made::IsNot };
            let _ = done.send(found.as_ref().map(told).map_err(reason));
        }
    }
}

/// A statement that the server does soon or not at all. Several in one message are one transaction.
fn soon(sql: &str) -> String {
    format!("SET LOCAL statement_timeout = {}; {sql}", ROLE_WITHIN.as_millis())
}

/// Ends the session with this process id, our port and no more than this age, and nobody else: a process id may be another's by
/// now, or of another server where a load balancer or a pooler stands in between.
const TERMINATE: &str = "SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_get_activity($1) a \
     WHERE a.client_port = $2 AND a.backend_start >= clock_timestamp() - $3::int8 * interval '1 microsecond' /* backwater */";

/// Stops the session with this process id, beginning and statement, all of them still as they were, and nobody else.
fn stop_sql(whole_session: bool) -> String {
    let act = if whole_session { "pg_terminate_backend" } else { "pg_cancel_backend" };
    format!(
        "SELECT pg_catalog.{act}(a.pid) FROM pg_catalog.pg_stat_get_activity($1) a WHERE {} = $2 AND {} = $3 AND {} /* backwater */",
        hidden::BEGAN_US,
        hidden::STATEMENT_US,
        hidden::IS_ACTIVE
    )
}

/// What the server keeps of a password: so that neither its log nor the way there ever holds the password itself. It has no
/// character that would need quoting.
fn verifier(password: &str) -> String {
    postgres_protocol::password::scram_sha_256(password.as_bytes())
}

/// A text as SQL has it, whatever the server takes a backslash for.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A name as SQL has it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_passwords_never_told() {
        assert_eq!(quoted("a\"b; DROP"), "\"a\"\"b; DROP\"");
        assert_eq!(literal("it's \\"), "E'it''s \\\\'");
        let verifier = verifier("it's a secret");
        assert!(verifier.starts_with("SCRAM-SHA-256$") && !verifier.contains('\''), "{verifier}");
    }
}
