//! `backwater attach` as a whole program: on a real PostgreSQL that sends a large result over TCP, and on a server of
//! another kind. Rates are measured at the client; that a socket is as before is asked of the kernel.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod attach_help;
#[path = "../../gate/tests/elsewhere/mod.rs"]
mod elsewhere;
#[path = "../../gate/tests/server/mod.rs"]
mod server;

use attach_help::*;
use elsewhere::Elsewhere;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use server::{Running, with_server};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

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
        assert_eq!(end(&mut master), Some(0));
        assert_eq!(kernel_rate(peer), None);
        assert_eq!(journals(state.path()), 0);

        // By SIGKILL: nobody but the guardian can know.
        let mut master = attach(state.path(), &held);
        assert!(is_held_at(peer, 3) && journals(state.path()) == 1);
        master.0.kill().unwrap();
        master.0.wait().unwrap();
        until("the rate is put back", || kernel_rate(peer).is_none() && journals(state.path()) == 0);
        assert!(rate(&mut output, short, short) > 4.0 * slowed);
    });
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
    kill_both(&mut master);
    let addr = client.local_addr().unwrap();
    assert!(is_held_at(addr, 1));
    let next = command(state.path(), &["--socket", &peer, "--rate", "2MB", "--for", "100ms"]).output().unwrap();
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(next.status.success() && said.contains("put back: 1 change of an earlier run"), "{said}");
    assert_eq!(kernel_rate(addr), None);
}

/// By SIGKILL, so that nothing is put back.
fn kill_both(master: &mut Running) {
    let guardian = guardian_of(master);
    // The master is stopped first, so that it cannot start another guardian. Not the guardian: at its master's end the
    // kernel would wake it (a stopped process of a group that has become an orphan), with a hangup that it obeys.
    let master_pid = Pid::from_child(&master.0);
    kill_process(master_pid, Signal::STOP).unwrap();
    until("the master is stopped", || state_of(master_pid) == Some('T'));
    kill_process(guardian, Signal::KILL).unwrap();
    until("the guardian is gone", || matches!(state_of(guardian), None | Some('Z')));
    master.0.kill().unwrap();
    master.0.wait().unwrap();
}

