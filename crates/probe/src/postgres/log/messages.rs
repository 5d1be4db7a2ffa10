//! Which messages are kept, and the figures in those that have some.

use super::line::Line;
use super::stamp::Stamp;

/// Beginnings of the messages that concern the write path. Read from the servers' message catalogues, 12 to 18.
const KEPT: &[&str] = &[
    "checkpoint starting:",
    "checkpoint complete:",
    "restartpoint starting:",
    "restartpoint complete:",
    "checkpoints are occurring too frequently",
    "requested WAL segment ",
    "started streaming WAL ",
    "replication terminated by primary server",
    "terminating walreceiver",
    "terminating walsender process",
    "could not receive data from WAL stream",
    "could not send data to WAL stream",
    "could not connect to the primary server",
    "invalidating slot ",
    "invalidating obsolete replication slot ",
    "recovery still waiting after ",
    "recovery finished waiting after ",
    "canceling statement due to conflict with recovery",
    "terminating connection due to conflict with recovery",
    "canceling the wait for synchronous replication",
    "standby \"",
    "archive command failed",
    "archive command was terminated",
    "archiving write-ahead log file ",
    "database system is ready",
    "database system was ",
    "database system is shut down",
    "entering standby mode",
    "redo starts at ",
    "redo done at ",
    "consistent recovery state reached",
    "received promote request",
    "selected new timeline ID",
    "received fast shutdown request",
    "received smart shutdown request",
    "received immediate shutdown request",
    "all server processes terminated; reinitializing",
    "terminating any other active server processes",
    "could not write to file ",
    "could not fsync file ",
    "could not extend file ",
    "could not write block ",
    "could not write to log file",
    "using stale statistics ",
];

/// The longest message kept, in bytes. The longest of the server's own, a checkpoint's, has about 400.
const LONGEST: usize = 600;

/// A message worth keeping.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::postgres) struct Message {
    pub(in crate::postgres) text: String,
    pub(in crate::postgres) fields: Vec<(&'static str, String)>,
    pub(in crate::postgres) stamp: Option<Stamp>,
}

/// The message of this line, if it is one of those kept.
pub(super) fn keep(line: Line) -> Option<Message> {
    let mut text = line.message;
    let slot_release = text.starts_with("terminating process ") && text.contains(" to release replication slot ");
    let crash = text.starts_with("server process (PID ") && text.contains(" was terminated by ");
    if !slot_release && !crash && !KEPT.iter().any(|start| text.starts_with(start)) {
        return None;
    }
    let lost = |text: &str| text.find("\n").unwrap_or(text.len());
    text.truncate(lost(&text));
    crate::postgres::normalise::truncate(&mut text, LONGEST);
    let mut fields = vec![("severity", line.severity.to_owned())];
    fields.extend(figures(&text));
    Some(Message { text, fields, stamp: line.stamp })
}

/// The figures of `checkpoint complete: …` and `restartpoint complete: …`, each with its unit in its name.
fn figures(text: &str) -> Vec<(&'static str, String)> {
    let (topic, rest) = match text.split_once(" complete: ") {
        Some((topic @ ("checkpoint" | "restartpoint"), rest)) => (topic, rest),
        _ => return cause(text),
    };
    let kind = if topic == "checkpoint" { "checkpoint_complete" } else { "restartpoint_complete" };
    let mut fields = vec![("what", kind.to_owned())];
    for part in rest.split([';', ',']).map(str::trim) {
        let words: Vec<_> = part.split_whitespace().collect();
        match words.as_slice() {
            ["wrote", count, "buffers", ..] => fields.push(("buffers", (*count).to_owned())),
            ["wrote", count, "SLRU", ..] => fields.push(("slru_buffers", (*count).to_owned())),
            [count, "WAL", "file(s)", "added"] => fields.push(("wal_files_added", (*count).to_owned())),
            [count, "removed"] => fields.push(("wal_files_removed", (*count).to_owned())),
            [count, "recycled"] => fields.push(("wal_files_recycled", (*count).to_owned())),
            _ => fields.extend(part.split_once('=').and_then(|(name, value)| assignment(name, value))),
        }
    }
    fields
}

