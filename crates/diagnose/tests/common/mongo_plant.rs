//! A MongoDB server second by second: healthy, or with one trouble planted in it.

use super::Readings;
use super::judged::diagnose;
use backwater_diagnose::Options;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Device, Finding, Meta, Role, Target, Window};

pub const GIB: f64 = 1_073_741_824.0;
pub const SECONDS: usize = 200;
pub const T: (&str, &str) = ("target", "m");
pub const COUNTERS: usize = 15;

/// A server second by second. Rates are functions of the second; counters are their sums.
pub struct Plant {
    pub dirty: fn(usize) -> f64,
    pub updates: fn(usize) -> f64,
    pub used: fn(usize) -> f64,
    pub waiting: fn(usize) -> f64,
    pub checkpoint: fn(usize) -> bool,
    pub write_ms: fn(usize) -> f64,
    pub writes: fn(usize) -> f64,
    pub ttl: fn(usize) -> f64,
    pub opened: fn(usize) -> f64,
    pub connections: fn(usize) -> f64,
    pub free: fn(usize) -> f64,
    pub tickets_out: fn(usize) -> f64,
    pub in_line: fn(usize) -> f64,
    pub held_writers: fn(usize) -> f64,
    pub majority_lag: fn(usize) -> f64,
    pub pinned: fn(usize) -> f64,
    pub pinned_by_oldest: fn(usize) -> f64,
    pub pinned_ids: fn(usize) -> f64,
    pub busy: fn(usize) -> f64,
    pub disk_mib: fn(usize) -> f64,
    /// Time that the oplog covers, in seconds, and how much of its size it takes.
    pub oplog_s: fn(usize) -> f64,
    pub oplog_full: f64,
    pub memory_gib: f64,
    /// As a share of it.
    pub memory_left: fn(usize) -> f64,
    /// Read into the cache.
    pub read_mib: fn(usize) -> f64,
    pub faults: fn(usize) -> f64,
    /// Bytes of the cache in each that the disk writes.
    pub packed: f64,
    pub settings: &'static str,
}

/// Busy and well: a checkpoint each minute that nobody feels, TTL deletes in the background, a pool of connections.
pub fn healthy() -> Plant {
    Plant {
        dirty: |s| 0.03 + 0.01 * (s % 60) as f64 / 60.0,
        updates: |_| 0.02,
        used: |_| 0.8,
        waiting: |_| 0.0,
        checkpoint: |s| s % 60 < 8,
        write_ms: |s| if s % 60 < 8 { 1.3 } else { 1.0 },
        writes: |_| 5_000.0,
        ttl: |_| 50.0,
        opened: |_| 1.0,
        connections: |_| 500.0,
        free: |_| 50_000.0,
        tickets_out: |_| 10.0,
        in_line: |_| 0.0,
        held_writers: |_| 0.0,
        majority_lag: |_| 1.0,
        pinned: |_| 300.0,
        pinned_by_oldest: |_| 300.0,
        pinned_ids: |s| if s % 60 < 8 { 5_000.0 * (s % 60) as f64 } else { 80.0 + 7.0 * (s % 5) as f64 },
        busy: |s| if s % 60 < 8 { 0.6 } else { 0.2 },
        disk_mib: |s| if s % 60 < 8 { 80.0 } else { 30.0 },
        oplog_s: |_| 100_000.0,
        oplog_full: 0.97,
        // The cache takes two thirds.
        memory_gib: 1.5,
        memory_left: |_| 0.2,
        read_mib: |_| 0.0,
        faults: |_| 1.0,
        packed: 1.0,
        settings: "",
    }
}

