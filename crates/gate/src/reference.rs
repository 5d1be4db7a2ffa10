//! The reference of the console's statements and of the configuration, made from what the code itself reads: attributes
//! with their ranges, settings with their defaults, columns as they are shown. `backwater proxy --reference` prints it, and
//! a test holds `docs/reference/proxy.md` to it.

use crate::proxy::{Limits, shown_columns};
use backwater_flow::rule::{Action, Attribute, MOST_COOLDOWN_S};
use backwater_flow::statement::Show;
use backwater_flow::{LowPriorityBandwidth, MOST_NAME_BYTES, MOST_RULES, MOST_WEIGHT, Pool, PoolOption};
use std::fmt::Write;

/// A section of the configuration with its keys: name, default as it would be written, what it is.
struct Section {
    /// As in TOML; empty for the top.
    name: &'static str,
    keys: &'static [(&'static str, &'static str, &'static str)],
}

const SECTIONS: &[Section] = &[
    Section {
        name: "",
        keys: &[
            ("listen", "", "where clients come: HOST:PORT, the path of a Unix socket from / on, or a list of these"),
            (
                "listeners",
                "",
                "ADDRESS = \"POOL\": the pool of sessions that come by one of these, where neither their user nor their \
                 connection names one; for sessions whose encryption is passed through there is no other way to one",
            ),
            ("server", "", "the server: HOST:PORT, or the path of its Unix socket or of the socket's directory"),
            (
                "proxy_protocol_from",
                "[]",
                "networks of load balancers: connections from there begin with a PROXY header, v1 or v2",
            ),
            ("tls", "", "encryption that the proxy ends; without it, encryption is passed through to the server"),
            ("server_tls", "", "encryption towards the server"),
            ("server_account", "", "who the proxy is to the server, for what only that can tell and do"),
            ("limits", "", "bounds, below"),
            ("state_file", "", "where the console's changes are kept; without it they last until the proxy ends"),
            ("admin", "", "the console; without it there is none"),
            ("low_priority_bandwidth", "256", "what the low class may send, as of SET below"),
            ("rules", "", "[rules.NAME] with the attributes of CREATE EXCEPT RULE"),
            ("pools", "", "[pools.NAME] with the attributes of CREATE RESOURCE POOL"),
            ("users", "", "USER = \"POOL\""),
        ],
    },
    Section {
        name: "limits",
        keys: &[
            ("max_connections", "", "sessions at once, in all pools, and who asks the server for encryption"),
            (
                "login_timeout_s",
                "",
                "seconds in which a client must have said who it is, again in which its login must be done, and in which a \
                 message that is begun outside a transaction must have come",
            ),
            (
                "connect_timeout_s",
                "",
                "seconds in which the server must have taken a connection; each address of its name has so many, as of libpq's \
                 connect_timeout",
            ),
            (
                "drain_timeout_s",
                "",
                "seconds that sessions have to come to a good end when the proxy stops; two more for the last words of those that do not",
            ),
            (
                "idle_timeout_s",
                "",
                "seconds that a session may be idle outside a transaction; 0 for as long as it likes",
            ),
            (
                "workers",
                "",
                "threads that relay urgent sessions; 0 for one less than there are cores. One more relays the low class",
            ),
        ],
    },
    Section {
        name: "tls",
        keys: &[
            ("certificate", "", "PEM file: the proxy's certificate, and those above it"),
            ("key", "", "PEM file: its key, without a passphrase"),
            ("required", "false", "refuse clients that do not encrypt; Unix sockets need not"),
        ],
    },
    Section {
        name: "server_tls",
        keys: &[
            ("mode", "", "disable, prefer, require, verify-ca or verify-full, as of libpq's sslmode"),
            ("roots", "", "PEM file of trusted authorities, or 'system'; with it require means verify-ca, as in libpq"),
            ("name", "", "the name that the server's certificate must have, where other than the host in server"),
            ("certificate", "", "PEM file: what the proxy shows to a server that asks clients for a certificate"),
            ("key", "", "PEM file: its key, without a passphrase"),
        ],
    },
    Section {
        name: "server_account",
        keys: &[
            (
                "user",
                "",
                "a role: pg_read_all_stats (in pg_monitor) for figures, pg_signal_backend for abort, CREATEROLE for CREATE USER",
            ),
            ("password", "\"\"", "its password"),
            ("database", "\"postgres\"", "where it connects"),
        ],
    },
    Section {
        name: "admin",
        keys: &[
            (
                "database",
                "\"backwater\"",
                "the database's name by which clients reach the console on the proxy's own addresses",
            ),
            ("listen", "[]", "addresses of its own"),
            ("from", "[\"127.0.0.0/8\", \"::1\"]", "networks from which it takes connections"),
            ("users", "", "NAME = \"a password, or its SCRAM-SHA-256 verifier\""),
        ],
    },
];

/// The whole page, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(
        "# backwater proxy: statements and settings\n\nMade from the code: `backwater proxy --reference` prints this page.\n\n",
    );
    let parts = [rules(), pools(), users_and_settings(), shows(), configuration()];
    for part in parts {
        page.push_str(&part);
    }
    page
}

