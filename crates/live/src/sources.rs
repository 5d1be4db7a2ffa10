//! What can be looked at: a live session, or a recording, also one that is being written.

use crate::LiveError;
use crate::feed::{Feed, found_now};
use crate::flown;
use backwater_diagnose::{Options, diagnose};
use backwater_model::{Finding, Meta, Moment, Outcome, Span, Window};
use backwater_probe::mongodb::Flight;
use backwater_probe::{anchor, now};
use backwater_record::{Recording, read_flow, read_outcome};
use backwater_report::html::{self, Document};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A recording whose points were written to this lately is being written.
const LATELY: Duration = Duration::from_secs(15);

/// A stretch of time with what was found in it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The readings.
    pub window: Window,
    /// What is wrong, and for what is live: what soon will be.
    pub findings: Vec<Finding>,
    /// The lab run that was recorded, if it was one.
    pub outcome: Option<Outcome>,
    /// What was lost of the recording.
    pub warnings: Vec<String>,
    /// Whether more will come.
    pub grows: bool,
    /// The present moment by the clock of the readings.
    pub now: Moment,
}

/// What sort of source it is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Read now.
    Live(Feed),
    /// Read from this directory; while it is being written, its last so many seconds.
    Recording {
        /// Where it is.
        dir: PathBuf,
        /// How much of one that is being written is shown.
        history_s: f64,
    },
    /// Read from MongoDB's flight recorder; while the server writes to it, its last so many seconds.
    Flight {
        /// Its directory, or one of its files.
        path: PathBuf,
        /// How much of one that is being written to is shown.
        history_s: f64,
    },
}

/// Something to look at, under a name.
#[derive(Clone, Debug)]
pub struct Source {
    /// What people call it: the servers, or the directory.
    pub name: String,
    /// Where it comes from.
    pub kind: Kind,
}

impl Source {
    /// A running session: the names of its servers, or of this host.
    pub fn live(feed: Feed) -> Source {
        let meta = feed.meta();
        let names: Vec<&str> = meta.targets.iter().map(|target| target.name.as_str()).collect();
        let host = meta.host.hostname.as_deref().unwrap_or("this host");
        let name = if names.is_empty() { host.to_owned() } else { names.join(", ") };
        Source { name, kind: Kind::Live(feed) }
    }

    /// A recording, or what MongoDB's flight recorder wrote.
    ///
    /// Errors: there is none in this directory.
    pub fn recording(dir: &Path, history_s: f64) -> Result<Source, LiveError> {
        if Flight::is_at(dir) {
            let flight = Flight::open(dir)?;
            // Every recorder's directory has the same name.
            let name = flight.meta().targets.first().map_or("mongod", |target| target.name.as_str()).to_owned();
            return Ok(Source { name, kind: Kind::Flight { path: dir.to_owned(), history_s } });
        }
        Recording::open(dir)?;
        let whole = dir.canonicalize().ok();
        let last = dir.file_name().or_else(|| whole.as_ref()?.file_name());
        let name = last.map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned());
        Ok(Source { name, kind: Kind::Recording { dir: dir.to_owned(), history_s } })
    }

    /// The newest `last_s` seconds, for what is to be told of now.
    pub fn lately(&self, last_s: f64) -> Result<Seen, LiveError> {
        self.last(Some(last_s))
    }

    /// What a page shows of it, and whether more will come. A recording that has ended is shown whole, however long it is.
    pub fn document(&self) -> Result<(Document, bool), LiveError> {
        match &self.kind {
            Kind::Recording { dir, .. } if !is_being_written(dir) => Ok((ended(dir)?, false)),
            Kind::Flight { path, .. } if !flown::grows(path) => Ok((flown::ended(path)?, false)),
            _ => {
                let seen = self.last(None)?;
                let document = html::document(&seen.window, &seen.findings, seen.outcome.as_ref(), &seen.warnings);
                let held = match &self.kind {
                    Kind::Recording { dir, .. } => read_flow(dir),
                    Kind::Live(_) | Kind::Flight { .. } => None,
                };
                Ok((document.with_flow(held), seen.grows))
            }
        }
    }

    /// Whether more will come.
    pub fn grows(&self) -> bool {
        match &self.kind {
            Kind::Live(_) => true,
            Kind::Recording { dir, .. } => is_being_written(dir),
            Kind::Flight { path, .. } => flown::grows(path),
        }
    }

    /// Whether there is nothing to look at yet, nor will there be without somebody who writes.
    ///
    /// Errors: it cannot be read.
    pub fn is_empty(&self) -> Result<bool, LiveError> {
        Ok(match &self.kind {
            Kind::Live(_) => false,
            Kind::Recording { dir, .. } => Recording::open(dir)?.span().is_none(),
            Kind::Flight { path, .. } => Flight::open(path)?.span().is_none(),
        })
    }

    fn last(&self, last_s: Option<f64>) -> Result<Seen, LiveError> {
        match &self.kind {
            Kind::Live(feed) => {
                let window = feed.window(last_s.unwrap_or(feed.history_s()));
                let findings = found_now(&window);
                Ok(Seen { findings, window, outcome: None, warnings: Vec::new(), grows: true, now: now() })
            }
            Kind::Recording { dir, history_s } => recorded(dir, *history_s, last_s),
            Kind::Flight { path, history_s } => flown::lately(path, *history_s, last_s),
        }
    }
}

