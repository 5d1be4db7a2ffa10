//! Which queue a wait belongs to. One table, matched whatever the version's spelling: `WALSync` (12–16), `WalSync`
//! (17, 18), `WALWriteLock` (12, a lock) and `wal_insert` (12) are all known. Names: PostgreSQL manual, wait events.
//! Which flavour of a commit's wait it is, [`CommitWait`](backwater_model::CommitWait) tells of a sample.

use backwater_model::{CARRIERS, canonical_wait, is_nap};

/// What one session waits for, as the server and the kernel say it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait<'a> {
    pub(super) backend_type: Option<&'a str>,
    pub(super) event: Option<&'a str>,
    pub(super) kernel: Option<&'a str>,
    /// Whether the server delays commits on purpose.
    pub(super) commit_delay: bool,
}

/// A queue, before the device's number is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `pg.commit`
    Commit,
    /// `pg.wal.buffers`
    WalBuffers,
    /// `pg.checkpoint`
    Checkpoint,
    /// `host.dirty@` the device of the data directory
    DataDirty,
}

/// Whose waits a line is about.
#[derive(Clone, Copy)]
enum Who {
    Anybody,
    /// Everybody but the processes that carry WAL and pages: they empty the queue.
    NotCarriers,
    Checkpointer,
}

/// What the kernel must say besides.
#[derive(Clone, Copy)]
enum Kernel {
    Anything,
    /// The process is held by, or queues behind, the page cache's dirty limit.
    DirtyWrite,
}

struct Line {
    /// Events as [`canonical_wait`] spells them; `*` at the end stands for any ending; empty means no wait event at all.
    events: &'static [&'static str],
    who: Who,
    kernel: Kernel,
    place: Place,
}

/// The first line that fits wins.
const TABLE: &[Line] = &[
    // WAL to disk, to the storage fleet (Aurora), to a synchronous standby: what a commit waits for.
    Line {
        events: &[
            "walsync",
            "walwrite",
            "walinitsync",
            "walinitwrite",
            "syncrep",
            "xactsync",
            "damrecordtxack",
            "commitdelay",
        ],
        who: Who::NotCarriers,
        kernel: Kernel::Anything,
        place: Place::Commit,
    },
    Line {
        events: &["walinsert", "walbufmapping"],
        who: Who::Anybody,
        kernel: Kernel::Anything,
        place: Place::WalBuffers,
    },
    // Writers of data files that the kernel pauses because too much is dirty.
    Line {
        events: &["datafile*", "buffile*", "slru*", "copyfile*", ""],
        who: Who::Anybody,
        kernel: Kernel::DirtyWrite,
        place: Place::DataDirty,
    },
    Line {
        events: &["datafilesync", "datafileimmediatesync", "slrusync", "slruflushsync"],
        who: Who::Checkpointer,
        kernel: Kernel::Anything,
        place: Place::Checkpoint,
    },
    Line {
        events: &["checkpointstart", "checkpointdone", "registersyncrequest"],
        who: Who::Anybody,
        kernel: Kernel::Anything,
        place: Place::Checkpoint,
    },
];

/// Of the sessions that wait for lightweight locks, roughly so many are asked about at a look.
const MOST_ON_LOCKS: usize = 64;

/// Which sessions the kernel is asked about: that is the dearest part of a look. Of one that sleeps on its latch, for another
/// process or a client, it has nothing to add. One that waits for a lightweight lock sleeps on a semaphore, and only whether
/// it really sleeps is worth asking: where there are many of them, they take turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    look: u32,
    /// One in so many of those that wait for lightweight locks.
    every: u32,
    on_locks: usize,
}

impl Turns {
    /// A new look. What the last one met says how many take turns.
    pub(super) fn next_look(&mut self) {
        let every = self.on_locks.div_ceil(MOST_ON_LOCKS).max(1);
        *self = Turns { look: self.look.wrapping_add(1), every: every.try_into().unwrap_or(u32::MAX), on_locks: 0 };
    }

    /// Whether the kernel is asked about a session in a wait of this class.
    pub(super) fn asks(&mut self, pid: i32, class: Option<&str>) -> bool {
        match class {
            Some("Activity" | "Client" | "Extension" | "IPC" | "Lock" | "Timeout") => false,
            Some("LWLock") => {
                self.on_locks += 1;
                pid.unsigned_abs().wrapping_add(self.look).is_multiple_of(self.every.max(1))
            }
            _ => true,
        }
    }
}

/// The queue this wait belongs to, where the waits tell.
pub(super) fn place(wait: Wait<'_>) -> Option<Place> {
    if is_delayed_commit(wait) {
        return Some(Place::Commit);
    }
    let event = wait.event.map(canonical_wait).unwrap_or_default();
    let event = event.as_str();
    let fits = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => event.starts_with(start),
        None => *pattern == event,
    };
    let line = TABLE.iter().find(|line| {
        line.events.iter().any(&fits)
            && who_fits(line.who, wait.backend_type)
            && match line.kernel {
                Kernel::Anything => true,
                Kernel::DirtyWrite => wait.kernel.is_some_and(is_dirty_write),
            }
    })?;
    Some(line.place)
}

/// Up to 18 a session in commit_delay has no wait event; it sleeps in the kernel for a set time.
fn is_delayed_commit(wait: Wait<'_>) -> bool {
    wait.commit_delay
        && wait.event.is_none()
        && wait.backend_type == Some("client backend")
        && wait.kernel.is_some_and(is_nap)
}

fn who_fits(who: Who, backend_type: Option<&str>) -> bool {
    match who {
        Who::Anybody => true,
        Who::NotCarriers => !backend_type.is_some_and(|kind| CARRIERS.contains(&kind)),
        Who::Checkpointer => backend_type == Some("checkpointer"),
    }
}

