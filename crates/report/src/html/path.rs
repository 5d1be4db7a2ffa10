//! The path: which queues there are, in which row each stands, and what flows into what.

use super::axis::{Axis, Lane};
use super::document::{CurveRole, DocPage, QueueView, StageView, WaterPath};
use super::shelf::Shelf;
use super::sources;
use super::words::{self, Part, Words};
use backwater_diagnose::{all_queues, replication_path, standby_names};
use backwater_model::{Meta, QueueSpec, Role, Source, Target, Window};
use std::collections::{BTreeMap, BTreeSet};

/// A row's place: those of servers first, in the recording's order, then those of devices and links of no server, then those
/// of standbys.
type RowKey = (usize, usize, String);

/// Whether anything is known of any queue that a page would show: without one, rules had nothing to judge.
pub fn has_queue(window: &Window) -> bool {
    let axis = Axis::between(window.from, window.to, &window.meta);
    let known = |spec: &QueueSpec| {
        let moves = || [&spec.inflow, &spec.outflow].map(|flow| sources::rate(flow, window, &axis).known());
        let level = || sources::level(&spec.level, window, &axis).known();
        words::of(&spec.name).is_some_and(|words| level() || (!words.counted && moves().contains(&true)))
    };
    all_queues(window).iter().any(known)
}

/// Every queue of which something is known, with its series and charts.
pub(super) fn path(shelf: &mut Shelf<'_>) -> WaterPath {
    let window = shelf.window;
    let mut found: Vec<(RowKey, QueueView)> = Vec::new();
    for spec in &all_queues(window) {
        let Some(words) = words::of(&spec.name) else { continue };
        let owner = owner(&window.meta, spec);
        if let Some(view) = queue(shelf, spec, words, owner.clone()) {
            found.push((row(&window.meta, &spec.name, words, owner.as_deref()), view));
        }
    }
    let numbers: BTreeMap<RowKey, usize> = {
        let keys: BTreeSet<RowKey> = found.iter().map(|(key, _)| key.clone()).collect();
        keys.into_iter().enumerate().map(|(number, key)| (key, number)).collect()
    };
    let mut views: Vec<QueueView> =
        found.into_iter().map(|(key, view)| QueueView { row: numbers[&key], ..view }).collect();
    views.sort_by(|a, b| (a.row, a.step, &a.name).cmp(&(b.row, b.step, &b.name)));
    // Two of a kind in one row (devices, members) stand one after the other.
    for place in 1..views.len() {
        let before = (views[place - 1].row, views[place - 1].step);
        if views[place].row == before.0 && views[place].step <= before.1 {
            views[place].step = before.1 + 1;
        }
    }
    WaterPath {
        rows: numbers.into_keys().map(|(_, _, title)| title).collect(),
        links: links(&window.meta, &views),
        queues: views,
        stages: stages(window),
    }
}

/// The server whose queue it is, as its series or its name tell; none of what is the host's.
fn owner(meta: &Meta, spec: &QueueSpec) -> Option<String> {
    let named = || words::place(&spec.name).filter(|at| meta.targets.iter().any(|target| target.name == *at));
    spec.server().or_else(named).map(str::to_owned)
}

fn row(meta: &Meta, name: &str, words: &Words, owner: Option<&str>) -> RowKey {
    let at = words::place(name).unwrap_or_default();
    if words.part == Part::Standby {
        return (usize::MAX, 0, format!("WAL to {at}"));
    }
    let uses = |target: &&Target| {
        let own = [&target.data_device, &target.wal_device, &target.memory_cgroup];
        let role = |(_, of): &(Role, String)| *of == target.name;
        let roles = meta.device(at).is_some_and(|device| device.roles.iter().any(role));
        roles || own.into_iter().any(|own| own.as_deref() == Some(at))
    };
    let only = || (words.part == Part::Results && meta.targets.len() == 1).then(|| &meta.targets[0]);
    let user = || meta.targets.iter().find(uses).or_else(only).map(|target| target.name.as_str());
    let Some(owner) = owner.or_else(user) else {
        let title = match words.part {
            Part::Results => "The host's network".to_owned(),
            _ if at.is_empty() => "The host's pages on their way to disk".to_owned(),
            _ => format!("Device {}", device(meta, at)),
        };
        return (meta.targets.len(), 0, title);
    };
    let place = meta.targets.iter().position(|target| target.name == owner).unwrap_or(meta.targets.len());
    let server = meta.targets.get(place);
    let kept_apart = |target: &Target| {
        let data = data_device(meta, target);
        words.kind.starts_with("host.")
            && data.is_some()
            && data != Some(at)
            && target.memory_cgroup.as_deref() != Some(at)
    };
    let postgres = server.is_none_or(|target| !target.is_engine());
    let (order, what) = match words.part {
        Part::Writes if postgres => (0, "commits and WAL".to_owned()),
        Part::Writes => (0, "operations and writes".to_owned()),
        Part::Reads => (1, "reads, and what they keep".to_owned()),
        Part::Pages if server.is_some_and(kept_apart) => (3, format!("device {}", device(meta, at))),
        Part::Pages => (2, "pages on their way to disk".to_owned()),
        Part::Members => (4, "the oplog and its members".to_owned()),
        Part::Results | Part::Standby => (5, "on the network".to_owned()),
    };
    (place, order, format!("{owner}: {what}"))
}

