//! Live: a child of this process that writes and sends.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A child with one end of a connection as its standard output: for each line it is given it makes a file and sends.
struct Worker {
    child: Child,
    orders: ChildStdin,
    ours: TcpStream,
}

impl Worker {
    fn begin(dir: &std::path::Path) -> Worker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        // The shell itself does it all, by what it has built in.
        let script = "exec 3>written; while read -r line; do printf \"$line\" >&3; printf '%0100000d' 0; done";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        Worker { child, orders, ours }
    }

    /// Lets it work once, and waits until all of it has come.
    fn work(&mut self) {
        self.orders.write_all(b"order\n").unwrap();
        self.ours.read_exact(&mut vec![0; 100_000]).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_a_child_sent_and_wrote_between_two_looks_is_its_own() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let mut worker = Worker::begin(dir.path());
    worker.work();
    let pid = std::process::id() as i32;
    let mut top = Top::new(&Roots::default(), Scope::Server { target: "me".into(), pid });
    assert_eq!(top.look(Moment::from_seconds(10.0)).unwrap(), None);
    worker.work();
    let usage = top.look(Moment::from_seconds(12.0)).unwrap().unwrap();
    assert_eq!(usage.seconds, 2.0);
    let child = usage.processes.iter().find(|process| process.pid == worker.child.id() as i32).unwrap();
    assert_eq!((child.what.as_str(), child.uid), ("sh", Some(rustix::process::geteuid().as_raw())));
    // The 100,000 bytes of before the first look do not count; on a busy host a few may be sent twice.
    let sent = child.sent_bytes_per_s.unwrap();
    assert!((50_000.0..100_000.0).contains(&sent), "{sent}");
    assert_eq!(child.received_bytes_per_s, Some(0.0));
    assert!(child.sent_segments_per_s.unwrap() > 0.0 && child.received_segments_per_s.unwrap() > 0.0);
    assert!(child.write_calls_per_s.unwrap() > 0.0);
    assert_eq!(child.peer, Some(worker.ours.local_addr().unwrap().to_string()));
    assert_eq!((child.connections, child.interfaces.as_slice()), (Some(1), &["lo".to_owned()][..]));
    let idle = top.look(Moment::from_seconds(13.0)).unwrap().unwrap();
    let child = idle.processes.iter().find(|process| process.pid == worker.child.id() as i32).unwrap();
    assert_eq!((child.sent_bytes_per_s, child.interfaces.len()), (Some(0.0), 0));
}

/// The count of write calls in the kernel's file of a whole process.
fn write_calls_of(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap().parse().unwrap()
}

#[test]
fn what_a_reaped_child_wrote_is_not_told_again_as_its_parents() {
    const CALLS: u64 = 5_000;
    // As a postmaster does: begin a child that writes, and reap it.
    let script =
        format!("while read -r line; do dd if=/dev/zero of=/dev/null bs=1 count={CALLS} 2>/dev/null; echo done; done");
    let mut parent =
        Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut orders, mut answers) = (parent.stdin.take().unwrap(), parent.stdout.take().unwrap());
    let mut top = Top::new(&Roots::default(), Scope::Server { target: "me".into(), pid: parent.id() as i32 });
    assert_eq!(top.look(Moment::from_seconds(1.0)).unwrap(), None);
    let before = write_calls_of(parent.id());
    orders.write_all(b"order\n").unwrap();
    answers.read_exact(&mut [0; 5]).unwrap();
    let usage = top.look(Moment::from_seconds(2.0)).unwrap().unwrap();
    let told = write_calls_of(parent.id()) - before;
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(told >= CALLS, "the kernel does not add a reaped child's calls, so nothing was tested: {told}");
    let own = usage.processes.iter().find(|process| process.pid == parent.id() as i32).unwrap();
    let calls = own.write_calls_per_s.unwrap();
    assert!((1.0..100.0).contains(&calls), "{calls}");
}

#[test]
fn a_server_that_is_gone_is_an_error_that_names_it() {
    let mut top = Top::new(&Roots::default(), Scope::Server { target: "gone".into(), pid: i32::MAX });
    assert!(top.look(Moment::from_seconds(1.0)).unwrap_err().to_string().contains(&i32::MAX.to_string()));
}

#[test]
fn every_process_of_the_host_is_looked_at_and_what_is_hidden_is_named() {
    let mut top = Top::new(&Roots::default(), Scope::Host);
    top.look(Moment::from_seconds(1.0)).unwrap();
    let usage = top.look(Moment::from_seconds(2.0)).unwrap().unwrap();
    let own = std::process::id() as i32;
    assert!(usage.processes.iter().any(|process| process.pid == own && process.write_bytes_per_s.is_some()));
    if rustix::process::geteuid().is_root() {
        assert!(usage.processes.iter().any(|process| process.pid == 1));
    } else {
        let hidden = usage.unseen.iter().any(|unseen| unseen.what.contains("of other users"));
        assert!(hidden || !usage.processes.iter().any(|process| process.uid == Some(0)));
    }
}

#[test]
fn users_have_the_names_that_the_host_gives_them() {
    let names = names(
        "root:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/:/bin/sh\npostgres:x:104:110::/x:/bin/bash\n\nbad\n:x:7:\n",
    );
    assert_eq!((names.len(), names[&0].as_str(), names[&104].as_str()), (2, "root", "postgres"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".*") {
        names(&text);
    }
}
