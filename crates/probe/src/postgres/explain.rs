//! Why a connection failed, in words: what, where, why, and what to do next. Never a password, never an address as typed.

use super::conninfo::{Address, ConnInfo, Server};
use std::error::Error as _;
use std::time::Duration;
use tokio_postgres::error::SqlState;

/// What a server says that starts, stops, or has no room.
const OF_A_SERVER_AWAY: [SqlState; 4] =
    [SqlState::CANNOT_CONNECT_NOW, SqlState::TOO_MANY_CONNECTIONS, SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN];

/// How one try at one server ended.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The driver says no.
    Failed(tokio_postgres::Error),
    /// Nobody could be reached.
    Unreached(std::io::Error),
    /// TLS files are missing or wrong.
    Unusable(String),
    /// No answer within this time.
    TimedOut(Duration),
    /// The server hung up.
    Ended,
    /// The server is no primary or standby, as was asked.
    Unfit {
        /// What it is.
        standby: bool,
    },
}

impl Attempt {
    /// Whether another way of talking (with TLS, without) is no use: nobody was there, or the password is wrong.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Attempt::Failed(error) => {
                error.code() == Some(&SqlState::INVALID_PASSWORD)
                    || error.to_string().starts_with("error connecting to server")
            }
            Attempt::TimedOut(_) | Attempt::Unreached(_) => true,
            _ => false,
        }
    }

    /// Whether the server may come without anybody mending the address: it is down, starting, full or cut off, or one of the sort
    /// that is asked for is yet to be made, as by a failover. A host that nobody knows is a slip of the pen.
    pub(super) fn is_away(&self) -> bool {
        match self {
            Attempt::TimedOut(_) | Attempt::Ended | Attempt::Unfit { .. } => true,
            Attempt::Unusable(_) => false,
            Attempt::Unreached(error) => is_of_the_way(error),
            Attempt::Failed(error) => match error.code() {
                Some(code) => OF_A_SERVER_AWAY.contains(code),
                None => error.is_closed() || cause(error).is_some_and(is_of_the_way),
            },
        }
    }
}

/// Whether the system says so of the way to the server, and it is not that this user may not take it. That no such host is known is
/// said by the resolver, which has no number for it.
fn is_of_the_way(error: &std::io::Error) -> bool {
    let hung_up = error.kind() == std::io::ErrorKind::UnexpectedEof;
    hung_up || error.raw_os_error().is_some() && error.kind() != std::io::ErrorKind::PermissionDenied
}

fn cause(error: &tokio_postgres::Error) -> Option<&std::io::Error> {
    error.source().and_then(|source| source.downcast_ref())
}

/// All failures as one text. Where every server failed alike, it is said once with all places.
pub(super) fn all(info: &ConnInfo, failures: &[(&Server, Attempt)]) -> String {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for (server, attempt) in failures {
        let why = one(info, server, attempt);
        match told.iter_mut().find(|(have, _)| *have == why) {
            Some((_, places)) => places.push(server.place()),
            None => told.push((why, vec![server.place()])),
        }
    }
    let tell = |(why, places): (String, Vec<String>)| {
        format!("cannot connect to PostgreSQL at {}: {why}", places.join(" or "))
    };
    told.into_iter().map(tell).collect::<Vec<_>>().join("\n")
}

fn one(info: &ConnInfo, server: &Server, attempt: &Attempt) -> String {
    match attempt {
        Attempt::Unusable(why) => why.clone(),
        Attempt::TimedOut(limit) => format!(
            "no answer within {} s. Check the address and the firewall, or allow more with connect_timeout=SECONDS",
            limit.as_secs()
        ),
        Attempt::Ended => "the server hung up. Look into its log".to_owned(),
        Attempt::Unfit { standby } => {
            let sort = if *standby { "a standby" } else { "a primary" };
            format!(
                "it is {sort} or not writable as asked by target_session_attrs. Name another server, or drop that option"
            )
        }
        Attempt::Unreached(error) => {
            unreached(info, server, &format!("error connecting to server: {error}"), Some(error))
        }
        Attempt::Failed(error) => match error.as_db_error() {
            Some(refusal) => refused(info, refusal.code(), refusal.message()),
            None => unreached(info, server, &chain(error), cause(error)),
        },
    }
}

/// The server answered with an error.
fn refused(info: &ConnInfo, code: &SqlState, message: &str) -> String {
    let (user, database) = (&info.user, &info.database);
    let next = if *code == SqlState::INVALID_PASSWORD {
        match &info.password_from {
            Some(place) => format!("The password came from {place}; correct it there"),
            None => "Put the password into ~/.pgpass (chmod 600) or PGPASSWORD".to_owned(),
        }
    } else if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        format!(
            "Connect as another user (postgres://USER@…, or run as the system user of that name), create the role \
             (CREATE ROLE \"{user}\" LOGIN IN ROLE pg_monitor), or let it in by pg_hba.conf"
        )
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        format!("Name a database that exists, e.g. …/postgres instead of …/{database}")
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        "Free a connection or raise max_connections; a superuser may use those in superuser_reserved_connections"
            .to_owned()
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        "The server is starting, stopping or recovering; try again in a moment".to_owned()
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        format!("Allow it: GRANT CONNECT ON DATABASE \"{database}\" TO \"{user}\"")
    } else {
        "Look into the server's log for more".to_owned()
    };
    format!("{message}. {next}")
}

/// The driver did not get as far as an answer.
fn unreached(info: &ConnInfo, server: &Server, chain: &str, io: Option<&std::io::Error>) -> String {
    if chain.contains("password missing") {
        return format!(
            "role \"{}\" needs a password and none was given. Put it into ~/.pgpass (chmod 600) or PGPASSWORD, not \
             into the address",
            info.user
        );
    }
    if chain.contains("server does not support TLS") {
        return "the server has no TLS, and sslmode asks for it. Set ssl = on there, or use sslmode=prefer".to_owned();
    }
    let next = match (io.map(std::io::Error::kind), &server.address) {
        _ if chain.contains("TLS handshake") || chain.contains("certificate") => certificate_advice(chain),
        (Some(std::io::ErrorKind::NotFound), Address::Unix(_)) => {
            "No server listens there. Start it, or name the socket's directory (host=DIRECTORY) or a host".to_owned()
        }
        (Some(std::io::ErrorKind::PermissionDenied), Address::Unix(_)) => {
            "Run as a user who may enter that directory, or connect to host=localhost".to_owned()
        }
        (Some(std::io::ErrorKind::ConnectionRefused), _) => format!(
            "No server listens there. Start it, or name another host or port; listen_addresses and port = {} must \
             fit in postgresql.conf",
            server.port
        ),
        _ => "Check the host name, the network and the server's log".to_owned(),
    };
    format!("{chain}. {next}")
}

fn certificate_advice(chain: &str) -> String {
    if chain.contains("UnknownIssuer") {
        "The authority that signed the server's certificate is not trusted: name its certificate with sslrootcert=FILE"
    } else if chain.contains("not valid for name") || chain.contains("NotValidForName") {
        "The certificate is for another host (only its subjectAltName counts): use that name, or sslmode=verify-ca"
    } else if chain.contains("xpired") {
        "The server's certificate must be renewed"
    } else {
        "Compare sslmode and sslrootcert with the server's ssl settings"
    }
    .to_owned()
}

/// An error and its causes, without the driver's own headings where they say less than the cause.
fn chain(error: &tokio_postgres::Error) -> String {
    let mut parts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        cause = inner.source();
    }
    if parts.len() > 1 && parts[0].starts_with("error con") {
        parts.remove(0);
    }
    parts.join(": ")
}
