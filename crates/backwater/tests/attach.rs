//! `backwater attach` as a whole program: on a real PostgreSQL that sends a large result over TCP, and on a server of
//! another kind. Rates are measured at the client; that a socket is as before is asked of the kernel.

#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code)]

#[path = "../../gate/tests/server/mod.rs"]
mod server;

use backwater_socket::by_peer;
use rustix::process::{Pid, Signal, kill_process};
use server::{Running, Server, complaint, psql, text, with_server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: f64 = 1_048_576.0;
/// Some gigabytes: more than any test reads.
const FLOOD: &str = "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 20000000)) TO STDOUT";

fn is_root(name: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {name}: needs root");
    }
    root
}

/// `backwater attach` with a state directory of its own; stderr is read until a line says that it holds.
fn attach(state: &Path, arguments: &[&str]) -> Running {
    attach_listening(state, arguments).0
}

/// The same, with what it says from then on.
fn attach_listening(state: &Path, arguments: &[&str]) -> (Running, Receiver<String>) {
    let (running, _, told) = attach_until(" holding ", state, arguments);
    (running, told)
}

/// `backwater attach` once it says this: with the line that says it, and what it says from then on.
fn attach_until(word: &str, state: &Path, arguments: &[&str]) -> (Running, String, Receiver<String>) {
    let mut child = command(state, arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| line.contains(word)) {
        match lines.next() {
            Some(line) => said.push(line.unwrap()),
            None => panic!("it ended: {said:?}"),
        }
    }
    // Somebody must read on, or it would be stopped by a full pipe or killed by a closed one; whether anybody listens or not.
    let (tell, told) = channel();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(tell.send(line))));
    (Running(child), said.pop().unwrap_or_default(), told)
}

fn command(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.arg("attach").args(arguments).env("BACKWATER_STATE_DIR", state).env("PGPASSWORD", server::PASSWORD);
    command
}

/// Bytes a second that come within `span`, once `settle` has passed.
fn rate(from: &mut impl Read, settle: Duration, span: Duration) -> f64 {
    let mut buffer = vec![0; 1 << 18];
    let mut read_for = |time: Duration| {
        let (begun, mut bytes) = (Instant::now(), 0);
        while begun.elapsed() < time {
            let got = from.read(&mut buffer).unwrap();
            assert!(got > 0, "the sender ended");
            bytes += got;
        }
        bytes as f64 / begun.elapsed().as_secs_f64()
    };
    read_for(settle);
    read_for(span)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// psql with the large result, as a client over TCP under a name of its own.
fn flood(server: &Server, name: &str) -> (Running, ChildStdout) {
    let mut client = psql("127.0.0.1", server.port, FLOOD);
    let mut client = client.env("PGAPPNAME", name).stdout(Stdio::piped()).spawn().unwrap();
    let output = client.stdout.take().unwrap();
    server.until(&sessions(name, "count(*)", "AND state = 'active'"), "1");
    (Running(client), output)
}

fn sessions(name: &str, what: &str, and: &str) -> String {
    format!("SELECT {what} FROM pg_stat_activity WHERE application_name = '{name}' {and}")
}

fn peer(server: &Server, name: &str) -> SocketAddr {
    server.value(&sessions(name, "host(client_addr) || ':' || client_port", "")).parse().unwrap()
}

/// Whether it is held at so many MB a second: exactly, or faster by at most a quarter while it makes good what it lost, or slower
/// where it was ahead.
fn is_held_at(peer: SocketAddr, mb: u64) -> bool {
    let (least, most) = ((mb << 20) * 9 / 10, (mb << 20) * 5 / 4);
    kernel_rate(peer).is_some_and(|rate| (least..=most).contains(&rate))
}

/// What the kernel holds the server's end of a connection to.
fn kernel_rate(peer: SocketAddr) -> Option<u64> {
    by_peer(peer).unwrap()[0].read().unwrap().rate_bps
}

fn target(server: &Server) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres", server.port)
}

