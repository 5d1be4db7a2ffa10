//! The flight recorder as a source, on recordings made by ftdc's own encoder: figures of several releases, a restart,
//! a change of settings, damage, and windows that lie side by side.
#![allow(clippy::unwrap_used)]

use backwater_model::{EventKind, Moment, Registry, Window};
use backwater_probe::mongodb::Flight;
use ftdc::encode::{Encoder, metadata, metadata_delta};
use ftdc::{Builder, encode};
use std::path::Path;
use std::sync::Arc;

const BEGIN_MS: i64 = 1_700_000_000_000;

fn at(second: i64) -> Moment {
    Moment((BEGIN_MS + second * 1_000) * 1_000)
}

/// One second of a server: 1 MiB more dirty each second, 100 writes a second, a restart at `restart`.
fn sample(second: i64, release: &str, restart: i64) -> Vec<u8> {
    let (pid, life) = if second < restart { (7, second) } else { (8, second - restart) };
    let unix_ms = BEGIN_MS + second * 1_000;
    let status = |s: Builder| {
        let s = s.date("start", unix_ms).int64("pid", pid).int64("uptimeMillis", life * 1_000 + 500);
        let s = s.document("opLatencies", |o| {
            o.document("writes", |w| w.int64("ops", life * 100).int64("latency", life * 5_000))
        });
        let tickets = |t: Builder| t.document("write", |w| w.int32("out", 5).int32("totalTickets", 128));
        let s = if release == "8.0" { s.document("queues", |q| q.document("execution", tickets)) } else { s };
        let s = s.document("wiredTiger", |w| {
            let w = w.document("cache", |c| {
                let c = c.int64("tracked dirty bytes in the cache", (second + 1) << 20);
                let c = c.double("maximum bytes configured", 1e9);
                if release == "8.0" { c.int64("application thread time evicting (usecs)", life * 10) } else { c }
            });
            let w =
                w.document("transaction", |t| t.int64("transaction range of timestamps currently pinned", 30 << 32));
            if release == "8.0" {
                return w
                    .document("checkpoint", |c| c.int32("progress state", 3).int64("most recent time (msecs)", 700));
            }
            w.document("thread-yield", |t| t.int64("application thread time evicting (usecs)", life * 10))
                .document("concurrentTransactions", tickets)
        });
        s.date("end", unix_ms + 12)
    };
    let members = |r: Builder| {
        r.array("members", |m| {
            let member = |b: Builder, name: &str, seconds: u32| {
                b.string("name", name)
                    .int32("state", 2)
                    .document("optime", |o| o.timestamp("ts", seconds, 1).int64("t", 3))
            };
            m.document("0", |b| member(b, "db1:27017", 1_000)).document("1", |b| member(b, "db2:27017", 990))
        })
    };
    let sizes = |b: Builder| b.int64("size", 900 << 20).int64("maxSize", 1_000 << 20);
    let oplog = |b: Builder| if release == "8.0" { b.document("storageStats", sizes) } else { sizes(b) };
    let whole = |b: Builder| {
        let b = b.document("serverStatus", status).document("replSetGetStatus", members);
        b.document("local.oplog.rs.stats", oplog)
    };
    let b = Builder::new().date("start", unix_ms);
    let b = if release == "8.0" { b.document("shard", whole) } else { whole(b) };
    let b = b.document("systemMetrics", |m| {
        m.document("disks", |d| {
            d.document("sda", |d| d.int64("writes", second * 10).int64("write_sectors", second * 2_048))
        })
    });
    b.finish()
}

fn about(cache_gb: f64) -> Vec<u8> {
    let parsed = |p: Builder| {
        p.document("storage", |s| {
            s.string("dbPath", "/data")
                .document("wiredTiger", |w| w.document("engineConfig", |e| e.double("cacheSizeGB", cache_gb)))
        })
    };
    let system = |s: Builder| s.string("hostname", "db1").int32("numCores", 4);
    Builder::new()
        .document("buildInfo", |b| b.string("version", "7.0.12"))
        .document("getCmdLineOpts", |b| b.document("parsed", parsed))
        .document("hostInfo", |h| h.document("system", system))
        .finish()
}

