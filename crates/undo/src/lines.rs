//! What stands in a journal's file: one JSON object a line, appended (a long one gives way to a new file with what is open). A run killed while writing
//! leaves a last line without its end: the change on it was not made, since a change is made after its note is synced.

use crate::Change;
use serde::{Deserialize, Serialize};

/// The format written by this version.
pub(crate) const VERSION: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first: whose journal it is.
    Began(Began),
    /// A change about to be made.
    Note {
        /// Counted from 0.
        entry: u64,
        /// What.
        change: Change,
    },
    /// A change that is put back.
    Undone {
        /// Its number.
        entry: u64,
    },
}

/// Whose journal it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Began {
    /// Of the format.
    pub(crate) version: u32,
    /// The run, for a person: `lab run stampede`.
    pub(crate) what: String,
    /// Its process.
    pub(crate) pid: i32,
    /// When that started, in clock ticks since boot.
    pub(crate) start_time: u64,
    /// The kernel's id of this boot.
    pub(crate) boot: String,
}

impl Line {
    /// As written, with its line end.
    pub(crate) fn to_text(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        Ok(text)
    }
}

/// What a journal's file holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// The head, where it could be read.
    pub(crate) began: Option<Began>,
    /// What is noted and not undone, oldest first.
    pub(crate) open: Vec<(u64, Change)>,
    /// Whole lines that could not be understood, counted from 1.
    pub(crate) unreadable: Vec<usize>,
    /// Bytes up to the end of the last whole line; what follows was cut by the kill.
    pub(crate) whole_bytes: usize,
}

/// Reads a journal's bytes. Never fails: what cannot be understood is counted.
pub(crate) fn parse(bytes: &[u8]) -> Content {
    let whole_bytes = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut content = Content { whole_bytes, ..Content::default() };
    for (index, text) in bytes[..whole_bytes].split_inclusive(|&byte| byte == b'\n').enumerate() {
        match serde_json::from_slice(text) {
            Ok(Line::Began(began)) if index == 0 && began.version == VERSION => content.began = Some(began),
            Ok(Line::Note { entry, change }) => content.open.push((entry, change)),
            Ok(Line::Undone { entry }) => content.open.retain(|(open, _)| *open != entry),
            Ok(Line::Began(_)) | Err(_) => content.unreadable.push(index + 1),
        }
    }
    content
}

/// Reads bytes as a journal: what is open in it can be named, put in order and written again. For the fuzzer.
#[cfg(fuzzing)]
pub fn exercise(bytes: &[u8]) {
    let content = parse(bytes);
    assert!(content.whole_bytes <= bytes.len());
    let mut again = String::new();
    for (entry, change) in &content.open {
        assert!(!change.command().is_empty() && change.same_target(change));
        let _ = (change.rank(), change.gone_with_boot(), change.removes(), change.to_string());
        let line = Line::Note { entry: *entry, change: change.clone() };
        again.push_str(&line.to_text().unwrap_or_default());
    }
    assert_eq!(parse(again.as_bytes()).open, content.open);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Vec<Line> {
        let began = Began { version: VERSION, what: "test".into(), pid: 1, start_time: 2, boot: "b".into() };
        let file = |name: &str| Change::File { path: name.into() };
        vec![
            Line::Began(began),
            Line::Note { entry: 0, change: file("/backwater-a") },
            Line::Note { entry: 1, change: file("/backwater-b") },
            Line::Undone { entry: 0 },
        ]
    }

    fn text(lines: &[Line]) -> String {
        lines.iter().map(|line| line.to_text().unwrap()).collect()
    }

    #[test]
    fn what_is_undone_is_not_open() {
        let content = parse(text(&sample()).as_bytes());
        assert_eq!(content.open, [(1, Change::File { path: "/backwater-b".into() })]);
        assert_eq!(content.began.unwrap().what, "test");
        assert!(content.unreadable.is_empty());
    }

    #[test]
    fn a_cut_at_any_byte_loses_only_the_last_line() {
        let lines = sample();
        let whole = text(&lines);
        for cut in 0..=whole.len() {
            let content = parse(&whole.as_bytes()[..cut]);
            assert!(content.unreadable.is_empty(), "cut at {cut}");
            assert_eq!(content.whole_bytes, whole[..cut].rfind('\n').map_or(0, |at| at + 1));
        }
    }

    #[test]
    fn a_line_of_a_newer_version_is_counted_not_lost() {
        let more = format!("{}{{\"note\":{{\"entry\":2,\"change\":{{\"kind\":\"qdisc\"}}}}}}\n", text(&sample()));
        let content = parse(more.as_bytes());
        assert_eq!(content.unreadable, [5]);
        assert_eq!(content.open.len(), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let content = parse(&bytes);
            prop_assert!(content.whole_bytes <= bytes.len());
        }
    }
}
