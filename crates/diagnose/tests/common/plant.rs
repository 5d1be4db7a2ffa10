//! A plant: clients that dirty pages, a limit that holds them, a flusher, a device with or without a ceiling. A fluid model in
//! steps of a tenth of a second that leaves behind the series which probes would.

use super::{Readings, meta, session};
use backwater_model::{Event, EventKind, Meta, Moment, Window, catalogue as cat};

/// Whose dirty limit is the narrow one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    Device,
    Host,
    Cgroup,
    /// None that the load could reach.
    Wide,
}

#[derive(Clone, Debug)]
pub struct Plant {
    pub seconds: f64,
    pub load_s: f64,
    pub offered_per_s: f64,
    pub transaction_bytes: f64,
    pub write_bytes: f64,
    pub cap_iops: Option<f64>,
    /// The control group that has that cap, and the operations it is counted for, as a share of all, where that is read.
    pub cap_group: (&'static str, Option<f64>),
    pub cgroup_version: &'static str,
    pub declared_iops: Option<(f64, Option<f64>)>,
    /// Credit in operations above the baseline, for a volume with a burst rating.
    pub burst_credit: f64,
    pub device_iops: f64,
    /// Milliseconds that a request takes in a device with little to do, and in a full one.
    pub request_ms: (f64, f64),
    pub limit: Limit,
    pub limit_bytes: f64,
    /// When checkpoints sync, and for how long.
    pub syncs: Vec<(f64, f64)>,
    /// Whether every transaction waits for its own write, instead of leaving it to the page cache.
    pub synchronous: bool,
    pub see_kernel: bool,
    pub see_device: bool,
    pub see_pressure: bool,
    /// What other disks of the host have dirty.
    pub dirty_elsewhere: f64,
}

impl Default for Plant {
    /// A healthy server: 4,000 transactions a second, 30 MB/s, on a device that writes twice as much.
    fn default() -> Self {
        Plant {
            seconds: 40.0,
            load_s: 40.0,
            offered_per_s: 4000.0,
            transaction_bytes: 7_500.0,
            write_bytes: 9_600.0,
            cap_iops: None,
            cap_group: ("/", None),
            cgroup_version: "v1",
            declared_iops: None,
            burst_credit: 0.0,
            device_iops: 20_000.0,
            request_ms: (0.6, 35.0),
            limit: Limit::Wide,
            limit_bytes: 384.0 * MIB,
            syncs: Vec::new(),
            synchronous: false,
            see_kernel: true,
            see_device: true,
            see_pressure: true,
            dirty_elsewhere: MIB,
        }
    }
}

pub const MIB: f64 = 1_048_576.0;
const HOST_LIMIT: f64 = 4_000.0 * MIB;
const STEP: f64 = 0.1;
const CLIENTS: i32 = 16;
/// Where the simulation begins: hosts have been up for a while.
pub const START_S: f64 = 500.0;

#[derive(Default)]
struct State {
    level: f64,
    dirtied: f64,
    written: f64,
    writes: f64,
    busy_ms: f64,
    write_ms: f64,
    weighted_ms: f64,
    psi_us: f64,
    done: f64,
    latency_us: f64,
    flushing: bool,
    /// Share of sessions that wait, and what is in the device, in this step.
    held: f64,
    in_flight: f64,
    sync: bool,
}

impl Plant {
    pub fn meta(&self) -> Meta {
        let mut meta = meta();
        meta.host.cgroup_version = Some(self.cgroup_version.into());
        if self.limit == Limit::Cgroup {
            meta.targets[0].memory_cgroup = Some("/lab".into());
        }
        if let Some((iops, burst_iops)) = self.declared_iops {
            let volume = backwater_model::DeclaredVolume { iops: Some(iops), burst_iops, ..Default::default() };
            meta.declared_volumes = vec![volume];
        }
        meta
    }

    pub fn window(&self) -> Window {
        self.readings().window(self.meta(), START_S, START_S + self.seconds)
    }

