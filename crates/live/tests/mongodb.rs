//! Figures of several MongoDB servers: of one source, and of two that name their servers alike.

#![allow(clippy::unwrap_used)]

mod common;

use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Batch, ClockAnchor, Epoch, Meta, Moment, Point, Registry, Target};
use backwater_probe::anchor;
use backwater_record::{Options, Writer};
use common::planted::MIB;
use common::{LONG, Served, keep_fresh};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const SERVERS: [&str; 2] = ["db1:27017", "db2:27017"];
const SECONDS: i64 = 60;

/// What the server at this place has of dirty pages in this recording; no two servers have the same.
fn dirty(recording: usize, server: usize) -> f64 {
    (30.0 + 10.0 * recording as f64 + server as f64) * MIB
}

/// One second of both servers.
fn second(at: i64, recording: usize, registry: &Registry) -> Batch {
    let mut batch = Batch::default();
    for (server, name) in SERVERS.iter().enumerate() {
        let mut put = |def: &Def, more: &[(&'static str, &str)], value: f64| {
            let labels = [&[("target", *name)], more].concat();
            let series = registry.number(def, &labels).unwrap();
            batch.points.push(Point { at: Moment(at * 1_000_000), series, epoch: Epoch(1), value, as_of: None });
        };
        put(&cat::MONGO_UPTIME, &[], at as f64);
        put(&cat::WT_CACHE_MAX, &[], 1_024.0 * MIB);
        put(&cat::WT_CACHE_USED, &[], 700.0 * MIB);
        put(&cat::WT_CACHE_DIRTY, &[], dirty(recording, server));
        put(&cat::MONGO_CONNECTIONS, &[], 10.0 + server as f64);
        for op in ["read", "write"] {
            put(&cat::MONGO_TICKETS_OUT, &[("op", op)], 1.0 + server as f64);
            put(&cat::MONGO_TICKETS_FREE, &[("op", op)], 127.0 - server as f64);
        }
    }
    batch
}

fn recording(dir: &Path, recording: usize) {
    let registry = Arc::new(Registry::new());
    let target = |name: &str| Target { name: name.to_owned(), kind: "mongodb".to_owned(), ..Target::default() };
    // The last second is of now; a clock that is ahead keeps it so.
    let now = ClockAnchor { boot: Moment((SECONDS - 1) * 1_000_000), unix_us: anchor().unix_us + 3_600_000_000 };
    let meta = Meta { anchors: vec![now], targets: SERVERS.map(target).to_vec(), ..Meta::default() };
    let options = Options { free_floor_bytes: 0, ..Options::default() };
    let mut writer = Writer::create(dir, meta, Arc::clone(&registry), options).unwrap();
    for at in 0..SECONDS {
        writer.write(&second(at, recording, &registry)).unwrap();
        writer.tick(Moment(at * 1_000_000)).unwrap();
    }
    writer.close().unwrap();
    keep_fresh(dir);
}

/// The value of one label.
fn label<'a>(sample: &'a str, name: &str) -> Option<&'a str> {
    sample.split_once(&format!("{name}=\""))?.1.split('"').next()
}

#[test]
fn two_servers_of_two_sources_are_each_told_once_and_by_their_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = ["one", "two"].map(|name| dir.path().join(name));
    dirs.iter().enumerate().for_each(|(number, dir)| recording(dir, number));
    let served = Served::of(&dirs.each_ref().map(|dir| dir.as_path()), LONG, None);
    let (status, _, text) = served.metrics();
    assert_eq!(status, 200, "{text}");
    let parsed = openmetrics_parser::openmetrics::parse_openmetrics(&text);
    assert!(parsed.is_ok(), "{:?}\n{text}", parsed.err());

    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut known = BTreeSet::new();
    for sample in &samples {
        let (series, _) = sample.rsplit_once(' ').unwrap();
        assert!(known.insert(series), "twice: {sample}");
    }
    let value = |start: String| -> Option<f64> {
        let (_, value) =
            samples.iter().find_map(|sample| sample.rsplit_once(' ').filter(|(series, _)| *series == start))?;
        value.parse().ok()
    };
    for (number, source) in ["one", "two"].iter().enumerate() {
        for (place, server) in SERVERS.iter().enumerate() {
            let of = |family: &str, queue: &str| {
                value(format!("{family}{{source=\"{source}\",target=\"{server}\",queue=\"{queue}@{server}\"}}"))
            };
            assert_eq!(of("backwater_queue_level_bytes", "wt.dirty"), Some(dirty(number, place)), "{text}");
            assert_eq!(of("backwater_queue_level_bytes", "wt.cache"), Some(700.0 * MIB), "{text}");
            for op in ["read", "write"] {
                let tickets = format!("mongo.tickets.{op}");
                assert_eq!(of("backwater_queue_level", &tickets), Some(1.0 + place as f64), "{text}");
                assert_eq!(of("backwater_queue_hard_limit", &tickets), Some(128.0), "{text}");
            }
            assert_eq!(of("backwater_queue_level", "mongo.connections"), Some(10.0 + place as f64), "{text}");
            let up = value(format!("backwater_target_up{{source=\"{source}\",target=\"{server}\"}}"));
            assert_eq!(up, Some(1.0), "{text}");
        }
    }
    // Whatever else is told of a server's queue names that server.
    let owned = samples.iter().filter_map(|sample| Some((sample, label(sample, "queue")?.split_once('@')?.1)));
    for (sample, server) in owned.filter(|(_, server)| SERVERS.contains(server)) {
        assert_eq!(label(sample, "target"), Some(server), "{sample}");
    }
}