#[test]
fn a_running_query_is_slowed_and_let_go_also_when_the_master_is_killed() {
    const NAME: &str = "a_running_query_is_slowed_and_let_go_also_when_the_master_is_killed";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (_client, mut output) = flood(server, "flood");
        let (peer, pid) = (peer(server, "flood"), server.value(&sessions("flood", "pid", "")));
        let (target, short) = (target(server), Duration::from_millis(500));
        let free = rate(&mut output, short, short);
        let held = [target.as_str(), "--pid", &pid, "--rate", "3MB"];

        let mut master = attach(state.path(), &held);
        assert!(is_held_at(peer, 3));
        // What stood in buffers comes first.
        let slowed = rate(&mut output, Duration::from_secs(2), Duration::from_secs(3));
        assert!((2.7 * MIB..3.15 * MIB).contains(&slowed), "{slowed} of {free}");
        assert!(free > 4.0 * slowed, "{free} {slowed}");
        let again = command(state.path(), &held).output().unwrap();
        assert_eq!(again.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&again.stderr).contains("is paced already"), "{again:?}");
        assert!(is_held_at(peer, 3));

        // In order.
        let master_pid = rustix::process::Pid::from_child(&master.0);
        rustix::process::kill_process(master_pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(master.0.wait().unwrap().code(), Some(0));
        assert_eq!(kernel_rate(peer), None);
        let journals = || std::fs::read_dir(state.path()).unwrap().flatten().filter(is_journal).count();
        assert_eq!(journals(), 0);

        // By SIGKILL: nobody but the guardian can know.
        let mut master = attach(state.path(), &held);
        assert!(is_held_at(peer, 3) && journals() == 1);
        master.0.kill().unwrap();
        master.0.wait().unwrap();
        until("the rate is put back", || kernel_rate(peer).is_none() && journals() == 0);
        assert!(rate(&mut output, short, short) > 4.0 * slowed);
    });
}

fn is_journal(entry: &std::fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with("journal-")
}

#[test]
fn when_master_and_guardian_are_killed_the_next_run_puts_back() {
    const NAME: &str = "when_master_and_guardian_are_killed_the_next_run_puts_back";
    if !is_root(NAME) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let Some((_server, client)) = http(NAME) else { return };
    let peer = client.local_addr().unwrap().to_string();
    let mut master = attach(state.path(), &["--socket", &peer, "--rate", "1MB"]);
    let children = format!("/proc/{0}/task/{0}/children", master.0.id());
    let guardian: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let guardian = rustix::process::Pid::from_raw(guardian).unwrap();
    // The master is stopped first, so that it cannot start another guardian. Not the guardian: at its master's end the
    // kernel would wake it (a stopped process of a group that has become an orphan), with a hangup that it obeys.
    let master_pid = rustix::process::Pid::from_child(&master.0);
    rustix::process::kill_process(master_pid, rustix::process::Signal::STOP).unwrap();
    until("the master is stopped", || state_of(master_pid) == Some('T'));
    rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
    until("the guardian is gone", || matches!(state_of(guardian), None | Some('Z')));
    master.0.kill().unwrap();
    master.0.wait().unwrap();
    let addr = client.local_addr().unwrap();
    assert!(is_held_at(addr, 1));
    let next = command(state.path(), &["--socket", &peer, "--rate", "2MB", "--for", "100ms"]).output().unwrap();
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(next.status.success() && said.contains("put back: 1 change of an earlier run"), "{said}");
    assert_eq!(kernel_rate(addr), None);
}

/// The letter that proc gives for what a process does; None when there is none.
fn state_of(pid: rustix::process::Pid) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    text.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Python's own HTTP server with a large file, and a client that has asked for it.
fn http(name: &str) -> Option<(Running, TcpStream)> {
    let dir = tempfile::tempdir().unwrap().keep();
    std::fs::File::create(dir.join("large")).unwrap().set_len(4 << 30).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut python = Command::new("python3");
    python.args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]).current_dir(&dir);
    let Ok(child) = python.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        eprintln!("skipped: {name}: needs python3");
        return None;
    };
    let server = Running(child);
    let mut client = None;
    until("the HTTP server answers", || {
        client = TcpStream::connect(("127.0.0.1", port)).ok();
        client.is_some()
    });
    let mut client = client.unwrap();
    client.write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    Some((server, client))
}

