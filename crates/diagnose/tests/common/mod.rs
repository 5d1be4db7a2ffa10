//! Windows for tests: a builder, a simulated plant, and runs that were measured on a real server.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

pub mod judged;
pub mod mongo_plant;
pub mod plant;
pub mod recorded;
pub mod run;
pub mod standbys;
pub mod wal_plant;

use backwater_model::catalogue::Def;
use backwater_model::{
    Device, Epoch, Event, Kind, Meta, Moment, Point, Role, Sample, Series, SeriesId, Target, Window,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Gathers readings into a window.
#[derive(Default)]
pub struct Readings {
    series: HashMap<Series, Vec<Point>>,
    pub samples: Vec<Sample>,
    pub events: Vec<Event>,
}

impl Readings {
    pub fn put(&mut self, def: &Def, labels: &[(&'static str, &str)], at_s: f64, value: f64) {
        let at = Moment::from_seconds(at_s);
        let point = Point { at, series: SeriesId(0), epoch: Epoch(7), value, as_of: None };
        self.push(def, labels, point);
    }

    pub fn push(&mut self, def: &Def, labels: &[(&'static str, &str)], point: Point) {
        self.series.entry(def.series(labels)).or_default().push(point);
    }

    /// Every series with its points.
    pub fn into_series(self) -> impl Iterator<Item = (Series, Vec<Point>)> {
        self.series.into_iter()
    }

    /// Drops every reading of series whose name begins so.
    pub fn forget(&mut self, prefix: &str) {
        self.series.retain(|series, _| !series.name.starts_with(prefix));
    }

    /// Puts other readings, of so many seconds, before these: counters run on from where those ended.
    pub fn after(&mut self, before: Readings, seconds: f64) {
        let back = |at: Moment| Moment::from_seconds(at.seconds() - seconds);
        for (series, points) in before.series {
            let counts = series.kind != Kind::Gauge;
            let own = self.series.entry(series).or_default();
            let last = points.last().map_or(0.0, |point| point.value);
            let lift = own.first().filter(|_| counts).map_or(0.0, |first| last - first.value);
            own.iter_mut().for_each(|point| point.value += lift);
            // The last reading there and the first here are of the same moment.
            let count = if own.is_empty() { points.len() } else { points.len() - 1 };
            let earlier = points.into_iter().take(count).map(|point| Point { at: back(point.at), ..point });
            own.splice(0..0, earlier);
        }
        let earlier = before.samples.into_iter().map(|sample| Sample { at: back(sample.at), ..sample });
        self.samples.splice(0..0, earlier);
    }

    /// Makes every value of series whose name begins so older by so many seconds than its source said.
    pub fn age(&mut self, prefix: &str, seconds: f64) {
        let named = self.series.iter_mut().filter(|(series, _)| series.name.starts_with(prefix));
        for point in named.flat_map(|(_, points)| points) {
            point.as_of = point.as_of.map(|as_of| Moment::from_seconds(as_of.seconds() - seconds));
        }
    }

    /// Drops everything read between two moments.
    pub fn gap(&mut self, from_s: f64, to_s: f64) {
        let inside = |at: Moment| from_s < at.seconds() && at.seconds() < to_s;
        self.series.values_mut().for_each(|points| points.retain(|point| !inside(point.at)));
        self.samples.retain(|sample| !inside(sample.at));
    }

    pub fn window(self, meta: Meta, from_s: f64, to_s: f64) -> Window {
        let series = self.series.into_iter().map(|(series, points)| (Arc::new(series), points)).collect();
        let (from, to) = (Moment::from_seconds(from_s), Moment::from_seconds(to_s));
        Window::new(from, to, Arc::new(meta), series, self.samples, self.events)
    }
}

/// A host with one server on loop0 (7:0).
pub fn meta() -> Meta {
    let mut meta = Meta::default();
    meta.host.cpus = Some(2);
    meta.host.cgroup_version = Some("v1".into());
    meta.host.sysctls = [("vm.dirty_ratio", "20"), ("vm.dirty_background_ratio", "10"), ("vm.dirty_bytes", "0")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    meta.devices = vec![Device {
        dev: "7:0".into(),
        name: "loop0".into(),
        mount_points: vec!["/mnt".into()],
        roles: vec![(Role::Data, "lab".into())],
        ..Device::default()
    }];
    meta.targets = vec![Target {
        name: "lab".into(),
        kind: "postgres".into(),
        local: true,
        data_device: Some("7:0".into()),
        settings: [("max_wal_size", "1GB"), ("checkpoint_completion_target", "0.9")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..Target::default()
    }];
    meta
}

/// One client session as a sample.
pub fn session(at_s: f64, pid: i32, state: &str, wait: Option<(&str, &str)>, kernel: Option<(&str, char)>) -> Sample {
    Sample {
        at: Moment::from_seconds(at_s),
        target: "lab".into(),
        pid,
        backend_type: Some("client backend".into()),
        state: Some(state.into()),
        wait_event_type: wait.map(|(kind, _)| kind.into()),
        wait_event: wait.map(|(_, event)| event.into()),
        kernel_wait: kernel.map(|(function, _)| function.into()),
        kernel_state: kernel.map(|(_, state)| state),
        ..Sample::default()
    }
}