#[test]
fn bursts_are_small_in_the_servers_namespace_while_anything_is_held_there_and_as_before_afterwards() {
    const NAME: &str = "bursts_are_small_in_the_servers_namespace_while_anything_is_held_there";
    const SETTING: &str = "/proc/sys/net/ipv4/tcp_tso_rtt_log";
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    let Some(elsewhere) = Elsewhere::make().filter(|_| has_python && Path::new(SETTING).exists()) else {
        eprintln!("skipped: {NAME}: needs root, ip, python3 and Linux 5.18");
        return;
    };
    let there = || elsewhere.make_there(|| std::fs::read_to_string(SETTING).unwrap());
    let (before, here) = (there(), std::fs::read_to_string(SETTING).unwrap());
    assert_ne!(before.trim(), "0");
    let mut python = Command::new("ip");
    python.args(["netns", "exec", &elsewhere.name, "python3"]);
    let Some((_server, client)) = http_by(python, Elsewhere::THERE, NAME) else { return };
    let (state, peer) = (tempfile::tempdir().unwrap(), client.local_addr().unwrap().to_string());
    let held = ["--socket", &peer, "--rate", "1MB"];
    let allowed = [&held[..], &["--allow-host-changes"]].concat();

    // Nobody's but the socket's, unless it is allowed.
    let mut master = attach(state.path(), &held);
    assert_eq!(there(), before);
    assert_eq!(end(&mut master), Some(0));

    let mut master = attach(state.path(), &allowed);
    assert_eq!((there().trim(), std::fs::read_to_string(SETTING).unwrap()), ("0", here));
    assert_eq!((end(&mut master), there()), (Some(0), before.clone()));

    let mut master = attach(state.path(), &allowed);
    kill_both(&mut master);
    assert_eq!(there().trim(), "0");
    let next = command(state.path(), &[&held[..], &["--for", "100ms"]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(next.status.success() && said.contains("put back: 2 changes of an earlier run"), "{said}");
    assert_eq!(there(), before);
}

#[test]
fn a_killed_guardian_leaves_none_of_its_sockets_held() {
    const NAME: &str = "a_killed_guardian_leaves_none_of_its_sockets_held";
    if !is_root(NAME) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let (Some((_one, first)), Some((_two, second))) = (http(NAME), http(NAME)) else { return };
    let peers = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    let (mut master, _told) = hold_both(state.path(), peers);
    kill_process(guardian_of(&master), Signal::KILL).unwrap();
    // Whoever has lost it can hold nobody, and says so; what it left is put back first.
    assert_eq!(ended(&mut master), Some(2));
    assert_eq!(peers.map(kernel_rate), [None, None]);
    assert_eq!(journals(state.path()), 0);
}

/// `backwater attach` that holds each of these at 2 MB/s, with what it says from then on.
fn hold_both(state: &Path, peers: [SocketAddr; 2]) -> (Running, Receiver<String>) {
    let [one, two] = peers.map(|peer| peer.to_string());
    let arguments = ["--socket", &one, "--socket", &two, "--rate", "2MB", "--interval", "100ms"];
    let holding = attach_listening(state, &arguments);
    until("both are held", || peers.iter().all(|peer| is_held_at(*peer, 2)));
    holding
}

/// The letter that proc gives for what a process does; None when there is none.
fn state_of(pid: Pid) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    text.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Python's own HTTP server with a large file, and a client that has asked for it.
fn http(name: &str) -> Option<(Running, TcpStream)> {
    http_by(Command::new("python3"), "127.0.0.1", name)
}

/// The same, started by this command, on this address.
fn http_by(mut python: Command, address: &str, name: &str) -> Option<(Running, TcpStream)> {
    let dir = tempfile::tempdir().unwrap().keep();
    std::fs::File::create(dir.join("large")).unwrap().set_len(4 << 30).unwrap();
    let port = backwater_socket::free_port().unwrap();
    python.args(["-m", "http.server", "--bind", address, &port.to_string()]).current_dir(&dir);
    let Ok(child) = python.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        eprintln!("skipped: {name}: needs python3");
        return None;
    };
    let server = Running(child);
    let mut client = None;
    // One that only just listens may still reset what it took.
    let asked = || {
        let mut client = TcpStream::connect((address, port))?;
        client.write_all(b"GET /large HTTP/1.0\r\n\r\n")?;
        client.read_exact(&mut [0; 1000]).map(|()| client)
    };
    until("the HTTP server answers", || {
        client = asked().ok();
        client.is_some()
    });
    let client = client.unwrap();
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
fn a_client_that_never_reads_delays_neither_looks_nor_the_end() {
    const NAME: &str = "a_client_that_never_reads_delays_neither_looks_nor_the_end";
    if !is_root(NAME) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    // Neither is read from any more: what is sent to them stands in buffers.
    let (Some((_one, first)), Some((_two, second))) = (http(NAME), http(NAME)) else { return };
    let peers = [first.local_addr().unwrap(), second.local_addr().unwrap()];
    let (mut master, told) = hold_both(state.path(), peers);
    // One goes, with all that it has not read: it is told, and the other one is held on.
    drop(second);
    let gone = peers[1].to_string();
    until("it is let go", || told.try_iter().any(|line| line.contains("let go") && line.contains(&gone)));
    assert!(is_held_at(peers[0], 2));
    assert_eq!((end(&mut master), kernel_rate(peers[0])), (Some(0), None));
    assert_eq!(journals(state.path()), 0);
}

/// A server at an address of this host, which sends to each client for as long as that takes it.
fn endless(host: &str) -> SocketAddr {
    let listener = TcpListener::bind((host, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || while client.write_all(&[7; 1 << 16]).is_ok() {});
        }
    });
    address
}

/// A client that its server has taken.
fn taken_by(server: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(server).unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
    client
}

#[test]
fn a_client_that_has_sent_its_last_word_and_reads_on_is_held_until_it_is_gone() {
    const NAME: &str = "a_client_that_has_sent_its_last_word_and_reads_on_is_held_until_it_is_gone";
    if !is_root(NAME) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let server = endless("127.0.0.1");
    let [early, mut late] = [(); 2].map(|()| taken_by(server));
    let peers = [&early, &late].map(|client| client.local_addr().unwrap());
    let half_closed = |peer: SocketAddr| {
        let found = backwater_socket::by_peer(peer).unwrap();
        found.first().is_some_and(|socket| socket.read().unwrap().info.half_closed)
    };
    // One before it is looked for, the other one while it is held.
    early.shutdown(Shutdown::Write).unwrap();
    until("the server has heard it", || half_closed(peers[0]));
    let (mut master, told) = hold_both(state.path(), peers);
    late.shutdown(Shutdown::Write).unwrap();
    until("both are held all the same", || peers.iter().all(|peer| half_closed(*peer) && is_held_at(*peer, 2)));
    let slowed = rate(&mut late, Duration::from_secs(2), Duration::from_secs(3));
    assert!((1.8 * MIB..2.1 * MIB).contains(&slowed), "{slowed}");
    let said: Vec<String> = told.try_iter().collect();
    assert!(said.iter().all(|line| !line.contains("let go")), "{said:?}");
    drop((early, late));
    assert_eq!(ended(&mut master), Some(0), "it ends with the last of them");
    assert_eq!(journals(state.path()), 0);
}

