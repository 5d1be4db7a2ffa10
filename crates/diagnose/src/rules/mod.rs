//! The rules: one file each, each a function of a prepared window, each with a page in `docs/rules`.

mod checkpoint_burst;
mod checkpoint_log;
mod checkpoint_others;
pub(crate) mod client_streams;
mod coincide;
mod commit_too_small;
mod connection_storm;
pub(crate) mod device_below_rating;
mod device_saturated;
mod dirty_evidence;
mod dirty_throttle;
mod draft;
mod flow_control;
mod heartbeat_at_risk;
mod held_snapshot;
pub(crate) mod history_pinned;
mod io_capped;
mod net_overload;
mod network_narrow;
pub(crate) mod oplog_window;
mod relate;
mod relate_engine;
mod replay_conflict;
mod replay_cpu;
mod replay_paused;
mod shard_unlike;
mod shards;
mod slot_inactive;
mod slow_reader;
mod standby_disk;
mod standby_gone;
mod sync_standby_slow;
mod tickets_exhausted;
pub(crate) mod ttl_burst;
mod wal_device;
mod wal_device_capped;
mod wal_device_saturated;
mod wal_evidence;
mod wal_removed;
mod walsender_starved;
mod wt_back_to_back;
pub(crate) mod wt_cache_oversized;
mod wt_checkpoint;
mod wt_dirty_stall;
pub(crate) mod wt_evidence;

use crate::Options;
use crate::replication::{Standby, known, lags, standbys, synchronous};
use crate::scene::Scene;
use backwater_model::{Finding, Window};
use serde::Serialize;
use wal_evidence::Behind;

pub(crate) use draft::draft;
pub use shards::{ShardFigure, ShardRow, Shards};
pub(crate) use wal_removed::{approaching as wal_approaching, named_in_log};

/// A rule as people look it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RuleInfo {
    /// Its name, as in findings.
    pub name: &'static str,
    /// The causes it tells apart.
    pub causes: &'static [&'static str],
    /// The kinds of queues that its findings name: the part before the `@`.
    pub queues: &'static [&'static str],
    /// One line.
    pub summary: &'static str,
    /// Its page, in Markdown.
    pub page: &'static str,
}

