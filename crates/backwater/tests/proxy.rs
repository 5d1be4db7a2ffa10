//! `backwater proxy` as a whole program: started, told to read its configuration again, told to end, killed; on a real
//! PostgreSQL with real clients.

#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code)]

#[path = "../../gate/tests/server/mod.rs"]
mod server;

use backwater_model::{EventKind, Window};
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, complaint, psql, text, with_server};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const CONSOLE: &str = "[admin]\nusers = { dba = \"secret\" }\n";

/// The program, ended with its owner whatever happens, and what it said.
struct Running {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts it on a configuration, or anew on the same, and waits until it listens.
    fn start(dir: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
        command.arg("proxy").arg("-c").arg(dir.join("proxy.toml")).args(arguments).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (lines, into) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&said));
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| into.lock().unwrap().push(line)));
        let mut running = Running { child, said, port: 0 };
        let line = running.hear("proxy on ");
        let address = line.split_whitespace().nth(2).unwrap();
        running.port = address.rsplit(':').next().unwrap().parse().unwrap();
        running
    }

    /// Waits for a line with this in it, and forgets what was said until then.
    fn hear(&self, wanted: &str) -> String {
        let mut heard = None;
        until(wanted, || {
            let mut said = self.said.lock().unwrap();
            if let Some(place) = said.iter().position(|line| line.contains(wanted)) {
                heard = said.drain(..=place).next_back();
            }
            heard.is_some()
        });
        heard.unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn value(&self, sql: &str) -> String {
        text(&psql("127.0.0.1", self.port, sql).output().unwrap())
    }

    fn console(&self, sql: &str) -> String {
        let mut command = psql("127.0.0.1", self.port, sql);
        command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "secret");
        text(&command.output().unwrap())
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn write(dir: &Path, server: &Server, more: &str) {
    let text = format!("listen = \"127.0.0.1:0\"\nserver = \"{}\"\n{more}", server.address());
    std::fs::write(dir.join("proxy.toml"), text).unwrap();
}

/// psql in the background under a name of its own, once its statement runs.
fn running(port: u16, server: &Server, name: &str, sql: &str) -> Child {
    let mut command = psql("127.0.0.1", port, sql);
    let child = command.env("PGAPPNAME", name).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    server.until(
        &format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND state <> 'idle'"),
        "1",
    );
    child
}

#[test]
fn a_hangup_takes_over_what_the_file_says_and_a_bad_file_changes_nothing() {
    with_server("a_hangup_takes_over", &[], |server| {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), server, &format!("low_priority_bandwidth = 7\n{CONSOLE}"));
        let proxy = Running::start(dir.path(), &[]);
        assert_eq!(proxy.console("SHOW low_priority_bandwidth"), "7");
        let sleeper = running(proxy.port, server, "sleeper", "SELECT pg_sleep(1), 'slept'");
        write(
            dir.path(),
            server,
            &format!("low_priority_bandwidth = \"auto\"\n{CONSOLE}[pools.batch]\npriority = \"low\"\n"),
        );
        proxy.signal(Signal::HUP);
        proxy.hear("the configuration was read again");
        assert_eq!(proxy.console("SHOW low_priority_bandwidth"), "auto");
        assert!(proxy.console("SHOW POOLS").contains("batch"));
        write(dir.path(), server, &format!("low_priority_bandwith = 9\n{CONSOLE}"));
        proxy.signal(Signal::HUP);
        let told = proxy.hear("everything stays as it was");
        assert!(told.contains("low_priority_bandwith") && told.contains("line 3"), "{told}");
        until("it is an event", || proxy.console("SHOW EVENTS").contains("the configuration was not taken over"));
        assert_eq!(proxy.console("SHOW low_priority_bandwidth"), "auto");
        assert!(text(&sleeper.wait_with_output().unwrap()).ends_with("slept"));
    });
}

#[test]
fn a_termination_lets_statements_end_and_takes_nobody_new() {
    with_server("a_termination_lets_statements_end", &[], |server| {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), server, "");
        let mut proxy = Running::start(dir.path(), &[]);
        let sleeper = running(proxy.port, server, "sleeper", "SELECT pg_sleep(2), 'slept'");
        proxy.signal(Signal::TERM);
        proxy.hear("letting sessions end");
        let late = complaint(&psql("127.0.0.1", proxy.port, "SELECT 1").output().unwrap());
        assert!(late.contains("refused"), "{late}");
        assert!(text(&sleeper.wait_with_output().unwrap()).ends_with("slept"));
        assert_eq!(proxy.end().code(), Some(0));

        // One that does not end in time is broken off, and that is told.
        write(dir.path(), server, "[limits]\ndrain_timeout_s = 0.3\n");
        let mut proxy = Running::start(dir.path(), &[]);
        let sleeper = running(proxy.port, server, "sleeper", "SELECT pg_sleep(600)");
        proxy.signal(Signal::TERM);
        proxy.hear("are broken off");
        assert_eq!(proxy.end().code(), Some(1));
        complaint(&sleeper.wait_with_output().unwrap());
        // The server hears of it too, at the latest when it next speaks to its client.
        server.value("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sleeper'");
    });
}

