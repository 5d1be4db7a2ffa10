//! Texts that many samples share, kept once; and statements, normalised once.

use super::normalise;
use backwater_model::Text;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// How many texts are kept before all are forgotten: memory stays bounded whatever the clients send.
const MOST: usize = 4096;

/// Keeps one copy of each text.
#[derive(Debug, Default)]
pub(super) struct Interner {
    known: HashSet<Text>,
}

impl Interner {
    /// The shared copy of this text.
    pub(super) fn get(&mut self, text: &str) -> Text {
        if let Some(known) = self.known.get(text) {
            return Text::clone(known);
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let text: Text = Text::from(text);
        self.known.insert(Text::clone(&text));
        text
    }
}

/// One column of rows: most rows have the text of the row before, which is found by comparing alone.
#[derive(Debug, Default)]
pub(super) struct Column {
    last: Option<Text>,
}

impl Column {
    /// The shared copy of this row's text; none for an absent or empty one.
    pub(super) fn some(&mut self, texts: &mut Interner, text: Option<&str>) -> Option<Text> {
        let text = text.filter(|text| !text.is_empty())?;
        if self.last.as_deref() != Some(text) {
            self.last = Some(texts.get(text));
        }
        self.last.clone()
    }
}

/// Statements as they go into a recording.
#[derive(Debug, Default)]
pub(super) struct Statements {
    /// By the hash of the text as the server shows it: at 10 Hz the same statements come again and again.
    known: HashMap<u64, Text>,
    hasher: RandomState,
    /// The last one as the server showed it, literals and all, and what is kept of it: many sessions run the same one.
    last: (String, Option<Text>),
    shared: Interner,
    /// Whether the text is kept as it stands.
    pub(super) keep_text: bool,
    /// standard_conforming_strings = off.
    pub(super) backslash_escapes: bool,
}

impl Statements {
    /// What is kept of this statement; none for an empty one.
    pub(super) fn get(&mut self, text: &str) -> Option<Text> {
        if self.last.0 != text {
            let kept = self.find(text);
            text.clone_into(&mut self.last.0);
            self.last.1 = kept;
        }
        self.last.1.clone()
    }

    fn find(&mut self, text: &str) -> Option<Text> {
        if text.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(text);
        if let Some(known) = self.known.get(&hash) {
            return Some(Text::clone(known));
        }
        // What may hold a password is never kept as it stands.
        let kept = if self.keep_text && !normalise::may_hold_secret(text) {
            let mut text = text.to_owned();
            normalise::truncate(&mut text, normalise::LONGEST);
            self.shared.get(&text)
        } else {
            self.shared.get(&normalise::normalise(text, self.backslash_escapes))
        };
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(hash, Text::clone(&kept));
        Some(kept).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn statements_that_differ_in_literals_share_one_text() {
        let mut statements = Statements::default();
        let (one, two) = (statements.get("SELECT 1").unwrap(), statements.get("SELECT 2").unwrap());
        assert!(Text::ptr_eq(&one, &two));
        assert_eq!(statements.get(""), None);
        for number in 0..3 * MOST {
            statements.get(&format!("SELECT x{number}x"));
        }
        assert!(statements.known.len() <= MOST && statements.shared.known.len() <= MOST);
    }

    #[test]
    fn a_column_gives_the_shared_text_whatever_the_row_before_had() {
        let (mut texts, mut column) = (Interner::default(), Column::default());
        let rows = [Some("IO"), Some("IO"), None, Some("Lock"), Some(""), Some("IO")];
        let seen: Vec<_> = rows.into_iter().map(|row| column.some(&mut texts, row)).collect();
        let io = texts.get("IO");
        assert!([0, 1, 5].into_iter().all(|row| Text::ptr_eq(seen[row].as_ref().unwrap(), &io)));
        assert_eq!((&seen[2], seen[3].as_deref(), &seen[4]), (&None, Some("Lock"), &None));
    }

    #[test]
    fn kept_text_still_hides_passwords() {
        let mut statements = Statements { keep_text: true, ..Statements::default() };
        assert_eq!(statements.get("SELECT 1").unwrap().as_ref(), "SELECT 1");
        assert_eq!(statements.get("ALTER ROLE r PASSWORD 'x'").unwrap().as_ref(), "ALTER ROLE r PASSWORD ?");
    }
}
