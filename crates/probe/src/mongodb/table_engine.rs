//! Rows of WiredTiger's own statistics, by their descriptions, which are their names in serverStatus. Where a release
//! moved one to another section, both places are given.

use super::table::{Reading, Row, row};
use backwater_model::catalogue as cat;

macro_rules! wt {
    ($def:ident, $($place:literal),+) => {
        row(&cat::$def, &[$(concat!("serverStatus.wiredTiger.", $place)),+])
    };
}

/// The cache, eviction, checkpoints, history, journal.
pub(super) const ENGINE: &[Row] = &[
    wt!(WT_CACHE_USED, "cache.bytes currently in the cache"),
    wt!(WT_CACHE_DIRTY, "cache.tracked dirty bytes in the cache"),
    wt!(WT_CACHE_UPDATES, "cache.bytes allocated for updates"),
    wt!(WT_CACHE_MAX, "cache.maximum bytes configured"),
    wt!(WT_CACHE_READ, "cache.bytes read into cache"),
    wt!(WT_CACHE_WRITTEN, "cache.bytes written from cache"),
    wt!(
        WT_APP_EVICT_US,
        "cache.application thread time evicting (usecs)",
        "thread-yield.application thread time evicting (usecs)"
    ),
    wt!(WT_APP_WAIT_US, "thread-yield.application thread time waiting for cache (usecs)"),
    wt!(
        WT_APP_EVICTED,
        "cache.page evict attempts by application threads",
        "cache.pages evicted by application threads"
    ),
    wt!(WT_APP_WRITES, "cache.application threads page write from cache to disk count"),
    wt!(WT_APP_WRITE_US, "cache.application threads page write from cache to disk time (usecs)"),
    wt!(WT_APP_READS, "cache.application threads page read from disk to cache count"),
    wt!(WT_APP_READ_US, "cache.application threads page read from disk to cache time (usecs)"),
    wt!(WT_EVICTED_DIRTY, "cache.modified pages evicted"),
    wt!(WT_EVICTED_CLEAN, "cache.unmodified pages evicted"),
    wt!(WT_EVICT_WORKERS, "cache.eviction worker thread active"),
    wt!(WT_EVICT_MISSED, "cache.eviction server unable to reach eviction goal"),
    wt!(WT_CHECKPOINT_RUNNING, "checkpoint.progress state", "transaction.transaction checkpoint currently running")
        .read_as(Reading::NotZero),
    wt!(
        WT_CHECKPOINT_MS,
        "checkpoint.most recent time (msecs)",
        "transaction.transaction checkpoint most recent time (msecs)"
    ),
    wt!(
        WT_CHECKPOINT_FSYNC_US,
        "checkpoint.fsync duration after allocating the transaction ID (usecs)",
        "transaction.transaction fsync duration for checkpoint after allocating the transaction ID (usecs)"
    ),
    wt!(WT_CHECKPOINTS, "transaction.transaction checkpoints"),
    wt!(WT_CHECKPOINT_LOCK_US, "lock.checkpoint lock application thread wait time (usecs)"),
    wt!(WT_PINNED, "transaction.transaction range of timestamps currently pinned").read_as(Reading::TimestampRange),
    wt!(WT_PINNED_OLDEST, "transaction.transaction range of timestamps pinned by the oldest timestamp")
        .read_as(Reading::TimestampRange),
    wt!(WT_PINNED_IDS, "transaction.transaction range of IDs currently pinned"),
    wt!(
        WT_HISTORY_CACHE,
        "cache.bytes belonging to the history store table in the cache",
        "cache.bytes belonging to the cache overflow table in the cache"
    ),
    wt!(WT_HISTORY_DISK, "cache.history store table on-disk size"),
    wt!(WT_HISTORY_INSERTS, "cache.history store table insert calls", "cache.cache overflow table insert calls"),
    wt!(WT_LOG_SYNCS, "log.log sync operations"),
    wt!(WT_LOG_SYNC_US, "log.log sync time duration (usecs)"),
    wt!(WT_LOG_BYTES, "log.log bytes written"),
    wt!(WT_FSYNCS, "connection.total fsync I/Os"),
    wt!(WT_WRITES, "connection.total write I/Os"),
];
