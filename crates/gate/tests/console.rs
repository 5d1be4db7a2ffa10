//! The console by psql and by a driver: the article's statements as they stand, what is shown, and who is refused.
#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, missing_docs, dead_code)]

#[path = "console/drivers.rs"]
mod drivers;
#[path = "console/session.rs"]
mod of_session;
mod raw;
mod server;

use backwater_gate::proxy::{Proxy, ProxyConfig};
use server::{complaint, psql, text};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio_postgres::{NoTls, SimpleQueryMessage};

const ADMIN: &str = "[admin]\nlisten = '127.0.0.1:0'\nusers = { dba = 'open sesame' }\n";

/// The article's three statements, and the setting, as they stand.
const ARTICLE: &str = "CREATE EXCEPT RULE bandwidth_rule1 WITH (bandwidth=128, ELAPSEDTIME=60, action='penalty');
    CREATE RESOURCE POOL rp1 WITH (EXCEPT_RULE='bandwidth_rule1');
    CREATE USER user1 RESOURCE POOL 'rp1' PASSWORD 'xxxxxxxx';
    SET low_priority_bandwidth = 256;";

struct Console {
    proxy: Proxy,
    /// On the proxy's own address.
    port: u16,
    /// On an address of the console's own.
    own_port: u16,
    state_file: PathBuf,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

fn port_of(address: &backwater_gate::proxy::Address) -> u16 {
    address.to_string().rsplit(':').next().unwrap().parse().unwrap()
}

fn written(more: &str) -> String {
    // Nobody is asked for a server before a session begins.
    format!("listen = '127.0.0.1:0'\nserver = '127.0.0.1:1'\nstate_file = 'state.toml'\n{more}")
}

fn console(more: &str) -> Console {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("proxy.toml");
    std::fs::write(&path, written(more)).unwrap();
    let proxy = Proxy::start(&ProxyConfig::load(&path).unwrap()).unwrap();
    let (port, own_port) = (port_of(&proxy.addresses()[0]), proxy.console_addresses().first().map_or(0, port_of));
    Console { proxy, port, own_port, state_file: dir.path().join("state.toml"), path, _dir: dir }
}

fn ask(port: u16, sql: &str) -> Command {
    let mut command = psql("127.0.0.1", port, sql);
    command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
    // The server's address leads nowhere: a request for encryption cannot be answered by it.
    command.env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable");
    command
}

fn has_psql() -> bool {
    let found = Command::new("psql").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: needs psql");
    }
    found
}

#[test]
fn the_articles_statements_run_as_they_stand_in_psql() {
    if !has_psql() {
        return;
    }
    let console = console(ADMIN);
    let output = ask(console.port, ARTICLE).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the password was ignored"));
    let shown = |sql: &str| text(&ask(console.own_port, sql).output().unwrap());
    assert_eq!(shown("SHOW USERS"), "user1|rp1");
    assert_eq!(shown("SHOW low_priority_bandwidth"), "256");
    assert_eq!(shown("SHOW RULES"), "bandwidth_rule1|penalty|elapsedtime > 60 s and bandwidth > 128 MB/s|0|rp1|0|0|0|");
    assert!(shown("SHOW POOLS").contains("rp1|high|1|bandwidth_rule1||||0|0|0|0"), "{}", shown("SHOW POOLS"));
    for what in ["SESSIONS", "STATS", "CONFIG", "EVENTS", "QUEUES", "GOVERNOR"] {
        shown(&format!("SHOW {what}"));
    }
    assert!(shown("SHOW EVENTS").contains("dba changed: CREATE USER user1 RESOURCE POOL rp1 PASSWORD '********'"));
    assert!(shown("SHOW CONFIG").contains("server|127.0.0.1:1"));
    let kept = std::fs::read_to_string(&console.state_file).unwrap();
    assert!(kept.contains("bandwidth_rule1") && !kept.contains("xxxxxxxx"), "{kept}");
}

