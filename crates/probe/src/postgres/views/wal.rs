//! Write-ahead log: positions, what is kept in pg_wal, what was archived, and how often it was written and synced.

use super::{ALWAYS, Of, Source, View};
use backwater_model::catalogue as c;

/// Read in this order, so that flush ≤ write ≤ insert although each moves between the calls.
pub(super) fn positions() -> View {
    Source { what: "WAL positions", period_ms: 500, ..ALWAYS }.view(&[
        (&c::PG_WAL_FLUSH, "CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_flush_lsn() - '0/0' END"),
        (&c::PG_WAL_WRITE, "CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() - '0/0' END"),
        (&c::PG_WAL_INSERT, "CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn() - '0/0' END"),
        (&c::PG_WAL_REPLAY, "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() - '0/0' END"),
        (&c::PG_WAL_RECEIVE, "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() - '0/0' END"),
    ])
}

pub(super) fn redo() -> View {
    Source { what: "pg_control_checkpoint", from: "pg_control_checkpoint()", of: Of::Checkpoint, ..ALWAYS }
        .view(&[(&c::PG_CHECKPOINT_REDO, "redo_lsn - '0/0'")])
}

/// The begin of the segment that a file is named after: 8 digits of timeline, 8 of 4 GiB, 8 of segments in those.
macro_rules! segment_begin {
    ($name:literal) => {
        concat!(
            "('x' || substr(",
            $name,
            ", 9, 8))::bit(32)::int8 * 4294967296 + ('x' || substr(",
            $name,
            ", 17, 8))::bit(32)::int8 * pg_size_bytes(current_setting('wal_segment_size'))"
        )
    };
}

/// Segments alone (no timeline history, no backup label, nothing partial), of every timeline, those made ahead
/// included: they take their place on the disk. A listing asks the kernel for each file, so it comes less often.
pub(super) fn directory() -> View {
    let from = "(SELECT min(substr(name, 9)) AS oldest, sum(size) AS bytes FROM pg_ls_waldir() \
                WHERE name ~ '^[0-9A-F]{24}$') AS kept";
    Source { what: "pg_ls_waldir", from, period_ms: 2_000, ..ALWAYS }
        .view(&[(&c::PG_WAL_OLDEST_KEPT, segment_begin!("'00000000' || oldest")), (&c::PG_WAL_DIR, "bytes")])
}

/// Where the last file archived was none with WAL of its own, there is no position until the next one.
pub(super) fn archiver(age: &'static str) -> View {
    let from = "pg_stat_archiver";
    Source { what: from, from, reset: "stats_reset", age, of: Of::Archiving, ..ALWAYS }.view(&[
        (&c::PG_ARCHIVED, "archived_count"),
        (&c::PG_ARCHIVE_FAILED, "failed_count"),
        (
            &c::PG_ARCHIVED_UPTO,
            concat!(
                "CASE WHEN last_archived_wal ~ '^[0-9A-F]{24}$' THEN ",
                segment_begin!("last_archived_wal"),
                " + pg_size_bytes(current_setting('wal_segment_size')) END"
            ),
        ),
    ])
}

/// Writes and syncs of WAL left this view in 18. A time that is not taken is unknown, not zero.
pub(super) fn statistics(major: i32, age: &'static str) -> View {
    let mut columns = vec![
        (&c::PG_WAL_RECORDS, "wal_records"),
        (&c::PG_WAL_FPI, "wal_fpi"),
        (&c::PG_WAL_BUFFERS_FULL, "wal_buffers_full"),
    ];
    if major < 18 {
        columns.extend([
            (&c::PG_WAL_WRITES, "wal_write"),
            (&c::PG_WAL_SYNCS, "wal_sync"),
            (&c::PG_WAL_WRITE_MS, "CASE WHEN current_setting('track_wal_io_timing')::bool THEN wal_write_time END"),
            (&c::PG_WAL_SYNC_MS, "CASE WHEN current_setting('track_wal_io_timing')::bool THEN wal_sync_time END"),
        ]);
    }
    Source { what: "pg_stat_wal", from: "pg_stat_wal", reset: "stats_reset", age, ..ALWAYS }.view(&columns)
}

/// Of every process, the walreceiver included; segments that are filled ahead (context init) are no writes of WAL.
pub(super) fn io_from_18() -> View {
    let from = "pg_stat_io WHERE object = 'wal' AND context = 'normal'";
    Source { what: "writes of WAL", from, reset: "max(stats_reset)", ..ALWAYS }.view(&[
        (&c::PG_WAL_WRITES, "coalesce(sum(writes), 0)"),
        (&c::PG_WAL_SYNCS, "coalesce(sum(fsyncs), 0)"),
        (&c::PG_WAL_WRITE_MS, "CASE WHEN current_setting('track_wal_io_timing')::bool THEN sum(write_time) END"),
        (&c::PG_WAL_SYNC_MS, "CASE WHEN current_setting('track_wal_io_timing')::bool THEN sum(fsync_time) END"),
    ])
}