/// Two files of 100 seconds each.
fn recording(dir: &Path, release: &str, restart: i64) {
    for (number, from) in [0_i64, 100].into_iter().enumerate() {
        let mut bytes = metadata(BEGIN_MS + from * 1_000, &about(1.0 + number as f64));
        let mut encoder = Encoder::new(30);
        for second in from..from + 100 {
            let full = encoder.add(BEGIN_MS + second * 1_000, &sample(second, release, restart)).unwrap();
            bytes.extend(full.unwrap_or_default());
        }
        bytes.extend(encoder.finish().unwrap_or_default());
        std::fs::write(dir.join(format!("metrics.2023-11-14T22-13-2{number}Z-0000{number}")), bytes).unwrap();
    }
}

fn flight(release: &str, restart: i64) -> (tempfile::TempDir, Flight) {
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path(), release, restart);
    let flight = Flight::open(dir.path()).unwrap();
    (dir, flight)
}

fn last(window: &Window, series: &str, labels: &[(&str, &str)]) -> f64 {
    window.track(series, labels).unwrap_or_else(|| panic!("no {series} {labels:?}")).last().unwrap()
}

#[test]
fn old_and_new_places_give_the_same_series() {
    for release in ["4.2", "8.0"] {
        let (_dir, flight) = flight(release, 1_000);
        let window = flight.window(at(0), at(199)).unwrap();
        assert_eq!(last(&window, "wt.cache.dirty_bytes", &[]), f64::from(200 << 20), "{release}");
        assert_eq!(last(&window, "mongo.tickets.out", &[("op", "write")]), 5.0, "{release}");
        assert_eq!(window.track("wt.app.evicting_us", &[]).unwrap().rate().unwrap().round(), 10.0, "{release}");
        assert_eq!(window.track("mongo.ops", &[("op", "writes")]).unwrap().rate().unwrap().round(), 100.0);
        assert_eq!(last(&window, "wt.history.pinned_s", &[]), 30.0);
        assert_eq!(last(&window, "mongo.member.optime_s", &[("member", "db2:27017")]), 990.0);
        assert_eq!(last(&window, "mongo.oplog.max_bytes", &[]), f64::from(1_000 << 20), "{release}");
        assert_eq!(last(&window, "mongo.probe.response_us", &[]), 12_000.0);
        assert_eq!(window.track("host.disk.written_bytes", &[("dev", "sda")]).unwrap().rate().unwrap(), 1_048_576.0);
    }
    let (_dir, flight) = flight("8.0", 1_000);
    let window = flight.window(at(0), at(199)).unwrap();
    assert_eq!(
        (last(&window, "wt.checkpoint.running", &[]), last(&window, "wt.checkpoint.last_ms", &[])),
        (1.0, 700.0)
    );
}

#[test]
fn the_server_its_host_and_its_disk_are_told() {
    let (_dir, flight) = flight("4.2", 1_000);
    let (meta, target) = (flight.meta(), &flight.meta().targets[0]);
    assert_eq!(
        (target.name.as_str(), target.kind.as_str(), target.version_num),
        ("db1:27017", "mongodb", Some(70_012))
    );
    assert_eq!((meta.host.cpus, target.data_device.as_deref()), (Some(4), Some("sda")));
    assert!(target.local, "the host whose figures it recorded is its own");
    assert_eq!(flight.span(), Some((at(0), at(199))));
    assert_eq!(meta.unix_us(at(5)), Some(at(5).0), "moments are wall-clock times");
}

#[test]
fn a_restart_is_a_new_epoch_and_no_rate_crosses_it() {
    let (_dir, flight) = flight("4.2", 120);
    let window = flight.window(at(0), at(199)).unwrap();
    assert_eq!(window.events_of(EventKind::Restart).map(|event| event.at).collect::<Vec<_>>(), [at(120)]);
    let ops = window.track("mongo.ops", &[("op", "writes")]).unwrap();
    assert_eq!(ops.rate().unwrap().round(), 100.0);
    let epochs: std::collections::BTreeSet<_> = ops.points.iter().map(|point| point.epoch).collect();
    assert_eq!(epochs.len(), 2);
}