fn recorded(dir: &Path, history_s: f64, last_s: Option<f64>) -> Result<Seen, LiveError> {
    let recording = Recording::open(dir)?;
    let grows = is_being_written(dir);
    let length_s = last_s.or(grows.then_some(history_s));
    let from =
        recording.span().zip(length_s).map(|((first, last), length)| (last - Span::from_seconds(length)).max(first));
    let window = recording.window(from, None)?;
    let now = present(recording.meta()).unwrap_or(window.to);
    let (outcome, lost) = read_outcome(dir);
    // A run was diagnosed arm by arm while it ran, which tells more than its arms together could.
    let findings = match &outcome {
        Some(run) => run.findings.clone(),
        None if grows => found_now(&window),
        None => diagnose(&window, &Options::default()),
    };
    let warnings = recording.warnings().iter().cloned().chain(lost).collect();
    Ok(Seen { findings, window, outcome, warnings, grows, now })
}

/// The present moment by a recording's clock, which may be of another host or an earlier boot: by the wall clock, whose steps it
/// notes as they happen.
pub(crate) fn present(meta: &Meta) -> Option<Moment> {
    meta.moment_of_unix_us(anchor().unix_us)
}

/// The page of a recording that has ended.
fn ended(dir: &Path) -> Result<Document, LiveError> {
    let recording = Recording::open(dir)?;
    let (span, (outcome, lost)) = (recording.span().unwrap_or_default(), read_outcome(dir));
    let meta = Arc::new(recording.meta().clone());
    let read = |from, to| Ok(recording.window(Some(from), Some(to))?);
    let warnings: Vec<String> = recording.warnings().iter().cloned().chain(lost).collect();
    let beside = (outcome.as_ref(), warnings.as_slice());
    let document: Result<Document, LiveError> =
        html::document_of(span, &meta, beside, &Options::default(), read, |_, _| {});
    document.map(|document| document.with_flow(read_flow(dir)))
}

fn is_being_written(dir: &Path) -> bool {
    written_within(&dir.join("points"), LATELY)
}

/// Whether a file in this directory was written to so lately.
pub(crate) fn written_within(dir: &Path, lately: Duration) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    let written = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.metadata().ok()?.modified().ok();
    let newest = entries.filter_map(written).max();
    // A clock that was set back makes a time in the future: that is lately too.
    newest.is_some_and(|at| SystemTime::now().duration_since(at).map_or(true, |age| age < lately))
}
