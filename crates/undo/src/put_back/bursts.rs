//! How much at once paced connections of a network namespace send.

use super::Why;
use backwater_socket::{SMALL_BURSTS, set_tso_rtt_log, tso_rtt_log};

/// Gives a namespace its setting back. What is neither gone nor as the run had set it, somebody else has set since.
pub(super) fn restore(namespace: u64, before: u32) -> Result<(), Why> {
    let restored = tso_rtt_log(namespace).and_then(|now| match now {
        Some(SMALL_BURSTS) => set_tso_rtt_log(namespace, before),
        _ => Ok(()),
    });
    restored.map_err(|error| format!("cannot set it in the namespace: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]
    use crate::{Change, Journal, recover};
    use backwater_socket::{SMALL_BURSTS, namespace_of, set_tso_rtt_log, tso_rtt_log};
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn a_namespace_gets_its_setting_back_by_whoever_comes_next_unless_somebody_else_has_set_it() {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo; exec sleep 600"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let is_there = child.stdout.take().unwrap().read(&mut [0]).unwrap() > 0;
        let namespace = namespace_of(i32::try_from(child.id()).unwrap()).ok().filter(|_| is_there);
        let before = namespace.and_then(|namespace| tso_rtt_log(namespace).unwrap());
        if let (Some(namespace), Some(before)) = (namespace, before) {
            check(namespace, before);
        } else {
            eprintln!("skipped: a_namespace_gets_its_setting_back: needs root (unshare --net) and Linux 5.18");
        }
        let _ = child.kill();
        child.wait().unwrap();
    }

    fn check(namespace: u64, before: u32) {
        let dir = tempfile::tempdir().unwrap();
        let change = Change::SmallBursts { namespace, before };
        let now = || tso_rtt_log(namespace).unwrap();
        for somebody_else in [None, Some(before + 2)] {
            let journal = Journal::begin(dir.path(), "attach").unwrap();
            journal.note(change.clone()).unwrap();
            let lines = std::fs::read(journal.path()).unwrap();
            journal.finish().unwrap();
            assert_eq!(now(), Some(before), "it was noted, and never made");
            // As a kill leaves it.
            std::fs::write(dir.path().join("journal-1-1.jsonl"), lines).unwrap();
            set_tso_rtt_log(namespace, somebody_else.unwrap_or(SMALL_BURSTS)).unwrap();
            let recovered = recover(dir.path()).unwrap();
            assert!(recovered[0].is_complete() && recovered[0].undone == [change.clone()], "{recovered:?}");
            assert_eq!(now(), somebody_else.or(Some(before)));
            set_tso_rtt_log(namespace, before).unwrap();
        }
    }
}
