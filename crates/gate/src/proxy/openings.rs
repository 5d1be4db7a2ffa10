//! Connections that have not become sessions yet. There are only so many; where one more comes, the one that has said nothing
//! of itself for longest makes room, or a few thousand mute ones would keep everybody else out. Some hold a place of the proxy's
//! already, of which there may be far fewer: where those are taken, the oldest of these that is mute makes room too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Who has been answered gets so long to go on, however many others come: a client that is there needs a round trip.
const MUTE_AFTER: Duration = Duration::from_secs(1);
/// Whoever is to make room is soon gone. So often it is looked whether there is room, and so long after each look.
const LOOKS: u32 = 10;
const LOOK_AFTER: Duration = Duration::from_millis(5);

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
    /// Those of them that hold a place of the proxy's, and since when it is for them to speak.
    placed: BTreeMap<u64, Instant>,
}

/// One of them. Dropping it makes room.
#[derive(Debug)]
pub(super) struct Opening {
    openings: Arc<Openings>,
    number: u64,
    gives_way: Arc<Notify>,
    /// Since when it is for the client to speak; None while it is for the server.
    clients_since: Mutex<Option<Instant>>,
    _place: OwnedSemaphorePermit,
}

/// It is the server's turn, for as long as this is there: how long that may take is no matter of the client's.
pub(super) struct ServersTurn<'o>(&'o Opening);

impl Drop for ServersTurn<'_> {
    fn drop(&mut self) {
        *self.0.lock_turn() = Some(Instant::now());
    }
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
        let clients_since = Mutex::new(Some(Instant::now()));
        Some(Opening { openings: Arc::clone(self), number, gives_way, clients_since, _place: place })
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
        if let Some((number, oldest)) = self.waiting.pop_first() {
            self.placed.remove(&number);
            oldest.notify_one();
        }
    }

    /// Has the oldest of those go that hold a place of the proxy's and have said nothing for so long. False if there is none.
    fn evict_placed(&mut self, mute_for: Duration) -> bool {
        let mute = self.placed.iter().find(|(_, since)| since.elapsed() >= mute_for).map(|(number, _)| *number);
        let Some(oldest) = mute.and_then(|number| self.forget(number)) else { return false };
        oldest.notify_one();
        true
    }

    fn forget(&mut self, number: u64) -> Option<Arc<Notify>> {
        self.placed.remove(&number);
        self.waiting.remove(&number)
    }
}

impl Opening {
    /// It has said who it is: from now on it need not make room.
    pub(super) fn said_who(&self) {
        self.openings.lock().forget(self.number);
    }

    /// It is for the server to speak.
    pub(super) fn awaits_server(&self) -> ServersTurn<'_> {
        *self.lock_turn() = None;
        ServersTurn(self)
    }

    /// Comes to an end only where it was for the client to speak for so long, and it has not said who it is.
    pub(super) async fn is_mute(&self, within: Duration) {
        loop {
            let for_so_long = self.lock_turn().map(|since| since.elapsed()).unwrap_or_default();
            let left = within.saturating_sub(for_so_long);
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left).await;
        }
        if !self.openings.lock().waiting.contains_key(&self.number) {
            std::future::pending::<()>().await;
        }
    }

    fn lock_turn(&self) -> MutexGuard<'_, Option<Instant>> {
        self.clients_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it holds a place of the proxy's. It has its answer: from now on it makes room for who needs that place, until it has
    /// said who it is.
    pub(super) fn holds_place(&self, holds: bool) {
        let mut strangers = self.openings.lock();
        if holds {
            strangers.placed.entry(self.number).or_insert_with(Instant::now);
        } else {
            strangers.placed.remove(&self.number);
        }
    }

    /// A place of the proxy's. Where there is none, one that holds one and is mute makes room, and it is waited for a moment.
    pub(super) async fn with_room<T, E>(&self, mut admit: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let mut admitted = admit();
        if admitted.is_err() && self.evict_placed() {
            for _ in 0..LOOKS {
                tokio::time::sleep(LOOK_AFTER).await;
                admitted = admit();
                if admitted.is_ok() {
                    break;
                }
            }
        }
        admitted
    }

    fn evict_placed(&self) -> bool {
        self.openings.lock().evict_placed(MUTE_AFTER)
    }

    /// It has been told why it is refused, and only has time to hear it: it makes room again, and before those that came later.
    pub(super) fn leaves(&self) {
        let mut strangers = self.openings.lock();
        strangers.placed.remove(&self.number);
        strangers.waiting.insert(self.number, Arc::clone(&self.gives_way));
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
            let opening = begun(&openings);
            opening.holds_place(true);
            drop(opening);
        }
        let strangers = openings.lock();
        assert!(strangers.waiting.is_empty() && strangers.placed.is_empty());
    }

    #[test]
    fn who_holds_a_place_and_is_mute_makes_room_oldest_first() {
        let openings = Openings::new(5);
        let [bare, older, younger, known, denied] = [(); 5].map(|()| begun(&openings));
        for placed in [&younger, &older, &known, &denied] {
            placed.holds_place(true);
        }
        known.said_who();
        denied.holds_place(false);
        let evict = |mute_for| openings.lock().evict_placed(mute_for);
        assert!(!evict(Duration::from_secs(600)), "they have just been answered");
        assert!(evict(Duration::ZERO));
        assert!(poll(older.gives_way()).is_ready() && poll(younger.gives_way()).is_pending());
        assert!(evict(Duration::ZERO) && !evict(Duration::ZERO));
        assert!(poll(younger.gives_way()).is_ready());
        assert!([bare, known, denied].iter().all(|other| poll(other.gives_way()).is_pending()));
    }
}
