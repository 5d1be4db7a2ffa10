//! MongoDB's flight recorder as something to look at: the same readings that `diagnose` and `report` take from it, also while the
//! server goes on writing to it.

use crate::LiveError;
use crate::feed::found_now;
use crate::sources::{Seen, present, written_within};
use backwater_diagnose::Options;
use backwater_model::Span;
use backwater_probe::mongodb::Flight;
use backwater_report::html::{self, Document};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A recorder that was written to this lately is still a running server's, which writes every ten seconds (`metrics.interim`).
const LATELY: Duration = Duration::from_secs(30);

/// Whether a server writes to it: its files are new, and so is what they hold, which of a copy just made it is not.
pub(crate) fn grows(path: &Path) -> bool {
    let below = path.join("diagnostic.data");
    let dir = if below.is_dir() { below.as_path() } else { path };
    path.is_dir()
        && written_within(dir, LATELY)
        && newest(dir).any(|file| Flight::open(&file).is_ok_and(|flight| is_of_now(&flight)))
}

/// The files written last: the one in the making, and the one that it goes to. All of them may be hundreds of MiB, and this is
/// asked again and again.
fn newest(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let dated = entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    let mut files: Vec<(SystemTime, PathBuf)> = dated.collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    files.into_iter().take(2).map(|(_, path)| path)
}

/// Whether the last sample was taken lately. A recorder's moments are wall-clock time; chunks are written once they are full.
fn is_of_now(flight: &Flight) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    flight.span().is_some_and(|(_, last)| (now - last.seconds()).abs() < 4.0 * LATELY.as_secs_f64())
}

/// Its last seconds: so many as are asked for, else the history.
///
/// Errors: it cannot be read.
pub(crate) fn lately(path: &Path, history_s: f64, last_s: Option<f64>) -> Result<Seen, LiveError> {
    let length_s = last_s.unwrap_or(history_s);
    let flight = Flight::open_last(path, length_s)?;
    let (first, last) = flight.span().unwrap_or_default();
    let from = (last - Span::from_seconds(length_s)).max(first);
    let window = flight.window(from, last)?;
    let (grows, now) = (is_of_now(&flight), present(flight.meta()).unwrap_or(last));
    Ok(Seen { findings: found_now(&window), window, outcome: None, warnings: flight.warnings(), grows, now })
}

/// The page of all of it.
///
/// Errors: it cannot be read.
pub(crate) fn ended(path: &Path) -> Result<Document, LiveError> {
    let flight = Flight::open(path)?;
    let meta = Arc::new(flight.meta().clone());
    let read = |from, to| Ok(flight.window(from, to)?);
    let span = flight.span().unwrap_or_default();
    let document: Result<Document, LiveError> =
        html::document_of(span, &meta, (None, &[]), &Options::default(), read, |_, _| {});
    let mut document = document?;
    // What is damaged inside a chunk is known once it is read.
    document.about.warnings = flight.warnings();
    Ok(document)
}
