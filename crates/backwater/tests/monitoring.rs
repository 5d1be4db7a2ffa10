//! What `/metrics` tells when the recorder is killed and when a server stops, and by which names.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use backwater_lab::servers::{Postgres, PostgresSpec, cache_dir, cached, find};
use backwater_undo::Journal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes, also on a busy host.
const LONG: Duration = Duration::from_secs(120);

/// A running program; gone when the test is over, however that ends.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    /// SIGKILL: it has no chance to say or to close anything.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended before.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// A server of these sources, its address, and what else it says.
fn serve(sources: &[&str]) -> (Running, String, BufReader<ChildStderr>) {
    let mut serve = Running::start(&[&["serve", "--port", "0", "--no-token"], sources].concat());
    let mut line = String::new();
    BufReader::new(serve.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let says = BufReader::new(serve.0.stderr.take().unwrap());
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    (serve, address, says)
}

fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The value of the sample that begins so.
fn value(text: &str, start: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(start))?;
    Some(line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Asks until it holds, and returns what was answered then.
fn until(address: &str, holds: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let text = metrics(address);
        if holds(&text) {
            return text;
        }
        assert!(begun.elapsed() < LONG, "{text}");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

fn record(dir: &Path) -> Running {
    let running = Running::start(&["record", "host", "-o", dir.to_str().unwrap(), "--free-floor", "1MB"]);
    let begun = Instant::now();
    // Until there is something to open.
    while std::fs::read_dir(dir.join("points")).map_or(true, |mut entries| entries.next().is_none()) {
        assert!(begun.elapsed() < LONG);
        std::thread::park_timeout(Duration::from_millis(50));
    }
    running
}

#[test]
fn a_recorder_that_is_killed_is_told_as_such_and_its_figures_end() {
    let dir = tempfile::tempdir().unwrap();
    let rec = dir.path().join("rec");
    let mut recorder = record(&rec);
    let (_serve, address, _says) = serve(&[rec.to_str().unwrap()]);
    let up = "backwater_source_up{source=\"rec\"}";
    let age = "backwater_source_age_seconds{source=\"rec\"}";
    let reads = |text: &str| {
        let fresh = value(text, up) == Some(1.0) && value(text, age).is_some_and(|age| age < 10.0);
        fresh && text.contains("backwater_self_cpu_seconds_total{")
    };
    until(&address, reads);
    recorder.kill();
    let killed = Instant::now();
    let text = until(&address, |text| value(text, up) == Some(0.0));
    assert!(value(&text, age).unwrap() >= 10.0, "{text}");
    assert!(!text.contains("backwater_self_cpu_seconds_total{"), "nothing is known of now: {text}");
    // The clock goes on, and the source stays.
    let aged = killed.elapsed().as_secs_f64() + 2.0;
    until(&address, |text| value(text, age).is_some_and(|age| age >= aged));
    // A recorder that goes on with the same recording is read again.
    let _again = record(&rec);
    until(&address, reads);
}

#[test]
fn recordings_of_one_name_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["one/rec", "two/rec"].map(|path| dir.path().join(path));
    let _recorders = paths.each_ref().map(|path| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        record(path)
    });
    let [one, two] = paths.each_ref().map(|path| path.to_str().unwrap());
    let (_serve, address, mut says) = serve(&[one, two]);
    let mut said = String::new();
    says.read_line(&mut said).unwrap();
    assert!(said.contains("serving one/rec | two/rec there"), "{said}");
    until(&address, |text| {
        ["one/rec", "two/rec"].iter().all(|name| {
            let of = |family: &str| value(text, &format!("{family}{{source=\"{name}\"}}"));
            of("backwater_source_up") == Some(1.0) && of("backwater_self_cpu_seconds_total").is_some()
        })
    });
}

#[test]
fn a_server_that_stops_is_told_though_its_host_is_still_read() {
    const NAME: &str = "a_server_that_stops_is_told_though_its_host_is_still_read";
    let Some(installed) = find(None).into_iter().next().or_else(|| cached(&cache_dir(), None)) else {
        return eprintln!("skipped: {NAME}: needs PostgreSQL (apt-get install postgresql)");
    };
    // As root the server runs as somebody else, who must be able to go through.
    let dir = tempfile::Builder::new().prefix("backwater-test-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::begin(state.path(), "test of monitoring").unwrap();
    let spec = PostgresSpec {
        installed,
        data_dir: dir.path().join("data"),
        wal_dir: None,
        user: None,
        settings: BTreeMap::from([("fsync".to_owned(), "off".to_owned())]),
        port: None,
        socket_port: None,
        network: None,
    };
    let mut server = Postgres::create(&journal, spec).unwrap();
    server.start(&journal).unwrap();
    let (_serve, address, _says) = serve(&[&server.conninfo()]);
    let of_server = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("backwater_target_up{")).map(str::to_owned);
        line.and_then(|line| value(&line, "backwater_target_up{"))
    };
    until(&address, |text| of_server(text) == Some(1.0));
    server.stop().unwrap();
    let text = until(&address, |text| of_server(text) == Some(0.0));
    assert_eq!(value(&text, "backwater_source_up{"), Some(1.0), "{text}");
    server.start(&journal).unwrap();
    until(&address, |text| of_server(text) == Some(1.0));
}
