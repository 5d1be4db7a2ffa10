//! Foreign words and shapes on a terminal: nothing of somebody else's reaches it as a control sequence.

use unicode_width::UnicodeWidthStr;

/// Columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Foreign text on one line, without control characters; only ASCII where the terminal shows nothing else.
pub(super) fn clean(text: &str, unicode: bool) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    // Characters that turn the direction of writing would show a name as another one.
    let turns = |c: &char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let chars = text.chars().filter(|c| !turns(c)).map(plain);
    if unicode { chars.collect() } else { chars.map(|c| if c.is_ascii() { c } else { '?' }).collect() }
}

/// At most so many columns; what is cut ends in an ellipsis.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        out.push(c);
        if width(&out) >= columns {
            out.pop();
            break;
        }
    }
    if columns > 0 {
        out.push(if text.is_ascii() { '.' } else { '…' });
    }
    out
}

/// A share as a bar of so many columns.
pub(super) fn bar(share: f64, columns: usize, unicode: bool) -> String {
    // A cast saturates and makes NaN 0.
    let full = ((share * columns as f64).round().max(0.0) as usize).min(columns);
    let (on, off) = if unicode { ("█", "░") } else { ("#", ".") };
    on.repeat(full) + &off.repeat(columns - full)
}

/// Lines of words, none longer than so many columns.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let fits = lines.last().is_some_and(|line| line.is_empty() || width(line) + 1 + width(word) <= columns);
        if !fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.into_iter().map(|line| cut(&line, columns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_stay_words_and_fit() {
        assert_eq!(clean("a\u{1b}[2J\u{202e}b\n", true), "a [2Jb ");
        assert_eq!(clean("größe", false), "gr??e");
        assert_eq!(cut("abcdef", 4), "abc.");
        assert_eq!(width(&cut("データベース", 5)), 5);
        assert_eq!(
            (bar(0.5, 4, false), bar(9.0, 2, true), bar(f64::NAN, 2, false)),
            ("##..".into(), "██".into(), "..".into())
        );
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
    }
}