#[test]
fn what_was_changed_on_the_console_survives_a_kill() {
    with_server("what_was_changed_on_the_console", &[], |server| {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), server, &format!("state_file = \"state.toml\"\n{CONSOLE}"));
        let mut proxy = Running::start(dir.path(), &[]);
        proxy.console("CREATE EXCEPT RULE big WITH (bandwidth=128, ELAPSEDTIME=60, action='penalty')");
        proxy.console("CREATE RESOURCE POOL rp1 WITH (EXCEPT_RULE='big')");
        proxy.console("SET low_priority_bandwidth = '3MB'");
        proxy.child.kill().unwrap();
        proxy.end();
        let proxy = Running::start(dir.path(), &[]);
        assert!(proxy.console("SHOW RULES").contains("big") && proxy.console("SHOW POOLS").contains("rp1"));
        assert_eq!(proxy.console("SHOW low_priority_bandwidth"), "3");
        assert_eq!(proxy.value("SELECT 1"), "1");
    });
}

/// psql at the console that stays, and hears one statement after another.
struct Visitor {
    child: Child,
    told: BufReader<ChildStderr>,
    shown: BufReader<ChildStdout>,
}

impl Visitor {
    fn new(proxy: &Running) -> Visitor {
        let mut command = server::client("psql", "127.0.0.1", proxy.port);
        command.args(["-X", "-q", "-A", "-t"]);
        command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "secret").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (told, shown) = (child.stderr.take().unwrap(), child.stdout.take().unwrap());
        Visitor { child, told: BufReader::new(told), shown: BufReader::new(shown) }
    }

    fn say(&mut self, sql: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{sql};").unwrap();
    }

    fn shown(&mut self, sql: &str) -> String {
        self.say(sql);
        self.shown.by_ref().lines().next().unwrap().unwrap()
    }

    fn refused(&mut self, sql: &str) -> String {
        self.say(sql);
        self.told.by_ref().lines().next().unwrap().unwrap()
    }
}

#[test]
fn what_another_has_changed_is_not_lost_by_a_proxy_that_drains_or_has_not_read_it() {
    with_server("what_another_has_changed", &[], |server| {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), server, &format!("state_file = \"state.toml\"\n{CONSOLE}"));
        let mut old = Running::start(dir.path(), &[]);
        let sleeper = running(old.port, server, "sleeper", "SELECT pg_sleep(600)");
        let mut visitor = Visitor::new(&old);
        assert_eq!(visitor.shown("SHOW low_priority_bandwidth"), "256");
        let other = Running::start(dir.path(), &[]);
        other.console("SET low_priority_bandwidth = 5");
        let refused = visitor.refused("SET low_priority_bandwidth = 7");
        assert!(refused.contains("somebody else has written it") && refused.contains("state.toml"), "{refused}");
        assert_eq!(visitor.shown("SHOW low_priority_bandwidth"), "256");
        old.signal(Signal::HUP);
        old.hear("the configuration was read again");
        assert_eq!(visitor.shown("SHOW low_priority_bandwidth"), "5");
        visitor.say("SET low_priority_bandwidth = 7");
        assert_eq!(visitor.shown("SHOW low_priority_bandwidth"), "7");

        old.signal(Signal::TERM);
        old.hear("letting sessions end");
        let refused = visitor.refused("SET low_priority_bandwidth = 9");
        assert!(refused.contains("this proxy is ending and changes nothing any more: connect anew"), "{refused}");
        assert_eq!(visitor.shown("SHOW low_priority_bandwidth"), "7");
        server.value("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'sleeper'");
        complaint(&sleeper.wait_with_output().unwrap());
        assert_eq!(old.end().code(), Some(0));
        drop(visitor.child.stdin.take());
        visitor.child.wait().unwrap();
        drop(other);
        assert_eq!(Running::start(dir.path(), &[]).console("SHOW low_priority_bandwidth"), "7");
    });
}

fn recorded(dir: &Path) -> Window {
    backwater_record::Recording::open(dir).unwrap().window(None, None).unwrap()
}

