//! What a finished run shows a person: curves, advice, and what came of it in a few sentences.

use backwater_diagnose::{Advice, AdviseOptions, advise, blind};
use backwater_lab::metrics::{Phases, throughput};
use backwater_lab::scenario::{DirtyLimit, LoadKind, Scenario};
use backwater_model::{
    ArmOutcome, EventKind, Finding, Moment, Outcome, ParamValue, Point, Span, Track, Unit, Window, catalogue,
};
use backwater_record::Recording;
use backwater_report::{Curve, Judged, Panel, Style, html, panels};
use std::path::Path;

/// The recording of a run, read back.
pub(crate) struct Seen {
    pub(crate) window: Window,
    device: Option<String>,
}

impl Seen {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Seen> {
        let recording = Recording::open(dir)?;
        let device = recording.meta().targets.iter().find_map(|target| target.data_device.clone());
        Ok(Seen { window: recording.window(None, None)?, device })
    }

    /// Of every arm's first repeat, on one time axis: throughput and dirty level, or over a network latency, link and queue.
    pub(crate) fn plots(&self, scenario: &Scenario, outcome: &Outcome, style: &Style) -> String {
        let mut text = String::new();
        for arm in &outcome.arms {
            let Some(phases) = phases_of(&self.window, &arm.name, 1) else { continue };
            let part = self.window.slice(phases.load_start, phases.end);
            let shown = match scenario.load.kind {
                LoadKind::NetOverload => over_network(&part, arm, phases),
                _ => {
                    let dirty = self.device.as_deref().map(|device| dirty(&part, device, phases));
                    std::iter::once(transactions(&part, phases)).chain(dirty).collect()
                }
            };
            let mut marks = vec![(phases.load_end.seconds_since(phases.load_start), "load ends".to_owned())];
            marks.extend(arm.metrics.get("time_to_cliff_s").map(|at| (*at, "cliff".to_owned())));
            marks.extend(arm.metrics.get("predicted_time_to_cliff_s").map(|at| (*at, "predicted".to_owned())));
            text.push_str(&format!("\nArm {}\n{}\n", arm.name, panels(&shown, &marks, style)));
        }
        text
    }

    /// What was found in the first arm in which anything was, whole; of the others by name.
    pub(crate) fn findings(&self, outcome: &Outcome, style: &Style) -> String {
        let mut text = String::new();
        let of = |arm: &ArmOutcome| outcome.findings.iter().filter(|f| self.is_of(f, &arm.name)).cloned().collect();
        let findings: Vec<Vec<Finding>> = outcome.arms.iter().map(of).collect();
        let whole = findings.iter().position(|own| !own.is_empty()).unwrap_or(0);
        for (place, (arm, own)) in outcome.arms.iter().zip(findings).enumerate() {
            if place == whole {
                let judged = Judged::of(html::has_queue(&self.window), !blind(&self.window).is_empty());
                let found = backwater_report::findings(&own, &self.window.meta, judged, style);
                text.push_str(&format!("Found in arm {}\n{found}\n", arm.name));
            } else {
                let names: Vec<String> =
                    own.iter().map(|finding| format!("{} ({})", finding.rule, finding.cause)).collect();
                let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                text.push_str(&format!("Found in arm {}: {names}\n", arm.name));
            }
        }
        text
    }

    /// Whether a finding lies within a repeat of this arm.
    fn is_of(&self, finding: &Finding, arm: &str) -> bool {
        let starts = self.window.events_of(EventKind::Mark).filter(|event| event.at <= finding.to);
        let last = starts.filter(|event| event.fields.get("phase").is_some_and(|phase| phase == "load")).last();
        last.and_then(|event| event.fields.get("arm")).is_some_and(|of| of == arm)
    }

    /// What `advise` says of the repeat that the advised arm was set by.
    pub(crate) fn advice(&self, scenario: &Scenario, outcome: &Outcome) -> Option<Advice> {
        let advised = scenario.arms.iter().find(|arm| arm.dirty_limit == DirtyLimit::Advised)?;
        let ran = outcome.arms.iter().find(|arm| arm.name == advised.name).and_then(|arm| arm.advised.as_ref());
        // What was not run is advised all the same.
        let repeat = ran.map_or(1, |ran| ran.repeat);
        let phases = phases_of(&self.window, advised.advised_from.as_deref()?, repeat)?;
        let options = AdviseOptions { drain_target_s: scenario.run.drain_target_s, ..AdviseOptions::default() };
        Some(advise(&self.window.slice(phases.load_start, phases.load_end), &options))
    }
}