    pub fn readings(&self) -> Readings {
        let mut readings = Readings::default();
        let mut state = State { dirtied: 5e9, written: 4e9, writes: 1e5, ..State::default() };
        let mut credit = self.burst_credit;
        for tick in 0..=(self.seconds / STEP).round() as i64 {
            let now = tick as f64 * STEP;
            if tick % 2 == 0 {
                self.read(&mut readings, &state, now);
            }
            self.step(&mut state, now, &mut credit);
        }
        for (at, length) in &self.syncs {
            let line = format!(
                "checkpoint complete: wrote 900 buffers (5.5%); 0 WAL file(s) added, 0 removed, 1 recycled; write=9.0 s, \
                 sync={length:.3} s, total=12.0 s; sync files=9, longest={:.3} s, average=0.1 s; distance=1 kB, estimate=1 kB",
                length / 2.0
            );
            let at = Moment::from_seconds(START_S + at + length);
            readings.events.push(Event::new(at, "lab", EventKind::Log, line, &[]));
        }
        readings
    }

    fn limit_now(&self) -> f64 {
        if self.limit == Limit::Wide { HOST_LIMIT } else { self.limit_bytes }
    }

    /// Operations a second that pass now.
    fn ceiling(&self, credit: f64) -> f64 {
        let volume = self.declared_iops.map(|(base, burst)| if credit > 0.0 { burst.unwrap_or(base) } else { base });
        [self.cap_iops, volume].into_iter().flatten().fold(self.device_iops, f64::min)
    }

    fn step(&self, state: &mut State, now: f64, credit: &mut f64) {
        let (limit, loaded) = (self.limit_now(), now < self.load_s);
        let (background, pause) = (limit / 2.0, limit * 0.75);
        state.sync = self.syncs.iter().any(|(at, length)| (*at..at + length).contains(&now));
        if ((now / 5.0).fract() * 5.0) < STEP / 2.0 && state.level > background {
            state.flushing = true;
        }
        if state.level < background * 0.9 {
            state.flushing = false;
        }
        let ceiling = self.ceiling(*credit);
        let offered = if loaded { self.offered_per_s } else { 0.0 };
        let mut open = ((limit - state.level) / (limit - pause)).clamp(0.0, 1.0);
        let mut writes = if state.flushing { ceiling.min(state.level / self.write_bytes / STEP) } else { 0.0 };
        if self.synchronous {
            writes = offered.min(ceiling);
            open = if offered > 0.0 { writes / offered } else { 1.0 };
        }
        if state.sync {
            open *= 0.3;
        }
        let tps = offered * open;
        // The queue of a volume at its rating is seen as a busy device.
        let at_rating = self.declared_iops.is_some() && self.cap_iops.is_none();
        let most = if at_rating { ceiling.min(self.device_iops) } else { self.device_iops };
        self.account(state, tps, (writes, most), open, offered > 0.0);
        if let Some((base, _)) = self.declared_iops {
            *credit -= (writes - base) * STEP;
        }
    }

    fn account(&self, state: &mut State, tps: f64, (writes, most): (f64, f64), open: f64, loaded: bool) {
        let (inflow, outflow) = (tps * self.transaction_bytes, writes * self.write_bytes);
        if !self.synchronous {
            state.level = (state.level + (inflow - outflow) * STEP).max(0.0);
            state.dirtied += inflow * STEP;
        }
        state.written += outflow * STEP;
        state.writes += writes * STEP;
        let use_of_device = writes / most;
        let saturated = use_of_device > 0.98;
        state.in_flight = if saturated { 40.0 } else { use_of_device };
        state.busy_ms += use_of_device.min(1.0) * STEP * 1e3;
        state.write_ms += writes * STEP * if saturated { self.request_ms.1 } else { self.request_ms.0 };
        state.weighted_ms += state.in_flight * STEP * 1e3;
        state.held = if loaded { 1.0 - open } else { 0.0 };
        state.psi_us += (state.held * 1.2).min(0.95) * STEP * 1e6;
        state.done += tps * STEP;
        state.latency_us += tps * STEP * 4_000.0 / open.max(0.05);
    }

