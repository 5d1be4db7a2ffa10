//! `backwater demo`: one case, short, on a server it starts itself.

use super::lab::{RunArguments, run_one};
use backwater_lab::metrics::{Phases, throughput};
use backwater_model::{EventKind, Moment, Outcome, Unit, Window, catalogue};
use backwater_record::Recording;
use backwater_report::{Curve, Panel, Style, panels};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One case, short, on a server it starts itself; ends with the report
#[derive(Args)]
#[command(after_help = "\
As root it makes a volume of its own, holds it to so many I/O operations a second, and shows the whole cliff; without
root it still starts a server, loads it, records, diagnoses and plots, and says what root would add.")]
pub(crate) struct Arguments {
    /// The case
    #[arg(default_value = "stampede")]
    case: String,
    /// Where the recording goes
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the outcome as one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let run = RunArguments {
        name: arguments.case.clone(),
        quick: true,
        arms: Vec::new(),
        repeats: None,
        version: None,
        out: arguments.out.clone(),
        allow_host_changes: false,
        json: arguments.json,
    };
    run_one(&run, true)
}

/// Throughput and dirty level of every arm's first repeat, on one time axis each.
pub(crate) fn plots(outcome: &Outcome, out: &Path, style: &Style) -> anyhow::Result<String> {
    let recording = Recording::open(out)?;
    let window = recording.window(None, None)?;
    let device = recording.meta().targets.iter().find_map(|target| target.data_device.clone());
    let mut text = String::new();
    for arm in &outcome.arms {
        let Some(phases) = phases_of(&window, &arm.name) else { continue };
        let part = window.slice(phases.load_start, phases.end);
        let mut shown = vec![transactions(&part, phases)];
        shown.extend(device.as_deref().map(|device| dirty(&part, device, phases)));
        let mut marks = vec![(phases.load_end.seconds_since(phases.load_start), "load ends".to_owned())];
        marks.extend(arm.metrics.get("time_to_cliff_s").map(|at| (*at, "cliff".to_owned())));
        marks.extend(arm.metrics.get("predicted_time_to_cliff_s").map(|at| (*at, "predicted".to_owned())));
        text.push_str(&format!("\nArm {}\n{}\n", arm.name, panels(&shown, &marks, style)));
    }
    Ok(text)
}

fn phases_of(window: &Window, arm: &str) -> Option<Phases> {
    let at = |phase: &str| -> Option<Moment> {
        let mut marks = window.events_of(EventKind::Mark);
        let field = |event: &backwater_model::Event, name: &str| event.fields.get(name).cloned().unwrap_or_default();
        marks.find(|event| field(event, "arm") == arm && field(event, "phase") == phase).map(|event| event.at)
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

fn dirty(window: &Window, device: &str, phases: Phases) -> Panel {
    let labels = [("dev", device)];
    let level = |def: &catalogue::Def| window.track(def.name, &labels);
    let mut points = Vec::new();
    if let (Some(reclaimable), Some(writeback)) = (level(&catalogue::BDI_RECLAIMABLE), level(&catalogue::BDI_WRITEBACK))
    {
        for point in reclaimable.points {
            let under = writeback.at(point.at, 1.0).map_or(0.0, |other| other.value);
            points.push((point.at.seconds_since(phases.load_start), point.value + under));
        }
    }
    let limit = level(&catalogue::BDI_DIRTY_THRESH).and_then(|track| track.max());
    let host = level(&catalogue::BDI_GLOBAL_DIRTY_THRESH).and_then(|track| track.max());
    let host_background = level(&catalogue::BDI_BACKGROUND_THRESH).and_then(|track| track.max());
    // The kernel scales the background limit as it scales the threshold.
    let background = limit.zip(host.zip(host_background)).map(|(limit, (host, soft))| limit * soft / host);
    Panel {
        title: format!("Dirty pages of {device}"),
        curves: vec![Curve { label: "dirty + under writeback".to_owned(), points, unit: Unit::Bytes }],
        limits: match limit.zip(background) {
            Some((limit, soft)) => vec![
                ("limit".to_owned(), limit),
                ("writers pause".to_owned(), f64::midpoint(limit, soft)),
                ("background".to_owned(), soft),
            ],
            None => Vec::new(),
        },
    }
}