#[test]
fn a_statement_that_cannot_be_done_changes_nothing_and_says_where() {
    if !has_psql() {
        return;
    }
    let console = console(ADMIN);
    let told = |sql: &str| complaint(&ask(console.port, sql).output().unwrap());
    let twice = "CREATE RESOURCE POOL a; CREATE RESOURCE POOL a";
    assert!(told(twice).contains("resource pool a exists already"));
    let typo = told("CREATE EXCEPT RULE r WITH (bandwith=5)");
    assert!(typo.contains("unknown attribute 'bandwith'") && typo.contains("^"), "psql points at it: {typo}");
    assert!(told("SET low_priority_bandwidth = 'much'").contains("must be 'auto'"));
    assert!(told("SELECT 2").contains("CREATE, ALTER, DROP, SET, SHOW"));
    assert_eq!(text(&ask(console.port, "SHOW RULES").output().unwrap()), "");
    assert!(!text(&ask(console.port, "SHOW POOLS").output().unwrap()).contains("a|"));
    assert!(!console.state_file.exists());
}

#[test]
fn strangers_and_wrong_passwords_are_refused() {
    if !has_psql() {
        return;
    }
    let here = console(ADMIN);
    let wrong = complaint(&ask(here.port, "SHOW POOLS").env("PGPASSWORD", "open").output().unwrap());
    assert!(wrong.contains("password authentication failed for user dba"), "{wrong}");
    let nobody = complaint(&ask(here.own_port, "SHOW POOLS").env("PGUSER", "nobody").output().unwrap());
    assert!(nobody.contains("password authentication failed for user nobody"), "{nobody}");
    let elsewhere = console("[admin]\nfrom = ['10.9.8.7']\nusers = { dba = 'open sesame' }\n");
    let stranger = complaint(&ask(elsewhere.port, "SHOW POOLS").output().unwrap());
    assert!(stranger.contains("the console takes no connections from 127.0.0.1"), "{stranger}");
    let none = console("");
    let other = complaint(&ask(none.port, "SHOW POOLS").output().unwrap());
    assert!(other.contains("the server at 127.0.0.1:1 cannot be reached"), "a database like any other: {other}");
}

/// What a statement on a console of its own says beside its answer.
fn notices(proxy: &Proxy, sql: &str) -> String {
    let told = ask(port_of(&proxy.console_addresses()[0]), sql).output().unwrap();
    assert!(told.status.success(), "{told:?}");
    String::from_utf8_lossy(&told.stderr).into_owned()
}

#[test]
fn what_is_asked_for_in_vain_is_told() {
    if !has_psql() {
        return;
    }
    // A server that takes connections and says nothing, and a client that encrypts from its first byte on.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let written = format!("listen = '127.0.0.1:0'\nserver = '{to}'\n{ADMIN}");
    let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("proxy.toml")).unwrap()).unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port_of(&proxy.addresses()[0]))).unwrap();
    client.write_all(b"\x16\x03\x01\0\x05hello").unwrap();
    let mut at_server = server.accept().unwrap().0;
    at_server.read_exact(&mut [0; 10]).unwrap();

    let hidden = "rule r cannot reach 1 of pool default's sessions";
    let told = notices(&proxy, "CREATE EXCEPT RULE r WITH (elapsedtime = 5, action = 'abort')");
    assert!(!told.contains("sessions"), "{told}");
    let told = notices(&proxy, "ALTER RESOURCE POOL \"default\" WITH (except_rule = 'r')");
    assert!(told.contains(hidden), "{told}");
    let told = notices(&proxy, "ALTER EXCEPT RULE r WITH (elapsedtime = 6)");
    assert!(told.contains(hidden), "{told}");
    let told = notices(&proxy, "CREATE RESOURCE POOL p WITH (weight = 5, except_rule = 'r')");
    assert!(told.contains("weight of pool p shares nothing") && !told.contains(hidden), "{told}");
    let told = notices(&proxy, "ALTER RESOURCE POOL p WITH (priority = 'low')");
    assert!(!told.contains("weight"), "{told}");
}

#[test]
fn a_pool_that_a_listener_has_cannot_be_dropped() {
    if !has_psql() {
        return;
    }
    let port = backwater_socket::free_port().unwrap();
    let pools = format!("[pools.batch]\n[pools.other]\n[listeners]\n'127.0.0.1:{port}' = 'batch'\n");
    let written = format!("listen = '127.0.0.1:{port}'\nserver = '127.0.0.1:1'\n{ADMIN}{pools}");
    let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("proxy.toml")).unwrap()).unwrap();
    let refused = complaint(&ask(port_of(&proxy.console_addresses()[0]), "DROP RESOURCE POOL batch").output().unwrap());
    assert!(
        refused.contains(&format!("listeners: 127.0.0.1:{port} = batch: there is no such resource pool")),
        "{refused}"
    );
    notices(&proxy, "DROP RESOURCE POOL other");
}

