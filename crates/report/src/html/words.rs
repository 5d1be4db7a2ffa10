//! What people call each queue, what it is, and what happens at its limit.

/// The words of one kind of queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The queue's name, up to its `@`.
    pub(super) kind: &'static str,
    /// What people call it.
    pub(super) title: &'static str,
    /// What it is.
    pub(super) about: &'static str,
    /// What happens at its limit.
    pub(super) at_limit: &'static str,
    /// How far along its row it stands.
    pub(super) step: usize,
    /// Kind of the queue into which it flows.
    pub(super) next: Option<&'static str>,
}

const KINDS: [Words; 11] = [
    Words {
        kind: "pg.commit",
        title: "Commits",
        about: "Sessions that wait for their commit to be acknowledged.",
        at_limit: "It has no limit: every session in it is a client that waits.",
        step: 0,
        next: Some("pg.wal.buffers"),
    },
    Words {
        kind: "pg.wal.buffers",
        title: "WAL buffers",
        about: "WAL that was inserted and not yet written: insert position minus write position.",
        at_limit: "At wal_buffers backends write WAL themselves before they can go on.",
        step: 1,
        next: Some("pg.wal.local_flush"),
    },
    Words {
        kind: "pg.wal.local_flush",
        title: "WAL to flush",
        about: "WAL that was written and not yet synced: write position minus flush position.",
        at_limit: "It has no limit of its own: commits wait until what is theirs is synced.",
        step: 2,
        next: None,
    },
    Words {
        kind: "pg.checkpoint",
        title: "Since the checkpoint",
        about: "WAL since the last checkpoint's redo point.",
        at_limit: "At max_wal_size ÷ (1 + checkpoint_completion_target) a checkpoint is forced, however much it has to write.",
        step: 1,
        next: Some("host.dirty"),
    },
    Words {
        kind: "host.dirty",
        title: "Dirty pages",
        about: "Page cache that waits to be written, or is being written, to the device.",
        at_limit: "Half-way between the soft and the hard limit the kernel begins to pause whoever writes; at the hard limit it holds them.",
        step: 2,
        next: Some("host.disk"),
    },
    Words {
        kind: "host.disk",
        title: "Device",
        about: "Requests in the device. Those held back by a control group's cap never show here.",
        at_limit: "At nr_requests whoever has the next request waits.",
        step: 3,
        next: None,
    },
    Words {
        kind: "pg.wal.send",
        title: "WAL to send",
        about: "WAL that the primary has flushed and not yet sent. A slow standby's backlog stands here too.",
        at_limit: "What bounds it is how much WAL is kept: see the WAL that is kept for the standby.",
        step: 3,
        next: Some("pg.wal.standby_write"),
    },
    Words {
        kind: "pg.wal.standby_write",
        title: "On its way",
        about: "WAL that was sent and not yet written by the standby: in buffers of both hosts and between them.",
        at_limit: "When the buffers are full the walsender waits, and the backlog grows before it.",
        step: 4,
        next: Some("pg.wal.standby_flush"),
    },
    Words {
        kind: "pg.wal.standby_flush",
        title: "Standby to flush",
        about: "WAL that the standby has written and not yet synced.",
        at_limit: "It has no limit of its own: synchronous commits wait for it.",
        step: 5,
        next: Some("pg.wal.standby_replay"),
    },
    Words {
        kind: "pg.wal.standby_replay",
        title: "To replay",
        about: "WAL that the standby has synced and not yet replayed: what its readers do not see.",
        at_limit: "It has no limit but the standby's disk.",
        step: 6,
        next: None,
    },
    Words {
        kind: "pg.wal.retained",
        title: "WAL kept",
        about: "WAL that the primary keeps because the standby, or a slot, still needs it.",
        at_limit: "Beyond it the next checkpoint removes what the standby needs, and it must be built anew; without a limit the disk fills.",
        step: 2,
        next: None,
    },
];

/// The words of a queue's name.
pub(super) fn of(name: &str) -> Option<&'static Words> {
    let kind = name.split('@').next().unwrap_or(name);
    KINDS.iter().find(|words| words.kind == kind)
}

/// The part of a queue's name behind its `@`.
pub(super) fn place(name: &str) -> Option<&str> {
    name.split_once('@').map(|(_, place)| place)
}
