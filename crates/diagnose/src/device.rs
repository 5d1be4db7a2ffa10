//! A block device as rules see it: its readings on the grid, under whichever of its numbers they were taken.

use crate::grid::{Grid, Lane};
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Device, Meta, Role, Track, Window};

/// One device and its readings, a value a second. Rates are units a second.
pub(crate) struct DeviceView {
    /// `MAJ:MIN`, as in the names of its queues.
    pub(crate) dev: String,
    /// `MAJ:MIN` of the whole device, which has the request queue and the page-cache limits; often the same.
    pub(crate) whole: String,
    /// Kernel name of the whole device, or its numbers where the name is unknown.
    pub(crate) name: String,
    /// Targets that keep data, tablespaces or WAL on it. Empty where that is unknown.
    pub(crate) targets: Vec<String>,
    /// Whether data files (not WAL alone) lie on it, as far as known.
    pub(crate) holds_data: bool,
    /// Dirty and under writeback, in bytes.
    pub(crate) level: Lane,
    /// Dirtied, bytes a second.
    pub(crate) inflow: Lane,
    /// Written from the page cache, bytes a second.
    pub(crate) outflow: Lane,
    /// Reads and writes completed, a second.
    pub(crate) reads: Lane,
    pub(crate) writes: Lane,
    /// Bytes read and written, a second.
    pub(crate) read_bytes: Lane,
    pub(crate) written_bytes: Lane,
    /// Share of time with a request in the device.
    pub(crate) busy: Lane,
    /// Mean time of a request in milliseconds.
    pub(crate) await_ms: Lane,
    /// Requests in the device.
    pub(crate) in_flight: Lane,
}

/// The series of a device under its own number or, for a partition, that of the whole device.
pub(crate) fn track<'a>(window: &'a Window, def: &Def, dev: &str) -> Option<Track<'a>> {
    let own = window.track(def.name, &[("dev", dev)]);
    own.or_else(|| window.track(def.name, &[("dev", whole(&window.meta, dev))]))
}

/// The whole device of a partition, or the device itself.
pub(crate) fn whole<'a>(meta: &'a Meta, dev: &'a str) -> &'a str {
    meta.device(dev).and_then(|device| device.parent.as_deref()).unwrap_or(dev)
}

/// The devices worth a look: those of watched servers, else every device with page-cache or disk readings.
pub(crate) fn watched(window: &Window) -> Vec<String> {
    let meta = &window.meta;
    let roles = meta.devices.iter().filter(|device| holds(device)).map(|device| device.dev.clone());
    let named = meta.targets.iter().flat_map(|target| [target.data_device.clone(), target.wal_device.clone()]);
    let mut devs: Vec<String> = roles.chain(named.flatten()).collect();
    if devs.is_empty() {
        let tracks = window.tracks(cat::BDI_RECLAIMABLE.name, &[]).chain(window.tracks(cat::DISK_WRITES.name, &[]));
        devs = tracks.filter_map(|track| track.series.labels.get("dev").map(str::to_owned)).collect();
    }
    devs.sort();
    devs.dedup();
    devs
}

fn holds(device: &Device) -> bool {
    device.roles.iter().any(|(role, _)| *role != Role::Recording)
}

impl DeviceView {
    /// The readings of one device.
    pub(crate) fn of(window: &Window, grid: &Grid, dev: &str) -> Self {
        let whole = whole(&window.meta, dev);
        let rate = |def: &Def| grid.rate(track(window, def, dev));
        let gauge = |def: &Def| grid.gauge(track(window, def, dev));
        let (reads, writes) = (rate(&cat::DISK_READS), rate(&cat::DISK_WRITES));
        let ms = rate(&cat::DISK_READ_MS).with(&rate(&cat::DISK_WRITE_MS), |read, write| read + write);
        let ios = reads.with(&writes, |read, write| read + write);
        let await_ms = ms.with(&ios, |ms, ios| if ios >= 1.0 { ms / ios } else { 0.0 });
        // Requests × time ÷ time is the mean number in the device; the gauge is one instant of it.
        let in_flight = rate(&cat::DISK_WEIGHTED_MS).map(|ms| ms / 1e3).or(&gauge(&cat::DISK_IN_FLIGHT));
        let (targets, holds_data) = users(&window.meta, dev);
        DeviceView {
            dev: dev.to_owned(),
            whole: whole.to_owned(),
            name: window.meta.device(whole).map_or_else(|| whole.to_owned(), |device| device.name.clone()),
            targets,
            holds_data,
            level: gauge(&cat::BDI_RECLAIMABLE).with(&gauge(&cat::BDI_WRITEBACK), |dirty, writing| dirty + writing),
            inflow: match track(window, &cat::BDI_DIRTIED, dev) {
                Some(own) => grid.rate(Some(own)),
                // All that the host dirties is the most that this device can have been sent.
                None => grid.rate(window.track(cat::VM_DIRTIED.name, &[])),
            },
            outflow: rate(&cat::BDI_WRITTEN),
            read_bytes: rate(&cat::DISK_READ_BYTES),
            written_bytes: rate(&cat::DISK_WRITTEN_BYTES),
            busy: rate(&cat::DISK_BUSY_MS).map(|ms| (ms / 1e3).min(1.0)),
            reads,
            writes,
            await_ms,
            in_flight,
        }
    }

    /// Reads and writes completed, a second.
    pub(crate) fn completes(&self) -> Lane {
        self.reads.with(&self.writes, |read, write| read + write)
    }

    /// Mean time of a request over a stretch, in milliseconds: of all requests, not of seconds with many and few of them.
    pub(crate) fn request_ms(&self, range: &std::ops::Range<usize>) -> Option<f64> {
        let ios = self.completes();
        let ms = self.await_ms.with(&ios, |ms, ios| ms * ios);
        let ios = ios.with(&ms, |ios, _| ios).mean(range).filter(|ios| *ios > 0.0)?;
        Some(ms.mean(range)? / ios)
    }

    /// Mean size of a write over a stretch, in bytes.
    pub(crate) fn write_size(&self, range: &std::ops::Range<usize>) -> Option<f64> {
        let (bytes, writes) = (self.written_bytes.mean(range)?, self.writes.mean(range)?);
        (writes > 1.0).then(|| bytes / writes)
    }

    /// What leaves the page cache: the device's own count, else all it writes.
    pub(crate) fn drained(&self) -> &Lane {
        if self.outflow.known() { &self.outflow } else { &self.written_bytes }
    }
}

/// Who uses a device, and whether for data.
fn users(meta: &Meta, dev: &str) -> (Vec<String>, bool) {
    let mut targets = Vec::new();
    let mut data = false;
    for (role, target) in meta.device(dev).map(|device| device.roles.as_slice()).unwrap_or_default() {
        if *role != Role::Recording {
            targets.push(target.clone());
            data |= *role != Role::Wal;
        }
    }
    for target in &meta.targets {
        let holds = target.data_device.as_deref() == Some(dev);
        if holds || target.wal_device.as_deref() == Some(dev) {
            targets.push(target.name.clone());
            data |= holds;
        }
    }
    targets.sort();
    targets.dedup();
    let unknown = targets.is_empty();
    (targets, data || unknown)
}
