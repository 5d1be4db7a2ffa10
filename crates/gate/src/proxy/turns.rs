//! `max_active`: how many statements of a pool run at once. The next one waits in front of the server, first come, first
//! served, where it costs nothing; inside a transaction nobody waits, since it may hold locks that others need.

use super::live::Live;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The turns of one pool.
#[derive(Debug, Default)]
pub(super) struct Turns {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    most: Option<u32>,
    active: u32,
    waiting: VecDeque<Arc<Live>>,
}

/// A turn that is held. Dropping it gives it to the next.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
}

impl Turns {
    /// Sets the limit; who may go now goes.
    pub(super) fn limit(&self, most: Option<u32>) {
        let mut inner = self.lock();
        inner.most = most;
        inner.grant();
    }

    /// A turn if there is one now; otherwise the session waits, and is called when its turn has come.
    pub(super) fn ask(self: &Arc<Self>, session: &Arc<Live>) -> Option<Turn> {
        let mut inner = self.lock();
        if inner.has_room() && inner.waiting.is_empty() {
            inner.active += 1;
            return Some(self.held());
        }
        inner.waiting.push_back(Arc::clone(session));
        None
    }

    /// A turn whatever the limit says: for who may not wait, and for who was granted one.
    pub(super) fn take(self: &Arc<Self>) -> Turn {
        self.lock().active += 1;
        self.held()
    }

    /// The turn that was granted to a session while it waited.
    pub(super) fn held(self: &Arc<Self>) -> Turn {
        Turn { turns: Arc::clone(self) }
    }

    /// A session waits no longer. A turn that it was granted meanwhile goes to the next.
    pub(super) fn leave(&self, session: &Arc<Live>) {
        let mut inner = self.lock();
        inner.waiting.retain(|other| !Arc::ptr_eq(other, session));
        if session.take_grant() {
            inner.active = inner.active.saturating_sub(1);
        }
        inner.grant();
    }

    /// Statements that run, and statements that wait.
    pub(super) fn counts(&self) -> (u32, usize) {
        let inner = self.lock();
        (inner.active, inner.waiting.len())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn has_room(&self) -> bool {
        self.most.is_none_or(|most| self.active < most)
    }

    fn grant(&mut self) {
        while self.has_room()
            && let Some(next) = self.waiting.pop_front()
        {
            self.active += 1;
            next.grant();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.turns.lock();
        inner.active = inner.active.saturating_sub(1);
        inner.grant();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::live::Identity;
    use super::super::pools::LivePool;
    use super::*;
    use backwater_flow::{PoolId, SessionId};
    use proptest::prelude::*;

    fn session(id: u64) -> Arc<Live> {
        let identity = Identity::of_test(SessionId(id));
        Live::new(identity, LivePool::new("p", PoolId(0)), false)
    }

    #[test]
    fn who_came_first_goes_first() {
        let turns = Arc::new(Turns::default());
        turns.limit(Some(1));
        let (a, b, c) = (session(1), session(2), session(3));
        let first = turns.ask(&a).unwrap();
        assert!(turns.ask(&b).is_none() && turns.ask(&c).is_none());
        assert_eq!(turns.counts(), (1, 2));
        drop(first);
        assert!(b.take_grant() && !c.take_grant());
        let second = turns.held();
        turns.limit(Some(2));
        assert!(c.take_grant());
        let third = turns.held();
        drop((second, third));
        assert_eq!(turns.counts(), (0, 0));
    }

    #[test]
    fn who_leaves_takes_no_turn_along() {
        let turns = Arc::new(Turns::default());
        turns.limit(Some(1));
        let (a, b, c) = (session(1), session(2), session(3));
        let first = turns.ask(&a).unwrap();
        assert!(turns.ask(&b).is_none() && turns.ask(&c).is_none());
        drop(first);
        turns.leave(&b);
        assert!(c.take_grant(), "b was granted and left: it is c's turn");
        drop(turns.held());
        assert_eq!(turns.counts(), (0, 0));
    }

    proptest! {
        /// Whatever comes and goes, no more run than may, and none waits while there is room.
        #[test]
        fn never_more_than_may_and_never_a_turn_unused(most in 1..4u32, steps in prop::collection::vec((0..6usize, 0..3u8), 1..200)) {
            let turns = Arc::new(Turns::default());
            turns.limit(Some(most));
            let sessions: Vec<_> = (0..6).map(session).collect();
            let (mut held, mut waiting): (Vec<Option<Turn>>, Vec<bool>) = ((0..6).map(|_| None).collect(), vec![false; 6]);
            for (who, what) in steps {
                match what {
                    0 if held[who].is_none() && !waiting[who] => {
                        held[who] = turns.ask(&sessions[who]);
                        waiting[who] = held[who].is_none();
                    }
                    1 => held[who] = None,
                    _ if waiting[who] => { turns.leave(&sessions[who]); waiting[who] = false }
                    _ => {}
                }
                for at in 0..6 {
                    if waiting[at] && sessions[at].take_grant() { held[at] = Some(turns.held()); waiting[at] = false }
                }
                let running = held.iter().flatten().count() as u32;
                let waits = waiting.iter().filter(|waits| **waits).count();
                prop_assert!(running <= most && (waits == 0 || running == most));
                prop_assert_eq!(turns.counts(), (running, waits));
            }
        }
    }
}
