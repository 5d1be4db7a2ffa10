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

    /// The shared copy; none for an absent or empty text.
    pub(super) fn some(&mut self, text: Option<&str>) -> Option<Text> {
        text.filter(|text| !text.is_empty()).map(|text| self.get(text))
    }
}

/// Statements as they go into a recording.
#[derive(Debug, Default)]
pub(super) struct Statements {
    /// By the hash of the text as the server shows it: at 10 Hz the same statements come again and again.
    known: HashMap<u64, Text>,
    hasher: RandomState,
    shared: Interner,
    /// Whether the text is kept as it stands.
    pub(super) keep_text: bool,
    /// standard_conforming_strings = off.
    pub(super) backslash_escapes: bool,
}

impl Statements {
    /// What is kept of this statement; none for an empty one.
    pub(super) fn get(&mut self, text: &str) -> Option<Text> {
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
    fn kept_text_still_hides_passwords() {
        let mut statements = Statements { keep_text: true, ..Statements::default() };
        assert_eq!(statements.get("SELECT 1").unwrap().as_ref(), "SELECT 1");
        assert_eq!(statements.get("ALTER ROLE r PASSWORD 'x'").unwrap().as_ref(), "ALTER ROLE r PASSWORD ?");
    }
}
