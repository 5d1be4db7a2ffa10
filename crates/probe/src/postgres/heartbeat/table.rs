//! The one table that Backwater writes to in somebody's database: one row a recorder.

use crate::postgres::identity::quoted;
use tokio_postgres::{Client, SimpleQueryMessage};

const NAME: &str = "public.backwater_heartbeat";
const COLUMNS: &str = "recorder text PRIMARY KEY, beats bigint NOT NULL, beaten_at timestamptz NOT NULL";
/// The server itself gives up on a row or a table that another transaction holds, a little sooner than the beat is
/// given up, and also where the recorder was killed. Set for one transaction, since a pooler may lend the session to
/// others. A commit's wait for a standby is not ended by it: that takes a cancel request.
const LIMITED: &str = "SET LOCAL statement_timeout = '50s'";

/// Makes the table where there is none, and the recorder's row; clears away rows of recorders that were killed.
pub(super) async fn make(client: &Client, recorder: &str) -> Result<(), tokio_postgres::Error> {
    let there = format!("SELECT pg_catalog.to_regclass('{NAME}') IS NOT NULL");
    // Not left to IF NOT EXISTS, which asks for the right to create even where nothing is created.
    if first(&client.simple_query(&there).await?) != Some("t") {
        client.simple_query(&format!("{LIMITED}; CREATE TABLE IF NOT EXISTS {NAME} ({COLUMNS})")).await?;
    }
    let rows = format!(
        "{LIMITED}; DELETE FROM {NAME} WHERE beaten_at < pg_catalog.clock_timestamp() - interval '1 day'; \
         INSERT INTO {NAME} VALUES ('{recorder}', 0, pg_catalog.clock_timestamp()) ON CONFLICT DO NOTHING"
    );
    client.simple_query(&rows).await?;
    Ok(())
}

/// A beat's transaction. Statements sent as one text are one, which an error ends: with BEGIN and COMMIT it would stay
/// open, and nothing could be found out in it.
pub(super) fn beat(recorder: &str) -> String {
    format!(
        "{LIMITED}; UPDATE {NAME} SET beats = beats + 1, beaten_at = pg_catalog.clock_timestamp() \
         WHERE recorder = '{recorder}'"
    )
}

/// Takes the recorder's row away. Nobody stays to see whether a standby has it too.
pub(super) fn leave(recorder: &str) -> String {
    format!("{LIMITED}; SET LOCAL synchronous_commit = local; DELETE FROM {NAME} WHERE recorder = '{recorder}'")
}

/// What somebody with the right to do so would run once, for this role.
pub(super) fn remedy(role: &str, database: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {NAME} ({COLUMNS}); GRANT SELECT, INSERT, UPDATE, DELETE ON {NAME} TO {}; \
         -- in the database {}",
        quoted(role),
        quoted(database)
    )
}

/// A recorder's name as it stands between quotes: nothing in it needs one.
pub(super) fn recorder(hostname: &str, pid: u32, begun: i64) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let hostname: String = hostname.chars().filter(plain).take(64).collect();
    format!("{hostname}/{pid}/{begun}")
}

/// The first column of the first row.
pub(super) fn first(messages: &[SimpleQueryMessage]) -> Option<&str> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_no_quoting_and_roles_get_it() {
        assert_eq!(recorder("db-1.x'; DROP", 7, 42), "db-1.xDROP/7/42");
        let remedy = remedy("o\"x", "d b");
        assert!(remedy.contains("TO \"o\"\"x\"; -- in the database \"d b\""), "{remedy}");
    }
}
