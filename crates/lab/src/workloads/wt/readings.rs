//! What the driver tells while a load runs, kept for the probes that bring it into the recording.

use crate::servers::wiredtiger::EngineEvents;
use crate::workloads::Counters;
use backwater_model::catalogue::{self as cat, Def};
use backwater_model::{Epoch, Event, EventKind, Moment, Text};
use backwater_probe::host::{Roots, ThreadWaits};
use backwater_probe::mongodb::wired_tiger_series;
use backwater_probe::{Probe, ProbeError, Sink};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Readings that wait for the probe at most: six seconds of them, of two kinds.
const MOST: usize = 128;

/// What the driver told since the probe looked last.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    waiting: Mutex<VecDeque<Value>>,
    counters: Arc<Counters>,
    /// Totals of the present load as they were told last: each load begins at nothing.
    before: Mutex<[u64; 4]>,
    /// Counts databases: a new one's counters begin anew.
    database: AtomicU64,
    /// Counts loads: each counts what it deletes from nothing.
    load: AtomicU64,
}

/// Totals in the order of `before`.
const TOTALS: [&str; 4] = ["completed", "failed", "latency_us_total", "service_us_total"];

impl Readings {
    pub(crate) fn new(counters: Arc<Counters>) -> Readings {
        Readings { counters, ..Readings::default() }
    }

    /// Another load begins.
    pub(crate) fn begin(&self) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = [0; 4];
        self.load.fetch_add(1, Relaxed);
    }

    /// Another database is open.
    pub(crate) fn renew(&self) {
        self.database.fetch_add(1, Relaxed);
        self.forget();
    }

    /// Leaves out what no probe has come for: another recording begins.
    pub(crate) fn forget(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn progress(&self, event: &Value) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = &self.counters;
        let into = [&counters.completed, &counters.failed, &counters.latency_us_total, &counters.service_us_total];
        for ((name, total), before) in TOTALS.iter().zip(into).zip(before.iter_mut()) {
            let told = event[name].as_u64().unwrap_or(*before);
            total.fetch_add(told.saturating_sub(*before), Relaxed);
            *before = told;
        }
        counters.in_flight.store(event["in_flight"].as_u64().unwrap_or(0), Relaxed);
    }

    fn keep(&self, event: &Value) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MOST {
            waiting.pop_front();
        }
        waiting.push_back(event.clone());
    }
}

impl EngineEvents for Readings {
    fn event(&self, event: &Value) {
        match event["event"].as_str() {
            Some("progress") => {
                self.progress(event);
                self.keep(event);
            }
            Some("statistics" | "gap") => self.keep(event),
            _ => {}
        }
    }
}

/// Brings the engine's statistics into the recording, at the moments at which the driver read them, and what the driver's threads
/// are held in.
#[derive(Debug)]
pub(crate) struct EngineProbe {
    readings: Arc<Readings>,
    target: Text,
    pid: u32,
    threads: ThreadWaits,
}

impl EngineProbe {
    pub(crate) fn new(readings: Arc<Readings>, target: &str, pid: u32) -> EngineProbe {
        EngineProbe { readings, target: Text::from(target), pid, threads: ThreadWaits::new(&Roots::default()) }
    }
}

/// The driver's own number in the set whose primary it plays.
const SELF: &str = "0";

/// What the driver does in mongod's place, so that the engine does not tell it: it deletes what has expired, and has a thread
/// and a session for each connection.
const OF_DRIVER: [(&Def, &str); 3] = [
    (&cat::MONGO_TTL_DELETED, "deleted"),
    (&cat::MONGO_CONNECTIONS_CREATED, "threads_made"),
    (&cat::MONGO_CONNECTIONS, "threads"),
];

impl Probe for EngineProbe {
    fn name(&self) -> &str {
        "wiredtiger"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), ProbeError> {
        let pid = self.pid.to_string();
        if let Ok(process) = i32::try_from(self.pid) {
            self.threads.look(process, &self.target, sink);
        }
        let database = self.readings.database.load(Relaxed).to_string();
        let epoch = Epoch::of(&["wiredtiger", &pid, &database]);
        let told: Vec<Value> = {
            let mut waiting = self.readings.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.drain(..).collect()
        };
        let load = self.readings.load.load(Relaxed).to_string();
        let of_load = Epoch::of(&["wiredtiger.load", &pid, &load]);
        let now = sink.at;
        for reading in told {
            sink.at = reading["at_us"].as_i64().map_or(now, Moment);
            if reading["event"] == "progress" {
                for (def, name) in OF_DRIVER {
                    if let Some(value) = reading[name].as_f64() {
                        sink.put(def, &[("target", &self.target)], of_load, value);
                    }
                }
                if let (Some(own), Some(majority)) = (reading["optime_s"].as_f64(), reading["majority_s"].as_f64()) {
                    let member = [("target", &*self.target), ("member", SELF)];
                    sink.put(&cat::MONGO_MEMBER_SELF, &member, of_load, 1.0);
                    sink.put(&cat::MONGO_MEMBER_OPTIME, &member, of_load, own);
                    sink.put(&cat::MONGO_COMMITTED, &[("target", &self.target)], of_load, majority);
                }
                continue;
            }
            if let Some(why) = reading["error"].as_str() {
                let fields = [("probe", "wiredtiger"), ("reason", why), ("lost", "one reading")];
                let message = format!("the engine's statistics could not be read: {why}");
                sink.event(Event::new(sink.at, &self.target, EventKind::Gap, message, &fields));
                continue;
            }
            for (def, value) in wired_tiger_series(|name| reading["values"][name].as_f64()) {
                sink.put(def, &[("target", &self.target)], epoch, value);
            }
        }
        sink.at = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Batch, Registry, catalogue};
    use serde_json::json;
    use std::collections::HashSet;

