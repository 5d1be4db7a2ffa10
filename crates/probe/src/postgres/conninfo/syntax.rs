//! The two spellings of an address that libpq knows, taken apart into keywords and values: the URI and the list of
//! `key=value` pairs. Messages name the keyword that is wrong and never repeat a value, which may be a password.

use std::collections::BTreeMap;

/// Keywords and values as given, in libpq's spelling.
pub(super) type Options = BTreeMap<String, String>;

/// Keywords that libpq 12 to 18 understands. Those that Backwater has no use for are accepted and have no effect,
/// so that an address which works with psql works here.
const KEYWORDS: &[&str] = &[
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "load_balance_hosts",
    "max_protocol_version",
    "min_protocol_version",
    "options",
    "passfile",
    "password",
    "port",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "servicefile",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkey",
    "sslkeylogfile",
    "sslmode",
    "sslnegotiation",
    "sslpassword",
    "sslrootcert",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Whether this is a keyword of libpq.
pub(super) fn known(keyword: &str) -> bool {
    KEYWORDS.contains(&keyword)
}

/// Takes an address apart. Nothing at all is an address too: everything comes from the environment.
pub(super) fn parse(target: &str) -> Result<Options, String> {
    let rest = target.strip_prefix("postgresql://").or_else(|| target.strip_prefix("postgres://"));
    match rest {
        Some(rest) => uri(rest),
        None => match scheme(target) {
            Some(scheme) => Err(foreign(scheme)),
            None => pairs(target),
        },
    }
}

/// What stands before `://`, where it looks like the scheme of a URI: letters, digits, `+`, `-`, `.`, and not many.
/// What follows it may be a password and is not looked at.
fn scheme(target: &str) -> Option<&str> {
    let (scheme, _) = target.trim_start().split_once("://")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (!scheme.is_empty() && scheme.len() <= 20 && scheme.chars().all(plain)).then_some(scheme)
}

/// Why an address of another scheme is none of PostgreSQL's.
fn foreign(scheme: &str) -> String {
    match scheme.to_ascii_lowercase().as_str() {
        "mongodb" | "mongodb+srv" => format!(
            "'{scheme}://' is MongoDB's, and this speaks PostgreSQL's (12 to 18, postgres://). What can watch MongoDB (record, diagnose, \
             advise, watch, serve, check) takes it as mongodb:// or mongodb+srv://, in small letters and with nothing before it"
        ),
        _ => format!("it begins with '{scheme}://' and not with postgres://"),
    }
}

/// `key=value key = 'value with spaces'`, as PQconninfoParse reads it.
fn pairs(text: &str) -> Result<Options, String> {
    let mut options = Options::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok(options);
        }
        let mut keyword = String::new();
        while let Some(c) = chars.next_if(|c| *c != '=' && !c.is_whitespace()) {
            keyword.push(c);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next() != Some('=') {
            return Err(lonely(&keyword, &options));
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let value = value(&mut chars).ok_or_else(|| format!("the quote after '{}=' is not closed", short(&keyword)))?;
        insert(&mut options, keyword, value)?;
    }
}

/// Why a word without `=` is wrong. The first word of an address is quoted, unless it has room for a password as in
/// `user:password@host`; a later one may be the rest of a password with a space in it and is not.
fn lonely(word: &str, before: &Options) -> String {
    if !before.is_empty() {
        return "a word has no '=' after it; a value with a space needs quotes: keyword='two words'".to_owned();
    }
    let shown = if word.contains([':', '@']) { "it".to_owned() } else { format!("'{}'", short(word)) };
    format!("{shown} is neither postgres://… nor keyword=value")
}

/// One value, quoted or bare, with `\` before any character that stands for itself. None where a quote stays open.
fn value(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let mut value = String::new();
    let quoted = chars.next_if_eq(&'\'').is_some();
    while let Some(c) = chars.next_if(|c| quoted || !c.is_whitespace()) {
        match c {
            '\\' => value.extend(chars.next()),
            '\'' if quoted => return Some(value),
            c => value.push(c),
        }
    }
    (!quoted).then_some(value)
}

fn insert(options: &mut Options, keyword: String, value: String) -> Result<(), String> {
    if !known(&keyword) {
        return Err(format!("'{}' is no connection keyword", short(&keyword)));
    }
    options.insert(keyword, value);
    Ok(())
}

/// At most 30 characters of a keyword, for a message.
fn short(keyword: &str) -> String {
    keyword.chars().take(30).collect()
}

/// What follows `postgres://`: `[user[:password]@][host[:port],…][/dbname][?key=value&…]`.
fn uri(rest: &str) -> Result<Options, String> {
    let mut options = Options::new();
    let rest = credentials(rest, &mut options)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    // A slash inside brackets would be no IPv6 address, so the cut is safe before the hosts are looked at.
    hosts(&rest[..end], &mut options)?;
    let rest = &rest[end..];
    let (database, query) = match rest.strip_prefix('/') {
        Some(path) => path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query))),
        None => ("", rest.strip_prefix('?')),
    };
    put_decoded(&mut options, "dbname", database)?;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        parameter(pair, &mut options)?;
    }
    Ok(options)
}

