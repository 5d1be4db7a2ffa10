//! What a flight recorder tells in few samples: the member's state, parameters below a role, what it leaves out, and figures
//! that each release has in a place of its own.
#![allow(clippy::unwrap_used)]

use backwater_model::{EventKind, Moment, Window};
use backwater_probe::mongodb::Flight;
use ftdc::Builder;
use ftdc::encode::{Encoder, metadata, metadata_delta};

const BEGIN_MS: i64 = 1_700_000_000_000;

fn at(second: i64) -> Moment {
    Moment((BEGIN_MS + second * 1_000) * 1_000)
}

/// A recorder with these documents behind its metadata, then a sample a second with what `fill` puts into it, ten in a chunk.
fn recorded(told: &[Vec<u8>], seconds: i64, fill: &dyn Fn(i64, Builder) -> Builder) -> (tempfile::TempDir, Flight) {
    let dir = tempfile::tempdir().unwrap();
    let about = Builder::new().document("buildInfo", |b| b.string("version", "8.0.4")).finish();
    let mut bytes = metadata(BEGIN_MS, &about);
    bytes.extend(told.concat());
    let mut encoder = Encoder::new(9);
    for second in 0..seconds {
        let at_ms = BEGIN_MS + second * 1_000;
        let sample = fill(second, Builder::new().date("start", at_ms)).finish();
        bytes.extend(encoder.add(at_ms, &sample).unwrap().unwrap_or_default());
    }
    bytes.extend(encoder.finish().unwrap_or_default());
    std::fs::write(dir.path().join("metrics.2023-11-14T22-13-20Z-00000"), bytes).unwrap();
    let flight = Flight::open(dir.path()).unwrap();
    (dir, flight)
}

fn whole(flight: &Flight) -> Window {
    let (from, to) = flight.span().unwrap();
    flight.window(from, to).unwrap()
}

#[test]
fn another_state_in_the_replica_set_is_told_where_it_changes() {
    let changes = |state: &dyn Fn(i64) -> i32| {
        let (_dir, flight) = recorded(&[], 30, &|second, sample| {
            let status = |s: Builder| s.int64("pid", 7).int64("uptimeMillis", second * 1_000 + 500);
            sample.document("serverStatus", status).document("replSetGetStatus", |r| r.int32("myState", state(second)))
        });
        let window = whole(&flight);
        let events = window.events_of(EventKind::Restart);
        events.map(|event| (event.at, event.fields["change"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(changes(&|_| 1), []);
    // Within a chunk, and from one to the next.
    let told = changes(&|second| if (5..20).contains(&second) { 2 } else { 1 });
    assert_eq!(told, [(at(5), "stepped down".to_owned()), (at(20), "became primary".to_owned())]);
}

#[test]
fn a_change_of_one_parameter_below_a_role_leaves_the_others_as_they_were() {
    let told = |at_s: i64, number: i32, parameters: &[(&str, i32)]| {
        let all = |g: Builder| parameters.iter().fold(g, |g, (name, value)| g.int32(name, *value));
        let document = Builder::new().document("shard", |s| s.document("getParameter", all)).finish();
        metadata_delta(BEGIN_MS + at_s * 1_000, number, &document)
    };
    let documents =
        [told(0, 0, &[("syncdelay", 20), ("ttlMonitorSleepSecs", 60)]), told(5, 1, &[("ttlMonitorSleepSecs", 30)])];
    let (_dir, flight) = recorded(&documents, 20, &|second, sample| {
        let status = |s: Builder| s.int64("uptimeMillis", second * 1_000);
        sample.document("shard", |shard| shard.document("serverStatus", status))
    });
    let settings = &flight.meta().targets[0].settings;
    assert_eq!(settings.get("setParameter.syncdelay").map(String::as_str), Some("20"));
    let window = whole(&flight);
    let changes: Vec<&str> = window.events_of(EventKind::Setting).map(|event| event.message.as_ref()).collect();
    assert_eq!(changes, ["setParameter.ttlMonitorSleepSecs is now '30', was '60'"]);
}

#[test]
fn a_primary_whose_recorder_leaves_out_the_ends_of_its_oplog_says_so() {
    let warnings = |states: &dyn Fn(i64) -> i32, ends: bool| {
        let (_dir, flight) = recorded(&[], 30, &|second, sample| {
            let oplog = |o: Builder| o.timestamp("latestOptime", 1_000, 1).timestamp("earliestOptime", 10, 1);
            let status = |s: Builder| {
                let s = s.int64("uptimeMillis", second * 1_000);
                if ends { s.document("oplog", oplog) } else { s }
            };
            sample
                .document("serverStatus", status)
                .document("replSetGetStatus", |r| r.int32("myState", states(second)))
                .document("local.oplog.rs.stats", |o| o.int64("size", 900).int64("maxSize", 1_000))
        });
        flight.warnings()
    };
    let told = ["the ends of the oplog are not seen: the recorder of this release does not tell them"];
    assert_eq!(warnings(&|_| 1, false), told);
    assert_eq!(warnings(&|second| if second < 25 { 2 } else { 1 }, false), told, "one that became primary");
    assert_eq!(warnings(&|_| 2, false), [""; 0], "only a primary's oplog is the one that the others copy");
    assert_eq!(warnings(&|_| 1, true), [""; 0]);
}
