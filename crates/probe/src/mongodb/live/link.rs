//! One connection to one server: commands in, documents out as they lie in memory, and refusals told apart.

use super::uri::{MongoServer, Secrets};
use crate::ProbeError;
use mongodb::Client;
use mongodb::bson::{Document, serialize_to_vec};
use mongodb::error::{Error, ErrorKind};
use std::time::{Duration, Instant};

/// The longest that an answer is waited for. A server that stalls answers late, and how late is a reading; this only bounds
/// how long a probe can be stuck.
const DEADLINE: Duration = Duration::from_secs(10);

/// From so long on a connection that the driver gave up is one of a server that answered nothing, and not one that just closed.
const SILENCE: Duration = Duration::from_secs(1);

/// Codes of errors: src/mongo/base/error_codes.yml.
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;
const NAMESPACE_NOT_FOUND: i32 = 26;
const COMMAND_NOT_FOUND: i32 = 59;
const INVALID_OPTIONS: i32 = 72;
const NO_REPLICATION: i32 = 76;
const COMMAND_NOT_SUPPORTED: i32 = 115;
const API_STRICT: i32 = 323;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum AskError {
    /// The connection is gone or useless.
    Lost(ProbeError),
    /// This user may not ask that.
    Denied(ProbeError),
    /// This server does not know it: a standalone asked for its replica set.
    Unknown(ProbeError),
    /// It failed this time.
    Failed(ProbeError),
}

impl From<AskError> for ProbeError {
    fn from(error: AskError) -> ProbeError {
        match error {
            AskError::Lost(error) => error.lost(),
            AskError::Denied(error) | AskError::Unknown(error) | AskError::Failed(error) => error,
        }
    }
}

/// A way to a server. The driver connects at the first question.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    server: String,
    user: Option<String>,
    secrets: Secrets,
}

impl Link {
    /// Makes ready. Must be called inside the runtime.
    pub(super) fn new(server: &MongoServer) -> Result<Self, ProbeError> {
        let user = server.options.credential.as_ref().and_then(|credential| credential.username.clone());
        let (secrets, name) = (server.secrets.clone(), server.name.clone());
        let client = Client::with_options(server.options.clone())
            .map_err(|error| ProbeError::Connect(format!("{name}: {}", secrets.scrub(&error.kind.to_string()))))?;
        Ok(Link { client, server: name, user, secrets })
    }

    /// Who asks.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Asks a database for the answer to a command.
    pub(super) async fn ask(&self, what: &'static str, database: &str, command: Document) -> Result<Vec<u8>, AskError> {
        let database = self.client.database(database);
        let begun = Instant::now();
        let asked = async { database.run_command(command).await };
        let Ok(answer) = tokio::time::timeout(DEADLINE, asked).await else {
            let seconds = DEADLINE.as_secs_f64();
            return Err(AskError::Lost(ProbeError::Timeout { server: self.server.clone(), what, seconds }));
        };
        let document = answer.map_err(|error| match error.kind.as_ref() {
            // What watches whether the server is there heard nothing, and gave up for all who wait.
            ErrorKind::ConnectionPoolCleared { .. } if begun.elapsed() >= SILENCE => {
                let seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
                AskError::Lost(ProbeError::Timeout { server: self.server.clone(), what, seconds })
            }
            _ => self.refusal(what, &error),
        })?;
        serialize_to_vec(&document).map_err(|error| AskError::Failed(self.error(what, &error.to_string())))
    }

    fn refusal(&self, what: &'static str, error: &Error) -> AskError {
        match error.kind.as_ref() {
            ErrorKind::Command(refused) => {
                let told = self.error(what, &refused.message);
                match refused.code {
                    UNAUTHORIZED => AskError::Denied(told),
                    AUTHENTICATION_FAILED => AskError::Lost(self.not_let_in(&refused.message)),
                    NAMESPACE_NOT_FOUND
                    | COMMAND_NOT_FOUND
                    | INVALID_OPTIONS
                    | NO_REPLICATION
                    | COMMAND_NOT_SUPPORTED
                    | API_STRICT => AskError::Unknown(told),
                    _ => AskError::Failed(told),
                }
            }
            ErrorKind::Authentication { message, .. } => AskError::Lost(self.not_let_in(message)),
            ErrorKind::ServerSelection { message, .. } | ErrorKind::IncompatibleServer { message, .. } => {
                AskError::Lost(self.unreachable(message))
            }
            // An answer that is no document, such as a line of the log that was cut within a character: another may be one.
            other @ (ErrorKind::Bson(_) | ErrorKind::BsonDeserialization(_) | ErrorKind::InvalidResponse { .. }) => {
                AskError::Failed(self.error(what, &other.to_string()))
            }
            other => AskError::Lost(self.error(what, &other.to_string())),
        }
    }

    fn error(&self, what: &'static str, message: &str) -> ProbeError {
        ProbeError::Server { server: self.server.clone(), what, message: self.secrets.scrub(message) }
    }

    fn not_let_in(&self, message: &str) -> ProbeError {
        let user = self.user.as_deref().unwrap_or("nobody");
        ProbeError::Connect(format!(
            "{} does not let user {user} in: {}. Check the password (MONGODB_PASSWORD, or in the connection string) and \
             authSource, which is the database that the user was made in",
            self.server,
            self.secrets.scrub(message.trim_end_matches('.'))
        ))
    }

    fn unreachable(&self, message: &str) -> ProbeError {
        let server = &self.server;
        match old_wire_version(message) {
            Some(wire) => ProbeError::Connect(format!(
                "{server} runs MongoDB {} (wire version {wire}); live servers are read from 4.4 on. Its flight recorder \
                 holds the same figures, from 3.6 on: backwater diagnose DBPATH/diagnostic.data",
                release(wire)
            )),
            None => {
                let why = self.secrets.scrub(cause(message));
                // A host that nobody knows is a slip of the pen.
                let is_away = !message.contains("failed to lookup address");
                let text = format!(
                    "{server} cannot be reached: {why}. Is it running, does it listen there, does it want TLS (?tls=true)?"
                );
                if is_away { ProbeError::Unreached(text) } else { ProbeError::Connect(text) }
            }
        }
    }
}

/// The wire version of a server that the driver finds too old.
fn old_wire_version(message: &str) -> Option<i32> {
    let (_, rest) = message.split_once("reports wire version ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The release that speaks a wire version (src/mongo/db/wire_version.h).
fn release(wire: i32) -> &'static str {
    match wire {
        8 => "4.2",
        7 => "4.0",
        6 => "3.6",
        _ => "3.4 or older",
    }
}

/// What the driver says went wrong, without the topology around it.
fn cause(message: &str) -> &str {
    let Some((_, rest)) = message.split_once("Error: ") else { return message.trim_end_matches('.') };
    let rest = rest.strip_prefix("Kind: ").unwrap_or(rest);
    rest.split(", labels:").next().unwrap_or(rest).trim_end_matches([' ', '}', ']', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_too_old_is_told_from_one_that_is_not_there() {
        let old =
            "Server at a:1 reports wire version 7, but this version of the MongoDB Rust driver requires at least 9";
        assert_eq!(old_wire_version(old).map(release), Some("4.0"));
        let gone = "Server selection timeout: No available servers. Topology: { Type: Single, Servers: [ { Address: a:1, \
                    Type: Unknown, Error: Kind: I/O error: Connection refused (os error 111), labels: {} } ] }";
        assert_eq!(old_wire_version(gone), None);
        assert_eq!(cause(gone), "I/O error: Connection refused (os error 111)");
        assert_eq!(cause("no topology at all."), "no topology at all");
    }
}
