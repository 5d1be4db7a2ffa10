//! Lines of the log that anybody can bring about, however often he likes and with words of his own: so many a second are written,
//! and so much of his words.

use crate::clock;
use backwater_model::{Moment, Span};
use std::sync::{Mutex, PoisonError};

/// Enough to see who comes and why it is in vain; a day of them is some hundreds of megabytes.
const LINES: u32 = 20;
const WITHIN: Span = Span::from_millis(1_000);
/// So many bytes of what a stranger may have said himself, give or take a character: names are shorter.
const MOST_SHOWN_BYTES: usize = 256;

/// Who is refused before anybody knows him.
pub(super) static REFUSED: LogLimit = LogLimit::new("more are refused than are logged; SHOW STATS counts all");
/// Who failed to log in to the console: whoever watches for guesses must not lose them among the others.
pub(super) static CONSOLE_LOGINS: LogLimit =
    LogLimit::new("more logins to the console fail than are logged; SHOW STATS counts all");
/// Who comes while the server cannot be reached.
pub(super) static UNREACHABLE: LogLimit = LogLimit::new("more find no server than are logged");
/// Whose messages became such that nothing can be learnt from them.
pub(super) static NOT_FOLLOWED: LogLimit =
    LogLimit::new("more can no longer be followed than are logged; SHOW SESSIONS has all");
/// Whose link is not asked about.
pub(super) static NO_DESCRIPTOR: LogLimit = LogLimit::new("more found no descriptor than are logged");

/// How many lines of a kind were written since when.
#[derive(Debug)]
pub(super) struct LogLimit {
    /// What is said where there are too many.
    beyond: &'static str,
    second: Mutex<Option<(Moment, u32)>>,
}

impl LogLimit {
    const fn new(beyond: &'static str) -> LogLimit {
        LogLimit { beyond, second: Mutex::new(None) }
    }

    /// Writes a line. Where there were too many, it is said once in that second that there are more.
    pub(super) fn write(&self, line: impl FnOnce()) {
        match self.nth(clock::now()) {
            nth if nth <= LINES => line(),
            nth if nth == LINES + 1 => {
                tracing::warn!("{} ({LINES} lines a second are)", self.beyond);
            }
            _ => {}
        }
    }

    /// The how manieth this is of its second, which begins with the first after the one before.
    fn nth(&self, now: Moment) -> u32 {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, before) = second.filter(|(began, _)| now - *began < WITHIN).unwrap_or((now, 0));
        let nth = before.saturating_add(1);
        *second = Some((began, nth));
        nth
    }
}

/// A stranger's words as a line of the log may have them: not too many, on that line, and in the order in which they stand.
pub(super) fn shown(words: &str) -> String {
    let mut shown = String::new();
    for character in words.chars() {
        if shown.len() >= MOST_SHOWN_BYTES {
            shown.push('…');
            break;
        }
        match character {
            // What ends a line elsewhere, and what turns the direction of reading.
            '\\' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => shown.extend(character.escape_default()),
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_are_written_in_a_second_and_as_many_in_the_next() {
        let limit = LogLimit::new("");
        let at = |ms: i64| limit.nth(Moment(5_000_000 + ms * 1_000));
        assert_eq!([at(0), at(0), at(999)], [1, 2, 3]);
        assert_eq!([at(1_000), at(1_500), at(1_999)], [1, 2, 3]);
        assert_eq!(at(9_000), 1);
    }

    #[test]
    fn what_is_beyond_them_is_not_written() {
        let limit = LogLimit::new("");
        let mut written = 0;
        let began = clock::now();
        (0..10_000).for_each(|_| limit.write(|| written += 1));
        let seconds = (clock::now() - began).0 / WITHIN.0 + 1;
        assert!(written >= LINES && i64::from(written) <= i64::from(LINES) * seconds, "{written} in {seconds} s");
    }

    #[test]
    fn a_strangers_words_are_short_and_stay_on_their_line() {
        assert_eq!(shown("no pool \"größer\""), "no pool \"größer\"");
        assert_eq!(shown("a\n2026 WARN forged\u{7}\u{85}"), "a\\n2026 WARN forged\\u{7}\\u{85}");
        assert_eq!(shown("a\\n\u{202e}b"), "a\\\\n\\u{202e}b");
        assert_eq!(shown(&"ü".repeat(9_000)), "ü".repeat(MOST_SHOWN_BYTES / 2) + "…");
        assert!(shown(&"\u{7}".repeat(9_000)).len() < MOST_SHOWN_BYTES + 16);
    }
}
