//! How much at once paced connections of a network namespace send.

use super::Why;
use backwater_socket::{Namespace, SMALL_BURSTS};

/// Gives a namespace its setting back. What is neither gone nor as the run had set it, somebody else has set since.
pub(super) fn restore(namespace: &Namespace, before: u32) -> Result<(), Why> {
    let restored = namespace.tso_rtt_log().and_then(|now| match now {
        Some(SMALL_BURSTS) => namespace.set_tso_rtt_log(before),
        _ => Ok(()),
    });
    restored.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use crate::{Change, Journal, recover};
    use backwater_socket::{Namespace, SMALL_BURSTS, by_pid};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    /// A connection in a namespace of its own, made by a process that lives until its standard input ends.
    const CONNECTED: &str = "import socket, sys\n\
        one = socket.create_server(('127.0.0.1', 0))\n\
        two = socket.create_connection(one.getsockname())\n\
        print(flush=True)\n\
        sys.stdin.read()\n";

    #[test]
    fn a_namespace_gets_its_setting_back_by_whoever_comes_next_unless_somebody_else_has_set_it() {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && exec python3 -c \"$0\"", CONNECTED]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let found = (!said.is_empty()).then(|| by_pid(i32::try_from(child.id()).unwrap()).unwrap().tcp);
        let namespace = found.and_then(|sockets| sockets[0].namespace().unwrap());
        let before = namespace.and_then(|namespace| namespace.tso_rtt_log().unwrap());
        if let (Some(namespace), Some(before)) = (namespace, before) {
            check(namespace, before);
        } else {
            eprintln!("skipped: a_namespace_gets_its_setting_back: needs root, ip, python3 and Linux 5.18");
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    fn check(namespace: Namespace, before: u32) {
        let dir = tempfile::tempdir().unwrap();
        let change = Change::SmallBursts { namespace, before };
        let now = || namespace.tso_rtt_log().unwrap();
        for somebody_else in [None, Some(before + 2)] {
            let journal = Journal::begin(dir.path(), "attach").unwrap();
            journal.note(change.clone()).unwrap();
            let lines = std::fs::read(journal.path()).unwrap();
            journal.finish().unwrap();
            assert_eq!(now(), Some(before), "it was noted, and never made");
            // As a kill leaves it.
            std::fs::write(dir.path().join("journal-1-1.jsonl"), lines).unwrap();
            namespace.set_tso_rtt_log(somebody_else.unwrap_or(SMALL_BURSTS)).unwrap();
            let recovered = recover(dir.path()).unwrap();
            assert!(recovered[0].is_complete() && recovered[0].undone == [change.clone()], "{recovered:?}");
            assert_eq!(now(), somebody_else.or(Some(before)));
            namespace.set_tso_rtt_log(before).unwrap();
        }
    }
}
