//! The part of a server's configuration that the lab writes: a file of its own, included by `postgresql.conf`, so that
//! `pg_settings` names where each value stands and a reload can change it.

use super::ServerError;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The file, in the data directory.
pub(crate) const FILE: &str = "backwater.conf";

/// The file's text: the caller's settings, then those that the lab depends on.
pub(crate) fn render(
    settings: &BTreeMap<String, String>,
    socket_dir: &str,
    port: u16,
    listens: &str,
) -> Result<String, ServerError> {
    let mut text = String::from("# Written by backwater at every start.\n");
    let port = port.to_string();
    let own = [
        ("listen_addresses", listens),
        ("port", port.as_str()),
        ("unix_socket_directories", socket_dir),
        ("unix_socket_permissions", "0700"),
        ("logging_collector", "off"),
        ("log_destination", "stderr"),
    ];
    let given = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in given.chain(own) {
        let fail = |why| ServerError::Setting { name: name.to_owned(), value: value.to_owned(), why };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte)) {
            return Err(fail("a name has letters, digits, '_' and '.' only"));
        }
        if value.chars().any(char::is_control) {
            return Err(fail("a value has no line breaks or other control characters"));
        }
        let value = value.replace('\\', r"\\").replace('\'', "''");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = '{value}'");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn one(name: &str, value: &str) -> Result<String, ServerError> {
        render(&BTreeMap::from([(name.to_owned(), value.to_owned())]), "/run", 5432, "")
    }

    #[test]
    fn values_are_quoted_and_the_labs_own_come_last() {
        let text = one("log_line_prefix", r"it's \ %m").unwrap();
        assert!(text.contains("log_line_prefix = 'it''s \\\\ %m'\n"), "{text}");
        let text = one("listen_addresses", "*").unwrap();
        assert!(text.find("listen_addresses = '*'") < text.find("listen_addresses = ''"), "{text}");
    }

    #[test]
    fn what_would_break_out_of_its_line_is_refused() {
        assert!(one("fsync", "on\nport = 1").is_err());
        assert!(one("fsync = off #", "on").is_err());
        assert!(one("", "on").is_err());
    }
}
