//! Charts beside those of queues: the load as clients see it, devices, links, processors, heartbeats.

use super::axis::Lane;
use super::document::CurveRole::{HardLimit, Line};
use super::path::device;
use super::shelf::Shelf;
use super::sources::{gauge, quotient, rate};
use backwater_diagnose::throughput;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Source, Unit};
use std::collections::BTreeSet;

/// The load's charts, before those of queues.
pub(super) fn load(shelf: &mut Shelf<'_>) {
    const GROUP: &str = "Load";
    let (window, axis) = (shelf.window, shelf.axis);
    let from_load = window.track(cat::LOAD_COMPLETED.name, &[]).is_some();
    let word = if from_load { "transactions a second" } else { "commits a second" };
    let mut lane = Lane::unknown(&axis);
    for (second, value) in throughput(window) {
        let at = backwater_model::Moment::from_seconds(window.from.seconds() + second + 0.5);
        axis.piece(at).into_iter().for_each(|piece| lane.add(piece, value));
    }
    let done = shelf.keep(word, Unit::PerSecond, lane);
    let failed = kept(shelf, "failed a second", &cat::LOAD_FAILED, &[]);
    shelf.chart(GROUP, "Throughput", Unit::PerSecond, &[(done, Line), (failed, Line)]);
    let completed = window.track(cat::LOAD_COMPLETED.name, &[]);
    let mean = |def: &Def| quotient(window.track(def.name, &[]), completed, &axis, 1.0);
    let (intended, actual) = (mean(&cat::LOAD_LATENCY_US), mean(&cat::LOAD_SERVICE_US));
    let intended = shelf.keep("mean, from the intended start", Unit::Microseconds, intended);
    let actual = shelf.keep("mean, from the actual start", Unit::Microseconds, actual);
    shelf.chart(GROUP, "Latency of transactions", Unit::Microseconds, &[(intended, Line), (actual, Line)]);
    let waiting = kept(shelf, "begun, not yet answered", &cat::LOAD_WAITING, &[]);
    shelf.chart(GROUP, "Transactions waiting", Unit::Count, &[(waiting, Line)]);
    for target in &window.meta.targets {
        let of = [("target", target.name.as_str())];
        let heartbeat = kept(shelf, "time to answer", &cat::PG_HEARTBEAT, &of);
        let missed = kept(shelf, "missed a second", &cat::PG_HEARTBEATS_MISSED, &of);
        let title = format!("Heartbeat of {}", target.name);
        shelf.chart(GROUP, &title, Unit::Microseconds, &[(heartbeat, Line)]);
        // A line at nothing says nothing.
        if shelf.most(missed).is_some_and(|most| most > 0.0) {
            shelf.chart(GROUP, &format!("{title}: missed"), Unit::PerSecond, &[(missed, Line)]);
        }
    }
}

/// The group of what holds work back.
pub(super) const FLOW: &str = "Flow";

/// What holds work back: the rate of the low class and the queue it was found from, who is held, what is sent.
pub(super) fn flow(shelf: &mut Shelf<'_>) {
    let rate = kept(shelf, "all low-priority sessions may send", &cat::FLOW_RATE, &[]);
    let pools = labels(shelf, &cat::FLOW_POOL_HELD, "pool");
    let each = |shelf: &mut Shelf<'_>, what: &str, def: &Def, role| -> Vec<_> {
        pools.iter().map(|pool| (kept(shelf, &format!("{what} {pool}"), def, &[("pool", pool)]), role)).collect()
    };
    let mut sent = each(shelf, "sent to clients of pool", &cat::FLOW_POOL_SENT, Line);
    sent.push((rate, HardLimit));
    sent.extend(each(shelf, "bandwidth of pool", &cat::FLOW_POOL_RATE, HardLimit));
    shelf.chart(FLOW, "What the low class may send, and what is sent", Unit::BytesPerSecond, &sent);
    let mut held = each(shelf, "held, of pool", &cat::FLOW_POOL_HELD, Line);
    held.push((kept(shelf, "held in all", &cat::FLOW_HELD, &[]), Line));
    held.push((kept(shelf, "wait for some of the rate", &cat::FLOW_WAITING, &[]), Line));
    shelf.chart(FLOW, "Sessions held", Unit::Count, &held);
    let queueing = kept(shelf, "queue on the way to clients", &cat::FLOW_QUEUEING, &[]);
    shelf.chart(FLOW, "The queue that the rate is found from", Unit::Microseconds, &[(queueing, Line)]);
    let waiting = each(shelf, "waiting, of pool", &cat::FLOW_POOL_WAITING, Line);
    if waiting.iter().any(|(series, _)| shelf.most(*series).is_some_and(|most| most > 0.0)) {
        shelf.chart(FLOW, "Statements that wait for their turn", Unit::Count, &waiting);
    }
}

