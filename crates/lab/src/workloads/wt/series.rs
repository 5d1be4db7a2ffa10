//! Which of the engine's statistics become which series: the same names as a MongoDB server's, so that one set of rules
//! reads both. Descriptions are those of WiredTiger; where a version moved or renamed one, the newest comes first.

use backwater_model::catalogue::{self as cat, Def};

/// What a number of the engine is.
#[derive(Clone, Copy, PartialEq)]
enum Reading {
    Plain,
    /// Anything but nothing is yes.
    NotZero,
}

const ROWS: &[(&Def, Reading, &[&str])] = &[
    (&cat::WT_CACHE_USED, Reading::Plain, &["cache: bytes currently in the cache"]),
    (&cat::WT_CACHE_DIRTY, Reading::Plain, &["cache: tracked dirty bytes in the cache"]),
    (&cat::WT_CACHE_UPDATES, Reading::Plain, &["cache: bytes allocated for updates"]),
    (&cat::WT_CACHE_MAX, Reading::Plain, &["cache: maximum bytes configured"]),
    (&cat::WT_CACHE_READ, Reading::Plain, &["cache: bytes read into cache"]),
    (&cat::WT_CACHE_WRITTEN, Reading::Plain, &["cache: bytes written from cache"]),
    (&cat::WT_APP_EVICT_US, Reading::Plain, EVICTING),
    (&cat::WT_APP_WAIT_US, Reading::Plain, &["thread-yield: application thread time waiting for cache (usecs)"]),
    (&cat::WT_APP_EVICTED, Reading::Plain, EVICTED),
    (&cat::WT_APP_WRITES, Reading::Plain, &["cache: application threads page write from cache to disk count"]),
    (&cat::WT_APP_WRITE_US, Reading::Plain, &["cache: application threads page write from cache to disk time (usecs)"]),
    (&cat::WT_EVICTED_DIRTY, Reading::Plain, &["cache: modified pages evicted"]),
    (&cat::WT_EVICTED_CLEAN, Reading::Plain, &["cache: unmodified pages evicted"]),
    (&cat::WT_EVICT_WORKERS, Reading::Plain, &["cache: eviction worker thread active"]),
    (&cat::WT_EVICT_MISSED, Reading::Plain, &["cache: eviction server unable to reach eviction goal"]),
    (
        &cat::WT_CHECKPOINT_RUNNING,
        Reading::NotZero,
        &["checkpoint: progress state", "transaction: transaction checkpoint currently running"],
    ),
    (
        &cat::WT_CHECKPOINT_MS,
        Reading::Plain,
        &["checkpoint: most recent time (msecs)", "transaction: transaction checkpoint most recent time (msecs)"],
    ),
    (
        &cat::WT_CHECKPOINT_FSYNC_US,
        Reading::Plain,
        &[
            "checkpoint: fsync duration after allocating the transaction ID (usecs)",
            "transaction: transaction fsync duration for checkpoint after allocating the transaction ID (usecs)",
        ],
    ),
    (&cat::WT_CHECKPOINTS, Reading::Plain, &["transaction: transaction checkpoints"]),
    (&cat::WT_CHECKPOINT_LOCK_US, Reading::Plain, &["lock: checkpoint lock application thread wait time (usecs)"]),
    (&cat::WT_PINNED_IDS, Reading::Plain, &["transaction: transaction range of IDs currently pinned"]),
    (
        &cat::WT_HISTORY_CACHE,
        Reading::Plain,
        &[
            "cache: bytes belonging to the history store table in the cache",
            "cache: bytes belonging to the cache overflow table in the cache",
        ],
    ),
    (
        &cat::WT_HISTORY_INSERTS,
        Reading::Plain,
        &["cache: history store table insert calls", "cache: cache overflow table insert calls"],
    ),
    (&cat::WT_LOG_SYNCS, Reading::Plain, &["log: log sync operations"]),
    (&cat::WT_LOG_SYNC_US, Reading::Plain, &["log: log sync time duration (usecs)"]),
    (&cat::WT_LOG_BYTES, Reading::Plain, &["log: log bytes written"]),
    (&cat::WT_FSYNCS, Reading::Plain, &["connection: total fsync I/Os"]),
    (&cat::WT_WRITES, Reading::Plain, &["connection: total write I/Os"]),
];

/// Time of application threads in eviction.
pub(super) const EVICTING: &[&str] =
    &["cache: application thread time evicting (usecs)", "thread-yield: application thread time evicting (usecs)"];
/// Pages that application threads evicted.
pub(super) const EVICTED: &[&str] =
    &["cache: page evict attempts by application threads", "cache: pages evicted by application threads"];

/// Every description that is asked for.
pub(super) fn descriptions() -> Vec<&'static str> {
    ROWS.iter().flat_map(|(.., names)| names.iter().copied()).collect()
}

/// The series that these statistics make.
pub(super) fn of(value_of: impl Fn(&str) -> Option<f64>) -> Vec<(&'static Def, f64)> {
    let row = |(def, reading, names): &(&'static Def, Reading, &[&str])| {
        let raw = names.iter().find_map(|name| value_of(name))?;
        Some((*def, if *reading == Reading::NotZero { f64::from(u8::from(raw != 0.0)) } else { raw }))
    };
    ROWS.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_series_is_told_twice_and_each_has_the_target_alone() {
        let names: HashSet<_> = ROWS.iter().map(|(def, ..)| def.name).collect();
        assert_eq!(names.len(), ROWS.len());
        assert!(ROWS.iter().all(|(def, ..)| def.labels == ["target"]));
    }

    #[test]
    fn the_newest_place_goes_before_older_ones() {
        let both = |name: &str| EVICTED.iter().position(|known| *known == name).map(|place| place as f64 + 5.0);
        assert_eq!(of(both), [(&cat::WT_APP_EVICTED, 5.0)]);
        let old = |name: &str| (name == EVICTED[1]).then_some(9.0);
        assert_eq!(of(old), [(&cat::WT_APP_EVICTED, 9.0)]);
        let running = |name: &str| (name == "checkpoint: progress state").then_some(4.0);
        assert_eq!(of(running), [(&cat::WT_CHECKPOINT_RUNNING, 1.0)]);
    }
}
