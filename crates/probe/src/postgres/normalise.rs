//! Query text without its literals, so that a recording holds no data of the users: `WHERE id = 42 AND name = 'x'`
//! becomes `WHERE id = ? AND name = ?`. A scanner of PostgreSQL's lexical rules, no parser: it never fails, and what
//! was cut in the middle of a literal or comment loses the rest of it.

/// The longest normalised text in bytes.
pub(super) const LONGEST: usize = 1024;

/// The text with every string and number replaced by `?`, with the sign of such a number, comments left out, white space folded, lists of literals
/// shortened to `?, ...`, and at most [`LONGEST`] bytes. `backslash_escapes` says whether `\'` inside a plain string
/// is a quote (standard_conforming_strings = off).
pub(super) fn normalise(text: &str, backslash_escapes: bool) -> String {
    let mut scanner = Scanner { rest: text, out: String::with_capacity(text.len().min(LONGEST)), backslash_escapes };
    while scanner.out.len() < LONGEST && scanner.step() {}
    let mut out = scanner.out;
    truncate(&mut out, LONGEST);
    out.truncate(out.trim_end().len());
    out
}

/// Whether the text may hold a password or a connection string, which is never kept as it stands.
pub(super) fn may_hold_secret(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["password", "conninfo", "connection", "://", "secret", "passphrase", "token"]
        .iter()
        .any(|word| text.contains(word))
}

/// Cuts to at most so many bytes, between characters.
pub(super) fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

/// Keywords that end no expression: what follows is a value. All but BETWEEN are reserved, so no column is called so.
const BEFORE_OPERAND: [&str; 16] = [
    "select",
    "distinct",
    "all",
    "where",
    "and",
    "or",
    "not",
    "between",
    "when",
    "then",
    "else",
    "having",
    "limit",
    "offset",
    "default",
    "returning",
];

struct Scanner<'a> {
    rest: &'a str,
    out: String,
    backslash_escapes: bool,
}

impl Scanner<'_> {
    /// Takes one token; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        let second = self.rest[first.len_utf8()..].chars().next();
        match first {
            c if c.is_whitespace() => self.skip(c.len_utf8()),
            '-' if second == Some('-') => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
            '/' if second == Some('*') => self.skip(comment_end(self.rest)),
            '\'' => self.literal(string_end(self.rest, self.backslash_escapes)),
            '"' => self.copy(quoted_end(self.rest)),
            '$' => self.dollar(),
            '-' | '+' if self.begins_operand() => match signed_number_end(self.rest) {
                Some(end) => self.literal(end),
                None => self.copy(1),
            },
            c if c.is_ascii_digit() => self.literal(number_end(self.rest)),
            '.' if second == Some('.') => self.copy(2),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.literal(1 + number_end(&self.rest[1..])),
            c if is_identifier_start(c) => self.word(),
            c => self.copy(c.len_utf8()),
        }
        true
    }

    /// Leaves out so many bytes; words on both sides stay apart.
    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        if !self.out.is_empty() && !self.out.ends_with(' ') {
            self.out.push(' ');
        }
    }

    fn copy(&mut self, bytes: usize) {
        let (token, rest) = self.rest.split_at(bytes);
        self.out.push_str(token);
        self.rest = rest;
    }

    /// Whether an operand begins here, so that a sign is its own and not of a subtraction: after an opening bracket, a comma,
    /// another operator, or a keyword that ends no expression.
    fn begins_operand(&self) -> bool {
        let before = self.out.trim_end();
        let Some(last) = before.chars().next_back() else { return true };
        if !is_identifier_part(last) {
            return "(,[=<>*/%^|&:;+-".contains(last);
        }
        let start = before.rfind(|c: char| !is_identifier_part(c)).map_or(0, |at| at + 1);
        BEFORE_OPERAND.iter().any(|word| before[start..].eq_ignore_ascii_case(word))
    }

    /// Puts `?` for so many bytes. The second and later literals of a list become one `...`.
    fn literal(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        let before = self.out.trim_end();
        let Some(list) = before.strip_suffix(',').map(str::trim_end) else { return self.out.push('?') };
        if list.ends_with("...") {
            self.out.truncate(list.len());
        } else if list.ends_with('?') {
            self.out.push_str("...");
        } else {
            self.out.push('?');
        }
    }

    /// `$1` stays, `$tag$…$tag$` is a string, any other `$` an operator character.
    fn dollar(&mut self) {
        let after = &self.rest[1..];
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            return self.copy(1 + digits);
        }
        let tag = after.find(|c: char| !is_identifier_start(c) && !c.is_ascii_digit()).unwrap_or(after.len());
        if !after[tag..].starts_with('$') {
            return self.copy(1);
        }
        let delimiter = &self.rest[..tag + 2];
        let body = &self.rest[delimiter.len()..];
        let end = body.find(delimiter).map_or(self.rest.len(), |at| 2 * delimiter.len() + at);
        self.literal(end);
    }

    /// A keyword or identifier, or the prefix of a string: E'', B'', X'', N'', U&''.
    fn word(&mut self) {
        let end = self.rest.find(|c: char| !is_identifier_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let prefixed = |prefixes: &[&str]| prefixes.iter().any(|prefix| word.eq_ignore_ascii_case(prefix));
        if rest.starts_with('\'') && prefixed(&["e", "b", "x", "n"]) {
            let escapes = self.backslash_escapes || prefixed(&["e"]);
            self.literal(end + string_end(rest, escapes));
        } else if rest.starts_with("&'") && prefixed(&["u"]) {
            self.literal(end + 1 + string_end(&rest[1..], self.backslash_escapes));
        } else {
            self.copy(end);
        }
    }
}

