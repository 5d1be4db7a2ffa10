//! `backwater advise`: settings with their predicted effect, as commands.

use super::source;
use crate::args::Looked;
use crate::{terminal, when};
use backwater_diagnose::{
    Advice, AdviseOptions, EngineAdvice, EngineOptions, StandbyAdvice, SurviveOptions, advise, advise_engines,
    advise_standbys,
};
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
  backwater advise rec --survive 30min                     what lets a standby be away for half an hour
  backwater advise mongodb://monitor@db1/ --for 5min       MongoDB's lines for its release, from what is seen
  backwater advise /var/lib/mongodb/diagnostic.data --from 03:00 --to 04:00 --burst-target 1")]
pub(crate) struct Arguments {
    #[command(flatten)]
    looked: Looked,
    /// How long a full queue of dirty pages may take to drain, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = when::some_seconds)]
    drain_target: f64,
    /// For MongoDB: how long the disk may take for what a checkpoint brings at once, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = when::some_seconds)]
    burst_target: f64,
    /// For MongoDB: how many expired documents may be deleted each second; a day of readings gives the hours for it, less
    /// the time over which documents shall expire
    #[arg(long, value_name = "N", value_parser = some_each_second)]
    ttl_rate: Option<f64>,
    /// How long a standby, or a member of a replica set, may be away and still go on afterwards
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = when::some_seconds)]
    survive: f64,
    /// What one provisioned I/O operation a second costs a month
    #[arg(long, value_name = "PRICE")]
    price_per_iops: Option<f64>,
    /// Print the advice as JSON
    #[arg(long)]
    json: bool,
}

/// Advice for devices, for standbys and for engines, as one document.
#[derive(Serialize)]
struct All {
    #[serde(flatten)]
    advice: Advice,
    standbys: Vec<StandbyAdvice>,
    engines: Vec<EngineAdvice>,
}

fn some_each_second(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "this is a number of documents each second, and more than none, such as 2000".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let window = source::window(&arguments.looked)?;
    let options = AdviseOptions { drain_target_s: arguments.drain_target, price_per_iops: arguments.price_per_iops };
    let advice = advise(&window, &options);
    let standbys = advise_standbys(&window, &SurviveOptions { survive_s: arguments.survive });
    let options = EngineOptions {
        burst_target_s: arguments.burst_target,
        survive_s: arguments.survive,
        ttl_per_s: arguments.ttl_rate,
    };
    let engines = advise_engines(&window, &options);
    if arguments.json {
        terminal::print_json(&All { advice, standbys, engines })?;
    } else {
        let style = terminal::style();
        let mut text = backwater_report::advice(&advice, &style);
        text.push_str(&backwater_report::standby_advice(&standbys, &style));
        text.push_str(&backwater_report::engine_advice(&engines, &style));
        terminal::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
