//! Shards of a cluster side by side, on planted series: one that is unlike its siblings, and clusters of which none is.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::{Options, ShardRow, Shards};
use backwater_model::catalogue as cat;
use backwater_model::{Finding, Meta, Moment, Severity, Span, Target, Window};
use common::Readings;
use common::judged::{diagnose, names};

const GIB: f64 = 1_073_741_824.0;
const SECONDS: usize = 180;

/// A primary: its replica set, and what it does second by second.
struct Shard {
    set: &'static str,
    per_s: fn(usize) -> f64,
    ms: fn(usize) -> f64,
    state: fn(usize) -> f64,
}

fn even(set: &'static str) -> Shard {
    Shard { set, per_s: |_| 1_000.0, ms: |s| if s % 60 < 8 { 3.0 } else { 2.0 }, state: |_| 1.0 }
}

fn window(shards: &[Shard], role: &str) -> Window {
    let mut readings = Readings::default();
    let name = |place: usize| format!("db{place}:27018");
    for (place, shard) in shards.iter().enumerate() {
        let (name, mut operations, mut us) = (name(place), 0.0, 0.0);
        let target = ("target", name.as_str());
        for second in 0..=SECONDS {
            let at = 1_000.0 + second as f64;
            readings.put(&cat::WT_CACHE_MAX, &[target], at, GIB);
            readings.put(&cat::WT_CACHE_DIRTY, &[target], at, 0.03 * GIB);
            readings.put(&cat::MONGO_STATE, &[target], at, (shard.state)(second));
            readings.put(&cat::MONGO_CONNECTIONS, &[target], at, 100.0);
            readings.put(&cat::MONGO_TICKETS_OUT, &[target, ("op", "write")], at, 7.0);
            readings.put(&cat::MONGO_TICKETS_OUT, &[target, ("op", "read")], at, 1.0);
            for op in ["reads", "writes"] {
                readings.put(&cat::MONGO_OPS, &[target, ("op", op)], at, operations);
                readings.put(&cat::MONGO_LATENCY, &[target, ("op", op)], at, us);
            }
            let half = (shard.per_s)(second) / 2.0;
            (operations, us) = (operations + half, us + half * (shard.ms)(second) * 1e3);
        }
    }
    let targets = shards.iter().enumerate().map(|(place, shard)| Target {
        name: name(place),
        kind: "mongodb".into(),
        settings: [
            ("sharding.clusterRole".to_owned(), role.to_owned()),
            ("replication.replSetName".to_owned(), shard.set.to_owned()),
        ]
        .into(),
        ..Target::default()
    });
    let meta = Meta { targets: targets.collect(), ..Meta::default() };
    readings.window(meta, 1_000.0, 1_000.0 + SECONDS as f64)
}

fn found_as(shards: &[Shard], role: &str) -> Vec<Finding> {
    diagnose(&window(shards, role), &Options::default())
}

fn found(shards: &[Shard]) -> Vec<Finding> {
    found_as(shards, "shardsvr")
}

fn slow(second: usize) -> f64 {
    if (60..130).contains(&second) { 40.0 } else { 2.0 }
}

#[test]
fn a_shard_that_is_slower_than_its_siblings_stands_out() {
    let list = found(&[even("rs0"), Shard { ms: slow, ..even("rs1") }, even("rs2")]);
    assert_eq!(names(&list), ["shard-unlike slower mongo.clients@db1:27018"]);
    let first = &list[0];
    assert_eq!(first.severity, Severity::Warning);
    assert!(first.summary.contains("rs1") && first.summary.contains("(rs0, rs2)"), "{}", first.summary);
    assert!((first.figure("own_ms").unwrap() - 40.0).abs() < 3.0 && first.figure("siblings_ms").unwrap() < 4.0);
    assert!((66.0..=74.0).contains(&first.figure("unlike_s").unwrap()), "{first:?}");
}

#[test]
fn a_shard_that_gets_most_of_the_work_is_told_from_one_with_a_trouble_of_its_own() {
    let busy = |second| if (60..130).contains(&second) { 4_000.0 } else { 1_000.0 };
    let list = found(&[even("rs0"), even("rs1"), Shard { ms: slow, per_s: busy, ..even("rs2") }]);
    assert_eq!(names(&list), ["shard-unlike busier-and-slower mongo.clients@db2:27018"]);
    let list = found(&[even("rs0"), even("rs1"), Shard { per_s: busy, ..even("rs2") }]);
    assert_eq!(names(&list), ["shard-unlike busier mongo.clients@db2:27018"]);
    assert_eq!(list[0].severity, Severity::Info);
}

