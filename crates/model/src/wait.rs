//! What a sampled process waits for, in words that hold from PostgreSQL 12 to 18, on RDS and on Aurora: the flavours of
//! a commit's wait, and what the processes that carry WAL and pages are doing. Names: PostgreSQL manual, wait events;
//! Amazon Aurora's from its own manual.

use crate::Sample;

/// Backend types of the processes that carry WAL and pages. They are sampled at every look, whatever they do, and are
/// nobody's session: never to be counted as active, nor in shares of session time.
pub const CARRIERS: [&str; 8] =
    ["walsender", "walreceiver", "startup", "walwriter", "checkpointer", "background writer", "io worker", "archiver"];

/// A wait event's name in one spelling: lower case, without underscores, and without the `Lock` that 12 appends to its
/// locks. `WALSync` (12 to 16) and `WalSync` (17, 18), `WALWriteLock` (12) and `WALWrite` become the same.
pub fn canonical_wait(event: &str) -> String {
    let mut name: String = event.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    if name.ends_with("lock") && name.starts_with("wal") {
        name.truncate(name.len() - 4);
    }
    name
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommitWait {
    /// WAL is being written to the page cache, or a new segment is being filled.
    WalWrite,
    /// WAL is being synced to its device.
    WalSync,
    /// Another session writes and syncs for this one too (the lock WALWrite).
    GroupCommit,
    /// A synchronous standby has not answered.
    SynchronousStandby,
    /// Storage beyond a network has not answered (Aurora).
    RemoteStorage,
    /// commit_delay: the session waits for others to join.
    CommitDelay,
}

impl CommitWait {
    /// Every flavour.
    pub const ALL: [CommitWait; 6] = [
        CommitWait::WalWrite,
        CommitWait::WalSync,
        CommitWait::GroupCommit,
        CommitWait::SynchronousStandby,
        CommitWait::RemoteStorage,
        CommitWait::CommitDelay,
    ];

    /// The flavour of a wait of this class and event, as the server spells them; none where it is no commit's.
    pub fn of_event(class: Option<&str>, event: &str) -> Option<CommitWait> {
        let lock = class == Some("LWLock") || event.ends_with("Lock");
        match canonical_wait(event).as_str() {
            "walwrite" if lock => Some(CommitWait::GroupCommit),
            "walwrite" | "walinitwrite" => Some(CommitWait::WalWrite),
            "walsync" | "walinitsync" => Some(CommitWait::WalSync),
            "syncrep" => Some(CommitWait::SynchronousStandby),
            "xactsync" | "damrecordtxack" => Some(CommitWait::RemoteStorage),
            "commitdelay" => Some(CommitWait::CommitDelay),
            _ => None,
        }
    }

    /// The flavour of a session's wait; none for a process that carries WAL itself, and for any other wait. A session in
    /// `pg.commit` without a wait event is in commit_delay: no release from 12 to 18 has an event for that.
    pub fn of(sample: &Sample) -> Option<CommitWait> {
        if sample.is_carrier() {
            return None;
        }
        match sample.wait_event.as_deref() {
            Some(event) => CommitWait::of_event(sample.wait_event_type.as_deref(), event),
            None => (sample.queue.as_deref() == Some("pg.commit")).then_some(CommitWait::CommitDelay),
        }
    }

    /// Its name: `wal-sync`, `group-commit`…
    pub fn name(self) -> &'static str {
        match self {
            CommitWait::WalWrite => "wal-write",
            CommitWait::WalSync => "wal-sync",
            CommitWait::GroupCommit => "group-commit",
            CommitWait::SynchronousStandby => "synchronous-standby",
            CommitWait::RemoteStorage => "remote-storage",
            CommitWait::CommitDelay => "commit-delay",
        }
    }
}

/// What a process that carries WAL or pages does at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doing {
    /// It computes: no wait event, and the kernel does not see it asleep.
    Computing,
    /// It reads, writes or syncs a file, or sleeps in the kernel over one.
    Storing,
    /// It may not go on: paused, in conflict with a query, delayed on purpose, held by a lock or by its peer.
    Held,
    /// It has nothing to do, or waits for its peer. A walsender says the same when its socket is full: TCP tells which.
    Waiting,
}

impl Doing {
    /// Whether it has nothing to do, is held, or works; none for a sample of another process.
    pub fn of(sample: &Sample) -> Option<Doing> {
        if !sample.is_carrier() {
            return None;
        }
        let event = sample.wait_event.as_deref().map(canonical_wait).unwrap_or_default();
        Some(match sample.wait_event_type.as_deref() {
            // 12 does not say what a startup process waits for that a query or a pause holds up: it only sleeps.
            None if sample.backend_type.as_deref() == Some("startup") && naps(sample) => Doing::Held,
            None if sample.kernel_state.is_some_and(|state| matches!(state, 'D' | 'S')) => Doing::Storing,
            None => Doing::Computing,
            Some("IO") => Doing::Storing,
            Some("Activity") => Doing::Waiting,
            _ if WAITING.contains(&event.as_str()) => Doing::Waiting,
            // A checkpoint that keeps its pace works as it was told to.
            _ if event == "checkpointwritedelay" => Doing::Waiting,
            _ => Doing::Held,
        })
    }
}

/// Waits for a peer or for WAL in classes other than Activity.
const WAITING: [&str; 4] =
    ["recoveryretrieveretryinterval", "walreceiverwaitstart", "walsenderwaitforwal", "archivecommand"];

