//! A device whose dirty pages climb to their limit, and sessions that wait for it, second by second: what the tests of the
//! live page and of the terminal view look at. Other crates' tests use it too.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use backwater_model::catalogue as cat;
use backwater_model::{Batch, ClockAnchor, Device, Epoch, Meta, Moment, Point, Registry, Role, Sample, Target};

pub const MIB: f64 = 1_048_576.0;

/// One server on one device, which has this name.
pub fn meta(device_name: &str) -> Meta {
    let target = Target {
        name: "primary".to_owned(),
        kind: "postgres".to_owned(),
        version_num: Some(180_000),
        data_device: Some("7:0".to_owned()),
        ..Target::default()
    };
    let roles = vec![(Role::Data, "primary".to_owned())];
    let device = Device { dev: "7:0".to_owned(), name: device_name.to_owned(), roles, ..Device::default() };
    let anchor = ClockAnchor { boot: Moment(0), unix_us: 1_795_262_400_000_000 };
    Meta { anchors: vec![anchor], targets: vec![target], devices: vec![device], ..Meta::default() }
}

/// One second of it; its sessions run this query.
pub fn second(second: i64, registry: &Registry, query: &str) -> Batch {
    let at = Moment(second * 1_000_000);
    let whole = second as f64;
    let dev = [("dev", "7:0")];
    let gauges = [
        (cat::BDI_RECLAIMABLE, (whole * 4.0).min(200.0) * MIB),
        (cat::BDI_WRITEBACK, 6.0 * MIB),
        (cat::BDI_DIRTY_THRESH, 256.0 * MIB),
        (cat::BDI_GLOBAL_DIRTY_THRESH, 4_096.0 * MIB),
        (cat::BDI_BACKGROUND_THRESH, 2_048.0 * MIB),
        (cat::BDI_DIRTIED, whole * 18.0 * MIB),
        (cat::BDI_WRITTEN, whole * 14.0 * MIB),
    ];
    let point = |(def, value): (cat::Def, f64)| Point {
        at,
        series: registry.number(&def, &dev).unwrap(),
        epoch: Epoch(1),
        value,
        as_of: None,
    };
    let sample = |pid: i32| Sample {
        at,
        target: "primary".into(),
        pid,
        state: Some("active".into()),
        wait_event_type: Some("IO".into()),
        wait_event: Some("DataFileWrite".into()),
        query: Some(query.into()),
        ..Sample::default()
    };
    let samples = (0..3).map(sample).collect();
    Batch { points: gauges.into_iter().map(point).collect(), samples, events: Vec::new() }
}
