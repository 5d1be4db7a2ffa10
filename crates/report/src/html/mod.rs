//! The page: one JSON document with everything it shows, and one HTML file with that document and the built page inside.
//!
//! [`document`] is a pure function of a window (and [`document_of`] of a recording of any length), its findings and a lab run's outcome; [`html`] puts it into a file that
//! opens from disk, asks no network, and runs nothing but its own script, whatever names and queries the recording holds.

mod axis;
mod document;
mod embed;
mod engine;
mod flow;
mod lab;
mod markdown;
mod marks;
mod panels;
mod parts;
mod path;
mod sessions;
mod shelf;
mod sources;
mod words;

pub use axis::{Axis, Lane};
pub use document::*;
pub use embed::{LivePage, LiveSource, html, live_html, live_policy};
pub use markdown::markdown;
pub use parts::{Parts, Stretch, document_of};
pub use path::has_queue;

use crate::findings::watched;
use backwater_diagnose::rule;
use backwater_model::{Finding, Meta, Outcome, Unit, Window};
use shelf::Shelf;
use std::collections::BTreeMap;

/// The most queues whose charts are drawn unasked.
const MOST_SHOWN_QUEUES: usize = 4;

/// Everything a page shows of a window: these findings, this lab run, and what was lost of the recording.
pub fn document(window: &Window, findings: &[Finding], outcome: Option<&Outcome>, warnings: &[String]) -> Document {
    let mut parts = Parts::of(window.from, window.to, &window.meta);
    parts.add(window, window.from);
    parts.document(findings, outcome, warnings)
}

/// Whether the path has words for queues of this kind: the part of a name before its `@`.
pub fn told_of(kind: &str) -> bool {
    words::of_kind(kind).is_some()
}

/// Every queue with its words, in Markdown: what `docs/reference/queues.md` holds.
pub fn queues_reference() -> String {
    words::reference()
}

/// A part of a document: what one window tells of the axis.
struct Part {
    series: Vec<Series>,
    panels: Vec<Panel>,
    path: WaterPath,
}

impl Part {
    fn of(window: &Window, axis: Axis) -> Part {
        let mut shelf = Shelf::new(window, axis);
        panels::load(&mut shelf);
        engine::engines(&mut shelf);
        panels::flow(&mut shelf);
        let path = path::path(&mut shelf);
        panels::resources(&mut shelf);
        Part { series: shelf.series, panels: shelf.panels, path }
    }
}

/// The document of everything that was taken in.
fn whole(parts: Parts, findings: &[Finding], outcome: Option<&Outcome>, warnings: &[String]) -> Document {
    let Parts {
        axis,
        to,
        meta,
        part: Part { series, mut panels, path },
        marks,
        phases,
        decisions,
        shards,
        unseen,
        failing,
        sight,
        sessions,
        ..
    } = parts;
    let blind = sight.blind().into_iter().map(|blind| blind.why).collect();
    show_first(&series, &mut panels, &path, findings, &meta);
    let (events, events_left_out) = marks::fitting(marks, marks::MOST_MARKS);
    let mut worst_first: Vec<&Finding> = findings.iter().collect();
    worst_first.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let view = |finding: &&Finding| FindingView {
        from_s: axis.seconds(finding.from),
        to_s: axis.seconds(finding.to),
        finding: (*finding).clone(),
    };
    let known = |finding: &Finding| {
        let rule = rule(&finding.rule)?;
        Some((finding.rule.clone(), RuleView { summary: rule.summary, page: rule.page }))
    };
    Document {
        format: "backwater-page",
        version: VERSION,
        about: about(&meta, to.seconds_since(axis.begin()), outcome, warnings),
        axis,
        series,
        panels,
        path,
        events,
        events_left_out,
        phases: marks::phases(&phases, to, &axis),
        findings: worst_first.iter().map(view).collect(),
        rules: findings.iter().filter_map(known).collect::<BTreeMap<_, _>>(),
        shards: shards.rows(),
        unseen,
        failing: failing.messages().map(str::to_owned).collect(),
        blind,
        sessions: sessions.map(sessions::finished),
        lab: outcome.map(lab::lab),
        flow: flow::flow(&decisions, &axis),
    }
}

