//! Rows of WiredTiger's own statistics, by their descriptions, which are their names in serverStatus. Where a release
//! moved one to another section, both places are given.

use super::table::{Reading, Row, row};
use backwater_model::catalogue::{self as cat, Def};

/// Where a server has the engine's statistics.
const IN_SERVER: &str = "serverStatus.wiredTiger.";

macro_rules! wt {
    ($def:ident, $($place:literal),+) => {
        row(&cat::$def, &[$(concat!("serverStatus.wiredTiger.", $place)),+])
    };
}

/// A statistic as the engine itself describes it, `category: name`, of its path in a server's answer.
fn description(path: &str) -> Option<String> {
    let (category, name) = path.strip_prefix(IN_SERVER)?.split_once('.')?;
    Some(format!("{category}: {name}"))
}

/// Descriptions of every statistic that a series is made of, for a program that reads them from the engine without a server.
pub fn wired_tiger_descriptions() -> Vec<String> {
    ENGINE.iter().flat_map(|row| row.paths).filter_map(|path| description(path)).collect()
}

/// The series that the engine's statistics make, which have no label but the target, from their values by description: the
/// same as a server's, so that one set of rules reads both.
pub fn wired_tiger_series(value_of: impl Fn(&str) -> Option<f64>) -> Vec<(&'static Def, f64)> {
    let value = |row: &Row| {
        let raw = row.paths.iter().find_map(|path| value_of(&description(path)?))?;
        Some((row.def, row.reading.read(raw)?))
    };
    ENGINE.iter().filter_map(value).collect()
}

/// The cache, eviction, checkpoints, history, journal.
pub(super) const ENGINE: &[Row] = &[
    wt!(WT_CACHE_USED, "cache.bytes currently in the cache"),
    wt!(WT_CACHE_DIRTY, "cache.tracked dirty bytes in the cache"),
    wt!(WT_CACHE_UPDATES, "cache.bytes allocated for updates"),
    wt!(WT_CACHE_MAX, "cache.maximum bytes configured"),
    wt!(WT_CACHE_READ, "cache.bytes read into cache"),
    wt!(WT_CACHE_WRITTEN, "cache.bytes written from cache"),
    wt!(WT_BLOCK_WRITTEN, "block-manager.bytes written"),
    wt!(
        WT_APP_EVICT_US,
        "cache.application thread time evicting (usecs)",
        "thread-yield.application thread time evicting (usecs)"
    ),
    wt!(WT_APP_WAIT_US, "thread-yield.application thread time waiting for cache (usecs)"),
    wt!(WT_APP_PAGE_US, "thread-yield.page acquire time sleeping (usecs)"),
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
    wt!(WT_CHECKPOINTS, "checkpoint.total succeed number of checkpoints", "transaction.transaction checkpoints"),
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
    wt!(WT_HISTORY_DISK, "cache.history store table on-disk size", "cache.cache overflow table on-disk size"),
    wt!(WT_HISTORY_INSERTS, "cache.history store table insert calls", "cache.cache overflow table insert calls"),
    wt!(WT_LOG_SYNCS, "log.log sync operations"),
    wt!(WT_LOG_SYNC_US, "log.log sync time duration (usecs)"),
    wt!(WT_LOG_BYTES, "log.log bytes written"),
    wt!(WT_FSYNCS, "connection.total fsync I/Os"),
    wt!(WT_WRITES, "connection.total write I/Os"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_statistic_has_the_engines_description_and_no_series_is_told_twice() {
        let descriptions = wired_tiger_descriptions();
        assert_eq!(descriptions.len(), ENGINE.iter().map(|row| row.paths.len()).sum::<usize>());
        assert!(descriptions.iter().any(|text| text == "cache: tracked dirty bytes in the cache"));
        let names: HashSet<_> = ENGINE.iter().map(|row| row.def.name).collect();
        assert_eq!(names.len(), ENGINE.len());
        assert!(ENGINE.iter().all(|row| row.label.is_none() && row.def.labels == ["target"]));
    }

    #[test]
    fn the_newest_place_goes_before_older_ones() {
        let evicted =
            ["cache: page evict attempts by application threads", "cache: pages evicted by application threads"];
        let both = |name: &str| evicted.iter().position(|known| *known == name).map(|place| place as f64 + 5.0);
        assert_eq!(wired_tiger_series(both), [(&cat::WT_APP_EVICTED, 5.0)]);
        let old = |name: &str| (name == evicted[1]).then_some(9.0);
        assert_eq!(wired_tiger_series(old), [(&cat::WT_APP_EVICTED, 9.0)]);
        let running = |name: &str| (name == "checkpoint: progress state").then_some(4.0);
        assert_eq!(wired_tiger_series(running), [(&cat::WT_CHECKPOINT_RUNNING, 1.0)]);
    }

    /// Statistics by release, told apart from the table: `statistic | first-last=section …`.
    const PLACES: &str = include_str!("../../tests/fixtures/wired_tiger_places.txt");

    #[test]
    fn every_release_has_its_statistics_where_they_are_looked_for() {
        let paths: HashSet<&str> = ENGINE.iter().flat_map(|row| row.paths).copied().collect();
        let releases: Vec<&str> =
            PLACES.lines().find_map(|line| line.strip_prefix("# Releases: ")).unwrap().split(' ').collect();
        let place = |release: &str| releases.iter().position(|known| *known == release).unwrap();
        let mut told = vec![HashSet::<String>::new(); releases.len()];
        for line in PLACES.lines().filter(|line| !line.starts_with('#')) {
            let (statistic, spans) = line.split_once(" | ").unwrap();
            for span in spans.split(' ') {
                let (between, section) = span.split_once('=').unwrap();
                let (first, last) = between.split_once('-').unwrap();
                let path = format!("{IN_SERVER}{section}.{statistic}");
                assert!(paths.contains(path.as_str()), "{path} of {between}");
                let releases = &mut told[place(first)..=place(last)];
                releases.iter_mut().for_each(|release| {
                    release.insert(format!("{section}: {statistic}"));
                });
            }
        }
        // What the rules stand on is there in all of them: dirty pages, evicting threads, checkpoints, the journal.
        let needed = [
            &cat::WT_CACHE_DIRTY,
            &cat::WT_APP_EVICT_US,
            &cat::WT_APP_EVICTED,
            &cat::WT_CHECKPOINT_RUNNING,
            &cat::WT_LOG_SYNC_US,
        ];
        for (release, statistics) in releases.iter().zip(&told) {
            let series = wired_tiger_series(|name| statistics.contains(name).then_some(1.0));
            let made: HashSet<&str> = series.iter().map(|(def, _)| def.name).collect();
            assert!(needed.iter().all(|def| made.contains(def.name)), "{release}: {made:?}");
        }
    }
}
