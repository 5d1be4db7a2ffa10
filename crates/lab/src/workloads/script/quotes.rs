//! Where quoted text and comments of SQL end.

/// Where the comment at the start of this text ends. Comments nest.
pub(crate) fn comment_end(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(found) = text[at..].find(['/', '*']).map(|found| at + found) {
        if text[found..].starts_with("/*") {
            depth += 1;
            at = found + 2;
        } else if text[found..].starts_with("*/") {
            depth -= 1;
            at = found + 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at = found + 1;
        }
    }
    None
}

/// Where the quoted string at the start of this text ends. A doubled quote inside it reads as two strings side by
/// side, which comes to the same.
pub(crate) fn quote_end(text: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, next)) = characters.next() {
        if escapes && next == '\\' {
            characters.next();
        } else if next == quote {
            // Of a doubled quote the string goes on: its second half must be read with the same rule.
            if text[at + 1..].starts_with(quote) {
                characters.next();
            } else {
                return Some(at + 1);
            }
        }
    }
    None
}

/// The dollar quote at the start of this text: `$$` or `$tag$`.
pub(crate) fn dollar_tag(text: &str) -> Option<&str> {
    let after = text.strip_prefix('$')?;
    let end = after.find('$')?;
    let tag = &after[..end];
    let valid = tag.chars().all(|c| c.is_alphanumeric() || c == '_') && !tag.starts_with(|c: char| c.is_ascii_digit());
    valid.then(|| &text[..end + 2])
}