#[test]
fn a_clock_that_once_ran_ahead_hides_nothing_behind_it() {
    const DAYS_S: i64 = 7 * 86_400;
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = metadata(BEGIN_MS, &about(1.0));
    // Chunks of six seconds.
    let mut encoder = Encoder::new(5);
    for second in 0..240 {
        let second = if (33..42).contains(&second) { second + DAYS_S } else { second };
        let full = encoder.add(BEGIN_MS + second * 1_000, &sample(second, "4.2", 10 * DAYS_S)).unwrap();
        bytes.extend(full.unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), bytes).unwrap();
    let flight = Flight::open(dir.path()).unwrap();
    assert_eq!(flight.span(), Some((at(0), at(239))));
    let window = flight.window(at(0), at(239)).unwrap();
    assert_eq!(window.track("mongo.ops", &[("op", "writes")]).unwrap().points.len(), 240 - 9);
    assert!(flight.warnings().iter().any(|warning| warning.contains("the clock was set")), "{:?}", flight.warnings());
}

/// A recorder of one file, with chunks of six samples at these seconds.
fn sampled(seconds: impl Iterator<Item = i64>) -> (tempfile::TempDir, Flight) {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = metadata(BEGIN_MS, &about(1.0));
    let mut encoder = Encoder::new(5);
    for second in seconds {
        let full = encoder.add(BEGIN_MS + second * 1_000, &sample(second, "4.2", 1_000_000_000)).unwrap();
        bytes.extend(full.unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), bytes).unwrap();
    let flight = Flight::open(dir.path()).unwrap();
    (dir, flight)
}

#[test]
fn a_clock_that_was_wrong_costs_the_shorter_side_and_no_time_is_spent_on_years_without_readings() {
    const YEARS_S: i64 = 10 * 365 * 86_400;
    // Before the clock is set for the first time; while it is a few hours ahead; and a year's stop that is none of the clock's.
    let wrong = |count: i64| match count {
        0..6 => count - YEARS_S,
        60..120 => count + 7_200,
        180.. => count + 300 * 86_400,
        _ => count,
    };
    let (_dir, flight) = sampled((0..240).map(wrong));
    assert_eq!(flight.span(), Some((at(6), at(239 + 300 * 86_400))));
    let (from, to) = flight.span().unwrap();
    let windows: Vec<_> = flight.windows(from, to, 60.0).map(Result::unwrap).collect();
    let read: usize = windows.iter().map(|w| w.track("mongo.ops", &[("op", "writes")]).unwrap().points.len()).sum();
    // What lies on the edge of two windows is in both.
    assert!((240 - 66..240 - 66 + 8).contains(&read), "{read} readings");
    assert!(windows.len() <= 8, "{} windows", windows.len());
    assert_eq!(flight.warnings().len(), 2, "{:?}", flight.warnings());
    // Set back by an hour before the end: the longer side stays, to its end.
    let (_dir, flight) = sampled((0..240).map(|count| if count < 200 { count } else { count - 100 }));
    assert_eq!(flight.span(), Some((at(0), at(199))));
}

#[test]
fn parameters_that_the_recorder_tells_are_settings() {
    let dir = tempfile::tempdir().unwrap();
    let told = |at_s: i64, config: &str| {
        let parameters =
            |g: Builder| g.string("wiredTigerEngineRuntimeConfig", config).int32("syncdelay", 20).string("other", "x");
        metadata_delta(BEGIN_MS + at_s * 1_000, 0, &Builder::new().document("getParameter", parameters).finish())
    };
    let mut bytes =
        metadata(BEGIN_MS, &Builder::new().document("buildInfo", |b| b.string("version", "8.0.4")).finish());
    let mut encoder = Encoder::new(30);
    for second in 0..60 {
        // As mongod does: behind the first sample, and when something has changed.
        if [1, 30].contains(&second) {
            bytes.extend(told(second, if second == 1 { "" } else { "eviction_dirty_trigger=30" }));
        }
        let full = encoder.add(BEGIN_MS + second * 1_000, &sample(second, "8.0", 1_000)).unwrap();
        bytes.extend(full.unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), bytes).unwrap();
    let flight = Flight::open(dir.path()).unwrap();
    let settings = &flight.meta().targets[0].settings;
    assert_eq!(settings.get("setParameter.syncdelay").map(String::as_str), Some("20"));
    assert!(!settings.keys().any(|name| name.contains("other")), "{settings:?}");
    let window = flight.window(at(0), at(59)).unwrap();
    let changes: Vec<&str> = window.events_of(EventKind::Setting).map(|event| event.message.as_ref()).collect();
    assert_eq!(changes, ["setParameter.wiredTigerEngineRuntimeConfig is now 'eviction_dirty_trigger=30', was ''"]);
    assert!(flight.warnings().is_empty(), "{:?}", flight.warnings());
}