#[test]
fn none_is_unlike_where_all_are_slow_or_nobody_can_say_which_is_usual() {
    let slow = |set| Shard { ms: slow, ..even(set) };
    assert_eq!(names(&found(&[slow("rs0"), slow("rs1"), slow("rs2")])), [""; 0]);
    assert_eq!(names(&found(&[even("rs0"), slow("rs1")])), [""; 0], "two shards");
    // Members of one replica set are no siblings, nor are servers that are no shards.
    assert_eq!(names(&found(&[even("rs0"), slow("rs0"), even("rs1")])), [""; 0]);
    assert_eq!(names(&found_as(&[even("a"), slow("b"), even("c")], "configsvr")), [""; 0]);
    let idle = |set| Shard { per_s: |_| 2.0, ..slow(set) };
    assert_eq!(names(&found(&[even("rs0"), idle("rs1"), even("rs2")])), [""; 0], "too few operations to speak of");
}

#[test]
fn a_member_counts_only_while_it_is_primary() {
    let stepped_down = |second| if second < 50 { 1.0 } else { 2.0 };
    let late = Shard { state: stepped_down, ms: slow, ..even("rs1") };
    let heir = Shard { state: |second| if second < 50 { 2.0 } else { 1.0 }, ..even("rs1") };
    assert_eq!(names(&found(&[even("rs0"), late, heir, even("rs2")])), [""; 0]);
}

/// A shard's figure, if it is known.
fn of(row: &ShardRow, name: &str) -> Option<f64> {
    row.figures.iter().find(|figure| figure.name == name).unwrap().value
}

#[test]
fn shards_stand_side_by_side_also_where_none_is_unlike() {
    // Two are too few to say which is the usual one; they stand beside one another all the same.
    let slow = Shard { ms: |_| 40.0, per_s: |_| 500.0, ..even("rs1") };
    let rows = Shards::of(&window(&[even("rs0"), slow], "shardsvr")).rows();
    let names: Vec<_> = rows.iter().map(|row| (row.shard.as_str(), row.server.as_str())).collect();
    assert_eq!(names, [("rs0", "db0:27018"), ("rs1", "db1:27018")]);
    let close = |row: &ShardRow, name, value: f64| (of(row, name).unwrap() - value).abs() < 0.02 * value;
    assert!(close(&rows[1], "ms", 40.0) && close(&rows[1], "operations_per_s", 500.0), "{rows:?}");
    for row in &rows {
        assert!(close(row, "dirty_ratio", 0.03) && close(row, "dirty_trigger_ratio", 0.2), "{row:?}");
        assert!(close(row, "tickets_count", 8.0) && close(row, "connections_count", 100.0), "{row:?}");
        assert_eq!((of(row, "disk_busy_ratio"), of(row, "majority_lag_s")), (None, None), "not read, not told");
    }
}

#[test]
fn a_shard_is_told_by_its_primary_and_only_while_it_is_one() {
    let stepped_down = |second| if second < 100 { 1.0 } else { 2.0 };
    let late = Shard { state: stepped_down, ms: |s| if s < 100 { 2.0 } else { 400.0 }, ..even("rs1") };
    let heir = Shard { state: |s| if s < 100 { 2.0 } else { 1.0 }, ms: |_| 2.0, ..even("rs1") };
    let window = window(&[even("rs0"), late, heir], "shardsvr");
    let rows = Shards::of(&window).rows();
    assert_eq!((rows.len(), rows[1].server.as_str()), (2, "db1:27018"));
    assert!(of(&rows[1], "ms").unwrap() < 3.0, "what a member feels as a secondary is not the shard's: {rows:?}");
    // Taken in part by part, each shard goes by the member that was primary the longest, and each second counts once.
    let mut parts = Shards::default();
    for (from, since, to) in [(0.0, 0.0, 100.0), (60.0, 100.0, 180.0)] {
        let at = |seconds| window.from + Span::from_seconds(seconds);
        parts.take(&window.slice(at(from), at(to)), at(since));
    }
    let whole = parts.rows();
    assert_eq!(whole[1].server, "db1:27018");
    assert!((of(&whole[0], "ms").unwrap() - of(&rows[0], "ms").unwrap()).abs() < 0.05, "{whole:?}");
}

#[test]
fn one_shard_and_servers_that_are_none_have_no_table() {
    let none = |shards: &[Shard], role| Shards::of(&window(shards, role)).rows();
    assert_eq!(none(&[even("rs0"), even("rs0")], "shardsvr"), []);
    assert_eq!(none(&[even("a"), even("b")], "configsvr"), []);
    assert_eq!(none(&[even("rs0"), Shard { state: |_| 2.0, ..even("rs1") }], "shardsvr"), [], "no primary was seen");
    assert_eq!(Shards::of(&Window::default()).rows(), []);
    let mut empty = Shards::default();
    empty.take(&window(&[even("rs0"), even("rs1")], "shardsvr"), Moment::from_seconds(5_000.0));
    assert_eq!(empty.rows(), [], "nothing is new");
}