/// `write=1.234 s`, `sync files=7`, `distance=100 kB`, `lsn=0/1`.
fn assignment(name: &str, value: &str) -> Option<(&'static str, String)> {
    let (name, unit) = match name {
        "write" => ("write_s", " s"),
        "sync" => ("sync_s", " s"),
        "total" => ("total_s", " s"),
        "longest" => ("longest_sync_s", " s"),
        "average" => ("average_sync_s", " s"),
        "sync files" => ("synced_files", ""),
        "distance" => ("distance_kib", " kB"),
        "estimate" => ("estimate_kib", " kB"),
        "lsn" => ("lsn", ""),
        "redo lsn" => ("redo_lsn", ""),
        _ => return None,
    };
    Some((name, value.strip_suffix(unit)?.to_owned()))
}

/// Why a checkpoint began: `time`, `wal`, `immediate force wait`…
fn cause(text: &str) -> Vec<(&'static str, String)> {
    let starts = [("checkpoint starting:", "checkpoint_starting"), ("restartpoint starting:", "restartpoint_starting")];
    let found = starts.iter().find_map(|(start, what)| Some((*what, text.strip_prefix(start)?.trim())));
    found.map_or_else(Vec::new, |(what, cause)| vec![("what", what.to_owned()), ("cause", cause.to_owned())])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn kept(message: &str) -> Option<Message> {
        keep(Line { severity: "LOG", message: message.to_owned(), stamp: None })
    }

    fn shown(message: &str) -> String {
        let fields = kept(message).unwrap().fields;
        fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn checkpoints_of_every_version() {
        let old = "checkpoint complete: wrote 3 buffers (0.0%); 0 WAL file(s) added, 1 removed, 2 recycled; \
                   write=0.203 s, sync=8.015 s, total=8.240 s; sync files=2, longest=7.9 s, average=4.0 s; \
                   distance=100 kB, estimate=200 kB";
        let wanted = "severity=LOG what=checkpoint_complete buffers=3 wal_files_added=0 wal_files_removed=1 \
                      wal_files_recycled=2 write_s=0.203 sync_s=8.015 total_s=8.240 synced_files=2 \
                      longest_sync_s=7.9 average_sync_s=4.0 distance_kib=100 estimate_kib=200";
        assert_eq!(shown(old), wanted);
        assert_eq!(shown(&format!("{old}; lsn=0/1A, redo lsn=0/19")), format!("{wanted} lsn=0/1A redo_lsn=0/19"),);
        let new = old.replace("(0.0%); 0 WAL", "(0.0%), wrote 4 SLRU buffers; 0 WAL");
        assert_eq!(shown(&new), wanted.replace("buffers=3", "buffers=3 slru_buffers=4"));
        assert_eq!(
            shown("restartpoint starting: immediate force wait"),
            "severity=LOG what=restartpoint_starting cause=immediate force wait"
        );
    }

    #[test]
    fn only_the_servers_own_words_are_kept() {
        for message in [
            "checkpoints are occurring too frequently (3 seconds apart)",
            "requested WAL segment 000000010000000000000003 has already been removed",
            "invalidating slot \"s1\" because its restart_lsn 0/3000000 exceeds max_slot_wal_keep_size",
            "terminating process 12 to release replication slot \"s1\"",
            "server process (PID 7) was terminated by signal 9: Killed",
        ] {
            assert!(kept(message).is_some(), "{message}");
        }
        for message in [
            "statement: SELECT 'checkpoint complete: x'",
            "duration: 3 ms  statement: UPDATE t SET a = 'secret'",
            "invalid input syntax for type integer: \"secret\"",
            "terminating process 12 by request",
            "",
        ] {
            assert_eq!(kept(message), None, "{message}");
        }
        assert!(kept(&format!("database system was {}", "ü".repeat(900))).unwrap().text.len() <= LONGEST);
    }

    proptest! {
        #[test]
        fn never_panics(rest in "(?s).{0,100}") {
            let _ = kept(&format!("checkpoint complete: {rest}"));
            let _ = kept(&format!("standby \"{rest}"));
        }
    }
}