#[test]
fn a_connection_that_cannot_be_read_for_a_while_stays_held_and_that_is_told_once() {
    const NAME: &str = "a_connection_that_cannot_be_read_for_a_while_stays_held_and_that_is_told_once";
    if !is_root(NAME) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut client = taken_by(endless("127.0.0.1"));
    let peer = client.local_addr().unwrap();
    let named = peer.to_string();
    let arguments = ["--socket", &named, "--rate", "2MB", "--interval", "100ms"];
    let (mut master, told) = attach_listening(state.path(), &arguments);
    // The helper may open nothing more: whoever it looks at is out of its reach.
    let (guardian, limit) = (guardian_of(&master), getrlimit(Resource::Nofile));
    let may_open = |limit: Rlimit| {
        prlimit(Some(guardian), Resource::Nofile, limit).unwrap();
    };
    may_open(Rlimit { current: Some(0), ..limit });
    let mut said: Vec<String> = Vec::new();
    until("it is told", || {
        said.extend(told.try_iter());
        said.iter().any(|line| line.contains("Too many open files"))
    });
    let slowed = rate(&mut client, Duration::from_secs(2), Duration::from_secs(3));
    assert!((1.5 * MIB..2.6 * MIB).contains(&slowed), "{slowed}");
    may_open(limit);
    assert_eq!((end(&mut master), kernel_rate(peer)), (Some(0), None));
    said.extend(told.iter());
    let lines = |words: &str| said.iter().filter(|line| line.contains(words)).collect::<Vec<_>>();
    assert_eq!((lines("Too many open files").len(), lines("let go").len()), (1, 1), "{said:?}");
    let times = lines("let go")[0].rsplit_once("could not be reached ").unwrap().1;
    assert!(times.trim_end_matches(" times").parse::<u32>().unwrap() >= 10, "{said:?}");
}

#[test]
fn the_end_of_the_time_or_of_the_last_connection_is_not_waited_for_by_the_interval() {
    const NAME: &str = "the_end_of_the_time_or_of_the_last_connection_is_not_waited_for_by_the_interval";
    const INTERVAL: [&str; 4] = ["--rate", "2MB", "--interval", "60s"];
    const WITHIN: Duration = Duration::from_secs(30);
    if !is_root(NAME) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let brief = |arguments: &[&str]| {
        let begun = Instant::now();
        let output = command(state.path(), arguments).args(INTERVAL).args(["--for", "1s"]).output().unwrap();
        let (took, said) = (begun.elapsed(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("holding") && said.contains("let go"), "{said}");
        assert!((Duration::from_secs(1)..WITHIN).contains(&took), "{took:?}: {said}");
    };
    let client = taken_by(endless("127.0.0.1"));
    let peer = client.local_addr().unwrap().to_string();
    brief(&["--socket", &peer]);
    assert_eq!(kernel_rate(client.local_addr().unwrap()), None);

    let (mut master, _, _told) = attach_until("holding", state.path(), &[&["--socket", &peer][..], &INTERVAL].concat());
    let begun = Instant::now();
    drop(client);
    ended(&mut master);
    assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());

    with_server(NAME, &[], |server| {
        let (_client, output) = flood(server, "flood");
        read_on(output);
        let long = "SELECT count(*) FROM pg_stat_activity WHERE now() - query_start > interval '0.5 s' AND \
                    application_name = 'flood'";
        server.until(long, "1");
        brief(&[&target(server), "--rule", "elapsedtime=0.1, action='penalty'"]);
        assert_eq!(kernel_rate(attach_help::peer(server, "flood")), None);
    });
}

