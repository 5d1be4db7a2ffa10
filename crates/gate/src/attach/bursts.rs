//! How much at once the sockets send that are paced: where it is wanted, no more than their rates give. That is a setting of the
//! server's network namespace, in force while anything there is paced, and noted in the journal as everything else.

use backwater_socket::{SMALL_BURSTS, namespace_of, set_tso_rtt_log, tso_rtt_log};
use backwater_undo::{Change, Entry, Journal, UndoError};
use rustix::thread::CapabilitySet;
use std::collections::HashMap;

/// What is done about bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bursts {
    /// Nothing: only sockets are changed.
    AsTheyAre,
    /// They are made small, which every connection of the namespace feels.
    Small,
}

impl Bursts {
    /// What that takes, beside root: entering a namespace, and its settings where the guardian is not root.
    pub(super) fn rights(self) -> CapabilitySet {
        match self {
            Bursts::AsTheyAre => CapabilitySet::empty(),
            Bursts::Small => CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN,
        }
    }
}

/// The namespaces of what is paced.
#[derive(Debug)]
pub(super) struct Namespaces {
    wanted: Bursts,
    /// By the inode: those that were seen to, each with the note of what was set before, where that was another.
    seen_to: HashMap<u64, Option<Entry>>,
}

impl Namespaces {
    pub(super) fn new(wanted: Bursts) -> Namespaces {
        Namespaces { wanted, seen_to: HashMap::new() }
    }

    /// How many settings are changed.
    pub(super) fn changed(&self) -> usize {
        self.seen_to.values().flatten().count()
    }

    /// A socket of this process is paced. Where nothing can be done about bursts it is paced all the same, and that is told once.
    pub(super) fn see_to(&mut self, journal: &Journal, pid: i32) {
        if self.wanted == Bursts::AsTheyAre {
            return;
        }
        // Of a process that has ended meanwhile nothing is paced.
        let Ok(namespace) = namespace_of(pid) else { return };
        self.seen_to.entry(namespace).or_insert_with(|| match make_small(journal, namespace) {
            Ok(noted) => noted,
            Err(why) => {
                tracing::warn!(
                    "cannot set net.ipv4.tcp_tso_rtt_log for process {pid}; its bursts stay as they are: {why}"
                );
                None
            }
        });
    }

    /// Nothing is paced any more. What cannot be put back stays known, for the next time.
    pub(super) fn let_go(&mut self, journal: &Journal) -> Result<(), UndoError> {
        let noted: Vec<Entry> = self.seen_to.values().copied().flatten().collect();
        let undone = journal.undo_all(&noted);
        self.seen_to.retain(|_, noted| noted.is_some_and(|noted| journal.is_open(noted)));
        undone
    }
}

/// The note of what was set before; None where there is nothing to change.
fn make_small(journal: &Journal, namespace: u64) -> Result<Option<Entry>, String> {
    let before = tso_rtt_log(namespace).map_err(|error| error.to_string())?;
    let Some(before) = before.filter(|before| *before != SMALL_BURSTS) else { return Ok(None) };
    let noted = journal.note(Change::SmallBursts { namespace, before }).map_err(|error| error.to_string())?;
    match set_tso_rtt_log(namespace, SMALL_BURSTS) {
        Ok(()) => Ok(Some(noted)),
        Err(error) => {
            journal.undo(noted).map_err(|error| error.to_string())?;
            Err(error.to_string())
        }
    }
}