/// Every rule, in the order in which findings of equal severity are told: mechanism before reason.
pub const RULES: &[RuleInfo] = &[
    RuleInfo {
        name: "wal-removed",
        causes: &["segment-removed", "slot-lost", "behind-oldest", "approaching"],
        queues: &["pg.wal.retained"],
        summary: "WAL that a standby needs is gone from the primary, or will be soon.",
        page: include_str!("../../../../docs/rules/wal-removed.md"),
    },
    RuleInfo {
        name: "dirty-throttle",
        causes: &["host-limit", "device-limit", "cgroup-limit", "approaching"],
        queues: &["host.dirty"],
        summary: "Dirty pages filled to a limit, and the kernel holds whoever writes.",
        page: include_str!("../../../../docs/rules/dirty-throttle.md"),
    },
    RuleInfo {
        name: "wal-device-capped",
        causes: &["cgroup-cap", "declared-cap"],
        queues: &["pg.wal.local_flush"],
        summary: "The device of the primary's WAL stands at a limit on I/O, and WAL waits for it.",
        page: include_str!("../../../../docs/rules/wal-device-capped.md"),
    },
    RuleInfo {
        name: "wal-device-saturated",
        causes: &["slow-requests", "deep-queue"],
        queues: &["pg.wal.local_flush"],
        summary: "The device of the primary's WAL is busy all the time, and WAL waits for it.",
        page: include_str!("../../../../docs/rules/wal-device-saturated.md"),
    },
    RuleInfo {
        name: "network-narrow",
        causes: &["shaper", "link-speed", "path", "send-buffer", "receive-window"],
        queues: &["pg.wal.send"],
        summary: "The network carries WAL to a standby more slowly than it is made.",
        page: include_str!("../../../../docs/rules/network-narrow.md"),
    },
    RuleInfo {
        name: "standby-disk",
        causes: &["cgroup-cap", "declared-cap", "saturated", "slow", "seen-from-primary"],
        queues: &["pg.wal.standby_write", "pg.wal.standby_flush", "pg.wal.standby_replay"],
        summary: "A standby writes WAL, or replays it, more slowly than it arrives, because of its disk.",
        page: include_str!("../../../../docs/rules/standby-disk.md"),
    },
    RuleInfo {
        name: "replay-conflict",
        causes: &["snapshot", "lock", "bufferpin", "conflict"],
        queues: &["pg.wal.standby_replay"],
        summary: "Replay on a standby waits for the standby's own queries.",
        page: include_str!("../../../../docs/rules/replay-conflict.md"),
    },
    RuleInfo {
        name: "replay-paused",
        causes: &["paused", "standstill"],
        queues: &["pg.wal.standby_replay"],
        summary: "Replay on a standby is paused while WAL arrives.",
        page: include_str!("../../../../docs/rules/replay-paused.md"),
    },
    RuleInfo {
        name: "replay-cpu",
        causes: &["single-process", "host-cpu"],
        queues: &["pg.wal.standby_replay"],
        summary: "Replay takes all the processor it can get, and falls behind.",
        page: include_str!("../../../../docs/rules/replay-cpu.md"),
    },
    RuleInfo {
        name: "walsender-starved",
        causes: &["wal-read", "cpu", "unknown"],
        queues: &["pg.wal.send"],
        summary: "The walsender itself does not fill its connection.",
        page: include_str!("../../../../docs/rules/walsender-starved.md"),
    },
    RuleInfo {
        name: "ttl-burst",
        causes: &["expiry-at-once", "expiry-all-along"],
        queues: &["mongo.ttl"],
        summary: "Documents that expire at once are deleted at once, beside the day's own writes.",
        page: include_str!("../../../../docs/rules/ttl-burst.md"),
    },
    RuleInfo {
        name: "wt-dirty-stall",
        causes: &["dirty-trigger", "updates-trigger", "cache-full"],
        queues: &["wt.dirty"],
        summary: "The engine's cache stands at a trigger, and threads that should answer clients evict.",
        page: include_str!("../../../../docs/rules/wt-dirty-stall.md"),
    },
    RuleInfo {
        name: "wt-cache-oversized",
        causes: &["burst-over-drain", "page-cache-starved"],
        queues: &["wt.dirty", "wt.cache"],
        summary: "The cache is too large for the disk below it, or leaves the page cache no memory.",
        page: include_str!("../../../../docs/rules/wt-cache-oversized.md"),
    },
    RuleInfo {
        name: "io-capped",
        causes: &["cgroup-cap", "declared-cap", "volume-cap", "burst-spent"],
        queues: &["host.disk"],
        summary: "A ceiling on I/O is reached while the device itself could do more.",
        page: include_str!("../../../../docs/rules/io-capped.md"),
    },
    RuleInfo {
        name: "device-saturated",
        causes: &["slow-requests", "deep-queue"],
        queues: &["host.disk"],
        summary: "The device is busy all the time and requests wait in it.",
        page: include_str!("../../../../docs/rules/device-saturated.md"),
    },
    RuleInfo {
        name: "device-below-rating",
        causes: &["standstill"],
        queues: &["host.disk"],
        summary: "The device stands still with requests in it, though it can do far more.",
        page: include_str!("../../../../docs/rules/device-below-rating.md"),
    },
    RuleInfo {
        name: "history-pinned",
        causes: &["slow-member", "long-reader"],
        queues: &["wt.history"],
        summary: "Old versions stay in the primary's cache, which fills with them, for a slow member or a reader.",
        page: include_str!("../../../../docs/rules/history-pinned.md"),
    },
    RuleInfo {
        name: "connection-storm",
        causes: &["churn", "limit"],
        queues: &["mongo.connections"],
        summary: "Connections are opened and thrown away by the hundred, or run out.",
        page: include_str!("../../../../docs/rules/connection-storm.md"),
    },
    RuleInfo {
        name: "flow-control-engaged",
        causes: &["majority-behind"],
        queues: &["mongo.majority"],
        summary: "The primary holds its own writers because a majority of the members falls behind.",
        page: include_str!("../../../../docs/rules/flow-control-engaged.md"),
    },
    RuleInfo {
        name: "shard-unlike",
        causes: &["slower", "busier-and-slower", "busier"],
        queues: &["mongo.clients"],
        summary: "One shard of a cluster is slower than its siblings, or given far more of the work.",
        page: include_str!("../../../../docs/rules/shard-unlike.md"),
    },
    RuleInfo {
        name: "tickets-exhausted",
        causes: &["read-tickets", "write-tickets"],
        queues: &["mongo.tickets.read", "mongo.tickets.write"],
        summary: "Every ticket into the engine is taken, and operations stand in line.",
        page: include_str!("../../../../docs/rules/tickets-exhausted.md"),
    },
    RuleInfo {
        name: "oplog-window",
        causes: &["member-behind", "short"],
        queues: &["mongo.oplog"],
        summary: "A member's lag nearly uses up the time that the oplog covers, or that time is short.",
        page: include_str!("../../../../docs/rules/oplog-window.md"),
    },
    RuleInfo {
        name: "checkpoint-burst",
        causes: &["sync-stall", "too-frequent", "engine-burst", "back-to-back"],
        queues: &["pg.checkpoint", "wt.checkpoint"],
        summary: "Throughput dips while checkpoints sync, or checkpoints are forced too often.",
        page: include_str!("../../../../docs/rules/checkpoint-burst.md"),
    },
    RuleInfo {
        name: "commit-too-small",
        causes: &["local-sync", "standby-answer", "storage-answer"],
        queues: &["pg.commit"],
        summary: "A job spends its time waiting for commits of a few rows each.",
        page: include_str!("../../../../docs/rules/commit-too-small.md"),
    },
    RuleInfo {
        name: "net-overload",
        causes: &["heavy-query", "many-queries"],
        queues: &["host.net"],
        summary: "Results for clients fill the link, and stand in line for it.",
        page: include_str!("../../../../docs/rules/net-overload.md"),
    },
    RuleInfo {
        name: "slow-reader",
        causes: &["client-window"],
        queues: &["host.tcp"],
        summary: "A client reads its result more slowly than the server could send it.",
        page: include_str!("../../../../docs/rules/slow-reader.md"),
    },
    RuleInfo {
        name: "standby-gone",
        causes: &["disconnected", "timeout", "not-back", "silent"],
        queues: &["pg.wal.retained"],
        summary: "A standby was connected, and is no longer.",
        page: include_str!("../../../../docs/rules/standby-gone.md"),
    },
    RuleInfo {
        name: "slot-inactive",
        causes: &["retaining", "approaching-limit"],
        queues: &["pg.wal.retained"],
        summary: "A replication slot that nobody reads keeps WAL.",
        page: include_str!("../../../../docs/rules/slot-inactive.md"),
    },
    RuleInfo {
        name: "sync-standby-slow",
        causes: &["network", "standby-flush", "standby-behind", "standby-missing"],
        queues: &["pg.commit"],
        summary: "Commits wait long for a synchronous standby.",
        page: include_str!("../../../../docs/rules/sync-standby-slow.md"),
    },
    RuleInfo {
        name: "heartbeat-at-risk",
        causes: &["climbing", "missed"],
        queues: &["pg.heartbeat"],
        summary: "A failover manager's check comes close to its time-out.",
        page: include_str!("../../../../docs/rules/heartbeat-at-risk.md"),
    },
    RuleInfo {
        name: "slow-writes",
        causes: &["coincidence"],
        queues: &["mongo.writes"],
        summary: "Writes were slow and no other rule says why; what rose with them, and what did not.",
        page: include_str!("../../../../docs/rules/slow-writes.md"),
    },
];

