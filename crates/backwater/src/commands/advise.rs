//! `backwater advise`: settings with their predicted effect, as commands.

use super::source;
use crate::args::Looked;
use crate::{terminal, when};
use backwater_diagnose::{Advice, AdviseOptions, StandbyAdvice, SurviveOptions, advise, advise_standbys};
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;

/// Settings with their predicted effect, as commands
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater advise rec                                     a dirty limit that drains in 30 s
  backwater advise rec --drain-target 10                   … in 10 s
  backwater advise rec --price-per-iops 0.065              what more IOPS would buy, and cost a month
  backwater advise rec --survive 30min                     what lets a standby be away for half an hour")]
pub(crate) struct Arguments {
    #[command(flatten)]
    looked: Looked,
    /// How long a full queue of dirty pages may take to drain, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = when::some_seconds)]
    drain_target: f64,
    /// How long a standby may be away, or cut off, and still go on afterwards
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = when::some_seconds)]
    survive: f64,
    /// What one provisioned I/O operation a second costs a month
    #[arg(long, value_name = "PRICE")]
    price_per_iops: Option<f64>,
    /// Print the advice as JSON
    #[arg(long)]
    json: bool,
}

/// Advice for devices and for standbys, as one document.
#[derive(Serialize)]
struct All {
    #[serde(flatten)]
    advice: Advice,
    standbys: Vec<StandbyAdvice>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let window = source::window(&arguments.looked)?;
    let options = AdviseOptions { drain_target_s: arguments.drain_target, price_per_iops: arguments.price_per_iops };
    let advice = advise(&window, &options);
    let standbys = advise_standbys(&window, &SurviveOptions { survive_s: arguments.survive });
    if arguments.json {
        terminal::print_json(&All { advice, standbys })?;
    } else {
        let style = terminal::style();
        let mut text = backwater_report::advice(&advice, &style);
        text.push_str(&backwater_report::standby_advice(&standbys, &style));
        terminal::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
