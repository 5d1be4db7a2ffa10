//! The settings that rules and reports look at, as the server itself shows them (`128MB`, `5min`).

use super::link::{Link, QueryError};
use std::collections::BTreeMap;

/// Names, as groups of one prefix. Those that a version lacks are simply not found.
const NAMES: &str = "
    shared_buffers wal_buffers effective_cache_size work_mem maintenance_work_mem huge_pages temp_buffers
    max_wal_size min_wal_size checkpoint_timeout checkpoint_completion_target checkpoint_flush_after checkpoint_warning
    backend_flush_after bgwriter_delay bgwriter_flush_after bgwriter_lru_maxpages bgwriter_lru_multiplier
    wal_writer_delay wal_writer_flush_after wal_skip_threshold
    synchronous_commit synchronous_standby_names fsync full_page_writes commit_delay commit_siblings
    wal_level wal_sync_method wal_compression wal_log_hints wal_init_zero wal_recycle wal_segment_size wal_block_size
    wal_keep_size wal_keep_segments max_slot_wal_keep_size idle_replication_slot_timeout max_wal_senders
    max_replication_slots wal_sender_timeout wal_receiver_timeout wal_receiver_status_interval wal_decode_buffer_size
    archive_mode archive_timeout archive_library archive_command restore_command
    hot_standby hot_standby_feedback max_standby_archive_delay max_standby_streaming_delay recovery_min_apply_delay
    recovery_prefetch primary_slot_name
    max_connections superuser_reserved_connections max_worker_processes max_parallel_workers
    autovacuum autovacuum_max_workers autovacuum_naptime autovacuum_vacuum_cost_delay autovacuum_vacuum_cost_limit
    vacuum_cost_delay vacuum_cost_limit
    track_io_timing track_wal_io_timing track_activities track_activity_query_size compute_query_id
    standard_conforming_strings shared_preload_libraries
    log_checkpoints log_destination logging_collector log_directory log_filename log_min_messages log_line_prefix
    log_min_duration_statement log_lock_waits log_temp_files log_autovacuum_min_duration log_replication_commands
    log_recovery_conflict_waits log_statement lc_messages
    effective_io_concurrency maintenance_io_concurrency io_method io_workers io_combine_limit io_max_concurrency
    data_sync_retry recovery_init_sync_method block_size data_checksums summarize_wal debug_io_direct
    server_version
";

/// Commands may hold passwords: only whether there is one is kept.
const COMMANDS: [&str; 2] = ["archive_command", "restore_command"];

const SQL: &str = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY($1)";

/// All of them with their present values. pg_settings leaves out what the role may not see.
pub(super) async fn read(link: &mut Link) -> Result<BTreeMap<String, String>, QueryError> {
    let names: Vec<&str> = NAMES.split_whitespace().collect();
    let rows = link.rows_with("settings", SQL, &[&names]).await?;
    let pairs = rows.iter().map(|row| {
        let (name, value): (&str, Option<&str>) = (row.get(0), row.get(1));
        (name.to_owned(), shown(name, value.unwrap_or_default()))
    });
    Ok(pairs.collect())
}

fn shown(name: &str, value: &str) -> String {
    let hidden = COMMANDS.contains(&name) && !value.is_empty() && value != "(disabled)";
    if hidden { "(set)".to_owned() } else { value.to_owned() }
}

/// Names, values before and values after, of what differs. Empty stands for a setting that was or is not visible.
pub(super) fn changes<'a>(
    before: &'a BTreeMap<String, String>,
    after: &'a BTreeMap<String, String>,
) -> Vec<(&'a str, &'a str, &'a str)> {
    let get = |map: &'a BTreeMap<String, String>, name: &str| map.get(name).map(String::as_str).unwrap_or_default();
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    names
        .map(|name| (name.as_str(), get(before, name), get(after, name)))
        .filter(|(_, before, after)| before != after)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_not_told() {
        assert_eq!(shown("archive_command", "aws --secret=x %p"), "(set)");
        assert_eq!(shown("archive_command", "(disabled)"), "(disabled)");
        assert_eq!(shown("restore_command", ""), "");
        assert_eq!(shown("max_wal_size", "1GB"), "1GB");
    }

    #[test]
    fn changes_name_both_values() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let before: BTreeMap<String, String> = map(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let after: BTreeMap<String, String> = map(&[("a", "1"), ("b", "4"), ("d", "5")]);
        assert_eq!(changes(&before, &after), [("b", "2", "4"), ("c", "3", ""), ("d", "", "5")]);
    }
}
