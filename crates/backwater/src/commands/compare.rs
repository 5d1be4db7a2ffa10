//! `backwater compare`: what a remedy changed.

use super::source;
use crate::args::{Beside, Stretch};
use crate::terminal;
use backwater_diagnose::compare;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// What a remedy changed: two recordings, or two stretches of one
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater compare before after
  backwater compare rec rec --before-to 10:00 --after-from 10:05    one recording, before and after a change")]
pub(crate) struct Arguments {
    /// Recording of the time before
    before: PathBuf,
    /// Recording of the time after
    after: PathBuf,
    /// Where the stretch before begins
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    before_from: Option<String>,
    /// Where the stretch before ends
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    before_to: Option<String>,
    /// Where the stretch after begins
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    after_from: Option<String>,
    /// Where the stretch after ends
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    after_to: Option<String>,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let part = |from: &Option<String>, to: &Option<String>| Stretch { from: from.clone(), to: to.clone() };
    let before =
        source::recorded(&arguments.before, &part(&arguments.before_from, &arguments.before_to), &Beside::default())?;
    let after =
        source::recorded(&arguments.after, &part(&arguments.after_from, &arguments.after_to), &Beside::default())?;
    let comparison = compare(&before, &after);
    if arguments.json {
        terminal::print_json(&comparison)?;
    } else {
        terminal::print(&backwater_report::comparison(&comparison, &terminal::style()))?;
    }
    Ok(ExitCode::SUCCESS)
}