fn connect(console: &Console) -> (tokio::runtime::Runtime, tokio_postgres::Client) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = format!("host=127.0.0.1 port={} user=dba password='open sesame' dbname=backwater", console.port);
    let (client, connection) = runtime.block_on(async {
        let mut config: tokio_postgres::Config = config.parse().unwrap();
        config.ssl_mode(tokio_postgres::config::SslMode::Disable).connect(NoTls).await.unwrap()
    });
    runtime.spawn(connection);
    (runtime, client)
}

#[test]
fn a_driver_gets_typed_rows_by_the_extended_protocol() {
    let console = console(ADMIN);
    let (runtime, client) = connect(&console);
    runtime.block_on(async {
        for statement in ARTICLE.split(';').filter(|text| !text.trim().is_empty()) {
            assert_eq!(client.execute(statement, &[]).await.unwrap(), 0);
        }
        let pools = client.query("SHOW POOLS", &[]).await.unwrap();
        let rp1 = pools.iter().find(|row| row.get::<_, &str>("name") == "rp1").unwrap();
        assert_eq!((rp1.get::<_, i64>("weight"), rp1.get::<_, Option<i64>>("max_active")), (1, None));
        let prepared = client.prepare("SHOW STATS").await.unwrap();
        for _ in 0..2 {
            assert!(client.query(&prepared, &[]).await.unwrap().len() > 5);
        }
        let sessions = client.query_one("SHOW CONFIG", &[]).await;
        assert!(sessions.is_err(), "it has more rows than one");
        let wrong = client.query("SHOW NOTHING", &[]).await.unwrap_err();
        assert_eq!(wrong.code().unwrap().code(), "42601");
        let missing = client.execute("DROP RESOURCE POOL nowhere", &[]).await.unwrap_err();
        assert_eq!(missing.code().unwrap().code(), "42704");
        let simple = client.simple_query("SHOW USERS; SHOW low_priority_bandwidth").await.unwrap();
        let rows = simple.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_)));
        assert_eq!(rows.count(), 2);
        assert!(client.simple_query("").await.is_ok());
    });
}

#[test]
fn a_reload_changes_what_the_file_says_and_keeps_what_the_console_said() {
    let console = console(&format!("[pools.a]\nweight = 1\n{ADMIN}"));
    let (runtime, client) = connect(&console);
    runtime.block_on(client.batch_execute("ALTER RESOURCE POOL a WITH (weight=7); CREATE RESOURCE POOL b")).unwrap();
    let more = format!("[pools.c]\npriority = 'low'\n[pools.a]\nweight = 1\n[limits]\nmax_connections = 5\n{ADMIN}");
    std::fs::write(&console.path, written(&more)).unwrap();
    assert_eq!(console.proxy.reload(&ProxyConfig::load(&console.path).unwrap()).unwrap(), Vec::<&str>::new());
    let weights = || {
        let rows = runtime.block_on(client.query("SHOW POOLS", &[])).unwrap();
        rows.iter().map(|row| (row.get::<_, String>(0), row.get::<_, i64>(2))).collect::<Vec<_>>()
    };
    let pool = |name: &str, weight: i64| (name.to_owned(), weight);
    assert_eq!(weights(), [pool("a", 7), pool("b", 1), pool("c", 1), pool("default", 1)]);
    // A typo: everything stays as it is, and the error says where.
    std::fs::write(&console.path, written("[pools.c]\nwieght = 1\n")).unwrap();
    let typo = ProxyConfig::load(&console.path).unwrap_err().to_string();
    assert!(typo.contains("unknown attribute 'wieght'"), "{typo}");
    assert_eq!(weights().len(), 4);
    // Another proxy, after this one: the same.
    std::fs::write(&console.path, written(&more)).unwrap();
    let again = ProxyConfig::load(&console.path).unwrap();
    assert_eq!(again.state.pools()["a"].weight, 7);
    assert!(again.state.pools().contains_key("b") && again.state.pools().contains_key("c"));
}