    fn read(&self, to: &mut Readings, state: &State, now: f64) {
        let at = START_S + now;
        let dev = [("dev", "7:0")];
        let limit = self.limit_now();
        let host = if self.limit == Limit::Host { self.limit_bytes } else { HOST_LIMIT };
        let writing = if state.flushing { state.level * 0.4 } else { 0.0 };
        let own = if self.limit == Limit::Device { self.limit_bytes } else { host };
        if self.see_device {
            to.put(&cat::BDI_RECLAIMABLE, &dev, at, state.level - writing);
            to.put(&cat::BDI_WRITEBACK, &dev, at, writing);
            to.put(&cat::BDI_DIRTIED, &dev, at, state.dirtied);
            to.put(&cat::BDI_WRITTEN, &dev, at, state.written);
            to.put(&cat::BDI_DIRTY_THRESH, &dev, at, own);
            to.put(&cat::BDI_GLOBAL_DIRTY_THRESH, &dev, at, host);
            to.put(&cat::BDI_BACKGROUND_THRESH, &dev, at, host / 2.0);
        }
        to.put(&cat::BDI_MAX_BYTES, &dev, at, own);
        to.put(&cat::BDI_STRICT_LIMIT, &dev, at, f64::from(u8::from(self.limit == Limit::Device)));
        to.put(&cat::VM_DIRTY, &[], at, state.level - writing + self.dirty_elsewhere);
        to.put(&cat::VM_WRITEBACK, &[], at, writing);
        to.put(&cat::VM_DIRTY_THRESHOLD, &[], at, host);
        to.put(&cat::VM_BACKGROUND_THRESHOLD, &[], at, host / 2.0);
        if self.limit == Limit::Cgroup {
            let group = [("cgroup", "/lab")];
            to.put(&cat::CGROUP_DIRTY, &group, at, state.level - writing);
            to.put(&cat::CGROUP_WRITEBACK, &group, at, writing);
            to.put(&cat::CGROUP_MEMORY_RECLAIMABLE, &group, at, limit * 5.0);
            to.put(&cat::CGROUP_MEMORY_LIMIT, &group, at, limit * 6.0);
        }
        self.read_disk(to, state, at);
        to.put(&cat::LOAD_COMPLETED, &[], at, state.done);
        to.put(&cat::LOAD_LATENCY_US, &[], at, state.latency_us);
        // The server counts a checkpoint's sync time when the checkpoint has ended.
        let ended = self.syncs.iter().filter(|(from, length)| from + length <= now);
        let sync_ms = ended.map(|(_, length)| length * 1e3).sum();
        to.put(&cat::PG_CHECKPOINT_SYNC_MS, &[("target", "lab")], at, sync_ms);
        to.put(&cat::CPU_IDLE, &[], at, at);
        if now < self.load_s {
            self.look(to, state, at);
        }
    }

    fn read_disk(&self, to: &mut Readings, state: &State, at: f64) {
        let dev = [("dev", "7:0")];
        to.put(&cat::DISK_READS, &dev, at, 0.0);
        to.put(&cat::DISK_READ_BYTES, &dev, at, 0.0);
        to.put(&cat::DISK_READ_MS, &dev, at, 0.0);
        to.put(&cat::DISK_WRITES, &dev, at, state.writes);
        to.put(&cat::DISK_WRITTEN_BYTES, &dev, at, state.written);
        to.put(&cat::DISK_WRITE_MS, &dev, at, state.write_ms);
        to.put(&cat::DISK_WEIGHTED_MS, &dev, at, state.weighted_ms);
        to.put(&cat::DISK_BUSY_MS, &dev, at, state.busy_ms);
        to.put(&cat::DISK_IN_FLIGHT, &dev, at, state.in_flight);
        if let Some(cap) = self.cap_iops {
            let labels = [("cgroup", self.cap_group.0), ("dev", "7:0"), ("op", "write")];
            to.put(&cat::CGROUP_IOPS_LIMIT, &labels, at, cap);
            if let Some(share) = self.cap_group.1 {
                to.put(&cat::CGROUP_IOS, &labels, at, state.writes * share);
            }
        }
        if self.see_pressure {
            to.put(&cat::PSI_IO_SOME, &[("cgroup", "host")], at, state.psi_us);
        }
    }

    fn look(&self, to: &mut Readings, state: &State, at: f64) {
        let held = (state.held * f64::from(CLIENTS)).round() as i32;
        for pid in 0..CLIENTS {
            let kernel = |function: &'static str, state: char| self.see_kernel.then_some((function, state));
            let sample = if pid >= held {
                session(at, pid, "active", None, None)
            } else if self.synchronous || state.sync {
                session(at, pid, "active", Some(("IO", "WALSync")), kernel("jbd2_log_wait_commit", 'D'))
            } else if pid == 0 {
                session(at, pid, "active", Some(("IO", "DataFileWrite")), kernel("balance_dirty_pages", 'D'))
            } else {
                session(at, pid, "active", Some(("IO", "DataFileWrite")), kernel("ext4_buffered_write_iter", 'D'))
            };
            // The state is readable by everybody, the function is not.
            let state = if pid >= held { 'R' } else { 'D' };
            to.samples.push(backwater_model::Sample { kernel_state: Some(state), ..sample });
        }
    }
}
