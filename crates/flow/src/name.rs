//! Names of rules, pools and users, spelled as in SQL: without quotes folded to lower case, with quotes as they stand.

/// The longest name, in bytes: PostgreSQL's.
pub const MOST_NAME_BYTES: usize = 63;

/// Whether a bare name may begin so.
pub(crate) fn begins(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

/// Whether a bare name may go on so.
pub(crate) fn goes_on(c: char) -> bool {
    begins(c) || c.is_ascii_digit() || c == '$'
}

/// Folds a bare name. ASCII only, as PostgreSQL does in UTF-8 databases.
pub(crate) fn fold(bare: &str) -> String {
    bare.to_ascii_lowercase()
}

/// Whether this can be a name at all.
pub(crate) fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name cannot be empty".to_owned());
    }
    if name.len() > MOST_NAME_BYTES {
        return Err(format!("a name has at most {MOST_NAME_BYTES} bytes: this one has {}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err("a name cannot hold control characters".to_owned());
    }
    Ok(())
}

/// Spells a name so that it is read back the same: with quotes only where it needs them.
pub fn quote(name: &str) -> String {
    let bare = name.chars().next().is_some_and(begins) && name.chars().all(goes_on) && fold(name) == name;
    if bare { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Spells names as [`read_list`] reads them.
pub(crate) fn quote_list(names: &[String]) -> String {
    names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(",")
}

/// Reads names separated by commas. An empty text is no names.
pub(crate) fn read_list(text: &str) -> Result<Vec<String>, String> {
    let mut rest = text.trim();
    let mut names = Vec::new();
    if rest.is_empty() {
        return Ok(names);
    }
    loop {
        let (name, after) = read_one(rest)?;
        check(&name)?;
        names.push(name);
        rest = after.trim_start();
        if rest.is_empty() {
            return Ok(names);
        }
        let next = rest.strip_prefix(',').ok_or_else(|| {
            format!("'{}' does not belong here: names are separated by commas, and odd ones need double quotes", rest)
        })?;
        rest = next.trim_start();
    }
}

fn read_one(text: &str) -> Result<(String, &str), String> {
    if let Some(quoted) = text.strip_prefix('"') {
        return read_quoted(quoted).ok_or_else(|| "a double quote is not closed".to_owned());
    }
    let end = text.find(|c| !goes_on(c)).unwrap_or(text.len());
    let (bare, rest) = text.split_at(end);
    if bare.chars().next().is_some_and(begins) {
        Ok((fold(bare), rest))
    } else {
        Err(format!("a name is expected at '{text}'"))
    }
}

/// The text up to the closing double quote, with doubled ones undone, and what follows it.
pub(crate) fn read_quoted(text: &str) -> Option<(String, &str)> {
    read_until(text, '"')
}

/// The text up to a closing quote, with doubled ones undone, and what follows it.
pub(crate) fn read_until(text: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut rest = text;
    loop {
        let end = rest.find(quote)?;
        out.push_str(&rest[..end]);
        rest = &rest[end + quote.len_utf8()..];
        match rest.strip_prefix(quote) {
            Some(after) => {
                out.push(quote);
                rest = after;
            }
            None => return Some((out, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_fold_unless_quoted() {
        assert_eq!(read_list(" A, \"B c\" ,d_1").unwrap(), ["a", "B c", "d_1"]);
        assert_eq!(read_list("  ").unwrap(), Vec::<String>::new());
        assert_eq!(read_list("\"a\"\"b\"").unwrap(), ["a\"b"]);
        for wrong in ["a b", "a,", ",a", "1a", "\"open", "\"\"", "a;drop"] {
            assert!(read_list(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn names_spelled_out_are_read_back(names in prop::collection::vec("[^\\p{C}]{1,15}", 0..5)) {
            prop_assert_eq!(read_list(&quote_list(&names)).unwrap(), names);
        }

        #[test]
        fn any_text_is_survived(text in ".*") {
            let _ = read_list(&text);
        }
    }
}
