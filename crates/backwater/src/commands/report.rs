//! `backwater report`: a recording as one page that opens from disk, or the same as Markdown or JSON.

use super::flight;
use super::lab::Bar;
use super::place::Place;
use crate::args::{Beside, Stretch};
use crate::{terminal, when};
use anyhow::{Context, bail};
use backwater_diagnose::Options;
use backwater_lab::progress::Progress;
use backwater_probe::mongodb::Flight;
use backwater_record::{Recording, read_flow, read_outcome};
use backwater_report::html;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A program that opens files and has not ended after this is the browser itself.
const SOON: Duration = Duration::from_secs(2);

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
    /// What a file's ending asks for; a page where it has none.
    fn of(path: &Path) -> anyhow::Result<Format> {
        Ok(match path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase).as_deref() {
            None | Some("html" | "htm") => Format::Html,
            Some("json") => Format::Json,
            Some("md" | "markdown") => Format::Md,
            Some(other) => bail!(
                "a report is not written as .{other}: give -o a name that ends in .html, .md or .json, or say --format (a browser \
                 prints the page to PDF)"
            ),
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let path = &arguments.output;
    if path.is_dir() {
        bail!("{} is a directory; give -o the name of a file in it", path.display());
    }
    if path.is_file() && Flight::is_at(path) && Flight::open(path).is_ok_and(|flight| flight.span().is_some()) {
        bail!("{} is a file of a flight recorder: give -o another name", path.display());
    }
    let options = Options { drain_target_s: arguments.drain_target, ..Options::default() };
    let format = arguments.format.map_or_else(|| Format::of(path), Ok)?;
    let text = text((&arguments.dir, &arguments.stretch, &arguments.beside), &options, format)?;
    if path.as_os_str() == "-" {
        terminal::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    write(path, &text)?;
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
    write(&path, &text)?;
    Ok(path)
}

/// A report that is there stays until the new one is whole.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = Place::of(path).and_then(|place| Ok(place.write(text)?));
    written.with_context(|| {
        format!(
            "cannot write {}: name a file in a directory that is there, that may be written and has room",
            path.display()
        )
    })
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
    let bar = Bar::default();
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
        let meta = Arc::new(flight.meta().clone());
        let read = |from, to| anyhow::Ok(flight.window(from, to)?);
        let mut document = html::document_of((from, to), &meta, (None, &[]), options, read, told)?;
        // What is damaged inside a chunk is known once it is read.
        document.about.warnings = flight.warnings();
        return Ok(document);
    }
    beside.refuse()?;
    let recording = Recording::open(dir)?;
    let (outcome, lost) = read_outcome(dir);
    let warnings: Vec<String> = recording.warnings().iter().cloned().chain(lost).collect();
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let span = recording.span().with_context(|| format!("the recording {} holds no readings yet", dir.display()))?;
    let span = stretch.moments(recording.meta(), span)?;
    let meta = Arc::new(recording.meta().clone());
    let read = |from, to| Ok(recording.window(Some(from), Some(to))?);
    let document = html::document_of(span, &meta, (outcome.as_ref(), warnings.as_slice()), options, read, told);
    document.map(|document| document.with_flow(read_flow(dir)))
}

/// Whether there is a desktop here on which somebody could be shown a page.
pub(crate) fn has_desktop() -> bool {
    desktop(|name| std::env::var_os(name), rustix::process::geteuid().is_root()).is_ok()
}

/// Why nobody can be shown a page here, if so. Root's browser would be a risk of its own.
fn desktop(variable: impl Fn(&str) -> Option<OsString>, root: bool) -> Result<(), &'static str> {
    let display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| variable(name).is_some_and(|text| !text.is_empty()));
    match (display || cfg!(target_os = "macos"), root) {
        (false, _) => Err("there is no desktop here (neither DISPLAY nor WAYLAND_DISPLAY is set)"),
        (true, true) => Err("a browser that runs as root would be a risk"),
        (true, false) => Ok(()),
    }
}