/// A Markdown table. Writing into a String cannot fail.
fn table(headers: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", headers.join(" | "), "---|".repeat(headers.len()));
    for row in rows {
        let _infallible = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push('\n');
    text
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn rules() -> String {
    let attribute = |attribute: &Attribute| {
        let (least, most) = attribute.range();
        let range = format!("{least} to {most}");
        vec![code(attribute.word()), attribute.unit().to_owned(), range, attribute.about().to_owned()]
    };
    let actions = Action::ALL.iter().map(|action| vec![code(action.word()), action.about().to_owned()]);
    format!(
        "## Exception rules\n```\nCREATE EXCEPT RULE name WITH (attribute = value, …)\nALTER EXCEPT RULE name WITH (attribute = value, …)\n\
         DROP EXCEPT RULE name\n```\nA rule acts on a session whose statement is over *all* of its attributes that are set (where none is, it never acts); a pool's rules act each by itself. \
         −1 switches an attribute off. A figure that cannot be measured is never over anything.\n\n{}`action` is what happens then; \
         the default is `{}`:\n\n{}`cooldown`: seconds (0 to {MOST_COOLDOWN_S}) after the end of its statement for which a penalty \
         stays in force, and in which the same rule does not act on that session again; a statement that is over the rule \
         then prolongs the penalty, whose cool-down counts from its end.\n\n",
        table(&["attribute", "unit", "range", "what is measured"], Attribute::ALL.iter().map(attribute)),
        Action::default(),
        table(&["action", ""], actions),
    )
}

fn pools() -> String {
    let defaults = Pool::default().options();
    let default_of = |name: &str| {
        let own = defaults.iter().find(|option| option.name() == name);
        let none = if name == "except_rule" { "''" } else { "-1" };
        own.map_or_else(|| format!("none: {}", code(none)), |option| code(&option.literal().to_string()))
    };
    let rows =
        PoolOption::NAMES.iter().map(|name| vec![code(name), default_of(name), PoolOption::about(name).to_owned()]);
    format!(
        "## Resource pools\n```\nCREATE RESOURCE POOL name WITH (attribute = value, …)\nALTER RESOURCE POOL name WITH (attribute = value, …)\n\
         DROP RESOURCE POOL name\n```\nThe pool `default` always exists: it is that of whoever is bound to none.\n\n{}\
         At most {MOST_RULES} rules a pool, weights from 1 to {MOST_WEIGHT}, names of at most {MOST_NAME_BYTES} bytes.\n\n",
        table(&["attribute", "default", ""], rows),
    )
}

fn users_and_settings() -> String {
    let LowPriorityBandwidth::Fixed(default) = LowPriorityBandwidth::default() else { return String::new() };
    let default_mb = default / backwater_flow::MB;
    format!(
        "## Users and the low class\n```\nCREATE USER name [WITH] RESOURCE POOL name [PASSWORD 'text']\nALTER USER name [WITH] RESOURCE POOL name [PASSWORD \
         'text']\nDROP USER name\nSET {0} = {default_mb} | '{default_mb}MB' | 'auto' | DEFAULT\n```\n`CREATE USER` binds a user of the server to a pool. With a `[server_account]` \
         it makes the role there too (the server gets a verifier, never the password); without one a password is ignored with a notice. `DROP USER` unbinds: the server keeps the role. A connection may name its pool: `options=-c backwater.pool=name`; one whose user is bound can only go to a low one, and else stays in its own pool (the log says so once).\n\n\
         `{0}`: MB a second (1,048,576 bytes) or a size a second, for all low sessions together, and a millisecond's worth of it on its way beside what the \
         way holds; `auto` finds what the link has left while hardly anything queues. Default {default_mb}.\n\n",
        LowPriorityBandwidth::NAME,
    )
}

fn shows() -> String {
    let row = |show: &Show| {
        vec![code(&format!("SHOW {}", show.word())), show.about().to_owned(), shown_columns(*show).join(", ")]
    };
    format!("## SHOW\n{}", table(&["", "what", "columns"], Show::ALL.iter().map(row)))
}

fn configuration() -> String {
    let limits = Limits::default();
    let of_limits = |name: &str| match name {
        "max_connections" => limits.max_connections.to_string(),
        "login_timeout_s" => limits.login_timeout_s.to_string(),
        "connect_timeout_s" => limits.connect_timeout_s.to_string(),
        "drain_timeout_s" => limits.drain_timeout_s.to_string(),
        "idle_timeout_s" => limits.idle_timeout_s.to_string(),
        _ => limits.workers.to_string(),
    };
    let mut text = String::from(
        "## The configuration\nTOML. An unknown key is an error. `SIGHUP` reads it again; a bad one changes nothing. What `listen`, `server`, \
         `workers` and `admin.listen` say counts from the next start on, which the log says; with another `server` its `server_tls` and \
         `server_account` too. Relative paths of files are beside this one.\n\n",
    );
    for section in SECTIONS {
        if !section.name.is_empty() {
            let _infallible = writeln!(text, "### [{}]", section.name);
        }
        let rows = section.keys.iter().map(|(key, default, about)| {
            let default = if section.name == "limits" { of_limits(key) } else { (*default).to_owned() };
            vec![code(key), code(&default), (*about).to_owned()]
        });
        text.push_str(&table(&["key", "default", ""], rows));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::proxy::ProxyConfig;
    use std::path::Path;

    #[test]
    fn the_page_is_what_the_code_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/proxy.md");
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == reference(), "make it anew: backwater proxy --reference > docs/reference/proxy.md");
    }

    #[test]
    fn every_key_that_is_read_is_in_it_and_no_other() {
        for section in SECTIONS {
            let place = if section.name.is_empty() { String::new() } else { format!("[{}]\n", section.name) };
            let top = if section.name.is_empty() { "" } else { "listen = 'a:1'\nserver = 'b:2'\n" };
            let text = format!("{top}{place}no_such_key = 1\n");
            let told = ProxyConfig::parse(&text, Path::new("x.toml")).unwrap_err().to_string();
            let known = told.split("expected").nth(1).unwrap_or_else(|| panic!("{told}"));
            let mut known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
            let mut listed: Vec<&str> = section.keys.iter().map(|(key, ..)| *key).collect();
            known.sort_unstable();
            listed.sort_unstable();
            assert_eq!(known, listed, "[{}]", section.name);
        }
    }
}
