//! `backwater attach` as a whole program beside a real PostgreSQL that sends a large result over TCP.
#![allow(unreachable_pub, dead_code)]

use crate::server::{self, Running, Server, psql};
use backwater_socket::by_peer;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const MIB: f64 = 1_048_576.0;
/// Some gigabytes: more than any test reads.
pub const FLOOD: &str = "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 20000000)) TO STDOUT";

pub fn is_root(name: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {name}: needs root");
    }
    root
}

/// `backwater attach` with a state directory of its own; stderr is read until a line says that it holds.
pub fn attach(state: &Path, arguments: &[&str]) -> Running {
    attach_listening(state, arguments).0
}

/// The same, with what it says from then on.
pub fn attach_listening(state: &Path, arguments: &[&str]) -> (Running, Receiver<String>) {
    let (running, _, told) = attach_until(" holding ", state, arguments);
    (running, told)
}

/// `backwater attach` once it says this: with the line that says it, and what it says from then on.
pub fn attach_until(word: &str, state: &Path, arguments: &[&str]) -> (Running, String, Receiver<String>) {
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

/// The process that a master has started.
pub fn guardian_of(master: &Running) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", master.0.id());
    let guardian: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    Pid::from_raw(guardian).unwrap()
}

/// Asks it to end.
pub fn terminate(running: &Running) {
    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
}

/// Waits until it has ended; its exit code.
pub fn ended(running: &mut Running) -> Option<i32> {
    let mut status = None;
    until("it ends", || {
        status = running.0.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code()
}

/// Asks it to end, and waits for that; its exit code.
pub fn end(running: &mut Running) -> Option<i32> {
    terminate(running);
    ended(running)
}

/// How many runs have not put everything back.
pub fn journals(state: &Path) -> usize {
    let is_journal = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("journal-");
    std::fs::read_dir(state).unwrap().flatten().filter(is_journal).count()
}

pub fn command(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backwater"));
    command.arg("attach").args(arguments).env("BACKWATER_STATE_DIR", state).env("PGPASSWORD", server::PASSWORD);
    command
}

/// Bytes a second that come within `span`, once `settle` has passed.
pub fn rate(from: &mut impl Read, settle: Duration, span: Duration) -> f64 {
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

pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads on, beside what the test does, and throws away what comes.
pub fn read_on(mut from: impl Read + Send + 'static) {
    std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
}

/// psql with the large result, as a client over TCP under a name of its own.
pub fn flood(server: &Server, name: &str) -> (Running, ChildStdout) {
    let mut client = psql("127.0.0.1", server.port, FLOOD);
    let mut client = client.env("PGAPPNAME", name).stdout(Stdio::piped()).spawn().unwrap();
    let output = client.stdout.take().unwrap();
    server.until(&sessions(name, "count(*)", "AND state = 'active'"), "1");
    (Running(client), output)
}

pub fn sessions(name: &str, what: &str, and: &str) -> String {
    format!("SELECT {what} FROM pg_stat_activity WHERE application_name = '{name}' {and}")
}

pub fn peer(server: &Server, name: &str) -> SocketAddr {
    server.value(&sessions(name, "host(client_addr) || ':' || client_port", "")).parse().unwrap()
}

/// Whether it is held at so many MB a second: exactly, or faster by at most a half while it makes good what it lost, or slower
/// where it was ahead.
pub fn is_held_at(peer: SocketAddr, mb: u64) -> bool {
    let (least, most) = ((mb << 20) * 9 / 10, (mb << 20) * 3 / 2);
    kernel_rate(peer).is_some_and(|rate| (least..=most).contains(&rate))
}

/// What the kernel holds the server's end of a connection to.
pub fn kernel_rate(peer: SocketAddr) -> Option<u64> {
    by_peer(peer).unwrap()[0].read().unwrap().rate_bps
}

pub fn target(server: &Server) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres", server.port)
}

/// psql that says its process id before it runs a statement, under a name of its own.
pub fn telling(server: &Server, name: &str, sql: &str) -> Command {
    let mut command = psql("127.0.0.1", server.port, "SELECT pg_backend_pid()");
    command.args(["-c", sql]).env("PGAPPNAME", name);
    command
}

/// The process id that it said.
pub fn pid_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