/// Shows a file with whatever this desktop opens files with, or says why not, and what to do instead.
pub(crate) fn open(path: &Path) {
    let why = desktop(|name| std::env::var_os(name), rustix::process::geteuid().is_root()).map_err(str::to_owned);
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if let Err(why) = why.and_then(|()| open_with(program, path)) {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        terminal::note(&format!(
            "not opened: {why}; open {} in a browser, here or after copying it (it is one file and needs no network)",
            whole.display()
        ));
    }
}

/// Starts the program that opens files. One that ends soon says whether it could; one that goes on is the browser itself.
fn open_with(program: &str, path: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    let (told, ended) = mpsc::channel();
    let waiting = std::thread::Builder::new().name("open".into()).spawn(move || told.send(child.wait()));
    waiting.map_err(|error| format!("cannot wait for {program}: {error}"))?;
    match ended.recv_timeout(SOON) {
        Ok(Ok(status)) if !status.success() => Err(format!("{program} could not ({status})")),
        Ok(Err(error)) => Err(format!("{program}: {error}")),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use backwater_model::{Batch, Epoch, Meta, Moment, Point, Registry, catalogue};

    /// A recording of three readings of the host.
    fn recording(dir: &Path) {
        let registry = Arc::new(Registry::new());
        let options = backwater_record::Options { free_floor_bytes: 0, ..Default::default() };
        let mut writer =
            backwater_record::Writer::create(dir, Meta::default(), Arc::clone(&registry), options).unwrap();
        for second in 1..4 {
            let at = Moment(second * 1_000_000);
            let series = registry.number::<&str>(&catalogue::VM_DIRTY, &[]).unwrap();
            let point = Point { at, series, epoch: Epoch(1), value: 5e6, as_of: None };
            writer.write(&Batch { points: vec![point], ..Batch::default() }).unwrap();
            writer.tick(at).unwrap();
        }
        writer.close().unwrap();
    }

    #[test]
    fn the_page_is_written_beside_the_recording_whatever_the_labs_results_are() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        recording(&run);
        let written = beside(&run).unwrap();
        assert_eq!(written, run.join("report.html"));
        let page = std::fs::read_to_string(&written).unwrap();
        assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"), "{}", &page[..80]);
        assert!(!page.contains("lab's results"));
        std::fs::write(run.join("outcome.json"), "{\"scenario\": ").unwrap();
        beside(&run).unwrap();
        let page = std::fs::read_to_string(&written).unwrap();
        assert!(page.contains("the lab's results are not shown"), "the page says what it lacks");
    }

    #[test]
    fn a_page_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        recording(dir.path());
        std::fs::create_dir(dir.path().join("report.html")).unwrap();
        let error = beside(dir.path()).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("report.html"), "{error}");
        assert!(beside(&dir.path().join("none")).unwrap_err().to_string().contains("there is no such directory"));
    }

    #[test]
    fn a_desktop_is_where_there_is_a_display_that_is_not_roots() {
        let display = |name: &str| (name == "WAYLAND_DISPLAY").then(|| OsString::from("wayland-0"));
        assert!(desktop(display, false).is_ok());
        assert!(desktop(display, true).unwrap_err().contains("root"));
        if !cfg!(target_os = "macos") {
            assert!(desktop(|_| None, false).unwrap_err().contains("DISPLAY"));
            assert!(desktop(|_| Some(OsString::new()), false).is_err(), "set, and to nothing");
        }
    }

    #[test]
    fn a_program_that_cannot_open_it_is_heard() {
        let path = Path::new("/dev/null");
        assert!(open_with("true", path).is_ok());
        assert!(open_with("false", path).unwrap_err().contains("could not"));
        assert!(open_with("no-such-program-here", path).unwrap_err().contains("no-such-program-here"));
    }
}
