//! Damage of a flight recorder, kept to be told: each fault once, however often what it is in is read.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many are told one by one, of the rest only that there are more.
const TOLD: usize = 20;
/// So many are remembered as logged, in all recorders of this process together.
const LOGGED: usize = 1_000;

/// A recorder that a server writes to is opened every few seconds; its damage is logged the first time.
static KNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What was found damaged in one recorder, in the order in which it was found.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    /// How many there are, and how many bytes they took with them.
    count: u64,
    lost_bytes: u64,
    list: Vec<String>,
    /// Whether there are more than are listed.
    more: bool,
}

impl Faults {
    /// Keeps it, and logs what is new, as far as it is told one by one.
    pub(super) fn note(&self, fault: String) {
        let mut found = lock(&self.0);
        if found.list.contains(&fault) {
            return;
        }
        if found.list.len() < TOLD {
            warn_once(&format!("damaged: {fault}"));
            found.list.push(fault);
        } else if !std::mem::replace(&mut found.more, true) {
            warn_once("damaged: more places than are told here");
        }
    }

    /// Keeps one of the files, with what it took with it.
    pub(super) fn note_fault(&self, fault: &ftdc::Fault) {
        let known = lock(&self.0).list.len();
        self.note(fault.to_string());
        let mut found = lock(&self.0);
        // Those beyond what is listed are counted as often as they are met.
        if found.list.len() > known || found.more {
            (found.count, found.lost_bytes) = (found.count + 1, found.lost_bytes + fault.lost_bytes);
        }
    }

    /// How many faults of files there are, and how many bytes they took with them.
    pub(super) fn lost(&self) -> (u64, u64) {
        let found = lock(&self.0);
        (found.count, found.lost_bytes)
    }

    /// All of them, in words.
    pub(super) fn list(&self) -> Vec<String> {
        let found = lock(&self.0);
        let lost =
            found.list.iter().map(|fault| format!("a part of the flight recorder is damaged and left out: {fault}"));
        let more = found.more.then(|| "more of the flight recorder is damaged than is told here".to_owned());
        lost.chain(more).collect()
    }
}

/// Logs it, if it is new in this process.
pub(super) fn warn_once(text: &str) {
    if is_new(&mut lock(&KNOWN), text, LOGGED) {
        tracing::warn!("{text}");
    }
}

/// Whether it is not known yet and may be: of more than `most` nothing is said any more.
fn is_new(known: &mut BTreeSet<String>, fault: &str, most: usize) -> bool {
    known.len() < most && known.insert(fault.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_many_are_bounded() {
        let faults = Faults::default();
        assert!(faults.list().is_empty());
        for _ in 0..2 {
            for number in 0..TOLD {
                faults.note(format!("tests of faults, byte {number}"));
            }
        }
        assert_eq!(faults.list().len(), TOLD);
        faults.note("tests of faults, the end".to_owned());
        assert_eq!(faults.list().len(), TOLD + 1);
        assert!(faults.list().last().is_some_and(|last| last.contains("more")));
    }

    #[test]
    fn each_is_logged_once_and_no_more_than_can_be_remembered() {
        let mut known = BTreeSet::new();
        let new = ["a", "b", "a", "c"].map(|fault| is_new(&mut known, fault, 2));
        assert_eq!(new, [true, true, false, false]);
    }
}
