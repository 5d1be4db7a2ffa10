//! What can be looked at: a live session, or a recording, also one that is being written.

use crate::LiveError;
use crate::feed::{Feed, found_now};
use backwater_diagnose::{Options, diagnose};
use backwater_model::{Finding, Outcome, Span, Window};
use backwater_record::{Recording, read_flow};
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
        let names: Vec<&str> = feed.meta().targets.iter().map(|target| target.name.as_str()).collect();
        let host = feed.meta().host.hostname.as_deref().unwrap_or("this host");
        let name = if names.is_empty() { host.to_owned() } else { names.join(", ") };
        Source { name, kind: Kind::Live(feed) }
    }

    /// A recording.
    ///
    /// Errors: there is none in this directory.
    pub fn recording(dir: &Path, history_s: f64) -> Result<Source, LiveError> {
        Recording::open(dir)?;
        let name =
            dir.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned());
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
            _ => {
                let seen = self.last(None)?;
                let document = html::document(&seen.window, &seen.findings, seen.outcome.as_ref(), &seen.warnings);
                let held = match &self.kind {
                    Kind::Recording { dir, .. } => read_flow(dir),
                    Kind::Live(_) => None,
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
        }
    }

    fn last(&self, last_s: Option<f64>) -> Result<Seen, LiveError> {
        match &self.kind {
            Kind::Live(feed) => {
                let window = feed.window(last_s.unwrap_or(feed.history_s()));
                Ok(Seen { findings: found_now(&window), window, outcome: None, warnings: Vec::new(), grows: true })
            }
            Kind::Recording { dir, history_s } => recorded(dir, *history_s, last_s),
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
    let outcome = outcome(dir);
    // A run was diagnosed arm by arm while it ran, which tells more than its arms together could.
    let findings = match &outcome {
        Some(run) => run.findings.clone(),
        None if grows => found_now(&window),
        None => diagnose(&window, &Options::default()),
    };
    Ok(Seen { findings, window, outcome, warnings: recording.warnings().to_vec(), grows })
}

/// The page of a recording that has ended.
fn ended(dir: &Path) -> Result<Document, LiveError> {
    let recording = Recording::open(dir)?;
    let (span, outcome) = (recording.span().unwrap_or_default(), outcome(dir));
    let meta = Arc::new(recording.meta().clone());
    let read = |from, to| Ok(recording.window(Some(from), Some(to))?);
    let beside = (outcome.as_ref(), recording.warnings());
    let document: Result<Document, LiveError> =
        html::document_of(span, &meta, beside, &Options::default(), read, |_, _| {});
    document.map(|document| document.with_flow(read_flow(dir)))
}

/// What a lab run came to; none where it is no such recording, or one of another version.
fn outcome(dir: &Path) -> Option<Outcome> {
    serde_json::from_str(&std::fs::read_to_string(dir.join("outcome.json")).ok()?).ok()
}

fn is_being_written(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir.join("points")) else { return false };
    let written = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.metadata().ok()?.modified().ok();
    let newest = entries.filter_map(written).max();
    // A clock that was set back makes a time in the future: that is lately too.
    newest.is_some_and(|at| SystemTime::now().duration_since(at).map_or(true, |age| age < LATELY))
}
