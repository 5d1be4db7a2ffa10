//! Replication from both ends: standbys and slots where WAL is sent, the receiver and replay where it arrives. A standby
//! that sends on has both.

use super::{ALWAYS, Column, Fresh, Of, Source, View};
use backwater_model::catalogue as c;

/// Standbys and slots that are put down. Nobody runs more, and a recording stays bounded.
const MOST: usize = 200;

/// Sent is known here and now; the rest is what the standby last said, its lags included. Standbys without slots that
/// share name and address are told apart by the walsender; a temporary slot gives no name, for the next connection has
/// another. What ends by itself is no standby: base backups with their stream of WAL, and the first copies of subscribed
/// tables (up to 13 by a temporary slot). Those that commits wait for come first, then the oldest.
pub(super) fn standbys() -> View {
    let from = "(SELECT r.*, CASE WHEN NOT s.temporary THEN s.slot_name::text \
                WHEN count(*) OVER same > 1 THEN concat(r.application_name, '@', coalesce(host(r.client_addr), 'local'), '#', r.pid) \
                ELSE concat(r.application_name, '@', coalesce(host(r.client_addr), 'local')) END AS standby \
                FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid \
                WHERE r.state <> 'backup' AND r.application_name !~ '^pg_basebackup$|^pg_[0-9]+_sync_[0-9]+_[0-9]+$' \
                AND NOT coalesce(s.slot_name ~ '^pg_[0-9]+_sync_[0-9]+_[0-9]+$' \
                OR s.temporary AND s.slot_name ~ '^pg_basebackup_|_[0-9]+_sync_[0-9]+$', false) \
                WINDOW same AS (PARTITION BY CASE WHEN NOT s.temporary THEN s.slot_name END, \
                r.application_name, r.client_addr)) AS standbys \
                ORDER BY sync_state IN ('sync', 'quorum') DESC, backend_start, pid";
    let now = |def, expression| Column { def, expression, fresh: Fresh::Now };
    let said = |def, expression| Column { def, expression, fresh: Fresh::Aged };
    Source {
        what: "pg_stat_replication",
        from,
        labels: &[("standby", "standby")],
        age: "date_part('epoch', clock_timestamp() - reply_time)",
        needs_stats: true,
        of: Of::Walsenders,
        most_rows: Some(MOST),
        ..ALWAYS
    }
    .view_of(vec![
        now(&c::PG_REPL_SENT, "sent_lsn - '0/0'"),
        said(&c::PG_REPL_WRITE, "write_lsn - '0/0'"),
        said(&c::PG_REPL_FLUSH, "flush_lsn - '0/0'"),
        said(&c::PG_REPL_REPLAY, "replay_lsn - '0/0'"),
        said(&c::PG_REPL_WRITE_LAG, "date_part('epoch', write_lag) * 1e6"),
        said(&c::PG_REPL_FLUSH_LAG, "date_part('epoch', flush_lag) * 1e6"),
        said(&c::PG_REPL_REPLAY_LAG, "date_part('epoch', replay_lag) * 1e6"),
        // The standby's clock says when; one that is ahead of this server's must not give an age below zero.
        now(&c::PG_REPL_REPLY_AGE, "greatest(date_part('epoch', clock_timestamp() - reply_time), 0)"),
        now(&c::PG_REPL_STREAMING, "(state = 'streaming')::int"),
        now(&c::PG_REPL_SYNC, "(sync_state IN ('sync', 'quorum'))::int"),
        now(&c::PG_REPL_PID, "pid"),
    ])
}

/// Reasons as slot.c spells them; a new one of a later release is told from none.
const INVALIDATION: &str = "CASE invalidation_reason WHEN 'wal_removed' THEN 1 WHEN 'rows_removed' THEN 2 \
     WHEN 'wal_level_insufficient' THEN 3 WHEN 'idle_timeout' THEN 4 ELSE 5 * (invalidation_reason IS NOT NULL)::int END";