    /// No process has this number, so that none of its threads are read.
    const NOBODY: u32 = i32::MAX as u32;

    #[test]
    fn totals_of_one_load_after_another_add_up() {
        let counters = Arc::new(Counters::default());
        let readings = Readings::new(Arc::clone(&counters));
        for completed in [100, 250] {
            readings.event(&json!({"event": "progress", "completed": completed, "failed": 1, "in_flight": 3}));
        }
        readings.begin();
        readings.event(&json!({"event": "progress", "completed": 50, "in_flight": 0}));
        assert_eq!((counters.completed.load(Relaxed), counters.failed.load(Relaxed)), (300, 1));
        assert_eq!(counters.in_flight.load(Relaxed), 0);
    }

    #[test]
    fn deletes_of_the_expired_are_counted_from_nothing_in_each_load() {
        let readings = Arc::new(Readings::default());
        let mut probe = EngineProbe::new(Arc::clone(&readings), "wiredtiger", NOBODY);
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        for deleted in [500, 20] {
            readings.begin();
            readings.event(&json!({"event": "progress", "at_us": 70, "completed": 1, "deleted": deleted}));
            probe.read(&mut Sink::new(Moment(99), &registry, &mut batch, &mut absences)).unwrap();
        }
        let [first, second] = &batch.points[..] else { panic!("{:?}", batch.points) };
        assert_eq!((first.at, first.value, second.value), (Moment(70), 500.0, 20.0));
        assert_ne!(first.epoch, second.epoch, "no rate from one load to the next");
        assert_eq!(registry.get(first.series).unwrap().name, catalogue::MONGO_TTL_DELETED.name);
    }

    #[test]
    fn a_thread_of_the_driver_is_a_connection() {
        let readings = Arc::new(Readings::default());
        let mut probe = EngineProbe::new(Arc::clone(&readings), "wiredtiger", NOBODY);
        readings.event(&json!({"event": "progress", "at_us": 70, "completed": 1, "threads_made": 90, "threads": 8}));
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        probe.read(&mut Sink::new(Moment(99), &registry, &mut batch, &mut absences)).unwrap();
        let named = |point: &backwater_model::Point| registry.get(point.series).unwrap().name.to_string();
        let found: Vec<_> = batch.points.iter().map(|point| (named(point), point.value)).collect();
        let [made, alive] =
            [&catalogue::MONGO_CONNECTIONS_CREATED, &catalogue::MONGO_CONNECTIONS].map(|def| def.name.to_owned());
        assert_eq!(found, [(made, 90.0), (alive, 8.0)]);
    }

    #[test]
    fn a_driver_in_a_replica_set_tells_how_far_a_majority_is() {
        let readings = Arc::new(Readings::default());
        let mut probe = EngineProbe::new(Arc::clone(&readings), "wiredtiger", NOBODY);
        readings.event(&json!({"event": "progress", "at_us": 70, "optime_s": 1000.5, "majority_s": 994.0}));
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        probe.read(&mut Sink::new(Moment(99), &registry, &mut batch, &mut absences)).unwrap();
        let named = |point: &backwater_model::Point| registry.get(point.series).unwrap().name.to_string();
        let found: Vec<_> = batch.points.iter().map(|point| (named(point), point.value)).collect();
        let told = [(&catalogue::MONGO_MEMBER_SELF, 1.0), (&catalogue::MONGO_MEMBER_OPTIME, 1000.5)];
        let told = told.into_iter().chain([(&catalogue::MONGO_COMMITTED, 994.0)]);
        assert_eq!(found, told.map(|(def, value)| (def.name.to_owned(), value)).collect::<Vec<_>>());
    }

    #[test]
    fn statistics_stand_at_the_moment_they_were_read_and_a_new_database_is_a_new_epoch() {
        let readings = Arc::new(Readings::default());
        let mut probe = EngineProbe::new(Arc::clone(&readings), "wiredtiger", NOBODY);
        let told =
            json!({"event": "statistics", "at_us": 70, "values": {"cache: tracked dirty bytes in the cache": 9}});
        let (registry, mut batch, mut absences) = (Registry::new(), Batch::default(), HashSet::new());
        for _ in 0..2 {
            readings.event(&told);
            probe.read(&mut Sink::new(Moment(99), &registry, &mut batch, &mut absences)).unwrap();
            readings.renew();
        }
        let found: Vec<_> = batch.points.iter().map(|point| (point.at, point.value)).collect();
        assert_eq!(found, [(Moment(70), 9.0); 2]);
        assert_ne!(batch.points[0].epoch, batch.points[1].epoch);
        assert_eq!(registry.get(batch.points[0].series).unwrap().name, catalogue::WT_CACHE_DIRTY.name);
    }
}
