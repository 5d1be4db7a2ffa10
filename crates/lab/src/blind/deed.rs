//! What can be done to the servers in one run of the blind test, and which answers name it. The answers are fixed here,
//! before any run, and kept narrow: a finding that is true but names a symptom is a wrong answer.

use crate::scenario::ServerKind;
use serde::{Deserialize, Serialize};

/// Servers that runs have in common: made once, used for all runs of the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// A primary and a standby, each on a volume, joined by a network of their own (as in `wal-lag`).
    Streaming,
    /// One server whose data, but not its WAL, lie on a volume (as in `stampede`).
    Volume,
    /// One server with data and WAL on a volume (as in `commit-wait`).
    Single,
    /// A primary and a standby that can be far away (as in `commit-standby`).
    Far,
    /// The WiredTiger engine on a volume (as in `wt-stall`).
    Engine,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Stage; 5] = [Stage::Streaming, Stage::Volume, Stage::Single, Stage::Far, Stage::Engine];

    /// What runs there.
    pub fn server(self) -> ServerKind {
        if self == Stage::Engine { ServerKind::WiredTiger } else { ServerKind::Postgres }
    }
}

/// What is done in one run: a cause that is injected, or something that harms nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// The primary's volume writes less than the WAL that is asked for.
    PrimaryCapped,
    /// The standby's does.
    StandbyCapped,
    /// Both do, held alike.
    BothCapped,
    /// The device under the primary's volume does, and shows no cap.
    PrimarySlow,
    /// The network carries less.
    NetworkNarrow,
    /// Somebody has paused replay.
    ReplayPaused,
    /// A query on the standby keeps what replay is to clean away.
    ReplayConflicting,
    /// Replay is given little of a processor.
    ReplayStarved,
    /// The standby comes back, and what it lacks must be read from a volume that reads slowly.
    WalsenderReading,
    /// The standby is away until WAL that it needs is removed, and comes back.
    RetentionExceeded,
    /// A slot that nobody reads from.
    SlotLeft,
    /// The standby is stopped.
    StandbyStopped,
    /// Commits wait for a standby whose volume is held to a few writes a second.
    SyncStandbyCapped,
    /// Commits wait for a standby that is stopped.
    SyncStandbyStopped,
    /// More is dirtied than the volume writes, and its dirty limit is small.
    DirtyLimit,
    /// The volume takes fewer writes a second than commits need.
    WritesCapped,
    /// A job commits every few rows.
    SmallBatches,
    /// The same, while commits wait for a standby that is far away.
    SmallBatchesFar,
    /// A steady load of WAL.
    Steady,
    /// The same with caps and a shaper far above what it needs.
    LooseLimits,
    /// Nearly nothing to do.
    Idle,
    /// A moderate load, and a short burst of WAL.
    Burst,
    /// A steady load of WAL, and a checkpoint.
    Checkpoint,
    /// A steady load of WAL, and the standby is restarted.
    StandbyRestart,
    /// Commits wait for a standby that nothing hinders.
    SyncStandby,
    /// As much WAL as the machine makes with processors to spare.
    Large,
    /// Pages are dirtied more slowly than the volume writes.
    SlowDirtying,
    /// The same, and a checkpoint.
    DirtyingCheckpoint,
    /// A job with large batches.
    LargeBatches,
    /// The same, while commits wait for a standby that is far away.
    LargeBatchesFar,
    /// The engine's cache is small and what it evicts lies in the page cache, until a checkpoint's sync brings it all.
    EngineCheckpoint,
    /// The engine's cache is so large that nothing is evicted, until a checkpoint brings more than the volume takes in seconds.
    EngineCacheOversized,
    /// A small cache with a low trigger, so that application threads evict.
    EngineDirtyStall,
    /// Documents expire at the same time.
    EngineExpiry,
    /// A thread and a session for each operation, where a pool served the load before.
    EngineThreads,
    /// The volume writes less than the journal that is asked for.
    EngineCapped,
    /// The volume writes less than is asked for, and its dirty limit is small.
    EngineDirtyLimit,
    /// No majority of the members confirms what the engine writes.
    EngineSlowMember,
    /// Somebody reads, and does not end: the snapshot is held all the while.
    EngineHeldSnapshot,
    /// A steady load of the engine on a volume that takes it.
    EngineSteady,
    /// A large cache, with direct I/O, on a volume that takes what its checkpoints bring.
    EngineLargeCache,
    /// Readers of documents, and few writers.
    EngineReads,
    /// A load that grows to several times what it was, which the volume takes.
    EngineBurst,
    /// Checkpoints every second, which the volume takes.
    EngineCheckpoints,
    /// Documents that expire scattered over the run.
    EngineScatteredExpiry,
    /// As in a replica set, whose members keep up.
    EngineMembersKeepUp,
    /// Nearly nothing to do.
    EngineIdle,
    /// A thread and a session for each of few operations.
    EngineFewThreads,
    /// Somebody reads for some seconds.
    EngineShortSnapshot,
}

