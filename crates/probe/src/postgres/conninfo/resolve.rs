//! From keywords and environment to one [`ConnInfo`].

use super::files::{self, PasswordFile};
use super::syntax::{self, Options};
use super::{Address, ConnInfo, Roots, Secret, Server, SessionAttrs, SslMode, Tcp, Tls};
use std::path::{Path, PathBuf};
use std::time::Duration;

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where packages put the server's socket: Debian and Red Hat, then PostgreSQL's own default.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The variable of each keyword that has one.
const VARIABLES: &[(&str, &str)] = &[
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("port", "PGPORT"),
    ("dbname", "PGDATABASE"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("passfile", "PGPASSFILE"),
    ("options", "PGOPTIONS"),
    ("application_name", "PGAPPNAME"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("sslcrl", "PGSSLCRL"),
    ("sslcrldir", "PGSSLCRLDIR"),
    ("sslsni", "PGSSLSNI"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("requirepeer", "PGREQUIREPEER"),
    ("require_auth", "PGREQUIREAUTH"),
    ("gssencmode", "PGGSSENCMODE"),
];

/// Keywords that ask for a protection Backwater does not have: ignoring one would be a weaker connection than asked for.
const REFUSED: &[&str] = &["sslcrl", "sslcrldir", "sslpassword", "requirepeer", "require_auth"];

pub(super) fn resolve(target: &str, env: Env<'_>) -> Result<ConnInfo, String> {
    let mut given = syntax::parse(target)?;
    let password_in_target = given.contains_key("password");
    let home = env("HOME").filter(|home| !home.is_empty()).or_else(|| account().map(|(_, home)| home));
    let home = home.map(PathBuf::from);
    let mut origin = password_in_target.then(|| "the address".to_owned());
    add_service(&mut given, home.as_deref(), env, &mut origin)?;
    add_variables(&mut given, env, &mut origin);
    given.retain(|keyword, value| !value.is_empty() || keyword == "password");
    refuse(&given)?;
    let mut warnings = Vec::new();
    if password_in_target {
        warnings.push(
            "the address holds a password, which every user of this host can read in the list of processes; put it \
             into ~/.pgpass (chmod 600) or PGPASSWORD"
                .to_owned(),
        );
    }
    let user = match given.remove("user") {
        Some(user) => user,
        None => account().map(|(name, _)| name).or_else(|| env("USER")).ok_or("it names no user")?,
    };
    let database = given.remove("dbname").unwrap_or_else(|| user.clone());
    let mut servers = servers(&given)?;
    let passfile = given.get("passfile").map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".pgpass")));
    match given.remove("password").filter(|password| !password.is_empty()) {
        Some(password) => servers.iter_mut().for_each(|server| server.password = Some(Secret(password.clone()))),
        None => {
            origin = None;
            if let Some(path) = passfile {
                let file = PasswordFile::read(&path, &mut warnings);
                servers.iter_mut().for_each(|server| server.password = look_up(&file, server, &database, &user));
                origin = servers.iter().any(|server| server.password.is_some()).then(|| path.display().to_string());
            }
        }
    }
    Ok(ConnInfo {
        servers,
        user,
        database,
        tls: tls(&given, home.as_deref())?,
        tcp: tcp(&given)?,
        channel_binding: one_of(&given, "channel_binding", &CHANNEL_BINDING)?.unwrap_or(None),
        attrs: one_of(&given, "target_session_attrs", &ATTRS)?.unwrap_or(SessionAttrs::Any),
        connect_timeout: seconds(&given, "connect_timeout")?,
        application_name: given.remove("application_name").or_else(|| given.remove("fallback_application_name")),
        options: given.remove("options"),
        password_from: origin,
        password_in_target,
        warnings,
    })
}

/// The service's values stand behind the address's own and before the environment's.
fn add_service(
    given: &mut Options,
    home: Option<&Path>,
    env: Env<'_>,
    origin: &mut Option<String>,
) -> Result<(), String> {
    let Some(name) = given.remove("service").or_else(|| env("PGSERVICE")).filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let own = given.remove("servicefile").or_else(|| env("PGSERVICEFILE")).map(PathBuf::from);
    let own = own.or_else(|| Some(home?.join(".pg_service.conf")));
    let system = env("PGSYSCONFDIR").unwrap_or_else(|| "/etc/postgresql-common".to_owned());
    let files: Vec<_> = own.into_iter().chain([Path::new(&system).join("pg_service.conf")]).collect();
    for (keyword, value) in files::service(&name, &files)? {
        if keyword == "password" && !given.contains_key("password") {
            *origin = Some(format!("the service '{name}'"));
        }
        given.entry(keyword).or_insert(value);
    }
    Ok(())
}