fn is_identifier_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn is_identifier_part(c: char) -> bool {
    is_identifier_start(c) && !c.is_whitespace() || c.is_ascii_digit() || c == '$'
}

/// Bytes up to the end of the string that begins here; a doubled quote belongs to it.
fn string_end(text: &str, escapes: bool) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if escapes => at += 2,
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => return at + 1,
            _ => at += 1,
        }
        // An escaped character may have several bytes; the cut below must fall between characters.
        while at < bytes.len() && !text.is_char_boundary(at) {
            at += 1;
        }
    }
    text.len()
}

/// Bytes up to the end of the quoted identifier that begins here.
fn quoted_end(text: &str) -> usize {
    text[1..].find('"').map_or(text.len(), |at| at + 2)
}

/// Bytes up to the end of the comment that begins here; comments nest.
fn comment_end(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while let Some(next) = text[at..].find(['/', '*']).map(|found| at + found) {
        let pair = text.get(next..next + 2);
        match pair {
            Some("/*") => depth += 1,
            Some("*/") => depth -= 1,
            _ => {}
        }
        at = next + if matches!(pair, Some("/*" | "*/")) { 2 } else { 1 };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Bytes of a sign and the number behind it, white space between them included.
fn signed_number_end(text: &str) -> Option<usize> {
    let number = text[1..].trim_start();
    let digits = number.strip_prefix('.').unwrap_or(number);
    let sign = text.len() - digits.len();
    digits.starts_with(|c: char| c.is_ascii_digit()).then(|| sign + number_end(digits))
}

/// Bytes of the number that begins here, with its fraction, exponent, `0x` digits and `_` separators.
fn number_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let sign = matches!(byte, b'+' | b'-') && at > 0 && matches!(bytes[at - 1], b'e' | b'E');
        // `1..10` in PL/pgSQL is two numbers.
        let point = *byte == b'.' && bytes.get(at + 1) != Some(&b'.');
        if !(byte.is_ascii_alphanumeric() || *byte == b'_' || sign || point) {
            break;
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn literals_go_and_the_rest_stays() {
        for (text, wanted) in [
            ("SELECT 1", "SELECT ?"),
            ("select * from t1 where a = 'it''s' and b=-2.5e-3", "select * from t1 where a = ? and b=?"),
            ("VALUES (-1, +2.5), (- .5, 1)", "VALUES (?, ...), (?, ...)"),
            ("SELECT -1, a - 1, a -1, a-1, (a)-1, 2 -1, $1 -1", "SELECT ?, a - ?, a -?, a-?, (a)-?, ... -?, $1 -?"),
            (
                "SELECT a - -1 WHERE -b < -1 AND c BETWEEN -2 AND +3 LIMIT 5",
                "SELECT a - ? WHERE -b < ? AND c BETWEEN ? AND ? LIMIT ?",
            ),
            (
                "SELECT \"select\" -1, x[-1], count(*) -1, now() -'1 s'",
                "SELECT \"select\" -?, x[?], count(*) -?, now() -?",
            ),
            ("UPDATE t SET x = x + .5 WHERE id = $1", "UPDATE t SET x = x + ? WHERE id = $1"),
            ("SELECT E'a\\'b', U&'d\\0061t', B'101', x'ff', N'n'", "SELECT ?, ..."),
            ("SELECT $$body 1$$, $q$ a $$ b $q$ || c", "SELECT ?, ... || c"),
            ("IN (1,2, 3 ,4)", "IN (?,...)"),
            ("VALUES (1, a, 2), (3, b, 4)", "VALUES (?, a, ?), (?, b, ?)"),
            ("SELECT \"Col 1\" FROM \"T''2\"", "SELECT \"Col 1\" FROM \"T''2\""),
            ("SELECT a -- secret 1\n, b /* x /* 'y' */ z */ FROM t", "SELECT a , b FROM t"),
            ("  SELECT\n\t 1  ", "SELECT ?"),
            ("FOR i IN 1..10", "FOR i IN ?..?"),
            ("SELECT 0xFF, 1_000", "SELECT ?, ..."),
            ("SELECT 'cut off in the midd", "SELECT ?"),
            ("SELECT $tag$ cut off", "SELECT ?"),
            ("SELECT a /* cut", "SELECT a"),
            ("CREATE ROLE r PASSWORD 'hunter2'", "CREATE ROLE r PASSWORD ?"),
            ("START_REPLICATION SLOT \"s1\" 0/3000000 TIMELINE 1", "START_REPLICATION SLOT \"s1\" ?/? TIMELINE ?"),
            ("SELECT größe FROM f$1 WHERE a<->b", "SELECT größe FROM f$1 WHERE a<->b"),
            ("", ""),
        ] {
            assert_eq!(normalise(text, false), wanted, "{text}");
        }
    }

    #[test]
    fn backslashes_count_where_the_server_says_so() {
        let text = r"SELECT 'a\' || secret || 'z'";
        assert_eq!(normalise(text, false), "SELECT ? || secret || ?");
        assert_eq!(normalise(text, true), "SELECT ?z?");
    }

    #[test]
    fn what_looks_like_a_secret_is_known() {
        assert!(may_hold_secret("ALTER ROLE r PASSWORD 'x'"));
        assert!(may_hold_secret("SELECT dblink('postgres://u:p@h')"));
        assert!(!may_hold_secret("SELECT 1"));
    }

    proptest! {
        #[test]
        fn never_panics_and_stays_short(text in "(?s).{0,400}", escapes: bool) {
            prop_assert!(normalise(&text, escapes).len() <= LONGEST);
        }

        #[test]
        fn never_panics_on_sql_characters(text in "['\"$/*\\\\eEuU&xb0-9.a\\- \n,ü]{0,60}", escapes: bool) {
            normalise(&text, escapes);
        }

        #[test]
        fn no_string_survives(body in "[^'\\\\]{0,40}", tag in "[a-z]{0,3}") {
            let secret = format!("zq{}zq", body.replace('$', ""));
            let escaped = format!("SELECT '{secret}', E'\\'{secret}', ${tag}${secret}${tag}$ FROM t");
            let out = normalise(&escaped, false);
            prop_assert!(!out.contains("zq"), "{}", out);
        }

        #[test]
        fn no_number_survives(number in "[0-9]{1,20}(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?") {
            let out = normalise(&format!("SELECT a+{number},{number} FROM t WHERE {number}=b"), false);
            prop_assert!(!out.contains(|c: char| c.is_ascii_digit()), "{}", out);
        }
    }
}
