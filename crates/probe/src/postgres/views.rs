//! The server's counters as a table: which view has which series under which expression, by version. The edges that
//! matter are 13 (slots' safe size), 14 (pg_stat_wal), 16 (pg_stat_io), 17 (pg_stat_checkpointer) and 18 (bytes in
//! pg_stat_io).

use backwater_model::catalogue::{self as c, Def};

/// How old a value is when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// True at the read.
    Now,
    /// As old as the view's `age` says.
    Aged,
}

/// One series of a view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) def: &'static Def,
    expression: &'static str,
    pub(super) fresh: Fresh,
}

/// One query and the series it brings, in the order of its columns.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// For messages, and part of the epoch.
    pub(super) what: &'static str,
    /// Names of the labels besides `target`.
    pub(super) labels: Vec<&'static str>,
    pub(super) columns: Vec<Column>,
    /// Milliseconds between reads.
    pub(super) period_ms: i64,
    /// Whether it shows something only to pg_monitor.
    pub(super) needs_stats: bool,
    /// Selects the labels as text, the time of the last reset as text, the age in seconds, then the columns as float8.
    pub(super) sql: String,
}

/// What a view is made of.
struct Source {
    what: &'static str,
    from: &'static str,
    labels: &'static [(&'static str, &'static str)],
    reset: &'static str,
    age: &'static str,
    period_ms: i64,
    needs_stats: bool,
}

const ALWAYS: Source =
    Source { what: "", from: "", labels: &[], reset: "''", age: "NULL", period_ms: 1_000, needs_stats: false };

/// Up to 14 a collector process writes the statistics to a file; this is how old that file is.
const COLLECTOR_AGE: &str = "date_part('epoch', clock_timestamp() - pg_stat_get_snapshot_timestamp())";

impl Source {
    fn view(self, columns: &[(&'static Def, &'static str)]) -> View {
        let fresh = if self.age == "NULL" { Fresh::Now } else { Fresh::Aged };
        let columns = columns.iter().map(|(def, expression)| Column { def, expression, fresh }).collect();
        self.view_of(columns)
    }

    fn view_of(self, columns: Vec<Column>) -> View {
        let labels = self.labels.iter().map(|(_, expression)| format!("({expression})::text"));
        let facts = [format!("({})::text", self.reset), format!("({})::float8", self.age)];
        let values = columns.iter().map(|column| format!("({})::float8", column.expression));
        let list: Vec<_> = labels.chain(facts).chain(values).collect();
        let from = if self.from.is_empty() { String::new() } else { format!(" FROM {}", self.from) };
        View {
            what: self.what,
            labels: self.labels.iter().map(|(name, _)| *name).collect(),
            columns,
            period_ms: self.period_ms,
            needs_stats: self.needs_stats,
            sql: format!("SELECT {}{from}", list.join(", ")),
        }
    }
}

/// Every view of this major version.
pub(super) fn views(major: i32) -> Vec<View> {
    let age = if major < 15 { COLLECTOR_AGE } else { "NULL" };
    let mut views =
        vec![wal_positions(), redo(), sessions(), databases(age), replication(), slots(major), archiver(age)];
    if major < 17 {
        views.push(checkpoints_to_16(age));
    } else {
        views.extend([checkpoints_from_17(), background_writer_from_17(), backends_from_17()]);
    }
    if major >= 14 {
        views.push(wal_statistics(age));
    }
    if major >= 16 {
        views.push(io(major));
    }
    views
}

/// Read in this order, so that flush ≤ write ≤ insert although each moves between the calls.
fn wal_positions() -> View {
    Source { what: "WAL positions", period_ms: 500, ..ALWAYS }.view(&[
        (&c::PG_WAL_FLUSH, "CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_flush_lsn() - '0/0' END"),
        (&c::PG_WAL_WRITE, "CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() - '0/0' END"),
        (&c::PG_WAL_INSERT, "CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn() - '0/0' END"),
        (&c::PG_WAL_REPLAY, "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() - '0/0' END"),
        (&c::PG_WAL_RECEIVE, "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() - '0/0' END"),
    ])
}

fn redo() -> View {
    Source { what: "pg_control_checkpoint", from: "pg_control_checkpoint()", ..ALWAYS }
        .view(&[(&c::PG_CHECKPOINT_REDO, "redo_lsn - '0/0'")])
}

fn sessions() -> View {
    // The probe's own session is not one of the server's work.
    let from = "pg_stat_get_activity(NULL) WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    Source { what: "session count", from, needs_stats: true, ..ALWAYS }.view(&[(&c::PG_SESSIONS_TOTAL, "count(*)")])
}

