//! Connection strings: each host of `mongodb://a,b,c/?…` is a server of its own, watched by a connection straight to it. Whoever
//! lets a driver choose sees only the member that it happened to choose.

use crate::ProbeError;
use mongodb::options::{ClientOptions, ServerAddress, ServerMonitoringMode};
use std::time::Duration;

/// Where a password is taken from that does not stand in the connection string, which others see in the list of processes.
pub(super) const PASSWORD: &str = "MONGODB_PASSWORD";
/// How a connection string begins whose servers stand in DNS.
const SRV: &str = "mongodb+srv://";
/// How long finding and reaching the server may take, unless the connection string says otherwise.
const CONNECT: Duration = Duration::from_secs(5);

/// One server of a connection string.
#[derive(Clone, Debug)]
pub struct MongoServer {
    /// `host:port`.
    pub name: String,
    pub(super) options: ClientOptions,
    pub(super) secrets: Secrets,
    /// The shard that a router says it belongs to.
    pub(super) shard: Option<String>,
}

/// Whether a text is a connection string of MongoDB.
pub fn is_uri(text: &str) -> bool {
    text.starts_with("mongodb://") || text.starts_with(SRV)
}

/// The servers of a connection string. A user without a password gets the one in `MONGODB_PASSWORD`.
///
/// # Errors
/// [`ProbeError::Connect`] with what is wrong and what to do next; never with a password in it.
pub fn servers(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<MongoServer>, ProbeError> {
    if let Some(rest) = text.strip_prefix(SRV) {
        return Err(ProbeError::Connect(in_dns(rest)));
    }
    let (text, secrets) = with_password(text, env(PASSWORD).filter(|password| !password.is_empty()));
    // Reading a connection string is async in the driver, but waits for nothing.
    let runtime = super::runtime::current_thread()?;
    // The driver takes the two bytes after a percent sign for characters, and panics where they are not.
    if text.split('%').skip(1).any(|part| part.len() >= 2 && !part.is_char_boundary(2)) {
        return Err(unusable("a percent sign in a user's name or password is written %25, and what is no ASCII %XX"));
    }
    let parsed = runtime.block_on(async { ClientOptions::parse(text.as_str()).await });
    let options = parsed.map_err(|error| match may_tell_a_password(&text) {
        true => unusable(UNENCODED),
        false => unusable(&secrets.scrub(&error.kind.to_string())),
    })?;
    Ok(options.hosts.iter().map(|host| MongoServer::of(host, &options, &secrets)).collect())
}

/// What is said instead of the driver's words where these may hold a piece of a password.
const UNENCODED: &str = "a port is no number, or there is an @ behind the first / or ?. In a user's name or password / is written %2F, ? is \
     %3F, @ is %40 and : is %3A, and behind them come @ and the host";

/// Whether a part of a password may stand where the driver looks for hosts and options, which it repeats in what it says is wrong.
fn may_tell_a_password(text: &str) -> bool {
    let rest = text.strip_prefix("mongodb://").unwrap_or(text);
    let front = rest.find(['/', '?']).map_or(rest, |end| &rest[..end]);
    // Or nobody named a host, so that what stands for the port is one.
    let hosts = front.rsplit_once('@').map_or(front, |(_, hosts)| hosts).split(',');
    let no_port = |host: &str| {
        host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u32>().is_err() && !port.ends_with(']'))
    };
    rest[front.len()..].contains('@') || hosts.into_iter().any(no_port)
}

fn unusable(why: &str) -> ProbeError {
    ProbeError::Connect(format!(
        "this is no connection string that can be used: {why}. It looks like mongodb://USER@HOST:27017/?authSource=admin"
    ))
}

/// What to do with a name whose servers stand in DNS: the driver would bring a DNS client of its own for it, for a question
/// that every host can ask.
fn in_dns(rest: &str) -> String {
    let front = rest.find(['/', '?']).map_or(rest, |end| &rest[..end]);
    let name = front.rsplit_once('@').map_or(front, |(_, name)| name);
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let name = if plain { name } else { "NAME" };
    format!(
        "mongodb+srv:// names its servers in DNS, which Backwater does not ask. They are told by: dig +short SRV \
         _mongodb._tcp.{name}; and options such as authSource by: dig +short TXT {name}. Name the servers to watch, with TLS, \
         which that kind of name implies: mongodb://USER@HOST1:27017,HOST2:27017/?tls=true&authSource=admin"
    )
}

impl MongoServer {
    fn of(host: &ServerAddress, all: &ClientOptions, secrets: &Secrets) -> Self {
        let mut options = all.clone();
        options.hosts = vec![host.clone()];
        options.direct_connection = Some(true);
        options.app_name = Some("backwater".to_owned());
        // One connection reads and one watches whether the server is there; nothing is asked twice.
        options.max_pool_size = Some(1);
        options.min_pool_size = Some(0);
        options.retry_reads = Some(false);
        options.retry_writes = Some(false);
        options.server_monitoring_mode = Some(ServerMonitoringMode::Poll);
        options.connect_timeout = Some(all.connect_timeout.unwrap_or(CONNECT));
        options.server_selection_timeout = Some(all.server_selection_timeout.unwrap_or(CONNECT));
        MongoServer { name: host.to_string(), options, secrets: secrets.clone(), shard: None }
    }

