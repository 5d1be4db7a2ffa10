//! Words, names, texts, numbers and symbols of a statement, each with its place.

use super::ParseError;
use crate::name;

/// A piece of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A bare word, as it was written.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A text in single quotes.
    Text(String),
    /// A number without a sign, as it was written.
    Number(String),
    /// Any other character, of which `( ) = , ; - *` belong in a statement.
    Symbol(char),
    /// The end.
    End,
}

/// A piece and where it begins, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: usize,
}

impl Kind {
    /// How it is named in an error. What stands in single quotes may be a password and is not repeated.
    pub(super) fn shown(&self) -> String {
        match self {
            Kind::Word(word) => format!("'{word}'"),
            Kind::Quoted(name) => name::quote(name),
            Kind::Text(_) => "a text in quotes".to_owned(),
            Kind::Number(number) => number.clone(),
            Kind::Symbol(symbol) => format!("'{}'", symbol.escape_debug()),
            Kind::End => "the end".to_owned(),
        }
    }
}

impl Token {
    /// What follows this word is repeated in no error: it may be a password without its quotes, or what is left of one.
    pub(super) fn begins_a_password(&self) -> bool {
        matches!(&self.kind, Kind::Word(word) if word.eq_ignore_ascii_case("PASSWORD"))
    }
}

/// All tokens of a text; the last is [`Kind::End`].
pub(super) fn read(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = skip(text, rest)?;
        let at = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push(Token { kind: Kind::End, at });
            return Ok(tokens);
        };
        let (kind, after) = read_one(first, rest).map_err(|message| {
            let is_secret = tokens.iter().any(Token::begins_a_password);
            ParseError::at(text, at, if is_secret { PASSWORD_WANTED.to_owned() } else { message })
        })?;
        tokens.push(Token { kind, at });
        rest = after;
    }
}

/// What is said in place of what stands there.
const PASSWORD_WANTED: &str = "a password stands in single quotes, and a single quote in it is written twice";

fn read_one(first: char, rest: &str) -> Result<(Kind, &str), String> {
    if first == '\'' {
        let (inner, after) = name::read_until(&rest[1..], '\'').ok_or("a single quote is not closed")?;
        return Ok((Kind::Text(inner), after));
    }
    if first == '"' {
        let (inner, after) = name::read_quoted(&rest[1..]).ok_or("a double quote is not closed")?;
        name::check(&inner)?;
        return Ok((Kind::Quoted(inner), after));
    }
    let begins_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if begins_number(rest) || rest.strip_prefix('.').is_some_and(begins_number) {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if after.chars().next().is_some_and(name::goes_on) {
            let end = after.find(|c| !name::goes_on(c)).unwrap_or(after.len());
            return Err(format!("a value with a unit stands in single quotes: '{number}{}'", &after[..end]));
        }
        return Ok((Kind::Number(number.to_owned()), after));
    }
    if name::begins(first) {
        let end = rest.find(|c| !name::goes_on(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        return Ok((Kind::Word(word.to_owned()), after));
    }
    Ok((Kind::Symbol(first), &rest[first.len_utf8()..]))
}

/// What follows the comment that begins here, which may hold others, as in SQL; None where it does not end.
fn after_comment(text: &str) -> Option<&str> {
    let (mut depth, mut at) = (0usize, 0);
    loop {
        match text.as_bytes().get(at..at + 2)? {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return text.get(at + 2..),
            b"*/" => (depth, at) = (depth.saturating_sub(1), at + 2),
            _ => at += 1,
        }
    }
}

/// What follows blanks and comments.
fn skip<'t>(text: &str, from: &'t str) -> Result<&'t str, ParseError> {
    let mut rest = from;
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
        } else if rest.starts_with("/*") {
            let open = || ParseError::at(text, text.len() - rest.len(), "a comment is not closed".to_owned());
            rest = after_comment(rest).ok_or_else(open)?;
        } else {
            return Ok(rest);
        }
    }
}
