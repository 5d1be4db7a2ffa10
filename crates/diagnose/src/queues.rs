//! The queues of a system as views over series: which readings are their inflow, outflow, level and limits.

use crate::device::whole;
use backwater_model::{Meta, QueueSpec, Role, Source, Target, Unit, catalogue as cat};

/// Every queue that may have readings, by what a recording says of itself. A queue whose series are absent reads as unknown.
pub fn queues(meta: &Meta) -> Vec<QueueSpec> {
    let mut list = Vec::new();
    for dev in devices(meta) {
        list.push(dirty(meta, &dev));
        list.push(disk(meta, &dev));
    }
    list.extend(meta.targets.iter().filter_map(|target| target.memory_cgroup.as_deref()).map(dirty_of_group));
    for target in &meta.targets {
        list.extend(server(target));
    }
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

/// Dirty pages of a device. Where the device's own are not seen, the host's stand in: an upper bound.
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
        ..QueueSpec::new(format!("host.dirty@{dev}"), Unit::Bytes)
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

fn dirty_of_group(group: &str) -> QueueSpec {
    QueueSpec {
        level: Source::sum(&[cat::CGROUP_DIRTY.name, cat::CGROUP_WRITEBACK.name], &[("cgroup", group)]),
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
    ]
}