#[test]
fn a_parameter_of_the_command_line_that_comes_with_a_restart_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    for (number, trigger) in [None, Some("30"), None].into_iter().enumerate() {
        let options = |o: Builder| match trigger {
            Some(trigger) => o.document("parsed", |p| {
                p.document("setParameter", |s| s.string("wiredTigerEngineRuntimeConfig", trigger))
            }),
            None => o.document("parsed", |p| p),
        };
        let about = Builder::new()
            .document("buildInfo", |b| b.string("version", "7.0.12"))
            .document("getCmdLineOpts", options)
            .finish();
        let from = number as i64 * 30;
        let mut bytes = metadata(BEGIN_MS + from * 1_000, &about);
        let mut encoder = Encoder::new(30);
        for second in from..from + 30 {
            let full = encoder.add(BEGIN_MS + second * 1_000, &sample(second, "4.2", 1_000)).unwrap();
            bytes.extend(full.unwrap_or_default());
        }
        bytes.extend(encoder.finish().unwrap_or_default());
        std::fs::write(dir.path().join(format!("metrics.2023-11-14T22-13-2{number}Z-0000{number}")), bytes).unwrap();
    }
    let flight = Flight::open(dir.path()).unwrap();
    let name = "setParameter.wiredTigerEngineRuntimeConfig";
    assert!(!flight.meta().targets[0].settings.contains_key(name), "it came later");
    let window = flight.window(at(0), at(89)).unwrap();
    let changes: Vec<&str> = window.events_of(EventKind::Setting).map(|event| event.message.as_ref()).collect();
    assert_eq!(changes, [format!("{name} is now '30', was ''"), format!("{name} is now '', was '30'")]);
}

#[test]
fn files_of_several_servers_in_one_directory_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    for (number, host) in ["db1", "db2"].into_iter().enumerate() {
        let system = |s: Builder| s.string("hostname", host).int32("numCores", 4);
        let about = Builder::new().document("hostInfo", |h| h.document("system", system)).finish();
        let from = number as i64 * 10;
        let mut bytes = metadata(BEGIN_MS + from * 1_000, &about);
        let mut encoder = Encoder::new(30);
        for second in from..from + 10 {
            let full = encoder.add(BEGIN_MS + second * 1_000, &sample(second, "4.2", 1_000)).unwrap();
            bytes.extend(full.unwrap_or_default());
        }
        bytes.extend(encoder.finish().unwrap_or_default());
        std::fs::write(dir.path().join(format!("metrics.2023-11-14T22-13-2{number}Z-0000{number}")), bytes).unwrap();
    }
    let flight = Flight::open(dir.path()).unwrap();
    assert_eq!(flight.meta().targets[0].name, "db1:27017");
    let told = "a part of it was written by db2:27017: all of it is told as db1:27017's";
    assert!(flight.warnings().iter().any(|warning| warning.contains(told)), "{:?}", flight.warnings());
}

#[test]
fn a_release_or_an_engine_that_is_not_known_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let about = Builder::new().document("buildInfo", |b| b.string("version", "12.0.1")).finish();
    let mut bytes = metadata(BEGIN_MS, &about);
    let mut encoder = Encoder::new(30);
    for second in 0..5 {
        let status = |s: Builder| s.document("storageEngine", |e| e.string("name", "inMemory"));
        let sample = Builder::new().date("start", BEGIN_MS + second * 1_000).document("serverStatus", status).finish();
        bytes.extend(encoder.add(BEGIN_MS + second * 1_000, &sample).unwrap().unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), bytes).unwrap();
    let warnings = Flight::open(dir.path()).unwrap().warnings();
    assert!(warnings.iter().any(|told| told.contains("it runs 12.0.1, newer than")), "{warnings:?}");
    assert!(warnings.iter().any(|told| told.contains("its storage engine is inMemory")), "{warnings:?}");
}