#[test]
fn any_servers_connection_is_held_and_a_class_shares_its_rate() {
    const NAME: &str = "any_servers_connection_is_held_and_a_class_shares_its_rate";
    if !is_root(NAME) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let (Some((_one, mut first)), Some((_two, mut second))) = (http(NAME), http(NAME)) else { return };
    let peers = [first.local_addr().unwrap().to_string(), second.local_addr().unwrap().to_string()];
    let class = ["--socket", &peers[0], "--socket", &peers[1], "--class-rate", "8MB", "--interval", "100ms"];
    let dry = command(state.path(), &[&class[..], &["--dry-run"]].concat()).output().unwrap();
    assert!(String::from_utf8_lossy(&dry.stderr).contains("would hold"), "{dry:?}");
    assert_eq!(kernel_rate(first.local_addr().unwrap()), None);

    let master = attach(state.path(), &class);
    let other = std::thread::spawn(move || {
        let rate = rate(&mut second, Duration::from_secs(2), Duration::from_secs(3));
        (rate, second)
    });
    let mine = rate(&mut first, Duration::from_secs(2), Duration::from_secs(3));
    let (theirs, second) = other.join().unwrap();
    let together = mine + theirs;
    assert!((7.2 * MIB..8.3 * MIB).contains(&together), "{mine} {theirs}");
    assert!(mine > 0.35 * together && theirs > 0.35 * together, "{mine} {theirs}");
    // One alone gets what the other leaves.
    drop(second);
    let alone = rate(&mut first, Duration::from_secs(2), Duration::from_secs(3));
    assert!((7.2 * MIB..8.3 * MIB).contains(&alone), "{alone}");
    drop(master);
    until("the rate is put back", || kernel_rate(first.local_addr().unwrap()).is_none());
}

#[test]
fn a_rule_slows_the_stream_and_not_the_others() {
    const NAME: &str = "a_rule_slows_the_stream_and_not_the_others";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let (client, mut output) = flood(server, "stream");
        let mut quiet = psql("127.0.0.1", server.port, "SELECT pg_sleep(60)");
        let quiet = Running(quiet.env("PGAPPNAME", "quiet").stdout(Stdio::null()).spawn().unwrap());
        server.until(&sessions("quiet", "count(*)", "AND state = 'active'"), "1");
        let (stream, still) = (peer(server, "stream"), peer(server, "quiet"));
        let reader = std::thread::spawn(move || {
            let slowed = rate(&mut output, Duration::from_secs(9), Duration::from_secs(3));
            (slowed, output)
        });
        let rule = "bandwidth=8, action='penalty'";
        let master = attach(state.path(), &[&target(server), "--rule", rule, "--rate", "2MB", "--interval", "200ms"]);
        assert!(is_held_at(stream, 2) && kernel_rate(still).is_none());
        let (slowed, _output) = reader.join().unwrap();
        assert!((1.8 * MIB..2.1 * MIB).contains(&slowed), "{slowed}");
        // Its statement ends, its session stays or not: it is let go by itself.
        let cancel = sessions("stream", "pg_cancel_backend(pid)", "");
        server.value(&cancel);
        drop(client);
        drop((master, quiet));
    });
}

