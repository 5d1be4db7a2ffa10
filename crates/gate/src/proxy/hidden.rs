//! Sessions that are encrypted through to the server: nobody sees their messages. What they do the server itself says, and rules
//! judge them by that, as of the moment at which it was asked. Which of its processes is theirs is told by our end of the
//! connection with it.

use super::live::{Doing, Glimpse, Live};
use super::server_view::Told;
use backwater_model::{Moment, Span};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use tokio_postgres::Row;

/// What the server says a session does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Activity {
    pub(super) our_end: SocketAddr,
    pub(super) user: String,
    /// By the server's clock, in microseconds since 1970: that the session and its statement are still the same, no more.
    pub(super) began_us: i64,
    pub(super) statement_us: i64,
    /// How old the session was when the server was asked.
    pub(super) session_age: Span,
    pub(super) doing: Doing,
    /// For how long it had done that.
    pub(super) age: Span,
}

/// When a session began, and its statement, as whole microseconds: what is the same stays the same.
pub(super) const BEGAN_US: &str = "(extract(epoch FROM a.backend_start) * 1000000)::int8";
pub(super) const STATEMENT_US: &str = "(extract(epoch FROM a.query_start) * 1000000)::int8";
pub(super) const IS_ACTIVE: &str = "a.state IN ('active', 'fastpath function call')";

/// What is asked for of `pg_stat_activity a`; NULL for who may not see it.
pub(super) fn columns() -> String {
    let age = |of: &str| format!("(extract(epoch FROM clock_timestamp() - {of}) * 1000000)::int8");
    let doing_since = format!("CASE WHEN {IS_ACTIVE} THEN a.query_start ELSE a.state_change END");
    format!(
        "pg_catalog.host(a.client_addr), a.client_port, a.usename::text, {BEGAN_US}, {STATEMENT_US}, {}, a.state, {}",
        age("a.backend_start"),
        age(&doing_since)
    )
}

impl Activity {
    /// From those columns, the first of which is this one. None where the server does not say all of it, or not by TCP.
    pub(super) fn read(row: &Row, first: usize) -> Option<Activity> {
        let number = |place: usize| row.try_get::<_, Option<i64>>(first + place).ok().flatten();
        let text = |place: usize| row.try_get::<_, Option<String>>(first + place).ok().flatten();
        let address: IpAddr = text(0)?.parse().ok()?;
        let port = row.try_get::<_, Option<i32>>(first + 1).ok().flatten()?;
        Some(Activity {
            our_end: SocketAddr::new(address, u16::try_from(port).ok()?),
            user: text(2)?,
            began_us: number(3)?,
            statement_us: number(4).unwrap_or_default(),
            session_age: Span(number(5)?),
            doing: doing(&text(6)?)?,
            age: Span(number(7)?.max(0)),
        })
    }
}

/// A state as the server calls it; None where it does not keep it (track_activities).
fn doing(state: &str) -> Option<Doing> {
    match state {
        "active" | "fastpath function call" => Some(Doing::Running),
        "idle" => Some(Doing::Idle),
        "idle in transaction" | "idle in transaction (aborted)" => Some(Doing::Between),
        _ => None,
    }
}

/// Numbers the statements of one session.
#[derive(Debug, Default)]
pub(super) struct Statements {
    last_us: Option<i64>,
    number: u64,
}

impl Statements {
    /// The number of the statement that runs.
    fn number(&mut self, activity: &Activity) -> Option<u64> {
        if self.last_us.replace(activity.statement_us) != Some(activity.statement_us) {
            self.number += 1;
        }
        (activity.doing == Doing::Running).then_some(self.number)
    }
}

/// A session as it is judged.
pub(super) struct Seen<'l> {
    pub(super) live: &'l Live,
    pub(super) glimpse: Glimpse,
    pub(super) user: Cow<'l, str>,
    /// Until when its statement is known to have run.
    pub(super) until: Moment,
    /// Rows that it sent, where its messages are seen.
    pub(super) rows: Option<u64>,
    pub(super) told: Option<Told>,
    /// Its process and what that does, where only the server says it.
    pub(super) by_server: Option<(i32, Activity)>,
}

impl<'l> Seen<'l> {
    /// One whose messages are seen, with what the server tells of it besides.
    pub(super) fn by_messages(live: &'l Live, glimpse: Glimpse, now: Moment, told: Option<Told>) -> Seen<'l> {
        let (user, rows) = (Cow::Borrowed(&*live.identity.user), Some(glimpse.rows));
        Seen { live, glimpse, user, until: now, rows, told, by_server: None }
    }

    /// One of which the server tells what it does.
    pub(super) fn by_server(
        live: &'l Live,
        glimpse: Glimpse,
        (pid, told): (i32, Told),
        statements: &mut Statements,
    ) -> Option<Seen<'l>> {
        let activity = told.activity.clone()?;
        let until = told.asked_at;
        let glimpse = Glimpse {
            doing: activity.doing,
            statement: statements.number(&activity),
            since: until - activity.age,
            ..glimpse
        };
        let user = Cow::Owned(activity.user.clone());
        Some(Seen { live, glimpse, user, until, rows: None, told: Some(told), by_server: Some((pid, activity)) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn activity(statement_us: i64, doing: Doing) -> Activity {
        Activity {
            our_end: "127.0.0.1:4000".parse().unwrap(),
            user: "u".into(),
            began_us: 1,
            statement_us,
            session_age: Span(0),
            doing,
            age: Span(0),
        }
    }

    #[test]
    fn a_statement_has_one_number_as_long_as_the_server_says_that_it_runs() {
        let mut statements = Statements::default();
        let mut number = |us, doing| statements.number(&activity(us, doing));
        assert_eq!(number(10, Doing::Running), Some(1));
        assert_eq!(number(10, Doing::Running), Some(1));
        assert_eq!(number(10, Doing::Idle), None);
        assert_eq!(number(20, Doing::Running), Some(2));
        // One that ran between two questions was never seen.
        assert_eq!(number(30, Doing::Between), None);
        assert_eq!(number(40, Doing::Running), Some(4));
    }

    #[test]
    fn a_state_that_the_server_does_not_keep_is_none() {
        let states = ["active", "idle", "idle in transaction (aborted)", "disabled", ""];
        assert_eq!(states.map(doing), [Some(Doing::Running), Some(Doing::Idle), Some(Doing::Between), None, None]);
    }
}
