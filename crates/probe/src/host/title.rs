//! What a PostgreSQL process is, from its title in `/proc/PID/cmdline` (`postgres: walwriter`), in the words of
//! pg_stat_activity.backend_type.

use backwater_model::SessionUse;

/// Processes whose title goes on after their name (`postgres: startup recovering 0000…`), by that name's beginning.
const WITH_MORE: [(&str, &str); 9] = [
    ("startup", "startup"),
    ("walreceiver", "walreceiver"),
    ("walsender", "walsender"),
    ("archiver", "archiver"),
    ("autovacuum worker", "autovacuum worker"),
    ("parallel worker", "parallel worker"),
    ("logical replication", "logical replication worker"),
    ("io worker", "io worker"),
    ("slotsync worker", "slotsync worker"),
];

/// Processes whose title is their name alone.
const ALONE: [&str; 9] = [
    "checkpointer",
    "background writer",
    "walwriter",
    "autovacuum launcher",
    "logical replication launcher",
    "stats collector",
    "logger",
    "walsummarizer",
    "archiver",
];

/// A session of a client.
pub(super) const CLIENT: &str = "client backend";

/// The backend type; none while the process has no title of its own yet, or is no PostgreSQL process.
pub(super) fn backend_type(cmdline: &str) -> Option<String> {
    // A title is one string, padded with NUL; a command line is several.
    let title = cmdline.split('\0').next()?.strip_prefix("postgres:")?.trim();
    // With cluster_name set the title is "postgres: NAME: walwriter".
    let (cluster, rest) = title.split_once(": ").map_or((None, title), |(name, rest)| (Some(name), rest.trim()));
    let named = auxiliary(title).or_else(|| cluster.and_then(|_| auxiliary(rest)));
    if let Some(name) = named {
        return Some(name.to_owned());
    }
    // "user database [local] activity" or "user database 10.0.0.7(53412) activity".
    let client = title.split_whitespace().any(is_client_host);
    Some(if client { CLIENT } else { "background worker" }.to_owned())
}

/// Whose session a client's process serves, from its title: "user database 10.0.0.7(53412) activity". None where a name
/// in it has spaces, so that nobody can tell where it ends.
pub(super) fn session(cmdline: &str) -> Option<SessionUse> {
    let title = cmdline.split('\0').next()?.strip_prefix("postgres:")?.trim();
    let words: Vec<&str> = title.split_ascii_whitespace().collect();
    let host = words.iter().position(|word| is_client_host(word))?;
    // With cluster_name set its name and a colon stand before.
    let names = words.get(..host)?;
    let names =
        if names.len() > 2 && names[names.len() - 3].ends_with(':') { &names[names.len() - 2..] } else { names };
    let [user, database] = names else { return None };
    let client = words[host];
    let client = match client.strip_suffix(')').and_then(|client| client.rsplit_once('(')) {
        Some((address, port)) if address.contains(':') => format!("[{address}]:{port}"),
        Some((address, port)) => format!("{address}:{port}"),
        None => "local".to_owned(),
    };
    let text = |name: &str| Some(name.to_owned());
    Some(SessionUse { user: text(user), database: text(database), application: None, client: Some(client) })
}

fn auxiliary(title: &str) -> Option<&'static str> {
    if let Some(name) = ALONE.iter().find(|name| **name == title) {
        return Some(name);
    }
    // A role may be called "archiver": its sessions have a database and a host behind the name.
    let sessions = |name: &str| name != "walsender" && title.split_whitespace().any(is_client_host);
    let begins = |name: &str| title.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    WITH_MORE.iter().find(|(name, _)| begins(name) && !sessions(name)).map(|(_, is)| *is)
}

fn is_client_host(word: &str) -> bool {
    let port = word.strip_suffix(')').and_then(|word| word.rsplit_once('('));
    let address = port.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    word == "[local]" || address
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn titles_of_all_kinds_are_named_as_the_server_names_them() {
        let cases = [
            ("postgres: checkpointer ", "checkpointer"),
            ("postgres: background writer   ", "background writer"),
            ("postgres: walwriter\0\0\0", "walwriter"),
            ("postgres: startup   recovering 000000010000000000000003", "startup"),
            ("postgres: walreceiver   streaming 0/3000148", "walreceiver"),
            ("postgres: walsender repl 10.0.0.2(41000) streaming 0/3000148", "walsender"),
            ("postgres: autovacuum worker   postgres", "autovacuum worker"),
            ("postgres: archiver   last was 000000010000000000000003", "archiver"),
            ("postgres: io worker 2", "io worker"),
            ("postgres: main: io worker 0", "io worker"),
            ("postgres: main: checkpointer", "checkpointer"),
            ("postgres: main: app shop 127.0.0.1(53412) idle in transaction", "client backend"),
            ("postgres: app shop ::1(53412) SELECT", "client backend"),
            ("postgres: archiver shop [local] idle", "client backend"),
            ("postgres: logical replication launcher ", "logical replication launcher"),
            ("postgres: logical replication worker for subscription 16390", "logical replication worker"),
            ("postgres: pg_cron launcher", "background worker"),
        ];
        for (cmdline, expected) in cases {
            assert_eq!(backend_type(cmdline).as_deref(), Some(expected), "{cmdline}");
        }
        let captured = include_str!("../../tests/fixtures/capped/proc/11173/cmdline");
        assert_eq!(backend_type(captured).as_deref(), Some("client backend"));
    }

    #[test]
    fn a_session_is_a_role_on_a_database_from_a_client() {
        let shown = |title: &str| {
            let session = session(title)?;
            Some([session.user, session.database, session.client].map(Option::unwrap_or_default).join(" "))
        };
        let cases = [
            ("postgres: app shop 10.0.0.7(53412) SELECT", Some("app shop 10.0.0.7:53412")),
            ("postgres: app shop ::1(53412) idle", Some("app shop [::1]:53412")),
            ("postgres: main: app shop [local] idle in transaction", Some("app shop local")),
            ("postgres: my main: app shop [local] idle", Some("app shop local")),
            ("postgres: walsender repl 10.0.0.2(41000) streaming 0/3000148", Some("walsender repl 10.0.0.2:41000")),
            ("postgres: a role shop [local] idle", None),
            ("postgres: checkpointer", None),
            ("psql", None),
        ];
        for (title, expected) in cases {
            assert_eq!(shown(title).as_deref(), expected, "{title}");
        }
    }

    #[test]
    fn a_process_without_a_title_of_its_own_is_not_named() {
        assert_eq!(backend_type("/usr/lib/postgresql/15/bin/postgres\0-D\0/data\0"), None);
        assert_eq!(backend_type(""), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(postgres: )?.*") {
            backend_type(&text);
            session(&text);
        }
    }
}
