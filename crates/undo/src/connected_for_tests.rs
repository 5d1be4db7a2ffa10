//! A connection in a network namespace of its own, whose setting of bursts a test may change.
#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code)]

use backwater_socket::{Namespace, Socket, by_pid};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A process that is connected with itself, and lives until its standard input ends.
const CONNECTED: &str = "import socket, sys\n\
    one = socket.create_server(('127.0.0.1', 0))\n\
    two = socket.create_connection(one.getsockname())\n\
    print(flush=True)\n\
    sys.stdin.read()\n";

/// It goes when this is dropped.
pub(crate) struct Connected {
    child: Child,
    pub(crate) socket: Socket,
    pub(crate) namespace: Namespace,
    /// What was set there.
    pub(crate) before: u32,
}

impl Connected {
    /// None where the host has no right or no program for it, or its kernel no such setting.
    pub(crate) fn make(test: &str) -> Option<Connected> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && exec python3 -c \"$0\"", CONNECTED]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut said).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let socket = (!said.is_empty()).then(|| by_pid(pid).unwrap().tcp.remove(0));
        let namespace = socket.as_ref().and_then(|socket| socket.namespace().unwrap());
        let before = namespace.and_then(|namespace| namespace.tso_rtt_log().unwrap());
        let (Some(socket), Some(namespace), Some(before)) = (socket, namespace, before) else {
            eprintln!("skipped: {test}: needs root, unshare, ip, python3 and Linux 5.18");
            return None;
        };
        Some(Connected { child, socket, namespace, before })
    }

    /// What is set there now.
    pub(crate) fn now(&self) -> Option<u32> {
        self.namespace.tso_rtt_log().unwrap()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}