/// The busiest databases; fifty are enough to see where the writes come from, and bound a recording.
fn databases(age: &'static str) -> View {
    let from = "pg_stat_database WHERE datname IS NOT NULL AND datname NOT IN ('template0', 'template1') \
                ORDER BY xact_commit + xact_rollback DESC LIMIT 50";
    Source { what: "pg_stat_database", from, labels: &[("database", "datname")], reset: "stats_reset", age, ..ALWAYS }
        .view(&[
            (&c::PG_XACT_COMMIT, "xact_commit"),
            (&c::PG_XACT_ROLLBACK, "xact_rollback"),
            (&c::PG_TUP_INSERTED, "tup_inserted"),
            (&c::PG_TUP_UPDATED, "tup_updated"),
            (&c::PG_TUP_DELETED, "tup_deleted"),
            (&c::PG_BLKS_READ, "blks_read"),
            (&c::PG_BLKS_HIT, "blks_hit"),
            (&c::PG_TEMP_BYTES, "temp_bytes"),
            (&c::PG_DEADLOCKS, "deadlocks"),
            (&c::PG_CONFLICTS, "conflicts"),
        ])
}

fn checkpoints_to_16(age: &'static str) -> View {
    Source { what: "pg_stat_bgwriter", from: "pg_stat_bgwriter", reset: "stats_reset", age, ..ALWAYS }.view(&[
        (&c::PG_CHECKPOINTS_TIMED, "checkpoints_timed"),
        (&c::PG_CHECKPOINTS_REQUESTED, "checkpoints_req"),
        (&c::PG_CHECKPOINT_WRITE_MS, "checkpoint_write_time"),
        (&c::PG_CHECKPOINT_SYNC_MS, "checkpoint_sync_time"),
        (&c::PG_CHECKPOINT_BUFFERS, "buffers_checkpoint"),
        (&c::PG_BGWRITER_BUFFERS, "buffers_clean"),
        (&c::PG_BACKEND_BUFFERS, "buffers_backend"),
        (&c::PG_BACKEND_FSYNCS, "buffers_backend_fsync"),
        (&c::PG_BUFFERS_ALLOCATED, "buffers_alloc"),
    ])
}

/// A standby's restartpoints are counted apart since 17; together they mean what one counter meant before.
fn checkpoints_from_17() -> View {
    Source { what: "pg_stat_checkpointer", from: "pg_stat_checkpointer", reset: "stats_reset", ..ALWAYS }.view(&[
        (&c::PG_CHECKPOINTS_TIMED, "num_timed + restartpoints_timed"),
        (&c::PG_CHECKPOINTS_REQUESTED, "num_requested + restartpoints_req"),
        (&c::PG_CHECKPOINT_WRITE_MS, "write_time"),
        (&c::PG_CHECKPOINT_SYNC_MS, "sync_time"),
        (&c::PG_CHECKPOINT_BUFFERS, "buffers_written"),
    ])
}

fn background_writer_from_17() -> View {
    Source { what: "pg_stat_bgwriter", from: "pg_stat_bgwriter", reset: "stats_reset", ..ALWAYS }
        .view(&[(&c::PG_BGWRITER_BUFFERS, "buffers_clean"), (&c::PG_BUFFERS_ALLOCATED, "buffers_alloc")])
}

/// Since 17 only pg_stat_io knows what backends write themselves. Extensions count, as they did in buffers_backend.
fn backends_from_17() -> View {
    let from = "pg_stat_io WHERE object = 'relation' AND backend_type NOT IN ('checkpointer', 'background writer')";
    Source { what: "writes by backends", from, reset: "max(stats_reset)", ..ALWAYS }.view(&[
        (&c::PG_BACKEND_BUFFERS, "coalesce(sum(writes), 0) + coalesce(sum(extends), 0)"),
        (&c::PG_BACKEND_FSYNCS, "coalesce(sum(fsyncs), 0)"),
    ])
}

fn wal_statistics(age: &'static str) -> View {
    Source { what: "pg_stat_wal", from: "pg_stat_wal", reset: "stats_reset", age, ..ALWAYS }.view(&[
        (&c::PG_WAL_RECORDS, "wal_records"),
        (&c::PG_WAL_FPI, "wal_fpi"),
        (&c::PG_WAL_BUFFERS_FULL, "wal_buffers_full"),
    ])
}