#[test]
fn settings_of_a_window_are_those_in_force_when_it_begins() {
    let (_dir, flight) = flight("4.2", 1_000);
    let name = "storage.wiredTiger.engineConfig.cacheSizeGB";
    let windows: Vec<Window> = flight.windows(at(0), at(199), 50.0).map(Result::unwrap).collect();
    let cache: Vec<_> = windows.iter().map(|window| window.meta.targets[0].settings[name].as_str()).collect();
    assert_eq!(cache, ["1", "1", "1", "2"], "the change itself is an event of the third");
    let changed = windows[1].events_of(EventKind::Setting).chain(windows[2].events_of(EventKind::Setting)).count();
    assert!(changed >= 1);
}

#[test]
fn windows_side_by_side_hold_every_sample_and_lose_no_second_between_them() {
    let (_dir, flight) = flight("4.2", 1_000);
    let windows: Vec<Window> = flight.windows(at(0), at(199), 60.0).map(Result::unwrap).collect();
    let counts: Vec<_> =
        windows.iter().map(|window| window.track("wt.cache.dirty_bytes", &[]).unwrap().points.len()).collect();
    // The sample at an edge ends one window and begins the next.
    assert_eq!(counts, [61, 61, 61, 20]);
    for pair in windows.windows(2) {
        assert_eq!(pair[0].to, pair[1].from);
    }
    let registry = Arc::new(Registry::new());
    let all: usize = flight.batches(at(0), at(199), &registry).map(|batch| batch.unwrap().points.len()).sum();
    let one = flight.window(at(0), at(199)).unwrap();
    assert_eq!(all, one.all_tracks().map(|track| track.points.len()).sum::<usize>());
}

#[test]
fn damage_costs_its_own_chunk_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path(), "4.2", 1_000);
    let path = dir.path().join("metrics.2023-11-14T22-13-20Z-00000");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&path, &bytes).unwrap();
    let flight = Flight::open(dir.path()).unwrap();
    // Every look finds it anew and tells it once.
    for _ in 0..2 {
        let window = flight.window(at(0), at(199)).unwrap();
        let samples = window.track("wt.cache.dirty_bytes", &[]).unwrap().points.len();
        assert!((150..=200).contains(&samples), "{samples}");
        let warnings = flight.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("20Z-00000, byte "), "{warnings:?}");
    }
}

#[test]
fn for_the_last_seconds_only_files_are_read_that_may_hold_them() {
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path(), "4.2", 1_000);
    let of_last = |seconds: f64| {
        let flight = Flight::open_last(dir.path(), seconds).unwrap();
        let (first, last) = flight.span().unwrap();
        (first, last, flight.meta().targets[0].name.clone())
    };
    let name = flight("4.2", 1_000).1.meta().targets[0].name.clone();
    // The second file begins with second 100: what may begin before it needs the first one too.
    assert_eq!(of_last(0.0), (at(100), at(199), name.clone()));
    assert_eq!(of_last(10.0), (at(0), at(199), name.clone()));
    assert_eq!(of_last(1e12), (at(0), at(199), name));
    // Nor is damage told of what is not looked at.
    let old = dir.path().join("metrics.2023-11-14T22-13-20Z-00000");
    let mut bytes = std::fs::read(&old).unwrap();
    bytes.extend([7; 100]);
    std::fs::write(&old, bytes).unwrap();
    assert!(Flight::open_last(dir.path(), 0.0).unwrap().warnings().is_empty());
    assert_eq!(Flight::open(dir.path()).unwrap().warnings().len(), 1);
}