impl Plant {
    pub fn readings(&self) -> Readings {
        let mut r = Readings::default();
        let mut sums = [0.0; COUNTERS];
        for second in 0..=SECONDS {
            let at = 1_000.0 + second as f64;
            let gauges = [
                (&cat::WT_CACHE_MAX, GIB),
                (&cat::WT_CACHE_DIRTY, (self.dirty)(second) * GIB),
                (&cat::WT_CACHE_UPDATES, (self.updates)(second) * GIB),
                (&cat::WT_CACHE_USED, (self.used)(second) * GIB),
                (&cat::WT_CHECKPOINT_RUNNING, f64::from(u8::from((self.checkpoint)(second)))),
                (&cat::MONGO_CONNECTIONS, (self.connections)(second)),
                (&cat::MONGO_CONNECTIONS_FREE, (self.free)(second)),
                (&cat::MONGO_FLOW_LAGGED, f64::from(u8::from((self.held_writers)(second) > 0.0))),
                (&cat::MONGO_FLOW_LIMIT, 1_000.0),
                (&cat::WT_PINNED, (self.pinned)(second)),
                (&cat::WT_PINNED_OLDEST, (self.pinned_by_oldest)(second)),
                (&cat::WT_PINNED_IDS, (self.pinned_ids)(second)),
                (&cat::MONGO_COMMITTED, 1e9 + at - (self.majority_lag)(second)),
                (&cat::MONGO_STATE, 1.0),
                (&cat::MONGO_OPLOG_LAST, 1e9 + at),
                (&cat::MONGO_OPLOG_FIRST, 1e9 + at - (self.oplog_s)(second)),
                (&cat::MONGO_OPLOG_MAX, 10.0 * GIB),
                (&cat::MONGO_OPLOG, self.oplog_full * 10.0 * GIB),
            ];
            gauges.iter().for_each(|(def, value)| r.put(def, &[T], at, *value));
            r.put(&cat::MEM_TOTAL, &[], at, self.memory_gib * GIB);
            r.put(&cat::MEM_AVAILABLE, &[], at, (self.memory_left)(second) * self.memory_gib * GIB);
            let (write, read) = (("op", "write"), ("op", "read"));
            r.put(&cat::MONGO_CLIENTS, &[T, write], at, 20.0);
            r.put(&cat::MONGO_CLIENTS, &[T, read], at, 0.0);
            r.put(&cat::MONGO_TICKETS_OUT, &[T, write], at, (self.tickets_out)(second));
            r.put(&cat::MONGO_TICKETS_FREE, &[T, write], at, 128.0 - (self.tickets_out)(second));
            r.put(&cat::MONGO_LOCK_QUEUE, &[T, write], at, (self.in_line)(second));
            for (member, behind) in [("0", 0.0), ("1", (self.majority_lag)(second)), ("2", 500.0)] {
                r.put(&cat::MONGO_MEMBER_OPTIME, &[T, ("member", member)], at, 1e9 + at - behind);
                r.put(&cat::MONGO_MEMBER_SELF, &[T, ("member", member)], at, f64::from(u8::from(member == "0")));
                r.put(&cat::MONGO_MEMBER_STATE, &[T, ("member", member)], at, if member == "0" { 1.0 } else { 2.0 });
            }
            self.counters(&mut r, &mut sums, second, at);
        }
        r
    }

    fn counters(&self, r: &mut Readings, sums: &mut [f64; COUNTERS], second: usize, at: f64) {
        let (writes, ms) = ((self.writes)(second), (self.write_ms)(second));
        let rates = [
            (&cat::WT_APP_WAIT_US, vec![T], (self.waiting)(second) * 1e6),
            (&cat::MONGO_OPS, vec![T, ("op", "writes")], writes),
            (&cat::MONGO_LATENCY, vec![T, ("op", "writes")], writes * ms * 1e3),
            (&cat::MONGO_TTL_DELETED, vec![T], (self.ttl)(second)),
            (&cat::MONGO_CONNECTIONS_CREATED, vec![T], (self.opened)(second)),
            (&cat::MONGO_FLOW_WAIT_US, vec![T], (self.held_writers)(second) * 1e6),
            (&cat::DISK_BUSY_MS, vec![("dev", "sda")], (self.busy)(second) * 1e3),
            (&cat::DISK_WRITTEN_BYTES, vec![("dev", "sda")], (self.disk_mib)(second) * 1_048_576.0),
            (&cat::MONGO_OPCOUNTERS, vec![T, ("op", "insert")], writes),
            (&cat::DISK_WRITES, vec![("dev", "sda")], (self.disk_mib)(second) * 8.0),
            (&cat::DISK_READS, vec![("dev", "sda")], 0.0),
            (&cat::DISK_READ_BYTES, vec![("dev", "sda")], 0.0),
            (&cat::MONGO_PAGE_FAULTS, vec![T], (self.faults)(second)),
            (&cat::WT_CACHE_READ, vec![T], (self.read_mib)(second) * 1_048_576.0),
            (&cat::WT_CACHE_WRITTEN, vec![T], self.packed * (self.disk_mib)(second) * 1_048_576.0),
        ];
        for ((def, labels, rate), sum) in rates.into_iter().zip(sums) {
            r.put(def, &labels, at, *sum);
            if def.name == cat::MONGO_OPCOUNTERS.name {
                r.put(def, &[T, ("op", "update")], at, 0.0);
                r.put(def, &[T, ("op", "delete")], at, 0.0);
            }
            *sum += rate;
        }
    }

