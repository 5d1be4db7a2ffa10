//! `backwater report`: a recording as one page that opens from disk.

use super::source;
use crate::args::Stretch;
use crate::{terminal, when};
use anyhow::{Context, bail};
use backwater_diagnose::{Options, diagnose};
use backwater_model::{Finding, Outcome, Window};
use backwater_record::Recording;
use backwater_report::html;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// A recording as one HTML page that needs no network: the path, curves, sessions, findings, lab results
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater report rec -o report.html                       the whole recording
  backwater report rec --from 03:05 --to 03:15 -o a.html    what happened at 03:10?
  backwater report rec -o report.html --open                and show it in the browser
  backwater report rec --format json -o report.json         what the page shows, as one document")]
pub(crate) struct Arguments {
    /// The directory of a recording, or of a lab run
    dir: PathBuf,
    /// The file to write; one that is there is replaced
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    stretch: Stretch,
    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Html)]
    format: Format,
    /// Open it in the desktop's browser
    #[arg(long)]
    open: bool,
    /// What drain time the remedies should aim at, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = when::some_seconds)]
    drain_target: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One page with everything in it
    Html,
    /// The document that the page shows
    Json,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.output.is_dir() {
        bail!("{} is a directory; give -o the name of a file in it", arguments.output.display());
    }
    let window = source::recorded(&arguments.dir, &arguments.stretch)?;
    let outcome = outcome(&arguments.dir)?;
    let options = Options { drain_target_s: arguments.drain_target, ..Options::default() };
    let findings = findings(&window, outcome.as_ref(), &options);
    let warnings = Recording::open(&arguments.dir)?.warnings().to_vec();
    let document = html::document(&window, &findings, outcome.as_ref(), &warnings);
    let text = match arguments.format {
        Format::Html => html::html(&document)?,
        Format::Json => serde_json::to_string(&document)? + "\n",
    };
    let path = &arguments.output;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    terminal::print(&format!("The report lies in {}", path.display()))?;
    if arguments.open {
        open(path);
    }
    Ok(ExitCode::SUCCESS)
}

/// A lab run was diagnosed arm by arm as it ran, which tells more than its arms together could: those findings that lie
/// within the window.
fn findings(window: &Window, outcome: Option<&Outcome>, options: &Options) -> Vec<Finding> {
    match outcome {
        Some(run) => {
            let within = |finding: &&Finding| finding.from <= window.to && finding.to >= window.from;
            run.findings.iter().filter(within).cloned().collect()
        }
        None => diagnose(window, options),
    }
}

/// What a lab run came to; none for a recording of something else.
fn outcome(dir: &Path) -> anyhow::Result<Option<Outcome>> {
    let path = dir.join("outcome.json");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let outcome = serde_json::from_str(&text);
            Ok(Some(outcome.with_context(|| format!("{} is no outcome of a run", path.display()))?))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Shows a file with whatever this desktop opens files with. Without a desktop its path was said, which is enough.
fn open(path: &Path) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        terminal::note(&format!("cannot open it here ({program}: {error})"));
    }
}