/// What is in force, by name.
fn shown_config(runtime: &tokio::runtime::Runtime, client: &tokio_postgres::Client) -> BTreeMap<String, String> {
    let rows = runtime.block_on(client.query("SHOW CONFIG", &[])).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
fn what_counts_only_from_the_next_start_is_told_and_not_in_force() {
    let console = console(ADMIN);
    let (runtime, client) = connect(&console);
    let more = format!("[limits]\nworkers = 3\nmax_connections = 7\n[server_account]\nuser = 'other'\n{ADMIN}");
    let listen = "listen = '127.0.0.1:0'";
    let elsewhere = written(&more).replace("127.0.0.1:1'", "127.0.0.1:2'").replacen(listen, "listen = '[::1]:0'", 1);
    let elsewhere = ProxyConfig::parse(&elsewhere, &console.path).unwrap();
    // It is told each time: it differs still.
    for _ in 0..2 {
        let later = console.proxy.reload(&elsewhere).unwrap();
        assert_eq!(later, ["listen", "workers", "server", "server_account"]);
    }
    let shown = shown_config(&runtime, &client);
    let shown = ["listen", "server", "workers", "max_connections"].map(|name| shown[name].as_str());
    assert_eq!(shown, ["127.0.0.1:0", "127.0.0.1:1", "0", "7"]);
    let mut session = TcpStream::connect(("127.0.0.1", console.port)).unwrap();
    session.write_all(b"\0\0\0\x10\0\x03\0\0user\0u\0\0").unwrap();
    let mut words = Vec::new();
    session.read_to_end(&mut words).unwrap();
    let words = String::from_utf8_lossy(&words);
    assert!(words.contains("the server at 127.0.0.1:1 cannot be reached"), "{words}");
    assert_eq!(console.proxy.reload(&ProxyConfig::load(&console.path).unwrap()).unwrap(), Vec::<&str>::new());
}

#[test]
fn a_reload_changes_who_may_use_the_console_and_not_where_it_is() {
    if !has_psql() {
        return;
    }
    let console = console(ADMIN);
    let reload =
        |more: &str| console.proxy.reload(&ProxyConfig::parse(&written(more), &console.path).unwrap()).unwrap();
    assert_eq!(reload("[admin]\nusers = { dba = 'another' }\n"), ["admin.listen"]);
    let show = |port: u16, password: &str| ask(port, "SHOW CONFIG").env("PGPASSWORD", password).output().unwrap();
    for port in [console.port, console.own_port] {
        let shown = text(&show(port, "another"));
        assert!(shown.contains("admin.listen|127.0.0.1:0"), "{shown}");
        let refused = complaint(&show(port, "open sesame"));
        assert!(refused.contains("password authentication failed"), "{refused}");
    }
    assert_eq!(reload(""), ["admin.listen"]);
    let refused = complaint(&show(console.own_port, "another"));
    assert!(refused.contains("there is no console here"), "{refused}");
    assert_eq!(reload(ADMIN), Vec::<&str>::new());
    assert!(text(&show(console.own_port, "open sesame")).contains("admin.listen|127.0.0.1:0"));
}

#[test]
fn a_console_without_an_address_of_its_own_is_there_from_a_reload_on() {
    if !has_psql() {
        return;
    }
    let console = console("");
    let admin = "[admin]\nusers = { dba = 'open sesame' }\n";
    let config = ProxyConfig::parse(&written(admin), &console.path).unwrap();
    assert_eq!(console.proxy.reload(&config).unwrap(), Vec::<&str>::new());
    assert!(text(&ask(console.port, "SHOW CONFIG").output().unwrap()).contains("admin.users|dba"));
}

/// Writes the configuration anew, with this weight of pool a, and reads it.
fn with_weight(console: &Console, weight: u32) -> ProxyConfig {
    std::fs::write(&console.path, written(&format!("[pools.a]\nweight = {weight}\n{ADMIN}"))).unwrap();
    ProxyConfig::load(&console.path).unwrap()
}

/// The weight of pool a that is in force.
fn weight(runtime: &tokio::runtime::Runtime, client: &tokio_postgres::Client) -> i64 {
    let pools = runtime.block_on(client.query("SHOW POOLS", &[])).unwrap();
    pools.iter().find(|row| row.get::<_, &str>("name") == "a").unwrap().get("weight")
}

#[test]
fn what_was_edited_last_counts_though_the_console_once_said_otherwise() {
    let console = console(&format!("[pools.a]\nweight = 1\n{ADMIN}"));
    let (runtime, client) = connect(&console);
    let alter = || runtime.block_on(client.batch_execute("ALTER RESOURCE POOL a WITH (weight=7)")).unwrap();
    alter();
    for edited in [9, 1] {
        console.proxy.reload(&with_weight(&console, edited)).unwrap();
        assert_eq!(weight(&runtime, &client), i64::from(edited));
    }
    // The same where it is started with each.
    alter();
    assert_eq!(with_weight(&console, 1).state.pools()["a"].weight, 7);
    for edited in [9, 1] {
        let config = with_weight(&console, edited);
        assert_eq!(config.state.pools()["a"].weight, edited);
        drop(Proxy::start(&config).unwrap());
    }
}

#[test]
fn what_cannot_be_kept_is_not_done() {
    let console = console(&format!("[pools.a]\nweight = 1\n{ADMIN}"));
    let (runtime, client) = connect(&console);
    runtime.block_on(client.batch_execute("ALTER RESOURCE POOL a WITH (weight=7)")).unwrap();
    // In the way of what is written before it takes the old one's place, for root too.
    std::fs::create_dir(console.state_file.with_extension("new")).unwrap();
    let refused = runtime.block_on(client.batch_execute("ALTER RESOURCE POOL a WITH (weight=8)")).unwrap_err();
    let said = refused.as_db_error().unwrap().message();
    assert!(said.contains("the change cannot be kept in") && said.contains("state.toml"), "{said}");
    let refused = console.proxy.reload(&with_weight(&console, 9)).unwrap_err().to_string();
    assert!(refused.contains("cannot write") && refused.contains("state.toml"), "{refused}");
    assert_eq!(weight(&runtime, &client), 7);
}

#[test]
fn what_the_console_made_and_the_file_no_longer_carries_is_told_with_what_to_do() {
    let rule = "[rules.r]\nelapsedtime = 5\n";
    let console = console(&format!("{rule}{ADMIN}"));
    let (runtime, client) = connect(&console);
    runtime.block_on(client.batch_execute("CREATE RESOURCE POOL p WITH (except_rule='r')")).unwrap();
    std::fs::write(&console.path, written(ADMIN)).unwrap();
    let refused = ProxyConfig::load(&console.path).unwrap_err().to_string();
    let says = ["state.toml", "there is no rule r", "put that back there, change what uses it on the console"];
    assert!(says.iter().all(|says| refused.contains(says)), "{refused}");
}

#[test]
fn a_client_that_encrypts_through_and_finds_no_room_is_counted() {
    if !has_psql() {
        return;
    }
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let written = format!("listen = '127.0.0.1:0'\nserver = '{to}'\n[limits]\nmax_connections = 1\n{ADMIN}");
    let proxy = Proxy::start(&ProxyConfig::parse(&written, Path::new("proxy.toml")).unwrap()).unwrap();
    let begin = || {
        let mut client = TcpStream::connect(("127.0.0.1", port_of(&proxy.addresses()[0]))).unwrap();
        client.write_all(b"\x16\x03\x01\0\x05hello").unwrap();
        client
    };
    let _first = begin();
    let mut behind = server.accept().unwrap().0;
    behind.read_exact(&mut [0; 10]).unwrap();
    // By an end, or by a reset since what it said was not all read.
    assert_eq!(begin().read(&mut [0; 1]).unwrap_or(0), 0, "the second one is closed");
    let stats = text(&ask(port_of(&proxy.console_addresses()[0]), "SHOW STATS").output().unwrap());
    assert!(stats.contains("refused_since_start|1"), "{stats}");
}

#[test]
fn malformed_messages_end_a_visit_and_nothing_else() {
    use std::io::{Read, Write};
    let console = console(ADMIN);
    for garbage in [&b"p\0\0\0\x08abcd"[..], b"Q\0\0\0\x05\0", b"p\x7f\xff\xff\xff", b"\0\0\0\0\0\0\0\0"] {
        let mut raw = std::net::TcpStream::connect(("127.0.0.1", console.own_port)).unwrap();
        raw.write_all(b"\0\0\0\x12\0\x03\0\0user\0dba\0\0").unwrap();
        raw.write_all(garbage).unwrap();
        let mut said = Vec::new();
        raw.read_to_end(&mut said).unwrap();
        assert!(String::from_utf8_lossy(&said).contains("FATAL"), "{garbage:?}");
    }
    let (runtime, client) = connect(&console);
    assert!(!runtime.block_on(client.query("SHOW STATS", &[])).unwrap().is_empty());
}

#[test]
fn a_load_balancer_says_whose_connections_it_passes_on_and_nobody_else_does() {
    use std::io::{ErrorKind, Read, Write};
    let said = |more: &str, header: &[u8]| {
        let console = console(&format!("{more}{ADMIN}"));
        let mut raw = std::net::TcpStream::connect(("127.0.0.1", console.port)).unwrap();
        let start = b"\0\0\0\x25\0\x03\0\0user\0dba\0database\0backwater\0\0";
        raw.write_all(&[header, start].concat()).unwrap();
        // Who is refused before all that it said is read may be told by an end or, after the words, by a reset: then there is
        // nothing left to shut down. Any other error is one.
        let none_but = |kind: ErrorKind, error: std::io::Error| assert_eq!(error.kind(), kind, "{error}");
        raw.shutdown(std::net::Shutdown::Write).unwrap_or_else(|error| none_but(ErrorKind::NotConnected, error));
        let mut said = Vec::new();
        let read = raw.read_to_end(&mut said).map(|_| ());
        read.unwrap_or_else(|error| none_but(ErrorKind::ConnectionReset, error));
        String::from_utf8_lossy(&said).into_owned()
    };
    let trusted = "proxy_protocol_from = ['127.0.0.1']\n";
    let stranger = said(trusted, b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 5432\r\n");
    assert!(stranger.contains("the console takes no connections from 192.0.2.1"), "{stranger}");
    assert!(said(trusted, b"PROXY TCP4 127.0.0.1 192.0.2.2 4000 5432\r\n").contains("SCRAM-SHA-256"));
    assert!(said(trusted, b"").contains("does not begin with a PROXY header"));
    let untrusted = said("", b"PROXY TCP4 127.0.0.1 192.0.2.2 4000 5432\r\n");
    assert!(
        untrusted.contains("a PROXY header, which is taken from networks in proxy_protocol_from only"),
        "{untrusted}"
    );
}

#[test]
fn who_comes_by_the_proxys_address_takes_no_visitors_place_at_the_consoles_own() {
    let console = console(ADMIN);
    // How a visit begins: with the question for a password, or a refusal.
    let begin = |port: u16| {
        let mut visitor = TcpStream::connect(("127.0.0.1", port)).unwrap();
        visitor.write_all(b"\0\0\0\x25\0\x03\0\0user\0dba\0database\0backwater\0\0").unwrap();
        let (kind, _) = raw::message(&mut visitor).unwrap();
        (visitor, kind)
    };
    let many: Vec<_> = (0..40).map(|_| begin(console.port)).collect();
    assert_eq!(many.last().unwrap().1, b'E', "there is no place more");
    assert_eq!(begin(console.own_port).1, b'R');
}

/// Says whose visit it is and SCRAM's first message, and returns the server's.
fn challenge(stream: &mut TcpStream, user: &str, first: &[u8]) -> Vec<u8> {
    let said = format!("user\0{user}\0database\0backwater\0\0");
    let length = (said.len() as u32 + 8).to_be_bytes();
    stream.write_all(&[&length[..], &[0, 3, 0, 0], said.as_bytes()].concat()).unwrap();
    raw::message(stream).unwrap();
    let length = (first.len() as u32).to_be_bytes();
    raw::say(stream, b'p', &[&b"SCRAM-SHA-256\0"[..], &length, first].concat());
    raw::message(stream).unwrap().1.split_off(4)
}

#[test]
fn a_name_that_is_not_there_looks_like_one_that_is() {
    // One as it may be copied from a server: with other iterations, and a salt of 24 bytes.
    let copied = format!("SCRAM-SHA-256$10000:{}${key}:{key}", "A".repeat(32), key = "A".repeat(43) + "=");
    for secret in ["open sesame", copied.as_str()] {
        let console = console(&format!("[admin]\nusers = {{ dba = '{secret}' }}\n"));
        // Salt and count of iterations.
        let look = |user: &str| {
            let mut stream = TcpStream::connect(("127.0.0.1", console.port)).unwrap();
            let first = String::from_utf8(challenge(&mut stream, user, b"n,,n=,r=abc")).unwrap();
            let (salt, iterations) = first.split_once(",s=").unwrap().1.split_once(",i=").unwrap();
            (salt.to_owned(), iterations.to_owned())
        };
        let (dba, nobody) = (look("dba"), look("nobody"));
        assert_eq!((look("dba"), look("nobody")), (dba.clone(), nobody.clone()));
        assert!(nobody.0 != dba.0 && nobody.0 != look("nobody else").0);
        assert_eq!((nobody.0.len(), nobody.1), (dba.0.len(), dba.1));
    }
}