/// Rows in which nothing ever happened are most of the view, and are left out.
fn io(major: i32) -> View {
    let from = "pg_stat_io WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(extends, 0) \
                + coalesce(fsyncs, 0) + coalesce(writebacks, 0) > 0";
    let labels = &[("backend_type", "backend_type"), ("object", "object"), ("context", "context")];
    let (write_bytes, read_bytes) =
        if major < 18 { ("writes * op_bytes", "reads * op_bytes") } else { ("write_bytes", "read_bytes") };
    Source { what: "pg_stat_io", from, labels, reset: "stats_reset", ..ALWAYS }.view(&[
        (&c::PG_IO_READS, "reads"),
        (&c::PG_IO_WRITES, "writes"),
        (&c::PG_IO_WRITE_BYTES, write_bytes),
        (&c::PG_IO_READ_BYTES, read_bytes),
        (&c::PG_IO_EXTENDS, "extends"),
        (&c::PG_IO_WRITEBACKS, "writebacks"),
        (&c::PG_IO_FSYNCS, "fsyncs"),
        (&c::PG_IO_WRITE_MS, "write_time"),
        (&c::PG_IO_FSYNC_MS, "fsync_time"),
    ])
}

/// Sent is known here and now; the rest is what the standby last said. Standbys without slots that share name and
/// address are told apart by the walsender.
fn replication() -> View {
    let from = "(SELECT r.*, CASE WHEN s.slot_name IS NOT NULL THEN s.slot_name::text \
                WHEN count(*) OVER same > 1 THEN concat(r.application_name, '@', coalesce(host(r.client_addr), 'local'), '#', r.pid) \
                ELSE concat(r.application_name, '@', coalesce(host(r.client_addr), 'local')) END AS standby \
                FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid \
                WHERE r.state <> 'backup' \
                WINDOW same AS (PARTITION BY s.slot_name, r.application_name, r.client_addr)) AS standbys";
    let column = |def, expression, fresh| Column { def, expression, fresh };
    Source {
        what: "pg_stat_replication",
        from,
        labels: &[("standby", "standby")],
        age: "date_part('epoch', clock_timestamp() - reply_time)",
        needs_stats: true,
        ..ALWAYS
    }
    .view_of(vec![
        column(&c::PG_REPL_SENT, "sent_lsn - '0/0'", Fresh::Now),
        column(&c::PG_REPL_WRITE, "write_lsn - '0/0'", Fresh::Aged),
        column(&c::PG_REPL_FLUSH, "flush_lsn - '0/0'", Fresh::Aged),
        column(&c::PG_REPL_REPLAY, "replay_lsn - '0/0'", Fresh::Aged),
    ])
}

fn slots(major: i32) -> View {
    let mut columns = vec![(&c::PG_SLOT_RESTART, "restart_lsn - '0/0'"), (&c::PG_SLOT_ACTIVE, "active::int")];
    if major >= 13 {
        columns.push((&c::PG_SLOT_SAFE, "safe_wal_size"));
    }
    let from = "pg_replication_slots WHERE NOT temporary";
    Source { what: "pg_replication_slots", from, labels: &[("slot", "slot_name")], ..ALWAYS }.view(&columns)
}

fn archiver(age: &'static str) -> View {
    Source { what: "pg_stat_archiver", from: "pg_stat_archiver", reset: "stats_reset", age, ..ALWAYS }
        .view(&[(&c::PG_ARCHIVED, "archived_count"), (&c::PG_ARCHIVE_FAILED, "failed_count")])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(major: i32, def: &Def) -> bool {
        views(major).iter().flat_map(|view| &view.columns).any(|column| column.def == def)
    }

    #[test]
    fn the_edges_between_versions() {
        for major in 12..=18 {
            assert!(has(major, &c::PG_BACKEND_BUFFERS) && has(major, &c::PG_CHECKPOINT_SYNC_MS), "{major}");
            assert_eq!(has(major, &c::PG_SLOT_SAFE), major >= 13);
            assert_eq!(has(major, &c::PG_WAL_RECORDS), major >= 14);
            assert_eq!(has(major, &c::PG_IO_WRITES), major >= 16);
            let text: String = views(major).into_iter().map(|view| view.sql).collect();
            assert_eq!(text.contains("pg_stat_checkpointer"), major >= 17);
            assert_eq!(text.contains("op_bytes"), (16..18).contains(&major));
            assert_eq!(text.contains("pg_stat_get_snapshot_timestamp"), major < 15);
        }
    }

    #[test]
    fn labels_are_those_of_the_catalogue_and_names_are_unique() {
        for major in 12..=18 {
            let mut names: Vec<_> = views(major).iter().map(|view| view.what).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), views(major).len());
            for view in views(major) {
                let labels: Vec<_> = ["target"].into_iter().chain(view.labels.iter().copied()).collect();
                assert!(view.columns.iter().all(|column| column.def.labels == labels), "{}", view.what);
            }
        }
    }
}
