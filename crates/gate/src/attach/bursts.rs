//! How much at once the sockets send that are paced: where it is wanted, no more than their rates give. That is a setting of the
//! server's network namespace, in force from the first socket that is paced there until nothing is paced any more, and noted in the
//! journal as everything else.

use backwater_socket::{SMALL_BURSTS, Socket};
use backwater_undo::{Change, Entry, Journal, UndoError};
use rustix::thread::CapabilitySet;
use std::collections::{HashMap, HashSet};

#[cfg(test)]
#[path = "../../../undo/src/connected_for_tests.rs"]
mod connected_for_tests;

/// What is done about bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bursts {
    /// Nothing: only sockets are changed.
    AsTheyAre,
    /// They are made small, which every connection of the namespace may feel.
    Small,
}

impl Bursts {
    /// What that takes, beside root: entering a namespace, and changing one of another user namespace.
    pub(super) fn rights(self) -> CapabilitySet {
        match self {
            Bursts::AsTheyAre => CapabilitySet::empty(),
            Bursts::Small => CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN,
        }
    }
}

/// The settings that are changed, and where they cannot be.
#[derive(Debug)]
pub(super) struct Namespaces {
    wanted: Bursts,
    /// By the namespace's cookie: the note of what was set before.
    noted: HashMap<u64, Entry>,
    /// Why some cannot be, as it was told.
    told: HashSet<String>,
}

impl Namespaces {
    pub(super) fn new(wanted: Bursts) -> Namespaces {
        Namespaces { wanted, noted: HashMap::new(), told: HashSet::new() }
    }

    /// How many settings are changed.
    pub(super) fn changed(&self) -> usize {
        self.noted.len()
    }

    /// This socket is paced. Where nothing can be done about its bursts it is paced all the same, and that is told once.
    pub(super) fn see_to(&mut self, journal: &Journal, socket: &Socket) {
        if self.wanted == Bursts::Small
            && let Err(why) = self.make_small(journal, socket)
            && self.told.insert(why.clone())
        {
            let pid = socket.pid;
            tracing::warn!(
                "cannot set net.ipv4.tcp_tso_rtt_log for process {pid}, whose bursts stay as they are: {why}"
            );
        }
    }

    /// Where it is small already, that may be another run's doing, which ends: it is looked at again with the next socket.
    fn make_small(&mut self, journal: &Journal, socket: &Socket) -> Result<(), String> {
        let namespace = match socket.namespace() {
            Ok(namespace) => namespace.filter(|namespace| !self.noted.contains_key(&namespace.cookie)),
            // Nothing is sent by it any more.
            Err(error) if error.is_gone() => None,
            Err(error) => return Err(error.to_string()),
        };
        let Some(namespace) = namespace else { return Ok(()) };
        let before = namespace.tso_rtt_log().map_err(|error| error.to_string())?;
        let Some(before) = before.filter(|before| *before != SMALL_BURSTS) else { return Ok(()) };
        let noted = journal.note(Change::SmallBursts { namespace, before }).map_err(|error| error.to_string())?;
        let done = namespace.set_tso_rtt_log(SMALL_BURSTS).map_err(|error| error.to_string());
        match &done {
            Ok(()) => drop(self.noted.insert(namespace.cookie, noted)),
            // A note of what was not changed is harmless, and stays for the end where it must.
            Err(_) => drop(journal.undo(noted)),
        }
        done
    }

    /// Nothing is paced any more. What cannot be put back stays known, for the next time.
    pub(super) fn let_go(&mut self, journal: &Journal) -> Result<(), UndoError> {
        let noted: Vec<Entry> = self.noted.values().copied().collect();
        let undone = journal.undo_all(&noted);
        self.noted.retain(|_, noted| journal.is_open(*noted));
        undone
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::connected_for_tests::Connected;
    use super::*;

    #[test]
    fn bursts_are_small_from_the_first_socket_on_until_all_are_let_go() {
        let Some(there) = Connected::make("bursts_are_small_from_the_first_socket_on") else { return };
        let (socket, before) = (&there.socket, there.before);
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin(dir.path(), "attach").unwrap();

        let mut untouched = Namespaces::new(Bursts::AsTheyAre);
        untouched.see_to(&journal, socket);
        assert_eq!((there.now(), untouched.changed()), (Some(before), 0));

        let mut small = Namespaces::new(Bursts::Small);
        for _ in 0..2 {
            small.see_to(&journal, socket);
            small.see_to(&journal, socket);
            assert_eq!((there.now(), small.changed()), (Some(SMALL_BURSTS), 1));
            small.let_go(&journal).unwrap();
            assert_eq!((there.now(), small.changed()), (Some(before), 0));
        }

        // Another run has made them small: when that ends, the next socket is seen to.
        there.namespace.set_tso_rtt_log(SMALL_BURSTS).unwrap();
        small.see_to(&journal, socket);
        assert_eq!(small.changed(), 0);
        there.namespace.set_tso_rtt_log(before).unwrap();
        small.see_to(&journal, socket);
        assert_eq!((there.now(), small.changed()), (Some(SMALL_BURSTS), 1));
        journal.finish().unwrap();
        assert_eq!(there.now(), Some(before));
    }
}
