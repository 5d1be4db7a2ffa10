//! How address, service, environment and files come together.
#![allow(clippy::unwrap_used)]

use super::super::*;
use std::os::unix::fs::PermissionsExt;

fn parse_in(home: &str, target: &str, variables: &[(&str, &str)]) -> Result<ConnInfo, ProbeError> {
    let env = |name: &str| match name {
        "HOME" => Some(home.to_owned()),
        name => variables.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned()),
    };
    ConnInfo::parse(target, &env)
}

fn parse(target: &str, variables: &[(&str, &str)]) -> ConnInfo {
    parse_in("/nonexistent", target, variables).unwrap()
}

fn refusal(target: &str, variables: &[(&str, &str)]) -> String {
    parse_in("/nonexistent", target, variables).unwrap_err().to_string()
}

fn places(info: &ConnInfo) -> String {
    info.servers.iter().map(Server::place).collect::<Vec<_>>().join(" ")
}

#[test]
fn nothing_at_all_means_the_default_sockets() {
    let info = parse("", &[("PGUSER", "alice")]);
    assert_eq!(places(&info), "the socket /var/run/postgresql/.s.PGSQL.5432 the socket /tmp/.s.PGSQL.5432");
    assert_eq!((info.user(), info.database(), info.label().as_str()), ("alice", "alice", "localhost:5432"));
    assert_eq!(info.tls.mode, SslMode::Prefer);
}

#[test]
fn the_address_wins_over_the_environment() {
    let variables = [
        ("PGHOST", "envhost"),
        ("PGPORT", "1"),
        ("PGDATABASE", "envdb"),
        ("PGUSER", "envuser"),
        ("PGSSLMODE", "allow"),
    ];
    let info = parse("postgres://h", &variables);
    assert_eq!((places(&info).as_str(), info.user(), info.database()), ("h:1", "envuser", "envdb"));
    assert_eq!(info.tls.mode, SslMode::Allow);
    let info = parse("postgres://u@h:2/d?sslmode=require", &variables);
    assert_eq!((places(&info).as_str(), info.user(), info.database()), ("h:2", "u", "d"));
    assert_eq!(info.tls.mode, SslMode::Require);
}

#[test]
fn several_hosts_share_one_port_or_have_their_own() {
    assert_eq!(places(&parse("host=a,b port=7 user=u", &[])), "a:7 b:7");
    assert_eq!(places(&parse("postgres://u@a:1,[::1]:2,c/d", &[])), "a:1 [::1]:2 c:5432");
    assert_eq!(
        places(&parse("host=/run/x,b hostaddr=,10.0.0.1 user=u", &[])),
        "the socket /run/x/.s.PGSQL.5432 b:5432"
    );
    assert!(refusal("host=a,b port=1,2,3 user=u", &[]).contains("2 hosts and 3 ports"));
    assert!(refusal("host=a,b hostaddr=1.1.1.1 user=u", &[]).contains("2 hosts and 1 values of hostaddr"));
    assert!(refusal("host=a port=0 user=u", &[]).contains("1 to 65535"));
}

#[test]
fn a_password_is_never_shown() {
    let info = parse("postgres://u:hunter2@h/d", &[]);
    assert!(info.password_in_target());
    assert_eq!(info.servers[0].password, Some(Secret("hunter2".to_owned())));
    assert!(info.warnings()[0].contains("~/.pgpass"));
    assert!(!format!("{info:?}").contains("hunter2"));
    for target in ["postgres://u:hunter2@h:x/d", "host=h password=hunter2 sslmode=nonsense", "u:hunter2@h"] {
        assert!(!refusal(target, &[]).contains("hunter2"), "{target}");
    }
    let info = parse("postgres://u@h/d", &[("PGPASSWORD", "hunter2")]);
    assert!(!info.password_in_target() && info.warnings().is_empty());
    assert_eq!(info.password_from.as_deref(), Some("PGPASSWORD"));
}