/// What came of it, in a few sentences with the figures that matter.
pub(crate) fn conclusion(scenario: &Scenario, outcome: &Outcome) -> String {
    let arm = |name: &str| outcome.arms.iter().find(|arm| arm.name == name);
    let advised = scenario.arms.iter().find(|arm| arm.dirty_limit == DirtyLimit::Advised);
    let before = advised.and_then(|arm| arm.advised_from.as_deref()).and_then(arm);
    let after = advised.and_then(|advised| arm(&advised.name));
    let mut lines = Vec::new();
    if let Some(before) = before {
        lines.extend(fall(before));
    }
    if let (Some(before), Some(after)) = (before, after) {
        lines.extend(change(before, after, scenario.run.drain_target_s));
    }
    if lines.is_empty() {
        return String::new();
    }
    format!("In short\n  {}\n", lines.join("\n  "))
}

fn shown(arm: &ArmOutcome, name: &str, unit: Unit) -> Option<String> {
    arm.metrics.get(name).map(|value| unit.show(*value))
}

fn fall(arm: &ArmOutcome) -> Option<String> {
    let at = shown(arm, "time_to_cliff_s", Unit::Seconds)?;
    let predicted = shown(arm, "predicted_time_to_cliff_s", Unit::Seconds);
    let predicted = predicted.map(|at| format!(" (predicted from the first 3 s: {at})")).unwrap_or_default();
    let (peak, after) = (shown(arm, "tps_peak", Unit::PerSecond)?, shown(arm, "tps_after", Unit::PerSecond)?);
    let drain = shown(arm, "drain_s", Unit::Seconds)?;
    Some(format!(
        "After {at}{predicted} throughput fell from {peak} to {after}; when the load had ended, {drain} were needed to drain."
    ))
}

fn change(before: &ArmOutcome, after: &ArmOutcome, target_s: f64) -> Option<String> {
    let pair = |name, unit| Some((shown(before, name, unit)?, shown(after, name, unit)?));
    let drain = pair("drain_s", Unit::Seconds)?;
    let dirty = pair("dirty_peak_bytes", Unit::Bytes)?;
    let least = pair("tps_least", Unit::PerSecond)?;
    let mean = pair("tps_mean", Unit::PerSecond)?;
    let p99 = pair("latency_p99_ms", Unit::Milliseconds)?;
    let predicted = shown(after, "predicted_drain_s", Unit::Seconds);
    let predicted = predicted.map(|drain| format!(" (predicted as its load ended: {drain})")).unwrap_or_default();
    Some(format!(
        "With the advised limit (for a drain within {target_s} s): drain {} -> {}{predicted}; data at risk {} -> {}.\n  \
         What it costs: mean {} -> {}, worst second {} -> {}, latency p99 from the intended start {} -> {}, because the\n  \
         queue that was filled for free is smaller. A limit bounds the drain and what is at risk; it does not make the\n  \
         volume faster. Under a load that lasts, both end at what the volume can write; only more of that raises it.",
        drain.0, drain.1, dirty.0, dirty.1, mean.0, mean.1, least.0, least.1, p99.0, p99.1
    ))
}

fn phases_of(window: &Window, arm: &str, repeat: usize) -> Option<Phases> {
    let repeat = repeat.to_string();
    let at = |phase: &str| -> Option<Moment> {
        let marks = window.events_of(EventKind::Mark);
        let wanted = [("arm", arm), ("repeat", &repeat), ("phase", phase)];
        let is = |event: &backwater_model::Event, name: &str, value: &str| {
            event.fields.get(name).is_some_and(|own| own == value)
        };
        // A repeat that was given up was begun again.
        marks.filter(|event| wanted.iter().all(|(name, value)| is(event, name, value))).last().map(|event| event.at)
    };
    Some(Phases { load_start: at("load")?, load_end: at("drain")?, end: at("end")? })
}

fn transactions(window: &Window, phases: Phases) -> Panel {
    let points = throughput(window, phases.load_start, phases.end);
    Panel {
        title: "Transactions a second".to_owned(),
        curves: vec![Curve { label: "TPS".to_owned(), points, unit: Unit::PerSecond }],
        limits: Vec::new(),
    }
}