/// What queues stand on: devices, links, the host.
pub(super) fn resources(shelf: &mut Shelf<'_>) {
    for dev in labels(shelf, &cat::DISK_WRITES, "dev") {
        disk(shelf, &dev);
    }
    let links: BTreeSet<(String, String)> = shelf
        .window
        .tracks(cat::NET_SENT_BYTES.name, &[])
        .filter_map(|track| {
            let labels = &track.series.labels;
            Some((labels.get("target")?.to_owned(), labels.get("if")?.to_owned()))
        })
        .collect();
    for (target, name) in links {
        link(shelf, &target, &name);
    }
    host(shelf);
}

/// The values of a label over all series of a definition.
pub(super) fn labels(shelf: &Shelf<'_>, def: &Def, label: &str) -> BTreeSet<String> {
    let tracks = shelf.window.tracks(def.name, &[]).filter(|track| !track.points.is_empty());
    tracks.filter_map(|track| track.series.labels.get(label).map(str::to_owned)).collect()
}

/// A series as it is: a counter's rate, or a gauge's level.
pub(super) fn kept(shelf: &mut Shelf<'_>, label: &str, def: &Def, labels: &[(&'static str, &str)]) -> Option<usize> {
    let source = Source::series(def.name, labels);
    let (window, axis) = (shelf.window, shelf.axis);
    if def.kind == backwater_model::Kind::Gauge {
        shelf.keep(label, def.unit, gauge(&source, window, &axis))
    } else {
        shelf.keep(label, def.unit.per_second(), rate(&source, window, &axis))
    }
}

/// The caps that control groups set on a device, the narrowest where there are several.
fn cap(shelf: &mut Shelf<'_>, def: &Def, dev: &str) -> Option<usize> {
    let groups: Vec<Source> = shelf
        .window
        .tracks(def.name, &[("dev", dev), ("op", "write")])
        .filter_map(|track| track.series.labels.get("cgroup"))
        .map(|group| Source::series(def.name, &[("cgroup", group), ("dev", dev), ("op", "write")]))
        .collect();
    let lane = gauge(&Source::Least(groups), shelf.window, &shelf.axis);
    shelf.keep("cap on writes", def.unit, lane)
}

fn disk(shelf: &mut Shelf<'_>, dev: &str) {
    let (window, axis) = (shelf.window, shelf.axis);
    let of = [("dev", dev)];
    let name = device(&window.meta, dev);
    let group = format!("Device {name}");
    let writes = kept(shelf, "writes", &cat::DISK_WRITES, &of);
    let reads = kept(shelf, "reads", &cat::DISK_READS, &of);
    let capped = cap(shelf, &cat::CGROUP_IOPS_LIMIT, dev);
    let declared = kept(shelf, "declared rating", &cat::VOLUME_IOPS, &of);
    let curves = [(writes, Line), (reads, Line), (capped, HardLimit), (declared, HardLimit)];
    shelf.chart(&group, &format!("Operations of {name}"), Unit::PerSecond, &curves);
    let written = kept(shelf, "written", &cat::DISK_WRITTEN_BYTES, &of);
    let read = kept(shelf, "read", &cat::DISK_READ_BYTES, &of);
    let capped = cap(shelf, &cat::CGROUP_BPS_LIMIT, dev);
    let declared = kept(shelf, "declared rating", &cat::VOLUME_BPS, &of);
    let curves = [(written, Line), (read, Line), (capped, HardLimit), (declared, HardLimit)];
    shelf.chart(&group, &format!("Bytes of {name}"), Unit::BytesPerSecond, &curves);
    let track = |def: &Def| window.track(def.name, &of);
    let write = quotient(track(&cat::DISK_WRITE_MS), track(&cat::DISK_WRITES), &axis, 1.0);
    let sync = quotient(track(&cat::DISK_FLUSH_MS), track(&cat::DISK_FLUSHES), &axis, 1.0);
    let write = shelf.keep("a write", Unit::Milliseconds, write);
    let sync = shelf.keep("a flush", Unit::Milliseconds, sync);
    shelf.chart(&group, &format!("Time of an operation on {name}"), Unit::Milliseconds, &[(write, Line), (sync, Line)]);
    let busy = rate(&Source::Sum(vec![(cat::DISK_BUSY_MS.name, vec![("dev", dev.to_owned())], 1e-3)]), window, &axis);
    let busy = shelf.keep("busy", Unit::Ratio, busy);
    shelf.chart(&group, &format!("Share of time in which {name} is busy"), Unit::Ratio, &[(busy, Line)]);
}