/// A slot that was never used has no restart position and no status.
pub(super) fn slots(major: i32) -> View {
    let mut columns = vec![
        (&c::PG_SLOT_RESTART, "restart_lsn - '0/0'"),
        (&c::PG_SLOT_ACTIVE, "active::int"),
        (&c::PG_SLOT_LOGICAL, "(slot_type = 'logical')::int"),
    ];
    if major >= 13 {
        columns.extend([
            (&c::PG_SLOT_SAFE, "safe_wal_size"),
            (&c::PG_SLOT_LOST, "(wal_status = 'lost')::int"),
            (&c::PG_SLOT_UNRESERVED, "(wal_status = 'unreserved')::int"),
        ]);
    }
    if major >= 17 {
        columns.push((&c::PG_SLOT_INVALIDATION, INVALIDATION));
    }
    let from = "pg_replication_slots WHERE NOT temporary ORDER BY slot_name";
    let labels = &[("slot", "slot_name")];
    Source { what: "pg_replication_slots", from, labels, most_rows: Some(MOST), of: Of::Slots, ..ALWAYS }.view(&columns)
}

/// One row on a standby, with or without a receiver; none on a primary.
pub(super) fn receiver(major: i32) -> View {
    let from = "(SELECT 1 WHERE pg_is_in_recovery()) AS standby LEFT JOIN pg_stat_wal_receiver AS r ON true";
    let now = |def, expression| Column { def, expression, fresh: Fresh::Now };
    let mut columns = vec![
        now(&c::PG_RECEIVER_STREAMING, "coalesce((r.status = 'streaming')::int, 0)"),
        Column { def: &c::PG_RECEIVER_LATEST_END, expression: "r.latest_end_lsn - '0/0'", fresh: Fresh::Aged },
        now(
            &c::PG_RECEIVER_MESSAGE_AGE,
            "greatest(date_part('epoch', clock_timestamp() - r.last_msg_receipt_time), 0)",
        ),
    ];
    if major >= 13 {
        columns.push(now(&c::PG_RECEIVER_WRITTEN, "r.written_lsn - '0/0'"));
    }
    let age = "date_part('epoch', clock_timestamp() - r.last_msg_receipt_time)";
    Source { what: "pg_stat_wal_receiver", from, age, needs_stats: true, of: Of::Recovery, ..ALWAYS }.view_of(columns)
}

/// Since 14 a pause that was asked for and one that has begun are two things.
pub(super) fn replay(major: i32) -> View {
    let paused =
        if major < 14 { "pg_is_wal_replay_paused()::int" } else { "(pg_get_wal_replay_pause_state() = 'paused')::int" };
    let from = "(SELECT 1 WHERE pg_is_in_recovery()) AS standby";
    Source { what: "replay state", from, of: Of::Recovery, ..ALWAYS }.view(&[(&c::PG_REPLAY_PAUSED, paused)])
}

/// Queries that recovery cancelled in any database, by why.
pub(super) fn conflicts(major: i32, age: &'static str) -> View {
    let from = if major < 16 {
        "pg_stat_database_conflicts, LATERAL (VALUES ('tablespace', confl_tablespace), ('lock', confl_lock), \
         ('snapshot', confl_snapshot), ('bufferpin', confl_bufferpin), ('deadlock', confl_deadlock)) AS why(kind, times) \
         WHERE pg_is_in_recovery() GROUP BY kind"
    } else {
        "pg_stat_database_conflicts, LATERAL (VALUES ('tablespace', confl_tablespace), ('lock', confl_lock), \
         ('snapshot', confl_snapshot), ('bufferpin', confl_bufferpin), ('deadlock', confl_deadlock), \
         ('logicalslot', confl_active_logicalslot)) AS why(kind, times) WHERE pg_is_in_recovery() GROUP BY kind"
    };
    let reset = "(SELECT max(stats_reset) FROM pg_stat_database)";
    let labels = &[("kind", "kind")];
    Source { what: "pg_stat_database_conflicts", from, labels, reset, age, of: Of::Recovery, ..ALWAYS }
        .view(&[(&c::PG_REPLAY_CONFLICTS, "sum(times)")])
}
