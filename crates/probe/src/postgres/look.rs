//! What one look found: the server's answer, or what stood in its shared memory.

use super::identity::Privileges;
use super::row::{Rows, ServerTime, array, int, long, text, time};
use backwater_model::Moment;
use tokio_postgres::types::Type;

/// The columns of an answer.
const TYPES: [Type; 10] = [
    Type::INT4,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
    Type::INT8,
    Type::TEXT_ARRAY,
];

/// When a look was answered, by this host's clock, and when it was asked, by the server's.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) at: Moment,
    pub(super) server: Option<ServerTime>,
}

/// A row that is a session's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Session<'r> {
    pub(super) pid: i32,
    pub(super) class: Option<&'r str>,
    pub(super) event: Option<&'r str>,
    pub(super) application: Option<&'r str>,
    /// None where it is active.
    pub(super) state: Option<&'r str>,
    /// None where it was not sent.
    pub(super) query: Option<&'r str>,
    pub(super) begun: Option<ServerTime>,
    pub(super) transaction_begun: Option<ServerTime>,
    pub(super) query_id: Option<i64>,
    /// Whose it is, where that was sent.
    pub(super) sent: Option<Sent<'r>>,
}

/// What a look was answered.
#[derive(Debug, Default)]
pub(super) struct Look<'r> {
    pub(super) sessions: Vec<Session<'r>>,
    /// The server's clock.
    pub(super) server: Option<ServerTime>,
    /// Whether the role sees all or its own sessions, of the row that is no session's.
    pub(super) seen: Option<&'r str>,
}

impl<'r> Look<'r> {
    pub(super) fn of(rows: &'r Rows) -> Result<Look<'r>, String> {
        let mut look = Look { sessions: Vec::with_capacity(rows.count()), ..Look::default() };
        rows.each(&TYPES, |cells| {
            let [pid, class, event, application, state, query, begun, transaction_begun, query_id, whose] = cells;
            let Some(pid) = int(pid) else {
                (look.seen, look.server) = (look.seen.or(text(state)), look.server.or(time(begun)));
                return;
            };
            look.sessions.push(Session {
                pid,
                class: text(class),
                event: text(event),
                application: text(application),
                state: text(state),
                query: text(query),
                begun: time(begun),
                transaction_begun: time(transaction_begun),
                query_id: long(query_id),
                sent: Sent::of(whose),
            });
        })?;
        Ok(look)
    }

    /// Whether the role no longer sees what it did, or sees more: what others do would seem to have ended, and would not be
    /// read where it may be now.
    pub(super) fn has_other_rights(&self, privileges: &Privileges) -> bool {
        self.seen.is_some_and(|seen| (seen == "all") != privileges.all_stats)
    }
}

/// Whose a session is, as it is sent of those that are new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent<'r> {
    pub(super) backend_type: Option<&'r str>,
    pub(super) role: Option<u32>,
    pub(super) database: Option<u32>,
    pub(super) client_addr: Option<&'r str>,
    pub(super) client_port: Option<i32>,
}

impl<'r> Sent<'r> {
    fn of(whose: Option<&'r [u8]>) -> Option<Sent<'r>> {
        let [backend_type, role, database, client_addr, client_port] = array(whose)?.map(text);
        Some(Sent {
            backend_type,
            role: role.and_then(|oid| oid.parse().ok()),
            database: database.and_then(|oid| oid.parse().ok()),
            client_addr,
            client_port: client_port.and_then(|port| port.parse().ok()),
        })
    }

    /// Whether it is so for good: since 18 a client is shown before it is authenticated, without its user and database.
    pub(super) fn is_settled(&self) -> bool {
        self.backend_type != Some("client backend") || self.role.is_some()
    }
}