/// What is known of a deed before it is done.
struct Known {
    deed: Deed,
    name: &'static str,
    stage: Stage,
    /// How often it is in the deck that runs are drawn from.
    weight: usize,
    /// Rules and causes that name it; none where nothing is wrong.
    answers: &'static [(&'static str, &'static str)],
}

const fn known(
    deed: Deed,
    name: &'static str,
    stage: Stage,
    weight: usize,
    answers: &'static [(&'static str, &'static str)],
) -> Known {
    Known { deed, name, stage, weight, answers }
}

const KNOWN: [Known; 49] = [
    known(Deed::PrimaryCapped, "primary-capped", Stage::Streaming, 1, &[("wal-device-capped", "cgroup-cap")]),
    known(Deed::StandbyCapped, "standby-capped", Stage::Streaming, 1, &[("standby-disk", "cgroup-cap")]),
    known(Deed::BothCapped, "both-capped", Stage::Streaming, 1, &[("wal-device-capped", "cgroup-cap")]),
    known(
        Deed::PrimarySlow,
        "primary-slow",
        Stage::Streaming,
        1,
        &[("wal-device-saturated", "slow-requests"), ("wal-device-saturated", "deep-queue")],
    ),
    known(Deed::NetworkNarrow, "network-narrow", Stage::Streaming, 1, &[("network-narrow", "shaper")]),
    known(Deed::ReplayPaused, "replay-paused", Stage::Streaming, 1, &[("replay-paused", "paused")]),
    known(Deed::ReplayConflicting, "replay-conflicting", Stage::Streaming, 1, &[("replay-conflict", "snapshot")]),
    known(Deed::ReplayStarved, "replay-starved", Stage::Streaming, 1, &[("replay-cpu", "host-cpu")]),
    known(Deed::WalsenderReading, "walsender-reading", Stage::Streaming, 1, &[("walsender-starved", "wal-read")]),
    known(Deed::RetentionExceeded, "retention-exceeded", Stage::Streaming, 1, &[("wal-removed", "segment-removed")]),
    known(
        Deed::SlotLeft,
        "slot-left",
        Stage::Streaming,
        1,
        &[("slot-inactive", "retaining"), ("slot-inactive", "approaching-limit")],
    ),
    known(Deed::StandbyStopped, "standby-stopped", Stage::Streaming, 1, &[("standby-gone", "disconnected")]),
    known(Deed::SyncStandbyCapped, "sync-standby-capped", Stage::Streaming, 1, &[("standby-disk", "cgroup-cap")]),
    // Both say it: the standby is gone, and commits wait for one that is missing.
    known(
        Deed::SyncStandbyStopped,
        "sync-standby-stopped",
        Stage::Streaming,
        1,
        &[("sync-standby-slow", "standby-missing"), ("standby-gone", "disconnected")],
    ),
    known(Deed::DirtyLimit, "dirty-limit", Stage::Volume, 4, &[("dirty-throttle", "device-limit")]),
    known(Deed::WritesCapped, "writes-capped", Stage::Single, 2, &[("io-capped", "cgroup-cap")]),
    known(Deed::SmallBatches, "small-batches", Stage::Single, 2, &[("commit-too-small", "local-sync")]),
    known(Deed::SmallBatchesFar, "small-batches-far", Stage::Far, 2, &[("commit-too-small", "standby-answer")]),
    known(Deed::Steady, "steady", Stage::Streaming, 2, &[]),
    known(Deed::LooseLimits, "loose-limits", Stage::Streaming, 2, &[]),
    known(Deed::Idle, "idle", Stage::Streaming, 1, &[]),
    known(Deed::Burst, "burst", Stage::Streaming, 2, &[]),
    known(Deed::Checkpoint, "checkpoint", Stage::Streaming, 2, &[]),
    known(Deed::StandbyRestart, "standby-restart", Stage::Streaming, 2, &[]),
    known(Deed::SyncStandby, "sync-standby", Stage::Streaming, 2, &[]),
    known(Deed::Large, "large", Stage::Streaming, 1, &[]),
    known(Deed::SlowDirtying, "slow-dirtying", Stage::Volume, 2, &[]),
    known(Deed::DirtyingCheckpoint, "dirtying-checkpoint", Stage::Volume, 1, &[]),
    known(Deed::LargeBatches, "large-batches", Stage::Single, 2, &[]),
    known(Deed::LargeBatchesFar, "large-batches-far", Stage::Far, 1, &[]),
    known(Deed::EngineCheckpoint, "engine-checkpoint", Stage::Engine, 1, &[("checkpoint-burst", "engine-burst")]),
    known(
        Deed::EngineCacheOversized,
        "engine-cache-oversized",
        Stage::Engine,
        1,
        &[("wt-cache-oversized", "burst-over-drain")],
    ),
    known(Deed::EngineDirtyStall, "engine-dirty-stall", Stage::Engine, 1, &[("wt-dirty-stall", "dirty-trigger")]),
    known(Deed::EngineExpiry, "engine-expiry", Stage::Engine, 1, &[("ttl-burst", "expiry-at-once")]),
    known(Deed::EngineThreads, "engine-threads", Stage::Engine, 1, &[("connection-storm", "churn")]),
    known(Deed::EngineCapped, "engine-capped", Stage::Engine, 1, &[("io-capped", "cgroup-cap")]),
    known(Deed::EngineDirtyLimit, "engine-dirty-limit", Stage::Engine, 1, &[("dirty-throttle", "device-limit")]),
    known(Deed::EngineSlowMember, "engine-slow-member", Stage::Engine, 1, &[("history-pinned", "slow-member")]),
    known(Deed::EngineHeldSnapshot, "engine-held-snapshot", Stage::Engine, 1, &[("history-pinned", "long-reader")]),
    known(Deed::EngineSteady, "engine-steady", Stage::Engine, 1, &[]),
    known(Deed::EngineLargeCache, "engine-large-cache", Stage::Engine, 1, &[]),
    known(Deed::EngineReads, "engine-reads", Stage::Engine, 1, &[]),
    known(Deed::EngineBurst, "engine-burst", Stage::Engine, 1, &[]),
    known(Deed::EngineCheckpoints, "engine-checkpoints", Stage::Engine, 1, &[]),
    known(Deed::EngineScatteredExpiry, "engine-scattered-expiry", Stage::Engine, 1, &[]),
    known(Deed::EngineMembersKeepUp, "engine-members-keep-up", Stage::Engine, 1, &[]),
    known(Deed::EngineIdle, "engine-idle", Stage::Engine, 1, &[]),
    known(Deed::EngineFewThreads, "engine-few-threads", Stage::Engine, 1, &[]),
    known(Deed::EngineShortSnapshot, "engine-short-snapshot", Stage::Engine, 1, &[]),
];