#[test]
fn decisions_and_changes_are_in_the_recording() {
    with_server("decisions_and_changes_are_in_the_recording", &[], |server| {
        let dir = tempfile::tempdir().unwrap();
        let rules = "low_priority_bandwidth = 2\n[rules.big]\nelapsedtime = 0.2\naction = \"penalty\"\n\
                     [pools.default]\nexcept_rule = \"big\"\n";
        write(dir.path(), server, &format!("{rules}{CONSOLE}"));
        let out = dir.path().join("recording");
        let mut proxy = Running::start(dir.path(), &["--record", out.to_str().unwrap()]);
        let (sent, begun) =
            (proxy.value("SELECT repeat('x', 3000000) FROM generate_series(1, 2), pg_sleep(0.5)"), Instant::now());
        assert!(sent.len() > 5_900_000 && begun.elapsed() < PATIENCE);
        proxy.console("SET low_priority_bandwidth = 5");
        // The same is on stderr, without being asked for, and when it was.
        for wanted in ["rule big demotes session", "rule big lifts its penalty", "low_priority_bandwidth"] {
            let line = proxy.hear(wanted);
            let time = line.split_whitespace().next().unwrap();
            assert!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
        }
        proxy.signal(Signal::TERM);
        assert_eq!(proxy.end().code(), Some(0));
        let window = recorded(&out);
        let steps: Vec<String> = window
            .events_of(EventKind::Decision)
            .filter(|event| event.fields.get("rule").is_some_and(|rule| rule == "big"))
            .filter_map(|event| event.fields.get("step").cloned())
            .collect();
        assert_eq!(steps, ["began", "lifted"]);
        let change =
            window.events_of(EventKind::Setting).find(|event| event.message.contains("low_priority_bandwidth"));
        assert_eq!(change.unwrap().fields.get("who").map(String::as_str), Some("dba"));
        // Each second who is held and what is sent; and the newest state in one piece, for pages.
        let of = |name: &str| -> Vec<f64> {
            let points = window.tracks(name, &[("pool", "default")]).flat_map(|track| track.points.to_vec());
            points.map(|point| point.value).collect()
        };
        assert!(of("flow.pool.held").contains(&1.0), "{:?}", of("flow.pool.held"));
        let sent = of("flow.pool.sent_bytes");
        assert!(sent.is_sorted() && *sent.last().unwrap() > 5.9e6, "{sent:?}");
        let state = backwater_record::read_flow(&out).unwrap();
        assert_eq!((state.pools[0].name.as_str(), state.pools[0].rules.join(",")), ("default", "big".to_owned()));
        assert_eq!((state.rules[0].began, state.rules[0].lifted, state.held_in_all), (1, 1, 0));
    });
}

#[test]
fn strangers_neither_fill_the_log_nor_write_its_lines_nor_hide_who_guesses_passwords() {
    if !server::on_path("psql") {
        return eprintln!("skipped: strangers: needs psql");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("proxy.toml"), format!("listen = '127.0.0.1:0'\nserver = '127.0.0.1:1'\n{CONSOLE}"))
        .unwrap();
    let mut proxy = Running::start(dir.path(), &[]);
    let name = format!("x\nforged{}", "y".repeat(9_000));
    let said = format!("\0\x03\0\0user\0u\0options\0-c backwater.pool={}\0\0", name.replace('\n', "\\\n"));
    let opening = [&(said.len() as u32 + 4).to_be_bytes()[..], said.as_bytes()].concat();
    let begun = Instant::now();
    for _ in 0..300 {
        let mut stranger = std::net::TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        stranger.write_all(&opening).unwrap();
        let mut answer = Vec::new();
        stranger.read_to_end(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains(&name), "it is told itself what it said");
    }
    let mut guess = psql("127.0.0.1", proxy.port, "SHOW STATS");
    guess.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "guessed");
    assert!(!guess.output().unwrap().status.success());
    let seconds = begun.elapsed().as_secs() as usize + 1;
    assert!(proxy.console("SHOW STATS").contains("refused_since_start|301"));
    proxy.signal(Signal::TERM);
    assert!(proxy.end().success());
    let mut lines = Vec::new();
    until("the last line", || {
        lines.append(&mut proxy.said.lock().unwrap());
        lines.iter().any(|line| line.contains("letting sessions end"))
    });
    let of = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(of("a wrong password or an unknown user at the console"), 1, "{lines:?}");
    let refused = of("there is no resource pool");
    assert!((20..=20 * seconds).contains(&refused), "{refused} in {seconds} s");
    let beyond = of("more are refused than are logged");
    assert!(beyond <= seconds && (beyond > 0 || seconds > 10), "{beyond} in {seconds} s");
    assert!(lines.iter().all(|line| line.len() < 600 && !line.starts_with("forged")), "{lines:?}");
}

#[test]
fn what_cannot_be_is_refused_before_anybody_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let run = |text: &str| {
        std::fs::write(dir.path().join("proxy.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
        let output = command.arg("proxy").arg("-c").arg(dir.path().join("proxy.toml")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let typo = run("listen = '127.0.0.1:0'\nserver = '127.0.0.1:1'\n[limits]\nmax_conections = 5\n");
    assert!(typo.contains("max_conections") && typo.contains("line 4"), "{typo}");
    let nobody = run("listen = []\nserver = '127.0.0.1:1'\n");
    assert!(nobody.contains("no address to listen on"), "{nobody}");
    let key = run("listen = '127.0.0.1:0'\nserver = '127.0.0.1:1'\n[tls]\ncertificate = 'no.crt'\nkey = 'no.key'\n");
    assert!(key.contains("no.crt"), "{key}");
}