/// Where a server's data lie: as it says, else by the roles of devices.
fn data_device<'a>(meta: &'a Meta, target: &'a Target) -> Option<&'a str> {
    let role = || meta.devices.iter().find(|device| device.roles.contains(&(Role::Data, target.name.clone())));
    target.data_device.as_deref().or_else(|| role().map(|device| device.dev.as_str()))
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
    let inflow = sources::rate(&spec.inflow, window, &axis);
    let outflow = sources::rate(&spec.outflow, window, &axis);
    // A standby's checkpoints move, but how far it has come since cannot be known: that is no queue to show.
    if !level.known() && (words.counted || !(inflow.known() || outflow.known())) {
        return None;
    }
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
        docs: words.docs.iter().map(|(title, url)| DocPage { title, url }).collect(),
        row: 0,
        step: words.step,
        unit: spec.unit,
        level,
        soft_limit,
        hard_limit,
        held_midway: spec.held_midway,
        inflow,
        outflow,
        waiters,
        at_least: spec.at_least,
        panels: panels.into_iter().flatten().collect(),
    })
}

/// What flows into what: the next kinds of the same row or of the same server, and what is flushed to the log's device and to
/// standbys.
fn links(meta: &Meta, views: &[QueueView]) -> Vec<(usize, usize)> {
    let mut links = Vec::new();
    for (from, view) in views.iter().enumerate() {
        let next = words::of(&view.name).map_or(&[][..], |words| words.next);
        links.extend(next.iter().flat_map(|kind| nearest(views, from, kind)).map(|to| (from, to)));
        if ["pg.wal.local_flush", "wt.journal"].contains(&words::kind(&view.name)) {
            let owner = meta.targets.iter().find(|target| Some(&target.name) == view.target.as_ref());
            let dev = owner.and_then(|owner| owner.wal_device.as_deref().or_else(|| data_device(meta, owner)));
            let disk = dev.map(|dev| format!("host.disk@{dev}"));
            let sends = |other: &QueueView| other.name.starts_with("pg.wal.send@") && other.target == view.target;
            let to = |other: &QueueView| Some(&other.name) == disk.as_ref() || sends(other);
            links.extend((0..views.len()).filter(|place| to(&views[*place])).map(|place| (from, place)));
        }
    }
    links
}

/// The queues of this kind into which one flows; where none is known, those into which that kind flows.
fn nearest(views: &[QueueView], from: usize, kind: &str) -> Vec<usize> {
    let view = &views[from];
    let here = |other: &QueueView| {
        let own = other.row == view.row || (view.target.is_some() && other.target == view.target);
        // The host's interfaces carry what all servers send.
        let carried = kind == "host.net" && other.target.is_none();
        // What is dirty of a device goes to that device.
        let both = words::place(&view.name).zip(words::place(&other.name));
        let elsewhere =
            |(own, other): (&str, &str)| own != other && views.iter().any(|one| one.name == format!("{kind}@{own}"));
        words::kind(&other.name) == kind && (own || carried) && !both.is_some_and(elsewhere)
    };
    let found: Vec<usize> = (0..views.len()).filter(|place| here(&views[*place])).collect();
    match words::of_kind(kind) {
        Some(words) if found.is_empty() => words.next.iter().flat_map(|kind| nearest(views, from, kind)).collect(),
        _ => found,
    }
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