#[test]
fn the_password_file_is_asked_for_each_host() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".pgpass");
    std::fs::write(&path, "a:5432:d:u:pa\n*:5432:d:u:other\nlocalhost:9:d:u:sock\n/run/x:9:d:u:dir\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let passwords = |target: &str| {
        let info = parse_in(home.path().to_str().unwrap(), target, &[]).unwrap();
        info.servers.into_iter().map(|server| server.password.map_or("-".to_owned(), |p| p.0)).collect::<Vec<_>>()
    };
    assert_eq!(passwords("postgres://u@a,b/d"), ["pa", "other"]);
    assert_eq!(passwords("user=u dbname=d port=9"), ["sock", "sock"]);
    assert_eq!(passwords("user=u dbname=d port=9 host=/run/x"), ["dir"]);
    assert_eq!(passwords("user=v dbname=d host=a"), ["-"]);
    let moved = home.path().join("elsewhere");
    std::fs::rename(&path, &moved).unwrap();
    let info = parse("postgres://u@a/d", &[("PGPASSFILE", moved.to_str().unwrap())]);
    assert_eq!(info.password_from.as_deref(), moved.to_str());
}

#[test]
fn a_service_stands_between_address_and_environment() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".pg_service.conf"), "[prod]\nhost=svc\nport=77\nuser=su\ndbname=sd\n").unwrap();
    let home = home.path().to_str().unwrap();
    let info = parse_in(home, "service=prod port=78", &[("PGHOST", "env"), ("PGUSER", "env")]).unwrap();
    assert_eq!((places(&info).as_str(), info.user(), info.database()), ("svc:78", "su", "sd"));
    let info = parse_in(home, "", &[("PGSERVICE", "prod")]).unwrap();
    assert_eq!(places(&info), "svc:77");
    let error = parse_in(home, "service=nope", &[]).unwrap_err().to_string();
    assert!(error.contains("'nope' is defined in none of") && error.contains(".pg_service.conf"), "{error}");
}

#[test]
fn tls_files_and_their_defaults() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".postgresql");
    std::fs::create_dir(&folder).unwrap();
    let info = parse_in(home.path().to_str().unwrap(), "postgres://u@h", &[]).unwrap();
    assert_eq!((info.tls.client, info.tls.roots), (None, Roots::Nobody { default: Some(folder.join("root.crt")) }));
    for name in ["root.crt", "postgresql.crt"] {
        std::fs::write(folder.join(name), "").unwrap();
    }
    let info = parse_in(home.path().to_str().unwrap(), "postgres://u@h", &[]).unwrap();
    assert_eq!(info.tls.roots, Roots::File(folder.join("root.crt")));
    assert_eq!(info.tls.client, Some((folder.join("postgresql.crt"), folder.join("postgresql.key"))));
    assert_eq!(parse("postgres://u@h?sslrootcert=system", &[]).tls.mode, SslMode::VerifyFull);
    assert!(refusal("postgres://u@h?sslrootcert=system&sslmode=require", &[]).contains("needs sslmode=verify-full"));
}

#[test]
fn what_would_protect_less_than_asked_is_refused() {
    assert!(refusal("postgres://u@h?sslcrl=/x", &[]).contains("sslcrl is not supported"));
    assert!(refusal("postgres://u@h?gssencmode=require", &[]).contains("gssencmode=require is not supported"));
    assert!(refusal("postgres://u@h?sslmode=sure", &[]).contains("one of disable, allow, prefer, require, verify-ca"));
    assert!(refusal("postgres://u@h?sslnegotiation=direct", &[]).contains("needs sslmode=require"));
}

#[test]
fn numbers_have_units_and_zero_means_the_default() {
    let info = parse("host=h user=u connect_timeout=7 keepalives_idle=30 tcp_user_timeout=1500 keepalives=0", &[]);
    assert_eq!(info.connect_timeout, Some(Duration::from_secs(7)));
    assert_eq!(info.tcp.idle, Some(Duration::from_secs(30)));
    assert_eq!(info.tcp.user_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(info.tcp.keepalives, Some(false));
    assert_eq!(parse("host=h user=u connect_timeout=0", &[]).connect_timeout, None);
    assert!(refusal("host=h user=u connect_timeout=soon", &[]).contains("connect_timeout is not a whole number"));
}
