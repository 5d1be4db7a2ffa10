//! `backwater diagnose`: name what backs up, with evidence.

use super::{flight, flights, source};
use crate::args::Looked;
use crate::{terminal, when};
use anyhow::bail;
use backwater_diagnose::{Blind, Options, RULES, Shards, blind, diagnose};
use backwater_model::{EventKind, Finding, Severity};
use backwater_record::UNREAD;
use backwater_report::{DatedFinding, html};
use clap::Args;
use std::process::ExitCode;

/// Name what backs up, with evidence, in a recording or a live system
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater diagnose rec                                  a whole recording
  backwater diagnose rec --from 03:05 --to 03:15          what happened at 03:10?
  backwater diagnose postgres://localhost/app --for 60    a live server, watched for a minute
  backwater diagnose mongodb://monitor@db1,db2/ --for 60  members of a replica set, side by side
  backwater diagnose /var/lib/mongodb/diagnostic.data     what MongoDB's flight recorder holds
  backwater diagnose diagnostic.data --log mongod.log     … with the slow operations of the server's log
  backwater diagnose s1/diagnostic.data s2/diagnostic.data s3/diagnostic.data   shards, and which is unlike the others
  backwater diagnose --explain dirty-throttle             what a rule says and what it rests on")]
pub(crate) struct Arguments {
    #[command(flatten)]
    looked: Looked,
    /// What drain time the remedies should aim at, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = when::some_seconds)]
    drain_target: f64,
    /// Print the findings as JSON: `from` and `to` in microseconds since boot, `from_utc` and `to_utc` in RFC 3339
    #[arg(long)]
    json: bool,
    /// Explain a rule and stop
    #[arg(long, value_name = "RULE")]
    explain: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(rule) = &arguments.explain {
        return explain(rule);
    }
    let options = Options { drain_target_s: arguments.drain_target, ..Options::default() };
    let Looked { targets, stretch, beside, .. } = &arguments.looked;
    // A recorder's windows hold the engine's queues, or there would be none of them; what is told about comes without readings.
    let volumes = arguments.looked.sight.volume.declared()?;
    let (findings, window, shards, judged) = if let Some(path) = flight::path(targets) {
        let (findings, window) = flight::findings(path, stretch, beside, &volumes, &options)?;
        (findings, window, Shards::default(), Judged::well())
    } else if let Some(paths) = flights::paths(targets) {
        let (findings, window, shards) = flights::findings(&paths, stretch, beside, &volumes, &options)?;
        (findings, window, shards, Judged::well())
    } else if let Some(found) = source::long_findings(&arguments.looked, &options)? {
        found
    } else {
        let window = source::window(&arguments.looked)?;
        let judged = Judged { has_queue: html::has_queue(&window), blind: blind(&window) };
        let (findings, shards) = (diagnose(&window, &options), Shards::of(&window));
        (findings, window, shards, judged)
    };
    if arguments.json {
        let dated = findings.iter().map(|finding| DatedFinding::of(finding, &window.meta));
        terminal::print_json(&dated.collect::<Vec<_>>())?;
    } else {
        let style = terminal::style();
        terminal::print(&backwater_report::findings_in(&findings, &window, judged.has_queue, &judged.blind, &style))?;
        let rows = shards.rows();
        if !rows.is_empty() {
            terminal::print(&format!("\n{}", backwater_report::shards(&rows, &style)))?;
        }
    }
    if findings.is_empty() && window.events_of(EventKind::Absent).any(|event| event.source == UNREAD) {
        bail!("a part of the recording could not be read, so that nothing was found does not mean that it was healthy");
    }
    if findings.is_empty() && !judged.blind.is_empty() {
        let why = judged.blind.iter().map(|blind| blind.why.as_str()).collect::<Vec<_>>().join(", and ");
        bail!("{why}, so that nothing was found does not mean that all is healthy");
    }
    if findings.is_empty() && !judged.has_queue {
        bail!("no queue was recorded in that time, so that nothing was found says nothing");
    }
    Ok(code(&findings))
}

/// What lies behind findings that are none.
pub(crate) struct Judged {
    pub(crate) has_queue: bool,
    pub(crate) blind: Vec<Blind>,
}

impl Judged {
    /// A flight recorder's, which says itself what it lacks.
    fn well() -> Judged {
        Judged { has_queue: true, blind: Vec::new() }
    }
}

/// 1 where something of warning or worse was found, else 0.
pub(crate) fn code(findings: &[Finding]) -> ExitCode {
    ExitCode::from(u8::from(findings.iter().any(|finding| finding.severity >= Severity::Warning)))
}

fn explain(name: &str) -> anyhow::Result<ExitCode> {
    let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
        let known: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
        bail!("there is no rule '{name}'; there are: {}", known.join(", "));
    };
    terminal::print(rule.page)?;
    Ok(ExitCode::SUCCESS)
}