#[test]
fn what_cannot_be_slowed_is_said() {
    const NAME: &str = "what_cannot_be_slowed_is_said";
    if !is_root(NAME) {
        return;
    }
    let refused = |arguments: &[&str], why: &str| {
        let state = tempfile::tempdir().unwrap();
        let output = command(state.path(), arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{arguments:?}: {said}");
    };
    refused(&["--socket", "192.0.2.1:9", "--rate", "1MB"], "no process on this host has a connection with 192.0.2.1:9");
    refused(&["--socket", "192.0.2.1:9"], "give --rate");
    refused(&["--socket", "192.0.2.1:9", "--rate", "1KB"], "the least is 16KB");
    with_server(NAME, &[], |server| {
        let target = target(server);
        let mut local = server.direct("SELECT pg_sleep(60)");
        let _local = Running(local.env("PGAPPNAME", "local").stdout(Stdio::null()).spawn().unwrap());
        server.until(&sessions("local", "count(*)", "AND state = 'active'"), "1");
        let pid = server.value(&sessions("local", "pid", ""));
        refused(&[&target, "--pid", &pid, "--rate", "1MB"], "came by a Unix socket");
        refused(&[&target, "--pid", "1", "--rate", "1MB"], "no session with process id 1");
        refused(&[&target, "--rule", "rows=5, action='penalty'", "--rate", "1MB"], "cannot be seen from outside");
    });
}

#[test]
fn a_file_of_pools_holds_their_sessions_and_is_read_again() {
    const NAME: &str = "a_file_of_pools_holds_their_sessions_and_is_read_again";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        server.value(&format!("CREATE ROLE etl LOGIN PASSWORD '{}'", server::PASSWORD));
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("flow.toml");
        let write = |bandwidth: &str, users: &str| {
            let pool = "[pools.batch]\npriority = 'low'\n[rules.long]\nelapsedtime = 600\naction = 'penalty'\n";
            let text = format!("low_priority_bandwidth = '{bandwidth}'\n{pool}[users]\n{users}\n");
            std::fs::write(&file, text).unwrap();
        };
        write("2MB", "etl = 'batch'");
        let (_urgent, _untouched) = flood(server, "urgent");
        let mut low = psql("127.0.0.1", server.port, FLOOD);
        let low = low.env("PGUSER", "etl").env("PGAPPNAME", "low").stdout(Stdio::piped());
        let mut low = Running(low.spawn().unwrap());
        let mut output = low.0.stdout.take().unwrap();
        server.until(&sessions("low", "count(*)", "AND state = 'active'"), "1");
        let (batch, urgent) = (peer(server, "low"), peer(server, "urgent"));
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let arguments = [&*target(server), "-c", file.to_str().unwrap(), "--interval", "100ms"];
        let (master, told) = attach_listening(state.path(), &arguments);
        assert!(is_held_at(batch, 2) && kernel_rate(urgent).is_none());
        let read_again = || {
            kill_process(Pid::from_child(&master.0), Signal::HUP).unwrap();
        };
        write("4MB", "etl = 'batch'");
        read_again();
        until("the other rate", || is_held_at(batch, 4));
        // What cannot be changes nothing; the next that can does.
        write("9MB", "etl = 'nowhere'");
        read_again();
        let refused = |line: &String| line.contains("was not taken over") && line.contains("nowhere");
        until("it is refused", || told.recv_timeout(PATIENCE).is_ok_and(|line| refused(&line)));
        assert!(is_held_at(batch, 4));
        write("6MB", "etl = 'batch'");
        read_again();
        until("the rate of the next good file", || is_held_at(batch, 6));
        write("6MB", "etl = 'batch'\npostgres = 'batch'");
        read_again();
        until("somebody more is held", || kernel_rate(urgent).is_some());
        write("6MB", "postgres = 'batch'");
        read_again();
        until("who is no longer of the pool is let go", || kernel_rate(batch).is_none());
        drop(master);
        until("the rest is put back", || kernel_rate(urgent).is_none());
    });
}

/// The console of `backwater attach -c FILE`, by psql.
struct Console {
    master: Running,
    port: u16,
}

impl Console {
    fn start(server: &Server, state: &Path, file: &Path) -> Console {
        let arguments = [&*target(server), "-c", file.to_str().unwrap(), "--interval", "100ms"];
        let (master, line, _) = attach_until("console at ", state, &arguments);
        Console { master, port: line.rsplit(':').next().unwrap().parse().unwrap() }
    }