/// Reads `user:password@`, and returns what follows it.
fn credentials<'a>(rest: &'a str, options: &mut Options) -> Result<&'a str, String> {
    let Some(at) = rest.find(['@', '/']).filter(|at| rest[*at..].starts_with('@')) else { return Ok(rest) };
    let (user, password) = rest[..at].split_once(':').unwrap_or((&rest[..at], ""));
    put_decoded(options, "user", user)?;
    put_decoded(options, "password", password)?;
    Ok(&rest[at + 1..])
}

/// Reads `host1:port1,[::1]:port2`. Hosts and ports become comma-separated lists of the same length.
fn hosts(list: &str, options: &mut Options) -> Result<(), String> {
    let mut hosts = Vec::new();
    let mut ports = Vec::new();
    for part in list.split(',') {
        let (host, port) = match part.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or("'[' has no ']' after it")?;
                if host.is_empty() {
                    return Err("the address between '[' and ']' is empty".to_owned());
                }
                let port = if after.is_empty() { Some("") } else { after.strip_prefix(':') };
                (host, port.ok_or("after ']' only ':' and a port may follow")?)
            }
            None => part.split_once(':').unwrap_or((part, "")),
        };
        hosts.push(decode(host)?);
        ports.push(decode(port)?);
    }
    for (keyword, list) in [("host", hosts), ("port", ports)] {
        if list.iter().any(|part| !part.is_empty()) {
            options.insert(keyword.to_owned(), list.join(","));
        }
    }
    Ok(())
}

fn parameter(pair: &str, options: &mut Options) -> Result<(), String> {
    let (keyword, value) = pair.split_once('=').ok_or("a parameter after '?' has no '='")?;
    if value.contains('=') {
        return Err(format!("the parameter '{}' has more than one '='; write %3D", short(keyword)));
    }
    let (keyword, value) = (decode(keyword)?, decode(value)?);
    match (keyword.as_str(), value.as_str()) {
        // libpq's own courtesy to JDBC addresses.
        ("ssl", "true") => insert(options, "sslmode".to_owned(), "require".to_owned()),
        _ => insert(options, keyword, value),
    }
}

fn put_decoded(options: &mut Options, keyword: &str, text: &str) -> Result<(), String> {
    if !text.is_empty() {
        options.insert(keyword.to_owned(), decode(text)?);
    }
    Ok(())
}

