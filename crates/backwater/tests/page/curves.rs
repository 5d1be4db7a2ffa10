//! Every chart beside those of queues, by its title and its curves' names: which series it is of.

use super::{Lane, Reader, rates, take};
use backwater_diagnose::throughput;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Kind, Moment, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Curves by `title / name`.
type Curves = BTreeMap<String, Lane>;

impl Reader<'_> {
    /// All of which anything is known.
    pub fn curves(&self) -> Curves {
        let mut curves = Curves::new();
        self.load(&mut curves);
        self.flow(&mut curves);
        self.labels(&cat::DISK_WRITES, "dev").iter().for_each(|dev| self.disk(&mut curves, dev));
        self.links(&mut curves);
        self.labels(&cat::WT_CACHE_DIRTY, "target").iter().for_each(|target| self.engine(&mut curves, target));
        self.host(&mut curves);
        curves.retain(|_, lane| lane.iter().any(Option::is_some));
        curves
    }

    fn load(&self, curves: &mut Curves) {
        let mut put = |title: &str, name: &str, lane: Lane| curves.insert(format!("{title} / {name}"), lane);
        let of_load = self.window.track(cat::LOAD_COMPLETED.name, &[]).is_some();
        let mut lane = vec![None; self.count];
        for (second, value) in throughput(self.window) {
            take(&mut lane[self.piece(Moment::from_seconds(self.window.from.seconds() + second + 0.5))], value, 1.0);
        }
        put("Throughput", if of_load { "transactions a second" } else { "commits a second" }, lane);
        put("Throughput", "failed a second", self.read(&cat::LOAD_FAILED, &[]));
        let mean = |sum: &Def| self.mean(sum, &cat::LOAD_COMPLETED, &[]);
        put("Latency of transactions", "mean, from the intended start", mean(&cat::LOAD_LATENCY_US));
        put("Latency of transactions", "mean, from the actual start", mean(&cat::LOAD_SERVICE_US));
        put("Transactions waiting", "begun, not yet answered", self.read(&cat::LOAD_WAITING, &[]));
        for target in &self.window.meta.targets {
            let (of, title) = ([("target", target.name.as_str())], format!("Heartbeat of {}", target.name));
            put(&title, "time to answer", self.read(&cat::PG_HEARTBEAT, &of));
            let missed = self.read(&cat::PG_HEARTBEATS_MISSED, &of);
            // A line at nothing says nothing.
            if missed.iter().flatten().any(|piece| piece.high > 0.0) {
                put(&format!("{title}: missed"), "missed a second", missed);
            }
        }
    }

    fn flow(&self, curves: &mut Curves) {
        let mut put = |title: &str, name: &str, lane: Lane| curves.insert(format!("{title} / {name}"), lane);
        let rates = "What the low class may send, and what is sent";
        put(rates, "all low-priority sessions may send", self.read(&cat::FLOW_RATE, &[]));
        for pool in self.labels(&cat::FLOW_POOL_HELD, "pool") {
            let of = [("pool", pool.as_str())];
            put(rates, &format!("sent to clients of pool {pool}"), self.read(&cat::FLOW_POOL_SENT, &of));
            put(rates, &format!("bandwidth of pool {pool}"), self.read(&cat::FLOW_POOL_RATE, &of));
            put("Sessions held", &format!("held, of pool {pool}"), self.read(&cat::FLOW_POOL_HELD, &of));
        }
        put("Sessions held", "held in all", self.read(&cat::FLOW_HELD, &[]));
        put("Sessions held", "wait for some of the rate", self.read(&cat::FLOW_WAITING, &[]));
        put(
            "The queue that the rate is found from",
            "queue on the way to clients",
            self.read(&cat::FLOW_QUEUEING, &[]),
        );
    }

    fn disk(&self, curves: &mut Curves, dev: &str) {
        let mut put = |title: &str, name: &str, lane: Lane| curves.insert(format!("{title} / {name}"), lane);
        let device =
            self.window.meta.device(dev).map_or_else(|| dev.to_owned(), |known| format!("{} ({dev})", known.name));
        let of = [("dev", dev)];
        let operations = format!("Operations of {device}");
        put(&operations, "writes", self.read(&cat::DISK_WRITES, &of));
        put(&operations, "reads", self.read(&cat::DISK_READS, &of));
        put(&operations, "cap on writes", self.cap(&cat::CGROUP_IOPS_LIMIT, dev));
        put(&operations, "declared rating", self.read(&cat::VOLUME_IOPS, &of));
        let bytes = format!("Bytes of {device}");
        put(&bytes, "written", self.read(&cat::DISK_WRITTEN_BYTES, &of));
        put(&bytes, "read", self.read(&cat::DISK_READ_BYTES, &of));
        put(&bytes, "cap on writes", self.cap(&cat::CGROUP_BPS_LIMIT, dev));
        put(&bytes, "declared rating", self.read(&cat::VOLUME_BPS, &of));
        let time = format!("Time of an operation on {device}");
        put(&time, "a write", self.mean(&cat::DISK_WRITE_MS, &cat::DISK_WRITES, &of));
        put(&time, "a flush", self.mean(&cat::DISK_FLUSH_MS, &cat::DISK_FLUSHES, &of));
        let busy = self.scaled(&cat::DISK_BUSY_MS, &of, 1e-3);
        put(&format!("Share of time in which {device} is busy"), "busy", busy);
    }

    fn engine(&self, curves: &mut Curves, target: &str) {
        let mut put =
            |title: &str, name: &str, lane: Lane| curves.insert(format!("{title} of {target} / {name}"), lane);
        let of = [("target", target)];
        for op in ["reads", "writes", "commands"] {
            let of = [("target", target), ("op", op)];
            let lane = self.mean(&cat::MONGO_LATENCY, &cat::MONGO_OPS, &of);
            let in_ms = lane.into_iter().map(|piece| piece.map(|piece| piece.map(|value| value / 1e3))).collect();
            put("Mean latency", op, in_ms);
        }
        put("Dirty pages", "dirty", self.read(&cat::WT_CACHE_DIRTY, &of));
        put("Dirty pages", "updates", self.read(&cat::WT_CACHE_UPDATES, &of));
        put("Cache", "used", self.read(&cat::WT_CACHE_USED, &of));
        put("Cache", "size", self.read(&cat::WT_CACHE_MAX, &of));
        let parts = [&cat::WT_CACHE_DIRTY, &cat::WT_CACHE_MAX].map(|def| Source::series(def.name, &of));
        let [dirty, whole] = parts;
        put("Dirty share", "of the cache", self.gauge(&Source::Share(Box::new([Source::Fixed(1.0), dirty, whole]))));
        put("Application threads", "wait for room in the cache", self.scaled(&cat::WT_APP_WAIT_US, &of, 1e-6));
        put("Application threads", "evict themselves", self.scaled(&cat::WT_APP_EVICT_US, &of, 1e-6));
        let behind = Source::difference(cat::MONGO_OPLOG_LAST.name, cat::MONGO_COMMITTED.name, &of);
        let behind = self.gauge(&behind).into_iter().map(|piece| piece.map(|piece| piece.map(|value| value.max(0.0))));
        put("Majority", "behind the primary", behind.collect());
        put("Slow operations", "in the log", self.read(&cat::MONGO_SLOW_OPS, &of));
    }

    fn links(&self, curves: &mut Curves) {
        let mut put = |title: &str, name: &str, lane: Lane| curves.insert(format!("{title} / {name}"), lane);
        for track in self.window.tracks(cat::NET_SENT_BYTES.name, &[]) {
            let labels = &track.series.labels;
            let Some((target, name)) = labels.get("target").zip(labels.get("if")) else { continue };
            let of = [("target", target), ("if", name)];
            let title = format!("Bytes over {name} of {target}");
            put(&title, "sent", self.read(&cat::NET_SENT_BYTES, &of));
            put(&title, "received", self.read(&cat::NET_RECEIVED_BYTES, &of));
            put(&title, "link speed", self.read(&cat::NET_SPEED, &of));
            put(&title, "shaper", self.read(&cat::NET_SHAPER, &of));
            let waits = self.read(&cat::NET_BACKLOG, &of);
            if waits.iter().flatten().any(|piece| piece.high > 0.0) {
                put(&format!("Waiting for {name} of {target}"), "waits to be sent", waits);
            }
        }
    }

    fn host(&self, curves: &mut Curves) {
        let mut put = |title: &str, name: &str, lane: Lane| curves.insert(format!("{title} / {name}"), lane);
        let processors = [
            ("user", cat::CPU_USER),
            ("system", cat::CPU_SYSTEM),
            ("waiting for I/O", cat::CPU_IOWAIT),
            ("taken by the hypervisor", cat::CPU_STEAL),
            ("idle", cat::CPU_IDLE),
        ];
        for (name, def) in processors {
            put("Processors", name, self.scaled(&def, &[], 1.0));
        }
        let pressure = [("I/O", cat::PSI_IO_SOME), ("processor", cat::PSI_CPU_SOME), ("memory", cat::PSI_MEMORY_SOME)];
        for (name, def) in pressure {
            let share = self.scaled(&def, &[("cgroup", "host")], 1e-6);
            put("Share of time in which some task waits (PSI)", name, share);
        }
        put("Memory", "available", self.read(&cat::MEM_AVAILABLE, &[]));
    }

    /// A series as it is: a counter's rate, or a gauge's level.
    fn read(&self, def: &Def, labels: &[(&'static str, &str)]) -> Lane {
        let source = Source::series(def.name, labels);
        if def.kind == Kind::Gauge { self.gauge(&source) } else { self.rate(&source) }
    }

    /// A counter's rate in another unit.
    fn scaled(&self, def: &Def, labels: &[(&'static str, &str)], factor: f64) -> Lane {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.rate(&Source::Sum(vec![(def.name, labels, factor)]))
    }

    /// What one counter sums up over what another counts.
    fn mean(&self, sum: &Def, count: &Def, labels: &[(&'static str, &str)]) -> Lane {
        let mut lane = vec![None; self.count];
        let both = self.window.track(sum.name, labels).zip(self.window.track(count.name, labels));
        let Some((sum, count)) = both else { return lane };
        let counted: BTreeMap<Moment, f64> = rates(count).into_iter().map(|(_, to, rate)| (to, rate)).collect();
        for (from, to, rate) in rates(sum) {
            if let Some(count) = counted.get(&to).filter(|count| **count > 0.0) {
                self.cover(&mut lane, from, to, rate / count);
            }
        }
        lane
    }

    /// The narrowest of the caps that control groups set on writes to a device.
    fn cap(&self, def: &Def, dev: &str) -> Lane {
        let of = [("dev", dev), ("op", "write")];
        let groups = self.window.tracks(def.name, &of).filter_map(|track| track.series.labels.get("cgroup"));
        let one = |group: &str| Source::series(def.name, &[("cgroup", group), ("dev", dev), ("op", "write")]);
        self.gauge(&Source::Least(groups.map(one).collect()))
    }

    fn labels(&self, def: &Def, label: &str) -> BTreeSet<String> {
        let tracks = self.window.tracks(def.name, &[]).filter(|track| !track.points.is_empty());
        tracks.filter_map(|track| track.series.labels.get(label).map(str::to_owned)).collect()
    }
}