#[test]
fn a_client_that_begins_beside_a_greedy_one_does_not_wait_for_its_first_bytes() {
    const NAME: &str = "a_client_that_begins_beside_a_greedy_one_does_not_wait_for_its_first_bytes";
    const ANSWER_BYTES: usize = 300_000;
    if !is_root(NAME) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut greedy = taken_by(endless("127.0.0.1"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut quiet = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    std::thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        while matches!(client.read(&mut [0; 1]), Ok(1)) && client.write_all(&[7; ANSWER_BYTES]).is_ok() {}
    });
    let [first, second] = [&greedy, &quiet].map(|client| client.local_addr().unwrap().to_string());
    let _master = attach(state.path(), &["--socket", &first, "--socket", &second, "--class-rate", "4MB"]);
    let all = rate(&mut greedy, Duration::from_secs(3), Duration::from_secs(2));
    assert!(all > 3.6 * MIB, "nobody else wants any: {all}");
    read_on(greedy);
    // A kernel sends 64 KiB at once here, and the rest when the rate at which it did allows it.
    for _ in 0..3 {
        let begun = Instant::now();
        quiet.write_all(&[1]).unwrap();
        quiet.read_exact(&mut vec![0; ANSWER_BYTES]).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        std::thread::sleep(Duration::from_secs(2));
    }
}

#[test]
fn a_client_that_vanished_leaves_its_share_to_the_others_and_is_put_back() {
    const NAME: &str = "a_client_that_vanished_leaves_its_share_to_the_others_and_is_put_back";
    let Some(elsewhere) = Elsewhere::make() else {
        return eprintln!("skipped: {NAME}: needs root and ip");
    };
    let state = tempfile::tempdir().unwrap();
    let server = endless(Elsewhere::HERE);
    let far = elsewhere.make_there(move || TcpStream::connect(server).unwrap());
    let mut near = TcpStream::connect(server).unwrap();
    let peers = [&far, &near].map(|client| client.local_addr().unwrap());
    read_on(far);
    let [one, two] = peers.map(|peer| peer.to_string());
    let mut master = attach(state.path(), &["--socket", &one, "--socket", &two, "--class-rate", "4MB"]);
    let (settle, span) = (Duration::from_secs(3), Duration::from_secs(2));
    let shared = rate(&mut near, settle, span);
    assert!((1.5 * MIB..2.5 * MIB).contains(&shared), "half of it: {shared}");
    elsewhere.cut();
    until("the rate is the other one's", || rate(&mut near, span / 4, span / 2) > 3.5 * MIB);
    let alone = rate(&mut near, span / 4, 2 * span);
    assert!((3.6 * MIB..4.4 * MIB).contains(&alone), "all of it, and no more: {alone}");
    assert_eq!(end(&mut master), Some(0));
    // The server still has its connection with the one that is gone.
    assert_eq!(peers.map(kernel_rate), [None, None]);
    assert_eq!(journals(state.path()), 0);
}

#[test]
fn an_ordinary_user_is_told_which_right_is_missing() {
    const NOBODY: u32 = 65_534;
    let state = tempfile::tempdir().unwrap();
    let mut attach = command(state.path(), &["--socket", "192.0.2.1:9", "--rate", "1MB"]);
    if rustix::process::geteuid().is_root() {
        attach.uid(NOBODY).gid(NOBODY);
    }
    let output = match attach.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!(
                "skipped: an_ordinary_user_is_told_which_right_is_missing: may not run the program where it lies"
            );
            return;
        }
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    // Which of them depends on the host alone: without the right nobody may, whatever else forbids it.
    let hindrances = ["CAP_SYS_PTRACE is missing", "seccomp", "ptrace_scope is 3"];
    assert!(output.status.code() == Some(2) && hindrances.iter().any(|why| said.contains(why)), "{said}");
    assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0, "nothing was begun");
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
        // A standby, or what receives WAL as one does.
        let received = tempfile::tempdir().unwrap();
        let mut standby = server::client("pg_receivewal", "127.0.0.1", server.port);
        let _standby = Running::start(standby.arg("--no-loop").arg("-D").arg(received.path()));
        server.until("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "1");
        let of_standby = |what: &str| server.value(&format!("SELECT {what} FROM pg_stat_replication"));
        let (pid, peer) = (of_standby("pid"), of_standby("host(client_addr) || ':' || client_port"));
        refused(&[&target, "--pid", &pid, "--rate", "1MB"], "is a walsender, not a client's session");
        refused(&["--socket", &peer, "--rate", "1MB"], "process is a walsender: pacing it would hold back a standby");
    });
}
