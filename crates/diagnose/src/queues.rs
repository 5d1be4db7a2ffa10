//! The queues of a system as views over series: which readings are their inflow, outflow, level and limits.

mod engine;
mod network;

use crate::device::{self, whole};
use crate::limits;
use crate::replication::replication_queues;
use backwater_model::{EventKind, Meta, Moment, QueueSpec, Role, Source, Span, Target, Unit, Window, catalogue as cat};

/// Every queue that a window knows of, from clients to disk and to standbys: whatever a finding may name is among them.
pub fn all_queues(window: &Window) -> Vec<QueueSpec> {
    let devices = device::watched(window);
    let mut list = of_host(&window.meta, &devices);
    for target in window.meta.targets.iter().filter(|target| !target.is_engine()) {
        list.extend(in_force(window, &target.name, |target| target.map(server).unwrap_or_default()));
    }
    if devices.is_empty() {
        list.push(dirty_of_host());
    }
    if window.meta.targets.iter().all(|target| target.memory_cgroup.is_none()) {
        let groups = window.tracks(cat::CGROUP_DIRTY.name, &[]);
        let groups = groups.filter_map(|track| track.series.labels.get("cgroup"));
        list.extend(groups.map(|group| dirty_of_group(&window.meta, group)));
    }
    list.extend(engine::engines(window));
    list.extend(network::network(window));
    list.extend(replication_queues(window));
    list
}

/// The queues of devices and of PostgreSQL servers, by what a recording says of itself. A queue whose series are absent reads
/// as unknown.
pub fn queues(meta: &Meta) -> Vec<QueueSpec> {
    let mut list = of_host(meta, &devices(meta));
    for target in meta.targets.iter().filter(|target| !target.is_engine()) {
        list.extend(server(target));
    }
    list
}

/// The queues of one server, with limits that follow its settings as they change. What is told within the first second was so
/// before.
fn in_force(window: &Window, name: &str, build: impl Fn(Option<&Target>) -> Vec<QueueSpec>) -> Vec<QueueSpec> {
    let mut meta = Meta {
        targets: window.meta.targets.iter().filter(|own| own.name == name).cloned().collect(),
        ..Meta::default()
    };
    let soon = window.from + Span::from_seconds(1.0);
    let mut changes = window.events_of(EventKind::Setting).filter(|event| event.source == name).peekable();
    while let Some(event) = changes.next_if(|event| event.at < soon) {
        meta.note_setting(event);
    }
    let mut list = build(meta.targets.first());
    for event in changes {
        meta.note_setting(event);
        for (known, new) in list.iter_mut().zip(build(meta.targets.first())) {
            change(&mut known.soft_limit, new.soft_limit, window.from, event.at);
            change(&mut known.hard_limit, new.hard_limit, window.from, event.at);
        }
    }
    list
}

/// From a moment on, a limit is another.
fn change(limit: &mut Source, new: Source, from: Moment, at: Moment) {
    if *limit.at(at) == new {
        return;
    }
    match limit {
        Source::Steps(steps) => steps.push((at, new)),
        one => *one = Source::Steps(vec![(from, std::mem::take(one)), (at, new)]),
    }
}

fn of_host(meta: &Meta, devices: &[String]) -> Vec<QueueSpec> {
    let mut list = Vec::new();
    for dev in devices {
        list.push(dirty(meta, dev));
        list.push(disk(meta, dev));
    }
    let groups = meta.targets.iter().filter_map(|target| target.memory_cgroup.as_deref());
    list.extend(groups.map(|group| dirty_of_group(meta, group)));
    list
}

fn devices(meta: &Meta) -> Vec<String> {
    let roles = meta.devices.iter().filter(|device| device.roles.iter().any(|(role, _)| *role != Role::Recording));
    let named = meta.targets.iter().flat_map(|target| [target.data_device.clone(), target.wal_device.clone()]);
    let mut devs: Vec<String> = roles.map(|device| device.dev.clone()).chain(named.flatten()).collect();
    devs.sort();
    devs.dedup();
    devs
}

