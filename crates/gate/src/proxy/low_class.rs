//! The low class: one token bucket for all of its sessions, one for each of its pools that has a bandwidth, and the
//! scheduler that says whose turn it is. All of it is used from the one worker that relays the class.
//!
//! A session asks for a quantum when its server has something for it. It is granted at once if nobody waits and there is
//! credit; otherwise it waits in its pool, then in the class, and is woken with its grant. Credit that it did not need
//! goes back. From its first ask until a session finds that there is nothing more, the class wants what accrues: whatever makes
//! it late then (this thread's wake-up, a way that is full, another program on the processor), it catches up, a tenth of a second
//! at most. Beside the rate, what of the class is on its way is bounded, and how fast it may catch up ([`super::sockets`]); and
//! where the rate is to be found, [`LowClass::tend`] finds it. What is found is what a link has left: a session whose client came
//! by a Unix socket uses none, and is held to its pool's bandwidth alone then.

use super::buffers::QUANTUM;
use super::direction::Pacer;
use super::log_limit;
use super::sockets::Sockets;
use super::stream::Stream;
use crate::clock::{self, Timer};
use backwater_flow::auto::{Auto, FLOOR_BPS, Readings, TICK, UrgentStatement};
use backwater_flow::limiter::TokenBucket;
use backwater_flow::{LowPriorityBandwidth, PoolId, Priority, Scheduler, SessionId, Turn};
use backwater_model::{Moment, Span};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::sync::Notify;

/// The driver sleeps no less: at high rates a quantum comes sooner (in 131 µs at 1 GB/s, in a quarter of that to clients elsewhere),
/// and waking for each of them takes the processor time that relaying needs. What has accrued meanwhile goes together, a quarter of
/// a burst at most.
const LEAST_SLEEP: Span = Span(250);
/// How soon is looked again whether what is on its way has become less.
const ROOM_LOOK: Span = Span(300);
/// How often the way's length is looked at where the rate is fixed.
const WAY_LOOK: Span = Span::from_millis(100);

/// A pool of the low class.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowPool {
    pub(super) id: PoolId,
    pub(super) weight: u32,
    pub(super) bandwidth_bps: Option<u64>,
}

/// What a rate that is found was last found from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The queueing delay of the class's own packets.
    pub(super) queueing: Option<Span>,
    /// What urgent statements take longer than without the class, where that is too much.
    pub(super) urgent_slower_by: Option<Span>,
}

/// The class. Clones are the same class.
#[derive(Clone)]
pub(super) struct LowClass {
    inner: Arc<Mutex<Inner>>,
    /// Somebody began to wait.
    asked: Arc<Notify>,
    /// There is a socket to look at.
    opened: Arc<Notify>,
}

struct Inner {
    class: TokenBucket,
    /// Finds the rate; None where it is fixed.
    auto: Option<Auto>,
    /// What the urgent workers tell of their statements.
    heard: Vec<Receiver<UrgentStatement>>,
    sockets: Sockets,
    scheduler: Scheduler,
    pools: BTreeMap<PoolId, PoolQueue>,
    waiting: HashMap<SessionId, Waiting>,
    /// Until when the driver sleeps; None while it waits to be asked.
    driver_until: Option<Moment>,
}

/// Sessions that wait for their pool's own bandwidth, before they wait for the class's.
#[derive(Default)]
struct PoolQueue {
    bucket: Option<TokenBucket>,
    sessions: VecDeque<SessionId>,
}

impl PoolQueue {
    fn set(&mut self, now: Moment, bandwidth_bps: Option<u64>) {
        match (&mut self.bucket, bandwidth_bps) {
            (Some(bucket), Some(rate)) if bucket.rate_bps() == rate => {}
            (Some(bucket), Some(rate)) => bucket.set_rate(now, rate),
            (bucket, rate) => *bucket = rate.map(|rate| TokenBucket::new(now, rate)),
        }
    }
}

struct Waiting {
    waker: Waker,
    pool: PoolId,
    uses_link: bool,
    granted: Option<Grant>,
}

impl Waiting {
    fn grant(&mut self, grant: Grant) {
        self.granted = Some(grant);
        self.waker.wake_by_ref();
    }
}

/// What a session may send.
#[derive(Clone, Copy, Debug)]
struct Grant {
    bytes: u64,
    paid: Paid,
}