/// Whether the process sleeps for a set time (nanosleep, or select as up to 15).
fn naps(sample: &Sample) -> bool {
    sample.kernel_state == Some('S') && sample.kernel_wait.as_deref().is_some_and(is_nap)
}

/// Whether a kernel function is one that a process sleeps in for a set time: pg_usleep is nanosleep since 16, select before.
pub fn is_nap(function: &str) -> bool {
    function.contains("nanosleep")
        || function.starts_with("poll_schedule_timeout")
        || function == "do_select"
        || function == "core_sys_select"
}

impl Sample {
    /// Whether this is one of the processes that carry WAL and pages ([`CARRIERS`]), which are nobody's session.
    pub fn is_carrier(&self) -> bool {
        self.backend_type.as_deref().is_some_and(|kind| CARRIERS.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: &str, wait: Option<(&str, &str)>, kernel: Option<(&str, char)>) -> Sample {
        Sample {
            backend_type: Some(kind.into()),
            wait_event_type: wait.map(|(class, _)| class.into()),
            wait_event: wait.map(|(_, event)| event.into()),
            kernel_wait: kernel.map(|(function, _)| function.into()),
            kernel_state: kernel.map(|(_, state)| state),
            ..Sample::default()
        }
    }

    #[test]
    fn every_spelling_of_a_commits_wait_has_its_flavour() {
        let cases = [
            ("IO", "WALWrite", CommitWait::WalWrite),
            ("IO", "WalWrite", CommitWait::WalWrite),
            ("IO", "WALInitWrite", CommitWait::WalWrite),
            ("IO", "WALSync", CommitWait::WalSync),
            ("IO", "WalSync", CommitWait::WalSync),
            ("IO", "WalInitSync", CommitWait::WalSync),
            ("LWLock", "WALWriteLock", CommitWait::GroupCommit),
            ("LWLock", "WALWrite", CommitWait::GroupCommit),
            ("IPC", "SyncRep", CommitWait::SynchronousStandby),
            ("IO", "XactSync", CommitWait::RemoteStorage),
            ("IPC", "DamRecordTxAck", CommitWait::RemoteStorage),
            ("Timeout", "CommitDelay", CommitWait::CommitDelay),
        ];
        for (class, event, flavour) in cases {
            assert_eq!(CommitWait::of(&sample("client backend", Some((class, event)), None)), Some(flavour), "{event}");
            assert_eq!(CommitWait::of(&sample("walwriter", Some((class, event)), None)), None);
        }
        assert_eq!(CommitWait::of(&sample("client backend", Some(("IO", "DataFileRead")), None)), None);
        assert_eq!(CommitWait::of(&sample("client backend", None, None)), None);
        let delayed = Sample { queue: Some("pg.commit".into()), ..sample("client backend", None, None) };
        assert_eq!(CommitWait::of(&delayed), Some(CommitWait::CommitDelay));
        assert!(CommitWait::ALL.iter().all(|flavour| !flavour.name().is_empty()));
    }

    #[test]
    fn what_a_stage_does_follows_from_its_wait() {
        let cases = [
            ("startup", Some(("Activity", "RecoveryWalStream")), None, Doing::Waiting),
            ("startup", Some(("Activity", "RecoveryWalAll")), None, Doing::Waiting),
            ("startup", Some(("Timeout", "RecoveryRetrieveRetryInterval")), None, Doing::Waiting),
            ("startup", Some(("IPC", "RecoveryPause")), None, Doing::Held),
            ("startup", Some(("Timeout", "RecoveryPause")), None, Doing::Held),
            ("startup", Some(("IPC", "RecoveryConflictSnapshot")), None, Doing::Held),
            ("startup", Some(("Lock", "relation")), None, Doing::Held),
            ("startup", Some(("BufferPin", "BufferPin")), None, Doing::Held),
            ("startup", Some(("Timeout", "RecoveryApplyDelay")), None, Doing::Held),
            ("startup", Some(("IO", "DataFileRead")), None, Doing::Storing),
            ("startup", None, Some(("do_select", 'S')), Doing::Held),
            ("startup", None, Some(("folio_wait_bit_common", 'D')), Doing::Storing),
            ("startup", None, None, Doing::Computing),
            ("walsender", Some(("Activity", "WalSenderMain")), None, Doing::Waiting),
            ("walsender", Some(("Client", "WalSenderWaitForWAL")), None, Doing::Waiting),
            ("walsender", Some(("Client", "WalSenderWriteData")), None, Doing::Held),
            ("walreceiver", Some(("Activity", "WalReceiverMain")), None, Doing::Waiting),
            ("walreceiver", Some(("IO", "WALSync")), None, Doing::Storing),
            ("checkpointer", Some(("Timeout", "CheckpointWriteDelay")), None, Doing::Waiting),
            ("walwriter", Some(("LWLock", "WALWrite")), None, Doing::Held),
            ("io worker", Some(("Activity", "IoWorkerMain")), None, Doing::Waiting),
        ];
        for (kind, wait, kernel, doing) in cases {
            assert_eq!(Doing::of(&sample(kind, wait, kernel)), Some(doing), "{kind} {wait:?} {kernel:?}");
        }
        let running = Sample { kernel_state: Some('R'), ..sample("startup", None, None) };
        assert_eq!(Doing::of(&running), Some(Doing::Computing));
        assert_eq!(Doing::of(&sample("client backend", None, None)), None);
    }
}
