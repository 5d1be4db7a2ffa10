//! What a scenario starts and drives: servers, their volumes, what joins them, the load, and how often it all runs.

use super::{EnginePart, OverloadPart};
use crate::workloads::commit_batches::Side;
use backwater_model::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The server to start.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPart {
    /// `postgres` or `wiredtiger`.
    pub kind: ServerKind,
    /// Major version; none for whatever is found.
    pub version: Option<u32>,
    /// Settings of every arm.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Settings while the data are made.
    #[serde(default)]
    pub init_settings: BTreeMap<String, String>,
}

/// Servers the lab can start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// PostgreSQL.
    #[default]
    Postgres,
    /// The WiredTiger engine, which is MongoDB's, with a driver in place of mongod.
    WiredTiger,
}

/// The volume under a data directory. pg_wal lies elsewhere unless it is said to lie there too.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskPart {
    /// Size.
    pub size: Bytes,
    /// File system.
    pub fs: String,
    /// Whether pg_wal lies on it too.
    #[serde(default)]
    pub with_wal: bool,
    /// Whether its file lies on another volume of the lab's, which an arm can hold: the server's own device is then slow by
    /// itself, and no cap of it is to be seen.
    #[serde(default)]
    pub beneath: bool,
}

/// A standby of the server: a copy of it, fed by streaming.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandbyPart {
    /// Its volume; none for the work directory.
    pub disk: Option<DiskPart>,
    /// Its settings, on top of the server's.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Whether the primary keeps WAL for it in a replication slot.
    #[serde(default)]
    pub slot: bool,
}

/// What joins the servers: each has a network namespace of its own, with a virtual cable between them. Without root
/// they reach each other by a Unix socket, and no arm can make that narrow.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPart {
    /// How long a packet may stand in the narrow link's queue before it is dropped, in milliseconds; none for what a
    /// switch would do.
    pub queue_ms: Option<u64>,
    /// Whether a switch stands between both, at which the way may be narrow instead.
    #[serde(default)]
    pub switch: bool,
}

/// The load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPart {
    /// What each transaction does.
    pub kind: LoadKind,
    /// For `script`: the SQL file.
    pub script: Option<String>,
    /// Scale of pgbench's tables: 100,000 accounts each. None where the load does not use them.
    pub scale: Option<u32>,
    /// How full pages of pgbench's tables are made, in percent.
    #[serde(default = "full")]
    pub fillfactor: u32,
    /// For `wal-storm`: what each call does.
    #[serde(default)]
    pub storm: StormPart,
    /// For `commit-batches`: how many rows, and how they are committed.
    #[serde(default)]
    pub batches: BatchesPart,
    /// For `wiredtiger`: what each operation does.
    #[serde(default)]
    pub engine: EnginePart,
    /// For `net-overload`: the urgent query, what runs beside it, and what is done about that.
    #[serde(default)]
    pub overload: OverloadPart,
    /// Connections, or threads of the engine's driver.
    pub clients: usize,
    /// Transactions a second asked for; none for as many as the server takes.
    pub rate_per_s: Option<f64>,
    /// Seconds of load before the arm begins, with no limit in force.
    #[serde(default)]
    pub warmup_s: f64,
    /// Seconds of load.
    pub seconds: f64,
    /// How long to wait for the drain at most.
    #[serde(default)]
    pub drain_limit_s: f64,
}

fn full() -> u32 {
    100
}

/// Loads the lab can drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadKind {
    /// TPC-B-like, as pgbench's default.
    Tpcb,
    /// An SQL file as pgbench understands it.
    Script,
    /// pgbench itself.
    Pgbench,
    /// A wide table made, filled and dropped by a function, again and again.
    WalStorm,
    /// So many rows inserted one by one, with a commit after every so many of them; it ends when they are in.
    CommitBatches,
    /// Operations on the WiredTiger engine.
    #[serde(rename = "wiredtiger")]
    WiredTiger,
    /// An urgent query beside large results, over the network between the server and its clients.
    NetOverload,
}

impl LoadKind {
    /// Whether it works on pgbench's tables. A script may or may not.
    pub(super) fn needs_scale(self) -> bool {
        matches!(self, LoadKind::Tpcb | LoadKind::Pgbench)
    }
}

/// What each call of a WAL storm does.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StormPart {
    /// Columns of the table.
    pub columns: u32,
    /// Rows put into it.
    pub rows: u32,
    /// How long to wait before positions are noted, in milliseconds: what the standby says is late.
    pub pause_ms: f64,
}

impl Default for StormPart {
    /// As published.
    fn default() -> Self {
        StormPart { columns: 201, rows: 5_000, pause_ms: 10.0 }
    }
}

/// Rows inserted one by one, and how they are committed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchesPart {
    /// Rows in all.
    pub rows: u64,
    /// Rows in all in the short form, at most.
    pub quick_rows: u64,
    /// Rows of each transaction.
    pub rows_per_commit: u64,
    /// Where transactions are put together: `server` (a procedure) or `client` (a round trip for each row).
    pub side: Side,
    /// The rows are inserted again until so many seconds have gone: on a fast disk they are in too soon to be diagnosed. Figures
    /// are those of one round.
    pub least_s: f64,
}

impl Default for BatchesPart {
    fn default() -> Self {
        BatchesPart { rows: 200_000, quick_rows: 20_000, rows_per_commit: 1_000, side: Side::Server, least_s: 0.0 }
    }
}

/// How often, and to what end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPart {
    /// Repeats of every arm.
    pub repeats: usize,
    /// What the advised limit aims at, in seconds.
    #[serde(default = "drain_target_s")]
    pub drain_target_s: f64,
    /// Whether the servers' heartbeats are watched, as a failover manager would.
    #[serde(default)]
    pub heartbeat: bool,
}

fn drain_target_s() -> f64 {
    backwater_diagnose::Options::default().drain_target_s
}

/// The short form.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickPart {
    /// Arms that matter.
    pub arms: Vec<String>,
    /// Repeats of each.
    pub repeats: usize,
    /// Seconds of load.
    pub seconds: f64,
    /// How long to wait for a drain at most, in seconds.
    #[serde(default)]
    pub drain_limit_s: f64,
}

/// How to tell that the fault happened.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// In which arm.
    pub arm: String,
    /// There must be a cliff.
    #[serde(default)]
    pub cliff: bool,
    /// The drain must take at least this long, in seconds.
    #[serde(default)]
    pub least_drain_s: f64,
    /// Metrics, by name, that must reach a value.
    #[serde(default)]
    pub at_least: BTreeMap<String, f64>,
}