/// Who paid for what was granted: to whom goes back what is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paid {
    /// The session's pool, where it has a bandwidth, and the class.
    PoolAndClass,
    /// The pool alone.
    Pool,
}

impl LowClass {
    pub(super) fn new(bandwidth: LowPriorityBandwidth, pools: impl IntoIterator<Item = LowPool>) -> Self {
        let inner = Inner {
            class: TokenBucket::new(clock::now(), FLOOR_BPS),
            auto: None,
            heard: Vec::new(),
            sockets: Sockets::default(),
            scheduler: Scheduler::new(),
            pools: BTreeMap::new(),
            waiting: HashMap::new(),
            driver_until: None,
        };
        let class = LowClass { inner: Arc::new(Mutex::new(inner)), asked: Arc::default(), opened: Arc::default() };
        class.set(bandwidth, pools);
        class
    }

    /// Another rate, other weights and bandwidths, from now on. A pool that is not named has no bandwidth of its own.
    pub(super) fn set(&self, bandwidth: LowPriorityBandwidth, pools: impl IntoIterator<Item = LowPool>) {
        let now = clock::now();
        let mut inner = self.lock();
        inner.allow(now, bandwidth);
        let mut named = BTreeMap::new();
        for pool in pools {
            inner.scheduler.set_weight(pool.id, pool.weight);
            named.insert(pool.id, pool.bandwidth_bps);
            inner.pools.entry(pool.id).or_default();
        }
        for (id, queue) in &mut inner.pools {
            queue.set(now, named.get(id).copied().flatten());
        }
        drop(inner);
        self.asked.notify_one();
    }

    /// Listens to what an urgent worker tells.
    pub(super) fn hear(&self, heard: Receiver<UrgentStatement>) {
        self.lock().heard.push(heard);
    }

    /// The rate in force, in bytes a second, and the sessions that wait for some of it.
    pub(super) fn pressure(&self) -> (u64, usize) {
        let inner = self.lock();
        (inner.class.rate_bps(), inner.waiting.values().filter(|waiting| waiting.granted.is_none()).count())
    }

    /// What the rate was last found from; None where it is fixed.
    pub(super) fn found(&self) -> Option<Found> {
        let found = |auto: &Auto| Found { queueing: auto.queueing(), urgent_slower_by: auto.urgent_slower_by() };
        self.lock().auto.as_ref().map(found)
    }

    /// A session of a pool begins, with a duplicate of its socket towards its client where that is TCP: where there was no descriptor
    /// for one, it is held all the same, and only not asked how its link is.
    pub(super) fn open(&self, session: SessionId, pool: PoolId, socket: io::Result<Option<OwnedFd>>) -> LowSession {
        let mut inner = self.lock();
        inner.scheduler.place(session, pool, Priority::Low);
        let uses_link = !matches!(socket, Ok(None));
        if let Err(error) = &socket {
            let told = "no descriptor is left to ask how its link is: it is held all the same";
            log_limit::NO_DESCRIPTOR.write(|| tracing::warn!(%session, %error, "{told}"));
        }
        if let Ok(Some(socket)) = socket {
            inner.sockets.add(session, socket);
            self.opened.notify_one();
        }
        LowSession { class: self.clone(), session, pool, uses_link, paid: Paid::PoolAndClass, asked: false, dry: true }
    }

    /// Grants credit as it comes, for as long as it is polled. Ends only if the timer fails.
    pub(super) async fn drive(&self) -> io::Result<()> {
        let timer = Timer::new()?;
        loop {
            let next = self.lock().grant_and_remember(clock::now());
            match next {
                // Somebody may have to be served before that moment: a pool's next turn can be far away.
                Some(moment) => tokio::select! {
                    biased;
                    waited = timer.until(moment) => waited?,
                    () = self.asked.notified() => {}
                },
                None => self.asked.notified().await,
            }
        }
    }

    /// Looks at the class's sockets again and again: how long their way is, for what may be on it; and where the rate is to
    /// be found, how much of that is queue. Ends only if the timer fails.
    pub(super) async fn tend(&self) -> io::Result<()> {
        let timer = Timer::new()?;
        loop {
            let again = self.lock().look(clock::now());
            match again {
                Some(again) => timer.until(again).await?,
                None => self.opened.notified().await,
            }
            self.asked.notify_one();
        }
    }