/// The rule of this name.
pub fn rule(name: &str) -> Option<&'static RuleInfo> {
    RULES.iter().find(|rule| rule.name == name)
}

/// Everything the rules have to say about a window, the worst first; of equals, the mechanism before its reason. Empty
/// for a healthy window, and for one whose readings do not tell.
pub fn diagnose(window: &Window, options: &Options) -> Vec<Finding> {
    let scene = Scene::of(window);
    let mut findings = dirty_throttle::find(&scene, options);
    findings.extend(io_capped::find(&scene, options));
    findings.extend(device_saturated::find(&scene));
    findings.extend(checkpoint_burst::find(&scene));
    findings.extend(commit_too_small::find(&scene));
    findings.extend(net_overload::find(&scene));
    findings.extend(slow_reader::find(&scene));
    let all = behinds(&scene);
    findings.extend(of_replication(&scene, &all));
    findings.extend(of_engines(&scene));
    coincide::tell(&scene, &mut findings);
    wt_evidence::in_its_words(&scene, &mut findings);
    let mut symptoms = sync_standby_slow::find(&scene, &all);
    symptoms.extend(heartbeat_at_risk::find(&scene));
    let ties = relate::Ties {
        devices: &|finding| wal_devices(&scene, &all, finding),
        servers: &|finding| servers(&scene, &all, finding),
        needed: &|finding, symptom| needed(&scene, &all, finding, symptom),
    };
    relate::relate(&mut findings, symptoms, &ties);
    sort(&mut findings);
    findings
}

