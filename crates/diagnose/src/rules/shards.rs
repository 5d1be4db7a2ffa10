//! The shards of a cluster: which servers are ones, and each one's own queues side by side.
//!
//! Shards are told by their servers' own configuration (`sharding.clusterRole`, the replica set's name); each is seen by the member
//! of it that is primary, and only while that is so.

use super::flow_control::majority_lag;
use super::wt_evidence::{Engine, engines, gauge, rate};
use crate::grid::Lane;
use crate::remedy::mongod::replica_set;
use crate::scene::Scene;
use backwater_model::{Moment, Target, Unit, Window, catalogue as cat};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Operations a second below which their mean latency is an anecdote.
const FEW: f64 = 5.0;
/// Seconds that a member must be primary.
const LEAST_S: usize = 30;

/// A shard, by the member of it that is primary.
pub(super) struct Shard<'a> {
    pub(super) set: &'a str,
    pub(super) engine: &'a Engine<'a>,
    /// Reads and writes a second, and their mean latency, while it is primary.
    pub(super) operations: Lane,
    pub(super) ms: Lane,
    /// Known in the seconds in which it is.
    primary: Lane,
    primary_s: usize,
}

/// A shard's replica set, where a server is configured as a shard's.
fn set_of(target: &Target) -> Option<&str> {
    let setting = |name: &str| target.settings.get(name).map(String::as_str);
    setting("sharding.clusterRole").filter(|role| *role == "shardsvr")?;
    replica_set(target)?.split('/').next()
}

/// Each shard once: by the member that is primary for most of the window.
pub(super) fn shards<'a>(scene: &'a Scene<'_>, engines: &'a [Engine<'a>]) -> Vec<Shard<'a>> {
    let mut found: Vec<Shard<'a>> = Vec::new();
    for engine in engines {
        let target = scene.window.meta.targets.iter().find(|target| target.name == engine.name);
        let Some(set) = target.and_then(set_of) else { continue };
        let shard = shard(scene, set, engine);
        if shard.primary_s < LEAST_S {
            continue;
        }
        match found.iter_mut().find(|other| other.set == set) {
            Some(known) if known.primary_s < shard.primary_s => *known = shard,
            Some(_) => {}
            None => found.push(shard),
        }
    }
    found
}

fn shard<'a>(scene: &Scene<'_>, set: &'a str, engine: &'a Engine<'a>) -> Shard<'a> {
    let state = gauge(scene, &cat::MONGO_STATE, &engine.name, None);
    let primary = Lane(state.0.iter().map(|state| state.filter(|state| *state == 1.0)).collect());
    // Seconds in which another member was primary are no reading of the shard.
    let summed = |def| {
        let of = |op| rate(scene, def, &engine.name, Some(op));
        while_primary(&of("reads").with(&of("writes"), |reads, writes| reads + writes), &primary)
    };
    let operations = summed(&cat::MONGO_OPS).smooth(2);
    let latency_us = summed(&cat::MONGO_LATENCY).smooth(2);
    let ms = latency_us.with(&operations.at_least(FEW), |us, operations| us / operations / 1e3);
    let primary_s = primary.0.iter().flatten().count();
    Shard { set, engine, operations, ms, primary, primary_s }
}

fn while_primary(lane: &Lane, primary: &Lane) -> Lane {
    lane.with(primary, |value, _| value)
}

/// A figure that every shard has, as a column beside the others.
pub(super) struct Column {
    /// Its name, as figures of findings have it.
    pub(super) name: &'static str,
    head: &'static str,
    pub(super) label: &'static str,
    pub(super) unit: Unit,
    lane: fn(&Scene<'_>, &Shard<'_>) -> Lane,
}

impl Column {
    /// Its value second by second, while the member is primary.
    pub(super) fn of(&self, scene: &Scene<'_>, shard: &Shard<'_>) -> Lane {
        while_primary(&(self.lane)(scene, shard), &shard.primary)
    }
}

/// Each shard's own queues, and what is felt of them.
pub(super) const COLUMNS: &[Column] = &[
    Column {
        name: "ms",
        head: "time",
        label: "mean time of an operation",
        unit: Unit::Milliseconds,
        lane: |_, shard| shard.ms.clone(),
    },
    Column {
        name: "operations_per_s",
        head: "operations",
        label: "operations",
        unit: Unit::PerSecond,
        lane: |_, shard| shard.operations.clone(),
    },
    Column {
        name: "dirty_ratio",
        head: "dirty",
        label: "dirty share of the cache",
        unit: Unit::Ratio,
        lane: |_, shard| shard.engine.dirty_share(),
    },
    Column {
        name: "dirty_trigger_ratio",
        head: "trigger",
        label: "dirty share from which application threads must evict",
        unit: Unit::Ratio,
        lane: |_, shard| shard.engine.max.map(|_| shard.engine.limits.dirty_trigger),
    },
    Column {
        name: "cache_waiting_count",
        head: "waiting",
        label: "threads waiting for the cache",
        unit: Unit::Count,
        lane: |_, shard| shard.engine.waiting.clone(),
    },
    Column {
        name: "tickets_count",
        head: "tickets",
        label: "tickets of reads and writes in use",
        unit: Unit::Count,
        lane: |scene, shard| {
            let out = |op| gauge(scene, &cat::MONGO_TICKETS_OUT, &shard.engine.name, Some(op));
            out("read").with(&out("write"), |read, write| read + write)
        },
    },
    Column {
        name: "in_line_count",
        head: "in line",
        label: "writes in line for a ticket",
        unit: Unit::Count,
        lane: |scene, shard| {
            let line = |def| gauge(scene, def, &shard.engine.name, Some("write"));
            line(&cat::MONGO_TICKETS_QUEUED).or(&line(&cat::MONGO_LOCK_QUEUE))
        },
    },
    Column {
        name: "connections_count",
        head: "connections",
        label: "connections of clients",
        unit: Unit::Count,
        lane: |scene, shard| gauge(scene, &cat::MONGO_CONNECTIONS, &shard.engine.name, None),
    },
    Column {
        name: "majority_lag_s",
        head: "lag",
        label: "lag of the majority",
        unit: Unit::Seconds,
        lane: |scene, shard| majority_lag(scene, shard.engine),
    },
    Column {
        name: "disk_busy_ratio",
        head: "disk",
        label: "share of time the disk was busy",
        unit: Unit::Ratio,
        lane: |scene, shard| shard.engine.device.map_or_else(|| scene.grid.unknown(), |device| device.busy.clone()),
    },
];

/// The shards of a cluster side by side, taken in window after window.
#[derive(Clone, Debug, Default)]
pub struct Shards(BTreeMap<String, Taken>);

/// What was taken in of one shard.
#[derive(Clone, Debug)]
struct Taken {
    /// Seconds in which each member was primary.
    primaries: BTreeMap<String, usize>,
    /// Of each column the sum of its values, and how many there are.
    sums: Vec<(f64, usize)>,
}

/// One shard beside its siblings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShardRow {
    /// Its replica set.
    pub shard: String,
    /// The member that was primary for most of the time.
    pub server: String,
    /// Its figures, the same ones in the same order in every row.
    pub figures: Vec<ShardFigure>,
}

