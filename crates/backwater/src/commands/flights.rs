//! Flight recorders of several servers at once: each is diagnosed by itself, and shards are compared with one another.

use super::{flight, stretches};
use crate::args::{Beside, Stretch};
use crate::terminal;
use anyhow::bail;
use backwater_diagnose::{Options, Shards, gather};
use backwater_model::{DeclaredVolume, Event, EventKind, Finding, Meta, Moment, Point, Series, Target, Window};
use backwater_probe::mongodb::Flight;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// The rule about servers beside one another; all others speak of one, which is looked at by itself.
const BESIDE_ONE_ANOTHER: &str = "shard-unlike";

/// The targets, if they are flight recorders and more than one.
pub(crate) fn paths(targets: &[String]) -> Option<Vec<&Path>> {
    let paths: Vec<&Path> = targets.iter().map(Path::new).collect();
    (paths.len() > 1 && paths.iter().all(|path| Flight::is_at(path))).then_some(paths)
}

/// The findings of each, then those about shards side by side; a window that names all servers, without readings; and the shards.
pub(crate) fn findings(
    paths: &[&Path],
    stretch: &Stretch,
    beside: &Beside,
    volumes: &[DeclaredVolume],
    options: &Options,
) -> anyhow::Result<(Vec<Finding>, Window, Shards)> {
    if !beside.logs.is_empty() {
        bail!("--log goes with one flight recorder: of several it would not be known whose log it is");
    }
    let (mut flights, mut all, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
    for path in paths {
        let (own, about) = flight::findings(path, stretch, beside, volumes, options)?;
        let opened = flight::open(path, stretch, beside)?;
        let name = opened.0.meta().targets.first().map(|target| target.name.clone());
        unseen.extend(about.events_of(EventKind::Absent).map(|event| named(name.as_deref(), event)));
        all.extend(own.into_iter().map(|finding| Finding { server: finding.server.or(name.clone()), ..finding }));
        flights.push(opened);
    }
    let targets = targets(&flights)?;
    // All recorders' moments are those of the wall clock.
    let anchors = flights.first().map(|(flight, ..)| flight.meta().anchors.clone()).unwrap_or_default();
    let meta = Arc::new(Meta { targets, anchors, ..Meta::default() });
    let from = flights.iter().map(|(_, from, _)| *from).max().unwrap_or_default();
    let to = flights.iter().map(|(_, _, to)| *to).min().unwrap_or_default();
    let mut shards = Shards::default();
    if from < to {
        let windows = stretches::bounds(from, to).map(|stretch| side_by_side(&flights, stretch, &meta));
        let mut walked = stretches::walk(windows, stretches::several(), options)?;
        walked.parts.iter_mut().for_each(|part| part.retain(|found| found.rule == BESIDE_ONE_ANOTHER));
        all.extend(gather(walked.parts));
        shards = walked.shards;
    } else {
        terminal::note("these recorders tell of no time in common, so that nothing was compared");
    }
    // As they were told within each, the worst of all first.
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok((all, Window::new(from, to.max(from), meta, Vec::new(), Vec::new(), unseen), shards))
}

/// What could not be seen of one of them, with its name.
fn named(name: Option<&str>, event: &Event) -> Event {
    let mut event = event.clone();
    if let Some((what, name)) = event.fields.get_mut("what").zip(name) {
        what.push_str(&format!(" of {name}"));
    }
    event
}

/// Every server, none twice. Devices are left out: those of two hosts may have the same name.
fn targets(flights: &[(Flight, Moment, Moment)]) -> anyhow::Result<Vec<Target>> {
    let (mut seen, mut targets) = (HashSet::new(), Vec::new());
    for target in flights.iter().flat_map(|(flight, ..)| &flight.meta().targets) {
        if !seen.insert(target.name.clone()) {
            bail!("two of these recorders are of the same server, {}", target.name);
        }
        targets.push(Target { data_device: None, wal_device: None, ..target.clone() });
    }
    Ok(targets)
}

/// One window of what all of them tell of the same stretch.
fn side_by_side(
    flights: &[(Flight, Moment, Moment)],
    (from, to): (Moment, Moment),
    meta: &Arc<Meta>,
) -> anyhow::Result<Window> {
    let mut series: Vec<(Arc<Series>, Vec<Point>)> = Vec::new();
    for (flight, ..) in flights {
        let window = flight.window(from, to)?;
        let own = window.all_tracks().filter(|track| track.series.labels.get("target").is_some());
        series.extend(own.map(|track| (Arc::new(track.series.clone()), track.points.to_vec())));
    }
    Ok(Window::new(from, to, Arc::clone(meta), series, Vec::new(), Vec::new()))
}