    /// A panic elsewhere leaves the counts whole: they are changed in single steps.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn allow(&mut self, now: Moment, bandwidth: LowPriorityBandwidth) {
        match bandwidth {
            LowPriorityBandwidth::Fixed(rate_bps) => {
                self.auto = None;
                if self.class.rate_bps() != rate_bps {
                    self.class.set_rate(now, rate_bps);
                }
                self.sockets.pace(rate_bps);
            }
            LowPriorityBandwidth::Auto if self.auto.is_none() => {
                let auto = self.auto.insert(Auto::new(now, FLOOR_BPS));
                self.class.set_rate(now, auto.rate_bps());
                self.sockets.pace(auto.rate_bps());
            }
            LowPriorityBandwidth::Auto => {}
        }
    }

    /// Reads the sockets. Returns when to look again; None while there are none.
    fn look(&mut self, now: Moment) -> Option<Moment> {
        if self.sockets.is_empty() {
            return None;
        }
        let (sockets, shortest) = self.sockets.read();
        let (again, min_rtt) = match &mut self.auto {
            Some(auto) => {
                let urgent: Vec<_> = self.heard.iter().flat_map(Receiver::try_iter).collect();
                let rate_bps = auto.tick(now, &Readings { sockets: &sockets, urgent: &urgent });
                self.class.set_rate(now, rate_bps);
                self.sockets.pace(rate_bps);
                (TICK, auto.min_rtt())
            }
            None => (WAY_LOOK, shortest),
        };
        self.sockets.bound(self.class.rate_bps(), min_rtt);
        Some(now + again)
    }

    fn grant_and_remember(&mut self, now: Moment) -> Option<Moment> {
        self.driver_until = self.grant(now);
        self.driver_until
    }

    /// Grants what can be granted now. Returns when to look whether there is more; None if nobody waits.
    fn grant(&mut self, now: Moment) -> Option<Moment> {
        self.grant_until(now).map(|again| again.max(now + LEAST_SLEEP))
    }

    /// The same, with the moment at which there is more.
    fn grant_until(&mut self, now: Moment) -> Option<Moment> {
        let pools = self.release(now);
        while self.scheduler.backlog_bytes(Priority::Low) > 0 {
            let quantum = self.class.quantum_bytes();
            if let Some(again) = self.refused(now, quantum) {
                return Some(pools.map_or(again, |pool| pool.min(again)));
            }
            if let Some(turn) = self.scheduler.next(quantum, quantum) {
                self.class.give_back(quantum - turn.bytes);
                self.take_turn(turn);
            }
        }
        pools
    }

    /// A session has its turn. It waited for a larger one if the class's rate has fallen meanwhile.
    fn take_turn(&mut self, turn: Turn) {
        let left = self.scheduler.withdraw(turn.session);
        // Who does not wait has offered nothing.
        let Some(waiting) = self.waiting.get_mut(&turn.session) else { return };
        let pool = waiting.pool;
        waiting.grant(Grant { bytes: turn.bytes, paid: Paid::PoolAndClass });
        self.sockets.granted(turn.session, turn.bytes);
        self.give_back(pool, Paid::Pool, left);
    }

    /// Takes a quantum from the class. What is returned is when to ask again, if it is not to be had now.
    fn refused(&mut self, now: Moment, quantum: u64) -> Option<Moment> {
        let ready = self.class.ready_for(now, quantum);
        if ready <= now && !self.sockets.has_room(now) {
            // How late it is seen that there is room again must not cost the class its rate.
            self.class.wait(now);
            return Some(now + ROOM_LOOK);
        }
        (!self.class.take_whole(now, quantum)).then_some(ready)
    }

    /// A session has nothing to send for now. If nobody else waits, credit that is not used is lost from here on.
    fn dry(&mut self, now: Moment, pool: PoolId) {
        if self.scheduler.backlog_bytes(Priority::Low) == 0 {
            self.class.idle(now);
        }
        if let Some(queue) = self.pools.get_mut(&pool)
            && queue.sessions.is_empty()
            && let Some(bucket) = &mut queue.bucket
        {
            bucket.idle(now);
        }
    }

    /// Lets sessions pass from their pools' queues to the class's, as their bandwidth allows.
    fn release(&mut self, now: Moment) -> Option<Moment> {
        let mut next: Option<Moment> = None;
        for queue in self.pools.values_mut() {
            let own = queue.bucket.as_ref().map_or(u64::MAX, TokenBucket::quantum_bytes);
            let most = own.min(self.class.quantum_bytes());
            while let Some(session) = queue.sessions.front().copied() {
                let bytes = most.min(self.sockets.most_at_once(session));
                if let Some(bucket) = &mut queue.bucket
                    && !bucket.take_whole(now, bytes)
                {
                    let ready = bucket.ready_for(now, bytes);
                    next = Some(next.map_or(ready, |other| other.min(ready)));
                    break;
                }
                queue.sessions.pop_front();
                match self.waiting.get_mut(&session).filter(|waiting| self.auto.is_some() && !waiting.uses_link) {
                    Some(waiting) => waiting.grant(Grant { bytes, paid: Paid::Pool }),
                    None => self.scheduler.offer(session, bytes),
                }
            }
        }
        next
    }

    fn ask(&mut self, asking: &LowSession) {
        let LowSession { session, pool, uses_link, .. } = *asking;
        self.waiting.insert(session, Waiting { waker: Waker::noop().clone(), pool, uses_link, granted: None });
        // A pool that the class was not told of has no bandwidth of its own.
        self.pools.entry(pool).or_default().sessions.push_back(session);
    }

    fn give_back(&mut self, pool: PoolId, paid: Paid, bytes: u64) {
        if paid == Paid::PoolAndClass {
            self.class.give_back(bytes);
        }
        if let Some(bucket) = self.pools.get_mut(&pool).and_then(|queue| queue.bucket.as_mut()) {
            bucket.give_back(bytes);
        }
    }
}

