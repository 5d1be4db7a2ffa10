//! Which socket is whose, as far as it was found, and whose is sought at a look.

use super::server::Session;
use backwater_gate::attach::Named;
use backwater_model::{Moment, Span};
use std::collections::{HashMap, HashSet};

/// When a socket that was not found is looked for again, and one that may not be paced is tried again.
const ASK_AGAIN: Span = Span::from_millis(10_000);

/// Which session: process id and begin.
pub(super) type Key = (i32, i64);

pub(super) fn looked_key(session: &Session) -> Key {
    (session.activity.pid, session.activity.began_us)
}

/// What cannot be done to a session now.
pub(super) struct Refused {
    pub(super) why: String,
    pub(super) at: Moment,
}

impl Refused {
    /// Whether it is tried again: what was so may have passed.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        now - self.at >= ASK_AGAIN
    }
}

/// What is known of a session's socket.
enum Known {
    Found(Named),
    /// It was sought in vain.
    Unfound(Refused),
    /// It was found, and is gone, though the server still tells of its session.
    Lost,
}

/// The sockets of sessions.
#[derive(Default)]
pub(super) struct Sockets {
    by_session: HashMap<Key, Known>,
}

impl Sockets {
    /// Forgets all other sessions.
    pub(super) fn retain(&mut self, here: &HashSet<Key>) {
        self.by_session.retain(|key, _| here.contains(key));
    }

    /// Whose is to be sought at this look: of those that are new all, and of those that were lost, or sought in vain a while ago, one:
    /// that may take a look at every process.
    pub(super) fn sought(&self, now: Moment, sessions: &[Key]) -> HashSet<Key> {
        let known = &self.by_session;
        let is_lost = |key: &&Key| matches!(known.get(*key), Some(Known::Lost));
        let is_due = |key: &&Key| matches!(known.get(*key), Some(Known::Unfound(refused)) if refused.is_due(now));
        let again = sessions.iter().find(is_lost).or_else(|| sessions.iter().find(is_due));
        let new = sessions.iter().filter(|key| !known.contains_key(*key));
        new.chain(again).copied().collect()
    }

    /// What came of seeking it.
    pub(super) fn put(&mut self, key: Key, found: Result<Named, Refused>) {
        self.by_session.insert(key, found.map_or_else(Known::Unfound, Known::Found));
    }

    /// It is gone.
    pub(super) fn lose(&mut self, key: Key) {
        self.by_session.insert(key, Known::Lost);
    }

    /// It, or why there is none; None where that is only to be sought.
    pub(super) fn of(&self, key: Key) -> Option<Result<&Named, &Refused>> {
        match self.by_session.get(&key)? {
            Known::Found(named) => Some(Ok(named)),
            Known::Unfound(refused) => Some(Err(refused)),
            Known::Lost => None,
        }
    }

    /// It, where it was found.
    pub(super) fn found(&self, key: Key) -> Option<&Named> {
        self.of(key)?.ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(second: i64) -> Moment {
        Moment(second * 1_000_000)
    }

    fn named() -> Named {
        let text = r#"{"socket":{"pid":7,"start_time":8,"inode":9,"cookie":10,"local":"10.0.0.7:5432",
                       "peer":"10.0.0.9:40000"},"title":"postgres: etl"}"#;
        serde_json::from_str(text).unwrap()
    }

    fn unfound(second: i64) -> Result<Named, Refused> {
        Err(Refused { why: "nobody has it".to_owned(), at: at(second) })
    }

    #[test]
    fn what_was_refused_is_tried_again_after_a_while() {
        let refused = Refused { why: "paced by somebody else".to_owned(), at: at(1) };
        let tried = |second: i64| refused.is_due(at(second));
        assert_eq!([1, 10, 11, 600].map(tried), [false, false, true, true]);
    }

    #[test]
    fn all_that_are_new_are_sought_and_of_the_others_one_a_look() {
        let mut sockets = Sockets::default();
        let keys: Vec<Key> = (0..5).map(|pid| (pid, 1)).collect();
        assert_eq!(sockets.sought(at(0), &keys).len(), 5);
        sockets.put(keys[0], Ok(named()));
        keys[1..].iter().for_each(|key| sockets.put(*key, unfound(0)));
        assert!(sockets.sought(at(9), &keys).is_empty());
        assert_eq!(sockets.sought(at(10), &keys), HashSet::from([keys[1]]));
        // In vain: it is the next one's turn.
        sockets.put(keys[1], unfound(10));
        assert_eq!(sockets.sought(at(11), &keys), HashSet::from([keys[2]]));
        let with_new = [&keys[..], &[(9, 1)]].concat();
        assert_eq!(sockets.sought(at(11), &with_new), HashSet::from([keys[2], (9, 1)]));
        sockets.retain(&HashSet::from([keys[0]]));
        assert!(sockets.found(keys[0]).is_some() && sockets.of(keys[1]).is_none());
    }

    #[test]
    fn one_that_is_lost_is_sought_at_once_before_those_that_were_sought_in_vain() {
        let mut sockets = Sockets::default();
        let keys = [(1, 1), (2, 1), (3, 1)];
        sockets.put(keys[0], unfound(0));
        keys[1..].iter().for_each(|key| sockets.put(*key, Ok(named())));
        assert!(sockets.sought(at(5), &keys).is_empty());
        keys[1..].iter().for_each(|key| sockets.lose(*key));
        assert!(keys[1..].iter().all(|key| sockets.of(*key).is_none()));
        assert_eq!(sockets.sought(at(20), &keys), HashSet::from([keys[1]]), "one, however many are lost");
        sockets.put(keys[1], Ok(named()));
        assert_eq!(sockets.sought(at(20), &keys), HashSet::from([keys[2]]));
        // One whose connection is not there at all is not sought at every look.
        sockets.put(keys[2], unfound(20));
        assert_eq!(sockets.sought(at(20), &keys), HashSet::from([keys[0]]));
        sockets.put(keys[0], unfound(20));
        assert!(sockets.sought(at(29), &keys).is_empty());
        assert_eq!(sockets.sought(at(30), &keys).len(), 1);
    }
}
