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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftdc::{Builder, encode};

    fn now_ms() -> i64 {
        i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
    }

    /// A minute of samples that ends at this moment, in this file.
    fn recorder(file: &Path, last_ms: i64) {
        let about = Builder::new().document("buildInfo", |b| b.string("version", "7.0.0")).finish();
        let mut bytes = encode::metadata(last_ms - 60_000, &about);
        let mut encoder = encode::Encoder::default();
        for second in 0..=60 {
            let at = last_ms - 60_000 + second * 1_000;
            let status = |s: Builder| s.int64("pid", 7).int64("uptimeMillis", second * 1_000);
            let sample = Builder::new().date("start", at).document("serverStatus", status).finish();
            bytes.extend(encoder.add(at, &sample).unwrap().unwrap_or_default());
        }
        bytes.extend(encoder.finish().unwrap_or_default());
        std::fs::write(file, bytes).unwrap();
    }

    #[test]
    fn a_recorder_grows_where_its_files_and_what_they_hold_are_of_now() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("diagnostic.data");
        std::fs::create_dir(&below).unwrap();
        assert!(!grows(&below), "nothing there yet");
        let file = below.join("metrics.2023-11-14T22-13-20Z-00000");
        recorder(&file, now_ms() - 3_600_000);
        assert!(!grows(&below), "a copy just made of what ended an hour ago");
        recorder(&file, now_ms());
        assert!(grows(&below) && grows(dir.path()), "the server's own directory will do as well");
        assert!(!grows(&file), "one file is no running server's");
        let long_ago = SystemTime::now() - 2 * LATELY;
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
        assert!(!grows(&below), "nobody has written to it since");
        // The server goes on: what is not in a whole chunk yet stands in the interim file.
        recorder(&below.join("metrics.interim"), now_ms());
        assert!(grows(&below));
    }
}