fn link(shelf: &mut Shelf<'_>, target: &str, name: &str) {
    let of = [("target", target), ("if", name)];
    let group = format!("Link {name} of {target}");
    let sent = kept(shelf, "sent", &cat::NET_SENT_BYTES, &of);
    let received = kept(shelf, "received", &cat::NET_RECEIVED_BYTES, &of);
    let speed = kept(shelf, "link speed", &cat::NET_SPEED, &of);
    let shaper = kept(shelf, "shaper", &cat::NET_SHAPER, &of);
    let curves = [(sent, Line), (received, Line), (shaper, HardLimit), (speed, HardLimit)];
    shelf.chart(&group, &format!("Bytes over {name} of {target}"), Unit::BytesPerSecond, &curves);
    let backlog = kept(shelf, "waits to be sent", &cat::NET_BACKLOG, &of);
    if shelf.most(backlog).is_some_and(|most| most > 0.0) {
        shelf.chart(&group, &format!("Waiting for {name} of {target}"), Unit::Bytes, &[(backlog, Line)]);
    }
}

fn host(shelf: &mut Shelf<'_>) {
    const GROUP: &str = "Host";
    let cpu = [
        ("user", cat::CPU_USER),
        ("system", cat::CPU_SYSTEM),
        ("waiting for I/O", cat::CPU_IOWAIT),
        ("taken by the hypervisor", cat::CPU_STEAL),
        ("idle", cat::CPU_IDLE),
    ];
    let curves: Vec<_> = cpu.iter().map(|(label, def)| (processors(shelf, label, def), Line)).collect();
    shelf.chart(GROUP, "Processors", Unit::Count, &curves);
    let host = [("cgroup", "host")];
    let pressure = [("I/O", cat::PSI_IO_SOME), ("processor", cat::PSI_CPU_SOME), ("memory", cat::PSI_MEMORY_SOME)];
    let curves: Vec<_> = pressure.iter().map(|(label, def)| (share(shelf, label, def, &host), Line)).collect();
    shelf.chart(GROUP, "Share of time in which some task waits (PSI)", Unit::Ratio, &curves);
    let available = kept(shelf, "available", &cat::MEM_AVAILABLE, &[]);
    shelf.chart(GROUP, "Memory", Unit::Bytes, &[(available, Line)]);
}

/// Seconds of processor time a second: processors.
fn processors(shelf: &mut Shelf<'_>, label: &str, def: &Def) -> Option<usize> {
    let lane = rate(&Source::series(def.name, &[]), shelf.window, &shelf.axis);
    shelf.keep(label, Unit::Count, lane)
}

/// Microseconds a second: a share.
fn share(shelf: &mut Shelf<'_>, label: &str, def: &Def, labels: &[(&'static str, &str)]) -> Option<usize> {
    let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let lane = rate(&Source::Sum(vec![(def.name, labels, 1e-6)]), shelf.window, &shelf.axis);
    shelf.keep(label, Unit::Ratio, lane)
}
