//! The path: which queues there are, in which row each stands, and what flows into what.

use super::document::{CurveRole, QueueView, StageView, WaterPath};
use super::shelf::Shelf;
use super::words::{self, Words};
use super::{axis::Lane, sources};
use backwater_diagnose::{queues, replication_path, replication_queues, standby_names};
use backwater_model::{Meta, QueueSpec, Source, Window};
use std::collections::BTreeMap;

/// A row's place: those of servers first, in the recording's order, then those of standbys.
type RowKey = (usize, usize, String);

/// Every queue of which something is known, with its series and charts.
pub(super) fn path(shelf: &mut Shelf<'_>) -> WaterPath {
    let window = shelf.window;
    let specs: Vec<QueueSpec> = queues(&window.meta).into_iter().chain(replication_queues(window)).collect();
    let mut found: Vec<(RowKey, QueueView)> = Vec::new();
    for spec in &specs {
        let Some(words) = words::of(&spec.name) else { continue };
        let target = spec.label("target").map(str::to_owned);
        if let Some(view) = queue(shelf, spec, words, target.clone()) {
            found.push((row(&window.meta, &spec.name, target.as_deref()), view));
        }
    }
    let numbers: BTreeMap<RowKey, usize> = {
        let keys: std::collections::BTreeSet<RowKey> = found.iter().map(|(key, _)| key.clone()).collect();
        keys.into_iter().enumerate().map(|(number, key)| (key, number)).collect()
    };
    let mut views: Vec<QueueView> =
        found.into_iter().map(|(key, view)| QueueView { row: numbers[&key], ..view }).collect();
    views.sort_by_key(|view| (view.row, view.step));
    WaterPath {
        rows: numbers.into_keys().map(|(_, _, title)| title).collect(),
        links: links(&window.meta, &views),
        queues: views,
        stages: stages(window),
    }
}

fn row(meta: &Meta, name: &str, target: Option<&str>) -> RowKey {
    let place = |name: &str| meta.targets.iter().position(|target| target.name == name).unwrap_or(meta.targets.len());
    let at = words::place(name).unwrap_or_default();
    if name.starts_with("pg.wal.") && !at.is_empty() {
        return (usize::MAX, 0, format!("WAL to {at}"));
    }
    let user = |target: &&backwater_model::Target| {
        let own = [&target.data_device, &target.wal_device, &target.memory_cgroup];
        own.into_iter().any(|own| own.as_deref() == Some(at))
    };
    let owner = target.map(str::to_owned).or_else(|| meta.targets.iter().find(user).map(|target| target.name.clone()));
    let Some(owner) = owner else { return (meta.targets.len(), 0, format!("Device {}", device(meta, at))) };
    if name == "pg.commit" || name.starts_with("pg.wal.") {
        (place(&owner), 0, format!("{owner}: commits and WAL"))
    } else {
        (place(&owner), 1, format!("{owner}: pages on their way to disk"))
    }
}

/// A device's number with its kernel name.
pub(super) fn device(meta: &Meta, dev: &str) -> String {
    meta.device(dev).map_or_else(|| dev.to_owned(), |device| format!("{} ({dev})", device.name))
}

fn queue(shelf: &mut Shelf<'_>, spec: &QueueSpec, words: &'static Words, target: Option<String>) -> Option<QueueView> {
    let (window, axis) = (shelf.window, shelf.axis);
    let own = match words::place(&spec.name) {
        Some(at) => format!("{}, {}", words.title, device(&window.meta, at)),
        None => match &target {
            Some(target) if window.meta.targets.len() > 1 => format!("{}, {target}", words.title),
            _ => words.title.to_owned(),
        },
    };
    let level = sources::level(&spec.level, window, &axis);
    // A standby's checkpoints move, but how far it has come since cannot be known: that is no queue to show.
    if !level.known() {
        return None;
    }
    let inflow = sources::rate(&spec.inflow, window, &axis);
    let outflow = sources::rate(&spec.outflow, window, &axis);
    let gauge = |source: &Source| -> Lane { sources::gauge(source, window, &axis) };
    let (soft, hard, waiters) = (gauge(&spec.soft_limit), gauge(&spec.hard_limit), gauge(&spec.waiters));
    let rate_unit = spec.unit.per_second();
    let level = shelf.keep("level", spec.unit, level);
    let soft_limit = shelf.keep("soft limit", spec.unit, soft);
    let hard_limit = shelf.keep("hard limit", spec.unit, hard);
    let inflow = shelf.keep("arrives", rate_unit, inflow);
    let outflow = shelf.keep("leaves", rate_unit, outflow);
    let waiters = shelf.keep("sessions waiting", backwater_model::Unit::Count, waiters);
    let of_level = [(level, CurveRole::Line), (soft_limit, CurveRole::SoftLimit), (hard_limit, CurveRole::HardLimit)];
    let of_flow = [(inflow, CurveRole::Line), (outflow, CurveRole::Line)];
    let panels = [
        shelf.chart(&spec.name, &format!("{own}: level"), spec.unit, &of_level),
        shelf.chart(&spec.name, &format!("{own}: flow"), rate_unit, &of_flow),
    ];
    Some(QueueView {
        name: spec.name.clone(),
        target,
        title: words.title.to_owned(),
        about: words.about,
        at_limit: words.at_limit,
        row: 0,
        step: words.step,
        unit: spec.unit,
        level,
        soft_limit,
        hard_limit,
        inflow,
        outflow,
        waiters,
        panels: panels.into_iter().flatten().collect(),
    })
}

/// What flows into what: the next of the same row, what is flushed to the device of WAL, and what is flushed to standbys.
fn links(meta: &Meta, views: &[QueueView]) -> Vec<(usize, usize)> {
    let mut links = Vec::new();
    for (from, view) in views.iter().enumerate() {
        let next = words::of(&view.name).and_then(|words| words.next);
        let kind = |other: &QueueView| other.name.split('@').next().map(str::to_owned);
        let within = |other: &QueueView| other.row == view.row && kind(other).as_deref() == next;
        links.extend((0..views.len()).filter(|to| next.is_some() && within(&views[*to])).map(|to| (from, to)));
        if view.name == "pg.wal.local_flush" {
            let owner = meta.targets.iter().find(|target| Some(&target.name) == view.target.as_ref());
            let dev = owner.and_then(|owner| owner.wal_device.as_ref().or(owner.data_device.as_ref()));
            let disk = dev.map(|dev| format!("host.disk@{dev}"));
            let sends = |other: &QueueView| other.name.starts_with("pg.wal.send@") && other.target == view.target;
            let to = |other: &QueueView| Some(&other.name) == disk.as_ref() || sends(other);
            links.extend((0..views.len()).filter(|place| to(&views[*place])).map(|place| (from, place)));
        }
    }
    links
}

/// The stages to every standby, with their shares of the whole recording.
fn stages(window: &Window) -> Vec<StageView> {
    let mut list = Vec::new();
    for target in &window.meta.targets {
        for standby in standby_names(window, &target.name) {
            let path = replication_path(window, &target.name, &standby, window.seconds());
            list.extend(path.stages.into_iter().map(|stage| StageView { standby: standby.clone(), stage }));
        }
    }
    list
}