/// Marks the charts that are drawn unasked: the load's, then those of queues that findings name, the binding ones first;
/// without findings, those that came closest to their limit.
fn show_first(series: &[Series], panels: &mut [Panel], path: &WaterPath, findings: &[Finding], meta: &Meta) {
    let most = |place: Option<usize>| series.get(place?)?.lane.max();
    let binding = findings.iter().map(|finding| (finding, &finding.queue));
    let victims = findings.iter().flat_map(|finding| finding.victims.iter().map(move |name| (finding, name)));
    let mut queues: Vec<&QueueView> = Vec::new();
    for (finding, name) in binding.chain(victims) {
        let its = |queue: &&QueueView| queue.name == *name && finding.concerns(queue.target.as_deref());
        queues.extend(path.queues.iter().find(its));
    }
    if queues.is_empty() {
        let fill = |queue: &QueueView| Some(most(queue.level)? / most(queue.hard_limit)?);
        let mut by_fill: Vec<(f64, &QueueView)> =
            path.queues.iter().filter_map(|queue| Some((fill(queue)?, queue))).collect();
        by_fill.sort_by(|a, b| b.0.total_cmp(&a.0));
        queues = by_fill.into_iter().map(|(_, queue)| queue).take(2).collect();
    }
    let mut shown: Vec<usize> = Vec::new();
    for queue in queues {
        if shown.len() < 2 * MOST_SHOWN_QUEUES && !queue.panels.iter().all(|panel| shown.contains(panel)) {
            shown.extend(&queue.panels);
        }
    }
    let devices = path.queues.iter().filter_map(|queue| queue.name.strip_prefix("host.disk@"));
    let operations: Vec<String> = devices.map(|dev| format!("Operations of {}", path::device(meta, dev))).collect();
    for (place, panel) in panels.iter_mut().enumerate() {
        let of_load = panel.group == "Load" && (panel.title == "Throughput" || panel.title.starts_with("Latency"));
        panel.shown =
            of_load || panel.group == panels::FLOW || shown.contains(&place) || operations.contains(&panel.title);
    }
}

fn about(meta: &Meta, seconds: f64, outcome: Option<&Outcome>, warnings: &[String]) -> About {
    let title = match outcome {
        Some(outcome) => format!("Experiment {}", outcome.scenario),
        None => watched(meta),
    };
    About {
        title,
        written_by: recorder(&meta.written_by),
        made_by: env!("CARGO_PKG_VERSION"),
        seconds,
        facts: facts(meta),
        warnings: warnings.to_vec(),
    }
}

/// Who recorded, for people: this program, or a server whose own records were read.
fn recorder(written_by: &str) -> String {
    match written_by.strip_prefix("backwater ") {
        Some(version) => format!("Backwater {version}"),
        None if written_by.is_empty() => "Backwater of an unknown version".to_owned(),
        None => written_by.to_owned(),
    }
}

fn facts(meta: &Meta) -> Vec<(String, String)> {
    let host = &meta.host;
    let fact = |name: &str, value: Option<String>| value.map(|value| (name.to_owned(), value));
    let mut list: Vec<(String, String)> = [
        fact("host", host.hostname.clone()),
        fact("kernel", host.kernel.clone()),
        fact("processors", host.cpus.map(|cpus| cpus.to_string())),
        fact("memory", host.memory_bytes.map(|bytes| Unit::Bytes.show(bytes as f64))),
        fact("congestion control", host.congestion_control.clone()),
    ]
    .into_iter()
    .flatten()
    .collect();
    for target in &meta.targets {
        let version = target.version_num.map(|version| format!(" {}", version / 10_000)).unwrap_or_default();
        list.push(("server".to_owned(), format!("{} ({}{version})", target.name, target.kind)));
    }
    for device in &meta.devices {
        let mount = device.mount_points.first().map(|mount| format!(", {mount}")).unwrap_or_default();
        list.push(("device".to_owned(), format!("{} ({}{mount})", device.name, device.dev)));
    }
    list
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use backwater_model::Unit;

    /// The page's own words for values are checked against the same file by web/test/units.test.mjs.
    #[test]
    fn the_page_writes_values_as_the_program_does() {
        let known: Vec<(Unit, f64, String)> =
            serde_json::from_str(include_str!("../../../../web/test/units.json")).unwrap();
        assert!(known.len() > 200);
        for (unit, value, text) in known {
            assert_eq!(unit.show(value), text, "{value} {unit:?}");
        }
    }
}
