//! `backwater report`: a recording as one page that opens from disk, or the same as Markdown or JSON.

use super::flight;
use super::lab::Bar;
use crate::args::{Beside, Stretch};
use crate::{terminal, when};
use anyhow::{Context, bail};
use backwater_diagnose::Options;
use backwater_lab::progress::Progress;
use backwater_model::Outcome;
use backwater_probe::mongodb::Flight;
use backwater_record::{Recording, read_flow};
use backwater_report::html;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

/// A recording as one HTML page that needs no network: the path, curves, sessions, findings, lab results
#[derive(Args)]
#[command(after_help = "\
Examples:
  backwater report rec -o report.html                       the whole recording
  backwater report rec --from 03:05 --to 03:15 -o a.html    what happened at 03:10?
  backwater report rec -o report.html --open                and show it in the browser
  backwater report rec -o report.md                         as Markdown, for a ticket
  backwater report rec -o report.json                       what the page shows, as one document
  backwater report rec -o - --format md | less              to stdout")]
pub(crate) struct Arguments {
    /// The directory of a recording, or of a lab run
    dir: PathBuf,
    /// The file to write, or - for stdout; one that is there is replaced. By its ending (.html, .md, .json) goes what is
    /// written, unless --format tells
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    stretch: Stretch,
    #[command(flatten)]
    beside: Beside,
    /// What to write
    #[arg(long, value_enum)]
    format: Option<Format>,
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
    /// Findings, queues, sessions and results as Markdown
    Md,
    /// The document that the page shows
    Json,
}

impl Format {
    /// What a file's ending asks for.
    fn of(path: &Path) -> Format {
        match path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("json") => Format::Json,
            Some("md" | "markdown") => Format::Md,
            _ => Format::Html,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let path = &arguments.output;
    if path.is_dir() {
        bail!("{} is a directory; give -o the name of a file in it", path.display());
    }
    let options = Options { drain_target_s: arguments.drain_target, ..Options::default() };
    let format = arguments.format.unwrap_or_else(|| Format::of(path));
    let text = text((&arguments.dir, &arguments.stretch, &arguments.beside), &options, format)?;
    if path.as_os_str() == "-" {
        terminal::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    terminal::print(&format!("The report lies in {}", path.display()))?;
    if arguments.open {
        open(path);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a recording beside it, as `report.html`, and says where.
pub(crate) fn beside(dir: &Path) -> anyhow::Result<PathBuf> {
    let path = dir.join("report.html");
    let text = text((dir, &Stretch::default(), &Beside::default()), &Options::default(), Format::Html)?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// A directory, the part of it, and what lies beside it.
type What<'a> = (&'a Path, &'a Stretch, &'a Beside);

/// A recording, or a part of it, in one of the formats.
fn text(what: What<'_>, options: &Options, format: Format) -> anyhow::Result<String> {
    let document = document(what, options)?;
    Ok(match format {
        Format::Html => html::html(&document)?,
        Format::Md => html::markdown(&document),
        Format::Json => serde_json::to_string(&document)? + "\n",
    })
}

/// What the page shows, read half an hour at a time where it is long.
fn document((dir, stretch, beside): What<'_>, options: &Options) -> anyhow::Result<html::Document> {
    let (bar, outcome) = (Bar::default(), outcome(dir)?);
    let told = |done: usize, all: usize| {
        if done == 1 && all > 1 {
            bar.begin("reading", all as u64);
        }
        bar.at(done as u64);
        if done == all {
            bar.end();
        }
    };
    if Flight::is_at(dir) {
        let (flight, from, to) = flight::open(dir, stretch, beside)?;
        let (meta, beside) = (Arc::new(flight.meta().clone()), (outcome.as_ref(), &[][..]));
        return html::document_of((from, to), &meta, beside, options, |from, to| Ok(flight.window(from, to)?), told);
    }
    beside.refuse()?;
    let recording = Recording::open(dir)?;
    recording.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    let span = recording.span().with_context(|| format!("the recording {} holds no readings yet", dir.display()))?;
    let span = stretch.moments(recording.meta(), span)?;
    let meta = Arc::new(recording.meta().clone());
    let read = |from, to| Ok(recording.window(Some(from), Some(to))?);
    let document = html::document_of(span, &meta, (outcome.as_ref(), recording.warnings()), options, read, told);
    document.map(|document| document.with_flow(read_flow(dir)))
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

/// Whether somebody sits at a desktop here who could be shown a page. Root's browser would be a risk of its own.
pub(crate) fn has_desktop() -> bool {
    let display =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()));
    (display || cfg!(target_os = "macos")) && terminal::attended() && !rustix::process::geteuid().is_root()
}

/// Shows a file with whatever this desktop opens files with. Without a desktop its path was said, which is enough.
pub(crate) fn open(path: &Path) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        terminal::note(&format!("cannot open it here ({program}: {error})"));
    }
}
