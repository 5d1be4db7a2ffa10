//! Which figure of a server becomes which series. Paths are those of the commands' own answers, so the table serves whatever
//! brings such documents.
//!
//! A figure has had several places in the versions from 3.6 to 8.x; the first path of a row that is there is taken.
//! Paths are spelled as in the flight recorder: the command, then keys joined by dots. Arrays and disks, whose keys are
//! not known beforehand, are rows with a `#` for the part that becomes a label.

use super::table_engine::ENGINE;
use super::table_host::HOST;
use backwater_model::catalogue::{self as cat, Def};

/// One figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The series.
    pub(crate) def: &'static Def,
    /// The label beside `target`, with its value; an empty value is what stands for `#` in the path.
    pub(crate) label: Option<(&'static str, &'static str)>,
    /// Where it is, newest place first.
    pub(crate) paths: &'static [&'static str],
    /// What it means there.
    pub(crate) reading: Reading,
}

/// How a number is to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reading {
    /// Times this factor.
    Times(f64),
    /// Anything but nothing is yes.
    NotZero,
    /// A difference of two timestamps of the oplog, whose upper half is seconds.
    TimestampRange,
}

/// A range of timestamps longer than this is none: one of the two was not set yet. Ten years.
const LONGEST_RANGE_S: f64 = 315_360_000.0;

impl Reading {
    /// The value in the series' unit.
    pub(crate) fn read(self, raw: f64) -> Option<f64> {
        let value = match self {
            Reading::Times(factor) => raw * factor,
            Reading::NotZero => f64::from(u8::from(raw != 0.0)),
            Reading::TimestampRange => raw / 4_294_967_296.0,
        };
        let range = self == Reading::TimestampRange;
        (value.is_finite() && (!range || (0.0..=LONGEST_RANGE_S).contains(&value))).then_some(value)
    }
}

pub(crate) const fn row(def: &'static Def, paths: &'static [&'static str]) -> Row {
    Row { def, label: None, paths, reading: Reading::Times(1.0) }
}

impl Row {
    pub(crate) const fn of(self, label: &'static str, value: &'static str) -> Row {
        Row { label: Some((label, value)), ..self }
    }

    pub(crate) const fn times(self, factor: f64) -> Row {
        Row { reading: Reading::Times(factor), ..self }
    }

    pub(crate) const fn read_as(self, reading: Reading) -> Row {
        Row { reading, ..self }
    }
}

/// Every row, those of the host last.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    SERVER.iter().chain(TICKETS).chain(ENGINE).chain(REPLICATION).chain(HOST)
}

macro_rules! by_op {
    ($def:ident, $front:literal, $back:literal, $($op:literal),*) => {
        [$(row(&cat::$def, &[concat!($front, $op, $back)]).of("op", $op)),*]
    };
}

const OPS: [Row; 4] =
    by_op!(MONGO_OPS, "serverStatus.opLatencies.", ".ops", "reads", "writes", "commands", "transactions");
const LATENCIES: [Row; 4] =
    by_op!(MONGO_LATENCY, "serverStatus.opLatencies.", ".latency", "reads", "writes", "commands", "transactions");
const COUNTERS: [Row; 6] = by_op!(
    MONGO_OPCOUNTERS,
    "serverStatus.opcounters.",
    "",
    "insert",
    "query",
    "update",
    "delete",
    "getmore",
    "command"
);
const REPLICATED: [Row; 4] =
    by_op!(MONGO_REPLICATED, "serverStatus.opcountersRepl.", "", "insert", "update", "delete", "command");

/// What clients do.
const SERVER: &[Row] = &[
    row(&cat::MONGO_UPTIME, &["serverStatus.uptimeMillis"]),
    OPS[0],
    OPS[1],
    OPS[2],
    OPS[3],
    LATENCIES[0],
    LATENCIES[1],
    LATENCIES[2],
    LATENCIES[3],
    COUNTERS[0],
    COUNTERS[1],
    COUNTERS[2],
    COUNTERS[3],
    COUNTERS[4],
    COUNTERS[5],
    REPLICATED[0],
    REPLICATED[1],
    REPLICATED[2],
    REPLICATED[3],
    row(&cat::MONGO_TTL_DELETED, &["serverStatus.metrics.ttl.deletedDocuments"]),
    row(&cat::MONGO_TTL_PASSES, &["serverStatus.metrics.ttl.passes"]),
    row(&cat::MONGO_CONNECTIONS, &["serverStatus.connections.current"]),
    row(&cat::MONGO_CONNECTIONS_FREE, &["serverStatus.connections.available"]),
    row(&cat::MONGO_CONNECTIONS_ACTIVE, &["serverStatus.connections.active"]),
    row(&cat::MONGO_CONNECTIONS_CREATED, &["serverStatus.connections.totalCreated"]),
    row(&cat::MONGO_CONNECTIONS_REJECTED, &["serverStatus.connections.rejected"]),
    row(
        &cat::MONGO_THREADS,
        &[
            "serverStatus.network.serviceExecutors.passthrough.threadsRunning",
            "serverStatus.network.serviceExecutorTaskStats.threadsRunning",
            "serverStatus.extra_info.threads",
        ],
    ),
    row(&cat::MONGO_REQUESTS, &["serverStatus.network.numRequests"]),
    row(&cat::MONGO_RECEIVED, &["serverStatus.network.bytesIn"]),
    row(&cat::MONGO_SENT, &["serverStatus.network.bytesOut"]),
    row(&cat::MONGO_LOCK_QUEUE, &["serverStatus.globalLock.currentQueue.readers"]).of("op", "read"),
    row(&cat::MONGO_LOCK_QUEUE, &["serverStatus.globalLock.currentQueue.writers"]).of("op", "write"),
    row(&cat::MONGO_CLIENTS, &["serverStatus.globalLock.activeClients.readers"]).of("op", "read"),
    row(&cat::MONGO_CLIENTS, &["serverStatus.globalLock.activeClients.writers"]).of("op", "write"),
    row(&cat::MONGO_PAGE_FAULTS, &["serverStatus.extra_info.page_faults"]),
    row(&cat::MONGO_RESIDENT, &["serverStatus.mem.resident"]).times(1_048_576.0),
    row(&cat::MONGO_WRITE_CONFLICTS, &["serverStatus.metrics.operation.writeConflicts"]),
    row(&cat::MONGO_CONCERN_WAITS, &["serverStatus.metrics.getLastError.wtime.num"]),
    row(&cat::MONGO_CONCERN_MS, &["serverStatus.metrics.getLastError.wtime.totalMillis"]),
    row(&cat::MONGO_FLOW_LAGGED, &["serverStatus.flowControl.isLagged"]).read_as(Reading::NotZero),
    row(&cat::MONGO_FLOW_LAGGED_US, &["serverStatus.flowControl.isLaggedTimeMicros"]),
    row(&cat::MONGO_FLOW_WAIT_US, &["serverStatus.flowControl.timeAcquiringMicros"]),
    row(&cat::MONGO_FLOW_LIMIT, &["serverStatus.flowControl.targetRateLimit"]),
    row(&cat::MONGO_FLOW_SUSTAINER, &["serverStatus.flowControl.sustainerRate"]),
];