/// One session's way into the class. Dropping it takes it out.
pub(super) struct LowSession {
    class: LowClass,
    session: SessionId,
    pool: PoolId,
    /// Its client came by a network.
    uses_link: bool,
    /// Who paid for what it was granted last.
    paid: Paid,
    asked: bool,
    /// Its server had nothing for it when it last looked.
    dry: bool,
}

impl Pacer for LowSession {
    fn poll_credit(&mut self, cx: &mut Context<'_>, from: &Stream) -> Poll<io::Result<usize>> {
        if !self.asked {
            // Credit is asked for only when there is something to send.
            if self.dry {
                ready!(from.poll_read_ready(cx))?;
            } else if from.poll_read_ready(cx)?.is_pending() {
                self.dry = true;
                self.class.lock().dry(clock::now(), self.pool);
                return Poll::Pending;
            }
            self.dry = false;
        }
        let mut inner = self.class.lock();
        if !self.asked {
            // Nobody may be before this one: then it goes at once, and need not be woken. The driver hears only of those
            // that must wait, and only if it would sleep past them.
            inner.ask(self);
            self.asked = true;
            let next = inner.grant(clock::now());
            if next.is_some_and(|next| inner.driver_until.is_none_or(|until| next < until)) {
                self.class.asked.notify_one();
            }
        }
        let Some(waiting) = inner.waiting.get_mut(&self.session) else { return Poll::Ready(Ok(QUANTUM)) };
        let Some(grant) = waiting.granted else {
            waiting.waker.clone_from(cx.waker());
            return Poll::Pending;
        };
        inner.waiting.remove(&self.session);
        (self.asked, self.paid) = (false, grant.paid);
        Poll::Ready(Ok(grant.bytes.try_into().unwrap_or(QUANTUM)))
    }

    fn unused(&mut self, bytes: usize) {
        if bytes > 0 {
            let mut inner = self.class.lock();
            inner.sockets.unused(self.session, bytes as u64);
            inner.give_back(self.pool, self.paid, bytes as u64);
        }
    }

    fn seen(&mut self, _: &[u8]) {}
}

impl Drop for LowSession {
    fn drop(&mut self) {
        let mut inner = self.class.lock();
        inner.sockets.remove(self.session);
        let in_scheduler = inner.scheduler.close(self.session);
        let granted = inner.waiting.remove(&self.session).and_then(|waiting| waiting.granted);
        if let Some(queue) = inner.pools.get_mut(&self.pool) {
            queue.sessions.retain(|other| *other != self.session);
        }
        if let Some(Grant { bytes, paid }) = granted {
            inner.give_back(self.pool, paid, bytes);
        }
        // Its pool had paid for that already, the class not yet.
        inner.give_back(self.pool, Paid::Pool, in_scheduler);
        inner.dry(clock::now(), self.pool);
    }
}

#[cfg(test)]
#[path = "low_class_tests.rs"]
mod tests;
