//! Loads on the WiredTiger engine: what the driver is asked for, and what its answer comes to.

mod readings;

pub(crate) use readings::{EngineProbe, Readings};

use super::{Driven, Latencies, LoadResult};
use crate::scenario::{EnginePart, LoadPart};
use backwater_probe::mongodb::wired_tiger_descriptions;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time of application threads in eviction, the newest description first.
const EVICTING: &[&str] =
    &["cache: application thread time evicting (usecs)", "thread-yield: application thread time evicting (usecs)"];
/// Time in which threads slept until another one was done with the page that they wanted.
const PAGE_WAITING: &[&str] = &["thread-yield: page acquire time sleeping (usecs)"];
/// Pages that application threads evicted.
const EVICTED: &[&str] =
    &["cache: page evict attempts by application threads", "cache: pages evicted by application threads"];

/// What puts documents into the database before the load; none where it begins empty.
pub(crate) fn fill(part: &EnginePart) -> Option<Value> {
    (part.documents > 0).then(|| {
        json!({
            "cmd": "fill",
            "documents": part.documents,
            "document_bytes": part.document_bytes,
            "expire_s": part.expire_s,
        })
    })
}

/// The load of so many seconds.
pub(crate) fn run(part: &LoadPart, seconds: f64) -> Value {
    let engine = &part.engine;
    json!({
        "cmd": "run",
        "load": engine.kind.word(),
        "rate_per_s": part.rate_per_s,
        "seconds": seconds,
        "threads": part.clients,
        "thread_model": if engine.thread_per_operation { "per-connection" } else { "pool" },
        "document_bytes": engine.document_bytes,
        "done": if engine.journalled { "journal" } else { "commit" },
        "hold_snapshot": engine.hold_snapshot,
        "majority_stands_s": engine.majority_stands_s,
        "read_share": engine.read_share,
        "ttl_period_s": engine.ttl_period_s,
        "statistics": wired_tiger_descriptions(),
    })
}

/// What the driver's answer comes to.
pub(crate) fn driven(told: &Value, part: &LoadPart) -> Driven {
    let count = |name: &str| told[name].as_u64().unwrap_or(0);
    let per_second: Vec<u64> =
        told["per_second"].as_array().into_iter().flatten().filter_map(|row| row[1].as_u64()).collect();
    let result = LoadResult {
        seconds: told["seconds"].as_f64().unwrap_or(0.0),
        // What was done after the end is in the latencies, but in no throughput.
        completed: per_second.iter().sum(),
        failed: count("failed"),
        cancelled: count("completed").saturating_sub(per_second.iter().sum()),
        never_started: count("never_started"),
        per_second,
        latency: latencies(&told["latency"]),
        service: latencies(&told["service"]),
        offered_per_s: part.rate_per_s,
        first_failure: told["first_failure"].as_str().map(str::to_owned),
    };
    Driven { figures: figures(told, &result), result, ..Driven::default() }
}

fn latencies(told: &Value) -> Latencies {
    let mut latencies = Latencies::new();
    for bucket in told["buckets"].as_array().into_iter().flatten() {
        if let (Some(us), Some(count)) = (bucket[0].as_u64(), bucket[1].as_u64()) {
            latencies.record_many(Duration::from_micros(us), count);
        }
    }
    latencies
}

/// The scenario's metrics that the driver itself measures.
fn figures(told: &Value, result: &LoadResult) -> BTreeMap<String, f64> {
    let grown = |names: &[&str]| {
        let pair = names.iter().find_map(|name| told["statistics"][name].as_array())?;
        Some(pair.get(1)?.as_f64()? - pair.first()?.as_f64()?)
    };
    let busy_us = told["busy_us"].as_f64().filter(|us| *us > 0.0);
    let all = [
        ("ops_per_s", told["ops_per_s"].as_f64()),
        ("stall_s", told["stall_s"].as_f64()),
        ("latency_mean_ms", Some(result.latency.mean_ms())),
        ("latency_p999_ms", Some(result.latency_ms(0.999))),
        ("latency_max_ms", Some(result.latency.max_ms())),
        ("commit_latency_mean_ms", told["commit"]["mean_ms"].as_f64()),
        ("commit_latency_p99_ms", told["commit"]["p99_ms"].as_f64()),
        ("commit_latency_max_ms", told["commit"]["max_ms"].as_f64()),
        ("app_evict_share", grown(EVICTING).zip(busy_us).map(|(evicting, busy)| evicting / busy)),
        ("page_wait_share", grown(PAGE_WAITING).zip(busy_us).map(|(waiting, busy)| waiting / busy)),
        ("app_evictions", grown(EVICTED)),
        ("conflicts", told["conflicts"].as_f64()),
        ("ttl_deleted", told["deleted"].as_f64().filter(|deleted| *deleted > 0.0)),
        ("threads_made", told["threads_made"].as_f64()),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_becomes_the_labs_own_figures() {
        let told = json!({
            "seconds": 2.0, "completed": 30, "failed": 1, "never_started": 4, "ops_per_s": 14.0, "stall_s": 1,
            "busy_us": 1000, "per_second": [[20, 18], [20, 10]], "deleted": 0, "threads_made": 8, "conflicts": 0,
            "latency": {"buckets": [[1000, 20], [500000, 10]]}, "service": {"buckets": [[900, 30]]},
            "commit": {"mean_ms": 0.9, "p99_ms": 1.0, "max_ms": 2.0},
            "statistics": {
                "thread-yield: application thread time evicting (usecs)": [100, 350],
                "thread-yield: page acquire time sleeping (usecs)": [50, 550],
            },
        });
        let part = "kind = 'wiredtiger'\nclients = 8\nrate_per_s = 20\nseconds = 2\n";
        let part: LoadPart = toml::from_str(part).unwrap();
        let Driven { result, figures, .. } = driven(&told, &part);
        assert_eq!((result.completed, result.cancelled, result.failed, result.never_started), (28, 2, 1, 4));
        assert!((result.latency_ms(0.99) - 500.0).abs() < 1.0);
        assert_eq!((figures["app_evict_share"], figures["stall_s"], figures["ops_per_s"]), (0.25, 1.0, 14.0));
        assert_eq!(figures["page_wait_share"], 0.5);
        // 20 times 1 ms and 10 times 500: by name, as they are exported.
        assert!((figures["latency_mean_ms"] - 167.3).abs() < 1.0, "{figures:?}");
        assert!((figures["latency_p999_ms"] - 500.0).abs() < 1.0 && (figures["latency_max_ms"] - 500.0).abs() < 1.0);
        assert_eq!((figures["commit_latency_p99_ms"], figures["threads_made"]), (1.0, 8.0));
        assert!(!figures.contains_key("ttl_deleted") && !figures.contains_key("app_evictions"));
    }
    #[test]
    fn every_statistic_that_becomes_a_share_is_asked_for() {
        let asked = wired_tiger_descriptions();
        for names in [EVICTING, EVICTED, PAGE_WAITING] {
            assert!(names.iter().all(|name| asked.iter().any(|known| known == name)), "{names:?}");
        }
    }
}
