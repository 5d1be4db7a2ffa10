//! Shards of a cluster side by side, on planted series: one that is unlike its siblings, and clusters of which none is.
#![allow(clippy::unwrap_used)]

mod common;

use backwater_diagnose::Options;
use backwater_model::catalogue as cat;
use backwater_model::{Finding, Meta, Severity, Target};
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

fn found_as(shards: &[Shard], role: &str) -> Vec<Finding> {
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
    diagnose(&readings.window(meta, 1_000.0, 1_000.0 + SECONDS as f64), &Options::default())
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
