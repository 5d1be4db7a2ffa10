//! What the server works at: databases, checkpoints, the background writer, and who reads and writes pages.

use super::{ALWAYS, Source, View};
use backwater_model::catalogue as c;

/// The busiest databases; fifty are enough to see where the writes come from, and bound a recording.
pub(super) fn databases(age: &'static str) -> View {
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

pub(super) fn checkpoints_to_16(age: &'static str) -> View {
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
pub(super) fn checkpoints_from_17() -> View {
    Source { what: "pg_stat_checkpointer", from: "pg_stat_checkpointer", reset: "stats_reset", ..ALWAYS }.view(&[
        (&c::PG_CHECKPOINTS_TIMED, "num_timed + restartpoints_timed"),
        (&c::PG_CHECKPOINTS_REQUESTED, "num_requested + restartpoints_req"),
        (&c::PG_CHECKPOINT_WRITE_MS, "write_time"),
        (&c::PG_CHECKPOINT_SYNC_MS, "sync_time"),
        (&c::PG_CHECKPOINT_BUFFERS, "buffers_written"),
    ])
}

pub(super) fn background_writer_from_17() -> View {
    Source { what: "pg_stat_bgwriter", from: "pg_stat_bgwriter", reset: "stats_reset", ..ALWAYS }
        .view(&[(&c::PG_BGWRITER_BUFFERS, "buffers_clean"), (&c::PG_BUFFERS_ALLOCATED, "buffers_alloc")])
}

/// Since 17 only pg_stat_io knows what backends write themselves. Extensions count, as they did in buffers_backend.
pub(super) fn backends_from_17() -> View {
    let from = "pg_stat_io WHERE object = 'relation' AND backend_type NOT IN ('checkpointer', 'background writer')";
    Source { what: "writes by backends", from, reset: "max(stats_reset)", ..ALWAYS }.view(&[
        (&c::PG_BACKEND_BUFFERS, "coalesce(sum(writes), 0) + coalesce(sum(extends), 0)"),
        (&c::PG_BACKEND_FSYNCS, "coalesce(sum(fsyncs), 0)"),
    ])
}

/// Rows in which nothing ever happened are most of the view, and are left out.
pub(super) fn io(major: i32) -> View {
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