fn add_variables(given: &mut Options, env: Env<'_>, origin: &mut Option<String>) {
    // libpq lets an explicit host keep the environment's hostaddr out only by giving hostaddr; so does this.
    for (keyword, variable) in VARIABLES {
        if given.contains_key(*keyword) {
            continue;
        }
        if let Some(value) = env(variable).filter(|value| !value.is_empty()) {
            if *keyword == "password" {
                *origin = Some((*variable).to_owned());
            }
            given.insert((*keyword).to_owned(), value);
        }
    }
}

fn refuse(given: &Options) -> Result<(), String> {
    if let Some(keyword) = REFUSED.iter().find(|keyword| given.contains_key(**keyword)) {
        return Err(format!("{keyword} is not supported, and leaving it out would protect less than asked"));
    }
    if given.get("gssencmode").is_some_and(|mode| mode == "require") {
        return Err("gssencmode=require is not supported; use TLS (sslmode)".to_owned());
    }
    Ok(())
}

/// The name and home of the user that runs this program, from /etc/passwd.
fn account() -> Option<(String, String)> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.len() >= 6 && fields[2] == uid)?;
    Some((line[0].to_owned(), line[5].to_owned()))
}

fn servers(given: &Options) -> Result<Vec<Server>, String> {
    let list = |keyword: &str| given.get(keyword).map(|text| text.split(',').map(str::trim).collect::<Vec<_>>());
    let (hosts, addresses) = (list("host"), list("hostaddr"));
    let count = hosts.as_ref().or(addresses.as_ref()).map_or(1, Vec::len);
    if let (Some(hosts), Some(addresses)) = (&hosts, &addresses)
        && hosts.len() != addresses.len()
    {
        return Err(format!("it has {} hosts and {} values of hostaddr", hosts.len(), addresses.len()));
    }
    let ports = list("port").unwrap_or_else(|| vec![""]);
    if ports.len() != 1 && ports.len() != count {
        return Err(format!("it has {count} hosts and {} ports", ports.len()));
    }
    let mut servers = Vec::new();
    for place in 0..count {
        let at = |list: &Option<Vec<&str>>| list.as_ref().map_or(String::new(), |list| list[place].to_owned());
        let port = port(ports.get(place).or(ports.first()).copied().unwrap_or_default())?;
        for address in addresses_of(&at(&hosts), &at(&addresses))? {
            servers.push(Server { address, port, password: None });
        }
    }
    Ok(servers)
}

fn port(text: &str) -> Result<u16, String> {
    match text {
        "" => Ok(5432),
        text => text.parse().ok().filter(|port| *port > 0).ok_or("the port is not a number from 1 to 65535".to_owned()),
    }
}

fn addresses_of(host: &str, addr: &str) -> Result<Vec<Address>, String> {
    if !addr.is_empty() {
        let ip = addr.parse().map_err(|_| "hostaddr is not an IP address".to_owned())?;
        let host = if host.is_empty() { addr } else { host };
        return Ok(vec![Address::Tcp { host: host.to_owned(), addr: Some(ip) }]);
    }
    Ok(match host {
        "" => SOCKET_DIRECTORIES.iter().map(|directory| Address::Unix(PathBuf::from(directory))).collect(),
        host if host.starts_with('/') => vec![Address::Unix(PathBuf::from(host))],
        host if host.starts_with('@') => return Err("abstract Unix sockets are not supported".to_owned()),
        host => vec![Address::Tcp { host: host.to_owned(), addr: None }],
    })
}

/// A default socket is `localhost` in the password file, another one its directory.
fn look_up(file: &PasswordFile, server: &Server, database: &str, user: &str) -> Option<Secret> {
    let host = match &server.address {
        Address::Unix(path) => path.to_str().filter(|path| !SOCKET_DIRECTORIES.contains(path)).unwrap_or("localhost"),
        Address::Tcp { host, .. } => host,
    };
    let password = file.find([host, &server.port.to_string(), database, user])?;
    Some(Secret(password.to_owned()))
}

const MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];
const ATTRS: [(&str, SessionAttrs); 6] = [
    ("any", SessionAttrs::Any),
    ("read-write", SessionAttrs::ReadWrite),
    ("read-only", SessionAttrs::ReadOnly),
    ("primary", SessionAttrs::Primary),
    ("standby", SessionAttrs::Standby),
    ("prefer-standby", SessionAttrs::PreferStandby),
];
const CHANNEL_BINDING: [(&str, Option<bool>); 3] =
    [("disable", Some(false)), ("prefer", None), ("require", Some(true))];
const SWITCH: [(&str, bool); 2] = [("0", false), ("1", true)];
const NEGOTIATION: [(&str, bool); 2] = [("postgres", false), ("direct", true)];
const PROTOCOLS: [(&str, bool); 4] = [("TLSv1", false), ("TLSv1.1", false), ("TLSv1.2", false), ("TLSv1.3", true)];

fn one_of<T: Copy>(given: &Options, keyword: &str, values: &[(&str, T)]) -> Result<Option<T>, String> {
    let Some(text) = given.get(keyword) else { return Ok(None) };
    let found = values.iter().find(|(name, _)| name == text).map(|(_, value)| *value);
    let names = || values.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.map(Some).ok_or_else(|| format!("{keyword} must be one of {}", names()))
}

fn tls(given: &Options, home: Option<&Path>) -> Result<Tls, String> {
    let asked = one_of(given, "sslmode", &MODES)?;
    let default = |name: &str| home.map(|home| home.join(".postgresql").join(name));
    let present = |name: &str| default(name).filter(|path| path.exists());
    let roots = match given.get("sslrootcert").map(String::as_str) {
        Some("system") => Roots::System,
        Some(path) => Roots::File(PathBuf::from(path)),
        None => present("root.crt").map_or_else(|| Roots::Nobody { default: default("root.crt") }, Roots::File),
    };
    // As libpq 16: whoever trusts the whole world must at least insist on the name.
    let system = roots == Roots::System;
    let mode = asked.unwrap_or(if system { SslMode::VerifyFull } else { SslMode::Prefer });
    if system && mode != SslMode::VerifyFull {
        return Err("sslrootcert=system needs sslmode=verify-full".to_owned());
    }
    let direct = one_of(given, "sslnegotiation", &NEGOTIATION)?.unwrap_or(false);
    if direct && matches!(mode, SslMode::Disable | SslMode::Allow | SslMode::Prefer) {
        return Err("sslnegotiation=direct needs sslmode=require or stronger".to_owned());
    }
    let cert = given.get("sslcert").map(PathBuf::from).or_else(|| present("postgresql.crt"));
    let key = given.get("sslkey").map(PathBuf::from).or_else(|| default("postgresql.key"));
    Ok(Tls {
        mode,
        roots,
        client: cert.zip(key),
        direct,
        name_host: one_of(given, "sslsni", &SWITCH)?.unwrap_or(true),
        only_13: one_of(given, "ssl_min_protocol_version", &PROTOCOLS)?.unwrap_or(false),
    })
}

fn tcp(given: &Options) -> Result<Tcp, String> {
    let milliseconds = number(given, "tcp_user_timeout")?.filter(|ms| *ms > 0);
    Ok(Tcp {
        keepalives: number(given, "keepalives")?.map(|on| on != 0),
        idle: seconds(given, "keepalives_idle")?,
        interval: seconds(given, "keepalives_interval")?,
        count: number(given, "keepalives_count")?
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| *count > 0),
        user_timeout: milliseconds.map(|ms| Duration::from_millis(ms.unsigned_abs())),
    })
}

fn number(given: &Options, keyword: &str) -> Result<Option<i64>, String> {
    let parse = |text: &String| text.trim().parse().map_err(|_| format!("{keyword} is not a whole number"));
    given.get(keyword).map(parse).transpose()
}

/// Whole seconds; zero and less mean the default.
fn seconds(given: &Options, keyword: &str) -> Result<Option<Duration>, String> {
    let positive = number(given, keyword)?.filter(|seconds| *seconds > 0);
    Ok(positive.map(|seconds| Duration::from_secs(seconds.unsigned_abs())))
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