    fn ask(&self, sql: &str) -> std::process::Output {
        let mut command = psql("127.0.0.1", self.port, sql);
        command.env("PGDATABASE", "backwater").env("PGUSER", "dba").env("PGPASSWORD", "open sesame");
        command.output().unwrap()
    }

    fn shown(&self, sql: &str) -> String {
        text(&self.ask(sql))
    }
}

#[test]
fn statements_on_its_console_hold_sessions_and_let_them_go() {
    const NAME: &str = "statements_on_its_console_hold_sessions_and_let_them_go";
    if !is_root(NAME) {
        return;
    }
    with_server(NAME, &[], |server| {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("flow.toml");
        let admin = "[admin]\nlisten = '127.0.0.1:0'\nusers = { dba = 'open sesame' }\n";
        std::fs::write(&file, format!("state_file = 'state.toml'\n{admin}")).unwrap();
        let (_client, mut output) = flood(server, "flood");
        let flood = peer(server, "flood");
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let console = Console::start(server, state.path(), &file);
        until("the session is seen", || console.shown("SHOW SESSIONS").contains("|flood|"));
        assert_eq!(kernel_rate(flood), None);
        // The article's statements, with smaller figures.
        console.shown(
            "CREATE EXCEPT RULE bandwidth_rule1 WITH (bandwidth=1, elapsedtime=1, action='penalty');
             CREATE RESOURCE POOL rp1 WITH (except_rule='bandwidth_rule1');
             ALTER USER postgres RESOURCE POOL 'rp1';
             SET low_priority_bandwidth = '3MB';",
        );
        until("the rule holds it", || kernel_rate(flood).is_some_and(|rate| rate < 6 << 20));
        until("who holds it is shown", || console.shown("SHOW SESSIONS").contains("|rp1|low|bandwidth_rule1|"));
        assert!(console.shown("SHOW RULES").contains("|rp1|1|0|0|"), "{}", console.shown("SHOW RULES"));
        let events = console.shown("SHOW EVENTS");
        assert!(events.contains("dba changed: CREATE EXCEPT RULE bandwidth_rule1"), "{events}");
        assert!(events.contains("|decision|"), "{events}");
        for what in ["POOLS", "USERS", "STATS", "CONFIG", "QUEUES", "GOVERNOR"] {
            console.shown(&format!("SHOW {what}"));
        }
        let noticed = console.ask("CREATE EXCEPT RULE r WITH (rows=5, action='abort')");
        let noticed = String::from_utf8_lossy(&noticed.stderr).into_owned();
        assert!(noticed.contains("rule r will never match: rows cannot be measured here"), "{noticed}");
        let refused = complaint(&console.ask("ALTER RESOURCE POOL rp1 WITH (except_rule='r')"));
        assert!(refused.contains("no rule of attach mode can look at rows here"), "{refused}");
        let in_vain = console.ask("ALTER RESOURCE POOL rp1 WITH (max_active=4)");
        let notice = String::from_utf8_lossy(&in_vain.stderr).into_owned();
        assert!(notice.contains("max_active of pool rp1: not enforced from outside"), "{notice}");
        // What was said is kept over its end, and the socket is put back at once.
        let Console { master, .. } = console;
        kill_process(Pid::from_child(&master.0), Signal::TERM).unwrap();
        until("it is put back", || kernel_rate(flood).is_none());
        drop(master);
        let console = Console::start(server, state.path(), &file);
        until("the rule holds it again", || kernel_rate(flood).is_some());
        console.shown("ALTER USER postgres RESOURCE POOL default");
        until("who is no longer of the pool is let go", || kernel_rate(flood).is_none());
        assert!(
            console.shown("SHOW EVENTS").contains("the rule no longer applies"),
            "{}",
            console.shown("SHOW EVENTS")
        );
    });
}