/// A figure of a shard: a mean over the time that was seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShardFigure {
    /// Its name, as in findings, and as a column's head.
    pub name: &'static str,
    /// One word or two.
    pub head: &'static str,
    /// What people call it.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// None where it was not read.
    pub value: Option<f64>,
}

impl Shards {
    /// The shards of one window.
    pub fn of(window: &Window) -> Shards {
        let mut shards = Shards::default();
        shards.take(window, window.from);
        shards
    }

    /// Takes in what a window tells of shards from `since` on; nothing where it knows of fewer than two.
    pub fn take(&mut self, window: &Window, since: Moment) {
        let sets: BTreeSet<&str> = window.meta.targets.iter().filter_map(set_of).collect();
        if sets.len() < 2 {
            return;
        }
        let scene = Scene::of(window);
        let engines = engines(&scene);
        let range = scene.grid.second(since.max(window.from)).unwrap_or(scene.grid.count)..scene.grid.count;
        for shard in shards(&scene, &engines) {
            let primary_s = shard.primary.values(&range).len();
            if primary_s == 0 {
                continue;
            }
            let nothing = || Taken { primaries: BTreeMap::new(), sums: vec![(0.0, 0); COLUMNS.len()] };
            let taken = self.0.entry(shard.set.to_owned()).or_insert_with(nothing);
            *taken.primaries.entry(shard.engine.name.clone()).or_default() += primary_s;
            for (column, (sum, count)) in COLUMNS.iter().zip(&mut taken.sums) {
                let values = column.of(&scene, &shard).values(&range);
                (*sum, *count) = (*sum + values.iter().sum::<f64>(), *count + values.len());
            }
        }
    }

    /// A row a shard, by their names; empty where fewer than two were seen.
    pub fn rows(&self) -> Vec<ShardRow> {
        if self.0.len() < 2 {
            return Vec::new();
        }
        self.0.iter().map(|(set, taken)| taken.row(set)).collect()
    }
}

impl Taken {
    fn row(&self, set: &str) -> ShardRow {
        let most = self.primaries.iter().max_by_key(|(_, seconds)| **seconds);
        let figure = |(column, (sum, count)): (&Column, &(f64, usize))| ShardFigure {
            name: column.name,
            head: column.head,
            label: column.label,
            unit: column.unit,
            value: (*count > 0).then(|| sum / *count as f64),
        };
        ShardRow {
            shard: set.to_owned(),
            server: most.map(|(name, _)| name.clone()).unwrap_or_default(),
            figures: COLUMNS.iter().zip(&self.sums).map(figure).collect(),
        }
    }
}