/// The worst first; of equals, the mechanism before its reason.
pub(crate) fn sort(findings: &mut [Finding]) {
    // What is still to come is told after why it will.
    let rank = |finding: &Finding| {
        // What an engine's checkpoint brings at once stands before a device's ceiling, as what its cache does.
        let of_engine = finding.queue.starts_with("wt.checkpoint@");
        let name = if of_engine { "wt-cache-oversized" } else { finding.rule.as_str() };
        let place = RULES.iter().position(|rule| rule.name == name);
        (finding.cause == "approaching" && finding.rule != "dirty-throttle", place)
    };
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| rank(a).cmp(&rank(b))).then(a.from.cmp(&b.from)));
}

/// Every standby, and where it falls behind.
fn behinds(scene: &Scene<'_>) -> Vec<Behind> {
    let view = |standby: Standby| Behind { lags: lags(scene, &standby), standby };
    standbys(scene).into_iter().map(view).collect()
}

/// The rules about MongoDB and its engine.
fn of_engines(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = wt_dirty_stall::find(scene);
    findings.extend(wt_cache_oversized::find(scene));
    findings.extend(wt_checkpoint::find(scene));
    findings.extend(ttl_burst::find(scene));
    findings.extend(connection_storm::find(scene));
    findings.extend(tickets_exhausted::find(scene));
    findings.extend(flow_control::find(scene));
    findings.extend(history_pinned::find(scene));
    findings.extend(oplog_window::find(scene));
    findings.extend(device_below_rating::find(scene));
    findings.extend(shard_unlike::find(scene));
    for finding in &mut findings {
        finding.remedies = crate::advise::engine_remedies(scene, finding);
    }
    findings
}

/// The rules about WAL on its way to standbys.
fn of_replication(scene: &Scene<'_>, all: &[Behind]) -> Vec<Finding> {
    let mut findings = wal_device_capped::find(scene, all);
    findings.extend(wal_device_saturated::find(scene, all));
    findings.extend(network_narrow::find(scene, all));
    findings.extend(standby_disk::find(scene, all));
    findings.extend(replay_conflict::find(scene, all));
    findings.extend(replay_paused::find(scene, all));
    findings.extend(replay_cpu::find(scene, all));
    findings.extend(walsender_starved::find(scene, all));
    findings.extend(wal_removed::find(scene, all));
    findings.extend(standby_gone::find(scene, all));
    findings.extend(slot_inactive::find(scene));
    findings
}

/// Devices of which a finding about WAL or a standby speaks.
fn wal_devices(scene: &Scene<'_>, all: &[Behind], finding: &Finding) -> Vec<String> {
    match finding.rule.as_str() {
        "wal-device-capped" | "wal-device-saturated" => {
            let server = finding.server.as_deref().and_then(|name| known(scene.window, name));
            server
                .and_then(|target| target.wal_device.clone().or_else(|| target.data_device.clone()))
                .into_iter()
                .collect()
        }
        "standby-disk" => {
            let of = all.iter().filter(|behind| finding.queue.ends_with(&format!("@{}", behind.standby.name)));
            let peers = of.filter_map(|behind| behind.standby.peer.as_ref());
            peers.flat_map(|peer| [peer.wal_device.clone(), peer.data_device.clone()]).flatten().collect()
        }
        _ => Vec::new(),
    }
}

/// Servers of which a finding speaks: the one it names, primaries of its standby, else users of its device. Empty where
/// nothing tells.
fn servers(scene: &Scene<'_>, all: &[Behind], finding: &Finding) -> Vec<String> {
    if let Some(server) = &finding.server {
        return vec![server.clone()];
    }
    let Some((queue, place)) = finding.queue.split_once('@') else { return Vec::new() };
    if queue.starts_with("pg.wal.") {
        let of = all.iter().filter(|behind| behind.standby.name == place);
        return of.filter_map(|behind| behind.standby.primary.clone()).collect();
    }
    let devices = scene.devices.iter().filter(|device| device.dev == place || device.whole == place);
    let users = devices.flat_map(|device| device.targets.iter().cloned());
    let members = scene.window.meta.targets.iter().filter(|target| target.memory_cgroup.as_deref() == Some(place));
    users.chain(members.map(|target| target.name.clone())).collect()
}

/// Whether a finding speaks of a standby without which commits could not end while a symptom was seen.
fn needed(scene: &Scene<'_>, all: &[Behind], finding: &Finding, symptom: &Finding) -> bool {
    let of = all.iter().filter(|behind| behind.standby.queue("retained") == finding.queue);
    let pairs = of.filter_map(|behind| Some((behind.standby.primary.as_deref()?, behind.standby.name.as_str())));
    let (from, to) = (symptom.from, symptom.to);
    pairs.into_iter().any(|(primary, name)| synchronous::needed_between(scene, primary, name, from, to))
}