/// What no run tries, so that the result says nothing of it.
pub fn not_tried(server: ServerKind) -> &'static [&'static str] {
    match server {
        ServerKind::Postgres => &NOT_TRIED,
        ServerKind::WiredTiger => &NOT_TRIED_OF_ENGINE,
    }
}

const NOT_TRIED_OF_ENGINE: [&str; 7] = [
    "mongod: its parsing, tickets, flow control, replication, shards; a connection is a thread and a session of the driver, and a member that is slow is one that the driver hears nothing of",
    "a reader that is told by timestamps alone (the rule speaks of more than a minute there, which no run lasts), or beside whom checkpoints end",
    "a cache that leaves the page cache no memory (it would take most of this host's); triggers of updates or of the whole cache",
    "a device that is slow by itself, below its rating or out of credit: every cap is the kernel's own throttle",
    "several causes at once, but for the cap under a dirty limit",
    "other versions of the engine than the one that is installed",
    "loads of people: operations come at random moments at one rate, or at one rate after another, for seconds",
];

const NOT_TRIED: [&str; 12] = [
    "volumes of a cloud: declared ratings, burst credit, latency (a device that is slow by itself is one whose file lies on a volume that the kernel's own throttle holds)",
    "a cap on operations alone under WAL (large writes merge, so that it binds at no rate that can be told beforehand)",
    "control groups other than the one that the lab caps, memory limits, and dirty limits of the host or of a group",
    "several causes at once, but for the two caps of both-capped",
    "a long or lossy network, links full at their own speed, small socket buffers",
    "replay that fills a whole processor, a walsender that lacks one, conflicts other than over snapshots",
    "slots that were lost, retention exceeded while the standby streams, archives",
    "several standbys, cascades, a failover or a promotion while it is watched",
    "one DSN alone: both servers are always watched, on the same host, with root's sight",
    "servers whose statements' texts or log cannot be read, other versions of PostgreSQL, other databases",
    "checkpoints that stall commits, heartbeats at risk as a cause of their own",
    "loads of people: each run has one of four kinds of load, and lasts seconds",
];