/// By the places of one or more names for the same, the newest first.
macro_rules! tickets {
    ($def:ident, $($key:literal),+) => {
        [tickets!(@ $def, "read", $($key),+), tickets!(@ $def, "write", $($key),+)]
    };
    (@ $def:ident, $op:literal, $($key:literal),+) => {
        row(
            &cat::$def,
            &[
                $(
                    concat!("serverStatus.queues.execution.", $op, ".", $key),
                    concat!("serverStatus.wiredTiger.concurrentTransactions.", $op, ".", $key),
                )+
            ],
        )
        .of("op", $op)
    };
}

const OUT: [Row; 2] = tickets!(MONGO_TICKETS_OUT, "out");
const FREE: [Row; 2] = tickets!(MONGO_TICKETS_FREE, "available");
const TOTAL: [Row; 2] = tickets!(MONGO_TICKETS_TOTAL, "totalTickets");
// Some patch releases of 7.0 have one line for all, and tell of it beside the tickets.
const QUEUED: [Row; 2] = tickets!(MONGO_TICKETS_QUEUED, "normalPriority.queueLength", "queueLength");
const QUEUED_US: [Row; 2] =
    tickets!(MONGO_TICKETS_QUEUED_US, "normalPriority.totalTimeQueuedMicros", "totalTimeQueuedMicros");

/// Tickets into the engine.
const TICKETS: &[Row] =
    &[OUT[0], OUT[1], FREE[0], FREE[1], TOTAL[0], TOTAL[1], QUEUED[0], QUEUED[1], QUEUED_US[0], QUEUED_US[1]];

/// The replica set and its oplog.
const REPLICATION: &[Row] = &[
    row(&cat::MONGO_STATE, &["replSetGetStatus.myState"]),
    row(
        &cat::MONGO_COMMITTED,
        &["replSetGetStatus.optimes.lastCommittedOpTime.ts", "replSetGetStatus.optimes.lastCommittedOpTime"],
    ),
    row(&cat::MONGO_MEMBER_STATE, &["replSetGetStatus.members.#.state"]).of("member", ""),
    row(&cat::MONGO_MEMBER_HEALTH, &["replSetGetStatus.members.#.health"]).of("member", "").read_as(Reading::NotZero),
    row(&cat::MONGO_MEMBER_OPTIME, &["replSetGetStatus.members.#.optime.ts", "replSetGetStatus.members.#.optime"])
        .of("member", ""),
    row(&cat::MONGO_MEMBER_SELF, &["replSetGetStatus.members.#.self"]).of("member", "").read_as(Reading::NotZero),
    row(&cat::MONGO_OPLOG, &["local.oplog.rs.stats.storageStats.size", "local.oplog.rs.stats.size"]),
    row(&cat::MONGO_OPLOG_MAX, &["local.oplog.rs.stats.storageStats.maxSize", "local.oplog.rs.stats.maxSize"]),
    row(&cat::MONGO_OPLOG_FIRST, &["serverStatus.oplog.earliestOptime"]),
    row(&cat::MONGO_OPLOG_LAST, &["serverStatus.oplog.latestOptime"]),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_series_is_told_by_two_rows_and_every_label_is_the_catalogues() {
        let mut seen = HashSet::new();
        for row in rows() {
            assert!(seen.insert((row.def.name, row.label)), "{} {:?}", row.def.name, row.label);
            if let Some((label, value)) = row.label {
                assert!(row.def.labels.contains(&label), "{} {label}", row.def.name);
                assert_eq!(value.is_empty(), row.paths[0].contains('#'), "{}", row.paths[0]);
            }
        }
    }

    #[test]
    fn a_range_of_timestamps_is_seconds_and_an_unset_one_is_nothing() {
        let range = Reading::TimestampRange;
        assert_eq!(range.read(30.0 * 4_294_967_296.0), Some(30.0));
        // The durable timestamp less an oldest one that is not set.
        assert_eq!(range.read(1_700_000_000.0 * 4_294_967_296.0), None);
        assert_eq!(range.read(-1.0), None);
    }
}
