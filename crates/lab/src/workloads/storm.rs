//! The published WAL storm: a function that makes a table of many columns, fills it, drops it, and after a short wait
//! notes how far WAL has come here and on the standby. One transaction a call, with synchronous_commit off.
//!
//! Dropping a table makes even such a commit wait for its WAL to be flushed, so a call cannot end before the primary's
//! own disk has taken it; what the standby still lacks is what the notes show.

use super::driver::{Failure, Local, Session, Workload};
use super::error::cannot;
use super::{WorkloadError, config};
use backwater_model::ArmTable;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio_postgres::{Client, NoTls, Row, Statement};

/// What each call does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StormSpec {
    /// Columns of the table.
    pub columns: u32,
    /// Rows put into it.
    pub rows: u32,
    /// How long to wait before positions are noted, in milliseconds.
    pub pause_ms: f64,
}

/// Positions as one call noted them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Note {
    at: Instant,
    insert: f64,
    /// Sent, written, flushed, replayed; none without a standby.
    standby: Option<[f64; 4]>,
}

/// The storm; its function is made by [`Storm::prepare`]. What its calls note stays with it.
#[derive(Debug, Default)]
pub struct Storm {
    notes: Arc<Mutex<Vec<Note>>>,
}

/// Calls before the first experiment: at the published size some 250 MB of WAL.
const FIRST_CALLS: u32 = 30;
/// Calls of several clients end at once, and each notes its time when the answer comes, some milliseconds after the server looked:
/// over less than this they say nothing of a rate.
const LEAST_RATE_S: f64 = 0.1;
/// The columns of a storm's table, as published.
const COLUMNS: [&str; 6] =
    ["at_s", "wal_generated_kb_per_s", "sent_delay_kb", "write_delay_kb", "flush_delay_kb", "replay_delay_kb"];

impl Storm {
    /// Makes the function in the server's database, and calls it until there is WAL enough for a checkpoint to keep
    /// segments for reuse: a server that has run for a while has them, and one that has not would spend its disk on
    /// filling new ones with zeros.
    ///
    /// # Errors
    /// [`WorkloadError::Prepare`] with the server's answer: a role may not be allowed to make functions.
    pub fn prepare(conninfo: &str, spec: &StormSpec) -> Result<(), WorkloadError> {
        let config = config(conninfo)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| WorkloadError::System { call: "epoll_create", source })?;
        let made = runtime.block_on(async {
            let (client, connection) = config.connect(NoTls).await?;
            let connection = tokio::spawn(connection);
            let warm = format!(
                "SELECT count(*) FROM generate_series(1, {FIRST_CALLS}) AS n, backwater_storm('backwater_storm_' || n)"
            );
            let made = match client.batch_execute(&function(spec)).await {
                Ok(()) => client.batch_execute(&warm).await,
                Err(error) => Err(error),
            };
            drop(client);
            // It ends with its client; how it ended matters to nobody once the statement was answered.
            let _ended = connection.await;
            made
        });
        made.map_err(cannot("make the function of the WAL storm"))
    }

    /// What the calls noted, as published: a row a call, with the WAL generated since the call before it, or since the last one
    /// of which that was told.
    pub fn table(&self, began: Instant) -> ArmTable {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        notes.sort_by_key(|note| note.at);
        let mut before: Option<Note> = None;
        let mut row_of = |note: &Note| {
            let generated = before.and_then(|before| generated(&before, note));
            if before.is_none() || generated.is_some() {
                before = Some(*note);
            }
            row(began, generated, note)
        };
        let rows = notes.iter().map(&mut row_of).collect();
        ArmTable { columns: COLUMNS.map(str::to_owned).to_vec(), rows }
    }
}

/// WAL generated between two notes, in bytes × 0.001 a second; none where they lie too near to each other.
fn generated(before: &Note, note: &Note) -> Option<f64> {
    let seconds = note.at.saturating_duration_since(before.at).as_secs_f64();
    (seconds >= LEAST_RATE_S).then(|| (note.insert - before.insert).max(0.0) * 0.001 / seconds)
}

/// Delays in bytes ÷ 1024.
fn row(began: Instant, generated: Option<f64>, note: &Note) -> Vec<Option<f64>> {
    let at_s = note.at.saturating_duration_since(began).as_secs_f64();
    let delay = |hop: usize| note.standby.map(|positions| (note.insert - positions[hop]).max(0.0) / 1_024.0);
    [Some(at_s), generated].into_iter().chain((0..4).map(delay)).collect()
}