    /// A member of a shard behind this server, a router, reached in the same way and by the same user; none where its
    /// address cannot be understood.
    pub(super) fn behind(&self, address: &str, shard: &str) -> Option<Self> {
        let host = ServerAddress::parse(address).ok()?;
        let mut options = self.options.clone();
        options.hosts = vec![host.clone()];
        options.repl_set_name = None;
        options.load_balanced = None;
        Some(MongoServer {
            name: host.to_string(),
            options,
            secrets: self.secrets.clone(),
            shard: Some(shard.to_owned()),
        })
    }
}

/// What must not be printed.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// The text with every secret in it changed to `***`.
    pub(super) fn scrub(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }
}

/// The connection string with the password from the environment where it has a user without one, and what must not be
/// printed of it.
fn with_password(text: &str, password: Option<String>) -> (String, Secrets) {
    let Some(rest) = text.strip_prefix("mongodb://") else { return (text.to_owned(), Secrets::default()) };
    // An @ behind the hosts belongs to the options, unless somebody did not encode what stands in front of it.
    let front = rest.find(['/', '?']).map_or(rest, |end| &rest[..end]);
    let Some((user_info, _)) = front.rsplit_once('@') else {
        let unencoded = rest.rsplit_once('@').and_then(|(user_info, _)| user_info.split_once(':'));
        return (text.to_owned(), Secrets(unencoded.map(|(_, told)| told.to_owned()).into_iter().collect()));
    };
    match (user_info.split_once(':'), password) {
        (Some((_, told)), _) => {
            let decoded = percent_decoded(told);
            let secrets = [told.to_owned(), decoded].into_iter().filter(|secret| !secret.is_empty());
            (text.to_owned(), Secrets(secrets.collect()))
        }
        (None, Some(password)) => {
            let encoded = percent_encoded(&password);
            let hosts = &rest[user_info.len()..];
            (format!("mongodb://{user_info}:{encoded}{hosts}"), Secrets(vec![encoded, password]))
        }
        (None, None) => (text.to_owned(), Secrets::default()),
    }
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(meant) => {
                decoded.push(meant);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn no_env(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn each_host_is_a_server_of_its_own() {
        let list = servers("mongodb://a,b:27018/?replicaSet=rs0&connectTimeoutMS=700", &no_env).unwrap();
        let names: Vec<&str> = list.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a:27017", "b:27018"]);
        assert!(list.iter().all(|server| server.options.direct_connection == Some(true)));
        assert_eq!(list[0].options.connect_timeout, Some(Duration::from_millis(700)));
        assert_eq!(list[0].options.server_selection_timeout, Some(CONNECT));
    }

    #[test]
    fn a_password_comes_from_the_environment_and_is_never_printed() {
        let env = |name: &str| (name == PASSWORD).then(|| "s3/cr@t".to_owned());
        let list = servers("mongodb://monitor@a/?authSource=admin", &env).unwrap();
        let credential = list[0].options.credential.clone().unwrap();
        assert_eq!(credential.password.as_deref(), Some("s3/cr@t"));
        assert_eq!(list[0].secrets.scrub("no: s3/cr@t and s3%2Fcr%40t"), "no: *** and ***");
        assert!(!format!("{:?}", list[0].secrets).contains("s3"));
        // What stands in the string goes before.
        let told = servers("mongodb://monitor:ow%24n@a/", &env).unwrap();
        assert_eq!(told[0].options.credential.clone().unwrap().password.as_deref(), Some("ow$n"));
        assert_eq!(told[0].secrets.scrub("ow$n ow%24n"), "*** ***");
        assert_eq!(with_password("mongodb://a/?appName=x@y", Some("p".to_owned())).0, "mongodb://a/?appName=x@y");
    }

    #[test]
    fn what_cannot_be_used_is_said_with_what_to_do() {
        let error = |text: &str| servers(text, &no_env).unwrap_err().to_string();
        let told = error("mongodb+srv://u:hid/den@c.example.net/app?w=1");
        assert!(told.contains("mongodb://USER@HOST1") && !told.contains("hid"), "{told}");
        let told = error("mongodb+srv://u:hidden@c.example.net/app?w=1");
        assert!(told.contains("dig +short SRV _mongodb._tcp.c.example.net;") && !told.contains("hidden"), "{told}");
        for text in [
            "mongodb://u:hidden%tß@a/",
            "mongodb://u:hid/den@a/",
            "mongodb://u:hidden@",
            "mongodb://u:hidden@a:99999/",
            "mongodb://u:hidden?x@a/",
            "mongodb://u:12?hidden@a/",
            "mongodb://u:pa@hidden?den@a/",
            "mongodb://u:hidden",
            "mongodb://a,u:hidden/?w=1",
            "mongodb://",
        ] {
            let error = error(text);
            assert!(error.starts_with("this is no connection string") && !error.contains("hidden"), "{text}: {error}");
            assert!(!error.contains("hid/den"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_password_of_any_bytes_survives(password in "\\PC{1,20}") {
            prop_assert_eq!(percent_decoded(&percent_encoded(&password)), password);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,60}") {
            let _ = with_password(&format!("mongodb://{text}"), Some("x".to_owned()));
            let _ = percent_decoded(&text);
        }
    }
}