    pub fn meta(&self) -> Meta {
        let settings = [("setParameter.wiredTigerEngineRuntimeConfig".to_owned(), self.settings.to_owned())];
        let target = Target {
            name: "m".into(),
            kind: "mongodb".into(),
            local: true,
            version_num: Some(80_004),
            data_device: Some("sda".into()),
            settings: settings.into(),
            ..Target::default()
        };
        let device = Device {
            dev: "sda".into(),
            name: "sda".into(),
            roles: vec![(Role::Data, "m".into())],
            ..Device::default()
        };
        Meta { targets: vec![target], devices: vec![device], ..Meta::default() }
    }

    pub fn window(&self) -> Window {
        self.readings().window(self.meta(), 1_000.0, 1_000.0 + SECONDS as f64)
    }

    pub fn found(&self) -> Vec<Finding> {
        diagnose(&self.window(), &Options::default())
    }

    /// The same after something was read besides, or was not.
    pub fn found_with(&self, change: impl FnOnce(&mut Readings, &mut Meta)) -> Vec<Finding> {
        let (mut readings, mut meta) = (self.readings(), self.meta());
        change(&mut readings, &mut meta);
        diagnose(&readings.window(meta, 1_000.0, 1_000.0 + SECONDS as f64), &Options::default())
    }
}

/// A counter of a server, from what it counts in each second.
pub fn count(r: &mut Readings, def: &Def, labels: &[(&'static str, &str)], per_s: impl Fn(usize) -> f64) {
    let mut sum = 0.0;
    for second in 0..=SECONDS {
        r.put(def, labels, 1_000.0 + second as f64, sum);
        sum += per_s(second);
    }
}

/// Syncs of the journal: how many a second, and how many milliseconds each takes.
pub fn put_journal(r: &mut Readings, syncs: impl Fn(usize) -> (f64, f64)) {
    count(r, &cat::WT_LOG_SYNCS, &[T], |second| syncs(second).0);
    count(r, &cat::WT_LOG_SYNC_US, &[T], |second| syncs(second).0 * syncs(second).1 * 1e3);
}

/// Seconds in which planted trouble stands.
pub fn trouble(second: usize) -> bool {
    (100..140).contains(&second)
}

/// Dirty pages at the trigger for 40 s, while threads that answer evict.
pub fn stalled() -> Plant {
    Plant {
        dirty: |s| if trouble(s) { 0.205 } else { 0.04 },
        waiting: |s| if trouble(s) { 12.0 } else { 0.0 },
        write_ms: |s| if trouble(s) { 40.0 } else { 1.0 },
        checkpoint: |_| false,
        ..healthy()
    }
}

/// The same before a disk that is full then, and writes 80 MiB a second.
pub fn draining() -> Plant {
    Plant {
        busy: |s| if trouble(s) { 1.0 } else { 0.2 },
        disk_mib: |s| if trouble(s) { 80.0 } else { 10.0 },
        ..stalled()
    }
}

/// Seconds in which a planted device stands still.
pub fn stands(second: usize) -> bool {
    (100..104).contains(&second) || (130..134).contains(&second)
}

/// Twice for four seconds nothing moves, though the device is taken.
pub fn standing() -> Plant {
    Plant {
        busy: |s| if stands(s) { 1.0 } else { 0.4 },
        disk_mib: |s| if stands(s) { 0.5 } else { 60.0 },
        writes: |s| if stands(s) { 10.0 } else { 5_000.0 },
        write_ms: |s| if stands(s) { 2_000.0 } else { 1.0 },
        checkpoint: |_| false,
        ..healthy()
    }
}

/// A disk that only checkpoints fill, and writes that are slow then.
pub fn bursting() -> Plant {
    Plant {
        write_ms: |s| if s % 60 < 8 { 60.0 } else { 1.0 },
        busy: |s| if s % 60 < 8 { 1.0 } else { 0.02 },
        disk_mib: |s| if s % 60 < 8 { 400.0 } else { 1.0 },
        ..healthy()
    }
}

/// A cache whose dirty target is more than the disk takes in seconds: 50 MiB at 10 MiB/s.
pub fn oversized() -> Plant {
    Plant {
        dirty: |s| if s % 60 < 8 { 0.02 } else { 0.05 * (s % 60) as f64 / 60.0 },
        disk_mib: |s| if s % 60 < 8 { 10.0 } else { 1.0 },
        ..bursting()
    }
}