impl Deed {
    fn known(self) -> &'static Known {
        // Every deed is in the list: see the test.
        KNOWN.iter().find(|known| known.deed == self).unwrap_or(&KNOWN[0])
    }

    /// Its name in tables and files.
    pub fn name(self) -> &'static str {
        self.known().name
    }

    /// On which servers it is done.
    pub fn stage(self) -> Stage {
        self.known().stage
    }

    /// Rules and causes that name it; none where nothing is wrong.
    pub fn answers(self) -> &'static [(&'static str, &'static str)] {
        self.known().answers
    }

    /// Whether nothing is wrong while it is done.
    pub fn is_harmless(self) -> bool {
        self.answers().is_empty()
    }

    /// The deck that causes (or harmless deeds) of a server are drawn from, each as often as its weight says.
    pub(super) fn deck(server: ServerKind, harmless: bool) -> Vec<Deed> {
        let of_server = KNOWN.iter().filter(|known| known.stage.server() == server);
        let own = of_server.filter(|known| known.answers.is_empty() == harmless);
        own.flat_map(|known| std::iter::repeat_n(known.deed, known.weight)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backwater_diagnose::rule;
    use std::collections::BTreeSet;

    #[test]
    fn every_answer_is_a_finding_that_the_rules_can_give() {
        for known in &KNOWN {
            for (name, cause) in known.answers {
                let listed = rule(name).is_some_and(|rule| rule.causes.contains(cause));
                assert!(listed, "{}: there is no {name}/{cause}", known.name);
            }
        }
    }

    #[test]
    fn every_deed_is_listed_once_under_its_own_name() {
        let deeds: BTreeSet<_> = KNOWN.iter().map(|known| known.deed).collect();
        let names: BTreeSet<_> = KNOWN.iter().map(|known| known.name).collect();
        assert_eq!((deeds.len(), names.len()), (KNOWN.len(), KNOWN.len()));
        for known in &KNOWN {
            assert_eq!(serde_json::to_value(known.deed).ok(), Some(known.name.into()));
        }
        // The last of the enumeration: one that is added after it must be added to the list.
        assert_eq!(Deed::EngineShortSnapshot as usize + 1, KNOWN.len());
    }

    #[test]
    fn the_decks_are_what_the_test_promises() {
        let sizes = |server| (Deed::deck(server, false).len(), Deed::deck(server, true).len());
        assert_eq!((sizes(ServerKind::Postgres), sizes(ServerKind::WiredTiger)), ((24, 20), (9, 10)));
        assert!(Deed::deck(ServerKind::Postgres, true).iter().all(|deed| deed.is_harmless()));
    }
}
