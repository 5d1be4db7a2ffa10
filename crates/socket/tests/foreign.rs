//! Sockets of a real other process: found, read, paced, and told from others.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use backwater_socket::{Holders, Socket, SocketError, by_peer, by_pid, probe_duplicating};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::io::{BufRead, BufReader, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that sends zeros to whoever comes, for ever, until it is killed.
const FLOOD: &str = "
import socket
s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)
c, _ = s.accept()
while True: c.sendall(bytes(65536))
";

struct Flood(Child);

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn flood(name: &str) -> Option<(Flood, TcpStream)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: {name}: needs root");
        return None;
    }
    let python = Command::new("python3").args(["-c", FLOOD]).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = python else {
        eprintln!("skipped: {name}: needs python3");
        return None;
    };
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let client = TcpStream::connect(("127.0.0.1", line.trim().parse().unwrap())).unwrap();
    Some((Flood(child), client))
}

/// Bytes a second that come within a while, after what was under way has come.
fn rate(client: &mut TcpStream, settle: Duration, span: Duration) -> f64 {
    let mut buffer = vec![0; 1 << 20];
    let mut read_for = |time: Duration| {
        let (begun, mut bytes) = (Instant::now(), 0);
        while begun.elapsed() < time {
            bytes += client.read(&mut buffer).unwrap();
        }
        bytes as f64 / begun.elapsed().as_secs_f64()
    };
    read_for(settle);
    read_for(span)
}

/// The server's socket: a connection stands before the server has taken it, and until then it is nobody's.
fn accepted(peer: SocketAddr) -> Vec<Socket> {
    let begun = Instant::now();
    loop {
        let found = by_peer(peer).unwrap();
        if !found.is_empty() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the server never took the connection");
        std::thread::yield_now();
    }
}

#[test]
fn a_running_process_is_paced_and_let_go() {
    let Some((server, mut client)) = flood("a_running_process_is_paced_and_let_go") else { return };
    let peer = client.local_addr().unwrap();
    let found = accepted(peer);
    let socket = &found[0];
    assert_eq!((found.len(), socket.pid, socket.peer), (1, server.0.id() as i32, peer));
    assert_eq!(by_pid(socket.pid).unwrap().tcp, found);
    assert!(socket.title().contains("python3"), "{}", socket.title());

    socket.pace(Some(10_000_000)).unwrap();
    let (settle, span) = (Duration::from_millis(700), Duration::from_secs(2));
    let paced = rate(&mut client, settle, span);
    assert!((9_000_000.0..10_300_000.0).contains(&paced), "{paced}");
    let reading = socket.read().unwrap();
    assert_eq!(reading.rate_bps, Some(10_000_000));
    assert!(reading.queued_bytes > 0 && reading.info.acked_bytes.unwrap() > 10_000_000, "{reading:?}");

    socket.pace(None).unwrap();
    assert_eq!(socket.read().unwrap().rate_bps, None);
    let free = rate(&mut client, settle, settle);
    assert!(free > 5.0 * paced, "{free}");
    drop(client);
}

#[test]
fn a_client_that_only_reads_on_is_found_and_paced() {
    let Some((server, client)) = flood("a_client_that_only_reads_on_is_found_and_paced") else { return };
    let peer = client.local_addr().unwrap();
    let found = accepted(peer);
    client.shutdown(Shutdown::Write).unwrap();
    let begun = Instant::now();
    while !found[0].read().unwrap().info.half_closed {
        assert!(begun.elapsed() < Duration::from_secs(60), "the server never heard its last word");
        std::thread::yield_now();
    }
    assert_eq!(by_peer(peer).unwrap(), found);
    assert_eq!(by_pid(server.0.id() as i32).unwrap().tcp, found);
    found[0].pace(Some(10_000_000)).unwrap();
    assert_eq!(found[0].read().unwrap().rate_bps, Some(10_000_000));
}

#[test]
fn what_is_gone_or_another_is_not_touched() {
    let Some((server, client)) = flood("what_is_gone_or_another_is_not_touched") else { return };
    let socket = accepted(client.local_addr().unwrap()).remove(0);
    let mut other = socket.clone();
    other.cookie += 1;
    assert!(matches!(other.pace(Some(1)), Err(SocketError::Gone { .. })));
    let mut reused = socket.clone();
    reused.start_time += 1;
    assert!(matches!(reused.pace(Some(1)), Err(SocketError::Gone { .. })));
    assert_eq!(socket.read().unwrap().rate_bps, None);
    drop(server);
    assert!(matches!(socket.read(), Err(SocketError::NoProcess { .. } | SocketError::Gone { .. })));
    assert_eq!(socket.elsewhere(&mut Holders::default()).unwrap(), None);
    assert!(matches!(by_pid(socket.pid), Err(SocketError::NoProcess { .. })));
    let nobody: SocketAddr = "192.0.2.1:9".parse().unwrap();
    assert_eq!(by_peer(nobody).unwrap(), []);
}

#[test]
fn what_may_not_be_reached_is_not_gone() {
    let Some((server, client)) = flood("what_may_not_be_reached_is_not_gone") else { return };
    let socket = accepted(client.local_addr().unwrap()).remove(0);
    let other = socket.clone();
    // Rights belong to a thread: this one is not the test's others.
    let tried = std::thread::spawn(move || {
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
        [other.read().map(drop), other.pace(Some(1)), by_pid(other.pid).map(drop)]
    });
    for done in tried.join().unwrap() {
        let error = done.unwrap_err();
        assert!(!error.is_gone() && matches!(error, SocketError::Process { .. }), "{error}");
        assert!(error.to_string().contains("ermi"), "the kernel's own word: {error}");
    }
    assert_eq!(socket.read().unwrap().rate_bps, None);
    drop((server, client));
    assert!(socket.read().unwrap_err().is_gone());
}

#[test]
fn the_kernel_is_asked_whether_it_can() {
    let file = std::fs::File::open("/dev/null").unwrap();
    if let Err(error) = probe_duplicating(file.as_fd()) {
        let answer = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
        assert!(matches!(answer, Some(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM)), "{error}");
    }
}