/// `%XX` → the byte. A NUL or a half escape is an error, as in libpq.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(0), Some(0)) => return Err("'%00' is not allowed".to_owned()),
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err("'%' must be followed by two hexadecimal digits; write a percent sign as %25".to_owned()),
        }
    }
    String::from_utf8(bytes).map_err(|_| "the decoded text is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn show(target: &str) -> String {
        match parse(target) {
            Ok(options) => options.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(";"),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn uris_as_in_libpqs_own_tests() {
        for (uri, wanted) in [
            (
                "postgresql://uri-user:secret@host:12345/db",
                "dbname=db;host=host;password=secret;port=12345;user=uri-user",
            ),
            ("postgresql://uri-user@host:12345/", "host=host;port=12345;user=uri-user"),
            ("postgres://host", "host=host"),
            ("postgresql://", ""),
            ("postgresql:///?user=u", "user=u"),
            ("postgresql://?hostaddr=127.0.0.1", "hostaddr=127.0.0.1"),
            ("postgresql://uri-user@/db", "dbname=db;user=uri-user"),
            ("postgresql://[::1]:5432/db?sslmode=verify-full", "dbname=db;host=::1;port=5432;sslmode=verify-full"),
            ("postgresql://%2Fvar%2Frun:5433/d%20b", "dbname=d b;host=/var/run;port=5433"),
            ("postgresql:///d?host=/tmp", "dbname=d;host=/tmp"),
            ("postgres://a:1,b,[::2]:3/d", "dbname=d;host=a,b,::2;port=1,,3"),
            ("postgres://u:p%40ss@h", "host=h;password=p@ss;user=u"),
            ("postgres://h/d?ssl=true", "dbname=d;host=h;sslmode=require"),
            ("postgres://h?application_name=x%3Dy", "application_name=x=y;host=h"),
        ] {
            assert_eq!(show(uri), wanted, "{uri}");
        }
    }

    #[test]
    fn pairs_as_in_libpqs_manual() {
        for (text, wanted) in [
            ("", ""),
            ("host=localhost port=5432 dbname=mydb", "dbname=mydb;host=localhost;port=5432"),
            (r"password = 'it\'s \\ here'  user=u", r"password=it's \ here;user=u"),
            (r"user=a\ b", "user=a b"),
            ("password='' host=h", "host=h;password="),
            ("service=prod", "service=prod"),
        ] {
            assert_eq!(show(text), wanted, "{text}");
        }
    }

    #[test]
    fn errors_name_the_keyword_and_never_a_value() {
        for (text, wanted) in [
            ("postgres://h?foo=1", "error: 'foo' is no connection keyword"),
            (
                "host=h secretword",
                "error: a word has no '=' after it; a value with a space needs quotes: keyword='two words'",
            ),
            ("localhost", "error: 'localhost' is neither postgres://… nor keyword=value"),
            ("u:secret@h", "error: it is neither postgres://… nor keyword=value"),
            ("postgress://u:secret@h/db", "error: it begins with 'postgress://' and not with postgres://"),
            ("POSTGRES://h", "error: it begins with 'POSTGRES://' and not with postgres://"),
            (
                "mongodb+srv://u:secret@h",
                "error: 'mongodb+srv://' is MongoDB's, and this speaks PostgreSQL's (12 to 18, postgres://). What can watch MongoDB (record, \
                 diagnose, advise, watch, serve, check) takes it as mongodb:// or mongodb+srv://, in small letters and with nothing before it",
            ),
            ("host=h password='secret", "error: the quote after 'password=' is not closed"),
            ("postgres://[::1", "error: '[' has no ']' after it"),
            ("postgres://h%zz", "error: '%' must be followed by two hexadecimal digits; write a percent sign as %25"),
            ("postgres://h%00", "error: '%00' is not allowed"),
            ("postgres://h?user", "error: a parameter after '?' has no '='"),
            ("postgres://h?user=a=b", "error: the parameter 'user' has more than one '='; write %3D"),
        ] {
            assert_eq!(show(text), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,80}") {
            let _ = parse(&text);
            let _ = parse(&format!("postgres://{text}"));
        }

        #[test]
        fn quoting_is_undone(value in "[^\u{0}]{0,30}") {
            let quoted = value.replace('\\', r"\\").replace('\'', r"\'");
            prop_assert_eq!(&parse(&format!("user='{quoted}'")).unwrap()["user"], &value);
        }
    }
}
