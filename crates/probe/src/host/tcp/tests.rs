//! Live connections of this machine: of a child process, whose parent plays the postmaster.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use super::*;
use crate::host::testing::Look;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

/// A child that holds one end of a connection as its standard input, held to a rate or to none, and the other end.
fn child_with_connection(held_to: Option<u64>) -> (Child, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    backwater_socket::set_pacing_rate(&theirs, held_to).unwrap();
    let child = Command::new("sh")
        .args(["-c", "head -c 100000 /dev/zero >&0; exec sleep 60"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    (child, ours)
}

#[test]
fn a_childs_connection_is_read_and_what_it_sent_is_counted() {
    for held_to in [None, Some(50_000_000)] {
        is_read_and_counted(held_to);
    }
}

fn is_read_and_counted(held_to: Option<u64>) {
    let (mut child, mut ours) = child_with_connection(held_to);
    let mut received = vec![0; 100_000];
    ours.read_exact(&mut received).unwrap();
    let watch = Arc::new(Watch::new());
    watch.add_server(Server { target: "me".into(), postmaster_pid: std::process::id() as i32 });
    let mut probe = Sockets::new(&Roots::default(), &watch);
    let mut look = Look::default();
    for _ in 0..4 {
        probe.pace = Pace::new(1.0, Duration::ZERO);
        look.again(&mut probe);
    }
    let (pid, peer) = (child.id().to_string(), ours.local_addr().unwrap().to_string());
    child.kill().unwrap();
    child.wait().unwrap();
    let labels = [("target", "me"), ("pid", pid.as_str()), ("peer", peer.as_str())];
    assert!(look.value("host.tcp.acked_bytes", &labels).unwrap() >= 100_000.0);
    assert!(look.value("host.tcp.rtt_us", &labels).is_some());
    assert_eq!(look.value("host.tcp.notsent_bytes", &labels), Some(0.0));
    assert!(look.value("host.tcp.busy_us", &labels).is_some());
    assert_eq!(look.value("host.tcp.max_pacing_bytes_per_s", &labels), held_to.map(|rate| rate as f64));
}

#[test]
fn the_namespace_of_another_process_is_entered_and_left() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: the_namespace_of_another_process_is_entered_and_left: needs root");
        return;
    }
    // A connection inside a namespace that only the child has; loopback is down there, so it is brought up first.
    let script = "ip link set lo up && exec python3 -c '
import socket, sys
l = socket.create_server((\"127.0.0.1\", 0)); c = socket.create_connection(l.getsockname()); s, _ = l.accept()
print(c.getsockname()[1], flush=True); sys.stdin.read()'";
    let mut child = Command::new("unshare")
        .args(["--net", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut port).unwrap();
    let roots = Roots::default();
    let pid = child.id() as i32;
    let namespace = namespace_of(&roots, pid).unwrap();
    let own = namespace_of(&roots, std::process::id() as i32).unwrap();
    let seen = Diag::open(&roots, pid, namespace).unwrap().connections().unwrap();
    let here = namespace_of(&roots, std::process::id() as i32).unwrap();
    drop(child.stdin.take());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(namespace, own);
    assert_eq!(own, here);
    let port: u16 = port.trim().parse().unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().any(|socket| socket.local.port() == port));
}

#[test]
fn a_server_that_is_gone_is_not_said_to_be_out_of_sight() {
    let watch = Arc::new(Watch::new());
    watch.add_server(Server { target: "gone".into(), postmaster_pid: i32::MAX });
    let look = Look::of(&mut Sockets::new(&Roots::default(), &watch));
    assert!(look.batch.points.is_empty() && look.batch.events.is_empty(), "{:?}", look.batch);
}

#[test]
fn what_one_server_has_ended_is_forgotten_whatever_cannot_be_seen_of_another() {
    let (mut child, _ours) = child_with_connection(None);
    let pid = child.id() as i32;
    let watch = Arc::new(Watch::new());
    let server = |target: &str, postmaster_pid| Server { target: target.into(), postmaster_pid };
    watch.add_server(server("me", std::process::id() as i32));
    watch.add_server(server("never found", i32::MAX));
    let mut probe = Sockets::new(&Roots::default(), &watch);
    let mut known_after_looks = |times: usize| {
        let mut look = Look::default();
        for _ in 0..times {
            probe.pace = Pace::new(1.0, Duration::ZERO);
            look.again(&mut probe);
        }
        probe.numbered.keys().any(|(_, known)| *known == pid)
    };
    assert!(known_after_looks(4));
    // It cannot be looked at for a while, and then for too long.
    watch.add_server(server("me", i32::MAX));
    assert!(known_after_looks(FORGIVEN_LOOKS as usize));
    assert!(!known_after_looks(1));
    watch.add_server(server("me", std::process::id() as i32));
    assert!(known_after_looks(4));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!known_after_looks(1), "it has ended, and its server says so");
}

#[test]
fn all_that_is_sought_must_have_been_found() {
    let socket = |inode| {
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        Socket { inode, local: nowhere, peer: nowhere, send_queue_bytes: 0, info: Default::default() }
    };
    let found = [socket(1), socket(2), socket(3)];
    assert!(are_all_in(&HashSet::from([1, 3]), &found));
    assert!(!are_all_in(&HashSet::from([1, 4]), &found));
}
