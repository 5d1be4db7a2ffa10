//! `backwater demo`: one case, short, on a server it starts itself; ends with the page of what was seen.

use super::lab::{RunArguments, run_one};
use super::report;
use crate::terminal;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One case, short, on a server it starts itself; ends with the report
#[derive(Args)]
#[command(after_help = "\
As root it makes a volume of its own, holds it to so many I/O operations a second, and shows the whole cliff; without \
root it still starts a server, loads it, records, diagnoses and plots, and says what root would add.")]
pub(crate) struct Arguments {
    /// The case
    #[arg(default_value = "stampede")]
    case: String,
    /// Where the recording goes
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Set host-wide limits (vm.dirty_bytes) instead of the device's own, as a kernel older than 6.2 needs: everything on
    /// this host feels it
    #[arg(long)]
    allow_host_changes: bool,
    /// Do not open the report, also where there is a desktop
    #[arg(long)]
    no_open: bool,
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
        server_bin: None,
        out: arguments.out.clone(),
        allow_host_changes: arguments.allow_host_changes,
        rows: None,
        batches: Vec::new(),
        dsn: None,
        allow_writes: false,
        json: arguments.json,
    };
    let (code, dir) = run_one(&run, true)?;
    // What was measured has been told by now: a page that cannot be written does not take that back.
    match report::beside(&dir) {
        Ok(page) if arguments.json => terminal::note(&format!("The report lies in {}", page.display())),
        Ok(page) => show(&page, arguments.no_open)?,
        Err(error) => terminal::error(&error),
    }
    Ok(code)
}

/// Says where the page lies, and opens it where there is a desktop.
fn show(page: &Path, no_open: bool) -> anyhow::Result<()> {
    terminal::print(&format!("All of it on one page: {} (open it in a browser; it needs no network)", page.display()))?;
    if !no_open && terminal::attended() && report::has_desktop() {
        report::open(page);
    }
    Ok(())
}