/// One of a device's series under its own number, else the whole device's.
fn of_device(meta: &Meta, dev: &str, source: impl Fn(&[(&'static str, &str)]) -> Source) -> Source {
    Source::FirstOf(vec![source(&[("dev", dev)]), source(&[("dev", whole(meta, dev))])])
}

/// Dirty pages of a device. Where the device's own are not seen, the host's stand in: an upper bound. Whoever dirties pages is
/// paused from half-way between the background limit and the limit on (`dirty_freerun_ceiling` in mm/page-writeback.c), here and
/// wherever else pages are dirty.
fn dirty(meta: &Meta, dev: &str) -> QueueSpec {
    let series = |own: &'static str, host: &'static str| {
        Source::FirstOf(vec![of_device(meta, dev, |labels| Source::series(own, labels)), Source::series(host, &[])])
    };
    let level =
        of_device(meta, dev, |labels| Source::sum(&[cat::BDI_RECLAIMABLE.name, cat::BDI_WRITEBACK.name], labels));
    QueueSpec {
        inflow: series(cat::BDI_DIRTIED.name, cat::VM_DIRTIED.name),
        outflow: series(cat::BDI_WRITTEN.name, cat::VM_WRITTEN.name),
        level: Source::FirstOf(vec![level, Source::sum(&[cat::VM_DIRTY.name, cat::VM_WRITEBACK.name], &[])]),
        soft_limit: Source::FirstOf(vec![
            background(meta, dev),
            Source::series(cat::VM_BACKGROUND_THRESHOLD.name, &[]),
        ]),
        hard_limit: series(cat::BDI_DIRTY_THRESH.name, cat::VM_DIRTY_THRESHOLD.name),
        held_midway: true,
        ..QueueSpec::new(format!("host.dirty@{dev}"), Unit::Bytes)
    }
}

/// Dirty pages of the whole host, where no device is known.
fn dirty_of_host() -> QueueSpec {
    QueueSpec {
        inflow: Source::series(cat::VM_DIRTIED.name, &[]),
        outflow: Source::series(cat::VM_WRITTEN.name, &[]),
        level: Source::sum(&[cat::VM_DIRTY.name, cat::VM_WRITEBACK.name], &[]),
        soft_limit: Source::series(cat::VM_BACKGROUND_THRESHOLD.name, &[]),
        hard_limit: Source::series(cat::VM_DIRTY_THRESHOLD.name, &[]),
        held_midway: true,
        ..QueueSpec::new("host.dirty", Unit::Bytes)
    }
}

/// The device's share of where background writing begins: its limit × the host's background limit ÷ the host's limit, by
/// which the kernel scales both (`wb_calc_thresh` of the two in mm/page-writeback.c), as they stand at that moment.
fn background(meta: &Meta, dev: &str) -> Source {
    let scaled = |labels: &[(&'static str, &str)], host: [&'static str; 2], host_labels: &[(&'static str, &str)]| {
        let own = Source::series(cat::BDI_DIRTY_THRESH.name, labels);
        Source::Share(Box::new([own, Source::series(host[0], host_labels), Source::series(host[1], host_labels)]))
    };
    let as_device = [cat::BDI_BACKGROUND_THRESH.name, cat::BDI_GLOBAL_DIRTY_THRESH.name];
    let as_host = [cat::VM_BACKGROUND_THRESHOLD.name, cat::VM_DIRTY_THRESHOLD.name];
    Source::FirstOf(vec![
        of_device(meta, dev, |labels| scaled(labels, as_device, labels)),
        of_device(meta, dev, |labels| scaled(labels, as_host, &[])),
    ])
}

/// Dirty pages of a control group.
fn dirty_of_group(meta: &Meta, group: &str) -> QueueSpec {
    let [soft_limit, hard_limit] = limits::of_group(&meta.host, group);
    QueueSpec {
        level: Source::sum(&[cat::CGROUP_DIRTY.name, cat::CGROUP_WRITEBACK.name], &[("cgroup", group)]),
        soft_limit,
        hard_limit,
        held_midway: true,
        ..QueueSpec::new(format!("host.dirty@{group}"), Unit::Bytes)
    }
}

/// Requests in a device. A counter of arrivals does not exist: completions are what leaves.
fn disk(meta: &Meta, dev: &str) -> QueueSpec {
    QueueSpec {
        outflow: of_device(meta, dev, |labels| Source::sum(&[cat::DISK_READS.name, cat::DISK_WRITES.name], labels)),
        level: of_device(meta, dev, |labels| Source::series(cat::DISK_IN_FLIGHT.name, labels)),
        hard_limit: of_device(meta, dev, |labels| Source::series(cat::DISK_NR_REQUESTS.name, labels)),
        ..QueueSpec::new(format!("host.disk@{dev}"), Unit::Count)
    }
}

fn server(target: &Target) -> Vec<QueueSpec> {
    let of = [("target", target.name.as_str())];
    let bytes = |name: &str| target.settings.get(name).and_then(|text| text.parse::<backwater_model::Bytes>().ok());
    let fixed = |bytes: Option<f64>| bytes.map_or(Source::Unknown, Source::Fixed);
    let between = |name: &str, more: &'static str, less: &'static str| QueueSpec {
        inflow: Source::series(more, &of),
        outflow: Source::series(less, &of),
        level: Source::difference(more, less, &of),
        ..QueueSpec::new(name, Unit::Bytes)
    };
    let share: f64 =
        target.settings.get("checkpoint_completion_target").and_then(|text| text.parse().ok()).unwrap_or(0.9);
    // The distance at which WAL forces a checkpoint: CalculateCheckpointSegments in PostgreSQL's xlog.c.
    let forced = bytes("max_wal_size").map(|size| size.0 as f64 / (1.0 + share));
    let waiting = [("target", target.name.as_str()), ("queue", "pg.commit")];
    let hard = |queue: QueueSpec, hard_limit: Source| QueueSpec { hard_limit, ..queue };
    vec![
        hard(
            between("pg.wal.buffers", cat::PG_WAL_INSERT.name, cat::PG_WAL_WRITE.name),
            fixed(bytes("wal_buffers").map(|size| size.0 as f64)),
        ),
        between("pg.wal.local_flush", cat::PG_WAL_WRITE.name, cat::PG_WAL_FLUSH.name),
        hard(between("pg.checkpoint", cat::PG_WAL_INSERT.name, cat::PG_CHECKPOINT_REDO.name), fixed(forced)),
        QueueSpec {
            level: Source::series(cat::PG_SESSIONS_WAITING.name, &waiting),
            waiters: Source::series(cat::PG_SESSIONS_WAITING.name, &waiting),
            ..QueueSpec::new("pg.commit", Unit::Count)
        },
        QueueSpec {
            level: Source::series(cat::PG_HEARTBEAT.name, &of),
            hard_limit: fixed(target.heartbeat_timeout_s.map(|seconds| seconds * 1e6)),
            ..QueueSpec::new("pg.heartbeat", Unit::Microseconds)
        },
    ]
}
