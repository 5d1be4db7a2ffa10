//! Foreign text made harmless, measured, cut and wrapped.

use crate::Style;
use std::fmt::Write;
use unicode_width::UnicodeWidthChar;

/// Columns that a clean text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Columns that a character takes.
fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Text from outside as one line that is safe to show: white space becomes single spaces; control characters (and so
/// every escape sequence) and characters that hide or reorder others are spelled out as `\x1b`, `\u{202e}`.
pub fn clean(text: &str, style: &Style) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' | '\n' | '\r' | '\t' if out.is_empty() || out.ends_with(' ') => {}
            ' ' | '\n' | '\r' | '\t' => out.push(' '),
            c => push_safe(&mut out, c, style),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// As [`clean`], with its spaces as they are: for commands and file contents, where they may matter. Never loses a
/// character to ASCII, because what is copied must be what was meant.
pub(crate) fn clean_verbatim(line: &str, style: &Style) -> String {
    let style = Style { unicode: true, ..*style };
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => out.push_str("    "),
            c => push_safe(&mut out, c, &style),
        }
    }
    out
}

fn push_safe(out: &mut String, c: char, style: &Style) {
    // Writing to a String cannot fail.
    match c {
        c if c.is_control() && c.is_ascii() => drop(write!(out, "\\x{:02x}", u32::from(c))),
        c if c.is_control() || hides_or_reorders(c) => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
        c if c.is_ascii() || style.unicode => out.push(c),
        c => out.push_str(ascii_for(c)),
    }
}

/// Characters without a shape of their own that change how others are shown: bidirectional controls, zero-width
/// ones, line separators, variation selectors, tags.
fn hides_or_reorders(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// How a character that Backwater itself uses is spelled in ASCII; `?` for all others.
fn ascii_for(c: char) -> &'static str {
    match c {
        'µ' | 'μ' => "u",
        '–' | '—' | '−' => "-",
        '…' => "...",
        '×' => "x",
        '÷' => "/",
        '·' => "-",
        '→' => "->",
        '≤' => "<=",
        '≥' => ">=",
        '≈' => "~",
        '±' => "+-",
        '‘' | '’' => "'",
        '“' | '”' => "\"",
        '\u{a0}' | '\u{202f}' | '\u{2009}' => " ",
        _ => "?",
    }
}

/// A clean text cut to so many columns, with a sign that something is missing.
pub fn cut(text: &str, columns: usize, style: &Style) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let more = style.sign("…", "~");
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += char_width(c);
        if used + 1 > columns {
            break;
        }
        out.push(c);
    }
    if columns > 0 {
        out.push_str(more);
    }
    out
}

/// A clean text in lines of at most so many columns (at least one), broken at spaces (but not between a number and its
/// unit) and, where a word is longer than a line, within it. Never empty: an empty text is one empty line.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words(text) {
        let size = width(word);
        let gap = usize::from(used > 0);
        if used + gap + size <= columns {
            push(&mut lines, if gap == 1 { " " } else { "" });
            push(&mut lines, word);
            used += gap + size;
            continue;
        }
        if used > 0 {
            lines.push(String::new());
        }
        used = push_broken(&mut lines, word, columns);
    }
    lines
}

/// The words of a text, a number and the unit behind it being one.
pub(crate) fn words(text: &str) -> Vec<&str> {
    let mut list: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    for word in text.split(' ') {
        let (start, end) = (at, at + word.len());
        at = end + 1;
        match list.last_mut() {
            Some((_, before))
                if *before + 1 == start && is_unit(word) && text[..*before].ends_with(|c: char| c.is_ascii_digit()) =>
            {
                *before = end;
            }
            _ if word.is_empty() => {}
            _ => list.push((start, end)),
        }
    }
    list.into_iter().map(|(start, end)| &text[start..end]).collect()
}

fn is_unit(word: &str) -> bool {
    const UNITS: [&str; 20] = [
        "%", "s", "ms", "us", "µs", "min", "h", "B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "IOPS", "TPS",
        "B/s", "KiB/s", "MiB/s",
    ];
    UNITS.contains(&word.trim_end_matches([',', ';', '.', ')', ':']))
}

/// Adds a word to the last, empty line, breaking it where it is longer; the columns then used on the last line.
fn push_broken(lines: &mut Vec<String>, word: &str, columns: usize) -> usize {
    let mut used = 0;
    for c in word.chars() {
        // A character wider than the whole line cannot be shown on it.
        let c = if char_width(c) > columns { '?' } else { c };
        if used + char_width(c) > columns {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
        used += char_width(c);
    }
    used
}

fn push(lines: &mut [String], text: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(text);
    }
}

/// A clean text with spaces behind it, up to so many columns.
pub(crate) fn pad_right(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A clean text with spaces before it, up to so many columns.
pub(crate) fn pad_left(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNICODE: Style = Style { color: false, width: 80, unicode: true };

    #[test]
    fn nothing_foreign_executes_in_the_terminal() {
        let hostile = "a\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}b\u{200b}\r\nc\0";
        assert_eq!(clean(hostile, &UNICODE), "a\\x1b]0;owned\\x07\\u{9b}31m\\u{202e}b\\u{200b} c\\x00");
        assert_eq!(clean("5 µs – 10 µs, naïve", &Style::plain(80)), "5 us - 10 us, na?ve");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(width("日本"), 4);
        assert_eq!(cut("日本語", 5, &UNICODE), "日本…");
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
        assert_eq!(wrap("日", 1), ["?"]);
    }

    #[test]
    fn words_stay_whole_where_they_fit() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("drains in 30 s, then 5 MiB", 11), ["drains in", "30 s, then", "5 MiB"]);
    }

    proptest! {
        #[test]
        fn cleaned_text_has_no_control_characters(text in any::<String>(), unicode: bool) {
            let style = Style { unicode, ..UNICODE };
            let cleaned = clean(&text, &style);
            prop_assert!(!cleaned.chars().any(|c| c.is_control() || hides_or_reorders(c)));
            prop_assert!(unicode || cleaned.is_ascii());
        }

        #[test]
        fn lines_are_never_wider_than_asked(text in any::<String>(), columns in 1usize..100) {
            let cleaned = clean(&text, &UNICODE);
            prop_assert!(wrap(&cleaned, columns).iter().all(|line| width(line) <= columns));
            prop_assert!(width(&cut(&cleaned, columns, &UNICODE)) <= columns);
        }
    }
}