/// `balance_dirty_pages` is the pause itself; in `ext4_buffered_write_iter`, `xfs_file_buffered_write` and the like a
/// writer queues on the file's lock behind one that is paused.
fn is_dirty_write(function: &str) -> bool {
    function.starts_with("balance_dirty_pages")
        || function.ends_with("_buffered_write_iter")
        || function.ends_with("_file_buffered_write")
}

/// The queue's name; none where it is a device's and the device is not known.
pub(super) fn queue_name(place: Place, data_device: Option<&str>) -> Option<String> {
    match place {
        Place::Commit => Some("pg.commit".to_owned()),
        Place::WalBuffers => Some("pg.wal.buffers".to_owned()),
        Place::Checkpoint => Some("pg.checkpoint".to_owned()),
        Place::DataDirty => data_device.map(|device| format!("host.dirty@{device}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(backend: &str, event: &str, kernel: &str) -> Option<Place> {
        let some = |text| Some(text).filter(|text: &&str| !text.is_empty());
        place(Wait { backend_type: some(backend), event: some(event), kernel: some(kernel), commit_delay: false })
    }

    #[test]
    fn the_kernel_is_asked_of_all_that_it_can_tell_of_and_of_many_lock_waits_in_turn() {
        let mut turns = Turns::default();
        turns.next_look();
        assert!(turns.asks(7, None) && turns.asks(7, Some("IO")) && turns.asks(7, Some("LWLock")));
        assert!(["Lock", "Client", "IPC", "Timeout"].iter().all(|class| !turns.asks(7, Some(class))));
        let mut looks = |sessions: std::ops::Range<i32>| {
            let asked = (0..12).map(|_| {
                turns.next_look();
                sessions.clone().filter(|pid| turns.asks(*pid, Some("LWLock"))).collect::<Vec<_>>()
            });
            asked.collect::<Vec<_>>()
        };
        assert!(looks(1..65).iter().all(|asked| asked.len() == 64), "few enough to ask of all");
        let many = looks(1..193);
        assert!(many[1..].iter().all(|asked| asked.len() == 64));
        let often = |pid: i32| many[3..].iter().filter(|asked| asked.contains(&pid)).count();
        assert!((1..193).all(|pid| often(pid) == 3), "each at one look in three");
        assert_eq!(looks(1..65)[1].len(), 64, "few again");
    }

    #[test]
    fn every_spelling_of_a_commit_wait() {
        for event in [
            "WALSync",
            "WalSync",
            "WALWrite",
            "WalWrite",
            "WALWriteLock",
            "WALWrite",
            "SyncRep",
            "XactSync",
            "CommitDelay",
            "WALInitSync",
            "WalInitWrite",
        ] {
            assert_eq!(seen("client backend", event, ""), Some(Place::Commit), "{event}");
        }
        assert_eq!(seen("walwriter", "WALSync", ""), None);
        assert_eq!(seen("walreceiver", "WalWrite", ""), None);
        assert_eq!(seen("checkpointer", "WalSync", ""), None);
    }

    #[test]
    fn a_delayed_commit_sleeps_without_a_wait_event() {
        let sleeper = |kernel, commit_delay| {
            place(Wait { backend_type: Some("client backend"), event: None, kernel: Some(kernel), commit_delay })
        };
        for kernel in ["hrtimer_nanosleep", "do_select", "poll_schedule_timeout.constprop.0"] {
            assert_eq!(sleeper(kernel, true), Some(Place::Commit));
            assert_eq!(sleeper(kernel, false), None);
        }
        assert_eq!(sleeper("folio_wait_bit_common", true), None);
    }

    #[test]
    fn wal_buffers() {
        for event in ["wal_insert", "WALInsert", "WALBufMappingLock", "WALBufMapping"] {
            assert_eq!(seen("client backend", event, ""), Some(Place::WalBuffers), "{event}");
        }
    }

    #[test]
    fn the_kernel_tells_a_dirty_limit_from_a_slow_read() {
        for kernel in ["balance_dirty_pages", "ext4_buffered_write_iter", "xfs_file_buffered_write"] {
            assert_eq!(seen("client backend", "DataFileWrite", kernel), Some(Place::DataDirty));
            assert_eq!(seen("client backend", "DataFileExtend", kernel), Some(Place::DataDirty));
            assert_eq!(seen("client backend", "", kernel), Some(Place::DataDirty));
        }
        assert_eq!(seen("client backend", "DataFileWrite", "folio_wait_bit_common"), None);
        assert_eq!(seen("client backend", "DataFileRead", ""), None);
        assert_eq!(seen("client backend", "", ""), None);
        assert_eq!(seen("client backend", "BufferIO", "balance_dirty_pages"), None);
        assert_eq!(seen("client backend", "WALWrite", "balance_dirty_pages"), Some(Place::Commit));
    }

    #[test]
    fn checkpoints() {
        assert_eq!(seen("checkpointer", "DataFileSync", "folio_wait_bit_common"), Some(Place::Checkpoint));
        assert_eq!(seen("client backend", "DataFileSync", ""), None);
        assert_eq!(seen("client backend", "CheckpointDone", ""), Some(Place::Checkpoint));
        assert_eq!(seen("checkpointer", "CheckpointWriteDelay", ""), None);
    }

    #[test]
    fn a_device_queue_needs_the_device() {
        assert_eq!(queue_name(Place::DataDirty, Some("7:0")).as_deref(), Some("host.dirty@7:0"));
        assert_eq!(queue_name(Place::DataDirty, None), None);
        assert_eq!(queue_name(Place::Commit, None).as_deref(), Some("pg.commit"));
    }
}