#[test]
fn what_is_not_the_recorders_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!Flight::is_at(dir.path()));
    std::fs::write(dir.path().join("meta.json"), "{}").unwrap();
    assert!(!Flight::is_at(dir.path()) && Flight::open(dir.path()).is_err());
    let data = dir.path().join("db").join("diagnostic.data");
    std::fs::create_dir_all(&data).unwrap();
    recording(&data, "4.2", 1_000);
    assert!(Flight::is_at(&data) && Flight::is_at(&dir.path().join("db")));
    let only_about = tempfile::tempdir().unwrap();
    std::fs::write(only_about.path().join("metrics.interim"), encode::metadata(BEGIN_MS, &about(1.0))).unwrap();
    assert_eq!(Flight::open(only_about.path()).unwrap().span(), None);
}

/// A line of mongod's log about an update that had ended then.
fn slow(second: f64, ms: u64) -> String {
    let time = ftdc::time_text(BEGIN_MS + (second * 1e3) as i64);
    format!(
        "{{\"t\":{{\"$date\":\"{}+00:00\"}},\"s\":\"I\",\"c\":\"WRITE\",\"id\":51803,\"msg\":\"Slow query\",\
         \"attr\":{{\"type\":\"update\",\"ns\":\"shop.carts\",\"command\":{{\"q\":{{\"name\":\"somebody\"}}}},\
         \"storage\":{{\"timeWaitingMicros\":{{\"cache\":90000}}}},\"durationMillis\":{ms}}}}}\n",
        time.trim_end_matches('Z')
    )
}

#[test]
fn slow_operations_of_the_log_stand_on_the_recorders_axis() {
    let (dir, mut flight) = flight("8.0", 1_000);
    let path = dir.path().join("mongod.log");
    // Ten a second for ten seconds, between two lines that say until when the log was kept.
    let stall = (0..100).map(|number| slow(50.05 + f64::from(number) / 10.0, 100 + number as u64));
    let text: String = std::iter::once(slow(-30.0, 101)).chain(stall).chain([slow(120.0, 102)]).collect();
    std::fs::write(&path, text).unwrap();
    flight.add_logs(std::slice::from_ref(&path)).unwrap();
    let whole = flight.window(at(0), at(199)).unwrap();
    let track = whole.track("mongo.slow_ops", &[("target", "db1:27017")]).unwrap();
    assert_eq!(track.between(at(50), at(60)).rate().unwrap(), 10.0);
    assert_eq!(track.between(at(70), at(110)).rate().unwrap(), 0.0);
    // Behind the log's last line nothing is known.
    assert_eq!((track.points.first().unwrap().at, track.points.last().unwrap().at), (at(0), at(120)));
    let kept: Vec<_> = whole.events_of(EventKind::Log).collect();
    assert!(kept.len() >= 5 && kept.iter().all(|event| event.message.contains("shop.carts")), "{kept:?}");
    assert!(!format!("{kept:?}").contains("somebody"));
    // The same in parts, and in batches.
    let parts = flight.windows(at(0), at(199), 70.0).map(|window| {
        let window = window.unwrap();
        let points = window.track("mongo.slow_ops", &[]).map_or(0, |track| track.points.len());
        (points, window.events_of(EventKind::Log).count())
    });
    let (points, events) = parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    // The second between two windows is in both.
    assert_eq!((points, events), (track.points.len() + 1, kept.len()));
    let registry = Arc::new(Registry::new());
    let batches: Vec<_> = flight.batches(at(0), at(199), &registry).map(Result::unwrap).collect();
    let number = registry.number(&backwater_model::catalogue::MONGO_SLOW_OPS, &[("target", "db1:27017")]).unwrap();
    let points = batches.iter().flat_map(|batch| &batch.points).filter(|point| point.series == number);
    assert!(points.map(|point| (point.at, point.value)).eq(track.points.iter().map(|point| (point.at, point.value))));
}

#[test]
fn a_log_of_another_time_is_refused() {
    let (dir, mut flight) = flight("8.0", 1_000);
    let path = dir.path().join("mongod.log");
    std::fs::write(&path, slow(-500.0, 101)).unwrap();
    let error = flight.add_logs(&[path]).unwrap_err().to_string();
    assert!(error.contains("2023-11-14T22:05:00Z"), "{error}");
    assert!(flight.add_logs(&[dir.path().join("none.log")]).unwrap_err().to_string().contains("cannot read"));
}
