//! `backwater lab search`: settings with less latency, tried on a real engine one after another.

use super::lab::{Bar, at_least_one, out_dir, put_right, state_dir};
use crate::{signals, terminal};
use anyhow::bail;
use backwater_lab::scenario::Scenario;
use backwater_lab::{RunOptions, SearchOptions, limits, search};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// How to search.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
One knob after another is turned as far as it clearly lowers the latency p99 of a single run, until turning none does. What is
found is then run again, in random order, beside the arm it began with and the one it is compared with: the best of many single
runs looks better than it is. `backwater lab show` lists the knobs.

Examples:
  backwater lab search wt-stall --out found            from MongoDB's defaults: about half an hour
  backwater lab search wt-stall --quick --out found    with shorter loads, measured once
  backwater lab search wt-stall --from last-round --tries 40
  backwater lab search wt-stall --from direct-defaults --against direct-last-round    data files past the page cache")]
pub(crate) struct SearchArguments {
    /// Name, or path of a .toml file
    name: String,
    /// The arm to begin with, where other than the scenario's own
    #[arg(long, value_name = "ARM")]
    from: Option<String>,
    /// The arm to compare with, where other than the scenario's own
    #[arg(long, value_name = "ARM")]
    against: Option<String>,
    /// Settings to try at most
    #[arg(long, value_name = "N", default_value = "30", value_parser = at_least_one)]
    tries: usize,
    /// Repeats of what is found, and of what it is compared with
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    repeats: Option<usize>,
    /// Shorter loads
    #[arg(long)]
    quick: bool,
    /// Where the recording and the outcome go
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the outcome as one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &SearchArguments) -> anyhow::Result<ExitCode> {
    let scenario = Scenario::load(&arguments.name)?;
    let state_dir = state_dir()?;
    put_right(&state_dir)?;
    let missing = limits::what_is_missing(false);
    if !missing.is_empty() {
        let list: Vec<_> = missing.iter().map(|(what, why, next)| format!("  {what}: {why}. {next}")).collect();
        bail!("this host does not allow the limits that the scenario sets:\n{}", list.join("\n"));
    }
    let out = out_dir(arguments.out.as_deref(), &scenario.name)?;
    let options = RunOptions {
        out: out.clone(),
        quick: arguments.quick,
        repeats: arguments.repeats,
        arms: Vec::new(),
        version: None,
        server_bin: None,
        allow_host_changes: false,
        without_limits: false,
        state_dir,
        cancel: signals::cancel_flag()?,
    };
    let how = SearchOptions { from: arguments.from.clone(), against: arguments.against.clone(), most: arguments.tries };
    let outcome = search(&scenario, &options, &how, &Bar::default()).inspect_err(|_| {
        // Only if nothing was recorded: a directory that holds something is not removed.
        let _kept = std::fs::remove_dir(&out);
    })?;
    if arguments.json {
        terminal::print_json(&outcome)?;
    } else {
        terminal::print(&backwater_report::outcome(&outcome, &terminal::style()))?;
        terminal::print(&format!("The recording lies in {0}; look again with: backwater diagnose {0}", out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
