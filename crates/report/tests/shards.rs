//! Shards of a cluster on the page's document and in its Markdown: a row each, also where none is unlike the others.
#![allow(clippy::unwrap_used)]

#[path = "../../diagnose/tests/common/mod.rs"]
mod common;

use backwater_model::catalogue as cat;
use backwater_model::{Meta, Target, Window};
use backwater_report::html::{document, markdown};
use common::Readings;

/// A minute of these shards' primaries: their dirty share of the cache and their connections.
fn window(shards: &[(&'static str, f64, f64)]) -> Window {
    let mut readings = Readings::default();
    let mut targets = Vec::new();
    for (set, dirty, connections) in shards {
        let name = format!("{set}-a:27018");
        let target = ("target", name.as_str());
        for second in 0..=60 {
            let at = 1_000.0 + f64::from(second);
            let gauges = [
                (&cat::WT_CACHE_MAX, 1e9),
                (&cat::WT_CACHE_DIRTY, dirty * 1e9),
                (&cat::MONGO_CONNECTIONS, *connections),
                (&cat::MONGO_STATE, 1.0),
            ];
            gauges.iter().for_each(|(def, value)| readings.put(def, &[target], at, *value));
        }
        let settings = [("sharding.clusterRole", "shardsvr"), ("replication.replSetName", set)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        targets.push(Target { name, kind: "mongodb".into(), settings, ..Target::default() });
    }
    readings.window(Meta { targets, ..Meta::default() }, 1_000.0, 1_060.0)
}

#[test]
fn shards_of_a_recording_stand_side_by_side() {
    let page = document(&window(&[("rs0", 0.03, 400.0), ("rs1_b", 0.19, 900.0)]), &[], None, &[]);
    let json = serde_json::to_value(&page).unwrap();
    assert_eq!((&json["shards"][1]["shard"], &json["shards"][1]["server"]), (&"rs1_b".into(), &"rs1_b-a:27018".into()));
    let text = markdown(&page);
    let (_, table) = text.split_once("## Shards side by side\n\n").unwrap();
    let lines: Vec<&str> = table.lines().take(4).collect();
    assert!(lines[0].starts_with("| shard | server | dirty share of the cache |"), "{table}");
    assert!(lines[2].starts_with("| rs0 | rs0-a:27018 | 3.00 % | 20.0 % |"), "{table}");
    assert!(lines[3].starts_with("| rs1\\_b | rs1\\_b-a:27018 | 19.0 % | 20.0 % |"), "{table}");
    assert!(lines[3].contains("| 900 |"), "{table}");
    let one = document(&window(&[("rs0", 0.03, 400.0)]), &[], None, &[]);
    assert!(one.shards.is_empty() && !markdown(&one).contains("Shards"), "one alone");
}