/// How long an urgent query takes, what the server's host sends, and what stands in line there.
fn over_network(window: &Window, arm: &ArmOutcome, phases: Phases) -> Vec<Panel> {
    let after = |at: Moment| at.seconds_since(phases.load_start);
    let limit = arm.params.get("network_bytes_per_s").and_then(|value| match value {
        ParamValue::Number(bytes_per_s) => Some(("the link".to_owned(), *bytes_per_s)),
        _ => None,
    });
    let panel = |title: &str, label: &str, unit, points, limits| Panel {
        title: title.to_owned(),
        curves: vec![Curve { label: label.to_owned(), unit, points }],
        limits,
    };
    let rates = |def: &catalogue::Def| {
        window.track(def.name, &[]).map(|track| track.rates(STEP_S)).unwrap_or_default().into_iter()
    };
    let (took, done) = (rates(&catalogue::LOAD_LATENCY_US), rates(&catalogue::LOAD_COMPLETED));
    let means = took.zip(done).filter(|(took, done)| took.to == done.to && done.per_second > 0.0);
    let latency = means.map(|(took, done)| (after(took.to), took.per_second / done.per_second)).collect();
    // The server's, and not those of the host that the lab runs on.
    let server = window.meta.targets.first().map(|target| [("target", target.name.as_str())]);
    let interfaces = window.tracks(catalogue::NET_SENT_BYTES.name, server.as_ref().map_or(&[], |labels| labels));
    let busiest = interfaces.max_by(|a, b| sent_bytes(a).total_cmp(&sent_bytes(b)));
    let sent = busiest.map(|track| track.rates(STEP_S)).unwrap_or_default();
    let sent = sent.iter().map(|rate| (after(rate.to), rate.per_second)).collect();
    vec![
        panel("Urgent query", "latency, mean", Unit::Microseconds, latency, Vec::new()),
        panel("Sent by the server's host", "bytes a second", Unit::BytesPerSecond, sent, limit.into_iter().collect()),
        panel("Send queues of the server's sockets", "in all", Unit::Bytes, queued(window, phases), Vec::new()),
    ]
}

/// Between two values of a curve over the network, in seconds.
const STEP_S: f64 = 0.5;

/// How old a reading of the queues may be, in seconds: they are read once a second, and not to the tenth.
const QUEUES_S: f64 = 2.5;

fn sent_bytes(track: &Track<'_>) -> f64 {
    track.points.first().zip(track.points.last()).map_or(0.0, |(first, last)| last.value - first.value)
}

/// What stands in all send queues together, over time.
fn queued(window: &Window, phases: Phases) -> Vec<(f64, f64)> {
    let tracks: Vec<Track<'_>> = window.tracks(catalogue::TCP_SENDQ.name, &[]).collect();
    let seconds = phases.end.seconds_since(phases.load_start);
    let steps = (seconds / STEP_S) as u32;
    let at = |step: u32| {
        let at = phases.load_start + Span::from_seconds(f64::from(step) * STEP_S);
        let values: Vec<f64> = tracks.iter().filter_map(|track| Some(track.at(at, QUEUES_S)?.value)).collect();
        (!values.is_empty()).then(|| (f64::from(step) * STEP_S, values.iter().sum()))
    };
    (0..=steps).filter_map(at).collect()
}

fn dirty(window: &Window, device: &str, phases: Phases) -> Panel {
    let labels = [("dev", device)];
    let level = |def: &catalogue::Def| window.track(def.name, &labels);
    let Some((reclaimable, writeback)) = level(&catalogue::BDI_RECLAIMABLE).zip(level(&catalogue::BDI_WRITEBACK))
    else {
        return dirty_on_host(window, phases);
    };
    let limit = level(&catalogue::BDI_DIRTY_THRESH).and_then(|track| track.max());
    let host = level(&catalogue::BDI_GLOBAL_DIRTY_THRESH).and_then(|track| track.max());
    let host_background = level(&catalogue::BDI_BACKGROUND_THRESH).and_then(|track| track.max());
    // The kernel scales the background limit as it scales the threshold.
    let background = limit.zip(host.zip(host_background)).map(|(limit, (host, soft))| limit * soft / host);
    level_and_limits(format!("Dirty pages of {device}"), sum(&reclaimable, &writeback, phases), limit.zip(background))
}

