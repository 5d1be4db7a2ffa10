//! Connections that have not become sessions yet. There are only so many; where one more comes, the one that has said nothing
//! of itself for longest makes room, or a few thousand mute ones would keep everybody else out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// All of them.
#[derive(Debug)]
pub(super) struct Openings {
    places: Arc<Semaphore>,
    strangers: Mutex<Strangers>,
}

/// Those that have not said who they are, oldest first.
#[derive(Debug, Default)]
struct Strangers {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// One of them. Dropping it makes room.
#[derive(Debug)]
pub(super) struct Opening {
    openings: Arc<Openings>,
    number: u64,
    gives_way: Arc<Notify>,
    _place: OwnedSemaphorePermit,
}

impl Openings {
    pub(super) fn new(most: usize) -> Arc<Openings> {
        Arc::new(Openings { places: Arc::new(Semaphore::new(most)), strangers: Mutex::default() })
    }

    /// A place for one more. None only if the proxy is ending.
    pub(super) async fn begin(self: &Arc<Self>) -> Option<Opening> {
        let place = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                self.lock().evict_oldest();
                Arc::clone(&self.places).acquire_owned().await.ok()?
            }
        };
        let gives_way = Arc::<Notify>::default();
        let number = self.lock().add(Arc::clone(&gives_way));
        Some(Opening { openings: Arc::clone(self), number, gives_way, _place: place })
    }

    /// A panic elsewhere leaves the list whole: it is changed in single steps.
    fn lock(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Strangers {
    fn add(&mut self, one: Arc<Notify>) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, one);
        self.next
    }

    fn evict_oldest(&mut self) {
        if let Some((_, oldest)) = self.waiting.pop_first() {
            oldest.notify_one();
        }
    }
}

impl Opening {
    /// It has said who it is: from now on it need not make room.
    pub(super) fn said_who(&self) {
        self.openings.lock().waiting.remove(&self.number);
    }

    /// It has been told why it is refused, and only has time to hear it: it makes room again, and before those that came later.
    pub(super) fn leaves(&self) {
        self.openings.lock().waiting.insert(self.number, Arc::clone(&self.gives_way));
    }

    /// Until it must make room.
    pub(super) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.said_who();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn begun(openings: &Arc<Openings>) -> Opening {
        match poll(openings.begin()) {
            Poll::Ready(opening) => opening.unwrap(),
            Poll::Pending => panic!("no room"),
        }
    }

    #[test]
    fn who_has_been_mute_for_longest_makes_room() {
        let openings = Openings::new(3);
        let (known, oldest, younger) = (begun(&openings), begun(&openings), begun(&openings));
        known.said_who();
        let mut next = pin!(openings.begin());
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(poll(oldest.gives_way()).is_ready());
        assert!(poll(known.gives_way()).is_pending() && poll(younger.gives_way()).is_pending());
        drop(oldest);
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn who_is_refused_makes_room_again() {
        let openings = Openings::new(2);
        let (refused, mute) = (begun(&openings), begun(&openings));
        refused.said_who();
        refused.leaves();
        assert!(poll(openings.begin()).is_pending());
        assert!(poll(refused.gives_way()).is_ready() && poll(mute.gives_way()).is_pending());
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let openings = Openings::new(1);
        for _ in 0..3 {
            drop(begun(&openings));
        }
        assert!(openings.lock().waiting.is_empty());
    }
}
