//! `outcome.json` in the directory of a lab run: what the run came to, written by the lab when it ends. The recording beside it is
//! whole without it.

use crate::RecordError;
use backwater_model::Outcome;
use std::io::ErrorKind;
use std::path::Path;

const OUTCOME: &str = "outcome.json";

/// What the lab run in this directory came to; none for a recording of something else. Of a file that is there and cannot be
/// read, what to say of it: the rest can still be shown.
pub fn read_outcome(dir: &Path) -> (Option<Outcome>, Option<String>) {
    let path = dir.join(OUTCOME);
    let lost = |error: RecordError| (None, Some(format!("the lab's results are not shown: {error}")));
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        // A directory that is none has no results either; what it is, is said where it is opened.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return (None, None),
        Err(error) => return lost(RecordError::io("read", &path, error)),
    };
    match serde_json::from_slice(&text) {
        Ok(outcome) => (Some(outcome), None),
        Err(error) => lost(RecordError::Damaged {
            path,
            why: error.to_string(),
            advice: "restore this file from a copy, or run the scenario again; the recording beside it is read as it is",
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_cannot_be_read_is_said_and_what_is_not_there_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_outcome(dir.path()), (None, None));
        let path = dir.path().join(OUTCOME);
        std::fs::write(&path, "").unwrap();
        assert_eq!(read_outcome(&path), (None, None), "a file is no directory");
        for damaged in ["", "{\"scenario\": \"stam", "[]", "\u{0}"] {
            std::fs::write(&path, damaged).unwrap();
            let (outcome, lost) = read_outcome(dir.path());
            let lost = lost.unwrap();
            assert!(outcome.is_none() && lost.contains("outcome.json"), "{damaged}: {lost}");
            assert!(lost.starts_with("the lab's results are not shown: "), "{damaged}: {lost}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read_outcome(dir.path()).1.unwrap().contains("cannot read"), "a directory of that name");
    }
}