/// What of the page cache can be seen without root.
fn dirty_on_host(window: &Window, phases: Phases) -> Panel {
    let track = |def: &catalogue::Def| window.track(def.name, &[]);
    let most = |def| track(def).and_then(|track| track.max());
    let level = track(&catalogue::VM_DIRTY).zip(track(&catalogue::VM_WRITEBACK));
    let points = level.map(|(dirty, writeback)| sum(&dirty, &writeback, phases)).unwrap_or_default();
    let limits = most(&catalogue::VM_DIRTY_THRESHOLD).zip(most(&catalogue::VM_BACKGROUND_THRESHOLD));
    level_and_limits("Dirty pages of the whole host (a device's own are seen by root)".to_owned(), points, limits)
}

fn sum(dirty: &Track<'_>, writeback: &Track<'_>, phases: Phases) -> Vec<(f64, f64)> {
    let both = |point: &Point| {
        let under = writeback.at(point.at, 1.0).map_or(0.0, |other| other.value);
        (point.at.seconds_since(phases.load_start), point.value + under)
    };
    dirty.points.iter().map(both).collect()
}

/// `limits`: threshold and background limit.
fn level_and_limits(title: String, points: Vec<(f64, f64)>, limits: Option<(f64, f64)>) -> Panel {
    Panel {
        title,
        curves: vec![Curve { label: "dirty + under writeback".to_owned(), points, unit: Unit::Bytes }],
        limits: match limits {
            Some((limit, soft)) => vec![
                ("threshold".to_owned(), limit),
                ("writers pause".to_owned(), f64::midpoint(limit, soft)),
                ("background".to_owned(), soft),
            ],
            None => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Epoch, Meta, Series, SeriesId, Target};
    use std::sync::Arc;

    fn at(second: u32) -> Moment {
        Moment::from_seconds(f64::from(second))
    }

    /// A series with a value at each of five seconds.
    fn grown(series: Series, value: impl Fn(f64) -> f64) -> (Arc<Series>, Vec<Point>) {
        let point = |second: u32| {
            let (series, epoch) = (SeriesId(0), Epoch(0));
            Point { at: at(second), series, epoch, value: value(f64::from(second)), as_of: None }
        };
        (Arc::new(series), (0..5).map(point).collect())
    }

    #[test]
    fn over_a_network_latency_the_busiest_interface_and_all_queues_are_seen() {
        let sent = |name| catalogue::NET_SENT_BYTES.series(&[("target", "p"), ("if", name)]);
        let queue = |pid| catalogue::TCP_SENDQ.series(&[("target", "p"), ("pid", pid), ("local", "a"), ("peer", "b")]);
        let target = |name: &str| Target { name: name.to_owned(), ..Target::default() };
        let meta = Arc::new(Meta { targets: vec![target("p")], ..Meta::default() });
        let of_lab = catalogue::NET_SENT_BYTES.series(&[("target", "host"), ("if", "eth0")]);
        let series = vec![
            grown(of_lab, |second| 90e6 * second),
            grown(catalogue::LOAD_COMPLETED.series::<&str>(&[]), |second| 20.0 * second),
            grown(catalogue::LOAD_LATENCY_US.series::<&str>(&[]), |second| 20.0 * second * 6_000.0),
            grown(sent("lo"), |second| 10.0 * second),
            grown(sent("eth0"), |second| 25e6 * second),
            grown(queue("7"), |second| 1_000.0 * second),
            grown(queue("8"), |_| 500.0),
        ];
        let window = Window::new(at(0), at(4), meta, series, Vec::new(), Vec::new());
        let phases = Phases { load_start: at(1), load_end: at(3), end: at(4) };
        let mut arm = ArmOutcome::default();
        arm.params.insert("network_bytes_per_s".to_owned(), ParamValue::Number(25e6));
        let seen = over_network(&window, &arm, phases);
        let of = |panel: usize, second: f64| {
            let points = &seen[panel].curves[0].points;
            points.iter().find(|(at, _)| *at == second).unwrap().1
        };
        assert_eq!((of(0, 2.0), of(1, 2.0), of(2, 2.0)), (6_000.0, 25e6, 3_500.0));
        assert_eq!(seen[1].limits, [("the link".to_owned(), 25e6)]);
        // What was not recorded is an empty panel, which says so.
        let nothing = Window::new(at(0), at(4), Arc::new(Meta::default()), Vec::new(), Vec::new(), Vec::new());
        assert!(over_network(&nothing, &arm, phases).iter().all(|panel| panel.curves[0].points.is_empty()));
    }
}