/// The function: the table's name is an argument, so that clients do not wait for each other.
fn function(spec: &StormSpec) -> String {
    let StormSpec { columns, rows, pause_ms } = *spec;
    let names: Vec<String> = (1..columns).map(|number| format!("c{number} bigint")).collect();
    let values: Vec<String> = (1..columns).map(|number| format!("n + {number}")).collect();
    let all = |own: &str, others: &[String]| [&[own.to_owned()], others].concat().join(", ");
    format!(
        "CREATE OR REPLACE FUNCTION backwater_storm(name text) RETURNS TABLE (insert_lsn float8, sent float8, written \
         float8, flushed float8, replayed float8) LANGUAGE plpgsql AS $body$ BEGIN \
         EXECUTE format('CREATE TABLE %I ({}) WITH (autovacuum_enabled = off)', name); \
         EXECUTE format('INSERT INTO %I SELECT {} FROM generate_series(1, {rows}) AS n', name); \
         EXECUTE format('DROP TABLE %I', name); \
         PERFORM pg_sleep({pause_s}); \
         RETURN QUERY SELECT (here.lsn - '0/0')::float8, (r.sent_lsn - '0/0')::float8, (r.write_lsn - '0/0')::float8, \
         (r.flush_lsn - '0/0')::float8, (r.replay_lsn - '0/0')::float8 \
         FROM (SELECT pg_current_wal_insert_lsn() AS lsn) AS here LEFT JOIN pg_stat_replication r ON r.state <> 'backup' \
         ORDER BY r.replay_lsn LIMIT 1; END $body$",
        all("id bigint", &names),
        all("n", &values),
        pause_s = pause_ms / 1e3,
    )
}

impl Workload for Storm {
    fn name(&self) -> &str {
        "wal-storm"
    }

    fn session(
        &self,
        connection: Client,
        client: usize,
        _seed: u64,
    ) -> Local<'_, Result<Box<dyn Session>, WorkloadError>> {
        Box::pin(async move {
            let wrong = cannot("prepare the WAL storm");
            connection
                .batch_execute("SET synchronous_commit = off; SET client_min_messages = error")
                .await
                .map_err(&wrong)?;
            let call = connection.prepare("SELECT * FROM backwater_storm($1)").await.map_err(&wrong)?;
            let table = format!("backwater_storm_{client}");
            Ok(Box::new(StormSession { connection, call, table, notes: Arc::clone(&self.notes) }) as Box<dyn Session>)
        })
    }
}

struct StormSession {
    connection: Client,
    call: Statement,
    table: String,
    notes: Arc<Mutex<Vec<Note>>>,
}

impl Session for StormSession {
    fn transaction(&mut self) -> Local<'_, Result<(), Failure>> {
        Box::pin(async {
            let row = self.connection.query_one(&self.call, &[&self.table]).await?;
            let note = note(&row, Instant::now())?;
            self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
            Ok(())
        })
    }
}

/// A standby that has only just connected has said no position yet.
fn note(row: &Row, at: Instant) -> Result<Note, Failure> {
    let insert: f64 = row.try_get(0)?;
    let mut positions = [0.0; 4];
    let mut known = true;
    for (place, position) in positions.iter_mut().enumerate() {
        match row.try_get::<_, Option<f64>>(place + 1)? {
            Some(value) => *position = value,
            None => known = false,
        }
    }
    Ok(Note { at, insert, standby: known.then_some(positions) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rows_are_in_the_published_units() {
        let began = Instant::now();
        let storm = Storm::default();
        let note = |seconds, insert, behind: Option<f64>| Note {
            at: began + Duration::from_secs(seconds),
            insert,
            standby: behind.map(|behind| [insert - behind, insert - 2.0 * behind, insert - behind, insert + 1.0]),
        };
        // Clients end in any order.
        let notes = [note(3, 5e6, None), note(1, 1e6, Some(1_024.0))];
        storm.notes.lock().unwrap_or_else(PoisonError::into_inner).extend(notes);
        let table = storm.table(began);
        assert_eq!(table.columns.len(), 6);
        assert_eq!(table.rows[0], [Some(1.0), None, Some(1.0), Some(2.0), Some(1.0), Some(0.0)]);
        assert_eq!(table.rows[1], [Some(3.0), Some(2_000.0), None, None, None, None]);
    }

    #[test]
    fn calls_that_end_at_once_make_no_rate_and_lose_no_wal() {
        let began = Instant::now();
        let storm = Storm::default();
        let note = |ms, insert| Note { at: began + Duration::from_millis(ms), insert, standby: None };
        let notes = [note(1_000, 1e6), note(1_002, 9e6), note(1_090, 10e6), note(2_000, 11e6), note(3_000, 12e6)];
        storm.notes.lock().unwrap_or_else(PoisonError::into_inner).extend(notes);
        let rates: Vec<_> = storm.table(began).rows.iter().map(|row| row[1]).collect();
        assert_eq!(rates, [None, None, None, Some(10_000.0), Some(1_000.0)]);
    }

    #[test]
    fn the_function_has_as_many_columns_as_asked_for() {
        let text = function(&StormSpec { columns: 3, rows: 7, pause_ms: 10.0 });
        assert!(text.contains("(id bigint, c1 bigint, c2 bigint) WITH"), "{text}");
        assert!(text.contains("SELECT n, n + 1, n + 2 FROM generate_series(1, 7)"), "{text}");
        assert!(text.contains("pg_sleep(0.01)"), "{text}");
        assert!(function(&StormSpec { columns: 1, rows: 1, pause_ms: 0.0 }).contains("(id bigint) WITH"));
    }
}
