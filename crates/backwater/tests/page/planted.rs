//! Recordings for the page's tests, second by second: one whose names are hostile, one of a thousand sessions, one of a day.

#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "../../../live/tests/common/planted.rs"]
mod climbs;

use backwater_model::catalogue as cat;
use backwater_model::{
    Batch, Epoch, Event, EventKind, FlowHeld, FlowPool, FlowRule, FlowState, Meta, Moment, Point, Registry,
    SOME_CONNECTIONS, Sample, Target, Text,
};
use backwater_record::{Options, Writer, write_flow};
pub use climbs::MIB;
use std::path::Path;
use std::sync::Arc;

/// What would show if any of it ran: a dialog, a request, a broken page.
pub const HOSTILE: &str = "</script><script>alert('ran')</script><img src=x onerror=alert('ran')>'\"&amp;";

fn meta(word: &str) -> Meta {
    let mut meta = climbs::meta("loop0");
    meta.devices[0].mount_points = vec![word.to_owned()];
    meta.written_by = word.to_owned();
    meta
}

/// One second of a device whose dirty pages climb to their limit, with a hole of ten seconds, and of sessions with hostile names.
fn second(second: i64, registry: &Registry) -> Batch {
    let at = Moment(second * 1_000_000);
    let dev = [("dev", "7:0")];
    let whole = second as f64;
    let gauge = [
        (cat::BDI_RECLAIMABLE, (whole * 4.0).min(250.0) * MIB),
        (cat::BDI_WRITEBACK, 6.0 * MIB),
        (cat::BDI_DIRTY_THRESH, 256.0 * MIB),
        (cat::BDI_GLOBAL_DIRTY_THRESH, 4_096.0 * MIB),
        (cat::BDI_BACKGROUND_THRESH, 2_048.0 * MIB),
        (cat::BDI_DIRTIED, whole * 30.0 * MIB),
        (cat::BDI_WRITTEN, whole * 14.0 * MIB),
        (cat::DISK_WRITES, whole * 900.0),
    ];
    let point = |series: &cat::Def, value: f64, labels: &[(&'static str, &str)]| Point {
        at,
        series: registry.number(series, labels).unwrap(),
        epoch: Epoch(1),
        value,
        as_of: None,
    };
    let mut points: Vec<Point> = gauge.iter().map(|(def, value)| point(def, *value, &dev)).collect();
    points.push(point(&cat::PG_XACT_COMMIT, whole * 500.0, &[("target", "primary"), ("database", HOSTILE)]));
    points.push(point(&cat::PG_PROBE_RESPONSE, 900.0, &[("target", "primary")]));
    let socket = [("target", "primary"), ("pid", "9"), ("local", "10.0.0.1:5432"), ("peer", "10.0.0.7:5000")];
    points.push(point(&cat::TCP_ACKED, whole * MIB, &socket));
    points.push(point(&cat::TCP_SENDQ, 3.0 * MIB, &socket));
    let sample = |pid: i32| Sample {
        at,
        target: "primary".into(),
        pid,
        state: Some("active".into()),
        user: Some(HOSTILE.into()),
        wait_event_type: Some(HOSTILE.into()),
        wait_event: Some("DataFileWrite".into()),
        query: Some(HOSTILE.into()),
        ..Sample::default()
    };
    points.push(point(&cat::FLOW_RATE, 5.0 * MIB, &[]));
    points.push(point(&cat::FLOW_POOL_HELD, 1.0, &[("pool", HOSTILE)]));
    points.push(point(&cat::FLOW_POOL_SENT, whole * 4.0 * MIB, &[("pool", HOSTILE)]));
    let event = (second % 20 == 7).then(|| Event::new(at, HOSTILE, EventKind::Log, HOSTILE, &[]));
    let stopped = [("probe", HOSTILE), ("reason", HOSTILE)];
    let gap = (second == 80).then(|| Event::new(at, "recorder", EventKind::Gap, HOSTILE, &stopped));
    let some = [("what", SOME_CONNECTIONS), ("why", HOSTILE)];
    let absent = (second == 0).then(|| Event::new(at, "host", EventKind::Absent, HOSTILE, &some));
    let events = event.into_iter().chain(decision(second)).chain(gap).chain(absent).collect();
    Batch { points, samples: (0..3).map(sample).collect(), events }
}

/// What a rule did at this second: it slowed a session from the 30th to the 45th.
fn decision(second: i64) -> Option<Event> {
    let more: &[(&str, &str)] = match second {
        30 => &[("step", "began")],
        45 => &[("step", "lifted"), ("began", "30000000"), ("why", "the statement ended")],
        _ => return None,
    };
    let mut fields =
        vec![("rule", HOSTILE), ("action", "penalty"), ("session", "7"), ("user", HOSTILE), ("pool", HOSTILE)];
    fields.extend(more);
    Some(Event::new(Moment(second * 1_000_000), "proxy", EventKind::Decision, HOSTILE, &fields))
}

/// Who is held in the end.
fn flow() -> FlowState {
    let name = || HOSTILE.to_owned();
    let held = FlowHeld {
        session: 8,
        user: name(),
        database: name(),
        application: name(),
        client: "10.0.0.7:5000".to_owned(),
        pool: name(),
        rule: Some(name()),
        state: "active".to_owned(),
        for_s: 12.0,
        sent_bytes: 300 << 20,
        rate_bps: Some(4.0 * MIB),
        allowed_bps: Some(5.0 * MIB),
        bound_by: "low_priority_bandwidth".to_owned(),
    };
    let pool =
        FlowPool { name: name(), priority: "low".to_owned(), weight: 3, sessions: 2, held: 1, ..FlowPool::default() };
    let rule =
        FlowRule { name: name(), action: "penalty".to_owned(), conditions: name(), began: 1, ..FlowRule::default() };
    FlowState {
        at: Moment(89_000_000),
        by: name(),
        rate_bps: Some(5.0 * MIB),
        rate_by: "low_priority_bandwidth".to_owned(),
        waiting: 1,
        queueing_us: Some(1_200.0),
        pools: vec![pool],
        rules: vec![rule],
        held: vec![held],
        held_in_all: 1,
    }
}

pub fn hostile(dir: &Path) {
    let (mut writer, registry) = begun(dir, HOSTILE);
    for at in (0..90).filter(|at| !(50..60).contains(at)) {
        writer.write(&second(at, &registry)).unwrap();
        writer.tick(Moment(at * 1_000_000)).unwrap();
    }
    writer.close().unwrap();
    write_flow(dir, &flow()).unwrap();
}

fn begun(dir: &Path, word: &str) -> (Writer, Arc<Registry>) {
    begun_of(dir, meta(word))
}

fn begun_of(dir: &Path, meta: Meta) -> (Writer, Arc<Registry>) {
    let registry = Arc::new(Registry::new());
    let options = Options { free_floor_bytes: 0, ..Options::default() };
    (Writer::create(dir, meta, Arc::clone(&registry), options).unwrap(), registry)
}

/// Shards of a cluster, with the dirty share of their caches and their clients' connections. A set's name ends at a slash.
const SHARDS: [(&str, f64, f64); 2] = [("<img src=x onerror=alert('ran')>", 0.03, 400.0), ("rs1", 0.05, 900.0)];

/// The member of a shard that is primary.
fn shard(set: &str) -> Target {
    let settings = [("sharding.clusterRole", "shardsvr"), ("replication.replSetName", set)];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Target { name: format!("{set}-a:27018"), kind: "mongodb".into(), settings, ..Target::default() }
}

/// A minute of a cluster of two shards.
pub fn shards(dir: &Path) {
    let mut meta = meta("loop0");
    meta.targets = SHARDS.map(|(set, _, _)| shard(set)).into();
    let (mut writer, registry) = begun_of(dir, meta);
    for second in 0..60 {
        let at = Moment(second * 1_000_000);
        let points = SHARDS.iter().flat_map(|(set, dirty, connections)| {
            let target = shard(set).name;
            let gauges = [
                (cat::WT_CACHE_MAX, 1024.0 * MIB),
                (cat::WT_CACHE_DIRTY, dirty * 1024.0 * MIB),
                (cat::MONGO_CONNECTIONS, *connections),
                (cat::MONGO_STATE, 1.0),
            ];
            let series = |def: &cat::Def| registry.number(def, &[("target", &target)]).unwrap();
            gauges.map(|(def, value)| Point { at, series: series(&def), epoch: Epoch(1), value, as_of: None })
        });
        writer.write(&Batch { points: points.collect(), ..Batch::default() }).unwrap();
        writer.tick(at).unwrap();
    }
    writer.close().unwrap();
}

/// Sessions of the recording of many.
pub const MANY: i32 = 1_000;
/// From when until when nine in ten of them wait for a lock, in seconds.
pub const LOCKED: std::ops::Range<i64> = 30..40;

/// A minute of a thousand sessions, looked at once a second.
pub fn many(dir: &Path) {
    let (mut writer, registry) = begun(dir, "loop0");
    let words: Vec<Text> = (0..MANY).map(|number| format!("service {number:04}").into()).collect();
    let statements: Vec<Text> =
        (0..80).map(|number| format!("UPDATE t{number} SET a = $1 WHERE id = $2").into()).collect();
    let shared = |text: &str| Some(Text::from(text));
    let waits = [
        (shared("IO"), shared("DataFileRead"), shared("io_schedule")),
        (shared("LWLock"), shared("WALWrite"), shared("futex_wait_queue")),
        (None, None, None),
        (shared("Lock"), shared("transactionid"), shared("do_epoll_wait")),
    ];
    let (target, state): (Text, Text) = ("primary".into(), "active".into());
    for second in 0..60 {
        let sample = |pid: i32| {
            let wait = match pid {
                _ if LOCKED.contains(&second) && pid % 10 != 0 => 3,
                0..500 => 0,
                500..800 => 1,
                _ => 2,
            };
            let (class, event, kernel): &(Option<Text>, Option<Text>, Option<Text>) = &waits[wait];
            Sample {
                at: Moment(second * 1_000_000),
                target: Arc::clone(&target),
                pid,
                state: Some(Arc::clone(&state)),
                user: Some(Arc::clone(&words[pid as usize % 40])),
                application: Some(Arc::clone(&words[pid as usize])),
                query: Some(Arc::clone(&statements[pid as usize % 80])),
                wait_event_type: class.clone(),
                wait_event: event.clone(),
                kernel_wait: kernel.clone(),
                ..Sample::default()
            }
        };
        let points = quiet(second as f64, &registry);
        writer.write(&Batch { points, samples: (0..MANY).map(sample).collect(), ..Batch::default() }).unwrap();
        writer.tick(Moment(second * 1_000_000)).unwrap();
    }
    writer.close().unwrap();
}

/// When the day's one peak was read, in seconds, and what was read then.
pub const PEAK: (f64, f64) = (50_005.0, 240.0 * MIB);
/// What all sessions run for a minute of the day only.
pub const ONCE: &str = "SELECT once_a_day()";

/// A day of ten sessions, looked at and read every ten seconds, and a single reading between two of these.
pub fn day(dir: &Path) {
    let (mut writer, registry) = begun(dir, "loop0");
    let texts = ["primary", "active", "IO", "WALSync", "UPDATE t SET a = $1", ONCE].map(Text::from);
    let [target, state, class, event, usual, once] = &texts;
    for minute in 0..1_440 {
        let mut batch = Batch::default();
        for at_s in (0..6).map(|look| f64::from(minute * 60 + look * 10)) {
            batch.points.extend(quiet(at_s, &registry));
            let at = Moment::from_seconds(at_s);
            batch.samples.extend((0..10).map(|pid| Sample {
                at,
                target: Arc::clone(target),
                pid,
                state: Some(Arc::clone(state)),
                wait_event_type: (pid < 7).then(|| Arc::clone(class)),
                wait_event: (pid < 7).then(|| Arc::clone(event)),
                query: Some(Arc::clone(if (49_930.0..=49_990.0).contains(&at_s) { once } else { usual })),
                ..Sample::default()
            }));
            if at_s == 50_000.0 {
                let both = [(cat::BDI_RECLAIMABLE, PEAK.1), (cat::BDI_WRITEBACK, 0.0)];
                batch.points.extend(both.map(|(def, value)| point(&registry, &def, PEAK.0, value, &[("dev", "7:0")])));
            }
        }
        let last = batch.samples.last().unwrap().at;
        writer.write(&batch).unwrap();
        writer.tick(last).unwrap();
    }
    writer.close().unwrap();
}

fn point(registry: &Registry, def: &cat::Def, at_s: f64, value: f64, labels: &[(&'static str, &str)]) -> Point {
    let series = registry.number(def, labels).unwrap();
    Point { at: Moment::from_seconds(at_s), series, epoch: Epoch(1), value, as_of: None }
}

/// A device and a server that have little to do.
fn quiet(at_s: f64, registry: &Registry) -> Vec<Point> {
    // Wavers without repeating itself.
    let noise = (at_s * 0.618).fract();
    let gauges = [
        (cat::BDI_RECLAIMABLE, (40.0 + 8.0 * noise) * MIB),
        (cat::BDI_WRITEBACK, 0.0),
        (cat::BDI_DIRTY_THRESH, 256.0 * MIB),
        (cat::BDI_GLOBAL_DIRTY_THRESH, 4_096.0 * MIB),
        (cat::BDI_BACKGROUND_THRESH, 2_048.0 * MIB),
        (cat::BDI_DIRTIED, (at_s * 3.0 + noise) * MIB),
        (cat::BDI_WRITTEN, at_s * 3.0 * MIB),
        (cat::DISK_WRITES, at_s * 90.0 + noise),
    ];
    let mut points: Vec<Point> =
        gauges.iter().map(|(def, value)| point(registry, def, at_s, *value, &[("dev", "7:0")])).collect();
    points.push(point(registry, &cat::PG_PROBE_RESPONSE, at_s, 900.0, &[("target", "primary")]));
    let database = [("target", "primary"), ("database", "app")];
    points.push(point(registry, &cat::PG_XACT_COMMIT, at_s, at_s * 300.0, &database));
    points
}
