//! The queues and stages on the way of WAL to one standby, with the shares of time in which each stage was busy, blocked or
//! starved. A backlog stands before the stage that is to blame only as long as the stages before it are not blocked by
//! it: sockets hold a few megabytes, so a slow standby's backlog stands on the primary.

use super::tcp::STANDING;
use super::{CeilingKind, Doing, Standby, activity, links};
use crate::grid::Lane;
use crate::scene::Scene;
use backwater_model::{Ceiling, CeilingSource, Path, Queue, Shares, Stage, Unit};
use std::ops::Range;

/// The stages between the primary's flush and the standby's: who of them holds the stream up?
pub(crate) fn stream(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Path {
    let hops = &standby.hops;
    let queue = |name: String, level: &Lane, inflow: &Lane, outflow: &Lane| queue(name, level, inflow, outflow, range);
    let sent = &hops.sent_rate;
    let arrived = hops.received_rate.or(&standby.tcp.acked_lane);
    let queues = vec![
        queue(standby.queue("send"), &hops.send, &hops.flushed_rate, sent),
        queue(format!("host.tcp@{}", standby.name), &standby.tcp.notsent, sent, &standby.tcp.acked_lane),
        queue(standby.queue("standby_write"), &hops.in_flight, sent, &arrived),
    ];
    Path {
        queues,
        stages: vec![walsender(scene, standby, range), tcp(scene, standby, range), walreceiver(scene, standby, range)],
    }
}

/// The whole way, from the insert to the replay.
pub(crate) fn whole(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Path {
    let hops = &standby.hops;
    let Path { mut queues, mut stages } = stream(scene, standby, range);
    let unknown = scene.grid.unknown();
    queues.push(queue("pg.wal.buffers".to_owned(), &hops.buffers, &hops.generated, &unknown, range));
    queues.push(queue("pg.wal.local_flush".to_owned(), &hops.local_flush, &hops.generated, &hops.flushed_rate, range));
    queues.push(queue(standby.queue("standby_flush"), &hops.standby_flush, &unknown, &hops.received_rate, range));
    queues.push(queue(standby.queue("standby_replay"), &hops.replay, &hops.received_rate, &hops.replayed_rate, range));
    stages.push(wal_device(scene, standby, range));
    if let Some(device) = standby_device(scene, standby, range) {
        // What the walreceiver has written stands there until it is flushed.
        let receives = stages.iter_mut().filter(|stage| stage.name.starts_with("walreceiver@"));
        receives.for_each(|stage| (stage.to, stage.resource) = (device.from.clone(), None));
        stages.push(device);
    }
    let data = data_device(scene, standby, range);
    stages.push(startup(scene, standby, data.as_ref().map(|(queue, _)| queue), range));
    if let Some((queue, device)) = data {
        queues.push(queue);
        stages.push(device);
    }
    Path { queues, stages }
}

fn queue(name: String, level: &Lane, inflow: &Lane, outflow: &Lane, range: &Range<usize>) -> Queue {
    Queue {
        level: level.mean(range),
        inflow_per_s: inflow.mean(range),
        outflow_per_s: outflow.mean(range),
        ..Queue::unknown(name, Unit::Bytes)
    }
}

/// A wait of this share of the time is what holds a stage up.
const MOSTLY: f64 = 0.5;

/// Share of the known seconds in which next to nothing stood.
fn empty(level: &Lane, range: &Range<usize>) -> Option<f64> {
    let values = level.values(range);
    let none = values.iter().filter(|bytes| **bytes < STANDING).count();
    (!values.is_empty()).then(|| none as f64 / values.len() as f64)
}

fn stage(name: String, from: String, to: Option<String>, shares: Shares, rate: Option<f64>) -> Stage {
    Stage { name, from: Some(from), to, shares, rate_per_s: rate, ceiling: None, resource: None }
}

fn walsender(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Stage {
    let idle = empty(&standby.hops.send, range);
    let blocked = match standby.tcp.shares(range) {
        Some(tcp) => Some(tcp.standing),
        None => walsender_activity(scene, standby, range)
            .and_then(|seen| seen.share(|doing| *doing == Doing::Client))
            .filter(|share| *share >= 0.5),
    };
    let starved = idle.zip(blocked).map(|(idle, blocked): (f64, f64)| idle.min(1.0 - blocked)).or(idle);
    let busy = blocked.zip(starved).map(|(blocked, starved)| (1.0 - blocked - starved).max(0.0));
    let to = format!("host.tcp@{}", standby.name);
    let shares = Shares { busy, blocked, starved };
    stage(
        format!("walsender@{}", standby.name),
        standby.queue("send"),
        Some(to),
        shares,
        standby.hops.sent_rate.mean(range),
    )
}

/// What the standby's walsender did, where it is sampled.
pub(crate) fn walsender_activity(
    scene: &Scene<'_>,
    standby: &Standby,
    range: &Range<usize>,
) -> Option<super::Activity> {
    let primary = standby.primary.as_deref()?;
    let labels = [("target", primary), ("standby", standby.name.as_str())];
    let pid = scene.window.track(backwater_model::catalogue::PG_REPL_PID.name, &labels);
    let pids: Vec<i64> = pid?.points.iter().map(|point| point.value as i64).collect();
    Some(activity(scene.window, &scene.grid, primary, "walsender", Some(&pids), range))
}

fn tcp(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Stage {
    let shares = standby.tcp.shares(range).map(|tcp| Shares {
        busy: Some((tcp.busy - tcp.rwnd).max(0.0)),
        blocked: Some(tcp.rwnd),
        starved: Some(1.0 - tcp.busy),
    });
    let mut stage = stage(
        format!("tcp@{}", standby.name),
        format!("host.tcp@{}", standby.name),
        Some(standby.queue("standby_write")),
        shares.unwrap_or_default(),
        standby.carried(range),
    );
    let links = links(scene, &owners(standby));
    // The interface that carries most of it; the stream can be no faster than its ceiling.
    let carries = links.iter().filter(|link| link.carries(standby, range));
    if let Some(link) = carries.min_by(|a, b| {
        a.ceiling.median(range).unwrap_or(f64::MAX).total_cmp(&b.ceiling.median(range).unwrap_or(f64::MAX))
    }) {
        let source = if link.kind == CeilingKind::Shaper { CeilingSource::Configured } else { CeilingSource::Declared };
        let ceiling = link.ceiling.median(range);
        stage.ceiling = ceiling.map(|per_second| Ceiling { per_second, unit: Unit::BytesPerSecond, source });
        stage.resource = Some(format!("link {}", link.name));
    }
    stage
}

/// In whose namespaces interfaces may carry this stream.
pub(crate) fn owners(standby: &Standby) -> Vec<&str> {
    let peer = standby.peer.as_ref().map(|peer| peer.target.as_str());
    standby.primary.as_deref().into_iter().chain(peer).collect()
}

/// The walreceiver writes and syncs: what holds it up is its device. Without a look at it, the peer's window tells: while
/// the connection waits for that, the walreceiver does not read.
fn walreceiver(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Stage {
    let seen =
        standby.peer.as_ref().map(|peer| activity(scene.window, &scene.grid, &peer.target, "walreceiver", None, range));
    let idle = seen.and_then(|seen| seen.share(|doing| *doing == Doing::Idle));
    let reading = standby.tcp.shares(range).map(|tcp| 1.0 - tcp.rwnd);
    let starved = idle.or(reading);
    let shares = Shares { busy: starved.map(|share| 1.0 - share), blocked: starved.map(|_| 0.0), starved };
    let mut stage = stage(
        format!("walreceiver@{}", standby.name),
        standby.queue("standby_write"),
        Some(standby.queue("standby_replay")),
        shares,
        standby.hops.received_rate.mean(range),
    );
    stage.resource = standby.peer.as_ref().and_then(|peer| peer.wal_device.as_ref()).map(|dev| format!("disk {dev}"));
    stage
}

/// Replay. What it waits for data files is its own time, unless their device, with the queue before it, is a stage as well: then
/// that holds it.
fn startup(scene: &Scene<'_>, standby: &Standby, disk: Option<&Queue>, range: &Range<usize>) -> Stage {
    let seen =
        standby.peer.as_ref().map(|peer| activity(scene.window, &scene.grid, &peer.target, "startup", None, range));
    let share = |test: &dyn Fn(&Doing) -> bool| seen.as_ref().and_then(|seen| seen.share(test));
    let stopped = share(&|doing| matches!(doing, Doing::Paused | Doing::Conflict(_) | Doing::Delayed));
    let (runs, waits) = (share(&|doing| *doing == Doing::Running), share(&|doing| *doing == Doing::Data));
    let both = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
    let (busy, blocked) = if disk.is_some() { (runs, both(stopped, waits)) } else { (both(runs, waits), stopped) };
    // Whom a query or a command holds up is not held up by the disk.
    let to = disk.filter(|_| waits >= Some(MOSTLY)).map(|disk| disk.name.clone());
    let starved = share(&|doing| *doing == Doing::Idle).or(empty(&standby.hops.replay, range));
    let rate = standby.hops.replayed_rate.mean(range);
    let shares = Shares { busy, blocked, starved };
    stage(format!("startup@{}", standby.name), standby.queue("standby_replay"), to, shares, rate)
}

/// The device that the primary's WAL is flushed to.
fn wal_device(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Stage {
    let target = standby.primary.as_deref().and_then(|name| super::known(scene.window, name));
    let dev = target.and_then(|target| target.wal_device.clone().or_else(|| target.data_device.clone()));
    let between = ("pg.wal.local_flush".to_owned(), standby.queue("send"));
    let (level, rate) = (&standby.hops.local_flush, &standby.hops.flushed_rate);
    flush(scene, standby.primary.as_deref().unwrap_or_default(), dev, between, (level, rate), range)
}

/// The device that the standby's WAL is flushed to, where the standby's own side is seen.
fn standby_device(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Option<Stage> {
    let peer = standby.peer.as_ref().filter(|peer| peer.wal_device.is_some())?;
    let between = (standby.queue("standby_flush"), standby.queue("standby_replay"));
    let lanes = (&standby.hops.standby_flush, &standby.hops.received_rate);
    Some(flush(scene, &peer.target, peer.wal_device.clone(), between, lanes, range))
}

/// The device of the standby's data files and the queue before it, where that is another than its WAL's and its readings are
/// known. It is starved while nobody waits for it.
fn data_device(scene: &Scene<'_>, standby: &Standby, range: &Range<usize>) -> Option<(Queue, Stage)> {
    let peer = standby.peer.as_ref()?;
    let (data, wal) = (peer.data_device.as_ref()?, peer.wal_device.as_ref()?);
    let whole = |dev| crate::device::whole(&scene.window.meta, dev);
    let device = scene.devices.iter().find(|device| device.dev == *data && whole(data) != whole(wal))?;
    let rate = device.reads.with(&device.writes, |reads, writes| reads + writes).mean(range)?;
    let queue = Queue {
        level: Some(device.in_flight.mean(range)?),
        outflow_per_s: Some(rate),
        ..Queue::unknown(format!("host.disk@{data}"), Unit::Count)
    };
    // Whoever waits for it is not starving it: what a ceiling holds back never reaches the device, which then is hardly busy.
    let replay = activity(scene.window, &scene.grid, &peer.target, "startup", None, range);
    let waited_for = replay.share(|doing| *doing == Doing::Data).unwrap_or(0.0);
    let busy = device.busy.mean(range)?.max(waited_for);
    let shares = Shares { busy: Some(busy), blocked: Some(0.0), starved: Some(1.0 - busy) };
    let mut stage = stage(format!("data-device@{}", peer.target), queue.name.clone(), None, shares, Some(rate));
    stage.resource = Some(format!("disk {data}"));
    Some((queue, stage))
}

/// A device to which WAL is flushed: nothing stands behind it that could block it.
fn flush(
    scene: &Scene<'_>,
    target: &str,
    dev: Option<String>,
    (from, to): (String, String),
    (level, rate): (&Lane, &Lane),
    range: &Range<usize>,
) -> Stage {
    let device = dev.as_ref().and_then(|dev| scene.devices.iter().find(|device| device.dev == *dev));
    let shares = Shares {
        busy: device.and_then(|device| device.busy.mean(range)),
        blocked: Some(0.0),
        starved: empty(level, range),
    };
    let mut stage = stage(format!("wal-device@{target}"), from, Some(to), shares, rate.mean(range));
    stage.resource = dev.map(|dev| format!("disk {dev}"));
    stage
}
